//! An open that dies at any of its steps: the next one opens the database, with all that was in it.
//!
//! For each kind of call and each number n, the n-th such call of an open and all later ones fail; so the open ends there, and
//! the machine loses what a kill or a power cut takes. An open changes much: it puts up the fence, begins a MANIFEST, lays
//! out the log anew, and writes the first checkpoint of a directory that gets devices.

use crate::support::{open_simulated, options_with_resting_devices, small_options};
use std::sync::Arc;
use waystation::storage::SimStorage;
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use waystation::storage::sim::Crash;
use waystation::{Db, Durability, Options, WriteBatch};

/// What an open finds.
#[derive(Debug, Clone, Copy)]
enum Found {
    Nothing,
    /// A database without devices, that was closed.
    Closed,
    /// The same with devices.
    ClosedWithDevices,
    /// One with devices, whose process was killed.
    Killed,
}

const KEYS: u32 = 50;

fn key(number: u32) -> Vec<u8> {
    format!("car{}:{number:03}", number % 3).into_bytes()
}

fn machine_with(found: Found, seed: u64) -> Arc<SimStorage> {
    let machine = SimStorage::new(seed);
    let options = match found {
        Found::Nothing => return machine,
        Found::Closed => small_options(),
        Found::ClosedWithDevices | Found::Killed => with_devices(),
    };
    let db = open_simulated(&machine, options).expect("opens");
    for number in 0..KEYS {
        let mut batch = WriteBatch::new();
        batch.put(&key(number), &[number as u8; 500]);
        db.write(&batch, Durability::PowerLoss).expect("put");
    }
    if let Found::Killed = found {
        db.devices().settle(b"car1").expect("settle");
        let machine = machine.crash(seed, Crash::Process);
        drop(db);
        return machine;
    }
    db.close().expect("close");
    machine
}

fn with_devices() -> Options {
    options_with_resting_devices()
}

/// One open in which `rule` holds, and the one after the crash. Returns whether the rule caught anything.
fn run(found: Found, rule: Rule, crash: Crash, seed: u64) -> bool {
    let what = format!("{found:?}, {rule:?}, {crash:?}");
    let machine = machine_with(found, seed);
    let faults = FaultRules::new();
    let rule = faults.add(rule);
    let opened = Db::open_with(machine.with_faults(&faults), "/db", with_devices());
    let caught = faults.count(rule).caught > 0;
    let machine = machine.crash(seed, crash);
    drop(opened);
    let db =
        open_simulated(&machine, with_devices()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let count = if let Found::Nothing = found { 0 } else { KEYS };
    for number in 0..count {
        let value = db.get(&key(number)).expect("get");
        assert!(value == Some(vec![number as u8; 500]), "{what}: {number}");
    }
    db.put(b"car9:new", b"new").expect("put");
    db.devices().depart(b"car9").expect("depart");
    assert_eq!(db.check().expect("check").problems, [], "{what}");
    db.close().expect("close");
    caught
}

fn die_at_every(operation: Operation) {
    let starts = [
        Found::Nothing,
        Found::Closed,
        Found::ClosedWithDevices,
        Found::Killed,
    ];
    for found in starts {
        for crash in [Crash::Process, Crash::PowerCut] {
            let step = |call: u64| {
                let rule = Rule::new(operation, Fault::Fail(Refusal::InputOutput)).after(call);
                run(found, rule, crash, call)
            };
            let calls = (0..200).take_while(|&call| step(call)).count();
            assert!(calls < 200, "the calls come to an end");
        }
    }
}

#[test]
fn at_every_write() {
    die_at_every(Operation::Write);
}

#[test]
fn at_every_sync() {
    die_at_every(Operation::Sync);
    die_at_every(Operation::SyncDir);
}

#[test]
fn at_every_file_that_is_opened() {
    die_at_every(Operation::Open);
}

#[test]
fn at_every_change_of_a_directory() {
    die_at_every(Operation::Rename);
    die_at_every(Operation::Remove);
    die_at_every(Operation::Preallocate);
    die_at_every(Operation::MapRing);
}
