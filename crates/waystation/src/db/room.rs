//! Room on the disk: some is kept for what gives room back, and for opening again. How much, and why that is enough, says
//! the table of [`Margins`]; here is what looks at it before it grows:
//! - a *put* is refused with `DiskFull` where it would touch what is kept. It is counted with its size, before it has its
//!   place in the log; a long one, of more than half a ring, twice, until it is in segments: till then an opening may have to
//!   lay all of it out anew;
//! - *settling* waits while the tables of what would settle do not fit: it stays in the upper level. What has switched is
//!   counted until it has settled, after an opening as well;
//! - *flushing* has what puts and settling leave, so that it always comes to its end; *merging*, which needs room for as
//!   long as a merge takes, leaves it that;
//! - *deletions and departures* go on until the log needs the rest for what is in the ring, and then in what is left of the
//!   log's segments, as long as the next opening finds its room. The log makes short segments where there is no room for
//!   long ones. Where they wear down what is kept, what they wrote is flushed, so that the log is freed;
//! - small files that are *replaced* as a whole (`DEVICES`, `GRAVES`, the MANIFEST) have room for another copy of each: the
//!   checkpoint that frees the log is always written;
//! - an *opening* has a file of its own ([`reserve`]), which is not counted as free. It is taken again as soon as there is
//!   room for it.
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
use crate::storage::{Capped, DiskUse, Growth, Margins, Storage, laid_out};
use crate::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use crate::sync::{Arc, Mutex, lock};
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
/// Writers look at the file system after this part of a short segment.
const LOOK_SHARE: u64 = 4;
/// Tables take more than what they hold: no more than this part of it.
const TABLE_SHARE: u64 = 8;

/// How much is kept, by the options.
fn margins(options: &Options) -> Margins {
    let together = options
        .devices
        .as_ref()
        .map_or(0, |_| together_bytes(options));
    Margins {
        short: short_segment_bytes(options),
        ring: options.ring_bytes as u64,
        together,
    }
}

/// What is kept free, and what is.
pub(super) struct Room {
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
    let margins = margins(options);
    let memtables = (FULL_MEMTABLES_MAX as u64 + 1) * options.memtable_bytes as u64;
    margins.for_puts() + margins.reserve() + margins.together + memtables
}

/// The least that a database with `options` needs to work with.
fn needed_bytes(options: &Options) -> u64 {
    let margins = margins(options);
    let memtables = 2 * options.memtable_bytes as u64;
    let segments = 2 * margins.short;
    fixed_bytes(margins) + memtables + segments + SHORT_MIN
}

/// What a database takes that holds nothing, with what puts leave.
fn fixed_bytes(margins: Margins) -> u64 {
    margins.ring + margins.reserve() + margins.for_puts() + SHORT_MIN
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
        RING_NAME => return Growth::Vital,
        RESERVE_NAME => return Growth::Reserve,
        DRAFT_NAME => return Growth::Fresh,
        IMAGE_NAME | IMAGE_DRAFT => return Growth::Spare,
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
        _ if vault_number(name).is_some() => Growth::Bulk,
        Some(_) => Growth::Replaced,
        None if is_own(name) => Growth::Replaced,
        // Somebody else's.
        None => Growth::Vital,
    }
}

