//! Room on the disk: some is kept for what gives room back, and for opening again.
//!
//! ```text
//!  free  |<-- puts -->|<- settling ->|<- flushing ->|<- deletions, ->|<- the log's ->|<- files that are ->|
//!        |            |              |   merging    |   departures   |   last part   |   replaced         |
//!        ^            ^              ^              ^                ^               ^                    0
//!     a put has    for puts     for settling    for tables     for leaving       for the log
//!     room here                                 (see `Capped`)                   (see `Capped`)
//! ```
//!
//! From left to right, each stops where the room of the next begins, and none takes what the next one needs:
//! - a *put* is refused with `DiskFull` if it would leave less than what settles together, what full and filling memtables
//!   come to as tables, and the log that is still in the ring. It is counted with its size, before it has its place in the
//!   log; one that takes more than half a ring is counted until it is written, too;
//! - *settling* waits while the tables of what would settle do not fit: it stays in the upper level. What has switched is
//!   counted until it has settled, after an opening as well;
//! - *flushing* has what puts and settling leave, so that it always comes to its end; *merging*, which needs room for as
//!   long as a merge takes, leaves it that;
//! - *deletions and departures* go on until the log needs the rest for what is in the ring. The log makes short segments
//!   where there is no room for long ones;
//! - small files that are *replaced* as a whole (`DEVICES`, `GRAVES`, the MANIFEST) have room for another copy of each: the
//!   checkpoint that frees the log is always written;
//! - an *opening* has a file of its own ([`reserve`]), which is not counted as free.
//!
//! With [`Options::disk_bytes_max`] the bytes of the database's files are counted as they grow, and nothing passes that. On
//! the file system, which others fill as well, tables and the log look before they grow, writers once they have written a
//! part of what is kept, and whoever is refused.

use super::Core;
use super::changes::Changes;
use super::options::Options;
use super::pace::FULL_MEMTABLES_MAX;
use super::reserve;
use crate::device::gather::GATHER_BYTES;
use crate::directory::{
    DRAFT_NAME, IMAGE_DRAFT, IMAGE_NAME, RESERVE_NAME, RING_NAME, is_own, segment_number,
    vault_number,
};
use crate::error::{Error, Result};
use crate::storage::{Capped, DiskUse, Growth, Storage};
use crate::sync::Arc;
use crate::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::path::Path;
use waystation_format::filename::{self, FileKind};

/// Devices settle together up to about this size (bytes in the log), which is in memory meanwhile, and which their
/// tables take beside it. Half of what can be in memory: where there is room, twice as much settles together early.
const TOGETHER_BYTES: u64 = GATHER_BYTES as u64 / 2;
/// And no more than so many segments of the log: who makes those small has little room.
const TOGETHER_SEGMENTS: u64 = 2;
/// And up to this part of a limited disk.
const TOGETHER_SHARE: u64 = 16;

/// Where there is no room for a segment of the log it is this part of one,
const SHORT_SHARE: u64 = 16;
/// and this long at least (bytes): several of the longest blocks with their index.
const SHORT_MIN: u64 = 256 << 10;
/// So many short segments are kept for deletions and departures, and for the one that each opening begins.
const SHORT_KEPT: u64 = 2;
/// An opening begins a segment, and has room for it although the one before it was killed, which wrote a part of its own.
const OPENING_SEGMENTS: u64 = 2;
/// Writers look at the file system after this part of a short segment.
const LOOK_SHARE: u64 = 4;
/// What is in the ring takes more in a segment, laid out anew: no more than this part of it.
const LAID_OUT_SHARE: u64 = 16;
/// Tables take more than what they hold: no more than this part of it.
const TABLE_SHARE: u64 = 8;

/// How much is kept, by the options alone (bytes).
#[derive(Debug, Clone, Copy)]
struct Margins {
    /// A short segment.
    short: u64,
    ring: u64,
    together: u64,
}

impl Margins {
    fn new(options: &Options) -> Self {
        Self {
            short: short_segment_bytes(options),
            ring: options.ring_bytes as u64,
            together: options
                .devices
                .as_ref()
                .map_or(0, |_| together_bytes(options)),
        }
    }

    /// For the log, once deletions and departures are refused.
    fn for_log(self) -> u64 {
        self.short + self.ring
    }

    /// For settling: what is behind it.
    fn for_settling(self) -> u64 {
        self.for_log() + SHORT_KEPT * self.short + self.ring
    }

