//! The ground: all graves of memtables that were flushed. It never changes; a flush makes the next one from it.
//!
//! Keys are sorted and lie one behind the other, and a hash index over them, made when the first reader asks, answers
//! point reads. What a grave takes beyond its key: 8 bytes of sequence number, 8 of offset, 6 to 11 of index.

use super::fragments::Fragments;
use super::plot::Plot;
use super::points::hash;
use super::{Cut, prune};
use std::sync::OnceLock;

/// No entry.
const NONE: u32 = u32::MAX;

/// Graves, sorted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ground {
    /// All graves of keys up to this sequence number that anybody needs are here.
    through: u64,
    keys: Vec<u8>,
    /// Where each key ends.
    ends: Vec<usize>,
    sequences: Vec<u64>,
    ranges: Fragments,
    /// Where to look for a key: the first of its graves.
    index: OnceLock<Box<[u32]>>,
}

impl PartialEq for Ground {
    fn eq(&self, other: &Self) -> bool {
        (self.through, &self.ranges) == (other.through, &other.ranges)
            && self.sequences == other.sequences
            && self.points().eq(other.points())
    }
}

impl Eq for Ground {}

impl Ground {
    /// Ground without graves of keys, and with `ranges`.
    pub(crate) fn new(through: u64, ranges: Fragments) -> Self {
        Self {
            through,
            ranges,
            ..Self::default()
        }
    }

