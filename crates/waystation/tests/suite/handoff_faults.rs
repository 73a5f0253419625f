//! Hand-offs while storage fails at every call, and engines that die of it.
//!
//! For each kind of call and each number n, the n-th such call of one engine and all later ones fail, while a device
//! is settled in part and handed on; then that engine dies, by a kill or by a power cut. Whatever was acknowledged
//! before: after restarting, the hand-off goes through or back, and the device is whole, with one owner.

use crate::support::{Content as State, content_by, options_with_resting_devices};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, DeviceError, Durability, Error, IterOptions};

fn open(storage: Arc<dyn Storage>) -> Db {
    Db::open_with(storage, Path::new("/db"), options_with_resting_devices()).expect("open")
}

fn state(db: &Db) -> State {
    content_by(db, IterOptions::prefix(&b"car:"[..]))
}

/// A device on both levels, of several blocks.
fn drive(db: &Db) {
    for number in 0..40_u8 {
        let key = format!("car:{number:03}");
        db.put(key.as_bytes(), &[number; 900]).expect("put");
    }
    db.devices().settle(b"car").expect("settle");
    for number in 30..60_u8 {
        let key = format!("car:{number:03}");
        db.put(key.as_bytes(), &[!number; 900]).expect("put");
    }
}

/// How far a hand-off came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    Nothing,
    Admitted,
    Completed,
}

fn hand_on(west: &Db, east: &Db) -> Reached {
    let export = west.devices().export(b"car", "east", Durability::PowerLoss);
    let Ok(export) = export else {
        return Reached::Nothing;
    };
    let Ok(receipt) = east.devices().admit(export) else {
        return Reached::Nothing;
    };
    match west.devices().complete(&receipt) {
        Ok(()) => Reached::Completed,
        Err(_) => Reached::Admitted,
    }
}

/// One run: `rule` on the source or the destination, which then dies. Returns whether the rule caught
/// anything, and how far the hand-off came.
fn run(seed: u64, rule: Rule, of_source: bool, crash: Crash) -> (bool, Reached) {
    let what = format!("{rule:?}, source: {of_source}, {crash:?}");
    let (west_machine, east_machine) = (SimStorage::new(seed), SimStorage::new(seed + 1));
    let faults = FaultRules::new();
    let (west, east) = if of_source {
        (
            open(west_machine.with_faults(&faults)),
            open(east_machine.clone()),
        )
    } else {
        (
            open(west_machine.clone()),
            open(east_machine.with_faults(&faults)),
        )
    };
    drive(&west);
    let before = state(&west);
    west.sync().expect("sync");
    let rule = faults.add(rule);
    let reached = hand_on(&west, &east);
    let caught = faults.count(rule).caught > 0;
    let (west, east) = if of_source {
        let machine = west_machine.crash(seed, crash);
        drop(west);
        (open(machine), east)
    } else {
        let machine = east_machine.crash(seed, crash);
        drop(east);
        (west, open(machine))
    };
    check_and_finish(&west, &east, &before, reached, &what);
    (caught, reached)
}

/// After the crash: who has the device, and does the rest go through?
fn check_and_finish(west: &Db, east: &Db, before: &State, reached: Reached, what: &str) {
    let exports = west.devices().exports().expect("exports");
    let moved = west.devices().moved_to(b"car").expect("stub").is_some();
    let there = state(east);
    assert!(
        there.is_empty() || there == *before,
        "{what}: {} there",
        there.len()
    );
    if reached >= Reached::Admitted {
        assert!(there == *before, "{what}: the receipt was given");
    }
    if moved {
        assert!(
            state(west).is_empty() && there == *before,
            "{what}: it has moved"
        );
        return;
    }
    assert!(
        state(west) == *before,
        "{what}: whole until it is handed on"
    );
    let Some(ticket) = exports.first() else {
        // The freeze was not durable; so nobody has seen the stream.
        assert!(there.is_empty(), "{what}: two owners");
        west.put(b"car:after", b"").expect("put");
        return;
    };
    match east.devices().refuse(ticket) {
        Ok(refusal) => {
            assert!(there.is_empty(), "{what}: refused what is there");
            west.devices().abort(&refusal).expect("abort");
            west.put(b"car:after", b"").expect("put");
            assert!(state(east).is_empty());
        }
        Err(Error::Device(DeviceError::Ticket { .. })) => {
            assert!(there == *before, "{what}: admitted");
            assert_eq!(hand_on(west, east), Reached::Completed, "{what}");
            assert!(state(west).is_empty() && state(east) == *before, "{what}");
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

fn fail_every(operation: Operation, fault: fn(Refusal) -> Fault) {
    let mut reached = BTreeSet::new();
    for of_source in [true, false] {
        for crash in [Crash::Process, Crash::PowerCut] {
            for call in 0.. {
                let rule = Rule::new(operation, fault(Refusal::InputOutput)).after(call);
                let mut caught = false;
                for seed in 0..4 {
                    let ended = run(seed * 100 + call, rule.clone(), of_source, crash);
                    caught |= ended.0;
                    reached.insert(ended.1);
                }
                if !caught {
                    break;
                }
                assert!(call < 100, "the calls come to an end");
            }
        }
    }
    let both = [Reached::Nothing, Reached::Completed];
    assert!(both.iter().all(|it| reached.contains(it)), "{reached:?}");
}

#[test]
fn every_write_fails() {
    fail_every(Operation::Write, Fault::Fail);
}

#[test]
fn every_write_is_torn() {
    fail_every(Operation::Write, |refusal| Fault::Torn(5000, refusal));
}

#[test]
fn every_sync_fails() {
    fail_every(Operation::Sync, Fault::Fail);
}

#[test]
fn every_sync_fails_after_it_was_done() {
    fail_every(Operation::Sync, Fault::FailAfter);
}
