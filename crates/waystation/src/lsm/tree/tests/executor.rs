//! Tests of what the tree does with the result of an executor: any that gives what a merge must give will do, and none
//! can do harm by giving anything else.

use super::{History, assert_sound, listed_tables, machine, open, settle, table_files};
use crate::error::{Error, Result};
use crate::lsm::compaction::Traffic;
use crate::lsm::compaction::{CompactionExecutor, Job, JobResult, LocalExecutor, Workplace};
use crate::lsm::tree::Tree;
use crate::storage::Storage;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// What an executor makes of the right result before it gives it back.
type Change = fn(&mut JobResult);

/// Runs jobs here, and changes the first few results.
struct Changing {
    change: Change,
    times: AtomicUsize,
}

impl CompactionExecutor for Changing {
    fn execute(&self, job: &Job, place: &Workplace<'_>) -> Result<JobResult> {
        let mut result = LocalExecutor.execute(job, place)?;
        let left = self.times.load(Ordering::Relaxed);
        if left > 0 {
            self.times.store(left - 1, Ordering::Relaxed);
            (self.change)(&mut result);
        }
        Ok(result)
    }
}

/// A tree that is due for a merge, whose executor changes its first result so.
fn due(storage: &Arc<dyn Storage>, history: &mut History, change: Change) -> Tree {
    let mut tree = open(storage).unwrap();
    tree.executor = Box::new(Changing {
        change,
        times: AtomicUsize::new(1),
    });
    for memtable in 0..6 {
        super::work::fill(&tree, history, memtable..300, 3);
    }
    tree
}

#[test]
fn a_result_that_cannot_be_is_thrown_away_and_the_job_done_again() {
    let changes: [Change; 5] = [
        |result| result.counters.entries_out -= 1,
        |result| result.counters.entries_in += 1,
        |result| result.outputs.reverse(),
        |result| result.outputs[0].smallest.insert(0, b'!'),
        |result| {
            let mut facts = result.outputs[0].facts().unwrap();
            facts.purged_through += 1_000_000;
            result.outputs[0].facts = Some(facts).into();
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let machine = machine(number as u64);
        let storage: Arc<dyn Storage> = machine.clone();
        let mut history = History::default();
        let tree = due(&storage, &mut history, change);
        let before = listed_tables(&tree.version());
        let error = tree
            .compact_once(&|| history.last, Traffic::Writes)
            .unwrap_err();
        assert!(
            matches!(error, Error::Corruption { .. }),
            "{number}: {error}"
        );
        assert_eq!(listed_tables(&tree.version()), before, "{number}");
        assert_eq!(table_files(&*machine), before, "{number}: a file was left");
        settle(&tree, history.last);
        history.compare(&tree, history.last);
        assert_sound(&tree);
        assert_eq!(table_files(&*machine), listed_tables(&tree.version()));
    }
}

#[test]
fn a_result_that_is_right_is_installed_whatever_ran_the_job() {
    let machine = machine(9);
    let storage: Arc<dyn Storage> = machine.clone();
    let mut history = History::default();
    let tree = due(&storage, &mut history, |_| ());
    assert!(
        tree.compact_once(&|| history.last, Traffic::Writes)
            .unwrap()
    );
    settle(&tree, history.last);
    history.compare(&tree, history.last);
    assert_sound(&tree);
}
