//! Blocks by the chunk: what is kept of blocks is looked up once for sixteen neighbours.
//!
//! Requests of many blocks are the rule, and a look into a table per block would take most of the time. So blocks are
//! kept in aligned chunks of [`CHUNK_BLOCKS`], and a request is cut into one [`Part`] per chunk. What is too much to
//! keep is sampled, by a hash of the chunk's number: a chunk is in a sample with all its blocks, or not at all.

use std::ops::Range;

/// Blocks in a chunk: 64 KiB.
pub(super) const CHUNK_BLOCKS: usize = 16;

/// The blocks of one chunk that a request touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Area and chunk.
    pub(super) key: u64,
    /// Of the key; decides whether a sample holds the chunk.
    pub(super) hash: u64,
    /// The blocks within the chunk.
    pub(super) blocks: Range<usize>,
}

/// Cuts a run of blocks at the borders of chunks.
#[inline]
pub(super) fn parts(area: usize, blocks: Range<u64>) -> impl Iterator<Item = Part> {
    const BLOCKS: u64 = CHUNK_BLOCKS as u64;
    let mut next = blocks.start;
    std::iter::from_fn(move || {
        if next >= blocks.end {
            return None;
        }
        let chunk = next / BLOCKS;
        let first = chunk * BLOCKS;
        let end = blocks.end.min(first + BLOCKS);
        let within = (next - first) as usize..(end - first) as usize;
        next = end;
        // A block's number has 52 bits, a chunk's 48.
        let key = (area as u64) << 48 | chunk;
        Some(Part {
            key,
            hash: hash(key),
            blocks: within,
        })
    })
}

/// The area of a [`Part::key`].
pub(super) fn area_of(key: u64) -> usize {
    (key >> 48) as usize
}

/// A mixing function (the finaliser of splitmix64).
#[inline]
pub(super) fn hash(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A table by chunk: entries side by side, and an open-addressing index of at most half load.
pub(super) struct ChunkTable<T> {
    /// Place of an entry plus 1, or 0; as many as a power of two.
    index: Vec<u32>,
    entries: Vec<(u64, T)>,
}

impl<T> ChunkTable<T> {
    pub(super) fn new() -> Self {
        Self {
            index: vec![0; 64],
            entries: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Keys and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.entries.iter().map(|(key, value)| (*key, value))
    }

    /// Values, to change them.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|(_, value)| value)
    }

    /// The value of a chunk, made if it is new.
    #[inline]
    pub(super) fn entry(&mut self, part: &Part, make: impl FnOnce() -> T) -> &mut T {
        let mask = self.index.len() - 1;
        let mut at = part.hash as usize & mask;
        let place = loop {
            match self.index[at] {
                0 => break self.insert(at, part.key, make()),
                place if self.entries[place as usize - 1].0 == part.key => {
                    break place as usize - 1;
                }
                _ => at = (at + 1) & mask,
            }
        };
        &mut self.entries[place].1
    }

    fn insert(&mut self, at: usize, key: u64, value: T) -> usize {
        self.entries.push((key, value));
        self.index[at] = self.entries.len() as u32;
        if self.entries.len() * 2 > self.index.len() {
            self.rebuild_index(self.index.len() * 2);
        }
        self.entries.len() - 1
    }

    /// Keeps the chunks whose keys are kept.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(u64) -> bool) {
        self.entries.retain(|(key, _)| keep(*key));
        self.rebuild_index(self.index.len());
    }

    fn rebuild_index(&mut self, slots: usize) {
        self.index.clear();
        self.index.resize(slots, 0);
        for (place, (key, _)) in (1_u32..).zip(&self.entries) {
            let mut at = hash(*key) as usize & (slots - 1);
            while self.index[at] != 0 {
                at = (at + 1) & (slots - 1);
            }
            self.index[at] = place;
        }
    }
}
