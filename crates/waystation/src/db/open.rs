//! From a directory to a database: lock, tree, log, and what the log holds back into memory.

use super::jobs::{Background, Workers, limits};
use super::pipeline::Active;
use super::snapshot::Snapshots;
use super::{Core, Db, Ownership};
use crate::background::{self, Account, DiskReserve, IdleWatch, Kind, Member, Throttle};
use crate::cemetery::active::ActiveGraves;
use crate::cemetery::dead_ranges::search::DeadRangeSearch;
use crate::cemetery::expiry::ExpiryClock;
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::spilled::SpillDirectory;
use crate::devices::checkpoint::{self, Directory, Saved};
use crate::devices::index_snapshot;
use crate::devices::ledger::Ledger;
use crate::devices::log_release;
use crate::devices::maintenance::Devices;
use crate::devices::replay::DeviceReplay;
use crate::devices::settle::note_settling;
use crate::devices::upper::Upper;
use crate::directory::{
    CHECKPOINT_NAME, DEVICES_STATE, DRAFTS, JOURNAL_NAME, LOCK_NAME, LOG_STATE, destroy,
    remove_job_directories, segment_number,
};
use crate::error::{Error, Result};
use crate::log::{self, Log, LogBlocks, LogSettings, Record, Recovered, SegmentLengths};
use crate::lsm::compaction::{Hidden, Shape};
use crate::lsm::tree::{Tree, TreeSettings};
use crate::lsm::version::State;
use crate::options::{DeviceOptions, Options, Resources};
use crate::placement::{Spread, Tier, Tiered};
use crate::read_state::{LoggedMemTable, ReadState, ReadStates};
use crate::recovery::Replay;
use crate::retirement::{self, GraveStore, GravesFile, read_graves};
use crate::sst::{TableMemory, TableSettings};
use crate::storage::{DirectoryLock, OsStorage, Storage};
use crate::sync::atomic::{AtomicBool, AtomicUsize};
use crate::sync::{Arc, Condvar, Mutex};
use std::path::Path;
use std::time::Duration;
use waystation_format::batch::prefix_end;
use waystation_format::filename::CURRENT;
use waystation_format::handoff::EngineId;

impl Db {
    /// Removes the database in `path` with all it holds. Other files of the directory stay, and then the directory stays too.
    /// Nothing happens if there is no directory.
    ///
    /// # Errors
    /// [`Error::Locked`] if a process has it open; [`Error::Io`]: the rest is no database any more, and a second attempt
    /// removes it.
    pub fn destroy(path: impl AsRef<Path>) -> Result<()> {
        let (storage, path): (Arc<dyn Storage>, _) = (OsStorage::new(), path.as_ref());
        Spread::while_destroyed(&storage, path, |storage| destroy(storage, path))
    }
}

pub(super) fn open(storage: Arc<dyn Storage>, path: &Path, options: Options) -> Result<Db> {
    let (free_bytes, log_bytes) = (free_near(&*storage, path), log_bytes(&*storage, path));
    let options = options.checked()?.for_room(free_bytes, log_bytes);
    let (limited, disk_reserve) =
        DiskReserve::new(Arc::clone(&storage), path, &options.disk_sizes())?;
    prepare_directory(&*limited, path, &options)?;
    let lock = limited.lock(&path.join(LOCK_NAME))?;
    make_room(&*limited, path)?;
    let tier = open_tier(&limited, path, &options)?;
    let (fast, ring_bytes) = (options.fast.as_ref(), options.ring_bytes as u64);
    let spread = Spread::own(&limited, path, fast, tier.as_ref(), ring_bytes)?;
    let ownership: Ownership = Arc::new(Locks(lock, spread.lock));
    let storage_of_files = with_tier(spread.storage, tier.as_ref());
    let files = (storage_of_files, disk_reserve, tier);
    let opened = open_owned(files, path, options.clone(), &ownership);
    if opened.is_err() {
        // What it gave back is kept again for the next one, as far as it fits.
        if let Ok((limited, disk_reserve)) = DiskReserve::new(storage, path, &options.disk_sizes())
        {
            disk_reserve.keep(&*limited, path);
        }
    }
    opened
}

/// The room on the file system of `path`, or of what is there of it.
fn free_near(storage: &dyn Storage, path: &Path) -> u64 {
    let free = |dir: &Path| storage.free_bytes(dir).ok();
    path.ancestors().find_map(free).unwrap_or(u64::MAX)
}

