//! Settings of one life: little of everything, and never twice the same.

use super::plan::{Plan, RING_BYTES_MIN};
use crate::support::Random;
use std::time::Duration;
use waystation::{DeviceOptions, Extractor, FastTier, Options};

pub(crate) fn options(plan: &Plan, random: &mut Random) -> Options {
    let residency = Duration::from_millis(10 << random.below(14));
    Options {
        devices: (plan.devices > 0).then(|| DeviceOptions {
            residency,
            upper_bytes: Some((128 << 10) << random.below(4)),
            replay_bytes: [0, 1 << 10, 16 << 10, 64 << 10, 4 << 30][random.below(5) as usize],
            ..DeviceOptions::new(Extractor::until(b':'))
        }),
        memtable_bytes: (64 << 10) << random.below(3),
        table_bytes: (64 << 10) << random.below(3),
        block_bytes: 1024 << random.below(3),
        ring_bytes: RING_BYTES_MIN << random.below(3),
        log_segment_bytes: (256 << 10) << random.below(3),
        cache_bytes: 64 << 10,
        background_jobs: 1 + random.below(2) as usize,
        filter_bits_per_key: if random.one_in(4) { 0 } else { 10 },
        // Often none stay in memory, or few.
        graves_bytes: [0, 1 << 10, 64 << 20][random.below(3) as usize],
        fast: random.one_in(3).then(|| FastTier {
            durable: !random.one_in(4),
            ..FastTier::new("/fast", 1 << 20)
        }),
        ..Options::default()
    }
}
