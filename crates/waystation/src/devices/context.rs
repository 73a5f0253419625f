//! What the maintenance of devices is given: the device table with its log, storage and settings; and of the engine above it the
//! calls that the traits name. So a part of the maintenance says in its bounds what it may do.

use super::checkpoint::Directory;
use super::clock::ResidencyClock;
use super::contended::ContendedLock;
use super::settle::EARLY;
use super::upper::Upper;
use crate::background::{Account, DiskReserve};
use crate::error::{Error, Result};
use crate::log::{Logged, NewRecord, Rejection};
use crate::lsm::tree::Tree;
use crate::options::DeviceOptions;
use crate::storage::{IoPriority, Storage};
use crate::sync::Arc;
use std::path::Path;
use std::time::Duration;

/// What every part of the maintenance is given.
pub(crate) struct Context<'a, E> {
    pub(crate) storage: &'a dyn Storage,
    /// The directory of the database.
    pub(crate) dir: &'a Path,
    /// The device table and the log.
    pub(crate) upper: &'a Arc<Upper>,
    pub(crate) settings: &'a DeviceOptions,
    pub(crate) directory: &'a Directory,
    pub(crate) clock: &'a ResidencyClock,
    pub(crate) reserve: &'a DiskReserve,
    /// What the database takes of memory that it may share.
    pub(crate) account: &'a Account,
    /// The engine around the devices.
    pub(crate) engine: &'a E,
}

/// Committing an event of a device, and what follows from it.
pub(crate) trait Events {
    /// Commits `record`: `admit` runs in the order of the log with a position at or before the record's and its first
    /// sequence number, `apply` before the record is visible.
    fn commit<T, R>(
        &self,
        record: &NewRecord<'_>,
        admit: impl FnOnce(u64, u64) -> Result<T, Rejection>,
        apply: impl FnOnce(T, Logged) -> R,
    ) -> Result<(Logged, R), Rejection>;

    /// Whether only the disk reserve is left of the disk.
    fn is_short_of_room(&self) -> bool;

    /// Refuses what gives room back, and takes `bytes` of the log, where not even that is left.
    fn check_leaving(&self, bytes: u64) -> Result<()>;

    /// Whether a record of so many bytes may go into the ring chunk by chunk.
    fn may_be_long(&self, log_bytes: usize) -> bool;

    /// Something happened that may leave the maintenance something to do.
    fn keep_soon(&self);

    /// Whether the background threads are to end.
    fn is_stopping(&self) -> bool;
}

/// The memtables, beside the indexes of devices.
pub(crate) trait Memtables {
    /// Bytes reserved in the memtable that takes writes.
    fn active_bytes(&self) -> u64;

    /// Whether full memtables wait for their flush.
    fn has_full_memtables(&self) -> bool;

    /// Makes what was written so far a full memtable, unless nothing was.
    fn rotate_now(&self);

    /// Waits until no full memtable is left, or a flush fails.
    fn wait_flushed(&self) -> Result<()>;

    /// An empty memtable needs nothing of the log: it begins here.
    fn move_empty_memtable(&self);

    /// Where in the log (position and sequence number) the oldest memtable begins.
    fn memtables_start(&self) -> (u64, u64);

    /// Whether a full memtable begins before the position `lsn`.
    fn has_full_before(&self, lsn: u64) -> bool;

    /// Whether a memtable holds a key that begins with `prefix`.
    fn holds_prefix(&self, prefix: &[u8]) -> bool;

    /// The deletion of a range at `sequence`, which has its place in the log at `lsn` or later. Under the front's lock.
    fn add_range_grave(&self, start: &[u8], end: Option<&[u8]>, lsn: u64, sequence: u64);

    /// Whether a grave that readers see now hides something with `prefix` from `sequence` on.
    fn hides_in_prefix(&self, prefix: &[u8], sequence: u64) -> bool;

    /// Counts the read states that readers had.
    fn generation(&self) -> u64;
}

/// The tree below, and who reads it.
pub(crate) trait Tables {
    /// The tree.
    fn tree(&self) -> &Tree;

    /// No reader reads at a lower sequence number.
    fn oldest_snapshot(&self) -> u64;

    /// Shows the tree's newest version to readers.
    fn adopt_version(&self);

    /// Has compactions look again for something to do.
    fn look_again(&self);

    /// Deletions of devices that settle, by key, and have switched at `switch` or before. They are durable on return, and
    /// readers see them.
    fn add_settled_graves(&self, graves: &[(Vec<u8>, u64)], switch: u64) -> Result<()>;

    /// Indexes were given up that graves may have been kept for.
    fn look_for_needs_again(&self);
}

/// All of it.
pub(crate) trait Engine: Events + Memtables + Tables {}

impl<E: Events + Memtables + Tables> Engine for E {}

impl<E> Context<'_, E> {
    /// The reading of the residency clock.
    pub(crate) fn now(&self) -> Duration {
        self.clock.read(self.storage.now())
    }

    /// What the keys of `device` begin with.
    pub(crate) fn prefix_of(&self, device: &[u8]) -> Result<Vec<u8>> {
        let extractor = self.upper.table.extractor();
        extractor.prefix_of(device).ok_or_else(|| {
            let name = device.escape_ascii();
            Error::InvalidArgument(format!("no device can be called {name} under {extractor}"))
        })
    }

    /// Whether the oldest residencies are to settle before their time.
    pub(crate) fn is_early(&self) -> bool {
        self.account.is_to_settle() || self.fill() > EARLY
    }

    /// How much of the upper level's budgets is used: the larger share.
    pub(crate) fn fill(&self) -> f64 {
        let table = &self.upper.table;
        let index = table.index_bytes() as f64 / self.settings.index_bytes.max(1) as f64;
        let start = table.oldest_need().map(|(lsn, _)| lsn);
        let end = self.upper.log.reserved_lsn();
        let live = start.map_or(0, |lsn| end.saturating_sub(lsn));
        index.max(live as f64 / self.settings.upper_budget().max(1) as f64)
    }
}

impl<E: Events> Context<'_, E> {
    /// The priority at which to go on with what was begun at `priority` by the holder of `held`.
    pub(crate) fn priority_by_now<T>(
        &self,
        priority: IoPriority,
        held: &ContendedLock<T>,
    ) -> IoPriority {
        if held.is_contended() || self.engine.is_stopping() {
            IoPriority::High
        } else {
            priority
        }
    }

    /// The priority of what the maintenance does at low priority `until` then.
    pub(crate) fn low_priority_until(&self, until: Duration) -> IoPriority {
        if self.engine.is_stopping() || self.storage.now() > until {
            IoPriority::High
        } else {
            IoPriority::Low
        }
    }
}
