//! The disk reserve: room that is kept for what gives room back, and for opening again. How much, and why that is enough, says
//! the table of [`Margins`]; here is what looks at it before it grows:
//! - a *put* is refused with `DiskFull` where it would touch the reserve. It is counted with its size, before it has its
//!   place in the log; a long one, of more than half a ring, twice, until it is in segments: till then an opening may have to
//!   lay all of it out anew;
//! - *settling* waits while the tables of what would settle do not fit: it stays in the upper level. What has switched is
//!   counted until it has settled, after an opening as well;
//! - *flushing* has what puts and settling leave, so that it always comes to its end; *merging*, which needs room for as
//!   long as a merge takes, leaves it that;
//! - *deletions and departures* go on until the log needs the rest for the content of the ring, and then in the rest of the
//!   log's segments, as long as the next opening finds its room. The log makes short segments at first, and where there is
//!   no room for long ones. Where they wear down the reserve, their writes are flushed, so that the log is recycled;
//! - small files that are *replaced* as a whole (`DEVICES`, `GRAVES`, the MANIFEST) have room for another copy of each: the
//!   checkpoint that frees the log is always written;
//! - an *opening* has a file of its own ([`reserve_file`]), which is not counted as free. It is taken again as soon as there is
//!   room for it, and grows with the staging ring. All else is kept for a ring of its whole length from the start.
//!
//! With a limit ([`DiskSizes::limit`]) the bytes of the database's files are counted as they grow, and nothing passes that. On
//! the file system, which others fill as well, tables and the log look before they grow, writers once they have written a
//! part of the reserve, and which writes are refused.

use super::reserve_file;
use super::throttle::FULL_MEMTABLES_MAX;
use crate::directory::{
    DRAFT_NAME, INDEX_SNAPSHOT_DRAFT, INDEX_SNAPSHOT_NAME, RESERVE_NAME, RING_NAME, TABLE_DRAFT,
    is_own, segment_number, spill_number,
};
use crate::error::{Error, Result};
use crate::storage::{Capped, DiskUse, Growth, Margins, Storage, laid_out};
use crate::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use crate::sync::{Arc, Mutex, lock};
use std::path::Path;
use waystation_format::filename::{self, FileKind};

/// What the reserve is measured by (bytes).
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskSizes {
    pub(crate) memtable_bytes: u64,
    pub(crate) ring_bytes: u64,
    /// The length of the log's segments.
    pub(crate) segment_bytes: u64,
    /// What all files may take together; `u64::MAX`: as much as there is.
    pub(crate) limit: u64,
    /// Whether devices settle.
    pub(crate) has_devices: bool,
}

/// Devices settle together up to about this size (bytes in the log), which is in memory meanwhile, and which their
/// tables take beside it. Where there is room, twice as much settles together early.
pub(crate) const TOGETHER_BYTES: u64 = 128 << 20;
/// And no more than so many segments of the log: who makes those small has little room.
const TOGETHER_SEGMENTS: u64 = 2;
/// And up to this part of a limited disk.
const TOGETHER_SHARE: u64 = 16;

/// Where there is no room for a longer segment of the log, and at first, it is this long (bytes): several of the longest
/// blocks with their index.
const SHORT_BYTES: u64 = 256 << 10;
/// Writers look at the file system after this part of a short segment.
const BACKOFF_SHARE: u64 = 4;
/// Tables take more than what they hold: no more than this part of it.
const TABLE_SHARE: u64 = 8;

/// How much is kept.
fn margins(sizes: &DiskSizes) -> Margins {
    let together = if sizes.has_devices {
        together_bytes(sizes)
    } else {
        0
    };
    Margins {
        short: short_segment_bytes(sizes),
        ring: sizes.ring_bytes,
        together,
    }
}

/// The room that is kept free, and the free room.
pub(crate) struct DiskReserve {
    disk: Arc<DiskUse>,
    margins: Margins,
    /// Held by the thread that takes `RESERVE`.
    keeping: Mutex<()>,
    /// What full memtables come to as tables.
    full_bytes: AtomicU64,
    /// What the active memtable can hold.
    active_capacity: AtomicU64,
    /// What has switched and has not settled.
    settling: AtomicU64,
    /// Long writes that are not in segments yet.
    writing: AtomicU64,
    /// How far the log was at the last look at the file system, and is.
    looked_lsn: AtomicU64,
    written_lsn: AtomicU64,
}

/// The size up to which devices settle together.
fn together_bytes(sizes: &DiskSizes) -> u64 {
    let segments = TOGETHER_SEGMENTS * sizes.segment_bytes;
    TOGETHER_BYTES
        .min(sizes.limit / TOGETHER_SHARE)
        .min(segments)
}

