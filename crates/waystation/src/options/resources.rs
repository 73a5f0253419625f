//! Memory that several databases of a process share, as their options name it.

use super::Options;
use crate::background::{Account, Ledger, Use};
use crate::error::{Error, Result};
use crate::log::LogCache;
use crate::lsm::memtable::Regions;
use crate::sst::{BlockCache, TableMemory};
use crate::sync::Arc;
use std::fmt;
use std::path::{Path, PathBuf};

/// The least that databases share (bytes).
const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// The cache may take this part of the shared memory.
const CACHE_PART: u64 = 2;
/// The part of a cache for blocks of the log, in 1/256; the rest is for blocks of tables.
const LOG_PART: u64 = 64;

/// Memory for several databases of a process: one ceiling for their rings, memtables, indexes, open tables, graves and cached
/// blocks, and one cache. Clones are the same memory.
///
/// Each database takes what it needs. The cache has what they leave, up to its size. From 75 % of the ceiling on the database
/// with the largest memtable flushes it, or the one with the largest indexes lets devices settle early; from 90 % on all
/// writers slow down, and at 100 % they are almost stopped. Reads never fail for it. What a read, a write or a merge takes for a moment does not count.
///
/// ```
/// use waystation::{Db, Options, Resources};
/// # let dir = tempfile::tempdir()?;
/// let resources = Resources::new(256 << 20, 64 << 20)?;
/// let options = Options { resources: Some(resources.clone()), ring_bytes: 1 << 20, ..Options::default() };
/// let north = Db::open(dir.path().join("north"), options.clone())?;
/// let south = Db::open(dir.path().join("south"), options)?;
/// north.put(b"key", b"value")?;
/// assert_eq!(resources.stats().databases.len(), 2);
/// # south.close()?;
/// # north.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Resources(Arc<Shared>);

/// What clones share.
struct Shared {
    ledger: Arc<Ledger>,
    blocks: Arc<BlockCache>,
    log_blocks: Arc<LogCache>,
    regions: Arc<Regions>,
}

/// What databases that share memory take of it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ResourceStats {
    /// What all of them take besides the cache (bytes).
    pub taken_bytes: u64,
    /// What the cache may keep now (bytes).
    pub cache_limit_bytes: u64,
    /// Each open database, in the order of opening.
    pub databases: Vec<DatabaseMemory>,
}

/// A database and its memory.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DatabaseMemory {
    /// Its directory.
    pub path: PathBuf,
    /// What it takes.
    #[serde(flatten)]
    pub memory: MemoryStats,
}

/// The memory of one database (bytes).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct MemoryStats {
    /// The staging ring of the log.
    pub ring_bytes: u64,
    /// Memtables, as far as writes have reserved them.
    pub memtable_bytes: u64,
    /// Indexes of the upper level, about.
    pub index_bytes: u64,
    /// Indexes and filters of open tables.
    pub table_bytes: u64,
    /// Flushed graves.
    pub grave_bytes: u64,
    /// What is known of blocks that were read, with a fast directory.
    pub placement_bytes: u64,
    /// Cached blocks of its tables and its log.
    pub cached_bytes: u64,
}

impl MemoryStats {
    /// The notes of `account`.
    pub(crate) fn of(account: &Account) -> Self {
        Self {
            ring_bytes: account.bytes(Use::Ring),
            memtable_bytes: account.bytes(Use::Memtables),
            index_bytes: account.bytes(Use::Indexes),
            table_bytes: account.bytes(Use::Tables),
            grave_bytes: account.bytes(Use::Graves),
            placement_bytes: account.bytes(Use::Placement),
            cached_bytes: account.bytes(Use::Cache),
        }
    }
}

impl Resources {
    /// Memory of `memory_bytes` for all databases whose options name it, of which up to `cache_bytes` are for cached blocks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if that is less than 1 MiB, or if the cache is more than half of it.
    pub fn new(memory_bytes: u64, cache_bytes: u64) -> Result<Self> {
        if memory_bytes < MEMORY_BYTES_MIN {
            return Err(Error::InvalidArgument(format!(
                "memory_bytes of shared resources is {memory_bytes}; it must be at least {MEMORY_BYTES_MIN}"
            )));
        }
        if cache_bytes > memory_bytes / CACHE_PART {
            return Err(Error::InvalidArgument(format!(
                "cache_bytes of shared resources is {cache_bytes}; it must be at most half of their memory, {memory_bytes}"
            )));
        }
        let log_bytes = cache_bytes / 256 * LOG_PART;
        let blocks = Arc::new(BlockCache::new(whole(cache_bytes - log_bytes)));
        let log_blocks = Arc::new(LogCache::new(whole(log_bytes)));
        let caches: Vec<(Arc<dyn crate::background::Elastic>, u64)> = vec![
            (Arc::clone(&blocks) as _, 256 - LOG_PART),
            (Arc::clone(&log_blocks) as _, LOG_PART),
        ];
        Ok(Self(Arc::new(Shared {
            ledger: Ledger::new(memory_bytes, cache_bytes, caches),
            blocks,
            log_blocks,
            regions: Arc::new(Regions::in_small_pages()),
        })))
    }

    /// The memory that `options` name, or memory of its own for a database that shares none.
    pub(crate) fn of(options: &Options) -> Self {
        if let Some(shared) = &options.resources {
            return shared.clone();
        }
        // Without devices nothing is read from the log.
        let has_devices = options.devices.is_some();
        let log_bytes = if has_devices {
            options.cache_bytes / 4
        } else {
            0
        };
        Self(Arc::new(Shared {
            ledger: Ledger::unlimited(),
            blocks: Arc::new(BlockCache::new(options.cache_bytes - log_bytes)),
            log_blocks: Arc::new(LogCache::new(log_bytes)),
            regions: Arc::default(),
        }))
    }

    /// The memory that is taken now, by database.
    pub fn stats(&self) -> ResourceStats {
        let ledger = &self.0.ledger;
        let accounts = ledger.accounts();
        let databases = accounts.iter().map(|account| DatabaseMemory {
            path: account.path().to_owned(),
            memory: MemoryStats::of(account),
        });
        ResourceStats {
            taken_bytes: ledger.taken_bytes(),
            cache_limit_bytes: ledger.cache_bytes(),
            databases: databases.collect(),
        }
    }

    /// The memory for tables of the database in `path`, whose ring takes `ring_bytes`.
    ///
    /// # Errors
    /// Those of [`Ledger::open`].
    pub(crate) fn open(&self, path: &Path, ring_bytes: u64) -> Result<TableMemory> {
        Ok(TableMemory {
            blocks: Arc::clone(&self.0.blocks),
            account: self.0.ledger.open(path, ring_bytes)?,
            reads: Arc::default(),
        })
    }

    /// The cache for blocks of logs.
    pub(crate) fn log_blocks(&self) -> &Arc<LogCache> {
        &self.0.log_blocks
    }

    /// The memory behind memtables.
    pub(crate) fn regions(&self) -> &Arc<Regions> {
        &self.0.regions
    }
}

/// A size that is at most half of the memory there is.
fn whole(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resources")
            .field("taken_bytes", &self.0.ledger.taken_bytes())
            .finish_non_exhaustive()
    }
}

/// The same memory, not as much.
impl PartialEq for Resources {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Resources {}
