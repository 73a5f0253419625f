//! Bulk load: sorted entries from outside the tree, with the sequence numbers they have.
//!
//! A load takes the place of a flush, so it and flushes come one at a time. Each run goes as deep as nothing is in
//! its way, down to the last level: it was in the upper level for as long as it takes to see that it stays, and what lies
//! that deep is merged only with what comes for its keys. A table is in the way if it holds a key of the run's range. One
//! that only reaches over it, as nearly all do that were flushed, is looked into, and passed by. What has to go to level 0
//! should be one run. All runs enter the tree by one edit. The caller sees to it that for every key nothing newer is in
//! the tree, and nothing older in a memtable.

use super::Tree;
use super::work::Claimed;
use crate::error::Result;
use crate::lsm::compaction::{JobResult, remove_outputs, run};
use crate::lsm::version::{Change, LEVELS, Progress, UserRange};
use crate::sst::EntryStream;
use crate::sst::TableMeta;
use crate::sync::{Arc, MutexGuard, lock};

/// A bulk load under way. Dropped without [`Load::install`], it leaves nothing behind.
pub(crate) struct Load<'t> {
    tree: &'t Tree,
    oldest_snapshot: u64,
    tables: Vec<(usize, TableMeta)>,
    claims: Vec<Claimed<'t>>,
    _one_at_a_time: MutexGuard<'t, ()>,
}

/// Where a run can go.
pub(crate) struct Place<'t> {
    level: usize,
    claimed: Option<Claimed<'t>>,
}

impl Place<'_> {
    /// The level; what goes to level 0 should come in one run.
    pub(crate) fn level(&self) -> usize {
        self.level
    }
}

impl Tree {
    /// Begins a bulk load; no flush runs meanwhile. Versions that no reader at `oldest_snapshot` or later can
    /// reach are left out.
    pub(crate) fn begin_load(&self, oldest_snapshot: u64) -> Load<'_> {
        Load {
            tree: self,
            oldest_snapshot,
            tables: Vec::new(),
            claims: Vec::new(),
            _one_at_a_time: lock(&self.flushing),
        }
    }
}

impl<'t> Load<'t> {
    /// Finds the place for a run of keys from `smallest` to `largest` (both included).
    pub(crate) fn find_place(&self, smallest: &[u8], largest: &[u8]) -> Place<'t> {
        let range = UserRange::new(smallest, largest);
        let clear = self.count_clear_levels(&range);
        let (_, level, claimed) = self.tree.find_place(&range, clear, LEVELS - 1);
        Place { level, claimed }
    }

    /// How many levels from the first one on hold no key of `range`. Later versions have no fewer: nothing is flushed
    /// meanwhile, and merges bring keys down, never up.
    fn count_clear_levels(&self, range: &UserRange<'_>) -> usize {
        let version = self.tree.version();
        let is_clear = |level: &usize| {
            let mut reaching = version.reaching(*level, range);
            // One that cannot be read is in the way, and told of by the job that has to read it.
            !reaching.any(|table| self.tree.holds_key(table, range).unwrap_or(true))
        };
        (0..LEVELS).take_while(is_clear).count()
    }

    /// Writes a run, whose keys lie between `smallest` and `largest`, to `place`.
    pub(crate) fn write<E: EntryStream>(
        &mut self,
        place: Place<'t>,
        (smallest, largest): (&[u8], &[u8]),
        entries: &mut E,
    ) -> Result<()> {
        let range = UserRange::new(smallest, largest);
        let version = self.tree.version();
        let Place { level, claimed } = place;
        let job = self
            .tree
            .flush_job(&version, level, &range, self.oldest_snapshot);
        let new_number = || self.tree.versions.new_file_number();
        let workplace = self.tree.workplace(None, &new_number, &|| false);
        let JobResult { outputs, counters } = run(&job, entries, &workplace)?;
        lock(&self.tree.totals).flushed(&counters);
        self.tables
            .extend(outputs.into_iter().map(|table| (level, table)));
        self.claims.extend(claimed);
        Ok(())
    }

    /// Makes all runs part of the tree: durable and visible on return.
    pub(crate) fn install(mut self) -> Result<()> {
        let tables = std::mem::take(&mut self.tables);
        let tree = self.tree;
        let added = tables
            .into_iter()
            .map(|(level, table)| (level, Arc::new(table)))
            .collect();
        let change = Change {
            removed: Vec::new(),
            added,
        };
        tree.versions.apply(&change, Progress::default())?;
        drop(self);
        tree.remove_garbage();
        Ok(())
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        let tables: Vec<_> = self.tables.drain(..).map(|(_, table)| table).collect();
        if !tables.is_empty() {
            let new_number = || self.tree.versions.new_file_number();
            remove_outputs(&self.tree.workplace(None, &new_number, &|| false), &tables);
        }
    }
}