/// The length of a segment where there is no room for a long one.
pub(crate) fn short_segment_bytes(sizes: &DiskSizes) -> u64 {
    SHORT_BYTES.min(sizes.segment_bytes)
}

/// The log makes long segments where this much is left beside them: all that is kept, and may be owed.
pub(crate) fn kept_beside_segments(sizes: &DiskSizes) -> u64 {
    let margins = margins(sizes);
    let memtables = (FULL_MEMTABLES_MAX as u64 + 1) * sizes.memtable_bytes;
    margins.for_puts() + margins.reserve() + margins.together + memtables
}

/// The least that a database of `sizes` needs to work with.
fn needed_bytes(sizes: &DiskSizes) -> u64 {
    let margins = margins(sizes);
    let memtables = 2 * sizes.memtable_bytes;
    let segments = 2 * margins.short;
    fixed_bytes(margins) + memtables + segments + SHORT_BYTES
}

/// The least limit that suffices. What settles together grows with the limit, and what is needed with that, though less:
/// from nothing upwards the first limit that has what it needs is the least.
fn least_limit(sizes: &DiskSizes) -> u64 {
    let mut limit = 0;
    loop {
        let needed = needed_bytes(&DiskSizes { limit, ..*sizes });
        if needed <= limit {
            return limit;
        }
        limit = needed;
    }
}

/// What a database takes that holds nothing, with what puts leave.
fn fixed_bytes(margins: Margins) -> u64 {
    margins.ring + margins.reserve() + margins.for_puts() + SHORT_BYTES
}

/// Refuses a limit that is too small for a new database to work with.
pub(crate) fn check_limit(sizes: &DiskSizes) -> Result<()> {
    if sizes.limit >= needed_bytes(sizes) {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "disk_bytes_max is {}; with these sizes of ring, segments and memtables the engine needs {}",
        sizes.limit,
        least_limit(sizes)
    )))
}

/// What the growth of the file `name` has to leave.
fn growth_of(name: &str) -> Growth {
    match name {
        RING_NAME => return Growth::Ring,
        RESERVE_NAME => return Growth::Reserve,
        DRAFT_NAME => return Growth::Fresh,
        INDEX_SNAPSHOT_NAME | INDEX_SNAPSHOT_DRAFT | TABLE_DRAFT => return Growth::Spare,
        _ => {}
    }
    if segment_number(name).is_some() {
        return Growth::Log;
    }
    match filename::parse(name) {
        Some(FileKind::InfoLog) => Growth::Spare,
        Some(FileKind::Table(_) | FileKind::Log(_)) => Growth::Bulk,
        // Never written, whatever its length.
        Some(FileKind::Lock) => Growth::Vital,
        _ if spill_number(name).is_some() => Growth::Bulk,
        Some(_) => Growth::Replaced,
        None if is_own(name) => Growth::Replaced,
        // Another owner's.
        None => Growth::Vital,
    }
}

/// What `bytes` of entries take as tables.
#[inline]
fn as_tables(bytes: u64) -> u64 {
    bytes + bytes / TABLE_SHARE
}

/// A long write, counted until this is dropped.
pub(crate) struct Writing<'r> {
    reserve: &'r DiskReserve,
    bytes: u64,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.reserve.writing.fetch_sub(self.bytes, SeqCst);
    }
}

