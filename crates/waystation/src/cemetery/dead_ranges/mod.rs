//! The dead-range cache: runs of dead keys that scans came through, not to be walked again.
//!
//! A cursor at snapshot `X` that finds every version in a range dead notes: here everything up to `X` is hidden from
//! snapshots `>= X`. That stays true whatever is written meanwhile: the cursor saw all writes up to `X`, later ones
//! have higher sequence numbers (but for a device that is admitted: see [`DeadRangeCache::forget`]), and
//! what is dead at `X` is dead at every later snapshot. So there is nothing to be undone and nothing to be made
//! durable; after a restart the cache fills again.

pub(crate) mod search;

use super::Cut;
use super::fragments::{Fragments, Span};
use crate::sync::RwLock;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::{AtomicU64, AtomicUsize};

/// Why the lock is never poisoned.
const LOCKED: &str = "no thread panics with the dead ranges locked";
/// At most so many ranges are remembered; when there are more, all are forgotten.
const RANGES_MAX: usize = 4096;
/// So many of the latest snapshots count in each.
const CUTS_MAX: usize = 2;
/// A run is worth remembering from so many dead versions on.
pub(crate) const RUN_MIN: usize = 64;

/// Ranges in which everything up to some sequence number is dead.
#[derive(Debug, Default)]
pub(crate) struct DeadRangeCache {
    ranges: RwLock<Fragments>,
    count: AtomicUsize,
    /// Ranges that were noted so far.
    added: AtomicUsize,
    /// How many there were at the last question.
    told: AtomicUsize,
    /// What scans at earlier snapshots find does not count.
    not_before: AtomicU64,
}

impl DeadRangeCache {
    /// Notes that a reader at `snapshot` sees nothing from `start` (included) to `end` (excluded).
    pub(crate) fn add(&self, start: &[u8], end: Option<&[u8]>, snapshot: u64) {
        let cut = Cut {
            below: snapshot + 1,
            from: snapshot,
        };
        let mut ranges = self.ranges.write().expect(LOCKED);
        if snapshot < self.not_before.load(Relaxed) {
            return;
        }
        if ranges.len() >= RANGES_MAX {
            *ranges = Fragments::default();
        }
        ranges.insert(start, end, cut);
        ranges.keep_latest(start, end, CUTS_MAX);
        self.added.fetch_add(1, Relaxed);
        self.count.store(ranges.len(), Relaxed);
    }

    /// Forgets all that was found at snapshots before `sequence`, now and later: something appears that was written
    /// before and hidden so far.
    pub(crate) fn forget(&self, sequence: u64) {
        let mut ranges = self.ranges.write().expect(LOCKED);
        self.not_before.store(sequence, Relaxed);
        *ranges = Fragments::default();
        self.count.store(0, Relaxed);
    }

    /// Whether the cache is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// Whether ranges were noted since the last question.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        let added = self.added();
        added != self.told.load(Relaxed) && self.told.swap(added, Relaxed) != added
    }

    /// How many ranges were noted so far.
    pub(crate) fn added(&self) -> usize {
        self.added.load(Relaxed)
    }

    /// How many ranges are remembered.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Shows `look` the span around `key` at `snapshot`, if the cache has any.
    pub(crate) fn with_span(&self, key: &[u8], snapshot: u64, look: &mut dyn FnMut(&Span<'_>)) {
        if !self.is_empty() {
            look(&self.ranges.read().expect(LOCKED).span(key, snapshot));
        }
    }

    /// Whether everything from `first` to `last` below `bound` is known to be dead for all who read at `snapshot` or
    /// later.
    pub(crate) fn covers(&self, first: &[u8], last: &[u8], bound: u64, snapshot: u64) -> bool {
        let ranges = self.ranges.read().expect(LOCKED);
        !ranges.is_empty() && ranges.covers(first, last, bound, snapshot)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_grows_from_scan_to_scan_stays_one_jump_or_two() {
        let cache = DeadRangeCache::default();
        let key = |number: u64| format!("{number:05}").into_bytes();
        for snapshot in 1..=10_000 {
            cache.add(b"", Some(&key(snapshot)), snapshot);
            assert!(cache.len() <= 2, "{}", cache.len());
            assert!(cache.covers(b"", &key(snapshot - 1), snapshot + 1, snapshot));
        }
        let mut end = Vec::new();
        cache.with_span(b"", 10_000, &mut |span| {
            end = span.end.unwrap_or_default().to_vec();
        });
        assert_eq!(end, key(9_999));
    }
}
