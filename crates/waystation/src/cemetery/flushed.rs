//! Flushed graves: all graves of memtables that were flushed. They never change; a flush makes the next ones of them.
//!
//! Graves of keys lie in two sorted arrays: graves that count, and graves with a date that is not past for every reader.
//! Once it is, a grave is *promoted*: it goes to the first array, in the place of its sequence number, and is marked
//! with the number that the flushed graves go through by then. To readers the first counts; how far tables were purged
//! is compared with the second, as tables purged through the first may be older than the promotion.

mod merge;

use super::Cut;
use super::fragments::Fragments;
use super::sorted::{Grave, SortedGraves};
use super::spilled::{SpillFile, SpillLabel, SpilledGraves};

/// The graves of all memtables that were flushed, as far as anything needs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlushedGraves {
    /// All graves of keys up to this sequence number that any reader needs are here.
    through: u64,
    /// The time that was reached when they were made, if they are timed.
    time: u64,
    /// The graves that count.
    points: SortedGraves,
    /// Those with a date.
    dated: SortedGraves,
    /// The first of these dates.
    earliest: u64,
    ranges: Fragments,
    /// Graves that left memory.
    spilled: SpilledGraves,
}

impl Default for FlushedGraves {
    fn default() -> Self {
        Self::new(0, Fragments::default())
    }
}

impl FlushedGraves {
    /// Flushed graves without graves of keys, and with `ranges`.
    pub(crate) fn new(through: u64, ranges: Fragments) -> Self {
        Self {
            through,
            time: 0,
            points: SortedGraves::default(),
            dated: SortedGraves::default(),
            earliest: u64::MAX,
            ranges,
            spilled: SpilledGraves::default(),
        }
    }

    /// The same, at `time`.
    pub(crate) fn at_time(self, time: u64) -> Self {
        Self { time, ..self }
    }

    /// The same, of which no more is known than that all graves up to `through` are here that any reader needs.
    pub(crate) fn known_through(self, through: u64) -> Self {
        Self {
            through: self.through.min(through),
            ..self
        }
    }

    /// The same, with these graves besides those in memory.
    pub(crate) fn with_spilled(self, spilled: SpilledGraves) -> Self {
        Self { spilled, ..self }
    }

    /// The same with `spilled`, which hold all its graves of keys that count.
    pub(crate) fn without_points(&self, spilled: SpilledGraves) -> Self {
        Self {
            points: SortedGraves::default(),
            dated: self.dated.clone(),
            ranges: self.ranges.clone(),
            spilled,
            ..*self
        }
    }

    /// The same with `spilled`, which hold all its graves with dates.
    pub(crate) fn without_dated(&self, spilled: SpilledGraves) -> Self {
        Self {
            points: self.points.clone(),
            dated: SortedGraves::default(),
            earliest: u64::MAX,
            ranges: self.ranges.clone(),
            spilled,
            ..*self
        }
    }

    /// Puts a grave that counts behind the last one: by key, of one key the latest first.
    pub(crate) fn push(&mut self, grave: Grave<'_>) {
        self.points.push(grave);
    }

    /// Puts a grave with a date behind the last one: by key, of one key the latest first.
    pub(crate) fn push_dated(&mut self, grave: Grave<'_>) {
        self.earliest = self.earliest.min(grave.date());
        self.dated.push(grave);
    }

    /// All deletions up to this sequence number that any reader needs are here.
    pub(crate) fn through(&self) -> u64 {
        self.through
    }

    /// Whether there are graves that have dates, or had.
    pub(crate) fn is_timed(&self) -> bool {
        !self.points.is_plain() || !self.dated.is_empty() || !self.spilled.is_empty()
    }

    /// The time that was reached when they were made, if they are timed.
    pub(crate) fn time(&self) -> u64 {
        self.time
    }

    /// The graves that count.
    pub(crate) fn points(&self) -> &SortedGraves {
        &self.points
    }

