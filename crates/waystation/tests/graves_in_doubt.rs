//! The file of graves is written for a flush before the MANIFEST tells of that flush. Between the two it belongs to tables
//! that may never be there, or may be there although the flush is said to have failed: what was deleted stays deleted
//! either way.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use support::{open_simulated, options_with_resting_devices, small_options};
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, Error, Options};

const NEEDED: &[u8] = b"in a table";
const PASSING: &[u8] = b"in memory";

/// No flush comes to its end: `operation` fails on every MANIFEST.
fn no_manifest(operation: Operation, fault: Fault) -> Rule {
    Rule::new(operation, fault).on("MANIFEST")
}

/// The flush that failed left a grave out that hides nothing but what this flush would have left out, too. The next life
/// has smaller memtables: there the version comes to a table in one flush, and its grave to the ground in another.
#[test]
fn graves_of_a_flush_that_never_came_are_buried_again() {
    let machine = SimStorage::new(1);
    let faults = FaultRules::new();
    let db = Db::open_with(machine.with_faults(&faults), "/db", Options::default()).unwrap();
    db.put(NEEDED, b"value").unwrap();
    db.flush().unwrap();
    db.put(PASSING, b"value").unwrap();
    for number in 0..100_u8 {
        db.put(&[b'~', number], &[number; 1000]).unwrap();
    }
    db.delete(PASSING).unwrap();
    db.delete(NEEDED).unwrap();
    let fault = Fault::Fail(Refusal::InputOutput);
    faults.add(no_manifest(Operation::Write, fault));
    db.flush().unwrap_err();
    let machine = machine.crash(1, Crash::Process);
    drop(db);

    let small = || Options {
        memtable_bytes: 64 << 10,
        ..small_options()
    };
    let db = open_simulated(&machine, small()).unwrap();
    while db.stats().tree.flushes.jobs == 0 {
        std::thread::yield_now();
    }
    db.flush().unwrap();
    let machine = machine.crash(2, Crash::Process);
    drop(db);

    let db = open_simulated(&machine, small()).unwrap();
    assert_eq!(db.get(PASSING).unwrap(), None);
    assert_eq!(db.get(NEEDED).unwrap(), None);
    assert_eq!(db.get(&[b'~', 7]).unwrap(), Some(vec![7; 1000]));
    assert_eq!(db.check().unwrap().problems, []);
}

/// The flush is said to have failed, and has not. What would replace the file meanwhile, without the flush's graves, is
/// refused.
#[test]
fn graves_of_a_flush_in_doubt_are_not_replaced() {
    let machine = SimStorage::new(2);
    let faults = FaultRules::new();
    let storage = machine.with_faults(&faults);
    let db = Db::open_with(storage, "/db", options_with_resting_devices()).unwrap();
    db.put(NEEDED, b"value").unwrap();
    db.flush().unwrap();
    db.put(b"car1:a", b"value").unwrap();
    let snapshot = db.snapshot();
    db.delete(b"car1:a").unwrap();
    db.delete(NEEDED).unwrap();
    let fault = Fault::FailAfter(Refusal::InputOutput);
    faults.add(no_manifest(Operation::Sync, fault));
    db.flush().unwrap_err();
    // The deletion that the snapshot does not see is about to be a grave.
    let settled = db.settle(b"car1");
    assert!(
        matches!(settled, Err(Error::Suspended { .. })),
        "{settled:?}"
    );
    let machine = machine.crash(3, Crash::Process);
    drop((snapshot, db));

    let files = machine.list("/db".as_ref()).unwrap();
    assert!(files.iter().any(|it| it.name == "GRAVES"));
    let db = open_simulated(&machine, options_with_resting_devices()).unwrap();
    assert_eq!(db.get(NEEDED).unwrap(), None);
    assert_eq!(db.get(b"car1:a").unwrap(), None);
    assert_eq!(db.check().unwrap().problems, []);
}
