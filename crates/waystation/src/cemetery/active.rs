//! Active graves: the graves of one memtable, added by many threads at once.
//!
//! Keys lie in a hash table that is read without locks. Ranges are few and lie behind a lock, which no reader touches
//! while there are none. Keys with a time to live have graves with a date, in a table of their own, at which no reader
//! looks before the first of these dates.

use super::Cut;
use super::fragments::{Fragments, Span};
use super::points::{DatedPoints, Points};
use crate::sync::RwLock;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::OnceLock;
use waystation_format::order::Order;

/// Why the lock on ranges is never poisoned.
const LOCKED: &str = "no thread panics with the ranges of a memtable's graves locked";
/// What a range takes besides its keys, about.
const RANGE_BYTES: usize = 256;

/// The graves of one memtable.
pub(crate) struct ActiveGraves {
    capacity_bytes: usize,
    points: Points,
    ranges: RwLock<Fragments>,
    /// Deletions of ranges so far.
    range_deletions: AtomicUsize,
    /// What ranges take because they overlap.
    overlap_bytes: AtomicUsize,
    dated: OnceLock<DatedPoints>,
    /// The first date of these.
    earliest: AtomicU64,
    /// All that there is besides graves of keys: ranges, dated graves, and what else a flush has to do.
    others: AtomicUsize,
}

impl ActiveGraves {
    /// Room for graves that take at most `capacity_bytes`, as [`ActiveGraves::point_bytes`] and
    /// [`ActiveGraves::range_bytes`] count.
    pub(crate) fn new(capacity_bytes: usize) -> Self {
        Self::in_order(capacity_bytes, &Order::Bytewise)
    }

    /// The same, of keys that are in `order`. In a program's own there are only graves of ranges: a hash tells keys
    /// apart that compare equal.
    pub(crate) fn in_order(capacity_bytes: usize, order: &Order) -> Self {
        Self {
            capacity_bytes,
            points: Points::new(capacity_bytes),
            ranges: RwLock::new(Fragments::new(order)),
            range_deletions: AtomicUsize::new(0),
            overlap_bytes: AtomicUsize::new(0),
            dated: OnceLock::new(),
            earliest: AtomicU64::new(u64::MAX),
            others: AtomicUsize::new(0),
        }
    }

    /// What the grave of a key takes at most.
    pub(crate) const fn point_bytes(key_bytes: usize) -> usize {
        Points::grave_bytes(key_bytes)
    }

    /// What the grave of a range takes, about, if it overlaps no other; see [`ActiveGraves::overlap_bytes`].
    pub(crate) const fn range_bytes(start_bytes: usize, end_bytes: usize) -> usize {
        start_bytes + end_bytes + RANGE_BYTES
    }

    /// What the dated grave of a key takes at most.
    pub(crate) const fn dated_bytes(key_bytes: usize) -> usize {
        DatedPoints::grave_bytes(key_bytes)
    }

    /// The deletion of `key` at `sequence`. Returns how many graves of keys there were before.
    pub(crate) fn delete(&self, key: &[u8], sequence: u64) -> usize {
        self.points.insert(key, sequence)
    }

    /// The deletion of all keys from `start` (included) to `end` (excluded; `None`: all behind) at `sequence`.
    pub(crate) fn delete_range(&self, start: &[u8], end: Option<&[u8]>, sequence: u64) {
        let mut ranges = self.ranges.write().expect(LOCKED);
        let cuts = ranges.insert(start, end, Cut::deletion(sequence));
        let overlapping = cuts.saturating_sub(1) * size_of::<Cut>();
        self.overlap_bytes.fetch_add(overlapping, Relaxed);
        self.range_deletions.fetch_add(1, Relaxed);
        self.others.fetch_add(1, Relaxed);
    }

    /// What ranges take beside their [`ActiveGraves::range_bytes`], because they overlap. It is unknown before they
    /// do.
    #[inline]
    pub(crate) fn overlap_bytes(&self) -> usize {
        self.overlap_bytes.load(Relaxed)
    }

    /// The deletion of `key` at `sequence`, which counts from `date` on.
    pub(crate) fn expire(&self, key: &[u8], sequence: u64, date: u64) {
        let dated = self
            .dated
            .get_or_init(|| DatedPoints::new(self.capacity_bytes));
        dated.insert(key, sequence, date);
        self.earliest.fetch_min(date, Relaxed);
        self.others.fetch_add(1, Relaxed);
    }

    /// A flush has something to do that is not here: a time was reached, or flushed graves lie beyond what they go
    /// through.
    pub(crate) fn note_due(&self) {
        self.others.fetch_add(1, Relaxed);
    }

    /// Whether there is no grave, and nothing for a flush to do.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.points.len() == 0 && self.others.load(Relaxed) == 0
    }

    /// The dated graves, if there are some.
    pub(crate) fn dated(&self) -> Option<&DatedPoints> {
        self.dated.get()
    }

    /// How many dated graves there are.
    pub(crate) fn dated_len(&self) -> usize {
        self.dated.get().map_or(0, DatedPoints::len)
    }

    /// The first date of a grave; the end of time if none has one.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        self.earliest.load(Relaxed)
    }

    /// The latest deletion of `key`, whose hash is `hash`, up to `snapshot` that has a date, and counts at `time`; 0 if
    /// there is none.
    #[inline]
    pub(crate) fn dated_covering(&self, key: &[u8], hash: u64, snapshot: u64, time: u64) -> u64 {
        if self.earliest() > time {
            return 0;
        }
        let dated = self.dated.get();
        dated.map_or(0, |dated| dated.covering(key, hash, snapshot, time))
    }

    /// Whether a range was deleted.
    #[inline]
    pub(crate) fn has_ranges(&self) -> bool {
        self.range_deletions.load(Relaxed) > 0
    }

    /// The graves of single keys.
    pub(crate) fn points(&self) -> &Points {
        &self.points
    }

    /// How many ranges were deleted.
    pub(crate) fn range_deletions(&self) -> usize {
        self.range_deletions.load(Relaxed)
    }

    /// The latest deletion of `key`, whose hash is `hash`, up to `snapshot`; 0 if there is none.
    #[inline]
    pub(crate) fn covering(&self, key: &[u8], hash: u64, snapshot: u64) -> u64 {
        let of_key = self.points.covering(key, hash, snapshot);
        if self.has_ranges() {
            let ranges = self.ranges.read().expect(LOCKED);
            return of_key.max(ranges.covering(key, snapshot));
        }
        of_key
    }

    /// Looks at the ranges.
    pub(crate) fn with_ranges<T>(&self, look: impl FnOnce(&Fragments) -> T) -> T {
        look(&self.ranges.read().expect(LOCKED))
    }

    /// Bytes of memory taken.
    pub(crate) fn memory_bytes(&self) -> usize {
        let dated = self.dated.get().map_or(0, DatedPoints::memory_bytes);
        self.points.memory_bytes() + dated + self.with_ranges(Fragments::memory_bytes)
    }

    /// Bytes of the keys among them.
    pub(crate) fn key_bytes(&self) -> usize {
        self.points.key_bytes() + self.dated.get().map_or(0, DatedPoints::key_bytes)
    }

    /// Shows `look` the span around `key` at `snapshot`, if a range was deleted.
    pub(crate) fn with_span(&self, key: &[u8], snapshot: u64, look: &mut dyn FnMut(&Span<'_>)) {
        if self.has_ranges() {
            self.with_ranges(|ranges| look(&ranges.span(key, snapshot)));
        }
    }
}