/// The bytes of the log's segments in `path`, if there are any.
fn log_bytes(storage: &dyn Storage, path: &Path) -> u64 {
    let entries = storage.list(path).unwrap_or_default();
    let segments = entries
        .iter()
        .filter(|entry| segment_number(&entry.name).is_some());
    segments.map(|entry| entry.bytes).sum()
}

/// What keeps other owners away: the lock of the directory, and that of the segments in a fast one.
struct Locks(
    #[expect(dead_code, reason = "held until it is dropped")] Box<dyn DirectoryLock>,
    #[expect(dead_code, reason = "held until it is dropped")] Option<Box<dyn DirectoryLock>>,
);

impl DirectoryLock for Locks {}

/// The fast tier, if the options name one.
fn open_tier(
    storage: &Arc<dyn Storage>,
    path: &Path,
    options: &Options,
) -> Result<Option<Arc<Tier>>> {
    let fast = options.fast.as_ref();
    fast.map(|it| Tier::open(storage, path, it)).transpose()
}

/// `storage`, whose tables and spilled graves may have copies in `tier`.
fn with_tier(storage: Arc<dyn Storage>, tier: Option<&Arc<Tier>>) -> Arc<dyn Storage> {
    match tier {
        None => storage,
        Some(tier) => Arc::new(Tiered {
            main: storage,
            tier: Arc::clone(tier),
        }),
    }
}

/// Opens the database in `path`, which this process owns, where there is as much room as there can be.
fn open_owned(
    (storage, disk_reserve, tier): (Arc<dyn Storage>, DiskReserve, Option<Arc<Tier>>),
    path: &Path,
    options: Options,
    ownership: &Ownership,
) -> Result<Db> {
    let resources = Resources::of(&options);
    let memory = resources.open(path, options.ring_bytes as u64)?;
    let tree = Tree::open(&storage, path, &memory, tree_settings(&options))?;
    let mut state = tree.state();
    let knows_log = state.contains_key(LOG_STATE);
    let mut devices = read_devices(&*storage, path, &options, &state)?;
    let flushed_through = tree.flushed_sequence();
    let directory = spill_directory(&storage, path, &options, &memory);
    let (flushed, graves_file) = read_graves(&directory, &state, flushed_through)?;
    let read = devices.as_mut();
    let spared = read
        .map(|it| index_snapshot::load(&*storage, path, it))
        .unwrap_or_default();
    let mut replay = Replay::new(
        (options.memtable_bytes, resources.regions()),
        flushed_through,
        knows_log,
        devices,
        spared,
        &options.order,
    );
    let needs = replay.needs();
    let mut deliver = |record: Record<'_>| replay.record(path, &record);
    let recovered = log::open(
        &storage,
        path,
        &log_settings(&options, &resources, &memory.account, tier.as_deref()),
        &needs,
        knows_log,
        &mut deliver,
    )?;
    replay.finish();
    let visible = end_of_log(path, &recovered, flushed_through)?;
    // Before anything else is written that would belong to another program's log if this one were not known.
    if !knows_log {
        note_state(&tree, &mut state, LOG_STATE)?;
    }
    if replay.devices.is_none()
        && let Some(settings) = &options.devices
    {
        let was_empty = visible == 0 && tree.version().tables().next().is_none();
        replay.devices = Some(begin_devices(
            &*storage,
            path,
            settings,
            visible,
            flushed_through,
            was_empty,
        )?);
    }
    if replay.devices.is_some() && !state.contains_key(DEVICES_STATE) {
        note_state(&tree, &mut state, DEVICES_STATE)?;
    }
    disk_reserve.keep(&*storage, path);
    let core = Arc::new(assemble(
        (storage, disk_reserve, tier),
        (path, ownership),
        (options, resources, memory.account),
        recovered,
        tree,
        replay,
        (flushed, graves_file, directory),
    ));
    connect(&core);
    let workers = Workers::start(&core)?;
    core.make_room_at_start();
    Ok(Db {
        core,
        workers: Some(workers),
        _ownership: ownership.clone(),
    })
}

/// The number of the last write that the log tells: no lower than the last one in tables.
fn end_of_log(path: &Path, recovered: &Recovered, flushed_through: u64) -> Result<u64> {
    let visible = recovered.log.visible_sequence();
    if visible < flushed_through {
        let reason =
            format!("it ends at write {visible}, but tables hold writes up to {flushed_through}");
        return Err(Error::corruption(path.join(JOURNAL_NAME), 0, reason));
    }
    Ok(visible)
}

