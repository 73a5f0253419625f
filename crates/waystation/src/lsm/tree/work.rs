//! Compactions, from the choice to the removal of what they made needless.

use super::Tree;
use crate::background::LEVEL0_SLOW;
use crate::error::{Error, Result};
use crate::lsm::compaction::{
    Choice, Claim, Context, Counters, Hidden, Job, JobResult, OutputLayout, Running, Traffic,
    Workplace, contradiction, pick, pick_burdened, pick_clean, pick_range, remove_outputs,
};
use crate::lsm::version::{Change, LEVELS, Progress, UserRange, Version};
use crate::sst::TableMeta;
use crate::storage::{RateLimit, as_micros, at_low_priority};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, lock, wait};
use std::time::Duration;

/// How many tables are opened between two looks for something to do.
const TABLES_TO_LEARN: usize = 16;

/// A claim, given up when this is dropped.
pub(super) struct Claimed<'t> {
    tree: &'t Tree,
    ticket: u64,
}

impl<'t> Claimed<'t> {
    /// Takes `claim`, in the critical section in which it was found to stand in no other's way.
    pub(super) fn take(tree: &'t Tree, running: &mut Running, claim: Claim) -> Self {
        Self {
            tree,
            ticket: running.add(claim),
        }
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        lock(&self.tree.running).remove(self.ticket);
        self.tree.claim_given_up.notify_all();
    }
}

/// A choice, claimed.
struct Work<'t> {
    choice: Choice,
    _claimed: Claimed<'t>,
    /// Keeps the files of the inputs.
    _version: Arc<Version>,
}

impl Tree {
    /// Does the next thing worth doing; whether there was any. `oldest_snapshot` gives the oldest sequence
    /// number that any reader reads at, or will.
    pub(crate) fn compact_once(
        &self,
        oldest_snapshot: &dyn Fn() -> u64,
        traffic: Traffic,
    ) -> Result<bool> {
        if self.is_cancelled() {
            return Ok(false);
        }
        let work = {
            let mut running = lock(&self.running);
            let version = self.version();
            let snapshot = oldest_snapshot();
            self.last_snapshot.store(snapshot, Ordering::Relaxed);
            let hidden = self.hidden_from(snapshot);
            let choice = pick(&Context {
                traffic,
                seek_credit_bytes: self.seek_credit.bytes(),
                ..self.context(&version, &running, snapshot, &hidden)
            });
            if let Choice::Merge(job) = &choice {
                self.seek_credit
                    .pay(job.tables().map(|table| table.file_bytes).sum());
            }
            self.claim(&mut running, choice, version)
        };
        match work {
            Some(work) => self.do_work(work),
            None => Ok(self.learn_facts()),
        }
    }

    /// Opens tables found in the MANIFEST whose deletions are unknown yet, a few at a time; whether there were any.
    /// One that cannot be opened is left alone: its reader is told.
    fn learn_facts(&self) -> bool {
        let version = self.version();
        let unread = version
            .tables()
            .filter(|(_, table)| table.facts.are_unread());
        let mut found = false;
        for (_, table) in unread.take(TABLES_TO_LEARN) {
            found = true;
            let told = self.tables.get(table).map(|opened| opened.facts());
            table.facts.learn(told.unwrap_or_else(|error| {
                log::warn!("a table's properties cannot be read: {error}");
                None
            }));
        }
        found
    }

    /// Whether the release of the snapshot at `sequence` lets a compaction drop deletions that it held back.
    pub(crate) fn waits_for_release_of(&self, sequence: u64) -> bool {
        let holds_back = |table: &TableMeta| {
            table
                .facts()
                .is_some_and(|facts| facts.deletions > 0 && facts.largest_sequence > sequence)
        };
        if self.last_snapshot.load(Ordering::Relaxed) != sequence {
            return false;
        }
        let hidden = self.hidden_from(u64::MAX);
        (hidden.through > sequence && !hidden.graves.is_empty())
            || self.version().tables().any(|(_, table)| holds_back(table))
    }

    /// Whether [`compact_once`](Self::compact_once) would find something to do.
    pub(crate) fn wants_compaction(&self, traffic: Traffic) -> bool {
        let running = lock(&self.running);
        let version = self.version();
        if version.tables().any(|(_, table)| table.facts.are_unread()) {
            return true;
        }
        let snapshot = self.last_snapshot.load(Ordering::Relaxed);
        let hidden = self.hidden_from(snapshot);
        let context = Context {
            traffic,
            ..self.context(&version, &running, snapshot, &hidden)
        };
        !matches!(pick(&context), Choice::Nothing)
    }

