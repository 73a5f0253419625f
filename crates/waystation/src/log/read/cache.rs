//! What was read of segments lately: single units, which nothing has verified yet, and whole blocks, which their
//! checksums have.

use crate::sync::Arc;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use waystation_format::log::{BLOCK_BYTES_MAX, UNIT_BYTES};

/// A cache begins with room for no more of them.
const EXPECTED_MAX: usize = 1 << 20;

/// Blocks and units, by position. Both start on a unit; a block's key is odd.
pub(in crate::log) struct LogCache(Option<Cache<u64, Arc<[u8]>, ByLength>>);

#[derive(Clone)]
struct ByLength;

impl Weighter<u64, Arc<[u8]>> for ByLength {
    fn weight(&self, _: &u64, bytes: &Arc<[u8]>) -> u64 {
        bytes.len() as u64
    }
}

impl LogCache {
    /// A cache of `bytes`; none at all if there is no room for a few blocks.
    pub(in crate::log) fn new(bytes: usize) -> Self {
        // How many are expected, for which room is made at once; more come as they come.
        let units = (bytes / UNIT_BYTES).min(EXPECTED_MAX);
        let has_room = bytes >= 4 * BLOCK_BYTES_MAX;
        Self(has_room.then(|| Cache::with_weighter(units, bytes as u64, ByLength)))
    }

    /// The verified block at `lsn`.
    pub(super) fn block(&self, lsn: u64) -> Option<Arc<[u8]>> {
        self.0.as_ref()?.get(&(lsn | 1))
    }

    /// Keeps a verified block.
    pub(super) fn keep_block(&self, lsn: u64, block: &Arc<[u8]>) {
        if let Some(cache) = &self.0 {
            cache.insert(lsn | 1, Arc::clone(block));
        }
    }

    /// Puts together in `out` what lies from `start` to `end`, both multiples of the unit. Returns whether all of it
    /// was there.
    pub(super) fn units(&self, start: u64, end: u64, out: &mut Vec<u8>) -> bool {
        let Some(cache) = &self.0 else {
            return false;
        };
        out.clear();
        (start..end).step_by(UNIT_BYTES).all(|lsn| {
            let unit = cache.get(&lsn);
            out.extend_from_slice(unit.as_deref().unwrap_or_default());
            unit.is_some()
        })
    }

    /// Keeps the units that `bytes` consists of, the first of them at `start`.
    pub(super) fn keep_units(&self, start: u64, bytes: &[u8]) {
        if let Some(cache) = &self.0 {
            for (lsn, unit) in (start..).step_by(UNIT_BYTES).zip(bytes.chunks(UNIT_BYTES)) {
                cache.insert(lsn, unit.into());
            }
        }
    }
}
