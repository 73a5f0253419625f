//! Graves beyond their memory: written to spill files when they are flushed, and maintained beside everything else.
//!
//! ```text
//!   spill     graves that count beyond `graves_bytes`, dates beyond a part of that: to a      under the lock of the
//!             spill file, which is durable before GRAVES names it                             file, by the flush
//!   promote   all dates of a spill file are past for every reader: its label says so             the same
//!   retire    no table needs any of its graves: it leaves the flushed graves unread           under that lock
//!   maintain  merge, split by dates, leave out what nothing needs: from spill files to        by the watch, outside;
//!             others, which take their place if they are still there                          the end under that lock
//!   sweep     a file goes once the GRAVES in force does not name it and no reader uses it       under that lock
//! ```
//!
//! The need for a grave is judged by a read state in which nothing is on its way to the tree. It may be judged before the
//! spill file that comes of it takes its place: what no table, memtable or stay holds then will not come later.

use super::file::GravesFile;
use super::proof::{Runs, is_worn};
use super::retire::outside;
use super::{BACKOFF_SHARE, GraveStore, LookedAt, Owner};
use crate::cemetery::expiry::micros;
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::sorted::{Grave, SortedGraves};
use crate::cemetery::spilled::rewrite::{SpillRewrite, SpillTask, choose};
use crate::cemetery::spilled::writer::SpillWriter;
use crate::cemetery::spilled::{
    GraveKind, SpillDirectory, SpillFile, SpillHandle, SpillLabel, SpilledGraves,
};
use crate::error::{Error, Result};
use crate::read_state::ReadState;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Arc, lock};
use std::time::Duration;

/// Graves with dates leave memory when they take this part of what graves may take: `GRAVES` is written with all that
/// are in memory whenever one comes to it.
const DATED_SHARE: usize = 8;
/// A spill file is split when one of so many of its dates is past; and in an idle database.
const DUE_SHARE: usize = 2;
const DUE_SHARE_WHEN_IDLE: usize = 8;
/// The next look comes so much later at most.
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(10);
/// After a failure, nothing is tried for so long.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// How far the watch looked for what to do to spill files.
#[derive(Debug, Default)]
pub(super) struct SpillUpkeep {
    /// What was looked at last, with nothing to do.
    looked_at: Option<LookedAt>,
    /// When to look again.
    look_at: Duration,
    /// Nothing is tried before, as something failed.
    failed_until: Duration,
}

/// The spill files that are there.
#[derive(Debug)]
pub(super) struct SpillFiles {
    /// The ones that the file of graves names.
    pub(super) named: Vec<u64>,
    /// These, and others that a reader still uses, or that a file of graves names which may be in force.
    pub(super) files: Vec<Arc<SpillHandle>>,
    /// Whether that file was being replaced when that failed: either may be found.
    pub(super) is_in_doubt: bool,
}

impl SpillFiles {
    /// Those of `spilled`, which the file of graves names.
    pub(super) fn of(spilled: &SpilledGraves) -> Self {
        Self {
            named: spilled.labels().map(|it| it.number).collect(),
            files: spilled.iter().map(|it| Arc::clone(it.file())).collect(),
            is_in_doubt: false,
        }
    }

    /// Notes the new files among them.
    pub(super) fn note(&mut self, spilled: &SpilledGraves) {
        for spill in spilled.iter() {
            let number = spill.label().number;
            if self.files.iter().all(|it| it.number != number) {
                self.files.push(Arc::clone(spill.file()));
            }
        }
    }

    /// Removes the files that neither the file of graves nor a reader needs.
    pub(super) fn sweep(&mut self, directory: &SpillDirectory) {
        if self.is_in_doubt {
            return;
        }
        let named = &self.named;
        self.files.retain(|file| {
            let is_needed = named.contains(&file.number) || Arc::strong_count(file) > 1;
            if !is_needed {
                directory.discard(file.number);
            }
            is_needed
        });
    }
}

impl GraveStore {
    fn new_spill_number(&self) -> u64 {
        self.next_spill.fetch_add(1, Relaxed)
    }

