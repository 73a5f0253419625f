//! Blocks that were read lately, uncompressed, shared by all tables (and by all databases that share it).
//!
//! A table draws a number from the cache when it is opened, and its blocks are known by it and their offsets:
//! file numbers of different databases may be alike.

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use waystation_format::block::Block;

/// What an entry of the cache costs beside the bytes of its block, roughly.
const ENTRY_BYTES: usize = 96;
/// What a block is taken to have, to size the cache's own tables.
const EXPECTED_BLOCK_BYTES: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct BlockKey {
    table: u64,
    offset: u64,
}

#[derive(Debug, Clone, Copy)]
struct BlockWeight;

impl Weighter<BlockKey, Block> for BlockWeight {
    fn weight(&self, _: &BlockKey, block: &Block) -> u64 {
        (block.byte_len() + ENTRY_BYTES) as u64
    }
}

/// Blocks that were read lately.
pub(crate) struct BlockCache {
    blocks: Cache<BlockKey, Block, BlockWeight>,
    tables: AtomicU64,
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache")
            .field("bytes", &self.bytes())
            .field("capacity", &self.blocks.capacity())
            .finish_non_exhaustive()
    }
}

impl BlockCache {
    /// A cache of at most `capacity_bytes`.
    pub(crate) fn new(capacity_bytes: usize) -> Self {
        let expected = (capacity_bytes / EXPECTED_BLOCK_BYTES).max(16);
        Self {
            blocks: Cache::with_weighter(expected, capacity_bytes as u64, BlockWeight),
            tables: AtomicU64::new(0),
        }
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.weight()
    }

    /// A number for a table that was opened.
    pub(super) fn register(&self) -> u64 {
        self.tables.fetch_add(1, Ordering::Relaxed)
    }

    /// The block of `table` at `offset`, if it is here.
    #[inline]
    pub(super) fn get(&self, table: u64, offset: u64) -> Option<Block> {
        self.blocks.get(&BlockKey { table, offset })
    }

    /// Keeps a block of `table`.
    pub(super) fn insert(&self, table: u64, offset: u64, block: Block) {
        self.blocks.insert(BlockKey { table, offset }, block);
    }
}
