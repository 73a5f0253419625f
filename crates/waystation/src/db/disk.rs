//! Room on the disk for a write: what the handle asks of the [disk reserve](crate::background::DiskReserve).

use super::Core;
use super::write_source::WriteSource;
use crate::error::Result;
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Whether `changes` give room back, and take none.
pub(super) fn only_deletes(changes: &impl WriteSource) -> bool {
    changes.operations().all(|it| it.value.is_none())
}

impl Core {
    /// The bytes in the memtable that takes writes.
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
            .disk_reserve
            .check_leaving(active, bytes, || self.log.spare_bytes());
        if self.disk_reserve.is_worn(active) {
            self.flush_worn();
        }
        checked
    }

    /// Has what holds the log back flushed, if that is not done already and frees some of it.
    fn flush_worn(&self) {
        let start = self.read_states.load().active.start_lsn;
        let is_much = self.log.reserved_lsn().saturating_sub(start)
            >= self.disk_reserve.short_segment_bytes();
        if is_much && self.full_memtables.load(SeqCst) == 0 {
            self.rotate_now();
        }
    }

    /// Makes room, as far as there is any to be made, where lives before this one have worn down the reserve: their
    /// writes are flushed, and their part of the log recycled. Nothing is lost if that fails.
    pub(super) fn make_room_at_start(&self) {
        if !self.disk_reserve.is_worn(self.active_bytes()) {
            return;
        }
        self.rotate_now();
        let made = self.wait_flushed().and_then(|()| {
            if let Some(devices) = &self.devices {
                devices.checkpoints.free(&self.context_of(devices), true)?;
            }
            self.log.remove_surplus(true, true)
        });
        if let Err(error) = made {
            log::warn!("there is little room, and none could be made yet: {error}");
        }
        self.keep_reserve();
    }

    /// Keeps room for the next opening, as far as there is any: whenever some may have come back.
    pub(super) fn keep_reserve(&self) {
        self.disk_reserve.keep(&*self.storage, &self.dir);
    }

    /// Leaves the log behind, as the database is closed, where tables hold all that is in it.
    pub(super) fn leave_log(&self) {
        if self.devices.is_some() {
            return;
        }
        if let Err(error) = self.log.leave_flushed(self.tree.flushed_sequence()) {
            log::debug!("the closed database keeps its log: {error}");
        }
    }

    /// Gives back the room that only writers need, as the database is closed. The next opening takes what it needs.
    pub(super) fn give_room_back(&self) {
        let given = self.log.give_room_back();
        self.shorten_reserve_after(given);
    }

    /// Gives back the room that only writers need, as nothing was written for long. The next writers take what they need.
    pub(super) fn give_room_back_at_rest(&self) {
        let given = self.log.rest();
        self.shorten_reserve_after(given);
    }

    fn shorten_reserve_after(&self, given: Result<()>) {
        let shortened = || self.disk_reserve.shorten(&*self.storage, &self.dir);
        if let Err(error) = given.and_then(|()| shortened()) {
            log::debug!("the database keeps room that it does not need: {error}");
        }
    }

    /// Looks at the file system again where there is no room for `bytes` more, as far as is known. Before the front's lock
    /// is taken: under it [`Self::check_room`] goes by what was seen.
    #[inline]
    pub(super) fn look_for_room(&self, bytes: u64) -> Result<()> {
        match self
            .disk_reserve
            .check_as_looked(self.active_bytes(), bytes)
        {
            Ok(()) => Ok(()),
            Err(_) => self.disk_reserve.look(),
        }
    }

    /// Refuses `changes`, which take `bytes`, where there is no room for them. Deletions alone were checked before. Under
    /// the front's lock: it calls no file system.
    #[inline]
    pub(super) fn check_room(&self, changes: &impl WriteSource, bytes: u64) -> Result<()> {
        let checked = self
            .disk_reserve
            .check_as_looked(self.active_bytes(), bytes);
        checked.or_else(|full| {
            if only_deletes(changes) {
                Ok(())
            } else {
                Err(full)
            }
        })
    }

    /// Whether only the reserve is left.
    pub(super) fn is_short_of_room(&self) -> bool {
        self.disk_reserve.is_short(self.active_bytes())
    }
}