    /// For puts: the log may make another segment ready for those that were let in.
    fn for_puts(self) -> u64 {
        self.for_settling() + self.together + self.short
    }

    /// What an opening takes besides another copy of what is replaced. If it is killed, what the ring held is in its
    /// segment, of which the next one keeps that part and then makes a segment of its own.
    fn for_opening(self) -> u64 {
        self.ring + self.ring / LAID_OUT_SHARE + OPENING_SEGMENTS * self.short
    }
}

/// What is kept free, and what is.
pub(super) struct Room {
    disk: Arc<DiskUse>,
    margins: Margins,
    /// The length of the file `RESERVE`.
    reserved: AtomicU64,
    /// What full memtables come to as tables.
    full_bytes: AtomicU64,
    /// What the active memtable can hold.
    active_capacity: AtomicU64,
    /// What has switched and has not settled.
    settling: AtomicU64,
    /// Long writes that are not in segments yet.
    writing: AtomicU64,
    /// How far the log was when somebody looked at the file system, and is.
    looked_lsn: AtomicU64,
    written_lsn: AtomicU64,
}

/// The size up to which devices settle together.
pub(super) fn together_bytes(options: &Options) -> u64 {
    let limit = options.disk_bytes_max.unwrap_or(u64::MAX);
    let segments = TOGETHER_SEGMENTS * options.log_segment_bytes as u64;
    TOGETHER_BYTES.min(limit / TOGETHER_SHARE).min(segments)
}

/// The length of a segment where there is no room for a long one.
pub(super) fn short_segment_bytes(options: &Options) -> u64 {
    let whole = options.log_segment_bytes as u64;
    let units = SHORT_MIN.max(whole / SHORT_SHARE) / SHORT_MIN;
    (units * SHORT_MIN).min(whole)
}

/// The log makes long segments where this much is left beside them: all that is kept, and may be owed.
pub(super) fn kept_beside_segments(options: &Options) -> u64 {
    let margins = Margins::new(options);
    let memtables = (FULL_MEMTABLES_MAX as u64 + 1) * options.memtable_bytes as u64;
    margins.for_puts() + margins.for_opening() + margins.together + memtables
}

/// The least that a database with `options` needs to work with.
fn needed_bytes(options: &Options) -> u64 {
    let margins = Margins::new(options);
    let memtables = 2 * options.memtable_bytes as u64;
    let segments = 2 * margins.short;
    let opening = margins.for_opening() + SHORT_MIN;
    margins.ring + opening + margins.for_puts() + memtables + segments + SHORT_MIN
}

/// Refuses a limit that is too small for a new database to work with.
pub(super) fn check_limit(options: &Options) -> Result<()> {
    let needed = needed_bytes(options);
    match options.disk_bytes_max.filter(|limit| *limit < needed) {
        None => Ok(()),
        Some(limit) => Err(Error::InvalidArgument(format!(
            "disk_bytes_max is {limit}; with these sizes of ring, segments and memtables the engine needs {needed}"
        ))),
    }
}

/// What the growth of the file `name` has to leave.
fn growth_of(name: &str) -> Growth {
    match name {
        RING_NAME | RESERVE_NAME | DRAFT_NAME => return Growth::Vital,
        IMAGE_NAME | IMAGE_DRAFT => return Growth::Bulk,
        _ => {}
    }
    if segment_number(name).is_some() {
        return Growth::Log;
    }
    match filename::parse(name) {
        Some(FileKind::Table(_) | FileKind::Log(_) | FileKind::InfoLog) => Growth::Bulk,
        // Never written, whatever its length.
        Some(FileKind::Lock) => Growth::Vital,
        _ if vault_number(name).is_some() => Growth::Bulk,
        Some(_) => Growth::Replaced,
        None if is_own(name) => Growth::Replaced,
        // Somebody else's.
        None => Growth::Vital,
    }
}

/// A long write, counted until this is dropped.
pub(super) struct Writing<'r> {
    room: &'r Room,
    bytes: u64,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.room.writing.fetch_sub(self.bytes, SeqCst);
    }
}

