//! The file of graves is written for a flush before the MANIFEST tells of that flush. Between the two it belongs to
//! tables that may never be there, or may be there although the flush is said to have failed: what was deleted stays
//! deleted either way.

use crate::support::{
    open_simulated, options_with_resting_devices, small_options, spill_files, wait_until,
};
use std::ops::Bound;
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, Options};

const NEEDED: &[u8] = b"in a table";
const PASSING: &[u8] = b"in memory";

/// No flush comes to its end: `operation` fails on every MANIFEST.
fn no_manifest(operation: Operation, fault: Fault) -> Rule {
    Rule::new(operation, fault).on("MANIFEST")
}

/// The flush that failed left a grave out that hides nothing but what this flush would have left out, too. The next
/// life has smaller memtables: there the version comes to a table in one flush, and its grave to the flushed ones in
/// another.
#[test]
fn graves_of_a_flush_that_never_came_are_buried_again() {
    for (graves_bytes, is_held) in [(64 << 20, false), (0, false), (0, true)] {
        bury_again(graves_bytes, is_held);
    }
}

fn bury_again(graves_bytes: usize, is_held: bool) {
    let machine = SimStorage::new(1);
    let faults = FaultRules::new();
    let options = Options {
        graves_bytes,
        ..Options::default()
    };
    let db = Db::open_with(machine.with_faults(&faults), "/db", options).unwrap();
    db.put(NEEDED, b"value").unwrap();
    db.flush().unwrap();
    db.put(PASSING, b"value").unwrap();
    let held = is_held.then(|| db.snapshot());
    for number in 0..100_u8 {
        db.put(&[b'~', number], &[number; 1000]).unwrap();
    }
    db.delete(PASSING).unwrap();
    db.delete(NEEDED).unwrap();
    let fault = Fault::Fail(Refusal::InputOutput);
    faults.add(no_manifest(Operation::Write, fault));
    db.flush().unwrap_err();
    let machine = machine.crash(1, Crash::Process);
    drop((held, db));
    assert_eq!(spill_files(&*machine, "/db").is_empty(), graves_bytes > 0);

    let small = || Options {
        memtable_bytes: 64 << 10,
        graves_bytes,
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

/// The flush is said to have failed, and has not. What is replaced meanwhile keeps the flush's graves: those of a
/// device that settles come to them. And once the storage is well, all of it comes to its end.
#[test]
fn graves_of_a_flush_in_doubt_stay_in_the_file() {
    for (graves_bytes, is_healed) in [(64 << 20, false), (64 << 20, true), (0, false), (0, true)] {
        settle_in_doubt(graves_bytes, is_healed);
    }
}

fn settle_in_doubt(graves_bytes: usize, is_healed: bool) {
    let machine = SimStorage::new(2);
    let faults = FaultRules::new();
    let options = || Options {
        graves_bytes,
        ..options_with_resting_devices()
    };
    let db = Db::open_with(machine.with_faults(&faults), "/db", options()).unwrap();
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
    db.devices().settle(b"car1").unwrap_err();
    if is_healed {
        faults.clear();
        wait_until("it heals", || db.flush().is_ok());
        db.devices().settle(b"car1").unwrap();
    }
    let machine = machine.crash(3, Crash::Process);
    drop((snapshot, db));

    let files = machine.list("/db".as_ref()).unwrap();
    assert!(files.iter().any(|it| it.name == "GRAVES"));
    let db = open_simulated(&machine, options()).unwrap();
    assert_eq!(db.get(NEEDED).unwrap(), None);
    assert_eq!(db.get(b"car1:a").unwrap(), None);
    assert_eq!(db.check().unwrap().problems, []);
}

/// A flush that is in doubt has brought a version to a table, as a snapshot still saw it. When it is tried again the
/// snapshot is gone, and neither the version nor its grave would be needed.
#[test]
fn a_flush_that_is_tried_again_retires_nothing() {
    for graves_bytes in [64 << 20, 0] {
        let machine = SimStorage::new(4);
        let faults = FaultRules::new();
        let options = || Options {
            graves_bytes,
            ..small_options()
        };
        let db = Db::open_with(machine.with_faults(&faults), "/db", options()).unwrap();
        db.put(NEEDED, b"value").unwrap();
        db.flush().unwrap();
        db.put(PASSING, b"value").unwrap();
        let snapshot = db.snapshot();
        db.delete(PASSING).unwrap();
        let fault = Fault::FailAfter(Refusal::InputOutput);
        faults.add(no_manifest(Operation::Sync, fault));
        db.flush().unwrap_err();
        drop(snapshot);
        // One more grave, so that the file is replaced.
        db.delete(NEEDED).unwrap();
        db.flush().unwrap_err();
        let machine = machine.crash(5, Crash::Process);
        drop(db);

        let db = open_simulated(&machine, options()).unwrap();
        assert_eq!(db.get(PASSING).unwrap(), None);
        assert_eq!(db.get(NEEDED).unwrap(), None);
        assert_eq!(db.check().unwrap().problems, []);
    }
}

/// A file of graves has its name, and the directory was not synced. The next life removes the spill files of the one
/// before, and then the power is cut.
#[test]
fn spill_files_stay_for_whatever_file_of_graves_is_found() {
    let options = || Options {
        graves_bytes: 0,
        ..small_options()
    };
    for seed in 0..20 {
        let machine = SimStorage::new(seed);
        let faults = FaultRules::new();
        let db = Db::open_with(machine.with_faults(&faults), "/db", options()).unwrap();
        let keys = [b"a", b"b", b"c"];
        for key in keys {
            db.put(key, b"value").unwrap();
        }
        db.compact_range(Bound::Unbounded, Bound::Unbounded)
            .unwrap();
        let snapshot = db.snapshot();
        db.delete(b"a").unwrap();
        db.flush().unwrap();
        db.delete(b"b").unwrap();
        let fault = Fault::Fail(Refusal::InputOutput);
        faults.add(Rule::new(Operation::SyncDir, fault).after(seed % 2));
        db.flush().unwrap_err();
        let machine = machine.crash(seed, Crash::Process);
        drop((snapshot, db));
        let db = open_simulated(&machine, options()).unwrap();
        let machine = machine.crash(seed, Crash::PowerCut);
        drop(db);
        let db = open_simulated(&machine, options()).unwrap();
        let found = keys.map(|key| db.get(key).unwrap().is_some());
        assert_eq!(found, [false, false, true], "{seed}");
        assert_eq!(db.check().unwrap().problems, []);
    }
}

/// A device departs, and nothing needs the grave any more that hid some of its data. Then the power is cut: either both
/// are there, or the departure is.
#[test]
fn no_power_cut_takes_a_departure_back_and_leaves_what_it_retired() {
    let options = || Options {
        graves_bytes: 0,
        ..options_with_resting_devices()
    };
    for seed in 0..20 {
        let machine = SimStorage::new(seed);
        let db = open_simulated(&machine, options()).unwrap();
        db.put(b"car1:a", b"value").unwrap();
        db.put(NEEDED, b"value").unwrap();
        db.flush().unwrap();
        let snapshot = db.snapshot();
        db.delete_range(b"car1:", Some(b"car1:~")).unwrap();
        db.delete(NEEDED).unwrap();
        db.flush().unwrap();
        drop(snapshot);
        assert_eq!(spill_files(&*machine, "/db").len(), 1);
        db.devices().depart(b"car1").unwrap();
        wait_until("the range's grave is retired", || {
            db.compact_range(Bound::Unbounded, Bound::Unbounded)
                .unwrap();
            db.stats().graves.ranges == 0
        });
        wait_until("the spill file goes", || {
            spill_files(&*machine, "/db").is_empty()
        });
        let machine = machine.crash(seed, Crash::PowerCut);
        drop(db);
        let db = open_simulated(&machine, options()).unwrap();
        assert_eq!(db.get(b"car1:a").unwrap(), None, "{seed}");
        assert_eq!(db.get(NEEDED).unwrap(), None, "{seed}");
    }
}
