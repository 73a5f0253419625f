//! The blocks that were touched: a table of bounded size.
//!
//! Blocks are kept by the chunk ([`super::chunks`]). A chunk is kept when a hash of its number is below a threshold.
//! The threshold begins at "all"; each time the table is full it is halved and what no longer belongs is dropped, so
//! that the rest is a uniform sample of chunks and every count scales by the inverse of the rate (SHARDS, Waldspurger
//! et al., FAST 2015). About half of [`CHUNKS_MAX`] or more stay, whose sums stray by half a percent (one
//! standard deviation).

use super::Multiplicity;
use super::chunks::{CHUNK_BLOCKS, ChunkTable, Part, area_of, hash};
use crate::event::BLOCK_BYTES;

/// Chunks kept: 8 GiB of addresses where they lie together, and 36 MiB of table.
const CHUNKS_MAX: usize = 1 << 17;

/// Windows of the working set, in nanoseconds.
const WINDOWS_NS: [u64; 3] = [1_000_000_000, 10_000_000_000, 60_000_000_000];

/// What is known of a chunk's blocks.
struct Chunk {
    last_ns: [u64; CHUNK_BLOCKS],
    reads: [u32; CHUNK_BLOCKS],
    writes: [u32; CHUNK_BLOCKS],
    /// One bit for each block that was touched.
    touched: u16,
}

impl Chunk {
    fn untouched() -> Self {
        Self {
            last_ns: [0; CHUNK_BLOCKS],
            reads: [0; CHUNK_BLOCKS],
            writes: [0; CHUNK_BLOCKS],
            touched: 0,
        }
    }

    /// Marks blocks as touched; those that are new count as last touched now. Returns how many are new.
    #[inline]
    fn mark(&mut self, part: &Part, now_ns: u64) -> u32 {
        let ones = |count: usize| ((1_u32 << count) - 1) as u16;
        let fresh = ones(part.blocks.end) & !ones(part.blocks.start) & !self.touched;
        if fresh != 0 {
            self.touched |= fresh;
            for (block, last_ns) in self.last_ns.iter_mut().enumerate() {
                if fresh >> block & 1 == 1 {
                    *last_ns = now_ns;
                }
            }
        }
        fresh.count_ones()
    }

    /// Reads, writes and last access of each touched block.
    fn blocks(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        (0..CHUNK_BLOCKS)
            .filter(|block| self.touched >> block & 1 == 1)
            .map(|block| (self.reads[block], self.writes[block], self.last_ns[block]))
    }
}

pub(super) struct BlockTable {
    chunks: ChunkTable<Chunk>,
    /// A chunk is kept when this many leading bits of its hash are 0: the rate is 2^-halvings.
    halvings: u32,
    unique: Vec<u64>,
    /// Per area and window: sum of min(gap, window), in nanoseconds times blocks.
    presence: Vec<[u128; 3]>,
}

impl BlockTable {
    pub(super) fn new(areas: usize) -> Self {
        Self {
            chunks: ChunkTable::new(),
            halvings: 0,
            unique: vec![0; areas],
            presence: vec![[0; 3]; areas],
        }
    }

    /// The share of chunks that is kept.
    pub(super) fn rate(&self) -> f64 {
        0.5_f64.powi(self.halvings.cast_signed())
    }

    fn keeps(halvings: u32, hash: u64) -> bool {
        halvings == 0 || hash >> (64 - halvings) == 0
    }

    #[inline]
    pub(super) fn touch(&mut self, part: &Part, is_write: bool, now_ns: u64) {
        if !Self::keeps(self.halvings, part.hash) {
            return;
        }
        let area = area_of(part.key);
        let chunk = self.chunks.entry(part, Chunk::untouched);
        self.unique[area] += u64::from(chunk.mark(part, now_ns));
        let mut sums = [0_u64; 3];
        for last_ns in &mut chunk.last_ns[part.blocks.clone()] {
            let gap = now_ns.saturating_sub(*last_ns);
            for (sum, window) in sums.iter_mut().zip(WINDOWS_NS) {
                *sum += gap.min(window);
            }
            *last_ns = now_ns;
        }
        for (total, sum) in self.presence[area].iter_mut().zip(sums) {
            *total += u128::from(sum) << self.halvings;
        }
        let counts = if is_write {
            &mut chunk.writes
        } else {
            &mut chunk.reads
        };
        for count in &mut counts[part.blocks.clone()] {
            *count = count.saturating_add(1);
        }
        while self.chunks.len() > CHUNKS_MAX {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.halvings += 1;
        let halvings = self.halvings;
        self.chunks.retain(|key| Self::keeps(halvings, hash(key)));
        self.unique.fill(0);
        for (key, chunk) in self.chunks.iter() {
            self.unique[area_of(key)] += u64::from(chunk.touched.count_ones());
        }
    }

    pub(super) fn unique_bytes(&self, area: usize) -> u64 {
        (self.unique[area] << self.halvings) * BLOCK_BYTES
    }

    /// Reads, writes and last access of each block of an area.
    fn of_area(&self, area: usize) -> impl Iterator<Item = (u32, u32, u64)> {
        self.chunks
            .iter()
            .filter(move |(key, _)| area_of(*key) == area)
            .flat_map(|(_, chunk)| chunk.blocks())
    }

    pub(super) fn multiplicity(&self, area: usize) -> Multiplicity {
        let (mut blocks, mut accesses, mut single) = (0_u64, 0_u64, 0_u64);
        let (mut read, mut read_once, mut written, mut written_once) = (0_u64, 0_u64, 0_u64, 0_u64);
        let mut counts = Vec::new();
        for (reads, writes, _) in self.of_area(area) {
            let times = u64::from(reads) + u64::from(writes);
            blocks += 1;
            accesses += times;
            single += u64::from(times == 1);
            read += u64::from(reads > 0);
            read_once += u64::from(reads == 1);
            written += u64::from(writes > 0);
            written_once += u64::from(writes == 1);
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
        for (_, _, last_ns) in self.of_area(area) {
            for (sum, window) in sums.iter_mut().zip(WINDOWS_NS) {
                *sum += u128::from(end_ns.saturating_sub(last_ns).min(window)) << self.halvings;
            }
        }
        sums.map(|sum| (sum * u128::from(BLOCK_BYTES) / u128::from(end_ns.max(1))) as u64)
    }
}
