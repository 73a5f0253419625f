//! What a database does for its graves: it answers their [store](crate::retirement), adds deleted ranges to memtables,
//! and looks after deletions while writes come.

use super::Core;
use super::stats::GraveStats;
use crate::background::FULL_MEMTABLES_MAX;
use crate::cemetery::active::ActiveGraves;
use crate::directory::{GRAVES_STATE, spill_name};
use crate::error::Result;
use crate::lsm::compaction::Hidden;
use crate::lsm::tree::link_or_copy;
use crate::read_state::ReadState;
use crate::retirement::{Owner, UpperLevel, write_file};
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{Arc, lock};
use std::path::Path;

/// Tables that hold something dead are purged when the database is closed, if they have at most so many bytes.
const PURGE_AT_CLOSE_BYTES: u64 = 32 << 20;

impl Owner for Core {
    fn oldest_snapshot(&self) -> u64 {
        Self::oldest_snapshot(self)
    }

    fn oldest_time(&self) -> u64 {
        Self::oldest_time(self)
    }

    fn is_idle(&self) -> bool {
        Self::is_idle(self)
    }

    fn is_stopping(&self) -> bool {
        Self::is_stopping(self)
    }

    fn while_settled(&self, act: &mut dyn FnMut()) {
        let settler = self.devices.as_ref().map(|it| &it.settler);
        let pending = settler.map(|it| it.pending.try_lock());
        if !matches!(pending, Some(None)) {
            act();
        }
    }

    fn upper_level(&self) -> Option<&dyn UpperLevel> {
        let devices = self.devices.as_ref()?;
        Some(&*devices.upper)
    }

    fn flush_failure(&self) -> Option<Arc<str>> {
        lock(&self.background).flush_failure.clone()
    }
}

impl Core {
    /// The deletion of a range at `sequence`, which has its place in the log, at `lsn` or later. Under the front's
    /// lock. It is never refused: if nothing is flushed any more, the memtable grows.
    pub(super) fn add_range_grave(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        lsn: u64,
        sequence: u64,
    ) {
        let mut active = lock(&self.active);
        let room = ActiveGraves::range_bytes(start.len(), end.map_or(0, <[u8]>::len));
        let is_full = !active.memtable.memory.has_room(active.reserved, room);
        if is_full && self.full_memtables.load(SeqCst) < FULL_MEMTABLES_MAX {
            self.rotate(&mut active, room, lsn, sequence);
        }
        self.reserve(&mut active, room);
        let graves = &active.memtable.memory.graves;
        graves.delete_range(start, end, sequence);
    }

    /// Deletions of devices that settle, as [`GraveStore::add_settled`](crate::retirement::GraveStore::add_settled)
    /// says.
    pub(super) fn add_settled_graves(&self, graves: &[(Vec<u8>, u64)], switch: u64) -> Result<()> {
        let reaches = || {
            self.log.at_front(|_, sequence| {
                let active = lock(&self.active);
                // Merges leave out what graves hide as far as the flushed graves go through: with nothing in memory
                // that is everything so far, else it is up to a flush.
                if active.reserved > 0 || !active.memtable.memory.is_empty() {
                    active.memtable.memory.graves.note_due();
                    0
                } else if self.read_states.load().full.is_empty() {
                    sequence - 1
                } else {
                    0
                }
            })
        };
        self.graves.add_settled(graves, switch, reaches, self)
    }

    /// What graves hide from all who read at `snapshot` or later, and from the log's point of view for good.
    pub(super) fn hidden_from(&self, read_state: &ReadState, snapshot: u64) -> Hidden {
        let is_idle = self.is_idle();
        self.graves.hidden_from(read_state, snapshot, is_idle)
    }

    /// Notes the time, and lets deletions be flushed, and be purged, that have waited for long.
    pub(super) fn watch_deletions(&self) {
        self.graves.note_time(self.log.visible_sequence());
        self.flush_expired(false);
        // One that was put off, as another thread was just looking or had just looked.
        self.retire_graves(false);
        self.graves.maintain_spilled(self);
        let overdue = self.graves.overdue();
        if overdue.in_memory {
            self.rotate_now();
        }
        if overdue.in_tables {
            self.look_again();
        }
    }

