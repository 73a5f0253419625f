//! Room on the disk: some is kept for what gives room back.
//!
//! Departures, settling and hand-offs need a little space before they free much: a record in the log, a checkpoint,
//! tables. So writers are refused while there is still that much, the *headroom*; deletions and departures go on.
//! With [`Options::disk_bytes_max`] the bytes of the database's files are counted as they grow and the headroom is kept
//! below that limit, which nothing passes. In a directory with devices the headroom is kept on the file system as well:
//! the keeper looks there when it looks round, and writers once they have written a part of the headroom since.

use super::Core;
use super::options::Options;
use crate::device::gather::GATHER_BYTES;
use crate::error::{Error, Result};
use crate::storage::{Capped, DiskUse, Storage};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::path::Path;

/// Devices settle together up to about this size (bytes in the log), which is in memory meanwhile, and which their
/// tables take beside it. Half of what can be in memory: where there is room, twice as much settles together early.
const TOGETHER_BYTES: u64 = GATHER_BYTES as u64 / 2;
/// And no more than so many segments of the log: who makes those small has little room.
const TOGETHER_SEGMENTS: u64 = 2;
/// And up to this part of a limited disk.
const TOGETHER_SHARE: u64 = 16;

/// Writers look at the file system after this part of the headroom.
const LOOK_SHARE: u64 = 16;

/// What is kept free, and what is.
pub(super) struct Room {
    disk: Option<Arc<DiskUse>>,
    kept_bytes: u64,
    /// What the file system had free when somebody last looked.
    free_bytes: AtomicU64,
    /// How far the log was then, and is.
    looked_lsn: AtomicU64,
    written_lsn: AtomicU64,
}

/// How many bytes `options` keep free.
pub(super) fn kept_bytes(options: &Options) -> u64 {
    let segments = 2 * options.log_segment_bytes as u64;
    segments + 2 * options.memtable_bytes as u64 + together_bytes(options)
}

/// The size up to which devices settle together.
pub(super) fn together_bytes(options: &Options) -> u64 {
    let limit = options.disk_bytes_max.unwrap_or(u64::MAX);
    let segments = TOGETHER_SEGMENTS * options.log_segment_bytes as u64;
    TOGETHER_BYTES.min(limit / TOGETHER_SHARE).min(segments)
}

impl Room {
    /// The storage for the database in `dir`, limited if the options say so, and what there is of room.
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        dir: &Path,
        options: &Options,
    ) -> Result<(Arc<dyn Storage>, Self)> {
        let mut room = Self {
            disk: None,
            kept_bytes: kept_bytes(options),
            free_bytes: AtomicU64::new(u64::MAX),
            looked_lsn: AtomicU64::new(0),
            written_lsn: AtomicU64::new(0),
        };
        let Some(limit) = options.disk_bytes_max else {
            return Ok((storage, room));
        };
        let capped = Capped::new(storage, dir, limit)?;
        room.disk = Some(capped.disk());
        Ok((Arc::new(capped), room))
    }

    fn free_bytes(&self) -> u64 {
        let disk = self.disk.as_ref();
        let below_limit = disk.map_or(u64::MAX, |disk| disk.limit().saturating_sub(disk.used()));
        below_limit.min(self.free_bytes.load(Relaxed))
    }

    /// Notes how far the log is, about: every writer reads this, so it changes seldom. Under the front's lock.
    #[inline]
    pub(super) fn note_written(&self, lsn: u64) {
        if lsn >= self.written_lsn.load(Relaxed) + self.kept_bytes / LOOK_SHARE {
            self.written_lsn.store(lsn, Relaxed);
        }
    }

    /// Whether so much was written since somebody looked at the file system that the headroom may be touched.
    #[inline]
    pub(super) fn is_look_due(&self) -> bool {
        self.written_lsn.load(Relaxed) > self.looked_lsn.load(Relaxed)
    }

    /// Whether more than the headroom is left when `bytes` more are written.
    pub(super) fn is_left(&self, bytes: u64) -> bool {
        self.free_bytes() > self.kept_bytes.saturating_add(bytes)
    }

    /// Refuses to write anything but deletions while only the headroom is left.
    #[inline]
    pub(super) fn check(&self, only_deletes: impl FnOnce() -> bool) -> Result<()> {
        let free_bytes = self.free_bytes();
        if free_bytes >= self.kept_bytes || only_deletes() {
            return Ok(());
        }
        Err(Error::DiskFull {
            free_bytes,
            kept_bytes: self.kept_bytes,
        })
    }
}

impl Core {
    /// Looks how much is free on the file system.
    pub(super) fn look_for_room(&self) -> Result<()> {
        let written = self.room.written_lsn.load(Relaxed);
        self.room.looked_lsn.store(written, Relaxed);
        let free_bytes = self.storage.free_bytes(&self.dir)?;
        self.room.free_bytes.store(free_bytes, Relaxed);
        Ok(())
    }
}