    /// `flushed`, which no reader knows yet, without the graves that are too many for memory: they are in spill files from now on,
    /// which are durable. While it is unknown which file of graves is in force, or a flush is, none could be removed,
    /// and this may be tried again and again: memory is exceeded then.
    pub(super) fn spill(
        &self,
        file: &mut GravesFile,
        flushed: Arc<FlushedGraves>,
    ) -> Result<Arc<FlushedGraves>> {
        let limit = self.parts.limit_bytes;
        let is_too_much =
            |sorted: &SortedGraves, limit| !sorted.is_empty() && sorted.memory_bytes() > limit;
        if file.ahead.is_some() || file.spilled.is_in_doubt {
            return Ok(flushed);
        }
        let mut flushed = flushed;
        if is_too_much(flushed.points(), limit) {
            let spill = self.write_spill(flushed.points(), GraveKind::Counting)?;
            flushed = Arc::new(flushed.without_points(flushed.spilled().and(spill)));
            file.spilled.note(flushed.spilled());
        }
        if is_too_much(flushed.dated(), limit / DATED_SHARE) {
            let spill = self.write_spill(flushed.dated(), GraveKind::Dated)?;
            flushed = Arc::new(flushed.without_dated(flushed.spilled().and(spill)));
        }
        Ok(flushed)
    }

    fn write_spill(&self, sorted: &SortedGraves, kind: GraveKind) -> Result<SpillFile> {
        let directory = &self.parts.directory;
        let mut writer = SpillWriter::create(directory, self.new_spill_number(), kind)?;
        for grave in sorted.iter() {
            if let Err(error) = writer.add(&grave) {
                writer.abandon();
                return Err(error);
            }
        }
        let label = writer.finish()?;
        let mut spilled = self.open_spilled(vec![label])?;
        let none = || Error::Closed("a spill file that was written is missing");
        spilled.pop().ok_or_else(none)
    }

    /// Opens spill files that were just written, and makes their names durable. If that fails, they are removed.
    fn open_spilled(&self, labels: Vec<SpillLabel>) -> Result<Vec<SpillFile>> {
        let directory = &self.parts.directory;
        let numbers: Vec<u64> = labels.iter().map(|it| it.number).collect();
        let opened = labels.into_iter().map(|label| directory.open(label));
        let opened = opened.collect::<Result<Vec<_>>>();
        let durable =
            opened.and_then(|spilled| directory.storage.sync_dir(&directory.dir).map(|()| spilled));
        if durable.is_err() {
            for number in numbers {
                directory.discard(number);
            }
        }
        durable
    }

    /// Whether everything in `read_state` has been looked at for something to do to its spill files, and no other is
    /// left but the ones that a reader uses.
    pub(super) fn has_maintained_spilled(&self, read_state: &ReadState, file: &GravesFile) -> bool {
        let spilled = read_state.flushed.spilled();
        let is_there = |number: u64| spilled.labels().any(|it| it.number == number);
        let is_read = |file: &Arc<SpillHandle>| Arc::strong_count(file) > 1;
        let has_looked = || lock(&self.upkeep).looked_at == Some(self.looked_at(read_state));
        let mut files = file.spilled.files.iter();
        files.all(|file| is_there(file.number) || is_read(file))
            && file.spilled.named.iter().all(|number| is_there(*number))
            && (spilled.is_empty() || has_looked())
    }

    /// When spill files may be looked at again.
    pub(super) fn next_upkeep(&self) -> Duration {
        let upkeep = lock(&self.upkeep);
        upkeep.look_at.max(upkeep.failed_until)
    }

    /// Does the next work on spill files, if there is any. Only the watch does.
    pub(crate) fn maintain_spilled(&self, owner: &dyn Owner) {
        if let Err(error) = self.try_upkeep(owner) {
            // They are as they were.
            lock(&self.upkeep).failed_until = self.now() + FAILURE_PAUSE;
            log::warn!("spill files stay as they are for now: {error}");
        }
    }

