//! A worker that fails after some tables: they are kept if they are sound, and the rest alone is merged.

use super::super::{
    History, assert_sound, listed_tables, machine, open, open_offloading, settle, table_files,
};
use super::{Desk, Near, job_directories, kept, told};
use crate::lsm::compaction::Traffic;
use crate::lsm::compaction::offload::{LinkError, LocalReason, OffloadStats};
use crate::lsm::tree::Tree;
use crate::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use crate::storage::sim::SimStorage;
use crate::storage::{Storage, read_whole};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use waystation_format::compaction::{Answer, Call, Finished, JobState, Outcome, Request, Table};

/// What the worker's process does once it has told of its tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It says that it failed.
    Fails,
    /// It is gone.
    Breaks,
    /// It says nothing any more.
    Hangs,
}

/// What happens to the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Works,
    /// It ends as the first one did, after as many tables more.
    Fails,
    /// No worker can be reached.
    Unreachable,
}

type Lie = fn(&mut Finished);

/// A worker whose storage has room for so many tables of an attempt, and that changes what it tells of them.
fn failing(machine: &Arc<SimStorage>, tables: u64, (end, next): (End, Next), lie: Lie) -> Near {
    let rules = FaultRules::new();
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    let attempts = AtomicU64::new(0);
    let has_told = AtomicU64::new(0);
    Near::with(&storage, move |desk, request| {
        if let Call::Begin(_) = &request.call {
            let attempt = attempts.fetch_add(1, Ordering::Relaxed);
            rules.clear();
            match next {
                Next::Works if attempt > 0 => {}
                Next::Unreachable if attempt > 0 => {
                    return Err(LinkError::Unreachable("nothing listens".into()));
                }
                _ => {
                    let full = Fault::Fail(Refusal::InputOutput);
                    let rule = Rule::new(Operation::Open, full).on("compaction-");
                    rules.add(rule.after(tables));
                }
            }
        } else if has_told.swap(0, Ordering::Relaxed) > 0 {
            return Err(match end {
                End::Hangs => LinkError::Silent(Duration::from_secs(10)),
                _ => LinkError::Broken("killed".into()),
            });
        }
        Ok(told_by(desk, request, end, &has_told, lie).encode())
    })
}

fn told_by(desk: &Desk, request: &Request, end: End, has_told: &AtomicU64, lie: Lie) -> Answer {
    let mut answer = desk.answer(request);
    if let Some(finished) = &mut answer.finished {
        lie(finished);
    }
    let has_failed = match &answer.state {
        JobState::Over(report) => matches!(&report.outcome, Outcome::Failed(..)),
        _ => false,
    };
    if has_failed && end != End::Fails {
        answer.state = JobState::Running(2048);
        has_told.store(1, Ordering::Relaxed);
    }
    answer
}

/// A tree that is due for a merge into some dozen tables.
fn fill(tree: &Tree, history: &mut History) {
    for memtable in 0..6 {
        super::super::work::fill(tree, history, memtable..300, 3);
    }
}

/// The tables of level 1, byte for byte.
fn level_1(machine: &Arc<SimStorage>, tree: &Tree) -> Vec<Vec<u8>> {
    let version = tree.version();
    let tables = version.level(1).iter();
    let read = |number| read_whole(&**machine, &tree.tables.path(number)).unwrap();
    tables.map(|table| read(table.number)).collect()
}

/// The tables of level 1 after one merge without a worker.
fn expected() -> Vec<Vec<u8>> {
    let machine = machine(3);
    let storage: Arc<dyn Storage> = machine.clone();
    let tree = open(&storage).unwrap();
    let mut history = History::default();
    fill(&tree, &mut history);
    assert!(
        tree.compact_once(&|| history.last, Traffic::Writes)
            .unwrap()
    );
    level_1(&machine, &tree)
}

/// Has a tree merge once with this worker. The tables have to be those of a merge without a worker.
fn merged(near: impl FnOnce(&Arc<SimStorage>) -> Near, expected: &[Vec<u8>]) -> OffloadStats {
    let machine = machine(3);
    machine.stop_clock();
    let storage: Arc<dyn Storage> = machine.clone();
    let tree = open_offloading(&storage, near(&machine).offload()).unwrap();
    let mut history = History::default();
    fill(&tree, &mut history);
    assert!(
        tree.compact_once(&|| history.last, Traffic::Writes)
            .unwrap()
    );
    let stats = told(&tree);
    assert!(level_1(&machine, &tree) == expected, "other tables");
    for _ in 0..2 {
        history.compare(&tree, history.last);
        assert_sound(&tree);
        assert_eq!(table_files(&*machine), listed_tables(&tree.version()));
        assert!(job_directories(&*machine).is_empty());
        settle(&tree, history.last);
    }
    stats
}

