//! The view: everything a read needs, pinned by one reference count.
//!
//! A read takes the view first and the visible sequence second, and looks whether the view is still the
//! current one. Then every write up to that sequence lies in the view: a write to a newer memtable is
//! published only after the view with that memtable was. (The other way round a compaction could drop, from a
//! newer view, versions that the older sequence needs.)

use crate::log::Log;
use crate::lsm::memtable::MemTable;
use crate::lsm::version::Version;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::sync::{Arc, RwLock};

/// A memtable and the part of the log it holds.
pub(crate) struct LoggedMemTable {
    pub(crate) table: Arc<MemTable>,
    /// Records before this position are not in it.
    pub(crate) start_lsn: u64,
    /// Nor are writes below this sequence number.
    pub(crate) start_sequence: u64,
}

/// The memtables and the version that together are the database.
pub(crate) struct View {
    pub(crate) active: Arc<LoggedMemTable>,
    /// Full memtables, oldest first.
    pub(crate) full: Vec<Arc<LoggedMemTable>>,
    pub(crate) version: Arc<Version>,
    generation: u64,
}

impl View {
    pub(crate) fn new(
        active: Arc<LoggedMemTable>,
        full: Vec<Arc<LoggedMemTable>>,
        version: Arc<Version>,
    ) -> Self {
        Self {
            active,
            full,
            version,
            generation: 0,
        }
    }

    /// Counts the views: a later one has a higher number.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        std::iter::once(&self.active)
            .chain(self.full.iter().rev())
            .map(|logged| &logged.table)
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

    /// Replaces the view by what `change` makes of it.
    pub(crate) fn change(&self, change: impl FnOnce(&View) -> View) {
        let mut current = self
            .current
            .write()
            .expect("no thread panics with the view locked");
        let mut next = change(&current);
        next.generation = current.generation + 1;
        self.generation.store(next.generation, SeqCst);
        *current = Arc::new(next);
    }
}
