//! The background: what each job does ([`crate::background`] says when), and how all of them end.
//!
//! A failed flush or compaction is tried again after a pause that grows to a second; meanwhile writers run
//! until memory is full and then get [`Error::Suspended`] with the cause. Reads are not touched. A job that panics ends
//! all jobs of its database: writes get [`Error::Suspended`] from then on.

use super::Core;
use crate::background::{FULL_MEMTABLES_MAX, Jobs, Kind, Limits, Next, Use};
use crate::error::{Error, Result};
use crate::lsm::compaction::Traffic;
use crate::lsm::memtable::MemTable;
use crate::lsm::tree::Flush;
use crate::options::Options;
use crate::retirement::GraveFlush;
use crate::sst::MergingIterator;
use crate::storage::IoPriority;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{Arc, lock, wait};
use std::time::Duration;

/// Jobs of one database that write its log at once.
const LOG_WRITERS: usize = 4;
/// While readers wait for storage, merges that are not due are looked at again after this pause.
const READERS_PAUSE: Duration = Duration::from_millis(500);
/// Full memtables that one flush takes, if more than one waits. As one table they cost less than as two, now and
/// in the merges to come; and as many may fill meanwhile.
const FLUSHED_TOGETHER: usize = FULL_MEMTABLES_MAX / 2;
/// The jobs that end before the log is closed.
const ABOVE_THE_LOG: [Kind; 6] = [
    Kind::Flush,
    Kind::Settle,
    Kind::Keep,
    Kind::Watch,
    Kind::Compact,
    Kind::Place,
];

/// What the lock of the background guards.
#[derive(Default)]
pub(super) struct Background {
    pub(super) flush_failure: Option<Arc<str>>,
    /// Flushes begun so far, so that a failure can be told from an old one.
    flushes_begun: u64,
    pub(super) compaction_failure: Option<Arc<str>>,
    /// Compactions under way.
    compacting: usize,
    /// Jobs that failed the last time, whose failures were told and hold no writer up.
    failing: Vec<Kind>,
    /// Nothing begins any more, as a job panicked.
    has_panicked: bool,
    pub(super) stopping: bool,
}

/// The jobs that a database with `options` has.
pub(super) fn limits(options: &Options) -> Limits {
    let of_devices = usize::from(options.devices.is_some());
    Limits::default()
        .with(Kind::Log, LOG_WRITERS)
        .with(Kind::Flush, 1)
        .with(Kind::Settle, of_devices)
        .with(Kind::Keep, of_devices)
        .with(Kind::Watch, 1)
        .with(Kind::Compact, options.background_jobs)
        .with(Kind::Place, usize::from(options.fast.is_some()))
}

/// The running jobs.
pub(super) struct Workers;

impl Workers {
    /// Starts all jobs of `core`, or none.
    pub(super) fn start(core: &Arc<Core>) -> Result<Self> {
        core.jobs.start(Arc::clone(core) as _).map(|()| Self)
    }
}

impl Jobs for Core {
    fn run(&self, kind: Kind) -> Next {
        match kind {
            Kind::Log => self.log.write_out(),
            Kind::Flush => self.flush_full(),
            Kind::Settle => self.settle_round(),
            Kind::Keep => self.maintenance_round(),
            Kind::Watch => self.watch_round(),
            Kind::Compact => self.compact(),
            Kind::Place => self.place(),
        }
    }

    fn panicked(&self, kind: Kind) {
        let cause: Arc<str> =
            format!("a background job ({kind:?}) panicked; close the database and open it again")
                .into();
        self.log.give_up(&cause);
        let mut background = lock(&self.background);
        background.has_panicked = true;
        background.flush_failure = Some(Arc::clone(&cause));
        background.compaction_failure = Some(cause);
        self.changed.notify_all();
    }
}

impl Core {
    /// Flushes the oldest full memtables, if there are any.
    fn flush_full(&self) -> Next {
        if self.full_memtables.load(SeqCst) == 0 {
            return Next::Idle;
        }
        lock(&self.background).flushes_begun += 1;
        let flushed = self.flush_oldest();
        self.note_memory();
        self.account.end_flush();
        match flushed {
            Ok(()) => {
                lock(&self.background).flush_failure = None;
                self.is_flush_failing.store(false, SeqCst);
                self.changed.notify_all();
                self.look_again();
                self.keep_reserve();
                self.keep_soon();
                self.idle.note_change();
                Next::Again
            }
            Err(error) => self.note_failure(&error, "flushing", true),
        }
    }

