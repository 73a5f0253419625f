//! Graves of single keys: a hash table that takes graves from many threads at once and is read without any lock.
//!
//! ```text
//!   bucket --> node --> node --> nothing         a node comes first in its bucket, by one compare-and-swap
//!
//!   node (words):  next u32 | key length u32     sequence u64     [date u64]     key, filled up with zeros
//! ```
//!
//! Graves that count only from a date on have that in their nodes, and a table of their own.
//!
//! Nothing is ever removed: the whole table goes with its memtable. A key that is deleted again gets another grave.
//! Buckets come in tables, each eight times the one before; a grave goes to the table that is being filled, and a
//! reader looks into all of them (in one while there are a thousand graves, in four with half a million).

use super::arena::WordArena;
use super::sorted::Grave;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::cmp::Ordering;
use std::sync::OnceLock;

/// Words before the key in the node of a grave that counts at once.
const PLAIN_HEAD: usize = 2;
/// The same, of one with a date.
const DATED_HEAD: usize = 3;
/// Buckets of the first table, and how many times more the next one has. Models try smaller ones.
#[cfg(not(any(loom, shuttle)))]
const FIRST_BUCKETS: usize = 2 << 10;
#[cfg(any(loom, shuttle))]
const FIRST_BUCKETS: usize = 4;
const GROWTH_SHIFT: u32 = 3;
const TABLES: usize = 5;
/// Of so many graves one is in the sample of the latest ones.
pub(crate) const SAMPLE_EVERY: usize = 32;
/// The size of that sample.
pub(crate) const SAMPLES: usize = 256;
/// No node.
const NIL: u32 = 0;

/// The hash of a key. Of good quality in its upper bits.
#[inline]
pub(crate) fn hash(key: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut state = FACTOR ^ (key.len() as u64);
    for word in key_words(key) {
        let product = u128::from(state ^ word) * u128::from(FACTOR);
        state = (product >> 64) as u64 ^ product as u64;
    }
    state.wrapping_mul(FACTOR)
}

/// The key as words, the last one filled up with zeros.
#[inline]
fn key_words(key: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = key.as_chunks::<8>();
    let last = (!rest.is_empty()).then(|| {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        u64::from_le_bytes(word)
    });
    let whole = whole.iter().map(|bytes| u64::from_le_bytes(*bytes));
    whole.chain(last)
}

/// The place of a grave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot(u32);

/// Graves of single keys, of one memtable.
pub(crate) type Points = Nodes<PLAIN_HEAD>;
/// Graves of single keys that count from a date on, of one memtable.
pub(crate) type DatedPoints = Nodes<DATED_HEAD>;

/// [`Points`] by key.
pub(crate) type PointsInOrder<'n> = InOrder<'n, PLAIN_HEAD>;
/// [`DatedPoints`] by key.
pub(crate) type DatedInOrder<'n> = InOrder<'n, DATED_HEAD>;

/// Graves with so many words before their keys.
pub(crate) struct Nodes<const HEAD: usize> {
    arena: WordArena,
    tables: [OnceLock<Box<[AtomicU32]>>; TABLES],
    len: AtomicUsize,
    key_bytes: AtomicUsize,
    /// Some of the nodes that came last.
    samples: OnceLock<Box<[AtomicU32]>>,
}

impl Nodes<PLAIN_HEAD> {
    /// Adds the grave of `key`, deleted at `sequence`. Returns how many there were before.
    pub(crate) fn insert(&self, key: &[u8], sequence: u64) -> usize {
        self.insert_node(key, [sequence])
    }

    /// The latest deletion of `key`, whose hash is `hash`, up to `snapshot`; 0 if there is none.
    #[inline]
    pub(crate) fn covering(&self, key: &[u8], hash: u64, snapshot: u64) -> u64 {
        self.find(key, hash, snapshot).0
    }

    /// The same, and the place of its grave.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], hash: u64, snapshot: u64) -> (u64, Spot) {
        self.find_where(key, hash, |sequence, _| sequence <= snapshot)
    }
}

impl Nodes<DATED_HEAD> {
    /// Adds the grave of `key`, which was deleted at `sequence`, but counts from `date` on.
    pub(crate) fn insert(&self, key: &[u8], sequence: u64, date: u64) {
        self.insert_node(key, [sequence, date]);
    }

    /// The latest deletion of `key`, whose hash is `hash`, up to `snapshot` that counts at `time`; 0 if there is none.
    pub(crate) fn covering(&self, key: &[u8], hash: u64, snapshot: u64, time: u64) -> u64 {
        let counts = |sequence, node: &[AtomicU64]| {
            sequence <= snapshot && node[PLAIN_HEAD].load(Relaxed) <= time
        };
        self.find_where(key, hash, counts).0
    }

