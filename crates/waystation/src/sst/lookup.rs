//! What a point lookup asks, and what it finds.

use super::reader::recycle;
use std::ops::{Deref, Range};
use waystation_format::block::Block;
use waystation_format::bloom;
use waystation_format::key::{ValueKind, pack_trailer};

/// A key as a snapshot sees it, prepared once for all the tables that are asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupKey<'a> {
    pub(super) user_key: &'a [u8],
    /// The largest trailer the snapshot sees.
    pub(super) trailer: u64,
    /// Versions below this sequence number are hidden.
    pub(super) covering: u64,
    /// The key's place in Bloom filters.
    pub(super) filter_hash: u32,
}

impl<'a> LookupKey<'a> {
    /// The newest version of `user_key` up to sequence number `snapshot`.
    pub(crate) fn new(user_key: &'a [u8], snapshot: u64) -> Self {
        Self {
            user_key,
            trailer: pack_trailer(snapshot, ValueKind::SEEK),
            covering: 0,
            filter_hash: bloom::hash(user_key),
        }
    }

    /// The same, where versions below `covering` are hidden.
    pub(crate) fn above(self, covering: u64) -> Self {
        Self { covering, ..self }
    }
}

/// A value where it lies in its block, which it keeps in memory.
#[derive(Debug)]
pub(crate) struct PinnedValue {
    /// Always there until the value is dropped.
    block: Option<Block>,
    range: Range<usize>,
}

impl PinnedValue {
    pub(super) fn new(block: Block, range: Range<usize>) -> Self {
        let block = Some(block);
        Self { block, range }
    }
}

impl Deref for PinnedValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.block.as_ref().map_or(&[][..], Block::bytes);
        bytes.get(self.range.clone()).unwrap_or_default()
    }
}

impl Drop for PinnedValue {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            recycle(block);
        }
    }
}

/// What one place knows about a key at a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lookup<V> {
    /// The newest version is this value.
    Found(V),
    /// The newest version is a deletion: older places must not be asked.
    Deleted,
    /// No version is here: ask older places.
    Missing,
}
