//! Sorted graves: keys that lie one behind the other, each with the number of its deletion and, by the kind of the graves,
//! with what tables must be purged through or with a date.
//!
//! A hash index over them, made when the first reader asks, answers point reads. What a grave takes beyond its key: 8
//! bytes of sequence number, 8 of offset, 6 to 11 of index, and 8 more where the second numbers are not the same.

use super::points::hash;
use std::sync::OnceLock;

/// No entry.
const NONE: u32 = u32::MAX;

/// Graves, by key, of one key the latest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct SortedGraves {
    keys: Vec<u8>,
    /// Where each key ends.
    ends: Vec<usize>,
    sequences: Vec<u64>,
    /// The second number of each; empty while all are their sequence numbers.
    numbers: Vec<u64>,
    /// Where to look for a key: the first of its graves.
    index: OnceLock<Box<[u32]>>,
}

/// One grave: the deletion of a key. It counts for every reader, or from a date on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grave<'r> {
    pub(crate) key: &'r [u8],
    /// Of its deletion.
    pub(crate) sequence: u64,
    /// [`Grave::purge_through`] or [`Grave::date`]: graves of one kind lie together, and no place tells the kind of each.
    pub(super) number: u64,
}

impl<'r> Grave<'r> {
    /// A grave that counts for every reader.
    pub(crate) fn counting(key: &'r [u8], sequence: u64, purge_through: u64) -> Self {
        Self {
            key,
            sequence,
            number: purge_through,
        }
    }

    /// A grave that counts for readers who are past `date`.
    pub(crate) fn dated(key: &'r [u8], sequence: u64, date: u64) -> Self {
        Self {
            key,
            sequence,
            number: date,
        }
    }

    /// Of a grave that counts for every reader: a table needs it no longer once it was purged through this number.
    #[inline]
    pub(crate) fn purge_through(&self) -> u64 {
        self.number
    }

    /// Of a grave with a date: that (microseconds since 1970).
    #[inline]
    pub(crate) fn date(&self) -> u64 {
        self.number
    }
}

impl PartialEq for SortedGraves {
    fn eq(&self, other: &Self) -> bool {
        self.sequences == other.sequences && self.iter().eq(other.iter())
    }
}

impl Eq for SortedGraves {}

impl SortedGraves {
    /// Room for so many graves whose keys have so many bytes together, as long as each grave's numbers are the same.
    pub(crate) fn with_room(graves: usize, key_bytes: usize) -> Self {
        Self {
            keys: Vec::with_capacity(key_bytes),
            ends: Vec::with_capacity(graves),
            sequences: Vec::with_capacity(graves),
            ..Self::default()
        }
    }

    /// Gives back what room is left.
    pub(crate) fn shrink(&mut self) {
        self.keys.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.sequences.shrink_to_fit();
        self.numbers.shrink_to_fit();
    }

    /// Puts a grave behind the last one.
    pub(crate) fn push(&mut self, grave: Grave<'_>) {
        self.keys.extend_from_slice(grave.key);
        self.ends.push(self.keys.len());
        if self.numbers.is_empty() && grave.number != grave.sequence {
            self.numbers.clone_from(&self.sequences);
        }
        if !self.numbers.is_empty() || grave.number != grave.sequence {
            self.numbers.push(grave.number);
        }
        self.sequences.push(grave.sequence);
    }

    /// How many graves there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.sequences.len()
    }

    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// Whether each grave's numbers are the same.
    pub(crate) fn is_plain(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The key of grave `at`.
    #[inline]
    pub(crate) fn key(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |last| self.ends[last]);
        &self.keys[start..self.ends[at]]
    }

    /// Grave `at`.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Grave<'_> {
        let sequence = self.sequences[at];
        Grave {
            key: self.key(at),
            sequence,
            number: self.numbers.get(at).copied().unwrap_or(sequence),
        }
    }

    /// All graves, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Grave<'_>> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// The first grave of a key at or behind `key`.
    pub(crate) fn first_from(&self, key: &[u8]) -> usize {
        self.first_where(|it| it >= key)
    }

    /// The first grave of a key behind `key`.
    pub(crate) fn first_behind(&self, key: &[u8]) -> usize {
        self.first_where(|it| it > key)
    }

    /// The first grave whose key `is_behind`, as are all after it.
    fn first_where(&self, is_behind: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_behind(self.key(middle)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// The first grave of `key`, whose hash is `hash`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], hash: u64) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let index = self.index.get_or_init(|| self.make_index());
        let mask = index.len() - 1;
        let mut slot = (hash >> 32) as usize & mask;
        while index[slot] != NONE {
            let first = index[slot] as usize;
            if self.key(first) == key {
                return Some(first);
            }
            slot = (slot + 1) & mask;
        }
        None
    }

    /// The graves from `first` on that are of `key`.
    pub(crate) fn of_key(&self, first: usize, key: &[u8]) -> impl Iterator<Item = Grave<'_>> {
        let from_there = (first..self.len()).map(|at| self.get(at));
        from_there.take_while(move |grave| grave.key == key)
    }

    fn make_index(&self) -> Box<[u32]> {
        let slots = (self.len() * 4 / 3 + 1).next_power_of_two();
        let mut index = vec![NONE; slots].into_boxed_slice();
        let mask = slots - 1;
        for at in 0..self.len() {
            let key = self.key(at);
            if at > 0 && self.key(at - 1) == key {
                continue;
            }
            let mut slot = (hash(key) >> 32) as usize & mask;
            while index[slot] != NONE {
                slot = (slot + 1) & mask;
            }
            index[slot] = at as u32;
        }
        index
    }

    /// Bytes of memory taken.
    pub(crate) fn memory_bytes(&self) -> usize {
        let index = self.index.get().map_or(0, |index| size_of_val(&index[..]));
        self.keys.capacity()
            + self.ends.capacity() * size_of::<usize>()
            + (self.sequences.capacity() + self.numbers.capacity()) * size_of::<u64>()
            + index
    }

    /// Bytes of all keys.
    pub(crate) fn key_bytes(&self) -> usize {
        self.keys.len()
    }
}
