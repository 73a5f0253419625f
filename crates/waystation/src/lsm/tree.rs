//! The tree: what the rooms above see of tables, versions and compaction.
//!
//! ```text
//!   flush(memtable) ──> level 0 (or deeper, where nothing is in the way)
//!   compact_once()  ──> pick ─ claim ─ run ─ verify ─ install ─ give the claim up ─ remove garbage
//!   get, sources    ──> one immutable version, held by the reader
//! ```
//!
//! The tree starts no threads: flushes come one at a time, compactions from as many threads as the rooms above
//! like. Reads take no lock of the tree's but for open tables.

mod check;
mod checkpoint;
#[cfg(any(all(test, not(any(loom, shuttle))), feature = "test-storage"))]
mod conformance;
mod entries;
mod flush;
mod foreign_log;
mod load;
mod seek_credit;
mod sizes;
mod stats;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
mod tree_copy;
mod work;

pub use check::{CheckReport, Problem};
pub(crate) use checkpoint::link_or_copy;
#[cfg(any(all(test, not(any(loom, shuttle))), feature = "test-storage"))]
pub use conformance::check_engine;
pub(crate) use flush::Flush;
pub(crate) use load::{Load, Place};
pub use stats::{LevelStats, TreeStats, WorkStats};
pub(crate) use tree_copy::{CopiedTable, TreeCopy};

use super::compaction::offload::{Offload, RemoteExecutor};
use super::compaction::{CompactionExecutor, Hidden, LocalExecutor, Running, Shape};
use super::iter::{LevelIterator, Run, Source};
use super::version::{LEVELS, State, UserRange, Version, VersionSet};
use crate::error::Result;
use crate::sst::{
    InternalIterator, Lookup, LookupKey, TableCache, TableMemory, TableMeta, TableSettings,
};
use crate::storage::{RateLimit, Storage};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Condvar, Mutex};
use seek_credit::SeekCredit;
use stats::Totals;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use waystation_format::key::{self, MAX_SEQUENCE, ValueKind};
use waystation_format::order::Order;

/// How a tree is laid out.
#[derive(Debug, Clone)]
pub(crate) struct TreeSettings {
    /// How tables are laid out.
    pub table: TableSettings,
    /// How the levels are shaped.
    pub shape: Shape,
    /// Tables kept open.
    pub max_open_tables: usize,
    /// What compactions may write (bytes per second), all together; 0 for no limit.
    pub compaction_bytes_per_second: usize,
    /// What runs merges in another process.
    pub offload: Option<Offload>,
}

/// Says which versions are hidden from all readers at a sequence number or later.
type HiddenFrom = Box<dyn Fn(u64) -> Hidden + Send + Sync>;

/// Tables and the work on them. Shared by reference among all threads.
pub(crate) struct Tree {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    settings: TreeSettings,
    tables: Arc<TableCache>,
    versions: VersionSet,
    running: Mutex<Running>,
    claim_given_up: Condvar,
    flushing: Mutex<()>,
    cancelled: AtomicBool,
    /// Says which versions are hidden from all readers at a sequence number or later.
    hidden: OnceLock<HiddenFrom>,
    /// The smallest snapshot a compaction was asked to respect last.
    last_snapshot: AtomicU64,
    totals: Mutex<Totals>,
    compaction_rate: Option<Arc<RateLimit>>,
    /// What runs merges of tables.
    executor: Box<dyn CompactionExecutor>,
    seek_credit: SeekCredit,
}

impl Tree {
    /// Opens the tree in `dir`, whose lock the caller holds. A directory without one gets one; a directory of
    /// LevelDB's is taken over, its write-ahead logs turned into tables.
    pub(crate) fn open(
        storage: &Arc<dyn Storage>,
        dir: &Path,
        memory: &TableMemory,
        settings: TreeSettings,
    ) -> Result<Self> {
        let (versions, found) = VersionSet::open(Arc::clone(storage), dir, &settings.table.order)?;
        let tables = TableCache::new(
            Arc::clone(storage),
            dir,
            settings.max_open_tables,
            memory.clone(),
            settings.table.order.clone(),
        );
        let rate = settings.compaction_bytes_per_second;
        let compaction_rate = (rate > 0).then(|| Arc::new(RateLimit::new(rate)));
        let executor: Box<dyn CompactionExecutor> = match settings.offload.clone() {
            Some(offload) => Box::new(RemoteExecutor::new(offload, dir)),
            None => Box::new(LocalExecutor),
        };
        let tree = Self {
            compaction_rate,
            storage: Arc::clone(storage),
            dir: dir.to_owned(),
            settings,
            tables: Arc::new(tables),
            versions,
            running: Mutex::new(Running::default()),
            claim_given_up: Condvar::new(),
            flushing: Mutex::new(()),
            cancelled: AtomicBool::new(false),
            hidden: OnceLock::new(),
            last_snapshot: AtomicU64::new(0),
            totals: Mutex::new(Totals::default()),
            executor,
            seek_credit: SeekCredit::default(),
        };
        tree.take_over_logs(&found.foreign_logs)?;
        tree.remove_garbage();
        Ok(tree)
    }

    /// Lets compactions leave out what `hidden_from` says of the sequence number they ask for. Once.
    pub(crate) fn leave_out(&self, hidden_from: HiddenFrom) {
        self.hidden.get_or_init(|| hidden_from);
    }