impl Room {
    /// The storage for the database in `dir`, limited as the options say, and what there is of room. Nothing is kept
    /// until [`Self::keep`] says so.
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        dir: &Path,
        options: &Options,
    ) -> Result<(Arc<dyn Storage>, Self)> {
        let margins = Margins::new(options);
        let limit = options.disk_bytes_max.unwrap_or(u64::MAX);
        let capped = Capped::new(storage, dir, limit, margins.for_log(), growth_of)?;
        let room = Self {
            disk: capped.disk(),
            margins,
            reserved: AtomicU64::new(0),
            full_bytes: AtomicU64::new(0),
            active_capacity: AtomicU64::new(0),
            settling: AtomicU64::new(0),
            writing: AtomicU64::new(0),
            looked_lsn: AtomicU64::new(0),
            written_lsn: AtomicU64::new(0),
        };
        Ok((Arc::new(capped), room))
    }

    /// Keeps room for the next opening: in a file, if it fits now; and if not, until it does. For one thread at a time.
    pub(super) fn keep(&self, storage: &dyn Storage, dir: &Path) {
        let copy = self.disk.replaced_bytes();
        let held = self.reserved.load(Relaxed);
        // It has room for two copies when it is made.
        if held >= self.margins.for_opening() + copy / 2 {
            return;
        }
        let wanted = self.margins.for_opening() + copy;
        let free = storage.free_bytes(dir).unwrap_or(0) + self.disk.missing_bytes();
        self.disk.set_missing(wanted.saturating_sub(held));
        if free + held < wanted + copy {
            return;
        }
        self.disk.set_missing(wanted);
        let given_back = reserve::give_back(storage, dir);
        self.reserved.store(0, Relaxed);
        match given_back.and_then(|()| reserve::take(storage, dir, wanted)) {
            Ok(()) => {
                self.reserved.store(wanted, Relaxed);
                self.disk.set_missing(0);
            }
            Err(error) => log::debug!("nothing can be kept for the next opening yet: {error}"),
        }
    }

    /// Notes how far the log is, about: every writer reads this, so it changes seldom. Under the front's lock.
    #[inline]
    pub(super) fn note_written(&self, lsn: u64) {
        if lsn >= self.written_lsn.load(Relaxed) + self.margins.short / LOOK_SHARE {
            self.written_lsn.store(lsn, Relaxed);
        }
    }

    /// Whether so much was written since somebody looked at the file system that what is kept may be touched.
    #[inline]
    pub(super) fn is_look_due(&self) -> bool {
        self.written_lsn.load(Relaxed) > self.looked_lsn.load(Relaxed)
    }

    /// Looks how much is free on the file system.
    pub(super) fn look(&self) -> Result<()> {
        let written = self.written_lsn.load(Relaxed);
        self.looked_lsn.store(written, Relaxed);
        self.disk.look()
    }

    /// Notes what full memtables hold, and what the active one can.
    pub(super) fn note_memtables(&self, full: u64, active: u64) {
        self.full_bytes.store(full, Relaxed);
        self.active_capacity.store(active, Relaxed);
        self.note_owed();
    }

    fn note_owed(&self) {
        let active = self.active_capacity.load(Relaxed);
        self.disk.set_owed(self.owed(active));
    }

    /// What obligations take: memtables of which the active one holds `active` bytes, and long writes.
    #[inline]
    fn owed(&self, active: u64) -> u64 {
        let memtables = self.full_bytes.load(Relaxed) + active;
        memtables + self.settling.load(Relaxed) + self.writing.load(Relaxed)
    }

    /// What puts leave.
    #[inline]
    fn kept_from_puts(&self, active: u64) -> u64 {
        self.margins.for_puts() + self.disk.replaced_bytes() + self.owed(active)
    }

    /// Refuses a write of `bytes` that would touch what is kept, while the active memtable holds `active` bytes.
    #[inline]
    pub(super) fn check(&self, active: u64, bytes: u64) -> Result<()> {
        if self.check_as_looked(active, bytes).is_ok() {
            return Ok(());
        }
        self.look()?;
        self.check_ever(bytes)?;
        self.check_as_looked(active, bytes)
    }

    /// As [`Self::check`], by what was free at the last look: without a call of the file system, so under a lock as well.
    #[inline]
    fn check_as_looked(&self, active: u64, bytes: u64) -> Result<()> {
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

    /// Refuses a write of `bytes` that would not fit into the limit if nothing else were there.
    fn check_ever(&self, bytes: u64) -> Result<()> {
        let limit = self.disk.limit();
        let margins = self.margins;
        let fixed = margins.ring + margins.for_opening() + margins.for_puts() + SHORT_MIN;
        let most = limit.saturating_sub(fixed);
        if bytes <= most {
            return Ok(());
        }
        Err(Error::InvalidArgument(format!(
            "the write takes {bytes} bytes; with a disk_bytes_max of {limit} at most {most} are accepted: write less at \
             once, or raise the limit"
        )))
    }

    /// Refuses a departure, or what else gives room back, where only the log's own part is left.
    fn check_leaving(&self) -> Result<()> {
        self.look()?;
        self.check_free(self.margins.for_log() + self.disk.replaced_bytes(), 0)
    }

    /// Whether only what is kept is left.
    pub(super) fn is_short(&self, active: u64) -> bool {
        self.disk.free_bytes() < self.kept_from_puts(active)
    }

    /// Whether more than what is kept is left when `bytes` more are written.
    pub(super) fn is_left(&self, active: u64, bytes: u64) -> bool {
        self.disk.free_bytes() > self.kept_from_puts(active).saturating_add(bytes)
    }

    /// Counts a long write of `bytes` until what is returned is dropped; refuses it as [`Self::check`] does. It will take
    /// `table_bytes` in a memtable.
    pub(super) fn begin_long(
        &self,
        active: u64,
        bytes: u64,
        table_bytes: u64,
    ) -> Result<Writing<'_>> {
        self.check_ever(bytes + table_bytes)?;
        self.writing.fetch_add(bytes, SeqCst);
        let writing = Writing { room: self, bytes };
        self.check(active, table_bytes)?;
        Ok(writing)
    }

    /// How much may settle now (bytes in the log).
    pub(super) fn left_for_settling(&self, active: u64) -> u64 {
        let kept = self.margins.for_settling() + self.disk.replaced_bytes() + self.owed(active);
        let left = self.disk.free_bytes().saturating_sub(kept);
        left - left / TABLE_SHARE
    }

    /// Counts `bytes` that are to settle; refuses them if they have no room as tables. Nothing else is pending.
    pub(super) fn begin_settling(&self, active: u64, bytes: u64) -> Result<()> {
        self.look()?;
        let kept = self.margins.for_settling() + self.disk.replaced_bytes() + self.owed(active);
        self.check_free(kept, bytes + bytes / TABLE_SHARE)?;
        self.note_settling(bytes);
        Ok(())
    }

    /// Notes what has switched and has not settled (bytes in the log).
    pub(super) fn note_settling(&self, bytes: u64) {
        self.settling.store(bytes + bytes / TABLE_SHARE, SeqCst);
        self.note_owed();
    }
}

