//! Retirement: graves beside the tree, from the flush of their memtable until nothing is left that they hide.
//!
//! ```text
//!   1 add      a deletion goes to the active graves of the memtable that takes writes    in the order of the log
//!   2 flush    that memtable is flushed: its graves become flushed graves; the file GRAVES is replaced
//!   3 drop     the memtable's own versions that are hidden by then never reach a table; the MANIFEST is edited
//!   4 show     one read state with the new version and the new flushed graves
//!   5 purge    compactions leave out what flushed graves hide from all readers
//!   6 retire   a grave that hides nothing any more leaves the flushed graves
//! ```
//!
//! The file is durable before the MANIFEST says that the memtable is in tables, and the log is durable before both.
//! So a deletion that is in no file is in the part of the log that is replayed, and one that is in both counts once.
//!
//! The [`GraveStore`] is the only one that changes the flushed graves of the read state and the file `GRAVES`. Who
//! holds the lock of the file may change both; a flush holds it from step 2 to step 4.
//!
//! - [`flush`]: steps 2 and 3; [`file`](mod@file): who may replace the file, and with what
//! - [`spill`]: graves that are too many for memory, in files of their own
//! - [`proof`]: which graves a version of the tree needs; [`retire`]: step 6
//! - [`deadline`]: which deletions have waited for too long

mod deadline;
mod file;
mod flush;
mod proof;
mod retire;
mod spill;

pub(crate) use file::{GravesFile, read_graves, write_file};
pub(crate) use flush::GraveFlush;

use crate::cemetery::dead_ranges::DeadRangeCache;
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::spilled::SpillDirectory;
use crate::error::Result;
use crate::log::Log;
use crate::lsm::compaction::Hidden;
use crate::lsm::tree::Tree;
use crate::read_state::{ReadState, ReadStates};
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{Arc, Mutex, lock};
use deadline::Timeline;
use spill::SpillUpkeep;
use std::time::Duration;

/// When graves take this part of their memory, all that they hide is purged: sooner than they leave it.
const PURGE_SHARE: usize = 2;
/// After a look at graves or spill files, the next comes at the earliest after so many times as long.
const BACKOFF_SHARE: u32 = 10;

/// What the store asks of the database that it belongs to.
pub(crate) trait Owner {
    /// All who read are at this snapshot or later.
    fn oldest_snapshot(&self) -> u64;
    /// All who read are past this time (microseconds since 1970).
    fn oldest_time(&self) -> u64;
    /// Whether no thread has written for a while.
    fn is_idle(&self) -> bool;
    /// Whether the database is being closed.
    fn is_stopping(&self) -> bool;
    /// Runs `act` while nothing is on its way to the tree; not at all if something is, as what is not there yet may
    /// come.
    fn while_settled(&self, act: &mut dyn FnMut());
    /// What needs graves besides tables and memtables, if there is anything of the kind.
    fn upper_level(&self) -> Option<&dyn UpperLevel>;
    /// Why the last flush of a memtable failed, if it did.
    fn flush_failure(&self) -> Option<Arc<str>>;
}

/// Data on its way to the tree, which needs graves as tables do.
pub(crate) trait UpperLevel {
    /// Whether it may hold anything from `start` (included) to `end` (excluded; `None`: no bound) with a sequence
    /// number below `sequence`.
    fn may_hold(&self, start: &[u8], end: Option<&[u8]>, sequence: u64) -> bool;
    /// Deletions of keys between these numbers (both excluded) hide what readers find in indexes alone.
    fn left_on_the_way(&self) -> Vec<(u64, u64)>;
}

/// What the store is made of.
pub(crate) struct Parts {
    pub(crate) log: Arc<Log>,
    pub(crate) tree: Arc<Tree>,
    pub(crate) read_states: Arc<ReadStates>,
    /// Where `GRAVES` and spill files are.
    pub(crate) directory: SpillDirectory,
    /// Memory for flushed graves (bytes).
    pub(crate) limit_bytes: usize,
    /// Within what time a deletion is to be physical, if there is a limit.
    pub(crate) deadline: Option<Duration>,
}

/// The graves beside a tree, in memory and in files.
pub(crate) struct GraveStore {
    parts: Parts,
    dead_ranges: Arc<DeadRangeCache>,
    /// Held while other flushed graves are made.
    file: Mutex<GravesFile>,
    /// When which deletions were seen.
    seen: Mutex<Timeline>,
    /// When compactions look again for deletions that are overdue.
    look_at: Mutex<Duration>,
    /// The last write that there was when the database was opened: tables were purged through it at most.
    opened_at: u64,
    /// The number of the next spill file, and how far the last look for work on spill files went.
    next_spill: AtomicU64,
    upkeep: Mutex<SpillUpkeep>,
    /// Counts when indexes were given up that graves were kept for.
    given_up: AtomicU64,
}