    /// The date of the grave of `key` with the number `sequence`.
    pub(crate) fn date_of(&self, key: &[u8], sequence: u64) -> Option<u64> {
        let (found, spot) = self.find_where(key, hash(key), |it, _| it == sequence);
        let node = self.arena.from(spot.0 as usize);
        (found > 0).then(|| node[PLAIN_HEAD].load(Relaxed))
    }
}

impl<const HEAD: usize> Nodes<HEAD> {
    /// A table for graves whose [`Points::grave_bytes`] add up to at most `capacity_bytes`.
    pub(crate) fn new(capacity_bytes: usize) -> Self {
        let arena = WordArena::new(capacity_bytes / 8 + 1);
        // So that no node is the first word, which would be no node.
        arena.claim(1);
        Self {
            arena,
            tables: [const { OnceLock::new() }; TABLES],
            len: AtomicUsize::new(0),
            key_bytes: AtomicUsize::new(0),
            samples: OnceLock::new(),
        }
    }

    /// What the grave of a key takes: its node and its share of the buckets.
    pub(crate) const fn grave_bytes(key_bytes: usize) -> usize {
        8 * (HEAD + key_bytes.div_ceil(8)) + 2 * size_of::<u32>()
    }

    /// How many graves there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Bytes of all keys.
    pub(crate) fn key_bytes(&self) -> usize {
        self.key_bytes.load(Relaxed)
    }

    /// Bytes of memory taken.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tables = self.tables.iter().filter_map(OnceLock::get);
        let buckets: usize = tables.map(|table| size_of_val(&table[..])).sum();
        self.arena.memory_bytes() + buckets
    }

    /// Adds the grave of `key`, with `numbers` in the node behind its first word. Returns how many there were before.
    fn insert_node<const NUMBERS: usize>(&self, key: &[u8], numbers: [u64; NUMBERS]) -> usize {
        let at = self.arena.claim(HEAD + key.len().div_ceil(8));
        let node = self.arena.from(at);
        for (slot, number) in node[1..HEAD].iter().zip(numbers) {
            slot.store(number, Relaxed);
        }
        for (slot, word) in node[HEAD..].iter().zip(key_words(key)) {
            slot.store(word, Relaxed);
        }
        self.key_bytes.fetch_add(key.len(), Relaxed);
        let before = self.len.fetch_add(1, Relaxed);
        let table = table_for(before);
        let buckets = self.tables[table].get_or_init(|| {
            let buckets = FIRST_BUCKETS << (GROWTH_SHIFT * table as u32);
            (0..buckets).map(|_| AtomicU32::new(NIL)).collect()
        });
        let bucket = &buckets[bucket_of(hash(key), buckets.len())];
        let mut first = bucket.load(Relaxed);
        loop {
            node[0].store(u64::from(first) | (key.len() as u64) << 32, Relaxed);
            match bucket.compare_exchange_weak(first, at as u32, Release, Relaxed) {
                Ok(_) => break,
                Err(other) => first = other,
            }
        }
        if before.is_multiple_of(SAMPLE_EVERY) {
            let samples = self
                .samples
                .get_or_init(|| (0..SAMPLES).map(|_| AtomicU32::new(NIL)).collect());
            samples[before / SAMPLE_EVERY % SAMPLES].store(at as u32, Release);
        }
        before
    }

    /// The key of sample `number`, or of one that has taken its place.
    pub(crate) fn sample(&self, number: usize) -> Option<Vec<u8>> {
        let node = self.samples.get()?[number % SAMPLES].load(Acquire);
        if node == NIL {
            return None;
        }
        let mut key = Vec::new();
        self.read(node, &mut key);
        Some(key)
    }

    /// Reads the key of `node`; returns its head.
    fn read(&self, node: u32, key: &mut Vec<u8>) -> u64 {
        let node = self.arena.from(node as usize);
        let head = node[0].load(Relaxed);
        let length = (head >> 32) as usize;
        key.clear();
        for word in &node[HEAD..HEAD + length.div_ceil(8)] {
            key.extend_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        key.truncate(length);
        head
    }

    /// The latest deletion of `key`, whose hash is `hash`, that `counts`, and the place of its grave; 0 if there is
    /// none.
    #[inline]
    fn find_where(
        &self,
        key: &[u8],
        hash: u64,
        counts: impl Fn(u64, &[AtomicU64]) -> bool,
    ) -> (u64, Spot) {
        let mut covering = 0;
        let mut spot = Spot(NIL);
        for buckets in self.tables.iter().map_while(OnceLock::get) {
            let mut next = buckets[bucket_of(hash, buckets.len())].load(Acquire);
            while next != NIL {
                let node = self.arena.from(next as usize);
                let head = node[0].load(Relaxed);
                if (head >> 32) as usize == key.len() && holds(&node[HEAD..], key) {
                    let sequence = node[1].load(Relaxed);
                    if counts(sequence, node) && sequence > covering {
                        (covering, spot) = (sequence, Spot(next));
                    }
                }
                next = head as u32;
            }
        }
        (covering, spot)
    }

    /// The grave that was added right after the one at `spot`, if it is of `key`: its number and place. Keys deleted in
    /// order are found so without a search. One that is just being added may be missed.
    #[inline]
    pub(crate) fn find_after(&self, spot: Spot, key: &[u8]) -> Option<(u64, Spot)> {
        let head = self.arena.from(spot.0 as usize).first()?.load(Relaxed);
        let at = spot.0 as usize + HEAD + ((head >> 32) as usize).div_ceil(8);
        let node = self.arena.from(at);
        let (head, words) = node.split_at_checked(HEAD)?;
        let is_of_key = (head[0].load(Relaxed) >> 32) as usize == key.len() && holds(words, key);
        // Words that were not written yet are zeros, and no deletion has that number.
        is_of_key.then(|| (head[1].load(Relaxed), Spot(at as u32)))
    }

    /// All graves, in order.
    pub(crate) fn sorted(&self) -> InOrder<'_, HEAD> {
        let mut spots = self.spots();
        spots.sort_unstable_by(|a, b| self.compare(*a, *b));
        let mut graves = InOrder {
            nodes: self,
            spots: spots.into_iter(),
            key: Vec::new(),
            numbers: None,
        };
        graves.advance();
        graves
    }

    /// The places of all graves, in no order.
    fn spots(&self) -> Vec<u32> {
        let mut spots = Vec::with_capacity(self.len());
        for buckets in self.tables.iter().filter_map(OnceLock::get) {
            for bucket in buckets {
                let mut next = bucket.load(Acquire);
                while next != NIL {
                    spots.push(next);
                    next = self.arena.from(next as usize)[0].load(Relaxed) as u32;
                }
            }
        }
        spots
    }

    /// Compares two graves by their keys, and then by their numbers, the latest first.
    fn compare(&self, a: u32, b: u32) -> Ordering {
        let [a, b] = [a, b].map(|at| self.arena.from(at as usize));
        let [length_a, length_b] = [a, b].map(|node| node[0].load(Relaxed) >> 32);
        // Zeros fill the last word up: where words are the same, the lengths decide.
        let words = length_a.min(length_b).div_ceil(8) as usize;
        let in_both = a[HEAD..HEAD + words].iter().zip(&b[HEAD..]);
        let by_words = in_both
            .map(|pair| {
                let bytes_first = |word: &AtomicU64| word.load(Relaxed).swap_bytes();
                bytes_first(pair.0).cmp(&bytes_first(pair.1))
            })
            .find(|order| order.is_ne());
        let latest_first = || b[1].load(Relaxed).cmp(&a[1].load(Relaxed));
        by_words.unwrap_or_else(|| length_a.cmp(&length_b).then_with(latest_first))
    }
}

