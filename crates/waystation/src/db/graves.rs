//! The cemetery of a database: graves that are dug, buried with their memtable, and retired.
//!
//! ```text
//!   1 dig      a deletion goes to the plot of the memtable that takes writes     in the order of the log, or after
//!   2 bury     that memtable is flushed: its plot is merged into the next ground; the file GRAVES is replaced
//!   3 flush    the memtable's own versions that are hidden by then never reach a table; the MANIFEST is edited
//!   4 show     one view with the new version and the new ground
//!   5 purge    compactions leave out what the ground hides from all readers
//!   6 retire   what hides nothing any more leaves the ground
//! ```
//!
//! The file is durable before the MANIFEST says that the memtable is in tables, and the log is durable before both.
//! So a deletion that is in no file is in the part of the log that is replayed, and one that is in both counts once.
//! (Who may replace the file, and with what: [`kept`](super::kept). What is too much for memory goes to files of its own at
//! step 2: [`vaults`](super::vaults).)

use super::Core;
use super::kept::{Kept, write_file};
use super::learn::Looked;
use super::stats::GraveStats;
use super::vaults::Tending;
use super::view::View;
use crate::background::FULL_MEMTABLES_MAX;
use crate::cemetery::ground::Ground;
use crate::cemetery::learned::Learned;
use crate::cemetery::plot::Plot;
use crate::cemetery::vault::Site;
use crate::directory::{GRAVES_STATE, vault_name};
use crate::error::Result;
use crate::lsm::compaction::Hidden;
use crate::lsm::retire::{Needs, Outside, retire};
use crate::lsm::tree::link_or_copy;
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

/// What a database has of graves besides those in its views.
pub(super) struct Cemetery {
    pub(super) learned: Arc<Learned>,
    /// Held by whoever makes another ground.
    pub(super) kept: Mutex<Kept>,
    /// When which deletions were seen.
    seen: Mutex<Timeline>,
    /// Which deletions were looked at for runs of dead keys.
    pub(super) looked: Mutex<Looked>,
    /// When to look again for deletions that are overdue.
    look_at: Mutex<Duration>,
    /// The last write that there was when the database was opened: tables were purged through it at most.
    opened_at: u64,
    /// Where its vaults are, the number of the next one, and how far somebody looked for what to do to them.
    pub(super) site: Site,
    pub(super) next_vault: AtomicU64,
    pub(super) tending: Mutex<Tending>,
    /// Counts when indexes were given up that graves were kept for.
    given_up: AtomicU64,
}

/// What a look for graves that nothing needs goes by: the view's generation, and how often indexes had been given up.
pub(super) type LookedAt = (u64, u64);

/// What becomes of a plot.
pub(super) struct Burial<'c> {
    kept: MutexGuard<'c, Kept>,
    /// For the flush of its memtable: all graves.
    pub(super) hidden: Hidden,
    /// For readers: those that are needed after it.
    pub(super) ground: Arc<Ground>,
}

impl Burial<'_> {
    /// Ends it, once readers see its ground.
    pub(super) fn end(mut self) {
        self.kept.ahead = None;
        self.kept.tried = None;
    }
}

impl Cemetery {
    /// The cemetery as `ground` was read from its file, if there is one; the last write was `opened_at`.
    pub(super) fn new(ground: &Ground, has_file: bool, site: Site, opened_at: u64) -> Self {
        let numbers = ground.vaults().labels().map(|it| it.number);
        let next = numbers.max().map_or(1, |last| last + 1);
        Self {
            site,
            next_vault: AtomicU64::new(next),
            tending: Mutex::default(),
            learned: Arc::default(),
            kept: Mutex::new(Kept::new(ground, has_file)),
            seen: Mutex::default(),
            looked: Mutex::default(),
            look_at: Mutex::default(),
            opened_at,
            given_up: AtomicU64::new(0),
        }
    }
}

/// The most marks of a timeline; when there are more, every second one goes.
const MARKS_MAX: usize = 1024;

/// When which sequence numbers were reached, roughly.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// Sequence numbers with the times at which they were seen to be reached; ascending.
    marks: Vec<(u64, Duration)>,
}

