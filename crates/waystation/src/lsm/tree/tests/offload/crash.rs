//! Engine or worker ends at any call: acknowledged writes are there, every file is sound, and no file is left over.

use super::super::{
    Entries, History, assert_sound, dir, flush, listed_tables, machine, open, open_offloading,
    table_files,
};
use super::{Near, job_directories, told};
use crate::directory::remove_job_directories;
use crate::lsm::compaction::Traffic;
use crate::lsm::compaction::offload::{JobControl, LinkError};
use crate::lsm::tree::Tree;
use crate::storage::Storage;
use crate::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use crate::storage::sim::{Crash, SimStorage};
use crate::sync::Arc;
use waystation_format::compaction::{Call, Outcome};
use waystation_format::order::Order;

const OPERATIONS: [Operation; 10] = [
    Operation::Write,
    Operation::Sync,
    Operation::SyncDir,
    Operation::Rename,
    Operation::Open,
    Operation::Remove,
    Operation::Read,
    Operation::CreateDir,
    Operation::RemoveDir,
    Operation::List,
];

/// Writes, flushes and compacts until a call fails or all is done. What was acknowledged last.
fn live(tree: &Tree, history: &mut History) -> u64 {
    let mut acknowledged = 0;
    for round in 0..8_u64 {
        let mut memtable = Entries::new(&Order::Bytewise);
        for key in 0..40_u64 {
            let key = format!("{:04}", key * 7 % (50 + round));
            let value = format!("{round} {}", "x".repeat(30));
            let value = (round % 3 != 1).then_some(value.as_bytes());
            history.write(&mut memtable, key.as_bytes(), value);
        }
        if flush(tree, &mut memtable, history.last, acknowledged).is_err() {
            break;
        }
        acknowledged = history.last;
        if round % 2 == 1
            && tree
                .compact_once(&|| acknowledged, Traffic::Writes)
                .is_err()
        {
            break;
        }
    }
    acknowledged
}

/// What an opening after a crash finds.
fn assert_found(left: &Arc<SimStorage>, history: &History, acknowledged: u64, context: &str) {
    let storage: Arc<dyn Storage> = left.clone();
    remove_job_directories(&*storage, &dir()).unwrap();
    let tree = open(&storage).unwrap_or_else(|error| panic!("{context}: {error}"));
    let flushed = tree.flushed_sequence();
    let expected = acknowledged..=history.last;
    assert!(expected.contains(&flushed), "{context}: {flushed}");
    history.compare(&tree, flushed);
    assert_sound(&tree);
    let listed = listed_tables(&tree.version());
    assert_eq!(table_files(&*storage), listed, "{context}");
    assert!(job_directories(&*storage).is_empty(), "{context}");
}

/// A worker, over the machine that engine and worker have.
type Hire = fn(&Arc<SimStorage>) -> Near;

fn honest(machine: &Arc<SimStorage>) -> Near {
    let storage: Arc<dyn Storage> = machine.clone();
    Near::honest(&storage)
}

/// A worker that fails after a table, at every attempt: its tables are kept.
fn failing(machine: &Arc<SimStorage>) -> Near {
    let rules = FaultRules::new();
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    Near::with(&storage, move |desk, request| {
        if let Call::Begin(_) = &request.call {
            rules.clear();
            let full = Fault::Fail(Refusal::InputOutput);
            rules.add(Rule::new(Operation::Open, full).on("compaction-").after(1));
        }
        Ok(desk.answer(request).encode())
    })
}

/// Ends the engine at call number `after` of this kind; whether it came that far.
fn engine_ends(hire: Hire, operation: Operation, after: u64) -> bool {
    let machine = machine(after * 31 + 7);
    let rules = FaultRules::new();
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    let offload = hire(&machine).offload();
    let mut history = History::default();
    let tree = open_offloading(&storage, offload).unwrap();
    let end = Rule::new(operation, Fault::Fail(Refusal::InputOutput));
    rules.add(end.halting().after(after));
    let acknowledged = live(&tree, &mut history);
    for crash in [Crash::Process, Crash::PowerCut] {
        let left = machine.crash(after, crash);
        let context = format!("{operation:?} after {after}, {crash:?}");
        assert_found(&left, &history, acknowledged, &context);
    }
    rules.is_halted()
}