fn honest(_: &mut Finished) {}

#[test]
fn the_rest_alone_is_merged_after_any_number_of_tables() {
    let expected = expected();
    let count = expected.len() as u64;
    assert!(count > 8, "{count} tables");
    let mut read = None;
    for tables in 0..count {
        for end in [End::Fails, End::Breaks, End::Hangs] {
            for next in [Next::Works, Next::Fails, Next::Unreachable] {
                let name = format!("{tables} tables, {end:?}, {next:?}");
                let stats = merged(|it| failing(it, tables, (end, next), honest), &expected);
                let is_kept = u64::from(tables > 0);
                assert_eq!(stats.resumed, is_kept, "{name}: {stats:?}");
                // Silence has cost a lease already: there is no other attempt.
                let is_repeated = end != End::Hangs;
                assert_eq!(stats.repeated, u64::from(is_repeated), "{name}");
                // What it makes it opens once more.
                let is_short = is_repeated && 2 * (count - tables) <= tables;
                let is_whole = match next {
                    Next::Works => is_repeated,
                    Next::Fails => is_short,
                    Next::Unreachable => false,
                };
                assert_eq!((stats.jobs, stats.local_jobs), counted(is_whole), "{name}");
                assert_eq!(stats.kept_bytes > 0, tables > 0, "{name}");
                // Each byte is read at the worker or here, once.
                let read_bytes = stats.read_bytes + stats.local_read_bytes;
                assert_eq!(*read.get_or_insert(read_bytes), read_bytes, "{name}");
            }
        }
    }
}

/// Jobs of the worker, and local ones.
fn counted(is_whole: bool) -> (u64, u64) {
    if is_whole { (1, 0) } else { (0, 1) }
}

/// What is known to be wrong at once, before any table is taken over.
const CONTRADICTIONS: [(&str, Lie); 9] = [
    ("the rest begins within a table", |it| {
        it.rest = it.tables[1].smallest[..8].to_vec();
    }),
    ("no rest", |it| it.rest = Vec::new()),
    ("a key dropped", |it| it.counters.entries_out -= 1),
    ("a key called shadowed that is there", |it| {
        it.counters.entries_out -= 1;
        it.counters.shadowed += 1;
    }),
    ("more read than there is", |it| {
        it.counters.entries_in += 1000;
        it.counters.hidden += 1000;
    }),
    ("counters beyond all numbers", |it| {
        it.counters.entries_in = u64::MAX;
        it.counters.hidden = u64::MAX;
    }),
    ("a key before all", |it| {
        it.tables[0].smallest.insert(0, b'!');
    }),
    ("disorder", |it| it.tables.swap(0, 1)),
    ("graves that were not applied", |it| {
        it.tables[0].facts.as_mut().unwrap().purged_through = 1_000_000;
    }),
];

/// What is known to be wrong once the tables are looked at.
const DAMAGES: [(&str, Lie); 2] = [
    ("no such table", |it| it.tables[1].number = 77),
    ("another length", |it| it.tables[1].file_bytes -= 1),
];

#[test]
fn finished_tables_that_are_not_what_was_told_are_not_kept() {
    let expected = expected();
    let contradictions = CONTRADICTIONS.map(|lie| (lie, LocalReason::Contradiction));
    let damages = DAMAGES.map(|lie| (lie, LocalReason::Damaged));
    for ((name, lie), reason) in contradictions.into_iter().chain(damages) {
        for end in [End::Fails, End::Breaks] {
            let near = |it: &Arc<SimStorage>| failing(it, 3, (end, Next::Works), lie);
            let stats = merged(near, &expected);
            assert_eq!(stats.local.get(&reason), Some(&1), "{name}: {stats:?}");
            assert_eq!((stats.resumed, stats.jobs), (0, 0), "{name}: {stats:?}");
        }
    }
}

