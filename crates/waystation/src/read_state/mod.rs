//! The read state: everything a read needs, pinned by one reference count.
//!
//! A read takes the read state first and the visible sequence second, and looks whether the read state is still the
//! current one. Then every write up to that sequence lies in the read state: a write to a newer memtable is
//! published only after the read state with that memtable was. (The other way round a compaction could drop, from a
//! newer read state, versions that the older sequence needs.)
//!
//! - [`apply`]: how writes reach memory
//! - [`grave_filter`] and [`dead_run`]: what graves hide from a cursor over a read state

pub(crate) mod apply;
pub(crate) mod dead_run;
pub(crate) mod grave_filter;

use crate::cemetery::active::ActiveGraves;
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::fragments::Fragments;
use crate::cemetery::points;
use crate::error::Result;
use crate::log::Log;
use crate::lsm::memtable::{MemTable, Regions};
use crate::lsm::version::Version;
use crate::sst::Lookup;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::sync::{Arc, RwLock, may_be_held_up};
use waystation_format::batch::prefix_end;
use waystation_format::key::MAX_SEQUENCE;
use waystation_format::order::Order;

/// What writes go to: versions here, deletions there.
#[derive(Clone)]
pub(crate) struct MemtablePair {
    pub(crate) table: Arc<MemTable>,
    pub(crate) graves: Arc<ActiveGraves>,
}

impl MemtablePair {
    /// Memory for `bytes` of versions and graves together, whose keys are in `order`.
    pub(crate) fn new(bytes: usize, regions: &Arc<Regions>, order: &Order) -> Self {
        Self {
            table: Arc::new(MemTable::with_regions(bytes, regions, order)),
            graves: Arc::new(ActiveGraves::in_order(bytes, order)),
        }
    }

    /// Whether it has room for `bytes` more, `reserved` being taken.
    #[inline]
    pub(crate) fn has_room(&self, reserved: usize, bytes: usize) -> bool {
        let taken = reserved + self.graves.overlap_bytes();
        taken + bytes <= self.table.capacity_bytes()
    }

    /// Whether nothing was written to it.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty() && self.graves.is_empty()
    }
}

/// A memtable with its active graves and the part of the log they hold.
pub(crate) struct LoggedMemTable {
    pub(crate) memory: MemtablePair,
    /// Records before this position are not in it.
    pub(crate) start_lsn: u64,
    /// Nor are writes below this sequence number.
    pub(crate) start_sequence: u64,
}

/// The memtables, the graves and the version that together are the database.
#[derive(Clone)]
pub(crate) struct ReadState {
    pub(crate) active: Arc<LoggedMemTable>,
    /// Full memtables, oldest first.
    pub(crate) full: Vec<Arc<LoggedMemTable>>,
    pub(crate) version: Arc<Version>,
    /// The graves of memtables that were flushed.
    pub(crate) flushed: Arc<FlushedGraves>,
    generation: u64,
}

impl ReadState {
    pub(crate) fn new(
        active: Arc<LoggedMemTable>,
        full: Vec<Arc<LoggedMemTable>>,
        version: Arc<Version>,
        flushed: Arc<FlushedGraves>,
    ) -> Self {
        Self {
            active,
            full,
            version,
            flushed,
            generation: 0,
        }
    }

