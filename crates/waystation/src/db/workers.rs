//! The background threads: some that write the log out, one that flushes, one that watches for rests, some that
//! compact.
//!
//! A failed flush or compaction is tried again after a pause that grows to a second; meanwhile writers run
//! until memory is full and then get [`Error::Suspended`] with the cause. Reads are not touched.

use super::Core;
use super::graves::Burial;
use super::pace::FULL_MEMTABLES_MAX;
use crate::error::{Error, Result};
use crate::lsm::iter::MergingIterator;
use crate::lsm::memtable::MemTable;
use crate::storage::{Haste, stand_back};
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Arc, MutexGuard, lock, wait};
use std::time::Duration;

/// Threads that write the log out. Two would keep a device busy, but where writers take all of the processor a
/// thread has to wait for it after every write.
const LOG_WRITERS: usize = 4;
/// Full memtables that one flush takes, if more than one waits. As one table they cost less than as two, now and
/// in the merges to come; and as many may fill meanwhile.
const FLUSHED_TOGETHER: usize = FULL_MEMTABLES_MAX / 2;
/// The first pause after a failure; it doubles up to the longest.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(20);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What the lock of the background guards.
#[derive(Default)]
pub(super) struct Background {
    pub(super) flush_failure: Option<Arc<str>>,
    /// Flushes begun so far, so that a failure can be told from an old one.
    flushes_begun: u64,
    pub(super) compaction_failure: Option<Arc<str>>,
    /// Compactions under way.
    compacting: usize,
    /// Counted up whenever the tree changes, so that nobody sleeps on an old look.
    pub(super) tree_changes: u64,
    pub(super) stopping: bool,
}

/// The running threads.
pub(super) struct Workers {
    log_writers: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts all threads of `core`, or none.
    pub(super) fn start(core: &Arc<Core>) -> Result<Self> {
        Self::start_by(core, &mut spawn)
    }

    fn start_by(core: &Arc<Core>, spawn: &mut Spawn<'_>) -> Result<Self> {
        let mut workers = Self {
            log_writers: Vec::new(),
            others: Vec::new(),
        };
        let Err(error) = workers.start_all(core, spawn) else {
            return Ok(workers);
        };
        // They would go on in a directory that is given back.
        core.stop_background();
        let ended = join(workers.others);
        core.log.stop();
        join(workers.log_writers).and(ended)?;
        Err(error)
    }

    fn start_all(&mut self, core: &Arc<Core>, spawn: &mut Spawn<'_>) -> Result<()> {
        for _ in 0..LOG_WRITERS {
            let writer = spawn(core, "waystation-log", |core| core.log.writer_loop())?;
            self.log_writers.push(writer);
        }
        let mut bodies: Vec<(&str, Body)> = vec![
            ("waystation-flush", Core::flush_loop),
            ("waystation-rest", Core::rest_loop),
        ];
        if core.devices.is_some() {
            bodies.push(("waystation-keep", Core::keeper_loop));
            bodies.push(("waystation-settle", Core::settle_loop));
        }
        let compactors = core.options.background_jobs;
        bodies.extend(vec![
            ("waystation-compact", Core::compact_loop as Body);
            compactors
        ]);
        for (name, body) in bodies {
            self.others.push(spawn(core, name, body)?);
        }
        Ok(())
    }
}

/// What a thread does.
type Body = fn(&Core);
/// Starts a thread: its name, and what it does.
type Spawn<'a> = dyn FnMut(&Arc<Core>, &str, Body) -> Result<JoinHandle<()>> + 'a;

fn spawn(core: &Arc<Core>, name: &str, body: Body) -> Result<JoinHandle<()>> {
    let shared = Arc::clone(core);
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || body(&shared))
        .map_err(|error| Error::io("start thread", name, error))
}

fn join(threads: Vec<JoinHandle<()>>) -> Result<()> {
    for thread in threads {
        let name = thread.thread().name().unwrap_or("a thread").to_owned();
        if thread.join().is_err() {
            return Err(Error::io(
                "join",
                name,
                std::io::Error::other("the thread panicked"),
            ));
        }
    }
    Ok(())
}

impl Core {
    /// Flushes full memtables, oldest first, until told to stop.
    fn flush_loop(&self) {
        let mut pause = RETRY_PAUSE_MIN;
        let mut background = lock(&self.background);
        loop {
            if self.full_memtables.load(SeqCst) == 0 {
                if background.stopping {
                    return;
                }
                background = wait(&self.work, background);
                continue;
            }
            background.flushes_begun += 1;
            drop(background);
            let flushed = self.flush_oldest();
            background = lock(&self.background);
            match flushed {
                Ok(()) => {
                    pause = RETRY_PAUSE_MIN;
                    background.flush_failure = None;
                    background.tree_changes += 1;
                }
                Err(error) => {
                    background =
                        self.note_failure(background, &error, "flushing", true, &mut pause);
                    if background.stopping {
                        return;
                    }
                }
            }
            self.changed.notify_all();
            self.work.notify_all();
        }
    }

