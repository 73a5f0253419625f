//! The database: one log, one tree, and the memory between them.
//!
//! ```text
//!   write --> log (ring, segments) --> memtable --> full memtables --> tree (tables)
//!   read  <------------------------ read state: memtables, graves and version, pinned together
//! ```
//!
//! - [`pipeline`]: what a write passes first ([`write_source`]: its operations and their bytes; [`disk`]: room on the disk);
//!   [`commit`]: how it becomes visible and durable; [`device_writes`]: the same in a directory with devices
//! - [`read_state`](crate::read_state): what a read pins; [`snapshot`]: what compaction must keep for it; [`iterator`]: the cursor; [`entries`]: ranges
//!   as iterators
//! - [`jobs`]: the background jobs of a database; [`upkeep`]: what two of them look after, the watch and the maintenance of
//!   devices
//! - [`device_handle`], [`devices`] and [`handoff`]: devices as the handle shows them; [`engine`]: what the database does for them;
//!   [`older`]: what was there before there was an extractor
//! - [`graves`]: the work for deletions ([`retirement`](crate::retirement)); [`dead_ranges`]: how runs of them are
//!   found before cursors come; [`expiry`]: keys with a time to live
//! - [`check`]: whether tables and the upper level are what was written
//! - [`backup`]: a copy of the whole at one moment, while writing goes on
//! - [`sizes`]: where bytes are
//! - [`open`]: from a directory to a database and back

mod backup;
mod check;
mod commit;
mod dead_ranges;
mod device_handle;
mod device_writes;
mod devices;
mod disk;
mod engine;
mod entries;
mod expiry;
mod export;
mod graves;
mod handoff;
mod iterator;
mod jobs;
#[cfg(test)]
#[cfg(shuttle)]
mod model_tests;
mod older;
mod open;
mod pipeline;
mod point_read;
mod sizes;
mod snapshot;
mod stats;
mod upkeep;
mod write_source;

pub use device_handle::DeviceHandle;
pub use entries::{Entries, Entry};
pub use export::Exported;
pub use handoff::{Digest, EngineId, Export, Receipt, Refusal, Ticket};
use iterator::Bounds;
pub use iterator::{DbIterator, IterOptions};
pub use sizes::TableInfo;
pub use snapshot::Snapshot;
pub use stats::{AreaStats, DeviceStats, GraveStats, Stats};
use waystation_format::batch::prefix_end;
pub use waystation_format::batch::{Mark as BatchMark, WriteBatch};

use crate::background::{Account, DiskReserve, IdleWatch, Member, Throttle};
use crate::cemetery::dead_ranges::search::DeadRangeSearch;
use crate::cemetery::expiry::ExpiryClock;
use crate::devices::maintenance::Devices;
use crate::devices::residency::ReadPoint;
use crate::devices::upper::Upper;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::lsm::iter::Source;
use crate::lsm::tree::Tree;
use crate::options::{Durability, Options, PutOptions, Resources};
use crate::placement::Tier;
use crate::read_state::{ReadState, ReadStates};
use crate::retirement::GraveStore;
use crate::sst::MergingIterator;
use crate::storage::{DirectoryLock, Storage};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use crate::sync::{Arc, Condvar, Mutex, Weak};
use jobs::{Background, Workers};
use pipeline::{Active, check_key};
use snapshot::Snapshots;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// An open database. Any number of threads may use it at once; one process owns a directory at a time.
///
/// ```
/// use waystation::{Db, Durability, Options, WriteBatch};
/// # let dir = tempfile::tempdir()?;
/// let db = Db::open(dir.path(), Options::default())?;
/// db.put(b"drone-7:height", b"120")?;
///
/// let mut batch = WriteBatch::new();
/// batch.put(b"drone-7:height", b"121");
/// batch.delete(b"drone-6:height");
/// db.write(&batch, Durability::PowerLoss)?;
///
/// assert_eq!(db.get(b"drone-7:height")?.as_deref(), Some(&b"121"[..]));
/// db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping the handle closes the database too, but has no caller to tell of a failure; call [`Db::close`].
pub struct Db {
    core: Arc<Core>,
    workers: Option<Workers>,
    /// Held for as long as the directory is ours; cursors hold it too.
    _ownership: Ownership,
}

/// Shared by all that read files or mapped memory of the directory and may outlive the handle: the last of them to go
/// gives the directory back.
type Ownership = Arc<dyn DirectoryLock>;