impl DiskReserve {
    /// The storage for the database in `dir`, limited as `sizes` says, and what there is of room. Nothing is kept
    /// until [`Self::keep`] says so.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        dir: &Path,
        sizes: &DiskSizes,
    ) -> Result<(Arc<dyn Storage>, Self)> {
        let margins = margins(sizes);
        let capped = Capped::new(storage, dir, sizes.limit, margins, growth_of)?;
        let reserve = Self {
            disk: capped.disk(),
            margins,
            keeping: Mutex::new(()),
            full_bytes: AtomicU64::new(0),
            active_capacity: AtomicU64::new(0),
            settling: AtomicU64::new(0),
            writing: AtomicU64::new(0),
            looked_lsn: AtomicU64::new(0),
            written_lsn: AtomicU64::new(0),
        };
        Ok((Arc::new(capped), reserve))
    }

    /// Keeps room for the next opening: in a file, if it fits now; and if not, until it does.
    pub(crate) fn keep(&self, storage: &dyn Storage, dir: &Path) {
        let _one_at_a_time = lock(&self.keeping);
        let copy = self.disk.replaced_bytes();
        let held = self.disk.reserve_bytes();
        if held >= self.for_opening() + copy / 2 {
            self.disk.set_reserve(held);
            return;
        }
        let target_bytes = self.target_bytes();
        self.disk.set_reserve(target_bytes);
        // What cannot be looked at, the file's creation will tell.
        let _ = self.disk.look();
        if self.disk.all_free_bytes() + held < target_bytes + copy {
            return;
        }
        if let Err(error) = reserve_file::take(storage, dir, target_bytes) {
            log::debug!("nothing can be kept for the next opening yet: {error}");
        }
        let _ = self.disk.look();
    }

    /// Gives back the part of the file that the next opening does not need, now that the ring is as short as it is.
    pub(crate) fn shorten(&self, storage: &dyn Storage, dir: &Path) -> Result<()> {
        let _one_at_a_time = lock(&self.keeping);
        let needed_bytes = self.target_bytes();
        if self.disk.reserve_bytes() <= needed_bytes {
            return Ok(());
        }
        self.disk.set_reserve(needed_bytes);
        reserve_file::shorten(storage, dir, needed_bytes)
    }

    /// How long the file is when it is made: it has room for two copies of what is replaced.
    fn target_bytes(&self) -> u64 {
        self.for_opening() + self.disk.replaced_bytes()
    }

    /// What an opening needs, and lives may lose before it.
    fn for_opening(&self) -> u64 {
        self.margins.of_ring(self.disk.ring_bytes()).reserve()
    }

    /// Notes how far the log is, about: every writer reads this, so it changes seldom. Under the front's lock.
    #[inline]
    pub(crate) fn note_written(&self, lsn: u64) {
        if lsn >= self.written_lsn.load(Relaxed) + self.margins.short / BACKOFF_SHARE {
            self.written_lsn.store(lsn, Relaxed);
        }
    }

    /// Looks at the file system if so much was written since the last look that the reserve may be touched.
    #[inline]
    pub(crate) fn look_if_due(&self) -> Result<()> {
        if self.written_lsn.load(Relaxed) > self.looked_lsn.load(Relaxed) {
            self.look()?;
        }
        Ok(())
    }

    /// Looks how much is free on the file system.
    pub(crate) fn look(&self) -> Result<()> {
        let written = self.written_lsn.load(Relaxed);
        self.looked_lsn.store(written, Relaxed);
        self.disk.look()
    }

    /// Notes what full memtables hold, and what the active one can.
    pub(crate) fn note_memtables(&self, full: u64, active: u64) {
        self.full_bytes.store(full, Relaxed);
        self.active_capacity.store(active, Relaxed);
        self.note_owed();
    }

    fn note_owed(&self) {
        let active = self.active_capacity.load(Relaxed);
        self.disk.set_owed(self.owed(active));
    }

    /// What obligations take: tables of memtables, of which the active one holds `active` bytes, and of what settles; and
    /// long writes.
    #[inline]
    fn owed(&self, active: u64) -> u64 {
        self.owed_as_tables(active) + self.writing.load(Relaxed)
    }

    #[inline]
    fn owed_as_tables(&self, active: u64) -> u64 {
        let memtables = self.full_bytes.load(Relaxed) + active;
        as_tables(memtables) + self.settling.load(Relaxed)
    }

    /// What puts leave.
    #[inline]
    fn kept_from_puts(&self, active: u64) -> u64 {
        self.margins.for_puts() + self.disk.replaced_bytes() + self.owed(active)
    }

    /// Refuses a write of `bytes` that would touch the reserve, while the active memtable holds `active` bytes.
    #[inline]
    pub(crate) fn check(&self, active: u64, bytes: u64) -> Result<()> {
        if self.check_as_looked(active, bytes).is_ok() {
            return Ok(());
        }
        self.look()?;
        self.check_ever(bytes, bytes)?;
        self.check_as_looked(active, bytes)
    }

    /// As [`Self::check`], by what was free at the last look: without a call of the file system, so under a lock as well.
    #[inline]
    pub(crate) fn check_as_looked(&self, active: u64, bytes: u64) -> Result<()> {
        self.check_free(self.kept_from_puts(active), bytes)
    }

    /// Refuses to take `bytes` that do not leave `kept_bytes`.
    #[inline]
    fn check_free(&self, kept_bytes: u64, bytes: u64) -> Result<()> {
        let free_bytes = self.disk.free_bytes();
        if free_bytes >= kept_bytes.saturating_add(bytes) {
            return Ok(());
        }
        Err(Error::DiskFull {
            free_bytes,
            kept_bytes,
        })
    }

    /// Refuses a write of `bytes` that would not fit into the limit if nothing else were there, as it takes `taken_bytes`.
    fn check_ever(&self, bytes: u64, taken_bytes: u64) -> Result<()> {
        let limit = self.disk.limit();
        let most = limit.saturating_sub(fixed_bytes(self.margins));
        if taken_bytes <= most {
            return Ok(());
        }
        // Shorter ones take less for each byte: such a one is accepted for sure.
        let most = u128::from(most) * u128::from(bytes) / u128::from(taken_bytes);
        Err(Error::InvalidArgument(format!(
            "the write takes {bytes} bytes; with a disk_bytes_max of {limit} at most {most} are accepted: write less at \
             once, or raise the limit"
        )))
    }

    /// Refuses a departure, or what else gives room back and takes `bytes` of the log, where only the log's own part is left,
    /// and in the segments that it has, `spare_bytes`, there is no room for it that the next opening does not need.
    pub(crate) fn check_leaving(
        &self,
        active: u64,
        bytes: u64,
        spare_bytes: impl Fn() -> u64,
    ) -> Result<()> {
        self.look()?;
        let copy = self.disk.replaced_bytes();
        // Long writes are counted with the reserve that puts leave, and may have taken it already.
        let kept = self.margins.for_log() + copy + self.owed_as_tables(active);
        self.check_free(kept, bytes).or_else(|full| {
            let spare = spare_bytes().saturating_sub(laid_out(bytes));
            let for_opening = self.disk.all_free_bytes() + self.disk.reserve_bytes() + spare;
            if spare > 0 && for_opening >= self.margins.opening_beside_ring() + copy / 2 {
                Ok(())
            } else {
                Err(full)
            }
        })
    }

    /// Whether deletions, and lives that were killed, have taken from the reserve for them.
    pub(crate) fn is_worn(&self, active: u64) -> bool {
        let copy = self.disk.replaced_bytes();
        self.disk.free_bytes() < self.margins.for_settling() + copy + self.owed_as_tables(active)
    }

    /// Whether only the reserve is left.
    pub(crate) fn is_short(&self, active: u64) -> bool {
        self.disk.free_bytes() < self.kept_from_puts(active)
    }

    /// Whether more than the reserve is left when `bytes` more are written.
    pub(crate) fn is_left(&self, active: u64, bytes: u64) -> bool {
        self.disk.free_bytes() > self.kept_from_puts(active).saturating_add(bytes)
    }

    /// Counts a long write of `bytes` until the guard is dropped; refuses it as [`Self::check`] does. It takes them
    /// twice until it is in segments, and `table_bytes` in a memtable.
    pub(crate) fn begin_long(
        &self,
        active: u64,
        bytes: u64,
        table_bytes: u64,
    ) -> Result<Writing<'_>> {
        self.check_ever(bytes, 2 * bytes + table_bytes)?;
        let writing = self.count_long(bytes);
        self.check(active, table_bytes)?;
        Ok(writing)
    }

    /// Counts a long write of `bytes`, which is not refused, until the guard is dropped.
    pub(crate) fn count_long(&self, bytes: u64) -> Writing<'_> {
        let bytes = 2 * bytes;
        self.writing.fetch_add(bytes, SeqCst);
        Writing {
            reserve: self,
            bytes,
        }
    }

    /// How much may settle now (bytes in the log).
    pub(crate) fn left_for_settling(&self, active: u64) -> u64 {
        let kept = self.margins.for_settling() + self.disk.replaced_bytes() + self.owed(active);
        let left = self.disk.free_bytes().saturating_sub(kept);
        left - left / TABLE_SHARE
    }

    /// The size up to which devices settle together.
    pub(crate) fn together_bytes(&self) -> u64 {
        self.margins.together
    }

    /// What was written since it was flushed is much when it comes to this: it keeps a segment of the log from being recycled.
    pub(crate) fn short_segment_bytes(&self) -> u64 {
        self.margins.short
    }

    /// Counts `bytes` that are to settle; refuses them if they have no room as tables. Nothing else is pending.
    pub(crate) fn begin_settling(&self, active: u64, bytes: u64) -> Result<()> {
        self.look()?;
        let kept = self.margins.for_settling() + self.disk.replaced_bytes() + self.owed(active);
        self.check_free(kept, as_tables(bytes))?;
        self.note_settling(bytes);
        Ok(())
    }

    /// Notes what has switched and has not settled (bytes in the log).
    pub(crate) fn note_settling(&self, bytes: u64) {
        self.settling.store(as_tables(bytes), SeqCst);
        self.note_owed();
    }
}