    /// Brings all keys from `lower` to `upper` (both included) to the deepest level that has any, and drops
    /// what no reader reads on the way. Waits for compactions that stand in the way.
    pub(crate) fn compact_range(
        &self,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        oldest_snapshot: &dyn Fn() -> u64,
    ) -> Result<()> {
        let range = UserRange {
            smallest: lower,
            largest: upper,
        };
        for level in 0..LEVELS - 1 {
            if self
                .deepest(&range)
                .is_none_or(|deepest| level >= deepest.max(1))
            {
                break;
            }
            self.compact_level(level, range, oldest_snapshot)?;
        }
        if let Some(level) = self.deepest(&range) {
            let clean = |context: &Context<'_>| pick_clean(context, level, &range);
            while let Some(work) = self.wait_for(&clean, oldest_snapshot)? {
                self.do_work(work)?;
            }
        }
        self.remove_garbage();
        Ok(())
    }

    /// Leaves out of all tables what graves hide from all readers, if the tables that hold any of that have at most
    /// `bytes_max`.
    pub(crate) fn purge(&self, bytes_max: u64, oldest_snapshot: &dyn Fn() -> u64) -> Result<()> {
        let hidden = self.hidden_from(oldest_snapshot());
        let version = self.version();
        let is_burdened = |table: &TableMeta| {
            let burden = hidden.burden(table);
            burden.points > 0 || burden.ranges
        };
        let tables = version.tables().map(|(_, table)| table);
        let burdened = tables.filter(|table| is_burdened(table));
        let bytes: u64 = burdened.map(|table| table.file_bytes).sum();
        drop(version);
        if bytes > bytes_max {
            return Ok(());
        }
        while self.learn_facts() {}
        while let Some(work) = self.wait_for(&pick_burdened, oldest_snapshot)? {
            self.do_work(work)?;
        }
        Ok(())
    }

    /// The deepest level that may hold a key of `range`.
    fn deepest(&self, range: &UserRange<'_>) -> Option<usize> {
        let version = self.version();
        (0..LEVELS)
            .rev()
            .find(|&level| version.overlaps(level, range))
    }

    fn compact_level(
        &self,
        level: usize,
        range: UserRange<'_>,
        oldest_snapshot: &dyn Fn() -> u64,
    ) -> Result<()> {
        let newest = self
            .version()
            .level(0)
            .first()
            .map_or(0, |table| table.number);
        // Below level 0 each step begins behind the one before, so that writers cannot keep this going.
        let mut passed: Option<Vec<u8>> = None;
        loop {
            let smallest = passed.as_deref().or(range.smallest);
            let rest = UserRange { smallest, ..range };
            let next = |context: &Context<'_>| pick_range(context, level, &rest, newest);
            let Some(work) = self.wait_for(&next, oldest_snapshot)? else {
                return Ok(());
            };
            if level > 0 {
                let last = work
                    .choice
                    .footprint(self.order())
                    .and_then(|(_, _, range)| range.largest);
                // Neighbours with a key in common went together: the next table begins behind it.
                let next = last.and_then(|last| self.first_behind(level, last));
                if next
                    .as_deref()
                    .is_none_or(|next| range.is_before(self.order(), next))
                {
                    self.do_work(work)?;
                    return Ok(());
                }
                passed = next;
            }
            self.do_work(work)?;
        }
    }

    /// The first user key of the first table of a sorted `level` that begins behind `key`.
    fn first_behind(&self, level: usize, key: &[u8]) -> Option<Vec<u8>> {
        let version = self.version();
        let tables = version.level(level);
        let is_at_or_before =
            |table: &Arc<TableMeta>| !self.order().is_before(key, table.smallest_user_key());
        let next = tables.get(tables.partition_point(is_at_or_before))?;
        Some(next.smallest_user_key().to_vec())
    }

    /// The next step of a compaction by hand, as `next` finds it once nothing running stands in its way; `None`
    /// when there is none left.
    fn wait_for(
        &self,
        next: &dyn Fn(&Context<'_>) -> Option<Choice>,
        oldest_snapshot: &dyn Fn() -> u64,
    ) -> Result<Option<Work<'_>>> {
        let mut running = lock(&self.running);
        loop {
            if self.is_cancelled() {
                return Err(Error::Closed("closed"));
            }
            let version = self.version();
            let snapshot = oldest_snapshot();
            let hidden = self.hidden_from(snapshot);
            let context = self.context(&version, &running, snapshot, &hidden);
            if let Some(choice) = next(&context) {
                return Ok(self.claim(&mut running, choice, version));
            }
            running = wait(&self.claim_given_up, running);
        }
    }