/// What `bytes` of entries take as tables.
#[inline]
fn as_tables(bytes: u64) -> u64 {
    bytes + bytes / TABLE_SHARE
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
        let margins = margins(options);
        let limit = options.disk_bytes_max.unwrap_or(u64::MAX);
        let capped = Capped::new(storage, dir, limit, margins, growth_of)?;
        let room = Self {
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
        Ok((Arc::new(capped), room))
    }

    /// Keeps room for the next opening: in a file, if it fits now; and if not, until it does.
    pub(super) fn keep(&self, storage: &dyn Storage, dir: &Path) {
        let _one_at_a_time = lock(&self.keeping);
        let copy = self.disk.replaced_bytes();
        let held = self.disk.reserve_bytes();
        // It has room for two copies when it is made.
        if held >= self.margins.reserve() + copy / 2 {
            self.disk.set_reserve(held);
            return;
        }
        let wanted = self.margins.reserve() + copy;
        self.disk.set_reserve(wanted);
        // What cannot be looked at, the file's creation will tell.
        let _ = self.disk.look();
        if self.disk.all_free_bytes() + held < wanted + copy {
            return;
        }
        let given_back = reserve::give_back(storage, dir);
        if let Err(error) = given_back.and_then(|()| reserve::take(storage, dir, wanted)) {
            log::debug!("nothing can be kept for the next opening yet: {error}");
        }
        let _ = self.disk.look();
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
    fn is_look_due(&self) -> bool {
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

    /// Refuses a write of `bytes` that would touch what is kept, while the active memtable holds `active` bytes.
    #[inline]
    pub(super) fn check(&self, active: u64, bytes: u64) -> Result<()> {
        if self.check_as_looked(active, bytes).is_ok() {
            return Ok(());
        }
        self.look()?;
        self.check_ever(bytes, bytes)?;
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
    fn check_leaving(&self, active: u64, bytes: u64, spare_bytes: impl Fn() -> u64) -> Result<()> {
        self.look()?;
        let copy = self.disk.replaced_bytes();
        // Long writes are counted with what is kept from puts, and may have taken it already.
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

    /// Whether deletions, and lives that were killed, have taken from what is kept for them.
    fn is_worn(&self, active: u64) -> bool {
        let copy = self.disk.replaced_bytes();
        self.disk.free_bytes() < self.margins.for_settling() + copy + self.owed_as_tables(active)
    }

    /// Whether only what is kept is left.
    pub(super) fn is_short(&self, active: u64) -> bool {
        self.disk.free_bytes() < self.kept_from_puts(active)
    }

    /// Whether more than what is kept is left when `bytes` more are written.
    pub(super) fn is_left(&self, active: u64, bytes: u64) -> bool {
        self.disk.free_bytes() > self.kept_from_puts(active).saturating_add(bytes)
    }

    /// Counts a long write of `bytes` until what is returned is dropped; refuses it as [`Self::check`] does. It takes them
    /// twice until it is in segments, and `table_bytes` in a memtable.
    pub(super) fn begin_long(
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

    /// Counts a long write of `bytes`, which is not refused, until what is returned is dropped.
    pub(super) fn count_long(&self, bytes: u64) -> Writing<'_> {
        let bytes = 2 * bytes;
        self.writing.fetch_add(bytes, SeqCst);
        Writing { room: self, bytes }
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
        self.check_free(kept, as_tables(bytes))?;
        self.note_settling(bytes);
        Ok(())
    }

    /// Notes what has switched and has not settled (bytes in the log).
    pub(super) fn note_settling(&self, bytes: u64) {
        self.settling.store(as_tables(bytes), SeqCst);
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

    /// Refuses what gives room back, and takes `bytes` of the log, only where neither the disk has room for it, nor the log
    /// itself: deletions and departures go on as long as they can be written, and the database be opened again.
    #[cold]
    pub(super) fn check_leaving(&self, bytes: u64) -> Result<()> {
        let active = self.active_bytes();
        let checked = self
            .room
            .check_leaving(active, bytes, || self.log.spare_bytes());
        if self.room.is_worn(active) {
            self.flush_worn();
        }
        checked
    }

    /// Has what holds the log back flushed, if that is not done already and frees some of it.
    fn flush_worn(&self) {
        let start = self.views.load().active.start_lsn;
        let is_much = self.log.reserved_lsn().saturating_sub(start) >= self.room.margins.short;
        if is_much && self.full_memtables.load(SeqCst) == 0 {
            self.rotate_now();
        }
    }

    /// Makes room, as far as there is any to be made, where lives before this one have worn down what is kept: what they
    /// wrote is flushed, and their part of the log freed. Nothing is lost if that fails.
    pub(super) fn make_room_at_start(&self) {
        if !self.room.is_worn(self.active_bytes()) {
            return;
        }
        self.rotate_now();
        let made = self.wait_flushed().and_then(|()| {
            if let Some(devices) = &self.devices {
                self.free_log(devices, true)?;
            }
            self.log.remove_freed(true, true)
        });
        if let Err(error) = made {
            log::warn!("there is little room, and none could be made yet: {error}");
        }
        self.keep_reserve();
    }

    /// Keeps room for the next opening, as far as there is any: whenever some may have come back.
    pub(super) fn keep_reserve(&self) {
        self.room.keep(&*self.storage, &self.dir);
    }

    /// Looks at the file system if so much was written since the last look that what is kept may be touched.
    #[inline]
    pub(super) fn look_if_due(&self) -> Result<()> {
        if self.room.is_look_due() {
            self.room.look()?;
        }
        Ok(())
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