    /// Retires the graves that nothing needs any more, if it is time to look or `always`.
    pub(super) fn retire_graves(&self, always: bool) {
        if self.graves.retire(always, self) {
            // Departures may be forgotten with them.
            self.keep_soon();
        }
    }

    /// An index was given up that graves were kept for: has them be looked at again.
    pub(super) fn look_for_needs_again(&self) {
        self.graves.look_again();
        self.idle.note_change();
    }

    /// Writes a copy of all tables and graves to the new directory `target`.
    pub(super) fn checkpoint(&self, target: &Path) -> Result<()> {
        let (tables, flushed) = {
            // No flush ends meanwhile: tables and graves are those of one moment.
            let _held = self.graves.hold();
            (self.tree.moment(), self.graves.to_copy(|| self.time()))
        };
        self.tree.checkpoint(&tables, target, |state| {
            if !flushed.is_empty() {
                for number in flushed.spilled().labels().map(|it| it.number) {
                    let name = spill_name(number);
                    link_or_copy(&*self.storage, &self.dir.join(&name), &target.join(&name))?;
                }
                write_file(&*self.storage, target, &flushed)?;
                state.insert(GRAVES_STATE.to_owned(), Vec::new());
            }
            Ok(())
        })
    }

    /// Figures about the cemetery.
    pub(super) fn grave_stats(&self) -> GraveStats {
        let read_state = self.read_states.load();
        let flushed = &read_state.flushed;
        let spilled = flushed.spilled();
        // Also what snapshots hold back.
        let hidden = self.hidden_from(&read_state, u64::MAX);
        let active_graves: Vec<_> = read_state.active_graves().collect();
        let in_memtables = |count: fn(&ActiveGraves) -> usize| {
            active_graves
                .iter()
                .map(|graves| count(graves))
                .sum::<usize>()
        };
        let pinned = read_state
            .version
            .tables()
            .map(|(_, table)| hidden.hidden_bytes(table));
        let oldest = flushed.oldest();
        let age = oldest.and_then(|oldest| self.graves.age_of(oldest));
        GraveStats {
            expiring: (flushed.dated().len() + in_memtables(ActiveGraves::dated_len)) as u64
                + spilled.dated_graves(),
            points: (flushed.len() + in_memtables(|graves| graves.points().len())) as u64
                + spilled.counting_graves(),
            ranges: (flushed.ranges().len() + in_memtables(ActiveGraves::range_deletions)) as u64,
            memory_bytes: (flushed.memory_bytes() + in_memtables(ActiveGraves::memory_bytes))
                as u64,
            key_bytes: (flushed.key_bytes() + in_memtables(ActiveGraves::key_bytes)) as u64,
            pinned_bytes: pinned.sum(),
            oldest_unpersisted: oldest,
            oldest_unpersisted_seconds: age.map(|age| age.as_secs_f64()),
            spilled: spilled.counting_graves() + spilled.dated_graves(),
            spilled_bytes: spilled.labels().map(|it| it.file_bytes).sum(),
            dead_ranges: self.graves.dead_ranges().len() as u64,
        }
    }

    /// Purges what graves hide if that is little, so that none is left and `LevelDB` may open the directory.
    pub(super) fn purge_at_close(&self) {
        if self.devices.is_some() || self.read_states.load().flushed.is_empty() {
            return;
        }
        let oldest_snapshot = || self.oldest_snapshot();
        if let Err(error) = self.tree.purge(PURGE_AT_CLOSE_BYTES, &oldest_snapshot) {
            log::warn!("what was deleted stays in tables, and LevelDB out: {error}");
        }
        self.adopt_version();
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use crate::db::{Core, Db, Options, PutOptions};
    use crate::retirement::{Owner, UpperLevel};
    use crate::storage::{SimStorage, Storage};
    use crate::sync::Arc;
    use std::time::Duration;

    const YEAR: Duration = Duration::from_secs(365 * 86_400);

    /// A database whose readers are all two years ahead.
    struct Ahead<'c>(&'c Core);