/// Graves of one memtable by key, of one key the latest first. Beside the memtable it takes four bytes for each.
pub(crate) struct InOrder<'n, const HEAD: usize> {
    nodes: &'n Nodes<HEAD>,
    /// Those behind the next grave.
    spots: std::vec::IntoIter<u32>,
    /// The key of the next grave.
    key: Vec<u8>,
    /// Its numbers, if there is one.
    numbers: Option<(u64, u64)>,
}

impl<const HEAD: usize> InOrder<'_, HEAD> {
    /// The next grave.
    pub(crate) fn peek(&self) -> Option<Grave<'_>> {
        let (sequence, number) = self.numbers?;
        Some(Grave {
            key: &self.key,
            sequence,
            number,
        })
    }

    /// Goes on to the one behind it.
    pub(crate) fn advance(&mut self) {
        self.numbers = self.spots.next().map(|spot| {
            self.nodes.read(spot, &mut self.key);
            let node = self.nodes.arena.from(spot as usize);
            // Without a date the second number is the sequence number, too.
            (node[1].load(Relaxed), node[HEAD - 1].load(Relaxed))
        });
    }
}

/// Which table the next grave goes to, if there are `len`: a table is filled to the half of its buckets.
#[inline]
fn table_for(len: usize) -> usize {
    let mut limit = FIRST_BUCKETS / 2;
    let mut table = 0;
    while len >= limit && table + 1 < TABLES {
        limit <<= GROWTH_SHIFT;
        table += 1;
    }
    table
}

#[inline]
fn bucket_of(hash: u64, buckets: usize) -> usize {
    (hash >> 32) as usize & (buckets - 1)
}

#[inline]
fn holds(words: &[AtomicU64], key: &[u8]) -> bool {
    let mut words = words.iter();
    key_words(key).all(|word| words.next().is_some_and(|slot| slot.load(Relaxed) == word))
}
