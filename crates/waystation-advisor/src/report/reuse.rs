//! Reuse distances and miss-ratio curves from a sample of bounded size (SHARDS, FAST 2015).
//!
//! The reuse distance of an access is the number of distinct blocks touched since the block's last one; an LRU
//! cache of c blocks misses exactly the accesses with a distance of c or more. Distances among sampled blocks,
//! divided by the sampling rate, estimate those among all.
//!
//! Sampled are chunks ([`super::chunks`]), whose blocks are followed one by one: each has the *position* of its last
//! access, one position for all the blocks of a chunk that one request touched, in the order of their addresses.
//! Neighbours with the same position are moved together. Until the sample is full every distance is exact.

use super::MissPoint;
use super::chunks::{CHUNK_BLOCKS, ChunkTable, Part, hash};
use super::positions::{POSITIONS, Positions};
use crate::event::BLOCK_BYTES;

/// Blocks followed; fewer than positions, so that renumbering makes room.
const BLOCKS_MAX: u32 = POSITIONS as u32 / 2;
/// Chunks followed, where few blocks of each are touched.
const CHUNKS_MAX: usize = 8192;
/// The position of a block that was not accessed yet.
const NEVER: u32 = u32::MAX;
/// Classes of distance: 0, up to 1, up to 2, up to 4 ... blocks.
const CLASSES: usize = 44;

pub(super) struct ReuseSampler {
    /// Chunks with a hash up to this are followed.
    threshold: u64,
    /// Positions of the followed blocks.
    chunks: ChunkTable<[u32; CHUNK_BLOCKS]>,
    positions: Positions,
    now: u32,
    /// What a full sample holds is this part of what it may hold in an area among few.
    scarcity: u32,
    /// Weighted accesses by class of distance.
    classes: Vec<f64>,
    first: f64,
}

impl ReuseSampler {
    /// Samples are smaller where there are many areas.
    pub(super) fn new(many_areas: bool) -> Self {
        Self {
            threshold: u64::MAX,
            chunks: ChunkTable::new(),
            positions: Positions::new(),
            now: 0,
            scarcity: if many_areas { 4 } else { 1 },
            classes: vec![0.0; CLASSES],
            first: 0.0,
        }
    }

    fn rate(&self) -> f64 {
        self.threshold as f64 / u64::MAX as f64
    }

    #[inline]
    pub(super) fn touch(&mut self, part: &Part) {
        if part.hash <= self.threshold {
            self.follow(part);
        }
    }

    fn follow(&mut self, part: &Part) {
        if self.now as usize == POSITIONS {
            self.renumber();
        }
        let rate = self.rate();
        let last = self.chunks.entry(part, || [NEVER; CHUNK_BLOCKS]);
        let mut block = part.blocks.start;
        while block < part.blocks.end {
            let before = last[block];
            let start = block;
            while block < part.blocks.end && last[block] == before {
                last[block] = self.now;
                block += 1;
            }
            let moved = (block - start) as u8;
            let weight = f64::from(moved) / rate;
            if before == NEVER {
                self.first += weight;
            } else {
                // Of those with the same position, the ones behind were accessed later; of the moved ones, each has
                // all the others since.
                let behind = last[block..].iter().filter(|at| **at == before).count() as u32;
                let since = self.positions.after(before) + u32::from(moved) - 1 + behind;
                self.positions.subtract(before, moved);
                self.classes[class(f64::from(since) / rate)] += weight;
            }
            self.positions.add(self.now, moved);
        }
        self.now += 1;
        if self.positions.total() > BLOCKS_MAX / self.scarcity
            || self.chunks.len() > CHUNKS_MAX / self.scarcity as usize
        {
            self.shrink();
        }
    }

    /// Drops the quarter with the highest hashes, and lowers the threshold to what is left.
    fn shrink(&mut self) {
        let mut hashes: Vec<u64> = self.chunks.iter().map(|(key, _)| hash(key)).collect();
        hashes.sort_unstable();
        // Earlier counts were weighted at their own rate, which keeps them unbiased.
        self.threshold = hashes[hashes.len() * 3 / 4 - 1];
        let threshold = self.threshold;
        self.chunks.retain(|key| hash(key) <= threshold);
        self.renumber();
    }

    /// Gives the followed blocks the positions 0, 1, 2, ... in their order.
    fn renumber(&mut self) {
        let mut renumbered = vec![NEVER; POSITIONS];
        for last in self.chunks.values_mut().flatten() {
            if *last != NEVER {
                renumbered[*last as usize] = 0;
            }
        }
        self.now = 0;
        for position in renumbered.iter_mut().filter(|at| **at != NEVER) {
            *position = self.now;
            self.now += 1;
        }
        self.positions.clear();
        for last in self.chunks.values_mut().flatten() {
            if *last != NEVER {
                *last = renumbered[*last as usize];
                self.positions.add(*last, 1);
            }
        }
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
