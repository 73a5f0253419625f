//! A shard: the documents of one range of a database, in one engine directory.
//!
//! Every update of a document is one batch of the engine: its body, its head, its change, the end of its earlier
//! change, and the shard's counts. So documents and the feed of changes agree after any crash, and readers see all of
//! an update or nothing. Updates are decided one after another under a lock; what they survive is settled after it, so
//! that syncs are shared.
//!
//! Invariants: a head's sequence is that of its one change; the winner of a head's tree, and every other leaf, has a
//! body; sequences are handed out once, in order, by a clock that the shards of a database share.

mod answer;
mod bodies;
mod changes;
mod check;
mod compact;
mod copy;
mod find;
mod index;
mod index_scan;
mod keys;
mod local;
mod outline;
mod pages;
mod read;
mod record;
mod request;
mod scan;
mod sizes;
mod split;
mod turns;
mod update;
mod views;

pub use changes::{Change, Changes};
pub use check::check_record;
pub use compact::Compacted;
pub use copy::{CopyPage, CopySource, Entry, KeySpan, ShardSnapshot};
pub use find::{FindPart, FindQuery, FindStep};
pub use index::IndexDefinition;
pub use index_scan::IndexScan;
pub use local::LocalDocument;
pub use read::{Opened, Revisions, Version};
pub use request::{
    ListedDocument, ReadChange, Replica, Reply, Request, Scope, ShardAccess, ViewSource,
    WantedChanges,
};
pub use scan::{Scan, ScanOptions, ScanStats, StoredDocument};
pub use turns::{Told, Turn, Turns};
pub use update::{Edits, Updated};
pub use views::{RowSource, ViewRows, ViewsInfo};

use crate::error::{Error, Result};
use index::{Index, Indexes};
use record::Head;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use views::Builds;
use waystation::{Db, Durability, Options, Snapshot, WriteBatch};
use waystation_format::FormatError;
use waystation_format::varint::{Reader, put_u64};

/// Ancestors of each leaf that are remembered, unless the database says otherwise.
pub const REVS_LIMIT: u64 = 1000;

/// What is kept of a shard itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    /// The latest update sequence.
    sequence: u64,
    /// Documents that are there.
    documents: u64,
    /// Documents that were deleted.
    deleted: u64,
    /// How often something was purged.
    purges: u64,
    revs_limit: u64,
    /// The number of the next index.
    next_index: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            sequence: 0,
            documents: 0,
            deleted: 0,
            purges: 0,
            revs_limit: REVS_LIMIT,
            next_index: 0,
        }
    }
}

impl State {
    fn fields(&mut self) -> [&mut u64; 6] {
        let Self {
            sequence,
            documents,
            deleted,
            purges,
            revs_limit,
            next_index,
        } = self;
        [sequence, documents, deleted, purges, revs_limit, next_index]
    }

    fn encode(mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.fields()
            .iter()
            .for_each(|field| put_u64(&mut out, **field));
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let (mut state, mut reader) = (Self::default(), Reader::new(bytes));
        for field in state.fields() {
            *field = reader.var_u64("the shard's record")?;
        }
        Ok(state)
    }

    /// The record of the shard in `db`; a shard that is new has the default.
    fn read(db: &Db) -> Result<Self> {
        match db.get(keys::SHARD)? {
            Some(bytes) => {
                Self::decode(&bytes).map_err(|error| Error::damaged("the shard", &error))
            }
            None => Ok(Self::default()),
        }
    }
}

/// Hands out update sequences. The shards of a database share one, so that their changes stand in one order.
#[derive(Debug, Clone, Default)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// The sequence that was handed out last.
    pub fn latest(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Takes `count` sequences, which follow the one that is returned.
    pub fn take(&self, count: u64) -> u64 {
        self.0.fetch_add(count, Ordering::SeqCst)
    }

    /// Has the sequences that are handed out from now on follow `sequence`.
    pub fn pass(&self, sequence: u64) {
        self.0.fetch_max(sequence, Ordering::SeqCst);
    }
}

/// Figures about a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardInfo {
    /// Documents that are there.
    pub documents: u64,
    /// Documents that were deleted, and are remembered for replicas.
    pub deleted: u64,
    /// The latest update sequence.
    pub update_sequence: u64,
    /// How often something was purged.
    pub purge_sequence: u64,
    /// Ancestors of each leaf that are remembered.
    pub revs_limit: u64,
}