    /// Writes the oldest full memtables to a table and frees their part of the log.
    fn flush_oldest(&self) -> Result<()> {
        let read_state = self.read_states.load();
        let count = read_state.full.len().min(FLUSHED_TOGETHER);
        if count == 0 {
            return Ok(());
        }
        let (oldest, later) = read_state.full.split_at(count);
        let next = later.first().unwrap_or(&read_state.active);
        let (end_lsn, end_sequence) = (next.start_lsn, next.start_sequence - 1);
        // What switched to the memtables must reach the tree before them.
        let mut pending = self
            .devices
            .as_ref()
            .map(|it| (it, it.settler.pending.lock()));
        if let Some((devices, pending)) = &mut pending {
            let context = self.context_of(devices);
            devices
                .settler
                .finish(&context, pending, IoPriority::High)?;
        }
        let started = self.storage.now();
        // Its last writers may still be copying.
        self.log.wait_visible(end_sequence);
        if !self.log.defers() {
            // A table must not survive a power cut that a write before it, which lies in the log alone, does not.
            self.log.sync(end_lsn)?;
        }
        let tables = oldest.iter().map(|memtable| &memtable.memory.table);
        let active_graves = oldest.iter().map(|memtable| &*memtable.memory.graves);
        let oldest_snapshot = self.oldest_snapshot();
        let flush = self
            .graves
            .flush(active_graves, end_sequence, oldest_snapshot, self)?;
        let hurried = read_state.full.len() > 1;
        if oldest.iter().any(|memtable| !memtable.memory.is_empty()) {
            self.flush_together(
                tables.clone(),
                end_sequence,
                oldest_snapshot,
                &flush,
                hurried,
            )?;
        }
        self.read_states.change(|read_state| {
            read_state.full.drain(..count);
            read_state.version = self.tree.version();
            read_state.flushed = Arc::clone(&flush.flushed);
        });
        flush.end();
        self.full_memtables.fetch_sub(count, SeqCst);
        self.observe_backlog();
        let elapsed = self.storage.now().saturating_sub(started);
        let bytes: usize = tables.map(|table| table.used_bytes()).sum();
        self.throttle.drained(bytes as u64, elapsed);
        if let Some(devices) = &self.devices {
            // The maintenance frees the log, which residencies need, too.
            devices.upper.note_durable(end_sequence);
            return Ok(());
        }
        self.log.note_flushed(end_lsn);
        self.log.release_below(end_lsn);
        self.log.remove_surplus(true, self.is_short_of_room())
    }