    /// Puts a grave behind the last one: by key, of one key the latest first.
    pub(crate) fn push(&mut self, key: &[u8], sequence: u64) {
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len());
        self.sequences.push(sequence);
    }

    /// All deletions up to this sequence number that anybody needs are here.
    pub(crate) fn through(&self) -> u64 {
        self.through
    }

    /// How many graves of keys there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.sequences.len()
    }

    /// Whether there are graves of keys.
    #[inline]
    pub(crate) fn has_points(&self) -> bool {
        !self.sequences.is_empty()
    }

    /// Whether there are no graves.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sequences.is_empty() && self.ranges.is_empty()
    }

    /// The ranges.
    pub(crate) fn ranges(&self) -> &Fragments {
        &self.ranges
    }

    /// The key and the sequence number of grave `at`.
    #[inline]
    pub(crate) fn point(&self, at: usize) -> (&[u8], u64) {
        let start = at.checked_sub(1).map_or(0, |last| self.ends[last]);
        (&self.keys[start..self.ends[at]], self.sequences[at])
    }

    /// All graves of keys, in order.
    pub(crate) fn points(&self) -> impl Iterator<Item = (&[u8], u64)> {
        (0..self.len()).map(|at| self.point(at))
    }

    /// The first grave of a key at or behind `key`.
    pub(crate) fn first_from(&self, key: &[u8]) -> usize {
        self.first_where(|it| it >= key)
    }

    /// The first grave of a key behind `key`.
    pub(crate) fn first_behind(&self, key: &[u8]) -> usize {
        self.first_where(|it| it > key)
    }

    /// The first grave whose key is `wanted`, which all behind it are too.
    fn first_where(&self, wanted: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if wanted(self.point(middle).0) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// How many graves of keys from `first` to `last` (both included) were dug after `sequence` and up to `through`.
    pub(crate) fn count_between(
        &self,
        first: &[u8],
        last: &[u8],
        sequence: u64,
        through: u64,
    ) -> usize {
        let (from, to) = (self.first_from(first), self.first_behind(last));
        let some = self.sequences.get(from..to).unwrap_or_default();
        let is_meant = |it: &&u64| **it > sequence && **it <= through;
        some.iter().filter(is_meant).count()
    }

    /// The latest deletion of `key`, whose hash is `hash`, up to `snapshot`; 0 if there is none.
    #[inline]
    pub(crate) fn floor(&self, key: &[u8], hash: u64, snapshot: u64) -> u64 {
        let of_key = self.point_floor(key, hash, snapshot);
        if self.ranges.is_empty() {
            return of_key;
        }
        of_key.max(self.ranges.floor(key, snapshot))
    }

    /// The same, of graves of keys alone.
    #[inline]
    pub(crate) fn point_floor(&self, key: &[u8], hash: u64, snapshot: u64) -> u64 {
        self.find(key, hash, snapshot).0
    }

    /// The same, and the first grave of the key.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], hash: u64, snapshot: u64) -> (u64, usize) {
        if self.sequences.is_empty() {
            return (0, 0);
        }
        let index = self.index.get_or_init(|| self.make_index());
        let mask = index.len() - 1;
        let mut slot = (hash >> 32) as usize & mask;
        while index[slot] != NONE {
            let first = index[slot] as usize;
            if self.point(first).0 == key {
                return (self.floor_from(first, key, snapshot), first);
            }
            slot = (slot + 1) & mask;
        }
        (0, 0)
    }

    /// The latest deletion up to `snapshot` of `key`, of which grave `first` is the first.
    pub(crate) fn floor_from(&self, first: usize, key: &[u8], snapshot: u64) -> u64 {
        let of_key = (first..self.len()).map(|at| self.point(at));
        let of_key = of_key.take_while(|(other, _)| *other == key);
        of_key
            .map(|(_, sequence)| sequence)
            .find(|sequence| *sequence <= snapshot)
            .unwrap_or(0)
    }

    fn make_index(&self) -> Box<[u32]> {
        let slots = (self.len() * 4 / 3 + 1).next_power_of_two();
        let mut index = vec![NONE; slots].into_boxed_slice();
        let mask = slots - 1;
        let mut last: Option<&[u8]> = None;
        for (at, (key, _)) in self.points().enumerate() {
            if last == Some(key) {
                continue;
            }
            last = Some(key);
            let mut slot = (hash(key) >> 32) as usize & mask;
            while index[slot] != NONE {
                slot = (slot + 1) & mask;
            }
            index[slot] = at as u32;
        }
        index
    }

    /// The graves that concern keys from `first` to `last` (both included; `None`: no bound).
    pub(crate) fn within(&self, first: Option<&[u8]>, last: Option<&[u8]>) -> Self {
        let from = first.map_or(0, |first| self.first_from(first));
        let to = last.map_or(self.len(), |last| self.first_behind(last));
        let mut ranges = Fragments::default();
        for (start, end, cuts) in self.ranges.overlapping(first, last) {
            for cut in cuts {
                ranges.insert(start, end, *cut);
            }
        }
        let mut part = Self::new(self.through, ranges);
        for at in from..to.max(from) {
            let (key, sequence) = self.point(at);
            part.push(key, sequence);
        }
        part
    }

    /// The ground once `plots` have come to it, whose graves are the only other ones up to `through`. Graves that no
    /// reader at `oldest_snapshot` or later can tell from others are left out.
    pub(crate) fn with<'p>(
        &self,
        plots: impl IntoIterator<Item = &'p Plot>,
        through: u64,
        oldest_snapshot: u64,
    ) -> Self {
        let mut ranges = self.ranges.clone();
        let mut fresh = Sorted::default();
        for plot in plots {
            plot.with_ranges(|fresh| {
                for (start, end, cuts) in fresh.iter() {
                    for cut in cuts {
                        ranges.insert(start, end, *cut);
                    }
                }
            });
            fresh.add(plot);
        }
        ranges.prune(oldest_snapshot);
        fresh.sort();
        let mut next = Self::new(through, ranges);
        let mut old = self.points().peekable();
        let mut new = fresh.iter().peekable();
        let mut cuts: Vec<Cut> = Vec::new();
        loop {
            let key = match (old.peek(), new.peek()) {
                (Some((a, _)), Some((b, _))) => (*a).min(*b),
                (Some((key, _)), None) | (None, Some((key, _))) => *key,
                (None, None) => break,
            };
            cuts.clear();
            while let Some((_, sequence)) = old.next_if(|(it, _)| *it == key) {
                cuts.push(Cut::deletion(sequence));
            }
            while let Some((_, sequence)) = new.next_if(|(it, _)| *it == key) {
                cuts.push(Cut::deletion(sequence));
            }
            next.bury(key, &mut cuts, oldest_snapshot);
        }
        next
    }

    /// Takes the graves `cuts` of `key`, which is behind all others, as far as anybody needs them.
    fn bury(&mut self, key: &[u8], cuts: &mut Vec<Cut>, oldest_snapshot: u64) {
        let covered = if self.ranges.is_empty() {
            0
        } else {
            self.ranges.floor(key, oldest_snapshot)
        };
        if cuts.len() > 1 {
            prune(cuts, oldest_snapshot);
        }
        for cut in cuts.iter().rev().filter(|cut| cut.below > covered) {
            self.push(key, cut.below);
        }
    }

    /// The ground without the graves that `keeps_point` and `keeps_range` do not want.
    pub(crate) fn retain(
        &self,
        mut keeps_point: impl FnMut(&[u8], u64) -> bool,
        keeps_range: impl FnMut(&[u8], Option<&[u8]>, &Cut) -> bool,
    ) -> Self {
        let mut ranges = self.ranges.clone();
        ranges.retain(keeps_range);
        let mut next = Self::new(self.through, ranges);
        for (key, sequence) in self.points() {
            if keeps_point(key, sequence) {
                next.push(key, sequence);
            }
        }
        next
    }

    /// Bytes of memory taken.
    pub(crate) fn memory_bytes(&self) -> usize {
        let index = self.index.get().map_or(0, |index| size_of_val(&index[..]));
        self.keys.capacity()
            + self.ends.capacity() * size_of::<usize>()
            + self.sequences.capacity() * size_of::<u64>()
            + index
            + self.ranges.memory_bytes()
    }

    /// Bytes of all keys of graves.
    pub(crate) fn key_bytes(&self) -> usize {
        self.keys.len()
    }

    /// The sequence number of the oldest deletion here.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.all_sequences().min()
    }

    /// The sequence number of the newest deletion here.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.all_sequences().max()
    }

    fn all_sequences(&self) -> impl Iterator<Item = u64> {
        let ranges = self.ranges.iter();
        let ranges = ranges.flat_map(|(_, _, cuts)| cuts.iter().map(|cut| cut.below));
        self.sequences.iter().copied().chain(ranges)
    }
}

/// The graves of plots' keys, sorted.
#[derive(Default)]
struct Sorted {
    keys: Vec<u8>,
    /// Where a key begins, how long it is, and when it was deleted.
    graves: Vec<(usize, u32, u64)>,
}

impl Sorted {
    fn add(&mut self, plot: &Plot) {
        plot.points().for_each(|key, sequence| {
            let grave = (self.keys.len(), key.len() as u32, sequence);
            self.keys.extend_from_slice(key);
            self.graves.push(grave);
        });
    }

    fn sort(&mut self) {
        let keys = &self.keys;
        let key = |&(start, length, _): &(usize, u32, u64)| &keys[start..start + length as usize];
        self.graves
            .sort_unstable_by(|a, b| key(a).cmp(key(b)).then(b.2.cmp(&a.2)));
    }

    /// In order, once it is sorted.
    fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let graves = self.graves.iter();
        graves.map(|&(start, length, sequence)| {
            (&self.keys[start..start + length as usize], sequence)
        })
    }
}
