//! The blocks that were touched: an open-addressing table of bounded size.
//!
//! A block is kept when a hash of its number is below a threshold. The threshold begins at "all"; each time the
//! table is full it is halved and what no longer belongs is dropped, so that the rest is a uniform sample of block
//! numbers and every count scales by the inverse of the rate (SHARDS, Waldspurger et al., FAST 2015).

use super::Multiplicity;
use crate::event::BLOCK_BYTES;

/// Blocks kept: 32 MiB of table at most.
const BLOCKS_MAX: usize = 1 << 19;

/// Windows of the working set, in nanoseconds.
const WINDOWS_NS: [u64; 3] = [1_000_000_000, 10_000_000_000, 60_000_000_000];

#[derive(Clone, Copy, Default)]
struct Slot {
    /// Area and block, plus 1; 0 when empty.
    key: u64,
    last_ns: u64,
    reads: u32,
    writes: u32,
}

pub(super) struct BlockTable {
    slots: Vec<Slot>,
    used: usize,
    /// A block is kept when this many leading bits of its hash are 0: the rate is 2^-halvings.
    halvings: u32,
    unique: Vec<u64>,
    /// Per area and window: sum of min(gap, window), in nanoseconds times blocks.
    presence: Vec<[u128; 3]>,
}

/// A mixing function (the finaliser of splitmix64).
#[inline]
pub(super) fn hash(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[inline]
fn key(area: usize, block: u64) -> u64 {
    ((area as u64) << 54 | (block & ((1 << 54) - 1))) + 1
}

impl BlockTable {
    pub(super) fn new(areas: usize) -> Self {
        Self {
            slots: vec![Slot::default(); 1 << 12],
            used: 0,
            halvings: 0,
            unique: vec![0; areas],
            presence: vec![[0; 3]; areas],
        }
    }

    /// The share of block numbers that is kept.
    pub(super) fn rate(&self) -> f64 {
        0.5_f64.powi(self.halvings.cast_signed())
    }

    #[inline]
    pub(super) fn touch(&mut self, area: usize, block: u64, is_write: bool, now_ns: u64) {
        let key = key(area, block);
        let hash = hash(key);
        if self.halvings > 0 && hash >> (64 - self.halvings) != 0 {
            return;
        }
        let index = self.find(key, hash);
        let slot = &mut self.slots[index];
        if slot.key == 0 {
            slot.key = key;
            slot.last_ns = now_ns;
            self.unique[area] += 1;
            self.used += 1;
        } else {
            let gap = now_ns - slot.last_ns;
            for (sum, window) in self.presence[area].iter_mut().zip(WINDOWS_NS) {
                *sum += u128::from(gap.min(window)) << self.halvings;
            }
            slot.last_ns = now_ns;
        }
        let slot = &mut self.slots[index];
        if is_write {
            slot.writes = slot.writes.saturating_add(1);
        } else {
            slot.reads = slot.reads.saturating_add(1);
        }
        if self.used * 2 > self.slots.len() {
            self.make_room();
        }
    }

    #[inline]
    fn find(&self, key: u64, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut index = hash as usize & mask;
        loop {
            let found = self.slots[index].key;
            if found == key || found == 0 {
                return index;
            }
            index = (index + 1) & mask;
        }
    }

    /// Grows the table, or halves the sample once it may not grow.
    fn make_room(&mut self) {
        let grows = self.used < BLOCKS_MAX;
        if !grows {
            self.halvings += 1;
        }
        let slots = if grows {
            self.slots.len() * 2
        } else {
            self.slots.len()
        };
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); slots]);
        self.used = 0;
        for slot in old.into_iter().filter(|slot| slot.key != 0) {
            let hash = hash(slot.key);
            if self.halvings > 0 && hash >> (64 - self.halvings) != 0 {
                self.unique[Self::area(slot.key)] -= 1;
                continue;
            }
            let index = self.find(slot.key, hash);
            self.slots[index] = slot;
            self.used += 1;
        }
    }

    fn area(key: u64) -> usize {
        ((key - 1) >> 54) as usize
    }

    pub(super) fn unique_bytes(&self, area: usize) -> u64 {
        (self.unique[area] << self.halvings) * BLOCK_BYTES
    }

    fn of_area(&self, area: usize) -> impl Iterator<Item = &Slot> {
        self.slots
            .iter()
            .filter(move |slot| slot.key != 0 && Self::area(slot.key) == area)
    }

    pub(super) fn multiplicity(&self, area: usize) -> Multiplicity {
        let (mut blocks, mut accesses, mut single) = (0_u64, 0_u64, 0_u64);
        let (mut read, mut read_once, mut written, mut written_once) = (0_u64, 0_u64, 0_u64, 0_u64);
        let mut counts = Vec::new();
        for slot in self.of_area(area) {
            let times = u64::from(slot.reads) + u64::from(slot.writes);
            blocks += 1;
            accesses += times;
            single += u64::from(times == 1);
            read += u64::from(slot.reads > 0);
            read_once += u64::from(slot.reads == 1);
            written += u64::from(slot.writes > 0);
            written_once += u64::from(slot.writes == 1);
            counts.push(times);
        }
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let hottest: u64 = counts.iter().take(counts.len().div_ceil(10)).sum();
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        Multiplicity {
            single_of_blocks: share(single, blocks),
            single_of_accesses: share(single, accesses),
            read_once_of_read: share(read_once, read),
            written_once_of_written: share(written_once, written),
            hottest_tenth_of_accesses: share(hottest, accesses),
        }
    }

    /// Denning's working set: the mean over time of the bytes touched within a window. A block is in it from each
    /// access until the next one or the end of the window.
    pub(super) fn working_set(&self, area: usize, end_ns: u64) -> [u64; 3] {
        let mut sums = self.presence[area];
        for slot in self.of_area(area) {
            for (sum, window) in sums.iter_mut().zip(WINDOWS_NS) {
                *sum +=
                    u128::from(end_ns.saturating_sub(slot.last_ns).min(window)) << self.halvings;
            }
        }
        sums.map(|sum| (sum * u128::from(BLOCK_BYTES) / u128::from(end_ns.max(1))) as u64)
    }
}
