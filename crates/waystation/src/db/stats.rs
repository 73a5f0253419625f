//! Figures about an open database.

use super::Core;
use crate::log::LogStats;
use crate::lsm::tree::TreeStats;
use crate::storage::{Area, AreaMeter};
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::lock;

/// What a database holds, does and waits for.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Stats {
    /// Sequence number of the last visible write.
    pub visible_sequence: u64,
    /// Bytes reserved in the active memtable.
    pub memtable_bytes: usize,
    /// Full memtables that wait for their flush.
    pub full_memtables: usize,
    /// Snapshots held.
    pub snapshots: usize,
    /// Age of the oldest snapshot held, in seconds.
    pub oldest_snapshot_seconds: Option<f64>,
    /// How long writers were held back to let the background keep up, in seconds, all together.
    pub held_back_seconds: f64,
    /// Why writes are or will be suspended, if they are.
    pub failure: Option<String>,
    /// The log.
    pub log: LogStats,
    /// The tree.
    pub tree: TreeStats,
    /// What moved to and from storage since the database was opened, by area.
    pub storage: Vec<AreaStats>,
}

/// What moved to and from one area of storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct AreaStats {
    /// The area.
    pub area: Area,
    /// Its meter.
    #[serde(flatten)]
    pub meter: AreaMeter,
}

impl Core {
    pub(super) fn stats(&self) -> Stats {
        let (snapshots, oldest) = self.snapshots.summary();
        let now = self.storage.now();
        let log = self.log.stats();
        let background = lock(&self.background);
        let failure = background
            .flush_failure
            .as_ref()
            .or(background.compaction_failure.as_ref());
        Stats {
            visible_sequence: self.log.visible_sequence(),
            memtable_bytes: self.active_reserved.load(Relaxed),
            full_memtables: self.full_memtables.load(SeqCst),
            snapshots,
            oldest_snapshot_seconds: oldest.map(|since| now.saturating_sub(since).as_secs_f64()),
            held_back_seconds: self.pace.slept().as_secs_f64(),
            failure: log
                .suspended
                .clone()
                .or_else(|| failure.map(ToString::to_string)),
            tree: self.tree.stats(),
            storage: self
                .storage
                .meters()
                .into_iter()
                .map(|(area, meter)| AreaStats { area, meter })
                .collect(),
            log,
        }
    }
}