/// Documents in an engine directory. See the module.
///
/// ```
/// use waystation_documents::{Document, Edits, Shard};
/// use waystation::{Durability, Options};
/// # let dir = tempfile::tempdir()?;
/// let shard = Shard::open(dir.path(), Options::default())?;
/// let car = Document::parse(br#"{"_id": "car-7", "speed": 52}"#)?;
/// let updated = shard.update(&[car], Edits::Interactive, Durability::ProcessCrash)?;
/// assert!(updated[0].is_ok());
/// let opened = shard.open_winner("car-7")?;
/// assert_eq!(opened.version.body, r#"{"speed":52}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Shard {
    db: Arc<Db>,
    clock: Clock,
    state: Mutex<State>,
    /// Shared by updates while attachments are written that no body names yet; a sweep has it alone.
    attaching: RwLock<()>,
    /// Replaced under the lock of `state`.
    indexes: RwLock<Indexes>,
    builds: Builds,
    /// How far the numbered changes have come.
    turns: Mutex<Turns>,
    /// Held while a numbered change is made.
    taking: Mutex<()>,
}

impl Shard {
    /// Opens the shard in `path`, creating it if the options say so.
    ///
    /// # Errors
    /// As [`Db::open`]; [`Error::Damaged`].
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::over(Arc::new(Db::open(path, options)?), Clock::default())
    }

    /// The shard in an open engine, which holds nothing else; its sequences come from `clock`.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn over(db: Arc<Db>, clock: Clock) -> Result<Self> {
        let state = State::read(&db)?;
        clock.pass(state.sequence);
        let shard = Self {
            db,
            clock,
            state: Mutex::new(state),
            attaching: RwLock::new(()),
            indexes: RwLock::default(),
            builds: Builds::default(),
            turns: Mutex::default(),
            taking: Mutex::default(),
        };
        shard.load_turns()?;
        shard.load_indexes()?;
        Ok(shard)
    }

    /// Figures about it.
    pub fn info(&self) -> ShardInfo {
        let state = *self.lock();
        ShardInfo {
            documents: state.documents,
            deleted: state.deleted,
            update_sequence: state.sequence,
            purge_sequence: state.purges,
            revs_limit: state.revs_limit,
        }
    }

    /// Has `limit` (at least one) ancestors of each leaf remembered from now on.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if it is none; [`Error::Engine`].
    pub fn set_revs_limit(&self, limit: u64) -> Result<()> {
        if limit == 0 {
            let reason = "`revs_limit` must be a positive integer";
            return Err(Error::BadRequest(reason.into()));
        }
        let mut state = self.lock();
        let changed = State {
            revs_limit: limit,
            ..*state
        };
        self.commit(&mut state, changed, WriteBatch::new())
    }

    /// The engine below.
    pub fn db(&self) -> &Arc<Db> {
        &self.db
    }

    fn indexes(&self) -> Indexes {
        Arc::clone(&self.indexes.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps the indexes that `is_kept` says, and adds one.
    fn replace_indexes(&self, is_kept: impl Fn(&Index) -> bool, added: Option<Index>) {
        let mut indexes = self.indexes.write().unwrap_or_else(PoisonError::into_inner);
        let kept = indexes.iter().filter(|index| is_kept(index)).cloned();
        *indexes = Arc::new(kept.chain(added.map(Arc::new)).collect());
    }

    /// A state is replaced whole, after its batch was written: a panic leaves the one before.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes `batch` with the state that it leads to.
    fn commit(&self, state: &mut State, changed: State, mut batch: WriteBatch) -> Result<()> {
        batch.put(keys::SHARD, &changed.encode());
        self.db.write(&batch, Durability::ProcessCrash)?;
        *state = changed;
        Ok(())
    }

    fn head_at(&self, id: &str, snapshot: &Snapshot) -> Result<Option<Head>> {
        decode_head(id, self.db.get_at(&keys::head(id), snapshot)?)
    }
}

fn decode_head(id: &str, bytes: Option<Vec<u8>>) -> Result<Option<Head>> {
    let head = bytes.map(|bytes| Head::decode(&bytes)).transpose();
    head.map_err(|error| Error::damaged(format!("document {id}"), &error))
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Shard");
        shown
            .field("path", &self.db.path())
            .field("info", &self.info())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
