//! From a directory to a database: lock, tree, log, and what the log holds back into memory.

use super::options::Options;
use super::pace::Pace;
use super::pipeline::{Active, apply, room_of};
use super::snapshot::Snapshots;
use super::view::{LoggedMemTable, View, ViewCell};
use super::workers::{Background, Workers};
use super::{Core, Db};
use crate::error::{Error, Result};
use crate::log::{self, LogSettings, Record, Recovered};
use crate::lsm::compaction::Shape;
use crate::lsm::memtable::MemTable;
use crate::lsm::table::TableSettings;
use crate::lsm::tree::{Tree, TreeSettings};
use crate::storage::Storage;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use crate::sync::{Arc, Condvar, Mutex};
use std::path::Path;
use waystation_format::batch::BatchIter;

/// The name of the lock file, `LevelDB`'s.
const LOCK_NAME: &str = "LOCK";
/// What the tree's state holds once the log beside it belongs to it: gone when another program wrote to the
/// directory since.
const LOG_STATE: &str = "log";
/// No write has this sequence number.
const NEVER: u64 = u64::MAX;
/// The file whose presence makes a directory a database.
const CURRENT_NAME: &str = "CURRENT";

pub(super) fn open(storage: Arc<dyn Storage>, path: &Path, options: Options) -> Result<Db> {
    options.validate()?;
    prepare_directory(&*storage, path, &options)?;
    let lock = storage.lock(&path.join(LOCK_NAME))?;
    let tree = Tree::open(&storage, path, tree_settings(&options))?;
    let mut state = tree.state();
    let knows_log = state.contains_key(LOG_STATE);
    let mut replay = Replay::new(options.memtable_bytes, tree.flushed_sequence(), knows_log);
    let settings = LogSettings {
        segment_bytes: options.log_segment_bytes as u64,
        ring_bytes: options.ring_bytes,
    };
    let flushed = tree.flushed_sequence();
    let recovered = log::open(&storage, path, &settings, flushed, &mut |record| {
        replay.record(path, &record)
    })?;
    if !knows_log {
        state.insert(LOG_STATE.to_owned(), Vec::new());
        tree.set_state(state)?;
    }
    let core = Arc::new(assemble(storage, path, options, recovered, tree, replay));
    let workers = Workers::start(&core)?;
    Ok(Db {
        core,
        workers: Some(workers),
        _lock: lock,
    })
}

fn prepare_directory(storage: &dyn Storage, path: &Path, options: &Options) -> Result<()> {
    if path.as_os_str().is_empty() {
        return Err(Error::InvalidArgument(
            "the path of the database is empty; name a directory".into(),
        ));
    }
    let listed = storage.list(path);
    let exists = match &listed {
        Ok(entries) => entries.iter().any(|entry| entry.name == CURRENT_NAME),
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
    if listed.is_err() {
        storage.create_dir(path)
    } else {
        Ok(())
    }
}

fn tree_settings(options: &Options) -> TreeSettings {
    TreeSettings {
        table: TableSettings {
            block_bytes: options.block_bytes,
            compression: options.compression,
            filter_bits_per_key: options.filter_bits_per_key,
            ..TableSettings::default()
        },
        shape: Shape::new(options.memtable_bytes as u64, options.table_bytes as u64),
        cache_bytes: options.cache_bytes,
        max_open_tables: options.max_open_tables,
    }
}

/// Puts the log's records back into memtables.
struct Replay {
    memtable_bytes: usize,
    flushed_sequence: u64,
    /// Whether the log belongs to the tables.
    knows_log: bool,
    full: Vec<LoggedMemTable>,
    active: LoggedMemTable,
    reserved: usize,
    /// A record as a batch, to be used again.
    scratch: Vec<u8>,
}

impl Replay {
    fn new(memtable_bytes: usize, flushed_sequence: u64, knows_log: bool) -> Self {
        Self {
            memtable_bytes,
            flushed_sequence,
            knows_log,
            full: Vec::new(),
            active: LoggedMemTable {
                table: Arc::new(MemTable::new(memtable_bytes)),
                start_lsn: 0,
                start_sequence: flushed_sequence + 1,
            },
            reserved: 0,
            scratch: Vec::new(),
        }
    }

    /// Takes one record, unless it is in tables already.
    fn record(&mut self, dir: &Path, record: &Record<'_>) -> Result<()> {
        let header = &record.header;
        if header.last_sequence() <= self.flushed_sequence {
            return Ok(());
        }
        self.check_belongs(dir)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(&header.first_sequence.to_le_bytes());
        scratch.extend_from_slice(&header.operations.to_le_bytes());
        scratch.extend_from_slice(record.payload);
        let operations = BatchIter::parse(&scratch).map_err(|error| {
            let reason = format!(
                "the log's record at position {} is no batch: {error}",
                record.lsn
            );
            Error::corruption(dir, 0, reason)
        })?;
        let room = operations
            .clone()
            .map(|operation| room_of(&operation))
            .sum();
        self.make_room(room, record.lsn, header.first_sequence);
        apply(&self.active.table, operations, header.first_sequence);
        self.scratch = scratch;
        Ok(())
    }

    /// Refuses a log that is not that of the tables.
    fn check_belongs(&self, dir: &Path) -> Result<()> {
        if !self.knows_log {
            let reason = "its log holds writes that belong to other tables than those in it; remove the files \
                          named journal* and JOURNAL to open it without them";
            return Err(Error::Incompatible {
                path: dir.to_owned(),
                reason: reason.to_owned(),
            });
        }
        Ok(())
    }

    fn make_room(&mut self, room: usize, lsn: u64, sequence: u64) {
        if self.reserved + room > self.active.table.capacity_bytes() {
            let fresh = LoggedMemTable {
                table: Arc::new(MemTable::new(self.memtable_bytes.max(room))),
                start_lsn: lsn,
                start_sequence: sequence,
            };
            self.full.push(std::mem::replace(&mut self.active, fresh));
            self.reserved = 0;
        }
        self.reserved += room;
    }
}

fn assemble(
    storage: Arc<dyn Storage>,
    dir: &Path,
    options: Options,
    recovered: Recovered,
    tree: Tree,
    replay: Replay,
) -> Core {
    // What the ring alone held was laid out anew behind the cut: up to there nothing can be freed early.
    let clamp = |memtable: LoggedMemTable| {
        Arc::new(LoggedMemTable {
            start_lsn: memtable.start_lsn.min(recovered.cut_lsn),
            ..memtable
        })
    };
    let full: Vec<_> = replay.full.into_iter().map(clamp).collect();
    let active = clamp(replay.active);
    let full_memtables = AtomicUsize::new(full.len());
    let core = Core {
        views: ViewCell::new(View::new(Arc::clone(&active), full, tree.version())),
        storage,
        dir: dir.to_owned(),
        options,
        log: recovered.log,
        tree,
        snapshots: Arc::new(Snapshots::default()),
        active: Mutex::new(Active {
            memtable: active,
            reserved: replay.reserved,
        }),
        active_reserved: AtomicUsize::new(replay.reserved),
        full_memtables,
        pace: Pace::new(),
        rested_at: AtomicU64::new(NEVER),
        sleeping: AtomicBool::new(false),
        background: Mutex::new(Background::default()),
        work: Condvar::new(),
        changed: Condvar::new(),
        wake: Condvar::new(),
    };
    core.observe_pace();
    core
}