/// What the handle and the background jobs share.
struct Core {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    /// Not held by the core itself, which a snapshot's end may keep for a moment after the handle is gone.
    ownership: Weak<dyn DirectoryLock>,
    options: Options,
    log: Arc<Log>,
    tree: Arc<Tree>,
    read_states: Arc<ReadStates>,
    graves: GraveStore,
    dead_range_search: DeadRangeSearch,
    snapshots: Arc<Snapshots>,
    clock: ExpiryClock,
    /// Whether no time is logged any more.
    is_time_over: Mutex<bool>,
    /// Memory that it may share with other databases, and what it takes of that.
    resources: Resources,
    account: Arc<Account>,
    active: Mutex<Active>,
    /// Bytes reserved in the active memtable, for the throttle.
    active_reserved: AtomicUsize,
    full_memtables: AtomicUsize,
    /// The last flush failed.
    is_flush_failing: AtomicBool,
    throttle: Throttle,
    disk_reserve: DiskReserve,
    /// Copies in a faster directory, if there is one.
    tier: Option<Arc<Tier>>,
    idle: IdleWatch,
    /// What there is of devices, in a directory with an extractor.
    devices: Option<Devices>,
    background: Mutex<Background>,
    /// Callers that wait until nothing is to be done.
    idle_waiters: AtomicUsize,
    /// With `background`: something was flushed or compacted, failed or recovered.
    changed: Condvar,
    /// The database as a member of the scheduler.
    jobs: Arc<Member>,
}