/// A worker that leaves keys out between its tables and the rest is found out when everything is counted.
#[test]
fn keys_left_out_before_the_rest_are_missed_in_the_end() {
    let lie: Lie = |it| it.rest = b"00000250".to_vec();
    let expected = expected();
    let near = |it: &Arc<SimStorage>| failing(it, 3, (End::Breaks, Next::Works), lie);
    let stats = merged(near, &expected);
    assert_eq!(stats.local.get(&LocalReason::Contradiction), Some(&1));
    assert_eq!((stats.resumed, stats.jobs), (0, 0));
    // The rest is merged here, and then all of it.
    let near = |it: &Arc<SimStorage>| failing(it, 3, (End::Hangs, Next::Works), lie);
    let stats = merged(near, &expected);
    assert_eq!(stats.local.get(&LocalReason::Silent), Some(&1));
    assert_eq!((stats.resumed, stats.read_bytes), (0, 0), "{stats:?}");
}

/// The engine's own trouble: the tables are made again, and no table is left over.
#[test]
fn tables_that_cannot_be_taken_over_are_made_again() {
    let machine = machine(3);
    machine.stop_clock();
    let rules = FaultRules::new();
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    let near = failing(&machine, 3, (End::Breaks, Next::Works), honest);
    let tree = open_offloading(&storage, near.offload()).unwrap();
    let mut history = History::default();
    fill(&tree, &mut history);
    let refused = Fault::Fail(Refusal::InputOutput);
    let second = Rule::new(Operation::Rename, refused).on("compaction-");
    rules.add(second.after(1).times(1));
    assert!(
        tree.compact_once(&|| history.last, Traffic::Writes)
            .unwrap()
    );
    let stats = told(&tree);
    assert_eq!(
        (stats.resumed, stats.jobs, stats.repeated),
        (0, 1, 1),
        "{stats:?}"
    );
    assert!(level_1(&machine, &tree) == expected(), "other tables");
    history.compare(&tree, history.last);
    assert_eq!(table_files(&*machine), listed_tables(&tree.version()));
    assert!(job_directories(&*machine).is_empty());
}

#[test]
fn a_worker_that_tells_of_tables_without_an_end_is_given_up() {
    let machine = machine(3);
    machine.stop_clock();
    let storage: Arc<dyn Storage> = machine.clone();
    let endless = Near::with(&storage, |_, request| {
        let mut answer = Answer::new((request.id, request.attempt), JobState::Running(1));
        let table = Table {
            smallest: vec![b'k'; 1 << 20],
            largest: vec![b'k'; 1 << 20],
            ..Table::default()
        };
        answer.finished = Some(Finished {
            tables: vec![table],
            ..Finished::default()
        });
        Ok(answer.encode())
    });
    let tree = open_offloading(&storage, endless.offload()).unwrap();
    let mut history = History::default();
    fill(&tree, &mut history);
    assert!(
        tree.compact_once(&|| history.last, Traffic::Writes)
            .unwrap()
    );
    assert_eq!(kept(&tree, LocalReason::Confused), 1);
    history.compare(&tree, history.last);
}

/// The engine asks for tables after those it knows, and hears of each once.
#[test]
fn each_table_is_told_of_once() {
    let machine = machine(3);
    let storage: Arc<dyn Storage> = machine.clone();
    let known = Arc::new(AtomicU64::new(0));
    let asked = Arc::clone(&known);
    let near = Near::with(&storage, move |desk, request| {
        let Call::Watch(watch) = &request.call else {
            return Ok(desk.answer(request).encode());
        };
        asked.fetch_max(watch.known, Ordering::Relaxed);
        let mut answer = desk.answer(request);
        let finished = answer.finished.take().expect("tables");
        let count = finished.tables.len();
        if watch.known < count as u64 {
            let at = watch.known as usize;
            answer.state = JobState::Running(2048);
            answer.finished = Some(Finished {
                tables: vec![finished.tables[at].clone()],
                ..finished
            });
        }
        Ok(answer.encode())
    });
    let tree = open_offloading(&storage, near.offload()).unwrap();
    let mut history = History::default();
    fill(&tree, &mut history);
    assert!(
        tree.compact_once(&|| history.last, Traffic::Writes)
            .unwrap()
    );
    assert_eq!(told(&tree).jobs, 1, "{:?}", told(&tree));
    assert!(known.load(Ordering::Relaxed) > 8);
    assert_eq!(table_files(&*machine), listed_tables(&tree.version()));
}
