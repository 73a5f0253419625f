//! The cemetery of a database: graves that are added, flushed with their memtable, and retired.
//!
//! ```text
//!   1 add      a deletion goes to the active graves of the memtable that takes writes    in the order of the log
//!   2 flush    that memtable is flushed: its graves become flushed graves; the file GRAVES is replaced
//!   3 drop     the memtable's own versions that are hidden by then never reach a table; the MANIFEST is edited
//!   4 show     one read state with the new version and the new flushed graves
//!   5 purge    compactions leave out what flushed graves hide from all readers
//!   6 retire   a grave that hides nothing any more leaves the flushed graves
//! ```
//!
//! The file is durable before the MANIFEST says that the memtable is in tables, and the log is durable before both.
//! So a deletion that is in no file is in the part of the log that is replayed, and one that is in both counts once.
//! (Who may replace the file, and with what: [`kept`](super::kept). What is too much for memory goes to files of its
//! own at step 2: [`spilled`](super::spilled).)

use super::Core;
use super::kept::{Kept, write_file};
use super::learn::Looked;
use super::spilled::SpillUpkeep;
use super::stats::GraveStats;
use super::timeline::Timeline;
use crate::background::FULL_MEMTABLES_MAX;
use crate::cemetery::active::ActiveGraves;
use crate::cemetery::dead_ranges::DeadRangeCache;
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::spilled::SpillDirectory;
use crate::directory::{GRAVES_STATE, spill_name};
use crate::error::Result;
use crate::lsm::compaction::Hidden;
use crate::lsm::retire::{Needs, Outside, retire};
use crate::lsm::tree::link_or_copy;
use crate::read_state::ReadState;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::{Arc, Mutex, MutexGuard, lock};
use std::path::Path;
use std::time::Duration;

/// Tables that hold something dead are purged when the database is closed, if they have at most so many bytes.
const PURGE_AT_CLOSE_BYTES: u64 = 32 << 20;
/// When graves take this part of their memory, all that they hide is purged: sooner than they leave it.
const PURGE_SHARE: usize = 2;
/// After a look for graves to retire, the next comes at the earliest after so many times as long.
const LOOK_SHARE: u32 = 10;

/// What a database has of graves besides those in its read states.
pub(super) struct Cemetery {
    pub(super) dead_ranges: Arc<DeadRangeCache>,
    /// Held by whoever makes another flushed graves.
    pub(super) kept: Mutex<Kept>,
    /// When which deletions were seen.
    seen: Mutex<Timeline>,
    /// Which deletions were looked at for runs of dead keys.
    pub(super) looked: Mutex<Looked>,
    /// When to look again for deletions that are overdue.
    look_at: Mutex<Duration>,
    /// The last write that there was when the database was opened: tables were purged through it at most.
    opened_at: u64,
    /// Where its spill files are, the number of the next one, and how far somebody looked for what to do to them.
    pub(super) site: SpillDirectory,
    pub(super) next_spill: AtomicU64,
    pub(super) upkeep: Mutex<SpillUpkeep>,
    /// Counts when indexes were given up that graves were kept for.
    given_up: AtomicU64,
}

/// What a look for graves that nothing needs goes by: the read state's generation, and how often indexes had been given
/// up.
pub(super) type LookedAt = (u64, u64);

/// What becomes of active graves.
pub(super) struct GraveFlush<'c> {
    kept: MutexGuard<'c, Kept>,
    /// For the flush of its memtable: all graves.
    pub(super) hidden: Hidden,
    /// For readers: those that are needed after it.
    pub(super) flushed: Arc<FlushedGraves>,
}

impl GraveFlush<'_> {
    /// Ends it, once readers see its flushed graves.
    pub(super) fn end(mut self) {
        self.kept.ahead = None;
        self.kept.tried = None;
    }
}