/// Where graves spill to.
fn spill_directory(
    storage: &Arc<dyn Storage>,
    path: &Path,
    options: &Options,
    memory: &TableMemory,
) -> SpillDirectory {
    SpillDirectory {
        storage: Arc::clone(storage),
        dir: path.to_owned(),
        settings: tree_settings(options).table,
        memory: memory.clone(),
    }
}

fn log_settings(
    options: &Options,
    resources: &Resources,
    account: &Arc<Account>,
    tier: Option<&Tier>,
) -> LogSettings {
    LogSettings {
        lengths: segment_lengths(options),
        ring_bytes: options.ring_bytes,
        cache: LogBlocks::new(resources.log_blocks(), account),
        transfer: options.transfer(),
        defers: options.defers_log(),
        flush_bytes: options.memtable_bytes as u64,
        ring_shares_room: tier.is_some_and(Tier::is_for_ring),
    }
}

/// Lets the tree and the snapshots call the database.
fn connect(core: &Arc<Core>) {
    let of_graves = Arc::downgrade(core);
    core.tree.leave_out(Box::new(move |snapshot| {
        of_graves.upgrade().map_or_else(Hidden::default, |core| {
            core.hidden_from(&core.read_states.load(), snapshot)
        })
    }));
    let of_snapshots = Arc::downgrade(core);
    core.snapshots.on_release(move |sequence| {
        if let Some(core) = of_snapshots.upgrade() {
            core.snapshot_released(sequence);
        }
    });
}

fn prepare_directory(storage: &dyn Storage, path: &Path, options: &Options) -> Result<()> {
    if path.as_os_str().is_empty() {
        return Err(Error::InvalidArgument(
            "the path of the database is empty; name a directory".into(),
        ));
    }
    let listed = storage.list(path);
    let exists = match &listed {
        Ok(entries) => entries.iter().any(|entry| entry.name == CURRENT),
        Err(error) if error.is_not_found() => false,
        Err(error) => return Err(error.clone()),
    };
    if exists && options.error_if_exists {
        return Err(Error::InvalidArgument(format!(
            "there is a database in {} already",
            path.display()
        )));
    }
    if !exists && !options.create_if_missing {
        return Err(Error::Incompatible {
            path: path.to_owned(),
            reason: "there is no database in it; allow its creation, or check the path".into(),
        });
    }
    if !exists {
        background::check_limit(&options.disk_sizes())?;
    }
    if listed.is_err() {
        storage.create_dir(path)
    } else {
        Ok(())
    }
}

/// Gives back what was kept for this, and what was not finished: a full disk may have no other room. What a killed
/// opening left is removed before more is made, so that many of them take no more than one.
fn make_room(storage: &dyn Storage, path: &Path) -> Result<()> {
    background::give_back(storage, path)?;
    for entry in storage.list(path)? {
        if DRAFTS.contains(&entry.name.as_str()) {
            storage.remove(&path.join(entry.name))?;
        }
    }
    remove_job_directories(storage, path)
}

/// How long segments of the log are, and short ones where there is little room.
fn segment_lengths(options: &Options) -> SegmentLengths {
    let sizes = options.disk_sizes();
    SegmentLengths {
        whole: sizes.segment_bytes,
        short: background::short_segment_bytes(&sizes),
        kept_beside: background::kept_beside_segments(&sizes),
    }
}

/// What the directory says of devices, if it says anything, and if that is what the options ask for.
fn read_devices(
    storage: &dyn Storage,
    dir: &Path,
    options: &Options,
    state: &State,
) -> Result<Option<DeviceReplay>> {
    let knows_log = state.contains_key(LOG_STATE);
    let expects_devices = state.contains_key(DEVICES_STATE);
    let Some(saved) = checkpoint::read(storage, dir)? else {
        if expects_devices {
            let reason = "it is missing, although there are devices, which it alone tells of; restore it from a copy";
            return Err(Error::corruption(dir.join(CHECKPOINT_NAME), 0, reason));
        }
        return Ok(None);
    };
    let refuse = |reason: String| Error::Incompatible {
        path: dir.join(CHECKPOINT_NAME),
        reason,
    };
    let stored = saved.directory.extractor;
    match &options.devices {
        Some(settings) if settings.extractor != stored => Err(refuse(format!(
            "the directory was made with the device extractor {stored}, not {}",
            settings.extractor
        ))),
        None => Err(refuse(format!(
            "the directory was made with the device extractor {stored}; open it with that"
        ))),
        Some(_) if !knows_log => Err(refuse(
            "another program has written to the directory since; restore it from a copy".into(),
        )),
        Some(_) => Ok(Some(DeviceReplay::new(saved))),
    }
}