impl Timeline {
    /// Notes that `sequence` is reached.
    pub(super) fn note(&mut self, sequence: u64, now: Duration) {
        if self.marks.last().is_some_and(|(last, _)| *last >= sequence) {
            return;
        }
        if self.marks.len() >= MARKS_MAX {
            let mut at = 0;
            self.marks.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        self.marks.push((sequence, now));
    }

    /// The time at which `sequence` was reached, or shortly before.
    pub(super) fn time_of(&self, sequence: u64) -> Option<Duration> {
        let behind = self.marks.partition_point(|(mark, _)| *mark < sequence);
        self.marks.get(behind.saturating_sub(1)).map(|(_, at)| *at)
    }

    /// The highest sequence number that was reached by `time` for sure.
    pub(super) fn reached_by(&self, time: Duration) -> u64 {
        let behind = self.marks.partition_point(|(_, at)| *at <= time);
        behind.checked_sub(1).map_or(0, |last| self.marks[last].0)
    }
}

impl Core {
    /// The deletion of a range at `sequence`, which has its place in the log, at `lsn` or later. Under the front's
    /// lock. It is never refused: if nothing is flushed any more, the memtable grows.
    pub(super) fn dig_range(&self, start: &[u8], end: Option<&[u8]>, lsn: u64, sequence: u64) {
        let mut active = lock(&self.active);
        let room = Plot::range_bytes(start.len(), end.map_or(0, <[u8]>::len));
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
            let ground = Arc::clone(&self.views.load().ground);
            self.write_graves(&mut kept, &ground)?;
        }
        Ok(kept)
    }

    /// The same versions, of the device of `prefix`, shown at `sequence`: whether anything was deleted there since
    /// `stage`. What scans found to be dead is forgotten, as they did not see these. Under the front's lock.
    pub(super) fn was_dug_over(&self, prefix: &[u8], stage: u64, sequence: u64) -> bool {
        self.cemetery.learned.forget(sequence);
        stage > 0 && {
            let view = self.views.load();
            view.hides_in_prefix(prefix, stage) || view.ground.has_points_since(prefix, stage)
        }
    }

    /// Deletions of devices that settle, by key, and have switched at `switch` or before. They are durable on return, and
    /// readers see them. Nothing is flushed or retired meanwhile, as stays are pending.
    pub(super) fn dig_settled(&self, graves: &[(Vec<u8>, u64)], switch: u64) -> Result<()> {
        if graves.is_empty() {
            return Ok(());
        }
        let mut kept = lock(&self.cemetery.kept);
        let mut through = 0;
        self.log.at_front(|_, sequence| {
            let active = lock(&self.active);
            // Merges leave out what graves hide as far as the ground goes through: with nothing in memory that is
            // everything so far, else it is up to a flush.
            if active.reserved > 0 || !active.memtable.memory.is_empty() {
                active.memtable.memory.graves.note_burial();
            } else if self.views.load().full.is_empty() {
                through = sequence - 1;
            }
        });
        let before = Arc::clone(&self.views.load().ground);
        // Through its switch tables were not purged without these, unless it switched before a restart.
        let number = switch.max(self.purged_through(&before) + 1);
        let ground = Arc::new(before.with_settled(graves, number, through));
        // What a flush in doubt has put into the file stays there.
        let mut whole = Arc::clone(&ground);
        if let Some(ahead) = &mut kept.ahead {
            *ahead = Arc::new(ahead.with_settled(graves, number, through));
            whole = Arc::clone(ahead);
        }
        self.write_graves(&mut kept, &whole)?;
        // Of that, some may have been retired since.
        kept.is_stale = kept.ahead.is_some();
        self.views.change(|view| view.ground = ground);
        Ok(())
    }

    /// No table was purged through a higher number, while `ground` is the latest.
    fn purged_through(&self, ground: &Ground) -> u64 {
        ground.through().max(self.cemetery.opened_at)
    }

