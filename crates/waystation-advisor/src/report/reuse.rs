//! Reuse distances and miss-ratio curves from a sample of fixed size (SHARDS, FAST 2015).
//!
//! The reuse distance of an access is the number of distinct blocks touched since the block's last one; an LRU
//! cache of c blocks misses exactly the accesses with a distance of c or more. Distances among sampled blocks,
//! divided by the sampling rate, estimate those among all; [`SAMPLES_MAX`] blocks keep the error of the curve
//! within a few percent whatever the footprint.

use std::collections::{BinaryHeap, HashMap};

use super::MissPoint;
use super::blocks::hash;
use crate::event::BLOCK_BYTES;

/// Blocks followed.
const SAMPLES_MAX: usize = 8192;
/// Times before they are renumbered.
const SLOTS: usize = SAMPLES_MAX * 4;
/// Classes of distance: 0, up to 1, up to 2, up to 4 ... blocks.
const CLASSES: usize = 44;

pub(super) struct ReuseSampler {
    /// Blocks with a hash below this are followed.
    threshold: u64,
    /// Block to the time of its last access.
    last: HashMap<u64, u32>,
    /// Hash and block, the highest hash first: who leaves when the sample is full.
    by_hash: BinaryHeap<(u64, u64)>,
    /// Fenwick tree over times: 1 where a block was last accessed.
    tree: Vec<u32>,
    now: u32,
    /// Weighted accesses by class of distance.
    classes: Vec<f64>,
    first: f64,
}

impl ReuseSampler {
    pub(super) fn new() -> Self {
        Self {
            threshold: u64::MAX,
            last: HashMap::new(),
            by_hash: BinaryHeap::new(),
            tree: vec![0; SLOTS + 1],
            now: 0,
            classes: vec![0.0; CLASSES],
            first: 0.0,
        }
    }

    fn rate(&self) -> f64 {
        self.threshold as f64 / u64::MAX as f64
    }

    #[inline]
    pub(super) fn touch(&mut self, block: u64) {
        let hash = hash(block);
        if hash <= self.threshold {
            self.follow(block, hash);
        }
    }

    fn follow(&mut self, block: u64, hash: u64) {
        if self.now as usize == SLOTS {
            self.renumber();
        }
        let weight = 1.0 / self.rate();
        if let Some(before) = self.last.insert(block, self.now) {
            let since = self.last.len() as u32 - 1 - self.count(before);
            self.mark(before, false);
            let distance = f64::from(since) / self.rate();
            self.classes[class(distance)] += weight;
        } else {
            self.first += weight;
            self.by_hash.push((hash, block));
        }
        self.mark(self.now, true);
        self.now += 1;
        if self.last.len() > SAMPLES_MAX {
            self.shrink();
        }
    }

    /// Drops the block with the highest hash, and lowers the threshold to it.
    fn shrink(&mut self) {
        if let Some((hash, block)) = self.by_hash.pop() {
            let before = self.rate();
            self.threshold = hash.saturating_sub(1);
            // Earlier counts were weighted at their own rate, which keeps them unbiased.
            debug_assert!(self.rate() <= before, "the rate only falls");
            if let Some(time) = self.last.remove(&block) {
                self.mark(time, false);
            }
        }
    }

    /// Gives the followed blocks the times 0, 1, 2, ... in their order.
    fn renumber(&mut self) {
        let mut order: Vec<(u32, u64)> = self
            .last
            .iter()
            .map(|(block, time)| (*time, *block))
            .collect();
        order.sort_unstable();
        self.tree.iter_mut().for_each(|count| *count = 0);
        for (time, (_, block)) in order.iter().enumerate() {
            self.last.insert(*block, time as u32);
            self.mark(time as u32, true);
        }
        self.now = order.len() as u32;
    }

    fn mark(&mut self, time: u32, set: bool) {
        let mut index = time as usize + 1;
        while index <= SLOTS {
            self.tree[index] = if set {
                self.tree[index] + 1
            } else {
                self.tree[index] - 1
            };
            index += index & index.wrapping_neg();
        }
    }

    /// Blocks last accessed before `time`.
    fn count(&self, time: u32) -> u32 {
        let mut index = time as usize;
        let mut sum = 0;
        while index > 0 {
            sum += self.tree[index];
            index -= index & index.wrapping_neg();
        }
        sum
    }

    /// Accesses: first ones, then by class of distance up to the last that occurs.
    pub(super) fn histogram(&self) -> Vec<f64> {
        let last = self
            .classes
            .iter()
            .rposition(|count| *count > 0.0)
            .map_or(0, |at| at + 1);
        let mut all = vec![self.first];
        all.extend_from_slice(&self.classes[..last]);
        all
    }

    /// Misses by cache size, a point per power of two.
    pub(super) fn miss_ratio(&self) -> Vec<MissPoint> {
        let total = self.first + self.classes.iter().sum::<f64>();
        if total == 0.0 {
            return Vec::new();
        }
        let last = self
            .classes
            .iter()
            .rposition(|count| *count > 0.0)
            .unwrap_or(0);
        let mut hits = 0.0;
        (0..=last)
            .map(|class| {
                hits += self.classes[class];
                MissPoint {
                    cache_bytes: (1_u64 << class) * BLOCK_BYTES,
                    miss_ratio: (1.0 - hits / total).max(0.0),
                }
            })
            .collect()
    }
}

/// Distance d hits in a cache of more than d blocks; class i is d < 2^i.
fn class(distance: f64) -> usize {
    let distance = distance as u64;
    ((64 - distance.leading_zeros()) as usize).min(CLASSES - 1)
}
