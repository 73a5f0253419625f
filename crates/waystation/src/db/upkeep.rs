//! Upkeep: what the watch and the maintenance of devices do for an open database. Their
//! [agenda](crate::background) says when.
//!
//! The watch looks at deletions, at keys that expire, at the disk reserve, and at whether writes have ended. When they
//! have, the memtable goes to a table if that is worth it, and level 0 is merged down; and later the log gives back room.

use super::Core;
use crate::background::{Expiry, Kind, Next, Sight, TICK};
use crate::cemetery::expiry::micros;
use crate::devices::log_release::CHECKPOINT_INTERVAL;
use crate::devices::maintenance::Devices;
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::lock;
use std::time::Duration;

impl Core {
    /// One look of the watch, as a background job.
    pub(super) fn watch_round(&self) -> Next {
        if self.is_stopping() {
            return Next::Idle;
        }
        let search_at = self.search_dead_ranges().unwrap_or_else(|error| {
            // A reader that comes there is told.
            log::debug!("looking for dead ranges failed: {error}");
            None
        });
        self.relieve_memory();
        self.watch_deletions();
        self.keep_reserve();
        let now = self.storage.now();
        self.resources.regions().give_unused_back(now);
        let see = |is_awaited| self.sight(now, is_awaited);
        let decision = self.idle.look(now, see, self.log.visible_sequence());
        if let Some(sequence) = decision.idle_since {
            self.become_idle(sequence, decision.flush);
        }
        if !decision.is_idle || decision.idle_since.is_some() {
            self.expect_maintenance();
        }
        if decision.rest {
            self.give_room_back_at_rest();
        }
        let next = decision.look_at.into_iter().chain(search_at).min();
        next.map_or(Next::Idle, Next::At)
    }

    /// What the watch sees.
    fn sight(&self, now: Duration, is_awaited: bool) -> Sight {
        // First: later facts may belong to later writes, which bring another look.
        let last_write = self.log.visible_sequence();
        let read_state = self.read_states.load();
        let active = &read_state.active.memory.graves;
        Sight {
            last_write,
            memtable: (
                self.active_reserved.load(Relaxed),
                self.options.memtable_bytes,
            ),
            graves: (active.points().len(), active.has_ranges()),
            is_short_of_room: self.is_short_of_room(),
            deletion_deadline: self.options.deletion_deadline,
            expiry: self.expiry(now),
            graves_at: self.graves.next_look(),
            is_awaited,
            shares_room: self.log_shares_room() && self.log.has_long_ring(),
        }
    }

    /// Whether segments may lie where tables would take their room.
    fn log_shares_room(&self) -> bool {
        let fast = self.options.fast.as_ref();
        fast.is_some_and(|fast| fast.durable)
    }

    /// No thread has written for a while since write `sequence`.
    fn become_idle(&self, sequence: u64, flush: bool) {
        if flush {
            self.rotate_now();
        }
        self.give_memory_back();
        self.idle.become_idle(sequence);
        self.look_again();
        self.keep_soon();
        self.tell_waiters();
    }

    /// What keys that expire wait for, while no thread writes.
    fn expiry(&self, now: Duration) -> Expiry {
        let read_state = self.read_states.load();
        let is_spilled = !read_state.flushed.spilled().is_empty();
        let from = if is_spilled {
            read_state.earliest()
        } else {
            read_state.due_from()
        };
        if from == u64::MAX {
            return Expiry::Nothing;
        }
        let gather = self.gather_when_idle();
        let due = from.saturating_add(micros(gather));
        let time = self.time();
        if due > time {
            return Expiry::Time(now + Duration::from_micros(due - time));
        }
        if is_spilled {
            Expiry::Spilled
        } else if self.oldest_time() < due && self.snapshots.summary().0 > 0 {
            Expiry::Snapshot
        } else {
            Expiry::Flush
        }
    }

    /// Whether no thread has written for a while.
    pub(super) fn is_idle(&self) -> bool {
        self.idle.is_idle(self.log.visible_sequence())
    }