    /// Writes the oldest full memtables to a table and frees their part of the log.
    fn flush_oldest(&self) -> Result<()> {
        let view = self.views.load();
        let count = view.full.len().min(FLUSHED_TOGETHER);
        if count == 0 {
            return Ok(());
        }
        let (oldest, later) = view.full.split_at(count);
        let next = later.first().unwrap_or(&view.active);
        let (end_lsn, end_sequence) = (next.start_lsn, next.start_sequence - 1);
        // What switched to the memtables must reach the tree before them.
        let mut pending = self.devices.as_ref().map(|it| (it, it.pending.lock()));
        if let Some((devices, pending)) = &mut pending {
            self.finish_pending(devices, pending, Haste::Much)?;
        }
        let started = self.storage.now();
        // Its last writers may still be copying.
        self.log.wait_visible(end_sequence);
        // Nothing gets ahead of the log: a table must not survive a power cut that a write before it does not.
        self.log.sync(end_lsn)?;
        let tables = oldest.iter().map(|memtable| &memtable.memory.table);
        let plots = oldest.iter().map(|memtable| &*memtable.memory.graves);
        let oldest_snapshot = self.oldest_snapshot();
        let burial = self.bury(plots, end_sequence, oldest_snapshot)?;
        let hurried = view.full.len() > 1;
        if oldest.iter().any(|memtable| !memtable.memory.is_empty()) {
            self.flush_together(
                tables.clone(),
                end_sequence,
                oldest_snapshot,
                &burial,
                hurried,
            )?;
        }
        self.views.change(|view| {
            view.full.drain(..count);
            view.version = self.tree.version();
            view.ground = Arc::clone(&burial.ground);
        });
        burial.end();
        self.full_memtables.fetch_sub(count, SeqCst);
        self.observe_pace();
        let elapsed = self.storage.now().saturating_sub(started);
        let bytes: usize = tables.map(|table| table.used_bytes()).sum();
        self.pace.drained(bytes as u64, elapsed);
        if let Some(devices) = &self.devices {
            // The keeper frees the log, which stays need, too.
            devices.upper.note_durable(end_sequence);
            return Ok(());
        }
        self.log.release_below(end_lsn);
        self.log.remove_freed(true)
    }