#[test]
fn an_engine_that_ends_at_any_call_loses_nothing_acknowledged() {
    for (hire, operation) in [honest as Hire, failing]
        .into_iter()
        .flat_map(|hire| OPERATIONS.map(|operation| (hire, operation)))
    {
        let mut after = 0;
        while engine_ends(hire, operation, after) {
            after += 1 + after / 8;
        }
        assert!(after > 0, "{operation:?} never happened");
    }
}

/// Ends the worker at call number `after` of this kind; whether it came that far.
fn worker_ends(operation: Operation, after: u64) -> bool {
    let machine = machine(after * 31 + 7);
    let storage: Arc<dyn Storage> = machine.clone();
    let rules = FaultRules::new();
    let of_worker: Arc<dyn Storage> = machine.with_faults(&rules);
    let halted = rules.clone();
    let near = Near::with(&of_worker, move |desk, request| {
        if halted.is_halted() {
            return Err(LinkError::Unreachable("killed".into()));
        }
        let answer = desk.answer(request);
        if halted.is_halted() {
            return Err(LinkError::Broken("killed".into()));
        }
        Ok(answer.encode())
    });
    let mut history = History::default();
    let tree = open_offloading(&storage, near.offload()).unwrap();
    let end = Rule::new(operation, Fault::Fail(Refusal::InputOutput));
    rules.add(end.halting().after(after));
    let context = format!("{operation:?} after {after}");
    assert_eq!(live(&tree, &mut history), history.last, "{context}");
    history.compare(&tree, history.last);
    assert_sound(&tree);
    tree.remove_garbage();
    let listed = listed_tables(&tree.version());
    assert_eq!(table_files(&*storage), listed, "{context}");
    assert!(job_directories(&*storage).is_empty(), "{context}");
    let stats = told(&tree);
    assert_eq!(stats.fall_backs > 0, rules.is_halted(), "{stats:?}");
    rules.is_halted()
}

#[test]
fn a_worker_that_ends_at_any_call_costs_nothing() {
    // A worker removes, renames and makes no directories: these are the engine's.
    let (its_own, not_its_own): (Vec<_>, Vec<_>) = OPERATIONS.into_iter().partition(|it| {
        matches!(
            it,
            Operation::Write
                | Operation::Sync
                | Operation::Open
                | Operation::Read
                | Operation::List
        )
    });
    for operation in its_own {
        let mut after = 0;
        while worker_ends(operation, after) {
            after += 1 + after / 8;
        }
        assert!(after > 0, "{operation:?} never happened");
    }
    for operation in not_its_own {
        assert!(!worker_ends(operation, 0), "a worker called {operation:?}");
    }
}

#[test]
fn a_directory_of_a_job_that_was_given_up_takes_no_more_tables() {
    let machine = machine(1);
    let storage: Arc<dyn Storage> = machine.clone();
    let begun = Arc::new(std::sync::Mutex::new(None));
    let keep = Arc::clone(&begun);
    let near = Near::with(&storage, move |_, request| {
        if let Call::Begin(begin) = &request.call {
            *keep.lock().unwrap() = Some(begin.clone());
        }
        Err(LinkError::Silent(std::time::Duration::from_secs(10)))
    });
    let mut history = History::default();
    let tree = open_offloading(&storage, near.offload()).unwrap();
    live(&tree, &mut history);
    let before = machine.list(&dir()).unwrap();
    let begin = begun.lock().unwrap().take().expect("a job was begun");
    // The worker wakes up, and goes on.
    let control = JobControl::default();
    let report = Near::honest(&storage).desk.run(&begin, &control);
    let failed = report.outcome;
    assert!(matches!(failed, Outcome::Failed(..)), "{failed:?}");
    assert_eq!(machine.list(&dir()).unwrap().len(), before.len());
}