/// Writes the first checkpoint of a directory that had no devices so far.
fn begin_devices(
    storage: &dyn Storage,
    dir: &Path,
    settings: &DeviceOptions,
    begun_after: u64,
    flushed_through: u64,
    is_complete: bool,
) -> Result<DeviceReplay> {
    let directory = Directory {
        extractor: settings.extractor,
        is_complete,
        begun_after,
        released: flushed_through,
        clock: Duration::ZERO,
        engine: fresh_identity(storage),
    };
    let ledger = Ledger::default();
    let content = checkpoint::encode(&directory, [].iter(), &ledger);
    log_release::save(storage, dir, &content)?;
    Ok(DeviceReplay::new(Saved {
        directory,
        devices: Vec::new(),
        ledger,
    }))
}

/// An identity that no other engine has.
fn fresh_identity(storage: &dyn Storage) -> EngineId {
    let halves = [storage.random(), storage.random()];
    EngineId::from_bytes(halves.map(u64::to_le_bytes).as_flattened())
}

pub(super) fn tree_settings(options: &Options) -> TreeSettings {
    TreeSettings {
        table: TableSettings {
            block_bytes: options.block_bytes,
            compression: options.compression,
            filter_bits_per_key: options.filter_bits_per_key,
            order: options.order.clone(),
            ..TableSettings::default()
        },
        shape: Shape::new(options.memtable_bytes as u64, options.table_bytes as u64),
        max_open_tables: options.max_open_tables,
        compaction_bytes_per_second: options.compaction_bytes_per_second,
        offload: options.offload.clone(),
    }
}

/// Says beside the tree, durably, that the directory has what `entry` names.
fn note_state(tree: &Tree, state: &mut State, entry: &str) -> Result<()> {
    state.insert(entry.to_owned(), Vec::new());
    tree.set_state(state.clone())
}

/// A memtable that begins at `cut_lsn` at the latest: what the ring alone held was laid out anew behind it, and up to there
/// nothing can be recycled early.
fn begun_by(cut_lsn: u64, memtable: LoggedMemTable) -> Arc<LoggedMemTable> {
    Arc::new(LoggedMemTable {
        start_lsn: memtable.start_lsn.min(cut_lsn),
        ..memtable
    })
}

fn assemble(
    (storage, disk_reserve, tier): (Arc<dyn Storage>, DiskReserve, Option<Arc<Tier>>),
    (dir, ownership): (&Path, &Ownership),
    (options, resources, account): (Options, Resources, Arc<Account>),
    recovered: Recovered,
    tree: Tree,
    replay: Replay,
    (flushed, graves_file, directory): (FlushedGraves, GravesFile, SpillDirectory),
) -> Core {
    let clamp = |memtable| begun_by(recovered.cut_lsn, memtable);
    let full: Vec<_> = replay.full.into_iter().map(clamp).collect();
    let active = clamp(replay.active);
    let full_memtables = AtomicUsize::new(full.len());
    let jobs = Member::join(&storage, &limits(&options));
    account.connect(&jobs);
    let log = Arc::new(recovered.log);
    call_jobs(&jobs, &log, tier.as_deref());
    let snapshot_lsn = replay.spared.lsn;
    let settings = options.devices.clone().zip(replay.devices);
    let devices = settings.map(|(settings, replay)| {
        let pending = replay.pending();
        let upper = Arc::new(Upper::new(replay.table, Arc::clone(&log)));
        // Recovery has made the log durable.
        upper.note_durable(log.visible_sequence());
        let (directory, now) = (replay.directory, storage.now());
        let account = Arc::clone(&account);
        Devices::new(
            upper,
            (settings, account),
            directory,
            pending,
            snapshot_lsn,
            now,
        )
    });
    let reached = replay.time.max(flushed.time());
    let clock = ExpiryClock::new(storage.wall_clock(), storage.now(), reached);
    let memtables = (full, Arc::clone(&active));
    let stored = (flushed, graves_file, directory);
    let (tree, read_states, graves) =
        graves_of((&options, &log), tree, memtables, stored, devices.as_ref());
    let core = Core {
        read_states,
        graves,
        dead_range_search: DeadRangeSearch::default(),
        storage,
        dir: dir.to_owned(),
        ownership: Arc::downgrade(ownership),
        options,
        log,
        tree,
        snapshots: Arc::new(Snapshots::default()),
        clock,
        is_time_over: Mutex::new(false),
        resources,
        account,
        active: Mutex::new(Active {
            memtable: active,
            reserved: replay.reserved,
            charged: 0,
        }),
        active_reserved: AtomicUsize::new(replay.reserved),
        full_memtables,
        is_flush_failing: AtomicBool::new(false),
        idle_waiters: AtomicUsize::new(0),
        throttle: Throttle::new(),
        disk_reserve,
        tier,
        idle: IdleWatch::new(&jobs),
        devices,
        background: Mutex::new(Background::default()),
        changed: Condvar::new(),
        jobs,
    };
    if let Some(devices) = &core.devices {
        note_settling(&core.disk_reserve, &devices.settler.pending.lock());
    }
    core.observe_backlog();
    core.note_memory();
    core
}