    impl Owner for Ahead<'_> {
        fn oldest_snapshot(&self) -> u64 {
            self.0.oldest_snapshot()
        }

        fn oldest_time(&self) -> u64 {
            self.0.oldest_time() + 2 * YEAR.as_micros() as u64
        }

        fn is_idle(&self) -> bool {
            self.0.is_idle()
        }

        fn is_stopping(&self) -> bool {
            self.0.is_stopping()
        }

        fn while_settled(&self, act: &mut dyn FnMut()) {
            self.0.while_settled(act);
        }

        fn upper_level(&self) -> Option<&dyn UpperLevel> {
            self.0.upper_level()
        }

        fn flush_failure(&self) -> Option<Arc<str>> {
            self.0.flush_failure()
        }
    }

    /// A flush that goes no further than tables were purged already: what it promoted would be thought to have been
    /// purged from them.
    #[test]
    fn what_expires_is_promoted_beyond_what_tables_were_purged_through() {
        for seed in 0..10 {
            let machine = SimStorage::new(seed);
            let db = Db::open_with(machine.clone(), "/db", Options::default()).unwrap();
            db.put_with(b"key", b"value", PutOptions::expiring(YEAR))
                .unwrap();
            db.flush().unwrap();
            let core = &*db.core;
            let through = core.read_states.load().flushed.through();
            machine.sleep(2 * YEAR);
            let oldest = core.oldest_snapshot();
            let flush = core.graves.flush(std::iter::empty(), through, oldest, core);
            let flush = flush.unwrap();
            let graves = flush.hidden.graves.points();
            let is_beyond = graves.iter().all(|grave| grave.purge_through() > through);
            // A test that fails keeps no other test waiting.
            drop(flush);
            assert!(is_beyond, "{seed}");
            assert_eq!(db.get(b"key").unwrap(), None);
        }
    }

    /// The table of a flush that failed may be there after a restart, and was purged of what had expired when it was
    /// written, and of no more.
    #[test]
    fn a_flush_that_is_tried_again_promotes_what_it_promoted() {
        // As far as this one, two years ahead; then less far.
        for (less_far, promoted) in [(0, 1), (1, 0)] {
            let db = Db::open_with(SimStorage::new(1), "/db", Options::default()).unwrap();
            for lifetime in [YEAR, 3 * YEAR] {
                let key = format!("{lifetime:?}");
                db.put_with(key.as_bytes(), b"value", PutOptions::expiring(lifetime))
                    .unwrap();
            }
            db.flush().unwrap();
            for key in [b"a", b"b"] {
                db.put(key, b"value").unwrap();
            }
            let core = &*db.core;
            let through = core.log.visible_sequence();
            let flush = |through, owner: &dyn Owner| {
                let none = std::iter::empty();
                let flush = core.graves.flush(none, through, through, owner).unwrap();
                // Dropped without its end, as if the flush of the memtable had failed.
                flush.hidden.graves.len()
            };
            assert_eq!(flush(through - less_far, &Ahead(core)), 1);
            assert_eq!(flush(through, core), promoted);
        }
    }

    /// A device that switched before a restart settles behind tables that were purged through later numbers.
    #[test]
    fn what_settles_late_asks_for_more_than_tables_were_purged_through() {
        let machine = SimStorage::new(1);
        let db = Db::open_with(machine.clone(), "/db", Options::default()).unwrap();
        for key in [b"a", b"b", b"c"] {
            db.put(key, b"value").unwrap();
        }
        db.flush().unwrap();
        let core = &db.core;
        core.add_settled_graves(&[(b"b".to_vec(), 3)], 3).unwrap();
        let flushed = Arc::clone(&core.read_states.load().flushed);
        let version = core.tree.version();
        let through = version.tables().map(|(_, table)| {
            let facts = table.facts().expect("a table of this engine");
            facts.purged_through
        });
        let through = through.max().expect("a table");
        let grave = flushed.points().iter().next().expect("a table needs it");
        assert!(through >= 3 && grave.purge_through() > through, "{through}");
    }
}