impl Cemetery {
    /// The cemetery as `flushed` was read from its file, if there is one; the last write was `opened_at`.
    pub(super) fn new(
        flushed: &FlushedGraves,
        has_file: bool,
        site: SpillDirectory,
        opened_at: u64,
    ) -> Self {
        let numbers = flushed.spilled().labels().map(|it| it.number);
        let next = numbers.max().map_or(1, |last| last + 1);
        Self {
            site,
            next_spill: AtomicU64::new(next),
            upkeep: Mutex::default(),
            dead_ranges: Arc::default(),
            kept: Mutex::new(Kept::new(flushed, has_file)),
            seen: Mutex::default(),
            looked: Mutex::default(),
            look_at: Mutex::default(),
            opened_at,
            given_up: AtomicU64::new(0),
        }
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
        active.reserved += room;
        self.active_reserved.store(active.reserved, Relaxed);
        let graves = &active.memtable.memory.graves;
        graves.delete_range(start, end, sequence);
    }

    /// For versions that were written from `stage` on (0: none) and are about to be shown with a later sequence number:
    /// sees to it that no retired grave of that time is found in the file again, and none is retired, while what is
    /// returned is held.
    pub(super) fn keep_graves(&self, stage: u64) -> Result<impl Drop + '_> {
        let mut kept = lock(&self.cemetery.kept);
        if stage > 0 && kept.is_stale && kept.may_be_found() {
            let flushed = Arc::clone(&self.read_states.load().flushed);
            self.write_graves(&mut kept, &flushed)?;
        }
        Ok(kept)
    }

    /// The same versions, of the device of `prefix`, shown at `sequence`: whether anything was deleted there since
    /// `stage`. What scans found to be dead is forgotten, as they did not see these. Under the front's lock.
    pub(super) fn was_deleted_since(&self, prefix: &[u8], stage: u64, sequence: u64) -> bool {
        self.cemetery.dead_ranges.forget(sequence);
        stage > 0 && {
            let read_state = self.read_states.load();
            read_state.hides_in_prefix(prefix, stage)
                || read_state.flushed.has_points_since(prefix, stage)
        }
    }

    /// Deletions of devices that settle, by key, and have switched at `switch` or before. They are durable on return,
    /// and readers see them. Nothing is flushed or retired meanwhile, as stays are pending.
    pub(super) fn add_settled_graves(&self, graves: &[(Vec<u8>, u64)], switch: u64) -> Result<()> {
        if graves.is_empty() {
            return Ok(());
        }
        let mut kept = lock(&self.cemetery.kept);
        let mut through = 0;
        self.log.at_front(|_, sequence| {
            let active = lock(&self.active);
            // Merges leave out what graves hide as far as the flushed graves go through: with nothing in memory that is
            // everything so far, else it is up to a flush.
            if active.reserved > 0 || !active.memtable.memory.is_empty() {
                active.memtable.memory.graves.note_due();
            } else if self.read_states.load().full.is_empty() {
                through = sequence - 1;
            }
        });
        let before = Arc::clone(&self.read_states.load().flushed);
        // Through its switch tables were not purged without these, unless it switched before a restart.
        let number = switch.max(self.purged_through(&before) + 1);
        let flushed = Arc::new(before.with_settled(graves, number, through));
        // What a flush in doubt has put into the file stays there.
        let mut whole = Arc::clone(&flushed);
        if let Some(ahead) = &mut kept.ahead {
            *ahead = Arc::new(ahead.with_settled(graves, number, through));
            whole = Arc::clone(ahead);
        }
        self.write_graves(&mut kept, &whole)?;
        // Of that, some may have been retired since.
        kept.is_stale = kept.ahead.is_some();
        self.read_states
            .change(|read_state| read_state.flushed = flushed);
        Ok(())
    }

    /// No table was purged through a higher number, while `flushed` is the latest.
    fn purged_through(&self, flushed: &FlushedGraves) -> u64 {
        flushed.through().max(self.cemetery.opened_at)
    }

    /// What graves hide from all who read at `snapshot` or later, and from the log's point of view for good.
    pub(super) fn hidden_from(&self, read_state: &ReadState, snapshot: u64) -> Hidden {
        Hidden {
            through: snapshot.min(read_state.flushed.through()),
            graves: Arc::clone(&read_state.flushed),
            above: 0,
            overdue: self.overdue_through(read_state),
            dead_ranges: Some(Arc::clone(&self.cemetery.dead_ranges)),
        }
    }

    /// Deletions up to here have waited for half of their time; at rest, or when there are too many, all have.
    fn overdue_through(&self, read_state: &ReadState) -> u64 {
        if read_state.flushed.counting_bytes() > self.options.graves_bytes / PURGE_SHARE {
            return u64::MAX;
        }
        match self.options.deletion_deadline {
            None => 0,
            Some(_) if self.is_at_rest() => u64::MAX,
            Some(deadline) => self.reached_before(deadline / 2),
        }
    }

    /// The last write that was visible so long ago.
    fn reached_before(&self, ago: Duration) -> u64 {
        let then = self.storage.now().checked_sub(ago);
        then.map_or(0, |then| lock(&self.cemetery.seen).reached_by(then))
    }

    /// Notes the time, and lets deletions go to the flushed graves, and be purged, that have waited for long.
    pub(super) fn watch_deletions(&self) {
        let now = self.storage.now();
        lock(&self.cemetery.seen).note(self.log.visible_sequence(), now);
        self.flush_expired(false);
        // One that was put off, as somebody was just looking or had just looked.
        self.retire_graves(false);
        self.maintain_spilled();
        let Some(deadline) = self.options.deletion_deadline else {
            return;
        };
        let read_state = self.read_states.load();
        let is_old = read_state.active.start_sequence <= self.reached_before(deadline / 4);
        if is_old && !read_state.active.memory.graves.is_empty() {
            self.rotate_now();
        }
        let mut look_at = lock(&self.cemetery.look_at);
        if now >= *look_at && !read_state.flushed.is_empty() {
            *look_at = now + deadline / 8;
            self.look_again();
        }
    }

    /// Flushes `active`, whose memtables hold the writes up to `through` that no table holds, to which the log is
    /// durable. All readers read at `oldest_snapshot` or later.
    pub(super) fn flush_graves<'p>(
        &self,
        active_graves: impl Iterator<Item = &'p ActiveGraves> + Clone,
        through: u64,
        oldest_snapshot: u64,
    ) -> Result<GraveFlush<'_>> {
        let mut kept = lock(&self.cemetery.kept);
        let read_state = self.read_states.load();
        let before = &read_state.flushed;
        let applied = oldest_snapshot.min(through);
        // Tried again, it promotes what it promoted: its table may be there already.
        let tried = kept.tried.filter(|tried| tried.0 >= through);
        let time = tried.map_or_else(|| self.oldest_time(), |tried| tried.1);
        let is_none_due = before.due_from() > time;
        // One before this one failed, and may be found to have succeeded.
        let is_in_doubt = kept.ahead.is_some();
        let is_nothing_new = active_graves.clone().all(ActiveGraves::is_empty) && is_none_due;
        if is_nothing_new && !before.is_empty() && !is_in_doubt {
            let hidden = Hidden {
                above: read_state.memtables_from(),
                ..self.hidden_from(&read_state, applied)
            };
            let flushed = Arc::clone(before);
            return Ok(GraveFlush {
                kept,
                hidden,
                flushed,
            });
        }
        // (A flush goes no further than the last one if there is nothing in memory but a device's departure that was
        // read back, and that tables knew.)
        let purged_through = self.purged_through(before);
        let all = Arc::new(before.with(
            active_graves,
            through,
            oldest_snapshot,
            time,
            purged_through,
        ));
        kept.tried = Some((through, time));
        // The flush leaves out what these hide; so only what is in tables already needs them. (What one in doubt did
        // not leave out, as a snapshot was still held, may be in tables as well.)
        let retired = (!is_in_doubt).then(|| self.retired(&all, &read_state, applied + 1));
        let flushed = retired.flatten().unwrap_or_else(|| Arc::clone(&all));
        kept.is_stale |= !Arc::ptr_eq(&flushed, &all);
        let in_memory = Arc::clone(&flushed);
        let flushed = self.spilled(&mut kept, flushed)?;
        let is_new = flushed.newest().is_some_and(|newest| newest > kept.through);
        if is_new || !Arc::ptr_eq(&flushed, &in_memory) {
            kept.ahead = Some(Arc::clone(&flushed));
            self.write_graves(&mut kept, &flushed)?;
        }
        let hidden = Hidden {
            graves: all,
            above: read_state.memtables_from(),
            through: applied,
            ..Hidden::default()
        };
        Ok(GraveFlush {
            kept,
            hidden,
            flushed,
        })
    }

    /// `flushed` without what nothing in `read_state` needs, memtables holding writes from `memtables_from` on.
    fn retired(
        &self,
        flushed: &FlushedGraves,
        read_state: &ReadState,
        memtables_from: u64,
    ) -> Option<Arc<FlushedGraves>> {
        let devices = self.devices.as_ref();
        let upper = |start: &[u8], end: Option<&[u8]>, sequence| {
            devices.is_some_and(|it| it.upper.table.may_hold(start, end, sequence))
        };
        let needs = Needs {
            outside: self.outside(memtables_from),
            upper: &upper,
        };
        retire(flushed, &read_state.version, &needs).map(Arc::new)
    }

    /// Which deletions hide what is in no table, memtables holding writes from `memtables_from` on. To be asked with
    /// the read state loaded: what left on its way to the tree is known before the deletions of then are flushed.
    pub(super) fn outside(&self, memtables_from: u64) -> Outside {
        let devices = self.devices.as_ref();
        Outside {
            memtables_from,
            indexes: devices.map_or_else(Vec::new, |it| it.upper.table.left_on_the_way()),
        }
    }

    /// Retires the graves that nothing needs any more, if it is time to look or `always`.
    pub(super) fn retire_graves(&self, always: bool) {
        if self.read_states.load().flushed.is_empty() {
            return;
        }
        // Who flushes now retires, too. While something is on its way to the tree, what is not there yet may come.
        let Ok(mut kept) = self.cemetery.kept.try_lock() else {
            return;
        };
        let pending = self
            .devices
            .as_ref()
            .map(|it| it.settler.pending.try_lock());
        let begun = self.storage.now();
        if matches!(pending, Some(None)) || (!always && begun < kept.look_at) {
            return;
        }
        let read_state = self.read_states.load();
        let looked_at = Some(self.looked_at(&read_state));
        if !always && kept.looked_at == looked_at {
            return;
        }
        kept.looked_at = looked_at;
        if let Some(flushed) = self.retired(
            &read_state.flushed,
            &read_state,
            read_state.memtables_from(),
        ) {
            self.read_states
                .change(|read_state| read_state.flushed = flushed);
            kept.is_stale = true;
            // Departures may be forgotten with them.
            self.keep_soon();
        }
        let ended = self.storage.now();
        kept.look_at = ended + ended.saturating_sub(begun) * LOOK_SHARE;
    }

    /// What a look at `read_state` goes by. To be asked before the look.
    pub(super) fn looked_at(&self, read_state: &ReadState) -> LookedAt {
        (read_state.generation(), self.cemetery.given_up.load(SeqCst))
    }

    /// An index was given up that graves were kept for: has them be looked at again.
    pub(super) fn look_for_needs_again(&self) {
        self.cemetery.given_up.fetch_add(1, SeqCst);
        self.end_rest();
    }

    /// Whether everything in the tree has been looked at for graves that it does not need.
    pub(super) fn has_looked_for_needs(&self) -> bool {
        let read_state = self.read_states.load();
        let looked = |kept: &Kept| {
            let has_looked = read_state.flushed.is_empty()
                || kept.looked_at == Some(self.looked_at(&read_state));
            has_looked && self.has_maintained_spilled(&read_state, kept)
        };
        self.cemetery.kept.try_lock().is_ok_and(|it| looked(&it))
    }

    /// While what is returned is held, tables and graves are those of one moment.
    pub(super) fn hold_graves(&self) -> impl Drop + '_ {
        lock(&self.cemetery.kept)
    }

    /// The graves for a copy of the database, whose time goes on from now: those who still read at an earlier one here
    /// do not read there.
    pub(super) fn graves_to_copy(&self) -> Arc<FlushedGraves> {
        let flushed = Arc::clone(&self.read_states.load().flushed);
        if !flushed.is_timed() {
            return flushed;
        }
        Arc::new(FlushedGraves::clone(&flushed).at_time(self.time()))
    }

    /// Writes a copy of all tables and graves to the new directory `target`.
    pub(super) fn checkpoint(&self, target: &Path) -> Result<()> {
        let (tables, flushed) = {
            // No flush ends meanwhile: tables and graves are those of one moment.
            let _kept = lock(&self.cemetery.kept);
            (self.tree.moment(), self.graves_to_copy())
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
        let now = self.storage.now();
        let seen = oldest.and_then(|oldest| lock(&self.cemetery.seen).time_of(oldest));
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
            oldest_unpersisted_seconds: seen.map(|at| now.saturating_sub(at).as_secs_f64()),
            spilled: spilled.counting_graves() + spilled.dated_graves(),
            spilled_bytes: spilled.labels().map(|it| it.file_bytes).sum(),
            dead_ranges: self.cemetery.dead_ranges.len() as u64,
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

    /// Brings the file up to date at the end; whether no grave is left.
    pub(super) fn close_graves(&self) -> Result<bool> {
        self.retire_graves(true);
        let mut kept = lock(&self.cemetery.kept);
        let flushed = Arc::clone(&self.read_states.load().flushed);
        if flushed.is_empty() {
            if kept.has_file {
                self.remove_graves(&mut kept)?;
            }
            return Ok(true);
        }
        if flushed.count() != kept.graves || kept.is_stale {
            self.write_graves(&mut kept, &flushed)?;
        }
        Ok(false)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use crate::db::{Db, Options, PutOptions};
    use crate::storage::{SimStorage, Storage};
    use crate::sync::{Arc, lock};
    use std::time::Duration;

    const YEAR: Duration = Duration::from_secs(365 * 86_400);

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
            let core = &db.core;
            let through = core.read_states.load().flushed.through();
            machine.sleep(2 * YEAR);
            let oldest = core.oldest_snapshot();
            let flush = core
                .flush_graves(std::iter::empty(), through, oldest)
                .unwrap();
            let graves = flush.hidden.graves.points();
            let is_beyond = graves.iter().all(|grave| grave.other > through);
            // Nobody else may be kept waiting by a test that fails.
            drop(flush);
            assert!(is_beyond, "{seed}");
            assert_eq!(db.get(b"key").unwrap(), None);
        }
    }

    /// The table of a flush that failed may be there after a restart, and was purged of what had expired when it was
    /// written, and of no more.
    #[test]
    fn a_flush_that_is_tried_again_promotes_what_it_promoted() {
        let db = Db::open_with(SimStorage::new(1), "/db", Options::default()).unwrap();
        for lifetime in [YEAR, 3 * YEAR] {
            let key = format!("{lifetime:?}");
            db.put_with(key.as_bytes(), b"value", PutOptions::expiring(lifetime))
                .unwrap();
        }
        db.flush().unwrap();
        db.put(b"other", b"value").unwrap();
        let core = &db.core;
        let through = core.log.visible_sequence();
        // As far as this one, two years ahead; then less far.
        for (tried, promoted) in [(through, 1), (through - 1, 0)] {
            lock(&core.cemetery.kept).tried =
                Some((tried, core.time() + 2 * YEAR.as_micros() as u64));
            // Dropped without its end, as if the flush had failed.
            let flush = core
                .flush_graves(std::iter::empty(), through, through)
                .unwrap();
            let graves = flush.hidden.graves.len();
            drop(flush);
            assert_eq!(graves, promoted);
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
        assert!(through >= 3 && grave.other > through, "{through}");
    }
}