    /// Writes `memtables`, which end at `end_sequence`, to one table. If they are empty, the tree notes how far they
    /// went.
    fn flush_together<'a>(
        &self,
        memtables: impl Iterator<Item = &'a Arc<MemTable>>,
        end_sequence: u64,
        oldest_snapshot: u64,
        flush: &GraveFlush<'_>,
        hurried: bool,
    ) -> Result<()> {
        let filled: Vec<_> = memtables.filter(|table| !table.is_empty()).collect();
        let bytes = filled.iter().map(|table| table.used_bytes() as u64).sum();
        let cursors = filled.into_iter().map(MemTable::iter).collect();
        let merged = MergingIterator::new(cursors, self.tree.order());
        let flush = Flush {
            last_sequence: end_sequence,
            oldest_snapshot,
            bytes,
            hidden: &flush.hidden,
            hurried,
        };
        self.tree.flush(merged, &flush)
    }

    /// Brings to the fast tier what is read most.
    fn place(&self) -> Next {
        let Some(tier) = &self.tier else {
            return Next::Idle;
        };
        let again = tier.round();
        // Files that the log keeps for use again may have to give way.
        if tier.is_shared_with_log()
            && let Err(error) = self.log.remove_surplus(false, false)
        {
            log::warn!("a segment that gives way stays for now: {error}");
        }
        self.account.set(Use::Placement, tier.memory_bytes());
        again.map_or(Next::Idle, Next::At)
    }

    /// Runs the compaction that is due first, if one is.
    fn compact(&self) -> Next {
        {
            let mut background = lock(&self.background);
            if background.stopping {
                return Next::Idle;
            }
            background.compacting += 1;
        }
        let traffic = self.traffic();
        let outcome = (self.tree).compact_once(&|| self.oldest_snapshot(), traffic);
        if matches!(outcome, Ok(true)) {
            self.adopt_version();
            self.keep_reserve();
            // The others look, too, before this one may seem to have been the last.
            self.look_again();
        }
        let mut background = lock(&self.background);
        background.compacting -= 1;
        match outcome {
            Ok(true) => {
                background.compaction_failure = None;
                self.changed.notify_all();
                Next::Again
            }
            Ok(false) => {
                self.changed.notify_all();
                drop(background);
                let waits = traffic == Traffic::Reads && self.tree.wants_compaction(Traffic::None);
                if waits {
                    Next::At(self.storage.now() + READERS_PAUSE)
                } else {
                    Next::Idle
                }
            }
            Err(error) => {
                drop(background);
                self.note_failure(&error, "compacting", false)
            }
        }
    }

    /// What merges that are not due have to wait for. If a caller waits for them, readers do not count.
    fn traffic(&self) -> Traffic {
        let readers_count = self.idle_waiters.load(SeqCst) == 0;
        if !self.is_idle() {
            Traffic::Writes
        } else if readers_count && self.tree.are_readers_busy(self.storage.now()) {
            Traffic::Reads
        } else {
            Traffic::None
        }
    }

    /// The oldest snapshot, at `sequence`, was released: compactions may drop what it held back, and others go on.
    pub(super) fn snapshot_released(&self, sequence: u64) {
        if self.tree.waits_for_release_of(sequence) {
            self.look_again();
        }
        self.go_on_after_release();
    }

    /// Tells the threads that wait that something has changed.
    pub(super) fn tell_waiters(&self) {
        // They look under this lock.
        drop(lock(&self.background));
        self.changed.notify_all();
    }

    fn note_failure(&self, error: &Error, what: &str, flush: bool) -> Next {
        let cause: Arc<str> = format!("{what} failed: {error}").into();
        let mut background = lock(&self.background);
        let failure = if flush {
            self.is_flush_failing.store(true, SeqCst);
            &mut background.flush_failure
        } else {
            &mut background.compaction_failure
        };
        if failure.replace(Arc::clone(&cause)).is_none() {
            log::error!("{cause}");
        }
        self.changed.notify_all();
        Next::Failed
    }

    /// Notes how a job went whose failures hold no writer up; they are told when they begin. Returns whether it succeeded.
    pub(super) fn has_succeeded<T>(&self, kind: Kind, what: &str, outcome: &Result<T>) -> bool {
        let mut background = lock(&self.background);
        let was_failing = background.failing.contains(&kind);
        match outcome {
            Ok(_) => background.failing.retain(|it| *it != kind),
            Err(error) if !was_failing => {
                background.failing.push(kind);
                log::error!("{what} failed: {error}; it is tried again");
            }
            Err(_) => {}
        }
        outcome.is_ok()
    }

    /// Waits until no full memtable is left, or a flush that begins after this call fails.
    pub(super) fn wait_flushed(&self) -> Result<()> {
        let mut background = lock(&self.background);
        let begun = background.flushes_begun;
        while self.full_memtables.load(SeqCst) > 0 {
            if background.stopping {
                return Err(Error::Closed("closed"));
            }
            if let Some(cause) = &background.flush_failure
                && (background.flushes_begun > begun + 1 || background.has_panicked)
            {
                return Err(Error::Suspended {
                    cause: Arc::clone(cause),
                });
            }
            background = wait(&self.changed, background);
        }
        Ok(())
    }

    pub(super) fn oldest_snapshot(&self) -> u64 {
        self.snapshots.oldest(|| self.log.visible_sequence())
    }

    /// Shows the tree's newest version to readers.
    pub(super) fn adopt_version(&self) {
        self.read_states
            .change(|read_state| read_state.version = self.tree.version());
        self.observe_backlog();
        self.retire_graves(self.is_idle());
        self.note_memory();
        self.keep_soon();
        if !self.graves.has_looked() {
            // Put off: the watch looks.
            self.idle.note_change();
        }
    }

    /// A cursor was made that looks into so many places of the tree; most are sent somewhere once.
    pub(super) fn charge_readers(&self, places: usize) {
        if self.tree.charge_readers(places.saturating_sub(1) as u64) {
            self.look_again();
        }
    }

    /// Has compactions look again for something to do.
    pub(super) fn look_again(&self) {
        self.jobs.submit(Kind::Compact);
    }

    /// Compacts a range by hand, beside the background threads.
    pub(super) fn compact_range(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<()> {
        let outcome = self
            .tree
            .compact_range(lower, upper, &|| self.oldest_snapshot());
        self.adopt_version();
        self.look_again();
        outcome
    }

    /// Waits until no thread writes, the devices that were settling have settled, and nothing is to be flushed or compacted.
    pub(super) fn wait_idle(&self) -> Result<()> {
        self.idle_waiters.fetch_add(1, SeqCst);
        self.look_again();
        let waited = self.wait_until_idle();
        self.idle_waiters.fetch_sub(1, SeqCst);
        waited
    }

    fn wait_until_idle(&self) -> Result<()> {
        if let Some(devices) = &self.devices {
            drop(devices.settler.pending.lock());
        }
        let mut background = lock(&self.background);
        loop {
            let failure = background
                .flush_failure
                .as_ref()
                .or(background.compaction_failure.as_ref());
            if let Some(cause) = failure {
                return Err(Error::Suspended {
                    cause: Arc::clone(cause),
                });
            }
            let busy = self.full_memtables.load(SeqCst) > 0 || background.compacting > 0;
            let is_idle = self.is_idle();
            if !busy && is_idle && !self.tree.wants_compaction(Traffic::None) {
                return Ok(());
            }
            if !is_idle {
                self.idle.expect(self.storage.now());
            }
            background = wait(&self.changed, background);
        }
    }

    /// Lets no job but the log's begin any more, and waits for the jobs that run.
    fn stop_background(&self) -> Result<()> {
        lock(&self.background).stopping = true;
        self.changed.notify_all();
        self.tree.cancel();
        self.jobs.end(&ABOVE_THE_LOG)
    }

    /// Stops everything in order: writes have ended; memory goes to tables, the log is closed, the tree last.
    pub(super) fn shut_down(&self, _: Workers) -> Result<()> {
        if !lock(&self.background).has_panicked {
            self.end_times();
            self.rotate_now();
        }
        let flushed = self.wait_flushed();
        if let Err(panicked) = self.stop_background() {
            // What it left may be locked for good; the log has everything.
            return self.jobs.leave().and(Err(panicked));
        }
        self.end_maintenance();
        if flushed.is_ok() {
            // Only now: what compacts beside it could bring tables round graves that none needed any more.
            self.tree.resume();
            self.purge_at_close();
        }
        let synced = flushed.is_ok().then(|| match &self.devices {
            Some(devices) => {
                let context = self.context_of(devices);
                devices.checkpoints.free(&context, true)?;
                self.log.remove_surplus(true, false)
            }
            None => self.log.sync_all(),
        });
        self.log.stop();
        self.jobs.leave()?;
        self.tier.iter().for_each(|tier| tier.close());
        flushed?;
        synced.unwrap_or(Ok(()))?;
        self.leave_log();
        self.log.mark_clean()?;
        self.give_room_back();
        if !self.graves.close(self)? || self.devices.is_some() {
            // LevelDB would not see data outside the tree.
            self.tree.close_fenced();
            return Ok(());
        }
        self.tree.close()
    }
}