/// Whether `changes` give room back, and take none.
pub(super) fn only_deletes(changes: &impl Changes) -> bool {
    changes.operations().all(|it| it.value.is_none())
}

impl Core {
    /// What is in the memtable that takes writes.
    #[inline]
    pub(super) fn active_bytes(&self) -> u64 {
        self.active_reserved.load(Relaxed) as u64
    }

    /// Refuses what gives room back only where neither the disk has room for the log, nor the log itself: deletions and
    /// departures go on as long as they can be written.
    #[cold]
    pub(super) fn check_leaving(&self) -> Result<()> {
        let checked = self.room.check_leaving();
        checked.or_else(|full| match self.log.spare_bytes() {
            0 => Err(full),
            _ => Ok(()),
        })
    }

    /// Looks at the file system again where there is no room for `bytes` more, as far as is known. Before the front's lock
    /// is taken: under it [`Self::check_room`] goes by what was seen.
    #[inline]
    pub(super) fn look_for_room(&self, bytes: u64) -> Result<()> {
        match self.room.check_as_looked(self.active_bytes(), bytes) {
            Ok(()) => Ok(()),
            Err(_) => self.room.look(),
        }
    }

    /// Refuses `changes`, which take `bytes`, where there is no room for them. Deletions alone were checked before. Under
    /// the front's lock: it calls no file system.
    #[inline]
    pub(super) fn check_room(&self, changes: &impl Changes, bytes: u64) -> Result<()> {
        let checked = self.room.check_as_looked(self.active_bytes(), bytes);
        checked.or_else(|full| {
            if only_deletes(changes) {
                Ok(())
            } else {
                Err(full)
            }
        })
    }

    /// Whether only what is kept for what gives room back is left.
    pub(super) fn is_short_of_room(&self) -> bool {
        self.room.is_short(self.active_bytes())
    }
}