    /// One round of the maintenance of devices, as a background job.
    pub(super) fn maintenance_round(&self) -> Next {
        let Some(devices) = self.devices.as_ref().filter(|_| !self.is_stopping()) else {
            return Next::Idle;
        };
        // Before the round: what comes during it makes another.
        devices.begin_round();
        devices.expect_growth(self.log.reserved_lsn());
        let context = self.context_of(devices);
        let kept = devices.keep(&context, &self.throttle);
        devices.note_memory();
        if context.is_early() {
            self.jobs.submit(Kind::Settle);
        }
        if !self.has_succeeded(Kind::Keep, "keeping devices", &kept) {
            return Next::Failed;
        }
        devices.next_keeping(&context).map_or(Next::Idle, Next::At)
    }

    /// Lets residencies settle whose time is over, and says when it will be over for others.
    pub(super) fn settle_round(&self) -> Next {
        let Some(devices) = self.devices.as_ref().filter(|_| !self.is_stopping()) else {
            return Next::Idle;
        };
        let context = self.context_of(devices);
        let settled = devices.settler.settle_due(&context, context.is_early());
        devices.note_memory();
        self.account.end_settling();
        if !self.has_succeeded(Kind::Settle, "settling devices", &settled) {
            return Next::Failed;
        }
        settled.ok().flatten().map_or(Next::Idle, Next::At)
    }

    /// Whether the background threads are to end.
    pub(super) fn is_stopping(&self) -> bool {
        lock(&self.background).stopping
    }

    /// Something happened that may leave the maintenance something to do.
    pub(super) fn keep_soon(&self) {
        let devices = self.devices.as_ref();
        if devices.is_some_and(Devices::await_round) {
            self.jobs.by(Kind::Keep, self.storage.now() + TICK);
        }
    }

    /// The log goes to `end_lsn` now.
    #[inline]
    pub(super) fn note_growth(&self, devices: &Devices, end_lsn: u64) {
        if devices.is_due_at(end_lsn) {
            self.keep_soon();
        }
    }

    /// Has what was written since a while ago be looked at in time: devices that arrived, and what a checkpoint is to tell.
    fn expect_maintenance(&self) {
        let Some(devices) = &self.devices else {
            return;
        };
        let now = self.storage.now();
        let idle = devices.settings.idle_departure.unwrap_or(Duration::MAX);
        let keep_after = idle.min(CHECKPOINT_INTERVAL);
        self.jobs.by(Kind::Keep, now.saturating_add(keep_after));
        let residency = devices.settings.residency;
        self.jobs.by(Kind::Settle, now.saturating_add(residency));
        self.note_growth(devices, self.log.reserved_lsn());
    }

    /// A snapshot was released: the jobs go on that waited for it.
    pub(super) fn go_on_after_release(&self) {
        if let Some(devices) = &self.devices {
            if devices.waits_for_release.swap(false, SeqCst) {
                self.keep_soon();
            }
            if devices.settler.waits_for_release.swap(false, SeqCst) {
                self.jobs.submit(Kind::Settle);
            }
        }
        self.idle.note_release();
    }

    /// Gives up what the maintenance was at, which runs no more.
    pub(super) fn end_maintenance(&self) {
        if let Some(devices) = &self.devices {
            devices.snapshots.stop(&*self.storage, &self.dir);
        }
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", not(any(miri, loom, shuttle))))]
mod tests {
    use crate::sync::lock;
    use crate::{Db, Options};
    use std::sync::Arc;

    #[test]
    fn an_idle_database_gives_the_memory_of_memtables_back() {
        const MEMTABLE_BYTES: usize = 16 << 20;
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            memtable_bytes: MEMTABLE_BYTES,
            ..Options::default()
        };
        let db = Db::open(dir.path(), options).unwrap();
        let taken = || {
            let memtable = Arc::clone(&lock(&db.core.active).memtable);
            memtable.memory.table.resident_bytes()
        };
        let key = |number: u32| number.wrapping_mul(0x9E37_79B9).to_le_bytes();
        let mut number = 0;
        let mut put = |count| {
            for _ in 0..count {
                db.put(&key(number), &[number as u8; 1_000]).unwrap();
                number += 1;
            }
        };
        // Until a memtable has the memory of a full one before it, unless a busy machine makes pauses each time.
        for _ in 0..20 {
            put(20_000);
            db.flush().unwrap();
            put(500);
            if taken() > MEMTABLE_BYTES / 4 * 3 {
                break;
            }
        }
        db.wait_idle().unwrap();
        assert!(taken() <= MEMTABLE_BYTES / 2, "{}", taken());
        for number in 0..number {
            let found = db.get(&key(number)).unwrap().unwrap();
            assert!(found[..] == [number as u8; 1_000]);
        }
    }
}