impl Db {
    /// Opens the database in `path`, creating it if the options say so. An existing `LevelDB` directory is
    /// opened in place and fenced off from `LevelDB` until a clean close.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process or handle owns it, [`Error::Incompatible`] if it is not ours or
    /// newer, [`Error::Corruption`] if something that was durable is damaged or missing, [`Error::Io`].
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let storage: Arc<dyn Storage> = crate::storage::OsStorage::new();
        Self::open_with(storage, path, options)
    }

    /// As [`Db::open`], on a storage of the caller's.
    pub fn open_with(
        storage: Arc<dyn Storage>,
        path: impl AsRef<Path>,
        options: Options,
    ) -> Result<Self> {
        open::open(storage, path.as_ref(), options)
    }

    /// Puts `value` under `key`. Survives the death of the process.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, PutOptions::default())
    }

    /// Puts `value` under `key` with a durability of its own, and perhaps a time to live:
    ///
    /// ```
    /// use std::time::Duration;
    /// use waystation::{Db, Durability, Options, PutOptions};
    /// # let dir = tempfile::tempdir()?;
    /// # let db = Db::open(dir.path(), Options::default())?;
    /// let durable = PutOptions { durability: Durability::PowerLoss, ..PutOptions::default() };
    /// db.put_with(b"drone-7:home", b"52.5,13.4", durable)?;
    /// db.put_with(b"session:17", b"token", PutOptions::expiring(Duration::from_secs(3600)))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`write`](Self::write). [`Error::InvalidArgument`] also if the time to live is zero or ends after the year
    /// 140,000, or if the key belongs to a device, whose keys live as long as it stays.
    pub fn put_with(&self, key: &[u8], value: &[u8], options: PutOptions) -> Result<()> {
        let PutOptions {
            durability,
            time_to_live,
        } = options;
        match time_to_live {
            None => self.core.write_one(key, Some(value), durability),
            Some(lifetime) => self.core.put_for(key, value, lifetime, durability),
        }
    }

    /// Deletes `key`, whether it exists or not. Survives the death of the process.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.delete_with(key, Durability::ProcessCrash)
    }

    /// Deletes `key`, whether it exists or not, with a durability of its own.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn delete_with(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.core.write_one(key, None, durability)
    }

    /// Deletes all keys from `start` (included) to `end` (excluded; `None`: to the last key), however many there are,
    /// for every reader without a snapshot or a cursor from before. Takes no longer for many than for few.
    /// Survives the death of the process.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the range ends where it begins, or before, or at the empty key (which is the first of
    /// all, unless [`Options::order`] says otherwise); or if an end of it is over the limit of a key.
    pub fn delete_range(&self, start: &[u8], end: Option<&[u8]>) -> Result<()> {
        // Before anything is copied.
        check_key(start)?;
        check_key(end.unwrap_or_default())?;
        let mut batch = WriteBatch::new();
        batch.delete_range(start, end);
        self.write(&batch, Durability::ProcessCrash)
    }

    /// Deletes all keys that begin with `prefix`; all there are, if it is empty. As [`Db::delete_range`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if keys are not in the order of their bytes ([`Options::order`]).
    pub fn delete_prefix(&self, prefix: &[u8]) -> Result<()> {
        check_key(prefix)?;
        self.core.check_prefixes()?;
        self.delete_range(prefix, prefix_end(prefix).as_deref())
    }

    /// Writes a batch: all of it or nothing, visible at once.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a key, a value or the batch is over its limit; [`Error::Suspended`] while
    /// an earlier failure of the storage is not overcome. If a write with [`Durability::PowerLoss`] fails in
    /// its sync it may be visible, and may survive.
    pub fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.core.write(batch, durability)
    }

    /// The value under `key`, if there is one.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.core.get_now(key)
    }

    /// The value that `key` had when `snapshot` was taken.
    pub fn get_at(&self, key: &[u8], snapshot: &Snapshot) -> Result<Option<Vec<u8>>> {
        self.core.check_snapshot(snapshot)?;
        let time = || self.core.clock.at(snapshot.taken_at());
        self.core.get(
            &self.core.read_states.load(),
            key,
            snapshot.sequence(),
            time,
        )
    }

    /// Marks this point in the history of the database, to be read at later. The snapshot may outlive this handle and
    /// keeps nothing from being opened again, but only this handle can read at it.
    pub fn snapshot(&self) -> Snapshot {
        self.core.snapshot()
    }

    /// A cursor over the keys, at the options' snapshot or now. It is on no entry until it is sent somewhere.
    ///
    /// The cursor may outlive this handle: it goes on showing what it showed, and the directory stays owned until it is
    /// dropped (see [`Db::close`]).
    #[expect(
        clippy::iter_not_returning_iterator,
        reason = "a cursor, as every engine of this kind has"
    )]
    pub fn iter(&self, options: IterOptions) -> Result<DbIterator> {
        self.core.iter(options)
    }

    /// Writes the data in memory to tables. Everything written before the call survives a power loss then, what stays in
    /// the upper level as well.
    ///
    /// # Errors
    /// [`Error::Suspended`] if a table cannot be written or the log cannot be synced; it is tried again in the background.
    pub fn flush(&self) -> Result<()> {
        let end = self.core.log.reserved_lsn();
        self.core.rotate_now();
        self.core.wait_flushed()?;
        if self.core.log.defers() {
            // Tables hold all of it.
            return Ok(());
        }
        // The upper level is in no memtable, and a flush of none syncs nothing.
        self.core.log.sync(end)
    }

    /// Makes everything written so far survive a power loss.
    pub fn sync(&self) -> Result<()> {
        self.core.log.sync_all()
    }

    /// Rewrites the tables that hold keys of the range, as deep as they go: what was overwritten or deleted
    /// gives its space back.
    pub fn compact_range(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<()> {
        self.flush()?;
        let bytes = |bound: Bound<&[u8]>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        self.core
            .compact_range(bytes(lower).as_deref(), bytes(upper).as_deref())
    }

    /// Waits until no thread has written for a quarter of a second, the devices that were settling have settled, and
    /// neither flush nor compaction is due.
    pub fn wait_idle(&self) -> Result<()> {
        self.core.wait_idle()
    }

    /// Writes a copy of the database, as it is now, to the new directory `target`: hard links where the file
    /// system allows them. Writing goes on meanwhile.
    ///
    /// With devices every entry is written anew, as not all is in tables. The copy is another engine: its devices
    /// arrive in it now, and it knows nothing of hand-offs.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `target` is not empty.
    pub fn checkpoint(&self, target: impl AsRef<Path>) -> Result<()> {
        if self.core.devices.is_some() {
            return self.copy_with_devices(target.as_ref());
        }
        self.flush()?;
        self.core.checkpoint(target.as_ref())
    }

    /// Figures about the database.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// The directory of the database.
    pub fn path(&self) -> &Path {
        &self.core.dir
    }

    /// Closes the database: the data in memory goes to tables and the log is emptied. If nothing that was deleted is
    /// left in tables, the directory can be opened by `LevelDB` again; what little is left (in up to 32 MiB of tables) is
    /// purged for that, and for more [`Db::compact_range`] over everything, with no snapshot held, sees to it.
    ///
    /// Cursors that are left go on reading the files. So the directory stays owned until the last of them is dropped:
    /// until then [`Db::open`], in this process or another, fails with [`Error::Locked`].
    pub fn close(mut self) -> Result<()> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<()> {
        match self.workers.take() {
            Some(workers) => self.core.shut_down(workers),
            None => Ok(()),
        }
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        if let Err(error) = self.shut_down() {
            log::warn!(
                "closing {} failed: {error}; the log keeps all that is not in tables",
                self.core.dir.display()
            );
        }
    }
}