    /// What graves hide from all who read at `snapshot` or later, and from the log's point of view for good.
    pub(super) fn hidden_from(&self, view: &View, snapshot: u64) -> Hidden {
        Hidden {
            through: snapshot.min(view.ground.through()),
            graves: Arc::clone(&view.ground),
            above: 0,
            overdue: self.overdue_through(view),
            learned: Some(Arc::clone(&self.cemetery.learned)),
        }
    }

    /// Deletions up to here have waited for half of their time; at rest, or when there are too many, all have.
    fn overdue_through(&self, view: &View) -> u64 {
        if view.ground.counting_bytes() > self.options.graves_bytes / PURGE_SHARE {
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

    /// Notes the time, and lets deletions go to the ground, and be purged, that have waited for long.
    pub(super) fn watch_deletions(&self) {
        let now = self.storage.now();
        lock(&self.cemetery.seen).note(self.log.visible_sequence(), now);
        self.bury_expired(false);
        // One that was put off, as somebody was just looking or had just looked.
        self.retire_graves(false);
        self.tend_vaults();
        let Some(deadline) = self.options.deletion_deadline else {
            return;
        };
        let view = self.views.load();
        let is_old = view.active.start_sequence <= self.reached_before(deadline / 4);
        if is_old && !view.active.memory.graves.is_empty() {
            self.rotate_now();
        }
        let mut look_at = lock(&self.cemetery.look_at);
        if now >= *look_at && !view.ground.is_empty() {
            *look_at = now + deadline / 8;
            self.look_again();
        }
    }

    /// Buries `plots`, whose memtables hold the writes up to `through` that no table holds, to which the log is
    /// durable. All readers read at `oldest_snapshot` or later.
    pub(super) fn bury<'p>(
        &self,
        plots: impl Iterator<Item = &'p Plot> + Clone,
        through: u64,
        oldest_snapshot: u64,
    ) -> Result<Burial<'_>> {
        let mut kept = lock(&self.cemetery.kept);
        let view = self.views.load();
        let before = &view.ground;
        let applied = oldest_snapshot.min(through);
        // Tried again, it digs what it dug: its table may be there already.
        let tried = kept.tried.filter(|tried| tried.0 >= through);
        let time = tried.map_or_else(|| self.oldest_time(), |tried| tried.1);
        let is_none_due = before.ripe_from() > time;
        // One before this one failed, and may be found to have succeeded.
        let is_in_doubt = kept.ahead.is_some();
        let is_nothing_new = plots.clone().all(Plot::is_empty) && is_none_due;
        if is_nothing_new && !before.is_empty() && !is_in_doubt {
            let hidden = Hidden {
                above: view.memtables_from(),
                ..self.hidden_from(&view, applied)
            };
            let ground = Arc::clone(before);
            return Ok(Burial {
                kept,
                hidden,
                ground,
            });
        }
        // (A flush goes no further than the last one if there is nothing in memory but a device's departure that was
        // read back, and that tables knew.)
        let purged_through = self.purged_through(before);
        let all = Arc::new(before.with(plots, through, oldest_snapshot, time, purged_through));
        kept.tried = Some((through, time));
        // The flush leaves out what these hide; so only what is in tables already needs them. (What one in doubt did not
        // leave out, as a snapshot was still held, may be in tables as well.)
        let retired = (!is_in_doubt).then(|| self.retired(&all, &view, applied + 1));
        let ground = retired.flatten().unwrap_or_else(|| Arc::clone(&all));
        kept.is_stale |= !Arc::ptr_eq(&ground, &all);
        let in_memory = Arc::clone(&ground);
        let ground = self.spilled(&mut kept, ground)?;
        let is_new = ground.newest().is_some_and(|newest| newest > kept.through);
        if is_new || !Arc::ptr_eq(&ground, &in_memory) {
            kept.ahead = Some(Arc::clone(&ground));
            self.write_graves(&mut kept, &ground)?;
        }
        let hidden = Hidden {
            graves: all,
            above: view.memtables_from(),
            through: applied,
            ..Hidden::default()
        };
        Ok(Burial {
            kept,
            hidden,
            ground,
        })
    }