#[cfg(test)]
#[cfg(not(any(miri, loom, shuttle)))]
mod tests {
    use crate::background::Next;
    use crate::{Db, Options};
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::Duration;

    const KEYS: u32 = 2_000;

    #[test]
    fn a_merge_for_readers_waits_while_they_wait_for_storage() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            cache_bytes: 0,
            ..Options::default()
        };
        let db = Db::open(dir.path(), options).unwrap();
        let key = |number: u32| number.to_le_bytes();
        // Nothing is merged before the reads.
        db.core.tree.cancel();
        for value in [b"one", b"two"] {
            for number in 0..KEYS {
                db.put(&key(number), value).unwrap();
            }
            db.flush().unwrap();
        }
        let read = || {
            for number in 0..KEYS {
                let found = db.get(&key(number)).unwrap();
                assert_eq!(found.as_deref(), Some(&b"two"[..]));
            }
        };
        let waits = || matches!(db.core.compact(), Next::At(_));
        let has_waited = (0..1_000).any(|_| {
            read();
            waits()
        });
        assert!(has_waited);
        // Not if a caller waits for the merges.
        db.core.idle_waiters.fetch_add(1, SeqCst);
        assert!(!waits());
        db.core.idle_waiters.fetch_sub(1, SeqCst);
        while waits() {
            db.core.storage.sleep(Duration::from_millis(20));
        }
        db.core.tree.resume();
        db.wait_idle().unwrap();
        assert_eq!(db.stats().tree.levels[0].tables, 0);
        read();
    }
}