    /// Writes `memtables`, which end at `end_sequence`, to one table. If they are empty, the tree notes how far they
    /// went.
    fn flush_together<'a>(
        &self,
        memtables: impl Iterator<Item = &'a Arc<MemTable>>,
        end_sequence: u64,
        oldest_snapshot: u64,
        burial: &Burial<'_>,
        hurried: bool,
    ) -> Result<()> {
        let filled = memtables.filter(|table| !table.is_empty());
        let cursors: Vec<_> = filled.map(MemTable::iter).collect();
        let merged = MergingIterator::new(cursors);
        self.tree.flush(
            merged,
            end_sequence,
            oldest_snapshot,
            &burial.hidden,
            hurried,
        )
    }

    /// Compacts whatever is due, until told to stop.
    fn compact_loop(&self) {
        stand_back();
        let mut pause = RETRY_PAUSE_MIN;
        let mut background = lock(&self.background);
        while !background.stopping {
            let seen = background.tree_changes;
            background.compacting += 1;
            drop(background);
            let outcome = self
                .tree
                .compact_once(&|| self.oldest_snapshot(), self.is_at_rest());
            if matches!(outcome, Ok(true)) {
                self.adopt_version();
            }
            background = lock(&self.background);
            background.compacting -= 1;
            match outcome {
                Ok(true) => {
                    pause = RETRY_PAUSE_MIN;
                    background.compaction_failure = None;
                    background.tree_changes += 1;
                    self.work.notify_all();
                    self.changed.notify_all();
                }
                Ok(false) => {
                    self.changed.notify_all();
                    while background.tree_changes == seen && !background.stopping {
                        background = wait(&self.work, background);
                    }
                }
                Err(error) => {
                    background =
                        self.note_failure(background, &error, "compacting", false, &mut pause);
                }
            }
        }
    }

    /// The oldest snapshot, at `sequence`, was released: compactions may drop what it held back.
    pub(super) fn snapshot_released(&self, sequence: u64) {
        if self.tree.waits_for_release_of(sequence) {
            lock(&self.background).tree_changes += 1;
            self.work.notify_all();
        }
    }

    fn note_failure<'a>(
        &'a self,
        mut background: MutexGuard<'a, Background>,
        error: &Error,
        what: &str,
        flush: bool,
        pause: &mut Duration,
    ) -> MutexGuard<'a, Background> {
        let cause: Arc<str> = format!("{what} failed: {error}").into();
        if *pause == RETRY_PAUSE_MIN {
            log::error!("{cause}");
        }
        if flush {
            background.flush_failure = Some(cause);
        } else {
            background.compaction_failure = Some(cause);
        }
        self.changed.notify_all();
        drop(background);
        self.storage.sleep(*pause);
        *pause = (*pause * 2).min(RETRY_PAUSE_MAX);
        lock(&self.background)
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
                && background.flushes_begun > begun + 1
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
        self.views.change(|view| view.version = self.tree.version());
        self.observe_pace();
        self.retire_graves(self.is_at_rest());
        if !self.has_looked_for_needs() {
            // Put off: the watcher looks.
            self.end_rest();
        }
    }

    /// A cursor was made that looks into so many places of the tree; most are sent somewhere once.
    pub(super) fn charge_readers(&self, places: usize) {
        if self.tree.charge_readers(places.saturating_sub(1) as u64) {
            self.look_again();
        }
    }

    /// Has the background threads look again for something to do.
    pub(super) fn look_again(&self) {
        lock(&self.background).tree_changes += 1;
        self.work.notify_all();
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

    /// Waits until nobody writes, the devices that were settling have settled, and nothing is to be flushed or compacted.
    pub(super) fn wait_idle(&self) -> Result<()> {
        if let Some(devices) = &self.devices {
            drop(devices.pending.lock());
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
            let at_rest = self.is_at_rest();
            if !busy && at_rest && !self.tree.wants_compaction(true) {
                return Ok(());
            }
            if !at_rest {
                self.wake.notify_all();
            }
            background = wait(&self.changed, background);
        }
    }

    /// Tells all threads but the log's writers to end.
    fn stop_background(&self) {
        lock(&self.background).stopping = true;
        self.work.notify_all();
        self.wake.notify_all();
        self.changed.notify_all();
        self.tree.cancel();
    }

    /// Stops everything in order: writes have ended; memory goes to tables, the log is closed, the tree last.
    pub(super) fn shut_down(&self, workers: Workers) -> Result<()> {
        self.end_times();
        self.rotate_now();
        let flushed = self.wait_flushed();
        self.stop_background();
        let others = join(workers.others);
        if flushed.is_ok() {
            // Only now: what compacts beside it could bring tables round graves that none needed any more.
            self.tree.resume();
            self.purge_at_close();
        }
        let synced = flushed.is_ok().then(|| match &self.devices {
            Some(devices) => {
                self.free_log(devices, true)?;
                self.log.remove_freed(true)
            }
            None => self.log.sync_all(),
        });
        self.log.stop();
        join(workers.log_writers)?;
        flushed?;
        others?;
        synced.unwrap_or(Ok(()))?;
        self.log.mark_clean()?;
        if !self.close_graves()? || self.devices.is_some() {
            // LevelDB would not see what is outside the tree.
            self.tree.close_fenced();
            return Ok(());
        }
        self.tree.close()
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::db::{Db, Options};
    use crate::storage::SimStorage;

    /// An open that fails has no thread left in the directory, which somebody else may open next.
    #[test]
    fn when_one_thread_cannot_be_started_the_others_end() {
        let options = Options::default();
        let threads = LOG_WRITERS + 2 + options.background_jobs;
        for starts in 0..threads {
            let db = Db::open_with(SimStorage::new(1), "/db", options.clone()).expect("opens");
            let core = Arc::clone(&db.core);
            let mut left = starts;
            let mut refusing = |core: &Arc<Core>, name: &str, body| {
                if left == 0 {
                    return Err(Error::io(
                        "start thread",
                        name,
                        std::io::ErrorKind::WouldBlock.into(),
                    ));
                }
                left -= 1;
                spawn(core, name, body)
            };
            let started = Workers::start_by(&core, &mut refusing);
            assert!(matches!(started, Err(Error::Io { .. })), "after {starts}");
            drop(started);
            // Those of the database, which have the same core, hear of it as well.
            db.close().expect("nothing is to be written");
            assert_eq!(Arc::strong_count(&core), 1, "after {starts}");
        }
    }
}