    /// `ground` without what nothing in `view` needs, memtables holding writes from `memtables_from` on.
    fn retired(&self, ground: &Ground, view: &View, memtables_from: u64) -> Option<Arc<Ground>> {
        let devices = self.devices.as_ref();
        let upper = |start: &[u8], end: Option<&[u8]>, sequence| {
            devices.is_some_and(|it| it.upper.table.may_hold(start, end, sequence))
        };
        let needs = Needs {
            outside: self.outside(memtables_from),
            upper: &upper,
        };
        retire(ground, &view.version, &needs).map(Arc::new)
    }

    /// Which deletions hide what is in no table, memtables holding writes from `memtables_from` on. To be asked with the
    /// view loaded: what left on its way to the tree is known before a flush buries the deletions of then.
    pub(super) fn outside(&self, memtables_from: u64) -> Outside {
        let devices = self.devices.as_ref();
        Outside {
            memtables_from,
            indexes: devices.map_or_else(Vec::new, |it| it.upper.table.left_on_the_way()),
        }
    }

    /// Retires the graves that nothing needs any more, if it is time to look or `always`.
    pub(super) fn retire_graves(&self, always: bool) {
        if self.views.load().ground.is_empty() {
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
        let view = self.views.load();
        let looked_at = Some(self.looked_at(&view));
        if !always && kept.looked_at == looked_at {
            return;
        }
        kept.looked_at = looked_at;
        if let Some(ground) = self.retired(&view.ground, &view, view.memtables_from()) {
            self.views.change(|view| view.ground = ground);
            kept.is_stale = true;
            // Departures may be forgotten with them.
            self.keep_soon();
        }
        let ended = self.storage.now();
        kept.look_at = ended + ended.saturating_sub(begun) * LOOK_SHARE;
    }

    /// What a look at `view` goes by. To be asked before the look.
    pub(super) fn looked_at(&self, view: &View) -> LookedAt {
        (view.generation(), self.cemetery.given_up.load(SeqCst))
    }

    /// An index was given up that graves were kept for: has them be looked at again.
    pub(super) fn look_for_needs_again(&self) {
        self.cemetery.given_up.fetch_add(1, SeqCst);
        self.end_rest();
    }

    /// Whether everything in the tree has been looked at for graves that it does not need.
    pub(super) fn has_looked_for_needs(&self) -> bool {
        let view = self.views.load();
        let looked = |kept: &Kept| {
            let has_looked =
                view.ground.is_empty() || kept.looked_at == Some(self.looked_at(&view));
            has_looked && self.has_tended_vaults(&view, kept)
        };
        self.cemetery.kept.try_lock().is_ok_and(|it| looked(&it))
    }

    /// While what is returned is held, tables and graves are those of one moment.
    pub(super) fn hold_graves(&self) -> impl Drop + '_ {
        lock(&self.cemetery.kept)
    }

    /// The graves for a copy of the database, whose time goes on from now: those who still read at an earlier one here do
    /// not read there.
    pub(super) fn graves_to_copy(&self) -> Arc<Ground> {
        let ground = Arc::clone(&self.views.load().ground);
        if !ground.is_timed() {
            return ground;
        }
        Arc::new(Ground::clone(&ground).at_time(self.time()))
    }

    /// Writes a copy of all tables and graves to the new directory `target`.
    pub(super) fn checkpoint(&self, target: &Path) -> Result<()> {
        let (tables, ground) = {
            // No flush ends meanwhile: tables and graves are those of one moment.
            let _kept = lock(&self.cemetery.kept);
            (self.tree.moment(), self.graves_to_copy())
        };
        self.tree.checkpoint(&tables, target, |state| {
            if !ground.is_empty() {
                for number in ground.vaults().labels().map(|it| it.number) {
                    let name = vault_name(number);
                    link_or_copy(&*self.storage, &self.dir.join(&name), &target.join(&name))?;
                }
                write_file(&*self.storage, target, &ground)?;
                state.insert(GRAVES_STATE.to_owned(), Vec::new());
            }
            Ok(())
        })
    }