    /// The versions that are hidden from all readers at `snapshot` or later.
    fn hidden_from(&self, snapshot: u64) -> Hidden {
        let hidden_from = self.hidden.get();
        hidden_from.map_or_else(Hidden::default, |hidden_from| hidden_from(snapshot))
    }

    /// The order of user keys.
    #[inline]
    pub(crate) fn order(&self) -> &Order {
        &self.settings.table.order
    }

    /// Every write up to this sequence number is in a table.
    pub(crate) fn flushed_sequence(&self) -> u64 {
        self.versions.flushed_through()
    }

    /// The newest version. Its tables stay for as long as it is held.
    pub(crate) fn version(&self) -> Arc<Version> {
        self.versions.current()
    }

    /// What tables say about `user_key` at `snapshot`.
    #[cfg(test)]
    pub(crate) fn get(
        &self,
        version: &Version,
        user_key: &[u8],
        snapshot: u64,
    ) -> Result<Lookup<Vec<u8>>> {
        self.get_above(version, user_key, snapshot, 0)
    }

    /// What tables say about `user_key` at `snapshot`, where versions below `covering` are hidden.
    pub(crate) fn get_above(
        &self,
        version: &Version,
        user_key: &[u8],
        snapshot: u64,
        covering: u64,
    ) -> Result<Lookup<Vec<u8>>> {
        let key = LookupKey::new(user_key, snapshot).above(covering);
        let here = UserRange::new(user_key, user_key);
        let order = self.order();
        let level0 = version.level(0).iter();
        let level0 = level0.filter(|table| here.overlaps_table(order, table));
        // All that such a table holds is hidden.
        let is_below = |table: &TableMeta| {
            table
                .facts()
                .is_some_and(|facts| facts.largest_sequence < covering)
        };
        let deeper =
            (1..LEVELS).filter_map(|level| version.seek_version(level, user_key, snapshot));
        for table in level0.chain(deeper) {
            if covering > 0 && is_below(table) {
                continue;
            }
            match self.tables.get(table)?.get(&key)? {
                Lookup::Found(value) => return Ok(Lookup::Found(value.to_vec())),
                Lookup::Deleted => return Ok(Lookup::Deleted),
                Lookup::Missing => {}
            }
        }
        Ok(Lookup::Missing)
    }

    /// Whether `table` holds any version of a key of `range`.
    fn holds_key(&self, table: &TableMeta, range: &UserRange<'_>) -> Result<bool> {
        let mut cursor = self.tables.get(table)?.iter();
        match range.smallest {
            Some(smallest) => {
                let mut target = Vec::new();
                key::append(&mut target, smallest, MAX_SEQUENCE, ValueKind::SEEK);
                cursor.seek(&target)?;
            }
            None => cursor.seek_to_first()?,
        }
        Ok(cursor.valid() && !range.is_before(self.order(), key::user_key(cursor.key())))
    }

    /// Adds to `sources` what of `version` may hold keys from `lower` to `upper`, newest first: a cursor per
    /// table of level 0, one per deeper level.
    pub(crate) fn sources(
        &self,
        version: &Arc<Version>,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        sources: &mut Vec<Source>,
    ) {
        let range = UserRange {
            smallest: lower,
            largest: upper,
        };
        let mut add = |run| {
            let cursor = LevelIterator::new(Arc::clone(&self.tables), run);
            sources.push(Source::from(cursor));
        };
        for table in version.reaching(0, &range) {
            add(Run::Table(Arc::clone(table)));
        }
        for level in (1..LEVELS).filter(|&level| version.overlaps(level, &range)) {
            add(Run::Level(Arc::clone(version), level));
        }
    }

    /// A reader had to look into `places` more than one; whether compactors should look again for that.
    pub(crate) fn charge_readers(&self, places: u64) -> bool {
        self.seek_credit.add(places)
    }

    /// Whether readers are busy waiting for storage, `now`.
    pub(crate) fn are_readers_busy(&self, now: Duration) -> bool {
        self.tables.memory().reads.is_busy(now)
    }

    /// What the rooms above keep beside the tree; empty if the directory is new, or if another program wrote to it
    /// since: whatever else of ours is in it is void then.
    pub(crate) fn state(&self) -> State {
        self.versions.state()
    }

    /// Keeps `state` from now on: durable on return, all of it or none.
    pub(crate) fn set_state(&self, state: State) -> Result<()> {
        self.versions.set_state(state)
    }

    /// Makes running compactions give up soon, and later ones not begin.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        drop(crate::sync::lock(&self.running));
        self.claim_given_up.notify_all();
    }

    /// Takes [`cancel`](Self::cancel) back.
    pub(crate) fn resume(&self) {
        self.cancelled.store(false, Ordering::Relaxed);
    }

    /// Ends in order. The caller has left no write outside the tables: LevelDB may open the directory next.
    pub(crate) fn close(&self) -> Result<()> {
        self.cancel();
        self.remove_garbage();
        self.versions.open_fence()?;
        self.remove_garbage();
        Ok(())
    }

    /// Ends in order, with the fence up: there is more to the database than the tables.
    pub(crate) fn close_fenced(&self) {
        self.cancel();
        self.remove_garbage();
    }

    /// Removes the files that nothing needs any more.
    pub(crate) fn remove_garbage(&self) {
        self.versions
            .remove_garbage(|number| self.tables.evict(number));
    }
}