/// What a look for graves that nothing needs goes by: the read state's generation, and how often indexes had been given
/// up.
type LookedAt = (u64, u64);

impl GraveStore {
    /// The store of a database whose file was read, and whose last write was `opened_at`.
    pub(crate) fn new(parts: Parts, file: GravesFile, opened_at: u64) -> Self {
        let last = file.spilled.named.iter().max();
        let next = last.map_or(1, |last| last + 1);
        Self {
            parts,
            dead_ranges: Arc::default(),
            file: Mutex::new(file),
            seen: Mutex::default(),
            look_at: Mutex::default(),
            opened_at,
            next_spill: AtomicU64::new(next),
            upkeep: Mutex::default(),
            given_up: AtomicU64::new(0),
        }
    }

    /// The ranges that scans found to be dead.
    pub(crate) fn dead_ranges(&self) -> &Arc<DeadRangeCache> {
        &self.dead_ranges
    }

    fn read_state(&self) -> Arc<ReadState> {
        self.parts.read_states.load()
    }

    fn now(&self) -> Duration {
        self.parts.directory.storage.now()
    }

    /// Shows readers `flushed` from now on.
    fn show(&self, flushed: Arc<FlushedGraves>) {
        let read_states = &self.parts.read_states;
        read_states.change(|read_state| read_state.flushed = flushed);
    }

    /// No table was purged through a higher number, while `flushed` is the latest.
    fn purged_through(&self, flushed: &FlushedGraves) -> u64 {
        flushed.through().max(self.opened_at)
    }

    /// What graves hide from all who read at `snapshot` or later, and from the log's point of view for good. In an idle
    /// database (`is_idle`) whatever is hidden is overdue, if there is a deadline.
    pub(crate) fn hidden_from(
        &self,
        read_state: &ReadState,
        snapshot: u64,
        is_idle: bool,
    ) -> Hidden {
        Hidden {
            through: snapshot.min(read_state.flushed.through()),
            graves: Arc::clone(&read_state.flushed),
            above: 0,
            overdue: self.overdue_through(read_state, is_idle),
            dead_ranges: Some(Arc::clone(&self.dead_ranges)),
        }
    }

    /// While the caller keeps the guard, tables and graves are those of one moment.
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        lock(&self.file)
    }

    /// For versions that were written from `stage` on (0: none) and are about to be shown with a later sequence number:
    /// sees to it that no retired grave of that time is found in the file again, and none is retired, while what is
    /// returned is held.
    ///
    /// # Errors
    /// Those of replacing the file.
    pub(crate) fn hold_since(&self, stage: u64, owner: &dyn Owner) -> Result<impl Drop + '_> {
        let mut file = lock(&self.file);
        if stage > 0 && file.is_stale && file.may_be_found() {
            let flushed = Arc::clone(&self.read_state().flushed);
            self.write(&mut file, &flushed, owner)?;
        }
        Ok(file)
    }

    /// The same versions, whose keys begin with `prefix`, shown at `sequence`: whether anything was deleted there since
    /// `stage`. What scans found to be dead is forgotten, as they did not see these. Under the front's lock.
    pub(crate) fn was_deleted_since(&self, prefix: &[u8], stage: u64, sequence: u64) -> bool {
        self.dead_ranges.forget(sequence);
        stage > 0 && {
            let read_state = self.read_state();
            read_state.hides_in_prefix(prefix, stage)
                || read_state.flushed.has_points_since(prefix, stage)
        }
    }

    /// The graves for a copy of the database, whose time goes on from `time`: readers at an earlier one
    /// here do not read there.
    pub(crate) fn to_copy(&self, time: impl FnOnce() -> u64) -> Arc<FlushedGraves> {
        let flushed = Arc::clone(&self.read_state().flushed);
        if !flushed.is_timed() {
            return flushed;
        }
        Arc::new(FlushedGraves::clone(&flushed).at_time(time()))
    }

    /// Brings the file up to date at the end; whether no grave is left.
    ///
    /// # Errors
    /// Those of replacing or removing the file.
    pub(crate) fn close(&self, owner: &dyn Owner) -> Result<bool> {
        self.retire(true, owner);
        let mut file = lock(&self.file);
        let flushed = Arc::clone(&self.read_state().flushed);
        if flushed.is_empty() {
            if file.is_there {
                self.remove(&mut file)?;
            }
            return Ok(true);
        }
        if flushed.count() != file.graves || file.is_stale {
            self.write(&mut file, &flushed, owner)?;
        }
        Ok(false)
    }

    /// What a look at `read_state` goes by. To be asked before the look.
    fn looked_at(&self, read_state: &ReadState) -> LookedAt {
        (read_state.generation(), self.given_up.load(SeqCst))
    }

    /// An index was given up that graves were kept for: has them be looked at again.
    pub(crate) fn look_again(&self) {
        self.given_up.fetch_add(1, SeqCst);
    }
}