    pub(super) fn context<'a>(
        &'a self,
        version: &'a Version,
        running: &'a Running,
        smallest_snapshot: u64,
        hidden: &'a Hidden,
    ) -> Context<'a> {
        Context {
            version,
            shape: &self.settings.shape,
            layout: OutputLayout::from(&self.settings.table),
            running,
            smallest_snapshot,
            traffic: Traffic::Writes,
            seek_credit_bytes: 0,
            hidden,
        }
    }

    /// Takes the claim of `choice`, in the critical section in which it was chosen.
    fn claim(
        &self,
        running: &mut Running,
        choice: Choice,
        version: Arc<Version>,
    ) -> Option<Work<'_>> {
        let (tables, level, range) = choice.footprint(version.order())?;
        let claim = Claim::new(tables, level, &range);
        let claimed = Claimed::take(self, running, claim);
        Some(Work {
            choice,
            _claimed: claimed,
            _version: version,
        })
    }

    fn do_work(&self, work: Work<'_>) -> Result<bool> {
        let done = match &work.choice {
            Choice::Nothing => Ok(false),
            Choice::Move(moved) => {
                let change = Change {
                    removed: moved
                        .tables
                        .iter()
                        .map(|table| (moved.from, table.number))
                        .collect(),
                    added: moved
                        .tables
                        .iter()
                        .map(|table| (moved.to, Arc::clone(table)))
                        .collect(),
                };
                let moved_bytes = moved.tables.iter().map(|table| table.file_bytes).sum();
                lock(&self.totals).moved(moved.tables.len() as u64, moved_bytes);
                self.versions
                    .apply(&change, Progress::default())
                    .map(|()| true)
            }
            Choice::Drop(discard) => {
                let removed = discard
                    .tables
                    .iter()
                    .map(|table| (discard.level, table.number))
                    .collect();
                let change = Change {
                    removed,
                    added: Vec::new(),
                };
                lock(&self.totals).dropped(discard.tables.len() as u64);
                self.versions
                    .apply(&change, Progress::default())
                    .map(|()| true)
            }
            Choice::Merge(job) => match at_low_priority(|| self.run_job(job)) {
                Err(Error::Closed(_)) if self.is_cancelled() => Ok(false),
                outcome => outcome.map(|()| true),
            },
        };
        drop(work);
        self.remove_garbage();
        done
    }

    fn run_job(&self, job: &Job) -> Result<()> {
        let new_number = || self.versions.new_file_number();
        let cancelled = || self.is_cancelled();
        let is_pressed = || self.version().level(0).len() >= LEVEL0_SLOW;
        let workplace = Workplace {
            is_pressed: &is_pressed,
            ..self.workplace(self.compaction_rate.as_ref(), &new_number, &cancelled)
        };
        let started = self.storage.thread_cpu();
        let result = self.executor.execute(job, &workplace)?;
        if let Some(reason) = contradiction(job, &result, self.order()) {
            remove_outputs(&workplace, &result.outputs);
            return Err(Error::corruption(
                &self.dir,
                0,
                format!("a compaction went wrong: {reason}"),
            ));
        }
        let JobResult { outputs, counters } = result;
        let mut change = Change::default();
        for input in &job.inputs {
            change
                .removed
                .extend(input.tables.iter().map(|table| (input.level, table.number)));
        }
        change.added = outputs
            .into_iter()
            .map(|table| (job.output_level, Arc::new(table)))
            .collect();
        self.versions.apply(&change, Progress::default())?;
        let counters = Counters {
            cpu_us: self.cpu_us_since(started),
            ..counters
        };
        lock(&self.totals).merged(job.output_level, &counters);
        Ok(())
    }

    /// Processor time of this thread since it was `started` (microseconds).
    pub(super) fn cpu_us_since(&self, started: Duration) -> u64 {
        as_micros(self.storage.thread_cpu().saturating_sub(started))
    }

    pub(super) fn workplace<'a>(
        &'a self,
        rate: Option<&'a Arc<RateLimit>>,
        new_number: &'a dyn Fn() -> u64,
        cancelled: &'a dyn Fn() -> bool,
    ) -> Workplace<'a> {
        Workplace {
            storage: &self.storage,
            tables: &self.tables,
            outputs: &self.tables,
            rate,
            new_number,
            flushed_bytes: 0,
            cancelled,
            is_pressed: &|| false,
            finished: None,
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
