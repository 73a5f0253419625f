//! Figures about an open database.

use super::Core;
use crate::devices::maintenance::Devices;
use crate::devices::residency::NEVER;
use crate::log::LogStats;
use crate::lsm::tree::TreeStats;
use crate::options::MemoryStats;
use crate::placement::PlacementStats;
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
    /// What it takes of memory, in parts; `Resources::stats` tells of all databases that share some.
    pub memory: MemoryStats,
    /// The log.
    pub log: LogStats,
    /// The tree.
    pub tree: TreeStats,
    /// What moved to and from storage since the database was opened, by area.
    pub storage: Vec<AreaStats>,
    /// What was deleted and hides something still.
    pub graves: GraveStats,
    /// The devices, in a directory with an extractor.
    pub devices: Option<DeviceStats>,
    /// What lies in the fast tier, if there is one.
    pub placement: Option<PlacementStats>,
}

/// What the cemetery takes, and what it waits for.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct GraveStats {
    /// Deletions of single keys whose versions may be in tables or in memory.
    pub points: u64,
    /// Keys put with a time to live whose end has not come for all who read, or was not noted yet.
    pub expiring: u64,
    /// Deleted ranges, cut where they overlap.
    pub ranges: u64,
    /// Memory that graves take (bytes).
    pub memory_bytes: u64,
    /// Of these the keys alone (bytes).
    pub key_bytes: u64,
    /// Graves of keys, with dates or without, that left memory for files.
    pub spilled: u64,
    /// What these files take (bytes).
    pub spilled_bytes: u64,
    /// Bytes of tables that graves hide and compaction has yet to give back, or may not while a snapshot is held;
    /// about.
    pub pinned_bytes: u64,
    /// Sequence number of the oldest deletion that hides something in tables still.
    pub oldest_unpersisted: Option<u64>,
    /// How long ago that was, in seconds, as far as the open database has seen it.
    pub oldest_unpersisted_seconds: Option<f64>,
    /// Ranges of dead keys that scans jump because another scan came through.
    pub dead_ranges: u64,
}

/// What the upper level takes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DeviceStats {
    /// Devices in the table, on both levels.
    pub devices: usize,
    /// Memory that the indexes take (bytes).
    pub index_bytes: u64,
    /// The log from the first record that a residency needs to its end (bytes).
    pub needed_log_bytes: u64,
    /// Of these, what an opening would read now: the rest is known from saved indexes (bytes, about).
    pub replay_bytes: u64,
    /// The device that needs the oldest record, as its keys begin, escaped.
    pub oldest: Option<String>,
    /// Whether that one is over, and held for a snapshot or a cursor alone.
    pub oldest_is_over: bool,
    /// Devices with departures that still hide something in the tree.
    pub departed: usize,
    /// Records that settled since the database was opened, those of the replayed log included.
    pub settled_records: u64,
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
            held_back_seconds: self.throttle.slept().as_secs_f64(),
            failure: log
                .suspended
                .clone()
                .or_else(|| failure.map(ToString::to_string)),
            memory: MemoryStats::of(&self.account),
            tree: self.tree.stats(),
            placement: self.tier.as_ref().map(|tier| tier.stats()),
            storage: self
                .storage
                .meters()
                .into_iter()
                .map(|(area, meter)| AreaStats { area, meter })
                .collect(),
            graves: self.grave_stats(),
            devices: self
                .devices
                .as_ref()
                .map(|devices| device_stats(devices, log.reserved_lsn)),
            log,
        }
    }
}

fn device_stats(devices: &Devices, end_lsn: u64) -> DeviceStats {
    let table = &devices.upper.table;
    let mut first = true;
    let oldest = table.residencies(|_| std::mem::take(&mut first)).pop();
    let needed = oldest.as_ref().map(|residency| residency.first_lsn());
    let snapshot_lsn = devices.snapshots.lsn();
    let unspared = needed.map_or(0, |lsn| end_lsn.saturating_sub(lsn.max(snapshot_lsn)));
    DeviceStats {
        devices: table.len(),
        index_bytes: table.index_bytes(),
        needed_log_bytes: needed.map_or(0, |lsn| end_lsn.saturating_sub(lsn)),
        replay_bytes: unspared,
        oldest_is_over: oldest
            .as_ref()
            .is_some_and(|residency| residency.gone() != NEVER),
        oldest: oldest.map(|residency| residency.prefix().escape_ascii().to_string()),
        departed: table.departed_from_tree().len(),
        settled_records: table.settled_records(),
    }
}