    /// Figures about the cemetery.
    pub(super) fn grave_stats(&self) -> GraveStats {
        let view = self.views.load();
        let ground = &view.ground;
        let vaults = ground.vaults();
        // Also what snapshots hold back.
        let hidden = self.hidden_from(&view, u64::MAX);
        let plots: Vec<_> = view.plots().collect();
        let in_plots =
            |count: fn(&Plot) -> usize| plots.iter().map(|plot| count(plot)).sum::<usize>();
        let pinned = view
            .version
            .tables()
            .map(|(_, table)| hidden.hidden_bytes(table));
        let oldest = ground.oldest();
        let now = self.storage.now();
        let seen = oldest.and_then(|oldest| lock(&self.cemetery.seen).time_of(oldest));
        GraveStats {
            expiring: (ground.dated().len() + in_plots(Plot::dated_len)) as u64
                + vaults.dated_graves(),
            points: (ground.len() + in_plots(|plot| plot.points().len())) as u64
                + vaults.counting_graves(),
            ranges: (ground.ranges().len() + in_plots(Plot::range_deletions)) as u64,
            memory_bytes: (ground.memory_bytes() + in_plots(Plot::memory_bytes)) as u64,
            key_bytes: (ground.key_bytes() + in_plots(Plot::key_bytes)) as u64,
            pinned_bytes: pinned.sum(),
            oldest_unpersisted: oldest,
            oldest_unpersisted_seconds: seen.map(|at| now.saturating_sub(at).as_secs_f64()),
            spilled: vaults.counting_graves() + vaults.dated_graves(),
            spilled_bytes: vaults.labels().map(|it| it.file_bytes).sum(),
            learned: self.cemetery.learned.len() as u64,
        }
    }

    /// Purges what graves hide if that is little, so that none is left and `LevelDB` may open the directory.
    pub(super) fn purge_at_close(&self) {
        if self.devices.is_some() || self.views.load().ground.is_empty() {
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
        let ground = Arc::clone(&self.views.load().ground);
        if ground.is_empty() {
            if kept.has_file {
                self.remove_graves(&mut kept)?;
            }
            return Ok(true);
        }
        if ground.count() != kept.graves || kept.is_stale {
            self.write_graves(&mut kept, &ground)?;
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

    /// A flush that goes no further than tables were purged already: what it dug would be thought to have been purged from
    /// them.
    #[test]
    fn what_expires_is_dug_beyond_what_tables_were_purged_through() {
        for seed in 0..10 {
            let machine = SimStorage::new(seed);
            let db = Db::open_with(machine.clone(), "/db", Options::default()).unwrap();
            db.put_with(b"key", b"value", PutOptions::expiring(YEAR))
                .unwrap();
            db.flush().unwrap();
            let core = &db.core;
            let through = core.views.load().ground.through();
            machine.sleep(2 * YEAR);
            let oldest = core.oldest_snapshot();
            let burial = core.bury(std::iter::empty(), through, oldest).unwrap();
            let graves = burial.hidden.graves.points();
            let is_beyond = graves.iter().all(|grave| grave.other > through);
            // Nobody else may be kept waiting by a test that fails.
            drop(burial);
            assert!(is_beyond, "{seed}");
            assert_eq!(db.get(b"key").unwrap(), None);
        }
    }

    /// The table of a flush that failed may be there after a restart, and was purged of what had expired when it was
    /// written, and of no more.
    #[test]
    fn a_flush_that_is_tried_again_digs_what_it_dug() {
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
        for (tried, dug) in [(through, 1), (through - 1, 0)] {
            lock(&core.cemetery.kept).tried =
                Some((tried, core.time() + 2 * YEAR.as_micros() as u64));
            // Dropped without its end, as if the flush had failed.
            let burial = core.bury(std::iter::empty(), through, through).unwrap();
            let graves = burial.hidden.graves.len();
            drop(burial);
            assert_eq!(graves, dug);
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
        core.dig_settled(&[(b"b".to_vec(), 3)], 3).unwrap();
        let ground = Arc::clone(&core.views.load().ground);
        let version = core.tree.version();
        let through = version.tables().map(|(_, table)| {
            let facts = table.facts().expect("a table of this engine");
            facts.purged_through
        });
        let through = through.max().expect("a table");
        let grave = ground.points().iter().next().expect("a table needs it");
        assert!(through >= 3 && grave.other > through, "{through}");
    }
}
