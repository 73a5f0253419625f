//! The view: everything a read needs, pinned by one reference count.
//!
//! A read takes the view first and the visible sequence second, and looks whether the view is still the
//! current one. Then every write up to that sequence lies in the view: a write to a newer memtable is
//! published only after the view with that memtable was. (The other way round a compaction could drop, from a
//! newer view, versions that the older sequence needs.)

use crate::cemetery::fragments::Fragments;
use crate::cemetery::ground::Ground;
use crate::cemetery::plot::Plot;
use crate::cemetery::points;
use crate::error::Result;
use crate::log::Log;
use crate::lsm::memtable::{MemTable, Regions};
use crate::lsm::version::Version;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::sync::{Arc, RwLock, may_be_held_up};
use waystation_format::batch::prefix_end;
use waystation_format::order::Order;

/// What writes go to: versions here, deletions there.
#[derive(Clone)]
pub(crate) struct Memory {
    pub(crate) table: Arc<MemTable>,
    pub(crate) graves: Arc<Plot>,
}

impl Memory {
    /// Memory for `bytes` of versions and graves together, whose keys are in `order`.
    pub(crate) fn new(bytes: usize, regions: &Arc<Regions>, order: &Order) -> Self {
        Self {
            table: Arc::new(MemTable::with_regions(bytes, regions, order)),
            graves: Arc::new(Plot::in_order(bytes, order)),
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

/// A memtable with its plot and the part of the log they hold.
pub(crate) struct LoggedMemTable {
    pub(crate) memory: Memory,
    /// Records before this position are not in it.
    pub(crate) start_lsn: u64,
    /// Nor are writes below this sequence number.
    pub(crate) start_sequence: u64,
}

/// The memtables, the graves and the version that together are the database.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) active: Arc<LoggedMemTable>,
    /// Full memtables, oldest first.
    pub(crate) full: Vec<Arc<LoggedMemTable>>,
    pub(crate) version: Arc<Version>,
    /// The graves of memtables that were flushed.
    pub(crate) ground: Arc<Ground>,
    generation: u64,
}

impl View {
    pub(crate) fn new(
        active: Arc<LoggedMemTable>,
        full: Vec<Arc<LoggedMemTable>>,
        version: Arc<Version>,
        ground: Arc<Ground>,
    ) -> Self {
        Self {
            active,
            full,
            version,
            ground,
            generation: 0,
        }
    }

    /// Counts the views: a later one has a higher number.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        self.newest_first().map(|logged| &logged.memory.table)
    }

    /// The memtables with their plots, newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Arc<LoggedMemTable>> {
        std::iter::once(&self.active).chain(self.full.iter().rev())
    }

    /// The first sequence number that memtables may hold.
    pub(crate) fn memtables_from(&self) -> u64 {
        self.full.first().unwrap_or(&self.active).start_sequence
    }

    /// The plots, newest first.
    pub(crate) fn plots(&self) -> impl Iterator<Item = &Arc<Plot>> {
        self.newest_first().map(|logged| &logged.memory.graves)
    }

    /// Whether there is no grave at all.
    #[inline]
    pub(crate) fn has_no_graves(&self) -> bool {
        self.active.memory.graves.is_empty()
            && self.ground.is_empty()
            && self.full.iter().all(|full| full.memory.graves.is_empty())
    }

    /// The first date of a grave; the end of time if none has one.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        let in_plots = self.plots().map(|plot| plot.earliest());
        in_plots
            .min()
            .unwrap_or(u64::MAX)
            .min(self.ground.earliest())
    }

    /// When graves with dates can be dug next; the end of time if none can.
    pub(crate) fn ripe_from(&self) -> u64 {
        let in_plots = self.plots().map(|plot| plot.earliest()).min();
        in_plots.unwrap_or(u64::MAX).min(self.ground.ripe_from())
    }

    /// The date of the grave of `key` with the number `sequence`, if it has one.
    pub(crate) fn date_of(&self, key: &[u8], sequence: u64) -> Result<Option<u64>> {
        let mut in_plots = self
            .plots()
            .filter_map(|plot| plot.dated()?.date_of(key, sequence));
        let in_memory = in_plots
            .next()
            .or_else(|| self.ground.date_of(key, sequence));
        match in_memory {
            None => self.ground.vaults().date_of(key, sequence),
            date => Ok(date),
        }
    }

    /// The latest deletion of `key` up to `snapshot` that counts at `time`, below which its versions are hidden; 0 if
    /// there is none.
    #[inline]
    pub(crate) fn floor(
        &self,
        key: &[u8],
        snapshot: u64,
        time: impl FnOnce() -> u64,
    ) -> Result<u64> {
        if self.has_no_graves() {
            return Ok(0);
        }
        let hash = points::hash(key);
        let in_plots = self.plots().map(|plot| plot.floor(key, hash, snapshot));
        let floor = in_plots
            .max()
            .unwrap_or(0)
            .max(self.ground.floor(key, hash, snapshot));
        let floor = floor.max(self.ground.vaults().floor(key, snapshot)?);
        if self.earliest() == u64::MAX {
            return Ok(floor);
        }
        Ok(floor.max(self.dated_floor(key, hash, snapshot, time())?))
    }

    /// The latest deletion of `key`, whose hash is `hash`, up to `snapshot` that has a date, and counts at `time`; 0 if
    /// there is none.
    pub(crate) fn dated_floor(
        &self,
        key: &[u8],
        hash: u64,
        snapshot: u64,
        time: u64,
    ) -> Result<u64> {
        let in_plots = self
            .plots()
            .map(|plot| plot.dated_floor(key, hash, snapshot, time));
        let in_memory = in_plots
            .max()
            .unwrap_or(0)
            .max(self.ground.dated_floor(key, hash, snapshot, time));
        let in_vaults = self.ground.vaults().dated_floor(key, snapshot, time)?;
        Ok(in_memory.max(in_vaults))
    }
}

impl View {
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
        hides(self.ground.ranges())
            || self
                .plots()
                .any(|plot| plot.has_ranges() && plot.with_ranges(hides))
    }
}

/// The current view.
pub(crate) struct ViewCell {
    current: RwLock<Arc<View>>,
    generation: AtomicU64,
}

impl ViewCell {
    pub(crate) fn new(view: View) -> Self {
        Self {
            current: RwLock::new(Arc::new(view)),
            generation: AtomicU64::new(0),
        }
    }

    /// The current view.
    pub(crate) fn load(&self) -> Arc<View> {
        may_be_held_up();
        Arc::clone(
            &self
                .current
                .read()
                .expect("no thread panics with the view locked"),
        )
    }

    /// A view and a sequence number such that the view holds every write up to it.
    pub(crate) fn read_point(&self, log: &Log) -> (Arc<View>, u64) {
        loop {
            let view = self.load();
            let sequence = log.visible_sequence();
            if view.generation == self.generation.load(SeqCst) {
                return (view, sequence);
            }
        }
    }

    /// Shows another view from now on: this one with a `change`.
    pub(crate) fn change(&self, change: impl FnOnce(&mut View)) {
        let mut current = self
            .current
            .write()
            .expect("no thread panics with the view locked");
        let mut next = View::clone(&current);
        change(&mut next);
        next.generation = current.generation + 1;
        self.generation.store(next.generation, SeqCst);
        *current = Arc::new(next);
    }
}