    /// The graves with a date.
    pub(crate) fn dated(&self) -> &SortedGraves {
        &self.dated
    }

    /// The first date of a grave; the end of time if none has one.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        self.earliest.min(self.spilled.earliest())
    }

    /// When graves with dates can be promoted next, all of a spill file together; the end of time if none can.
    pub(crate) fn due_from(&self) -> u64 {
        let in_spilled = self.spilled.labels().map(SpillLabel::latest).min();
        self.earliest.min(in_spilled.unwrap_or(u64::MAX))
    }

    /// The graves that left memory.
    #[inline]
    pub(crate) fn spilled(&self) -> &SpilledGraves {
        &self.spilled
    }

    /// How many graves of keys there are in memory that count.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.points.len()
    }

    /// Graves of all kinds in memory.
    pub(crate) fn count(&self) -> usize {
        self.points.len() + self.dated.len() + self.ranges.len()
    }

    /// Whether there are graves of keys in memory that count.
    #[inline]
    pub(crate) fn has_points(&self) -> bool {
        !self.points.is_empty()
    }

    /// Whether there are no graves.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
            && self.ranges.is_empty()
            && self.dated.is_empty()
            && self.spilled.is_empty()
    }

    /// The ranges.
    pub(crate) fn ranges(&self) -> &Fragments {
        &self.ranges
    }

    /// How many graves of keys from `first` to `last` (both included) are `meant`.
    pub(crate) fn count_between(
        &self,
        first: &[u8],
        last: &[u8],
        meant: impl Fn(&Grave<'_>) -> bool,
    ) -> usize {
        let (from, to) = (
            self.points.first_from(first),
            self.points.first_behind(last),
        );
        let some = (from..to).map(|at| self.points.get(at));
        some.filter(meant).count()
    }

    /// The latest deletion of `key`, whose hash is `hash`, up to `snapshot`, that is in memory; 0 if there is none.
    /// Graves with a date do not count.
    #[inline]
    pub(crate) fn covering(&self, key: &[u8], hash: u64, snapshot: u64) -> u64 {
        let of_key = self.point_covering(key, hash, snapshot);
        if self.ranges.is_empty() {
            return of_key;
        }
        of_key.max(self.ranges.covering(key, snapshot))
    }

    /// The same, of graves of keys alone.
    #[inline]
    pub(crate) fn point_covering(&self, key: &[u8], hash: u64, snapshot: u64) -> u64 {
        self.find(key, hash, snapshot).0
    }

    /// The same, and the first grave of the key.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], hash: u64, snapshot: u64) -> (u64, usize) {
        let Some(first) = self.points.find(key, hash) else {
            return (0, 0);
        };
        (self.covering_from(first, key, snapshot), first)
    }

    /// The latest deletion up to `snapshot` of `key`, of which grave `first` is the first.
    pub(crate) fn covering_from(&self, first: usize, key: &[u8], snapshot: u64) -> u64 {
        let sequences = self.points.of_key(first, key).map(|grave| grave.sequence);
        let mut counting = sequences.filter(|sequence| *sequence <= snapshot);
        counting.next().unwrap_or(0)
    }

    /// The latest deletion of `key`, whose hash is `hash`, up to `snapshot` that is in memory, has a date, and counts
    /// at `time`; 0 if there is none.
    #[inline]
    pub(crate) fn dated_covering(&self, key: &[u8], hash: u64, snapshot: u64, time: u64) -> u64 {
        if self.earliest > time {
            return 0;
        }
        let Some(first) = self.dated.find(key, hash) else {
            return 0;
        };
        let of_key = self.dated.of_key(first, key);
        let mut counting = of_key.filter(|it| it.sequence <= snapshot && it.date() <= time);
        counting.next().map_or(0, |grave| grave.sequence)
    }

    /// The date of the grave of `key` with the number `sequence`, if that is in memory.
    pub(crate) fn date_of(&self, key: &[u8], sequence: u64) -> Option<u64> {
        let first = self.dated.first_from(key);
        let mut of_key = self.dated.of_key(first, key);
        let grave = of_key.find(|grave| grave.sequence == sequence)?;
        Some(grave.date())
    }

    /// The graves that concern keys from `first` to `last` (both included; `None`: no bound), but for those with dates.
    pub(crate) fn within(&self, first: Option<&[u8]>, last: Option<&[u8]>) -> Self {
        let points = &self.points;
        let from = first.map_or(0, |first| points.first_from(first));
        let to = last.map_or(points.len(), |last| points.first_behind(last));
        let mut ranges = Fragments::new(self.ranges.order());
        for (start, end, cuts) in self.ranges.overlapping(first, last) {
            for cut in cuts {
                ranges.insert(start, end, *cut);
            }
        }
        let spilled = self.spilled.within(first, last);
        let mut part = Self::new(self.through, ranges).with_spilled(spilled);
        for at in from..to.max(from) {
            part.push(points.get(at));
        }
        part
    }

    /// These graves, as far as `keeps_point`, `keeps_range` and `keeps_spill` keep them.
    pub(crate) fn retain(
        &self,
        mut keeps_point: impl FnMut(&Grave<'_>) -> bool,
        keeps_range: impl FnMut(&[u8], Option<&[u8]>, &Cut) -> bool,
        keeps_spill: impl FnMut(&SpillFile) -> bool,
    ) -> Self {
        let mut ranges = self.ranges.clone();
        ranges.retain(keeps_range);
        let mut next = Self {
            points: SortedGraves::with_room(self.points.len(), self.points.key_bytes()),
            dated: self.dated.clone(),
            ranges,
            spilled: self.spilled.retain(keeps_spill),
            ..*self
        };
        for grave in self.points.iter().filter(|it| keeps_point(it)) {
            next.push(grave);
        }
        next.points.shrink();
        next
    }

    /// Bytes of memory taken.
    pub(crate) fn memory_bytes(&self) -> usize {
        let sorted = self.points.memory_bytes() + self.dated.memory_bytes();
        sorted + self.ranges.memory_bytes() + self.spilled.memory_bytes()
    }

    /// Bytes that graves take which count, in memory and in spill files.
    pub(crate) fn counting_bytes(&self) -> usize {
        let in_spilled: u64 = self
            .spilled
            .counting()
            .map(|it| it.label().file_bytes)
            .sum();
        self.points.memory_bytes() + self.ranges.memory_bytes() + in_spilled as usize
    }

    /// Bytes of all keys of graves in memory.
    pub(crate) fn key_bytes(&self) -> usize {
        self.points.key_bytes() + self.dated.key_bytes()
    }

    /// The number of the oldest deletion that counts, or was promoted, here.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.counting_numbers().min()
    }

    /// The number of the newest deletion here, or of the newest promotion.
    pub(crate) fn newest(&self) -> Option<u64> {
        let dated = self.dated.iter().map(|grave| grave.sequence);
        let in_spilled = self.spilled.labels().map(|label| {
            let (_, last) = label.sequences;
            if label.counts() {
                last.max(label.demands().1)
            } else {
                last
            }
        });
        self.counting_numbers().chain(dated).chain(in_spilled).max()
    }

    /// The highest number that a table must be purged through, or more.
    pub(crate) fn last_number(&self) -> u64 {
        self.through.max(self.newest().unwrap_or(0))
    }

    fn counting_numbers(&self) -> impl Iterator<Item = u64> {
        let ranges = self.ranges.iter();
        let ranges = ranges.flat_map(|(_, _, cuts)| cuts.iter().map(|cut| cut.below));
        let in_spilled = self.spilled.counting().map(|it| it.label().demands().0);
        let points = self.points.iter().map(|grave| grave.purge_through());
        points.chain(ranges).chain(in_spilled)
    }
}
