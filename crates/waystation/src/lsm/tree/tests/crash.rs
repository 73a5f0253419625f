//! Crashes at any call: acknowledged writes are there, every file is sound, and no file is left over.

use super::{
    Entries, History, assert_sound, dir, flush, listed_tables, machine, open, table_files,
};
use crate::lsm::compaction::Traffic;
use crate::storage::Storage;
use crate::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use crate::storage::sim::Crash;
use crate::sync::Arc;
use waystation_format::order::Order;

const OPERATIONS: [Operation; 6] = [
    Operation::Write,
    Operation::Sync,
    Operation::SyncDir,
    Operation::Rename,
    Operation::Open,
    Operation::Remove,
];

/// Writes, flushes and compacts until a call fails or all is done. What was acknowledged last.
fn live(storage: &Arc<dyn Storage>, history: &mut History) -> u64 {
    let mut acknowledged = 0;
    let Ok(tree) = open(storage) else { return 0 };
    for round in 0..8_u64 {
        let mut memtable = Entries::new(&Order::Bytewise);
        for key in 0..40_u64 {
            let key = format!("{:04}", key * 7 % (50 + round));
            let value = format!("{round} {}", "x".repeat(30));
            let value = (round % 3 != 1).then_some(value.as_bytes());
            history.write(&mut memtable, key.as_bytes(), value);
        }
        if flush(&tree, &mut memtable, history.last, acknowledged).is_err() {
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

fn survives(operation: Operation, fault: Fault, after: u64, seed: u64) -> bool {
    let machine = machine(seed);
    let rules = FaultRules::new();
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    let rule = rules.add(Rule::new(operation, fault).after(after));
    let mut history = History::default();
    let acknowledged = live(&storage, &mut history);
    let caught = rules.count(rule).caught > 0;
    for crash in [Crash::Process, Crash::PowerCut] {
        let left = machine.crash(seed ^ after, crash);
        let storage: Arc<dyn Storage> = Arc::clone(&left) as Arc<dyn Storage>;
        let context = format!("{operation:?} {fault:?} after {after}, {crash:?}, seed {seed}");
        let tree = open(&storage).unwrap_or_else(|error| panic!("{context}: {error}"));
        let flushed = tree.flushed_sequence();
        assert!(
            (acknowledged..=history.last).contains(&flushed),
            "{context}: {flushed}"
        );
        assert_eq!(flushed % 40, 0, "{context}: a flush is whole or not there");
        history.compare(&tree, flushed);
        assert_sound(&tree);
        assert_eq!(
            table_files(&*storage),
            listed_tables(&tree.version()),
            "{context}"
        );
        let names = storage.list(&dir()).unwrap();
        let manifests = names
            .iter()
            .filter(|entry| entry.name.starts_with("MANIFEST"));
        assert_eq!(manifests.count(), 1, "{context}");
    }
    caught
}

#[test]
fn a_crash_at_any_call_loses_nothing_acknowledged() {
    for operation in OPERATIONS {
        for fault in [
            Fault::Fail(Refusal::InputOutput),
            Fault::FailAfter(Refusal::InputOutput),
        ] {
            let mut after = 0;
            while survives(operation, fault, after, after * 31 + 7) {
                after += 1 + after / 8;
            }
            assert!(after > 0, "{operation:?} never happened");
        }
    }
    let mut after = 0;
    while survives(
        Operation::Write,
        Fault::Torn(after as usize * 37 % 600, Refusal::NoSpace),
        after,
        after,
    ) {
        after += 1;
    }
}

#[test]
fn an_opening_after_edits_that_were_never_synced_may_lose_power() {
    for seed in 0..8 {
        let machine = machine(seed);
        let rules = FaultRules::new();
        let storage: Arc<dyn Storage> = machine.with_faults(&rules);
        let unsynced = Rule::new(Operation::Sync, Fault::Fail(Refusal::InputOutput));
        rules.add(unsynced.on("MANIFEST").after(1 + seed % 4));
        let mut history = History::default();
        let acknowledged = live(&storage, &mut history);
        for operation in OPERATIONS {
            for after in 0.. {
                let left = machine.crash(seed, Crash::Process);
                let rules = FaultRules::new();
                let end = Rule::new(operation, Fault::Fail(Refusal::InputOutput));
                rules.add(end.halting().after(after));
                let storage: Arc<dyn Storage> = left.with_faults(&rules);
                drop(open(&storage));
                if !rules.is_halted() {
                    break;
                }
                let left: Arc<dyn Storage> = left.crash(seed ^ after, Crash::PowerCut);
                let tree = open(&left)
                    .unwrap_or_else(|error| panic!("{operation:?} {after}, seed {seed}: {error}"));
                let flushed = tree.flushed_sequence();
                assert!(flushed >= acknowledged, "{operation:?} {after}: {flushed}");
                history.compare(&tree, flushed);
            }
        }
    }
}

#[test]
fn after_a_passing_failure_everything_goes_on() {
    for operation in OPERATIONS {
        for after in 0..30 {
            let machine = machine(after);
            let rules = FaultRules::new();
            let storage: Arc<dyn Storage> = machine.with_faults(&rules);
            let tree = open(&storage).unwrap();
            let fault = if after % 2 == 0 {
                Fault::Fail(Refusal::NoSpace)
            } else {
                Fault::FailAfter(Refusal::InputOutput)
            };
            rules.add(Rule::new(operation, fault).after(after).times(3));
            let mut history = History::default();
            for round in 0..6_u64 {
                let mut memtable = Entries::new(&Order::Bytewise);
                for key in 0..30_u64 {
                    let value = format!("{round} {}", "x".repeat(30));
                    let key = format!("{:04}", key * 7 % (50 + round));
                    history.write(&mut memtable, key.as_bytes(), Some(value.as_bytes()));
                }
                let mut tries = 0;
                while flush(&tree, &mut memtable, history.last, 0).is_err() {
                    tries += 1;
                    assert!(
                        tries < 5,
                        "{operation:?} {after}: a flush never succeeds again"
                    );
                }
                let mut tries = 0;
                while tree.compact_once(&|| 0, Traffic::Writes).is_err() {
                    tries += 1;
                    assert!(
                        tries < 5,
                        "{operation:?} {after}: a compaction never succeeds again"
                    );
                }
            }
            history.compare(&tree, history.last);
            assert_sound(&tree);
            tree.remove_garbage();
            assert_eq!(
                table_files(&*machine),
                listed_tables(&tree.version()),
                "{operation:?} {after}"
            );
            drop(tree);
            let left: Arc<dyn Storage> = machine.crash(after, Crash::PowerCut);
            let tree = open(&left).unwrap();
            assert_eq!(tree.flushed_sequence(), history.last);
            history.compare(&tree, history.last);
        }
    }
}
