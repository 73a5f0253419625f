//! What was read of segments lately: single units, which nothing has verified yet, and whole blocks, which their
//! checksums have. Databases may share it; each has an account for its part.

use crate::background::{Account, Charge, Elastic, Use};
use crate::sync::Arc;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use waystation_format::log::{BLOCK_BYTES_MAX, UNIT_BYTES};

/// A cache begins with room for no more of them.
const EXPECTED_MAX: usize = 1 << 20;

/// Blocks and units, by account and position. Both start on a unit; a block's position is odd.
pub(crate) struct LogCache(Option<Cache<(u64, u64), Cached, ByLength>>);

/// A block or a unit, and the charge for it.
#[derive(Clone)]
struct Cached {
    bytes: Arc<[u8]>,
    _charge: Arc<Charge>,
}

#[derive(Clone)]
struct ByLength;

impl Weighter<(u64, u64), Cached> for ByLength {
    fn weight(&self, _: &(u64, u64), cached: &Cached) -> u64 {
        cached.bytes.len() as u64
    }
}

impl LogCache {
    /// A cache of `bytes`; none at all if there is no room for a few blocks.
    pub(crate) fn new(bytes: usize) -> Self {
        // How many are expected, for which room is made at once; more come as they come.
        let units = (bytes / UNIT_BYTES).min(EXPECTED_MAX);
        let has_room = bytes >= 4 * BLOCK_BYTES_MAX;
        Self(has_room.then(|| Cache::with_weighter(units, bytes as u64, ByLength)))
    }
}

impl Elastic for LogCache {
    fn resize(&self, bytes: u64) {
        if let Some(cache) = &self.0 {
            cache.set_capacity(bytes);
        }
    }
}

/// The part of a cache that one log has. What is in it goes with the log.
#[derive(Clone)]
pub(crate) struct LogBlocks {
    cache: Arc<LogCache>,
    account: Arc<Account>,
}

impl LogBlocks {
    /// The part of `cache` for the log of the database that `account` is of.
    pub(crate) fn new(cache: &Arc<LogCache>, account: &Arc<Account>) -> Self {
        Self {
            cache: Arc::clone(cache),
            account: Arc::clone(account),
        }
    }

    /// A cache of its own of `bytes`.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn own(bytes: usize) -> Self {
        let account = Account::own(std::path::Path::new("/log"));
        Self::new(&Arc::new(LogCache::new(bytes)), &account)
    }

    fn get(&self, position: u64) -> Option<Arc<[u8]>> {
        let cache = self.cache.0.as_ref()?;
        cache.get(&(self.account.id(), position)).map(|it| it.bytes)
    }

    fn keep(&self, position: u64, bytes: impl FnOnce() -> Arc<[u8]>) {
        if let Some(cache) = &self.cache.0 {
            let bytes = bytes();
            let charge = Charge::new(&self.account, Use::Cache, bytes.len() as u64);
            let cached = Cached {
                bytes,
                _charge: Arc::new(charge),
            };
            cache.insert((self.account.id(), position), cached);
        }
    }

    /// The verified block at `lsn`.
    pub(super) fn block(&self, lsn: u64) -> Option<Arc<[u8]>> {
        self.get(lsn | 1)
    }

    /// Keeps a verified block.
    pub(super) fn keep_block(&self, lsn: u64, block: &Arc<[u8]>) {
        self.keep(lsn | 1, || Arc::clone(block));
    }

    /// Puts together in `out` what lies from `start` to `end`, both multiples of the unit. Returns whether all of it
    /// was there.
    pub(super) fn units(&self, start: u64, end: u64, out: &mut Vec<u8>) -> bool {
        out.clear();
        (start..end).step_by(UNIT_BYTES).all(|lsn| {
            let unit = self.get(lsn);
            out.extend_from_slice(unit.as_deref().unwrap_or_default());
            unit.is_some()
        })
    }

    /// Keeps the units that `bytes` consists of, the first of them at `start`.
    pub(super) fn keep_units(&self, start: u64, bytes: &[u8]) {
        for (lsn, unit) in (start..).step_by(UNIT_BYTES).zip(bytes.chunks(UNIT_BYTES)) {
            self.keep(lsn, || unit.into());
        }
    }
}

impl Drop for LogBlocks {
    fn drop(&mut self) {
        if let Some(cache) = &self.cache.0
            && self.account.bytes(Use::Cache) > 0
        {
            let id = self.account.id();
            cache.retain(|(of, _), _| *of != id);
        }
    }
}