    /// Counts the read states: a later one has a higher number.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        self.newest_first().map(|logged| &logged.memory.table)
    }

    /// The memtables with their active graves, newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Arc<LoggedMemTable>> {
        std::iter::once(&self.active).chain(self.full.iter().rev())
    }

    /// The first sequence number that memtables may hold.
    pub(crate) fn memtables_from(&self) -> u64 {
        self.full.first().unwrap_or(&self.active).start_sequence
    }

    /// The active graves, newest first.
    pub(crate) fn active_graves(&self) -> impl Iterator<Item = &Arc<ActiveGraves>> {
        self.newest_first().map(|logged| &logged.memory.graves)
    }

    /// Whether there is no grave at all.
    #[inline]
    pub(crate) fn has_no_graves(&self) -> bool {
        self.active.memory.graves.is_empty()
            && self.flushed.is_empty()
            && self.full.iter().all(|full| full.memory.graves.is_empty())
    }

    /// The first date of a grave; the end of time if none has one.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        let in_memtables = self.active_graves().map(|graves| graves.earliest());
        in_memtables
            .min()
            .unwrap_or(u64::MAX)
            .min(self.flushed.earliest())
    }

    /// When graves with dates can be promoted next; the end of time if none can.
    pub(crate) fn due_from(&self) -> u64 {
        let in_memtables = self.active_graves().map(|graves| graves.earliest()).min();
        in_memtables
            .unwrap_or(u64::MAX)
            .min(self.flushed.due_from())
    }

    /// The date of the grave of `key` with the number `sequence`, if it has one.
    pub(crate) fn date_of(&self, key: &[u8], sequence: u64) -> Result<Option<u64>> {
        let mut in_memtables = self
            .active_graves()
            .filter_map(|graves| graves.dated()?.date_of(key, sequence));
        let in_memory = in_memtables
            .next()
            .or_else(|| self.flushed.date_of(key, sequence));
        match in_memory {
            None => self.flushed.spilled().date_of(key, sequence),
            date => Ok(date),
        }
    }

    /// Whether a write behind `sequence` put or deleted `key` in memory. What is flushed is visible.
    pub(crate) fn is_written_behind(&self, key: &[u8], sequence: u64) -> bool {
        let hash = points::hash(key);
        self.newest_first().any(|logged| {
            let MemtablePair { table, graves } = &logged.memory;
            let version = table.get_above(key, MAX_SEQUENCE, sequence + 1);
            !matches!(version, Lookup::Missing)
                || graves.covering(key, hash, MAX_SEQUENCE) > sequence
        })
    }

    /// The latest deletion of `key` up to `snapshot` that counts at `time`, below which its versions are hidden; 0 if
    /// there is none.
    #[inline]
    pub(crate) fn covering(
        &self,
        key: &[u8],
        snapshot: u64,
        time: impl FnOnce() -> u64,
    ) -> Result<u64> {
        if self.has_no_graves() {
            return Ok(0);
        }
        let hash = points::hash(key);
        let in_memtables = self
            .active_graves()
            .map(|graves| graves.covering(key, hash, snapshot));
        let covering = in_memtables
            .max()
            .unwrap_or(0)
            .max(self.flushed.covering(key, hash, snapshot));
        let covering = covering.max(self.flushed.spilled().covering(key, snapshot)?);
        if self.earliest() == u64::MAX {
            return Ok(covering);
        }
        Ok(covering.max(self.dated_covering(key, hash, snapshot, time())?))
    }

    /// The latest deletion of `key`, whose hash is `hash`, up to `snapshot` that has a date, and counts at `time`; 0 if
    /// there is none.
    pub(crate) fn dated_covering(
        &self,
        key: &[u8],
        hash: u64,
        snapshot: u64,
        time: u64,
    ) -> Result<u64> {
        let in_memtables = self
            .active_graves()
            .map(|graves| graves.dated_covering(key, hash, snapshot, time));
        let in_memory = in_memtables
            .max()
            .unwrap_or(0)
            .max(self.flushed.dated_covering(key, hash, snapshot, time));
        let in_spilled = self.flushed.spilled().dated_covering(key, snapshot, time)?;
        Ok(in_memory.max(in_spilled))
    }
}

impl ReadState {
    /// Whether a deletion of a range, at `sequence` or later, hides keys that begin with `prefix`.
    pub(crate) fn hides_in_prefix(&self, prefix: &[u8], sequence: u64) -> bool {
        let last = prefix_end(prefix);
        let hides = |ranges: &Fragments| {
            let overlapping = ranges.overlapping(Some(prefix), last.as_deref());
            let mut inside = overlapping.filter(|(start, end, _)| {
                end.is_none_or(|end| end > prefix) && last.as_deref().is_none_or(|it| *start < it)
            });
            inside.any(|(_, _, cuts)| cuts.iter().any(|cut| cut.below >= sequence))
        };
        hides(self.flushed.ranges())
            || self
                .active_graves()
                .any(|graves| graves.has_ranges() && graves.with_ranges(hides))
    }
}

/// The current read state.
pub(crate) struct ReadStates {
    current: RwLock<Arc<ReadState>>,
    generation: AtomicU64,
}

impl ReadStates {
    pub(crate) fn new(read_state: ReadState) -> Self {
        Self {
            current: RwLock::new(Arc::new(read_state)),
            generation: AtomicU64::new(0),
        }
    }

    /// The current read state.
    pub(crate) fn load(&self) -> Arc<ReadState> {
        may_be_held_up();
        Arc::clone(
            &self
                .current
                .read()
                .expect("no thread panics with the read state locked"),
        )
    }

    /// A read state and a sequence number such that the read state holds every write up to it. No write that was
    /// acknowledged before the call is above it.
    pub(crate) fn read_point(&self, log: &Log) -> (Arc<ReadState>, u64) {
        log.wait_acknowledged();
        self.visible_point(log)
    }

    /// The same without waiting: acknowledged writes may be above it.
    pub(crate) fn visible_point(&self, log: &Log) -> (Arc<ReadState>, u64) {
        loop {
            let read_state = self.load();
            let sequence = log.visible_sequence();
            if read_state.generation == self.generation.load(SeqCst) {
                return (read_state, sequence);
            }
        }
    }

    /// Shows another read state from now on: this one with a `change`.
    pub(crate) fn change(&self, change: impl FnOnce(&mut ReadState)) {
        let mut current = self
            .current
            .write()
            .expect("no thread panics with the read state locked");
        let mut next = ReadState::clone(&current);
        change(&mut next);
        next.generation = current.generation + 1;
        self.generation.store(next.generation, SeqCst);
        *current = Arc::new(next);
    }
}
