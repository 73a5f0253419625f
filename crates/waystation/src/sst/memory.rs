//! The memory of open tables: the cache that they share, and the account of the database that they are of.

use super::{BlockCache, ReadLoad};
use crate::background::Account;
use crate::sync::Arc;
use std::path::Path;

/// Where tables of one database take their memory from.
#[derive(Clone)]
pub(crate) struct TableMemory {
    /// Blocks that were read lately.
    pub(crate) blocks: Arc<BlockCache>,
    /// What indexes, filters and cached blocks take.
    pub(crate) account: Arc<Account>,
    /// How often readers wait for storage.
    pub(crate) reads: Arc<ReadLoad>,
}

impl TableMemory {
    /// Memory of their own for the tables of `dir`, with a cache of `cache_bytes`.
    pub(crate) fn own(dir: &Path, cache_bytes: usize) -> Self {
        Self {
            blocks: Arc::new(BlockCache::new(cache_bytes)),
            account: Account::own(dir),
            reads: Arc::default(),
        }
    }
}