    fn try_upkeep(&self, owner: &dyn Owner) -> Result<()> {
        if self.now() < lock(&self.upkeep).failed_until {
            return Ok(());
        }
        {
            let Ok(mut file) = self.file.try_lock() else {
                return Ok(());
            };
            if file.spilled.files.is_empty() || file.ahead.is_some() {
                return Ok(());
            }
            self.forget_retired(&mut file, owner)?;
            file.spilled.sweep(&self.parts.directory);
        }
        let begun = self.now();
        let (looked_at, look_at) = {
            let upkeep = lock(&self.upkeep);
            (upkeep.looked_at, upkeep.look_at)
        };
        let mut settled = None;
        if begun >= look_at {
            owner.while_settled(&mut || settled = Some(self.read_state()));
        }
        let Some(read_state) = settled else {
            return Ok(());
        };
        let looked = Some(self.looked_at(&read_state));
        let task = self.task(&read_state, looked_at == looked, owner);
        let done = task
            .as_ref()
            .map_or(Ok(()), |task| self.rewrite(&read_state, task, owner));
        let mut upkeep = lock(&self.upkeep);
        if task.is_none() || done.is_err() {
            // After a failure not again at once.
            upkeep.looked_at = looked;
        }
        let ended = self.now();
        let pause = ended.saturating_sub(begun).saturating_mul(BACKOFF_SHARE);
        upkeep.look_at = ended + pause.min(LOOK_PAUSE_MAX);
        done
    }

    /// Has the file of graves name no spill file that was retired, and lets it be known which file is in force.
    fn forget_retired(&self, file: &mut GravesFile, owner: &dyn Owner) -> Result<()> {
        let flushed = Arc::clone(&self.read_state().flushed);
        let is_there = |number: &u64| flushed.spilled().labels().any(|it| it.number == *number);
        if !file.spilled.is_in_doubt && file.spilled.named.iter().all(is_there) {
            return Ok(());
        }
        self.write(file, &flushed, owner)
    }

    /// The next work on the spill files of `read_state`, where others than dates have been looked at if
    /// `knows_needs`.
    fn task(
        &self,
        read_state: &ReadState,
        knows_needs: bool,
        owner: &dyn Owner,
    ) -> Option<SpillTask> {
        let time = owner.oldest_time();
        let share = if owner.is_idle() {
            DUE_SHARE_WHEN_IDLE
        } else {
            DUE_SHARE
        };
        let is_due = |label: &SpillLabel| {
            let (past, all) = label.due(time);
            let deadline = self.parts.deadline.map(|it| micros(it / 4));
            let is_late = |span| label.earliest().saturating_add(span) <= time;
            past > 0 && past * share >= all || deadline.is_some_and(is_late)
        };
        let outside = outside(read_state.memtables_from(), owner);
        let is_worn =
            |spill: &SpillFile| !knows_needs && is_worn(spill, &read_state.version, &outside);
        choose(read_state.flushed.spilled(), time, is_due, is_worn)
    }

    /// Does `task` to spill files of `read_state`.
    fn rewrite(&self, read_state: &ReadState, task: &SpillTask, owner: &dyn Owner) -> Result<()> {
        let outside = outside(read_state.memtables_from(), owner);
        let mut runs = Runs::new(&read_state.version, read_state.flushed.last_number());
        let mut is_needed =
            |grave: &Grave<'_>| outside.needs(grave.sequence, grave.sequence) || runs.need(grave);
        let mut rewrite = SpillRewrite {
            site: &self.parts.directory,
            new_number: &|| self.new_spill_number(),
            oldest_snapshot: owner.oldest_snapshot(),
            is_needed: &mut is_needed,
            is_cancelled: &|| owner.is_stopping(),
        };
        let labels = match rewrite.run(task) {
            // The database is being closed.
            Err(Error::Closed(_)) => return Ok(()),
            labels => labels?,
        };
        let outputs = self.open_spilled(labels)?;
        let mut file = lock(&self.file);
        let numbers: Vec<u64> = outputs.iter().map(|it| it.label().number).collect();
        let flushed = Arc::clone(&self.read_state().flushed);
        let replaced = flushed.spilled().replaced(task.inputs(), outputs);
        let Some(spilled) = replaced.filter(|_| file.ahead.is_none()) else {
            // They were promoted or retired meanwhile, or a flush failed.
            for number in numbers {
                self.parts.directory.discard(number);
            }
            return Ok(());
        };
        let flushed = Arc::new(FlushedGraves::clone(&flushed).with_spilled(spilled));
        self.write(&mut file, &flushed, owner)?;
        self.show(flushed);
        Ok(())
    }
}
