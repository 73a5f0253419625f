//! Which settings follow from the options and the fast directory.

use super::{Spread, log_settings, open_tier, prepare_directory};
use crate::FastTier;
use crate::options::{Options, Resources};
use crate::storage::{SimStorage, Storage};
use std::path::Path;
use std::sync::Arc;

#[test]
fn the_ring_shares_its_room_only_where_it_fits_into_the_fast_directory() {
    for (capacity, fits) in [(8 << 20, true), (4 << 20, false)] {
        let fast = FastTier {
            durable: true,
            ..FastTier::new("/fast", capacity)
        };
        let options = Options {
            ring_bytes: 4 << 20,
            log_segment_bytes: 1 << 20,
            fast: Some(fast),
            ..Options::default()
        };
        let storage: Arc<dyn Storage> = SimStorage::new(1);
        let path = Path::new("/db");
        prepare_directory(&*storage, path, &options).unwrap();
        let tier = open_tier(&storage, path, &options).unwrap();
        let (fast, ring_bytes) = (options.fast.as_ref(), options.ring_bytes as u64);
        let _spread = Spread::own(&storage, path, fast, tier.as_ref(), ring_bytes).unwrap();
        let resources = Resources::of(&options);
        let memory = resources.open(path, ring_bytes).unwrap();
        let settings = log_settings(&options, &resources, &memory.account, tier.as_deref());
        assert_eq!(settings.ring_shares_room, fits);
    }
}