impl Core {
    /// A snapshot, as [`Db::snapshot`] says.
    fn snapshot(&self) -> Snapshot {
        // Before the snapshots are locked.
        self.log.wait_acknowledged();
        self.snapshots
            .take(|| self.log.visible_sequence(), || self.storage.now())
    }

    /// A cursor, as [`Db::iter`] says.
    #[expect(
        clippy::iter_not_returning_iterator,
        reason = "a cursor, as every engine of this kind has"
    )]
    fn iter(&self, options: IterOptions) -> Result<DbIterator> {
        self.iter_on(options, self.devices.as_ref().map(|it| &it.upper))
    }

    /// The same over memtables and tree, and the upper level if that is to be seen.
    fn iter_on(&self, mut options: IterOptions, upper: Option<&Arc<Upper>>) -> Result<DbIterator> {
        if options.prefix.is_some() {
            self.check_prefixes()?;
        }
        let ownership = self.ownership.upgrade().ok_or(Error::Closed("closed"))?;
        self.watch_memtable();
        let (mut read_state, mut sequence) = self.read_states.read_point(&self.log);
        if self.devices.is_some() && options.snapshot.is_none() {
            // It holds what the cursor will come to in the upper level.
            options.snapshot = Some(self.snapshot());
        }
        if let Some(snapshot) = &options.snapshot {
            self.check_snapshot(snapshot)?;
            read_state = self.read_states.load();
            sequence = snapshot.sequence();
        }
        let time = match &options.snapshot {
            _ if read_state.earliest() == u64::MAX => 0,
            Some(snapshot) => self.clock.at(snapshot.taken_at()),
            None => self.time(),
        };
        let bounds = options.bounds();
        let sources = self.sources(&read_state, sequence, &bounds, upper);
        let merged = MergingIterator::new(sources, &self.options.order);
        let dead_ranges = Arc::clone(self.graves.dead_ranges());
        Ok(DbIterator::new(
            merged,
            (sequence, time),
            bounds,
            read_state,
            (options.snapshot, ownership),
            dead_ranges,
        ))
    }

    /// What a cursor at `sequence` merges: memtables, tables, and the upper level if that is to be seen.
    fn sources(
        &self,
        read_state: &ReadState,
        sequence: u64,
        bounds: &Bounds,
        upper: Option<&Arc<Upper>>,
    ) -> Vec<Source> {
        // One that is empty by now holds nothing up to `sequence`.
        let mut newest = u64::MAX;
        let mut sources = Vec::new();
        for logged in read_state.newest_first() {
            let table = &logged.memory.table;
            if !table.is_empty() {
                sources.push(Source::from(table.iter().with_newest(newest)));
            }
            newest = logged.start_sequence.saturating_sub(1);
        }
        let in_memory = sources.len();
        self.tree.sources(
            &read_state.version,
            bounds.lower.as_deref(),
            bounds.upper.as_deref(),
            &mut sources,
        );
        self.charge_readers(sources.len() - in_memory);
        if let Some(upper) = upper {
            let point = ReadPoint {
                snapshot: sequence,
                generation: read_state.generation(),
            };
            let cursor = upper.cursor(point, bounds.upper.as_deref());
            sources.push(Source::Outside(Box::new(cursor)));
        }
        sources
    }

    /// Whether keys with one prefix lie together.
    fn check_prefixes(&self) -> Result<()> {
        if self.options.order.is_bytewise() {
            return Ok(());
        }
        let name = self.options.order.name();
        Err(Error::InvalidArgument(format!(
            "the keys are ordered by {name:?}, so that those with a prefix do not lie together; name the first key and \
             the end of a range"
        )))
    }

    fn check_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        if snapshot.is_of(&self.snapshots) {
            Ok(())
        } else {
            Err(Error::InvalidArgument(
                "the snapshot belongs to another database".into(),
            ))
        }
    }

    fn observe_backlog(&self) {
        let read_state = self.read_states.load();
        let full = read_state
            .full
            .iter()
            .map(|it| it.memory.table.used_bytes() as u64);
        let active = read_state.active.memory.table.capacity_bytes();
        self.disk_reserve.note_memtables(full.sum(), active as u64);
        let level0 = read_state.version.level(0).len();
        self.throttle
            .observe(self.full_memtables.load(SeqCst), level0);
    }
}