/// Has the log and the fast tier wake their jobs.
fn call_jobs(jobs: &Arc<Member>, log: &Log, tier: Option<&Tier>) {
    let called = Arc::clone(jobs);
    log.on_call(move || called.submit(Kind::Log));
    if let Some(tier) = tier {
        // The scheduler may have the tier's storage as its clock: not to keep each other.
        let called = Arc::downgrade(jobs);
        tier.on_call(move || {
            if let Some(jobs) = called.upgrade() {
                jobs.submit(Kind::Place);
            }
        });
    }
}

/// The tree, what readers see at first, and the store of graves.
fn graves_of(
    (options, log): (&Options, &Arc<Log>),
    tree: Tree,
    (full, active): (Vec<Arc<LoggedMemTable>>, Arc<LoggedMemTable>),
    (flushed, file, directory): (FlushedGraves, GravesFile, SpillDirectory),
    devices: Option<&Devices>,
) -> (Arc<Tree>, Arc<ReadStates>, GraveStore) {
    let visible = log.visible_sequence();
    let flushed = with_departures(flushed, devices);
    let flushed = reaching_far(flushed, &full, &active, visible);
    let read_state = ReadState::new(active, full, tree.version(), Arc::new(flushed));
    let read_states = Arc::new(ReadStates::new(read_state));
    let tree = Arc::new(tree);
    let parts = retirement::Parts {
        log: Arc::clone(log),
        tree: Arc::clone(&tree),
        read_states: Arc::clone(&read_states),
        directory,
        limit_bytes: options.graves_bytes,
        deadline: options.deletion_deadline,
    };
    let graves = GraveStore::new(parts, file, visible);
    (tree, read_states, graves)
}

/// The flushed graves, which go as far as the deletions in them, now that memtables are as they were; or will, once
/// they are flushed.
fn reaching_far(
    flushed: FlushedGraves,
    full: &[Arc<LoggedMemTable>],
    active: &LoggedMemTable,
    last_sequence: u64,
) -> FlushedGraves {
    if flushed.last_number() > flushed.through() {
        let mut memtables = full.iter().map(|it| &**it).chain([active]);
        match memtables.rfind(|memtable| !memtable.memory.is_empty()) {
            Some(used) => used.memory.graves.note_due(),
            None => return flushed.with_settled(&[], 0, last_sequence),
        }
    }
    flushed
}

/// The flushed graves with the graves of departed devices, as the device table knows them: an older version kept them there
/// alone.
fn with_departures(flushed: FlushedGraves, devices: Option<&Devices>) -> FlushedGraves {
    let departed_from_tree =
        devices.map_or_else(Vec::new, |it| it.upper.table.departed_from_tree());
    if departed_from_tree.is_empty() {
        return flushed;
    }
    let departures = ActiveGraves::new(0);
    for device in departed_from_tree {
        let prefix = device.prefix();
        device.with_state(|state| {
            for departure in state.covering.as_slice() {
                departures.delete_range(prefix, prefix_end(prefix).as_deref(), *departure);
            }
        });
    }
    let through = flushed.through();
    flushed.with([&departures], through, u64::MAX, 0, through)
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
