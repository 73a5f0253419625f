//! What is durable before what: the power is cut in the one moment in which an order matters.
//!
//! Each test holds a call of the storage up ([`Fault::Stall`]) or ends the machine at it, so that the moment comes in
//! every run. What a power cut leaves of writes and names that were not synced is up to chance: so each runs with some seeds.

use crate::support::{
    open_simulated, options_with_resting_devices, small_options, spill_files, wait_until,
};
use std::ops::Bound;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule, RuleId};
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, Durability, Error, Options, WriteBatch};

const SEEDS: u64 = 12;
/// A part of the names of the log's segments, before they have their own as well.
const SEGMENTS: &str = "journal-";
/// How long a thread is waited for that should not come to its end, and with a mistake in the engine would.
const MEANWHILE: Duration = Duration::from_millis(100);

fn open(machine: &SimStorage, rules: &FaultRules, options: Options) -> Db {
    Db::open_with(machine.with_faults(rules), "/db", options).unwrap()
}

fn put_synced(db: &Db, key: &[u8], value: &[u8]) -> Result<(), Error> {
    let mut batch = WriteBatch::new();
    batch.put(key, value);
    db.write(&batch, Durability::PowerLoss)
}

/// What is left of the machine after a power cut; `db` belongs to one that is off.
fn cut_power(db: Db, machine: &SimStorage, seed: u64) -> Arc<SimStorage> {
    let left = machine.crash(seed, Crash::PowerCut);
    drop(db);
    left
}

fn wait_until_caught(rules: &FaultRules, rule: RuleId) {
    wait_until("the call is made", || rules.count(rule).caught > 0);
}

/// Gives a thread the time that it needs if nothing holds it up.
fn wait_a_while<T>(thread: &ScopedJoinHandle<'_, T>) {
    let mut left = MEANWHILE;
    while !thread.is_finished() && !left.is_zero() {
        thread::sleep(Duration::from_millis(1));
        left = left.saturating_sub(Duration::from_millis(1));
    }
}

/// While a sync is under way more is written to the same segment, and to the next ones. The sync has not covered that.
#[test]
fn what_is_written_during_a_sync_is_for_the_next_one() {
    // A memtable for all of it: a flush would sync the log meanwhile, and keep the values in a table.
    let options = Options {
        memtable_bytes: 4 << 20,
        ..small_options()
    };
    for seed in 0..SEEDS {
        let (machine, rules) = (SimStorage::new(seed), FaultRules::new());
        let db = open(&machine, &rules, options.clone());
        // So long that they are written out at once.
        let long = vec![7; options.ring_bytes * 3 / 4];
        let sync = rules.add(
            Rule::new(Operation::Sync, Fault::Stall)
                .on(SEGMENTS)
                .times(1),
        );
        let segments = 3 * options.log_segment_bytes;
        let meanwhile: Vec<_> = (0..segments.div_ceil(long.len()))
            .map(|number| format!("meanwhile {number}"))
            .collect();
        thread::scope(|scope| {
            let synced = scope.spawn(|| put_synced(&db, b"synced", b"first"));
            wait_until_caught(&rules, sync);
            for key in &meanwhile {
                db.put(key.as_bytes(), &long).unwrap();
            }
            rules.remove(sync);
            synced.join().unwrap().unwrap();
        });
        db.sync().unwrap();
        let machine = cut_power(db, &machine, seed);
        let db = open_simulated(&machine, options.clone()).unwrap();
        assert_eq!(db.get(b"synced").unwrap(), Some(b"first".to_vec()));
        for key in &meanwhile {
            let found = db.get(key.as_bytes()).unwrap();
            assert!(found.as_ref() == Some(&long), "seed {seed}: {key}");
        }
    }
}

/// After a failed sync the log goes on in another file. What is acknowledged there is found there.
#[test]
fn the_segment_that_healing_moves_to_keeps_its_name() {
    for seed in 0..SEEDS {
        let (machine, rules) = (SimStorage::new(seed), FaultRules::new());
        let db = open(&machine, &rules, small_options());
        put_synced(&db, b"before", b"value").unwrap();
        let fault = Fault::Fail(Refusal::InputOutput);
        rules.add(Rule::new(Operation::Sync, fault).on(SEGMENTS).times(1));
        put_synced(&db, b"failed", b"value").unwrap_err();
        wait_until("it heals", || put_synced(&db, b"healed", b"value").is_ok());
        let machine = cut_power(db, &machine, seed);
        let db = open_simulated(&machine, small_options()).unwrap();
        for key in [&b"before"[..], b"healed"] {
            assert_eq!(db.get(key).unwrap(), Some(b"value".to_vec()), "seed {seed}");
        }
    }
}

/// The power is cut when `JOURNAL` names a new life and the directory was not synced since: if that name is durable, so are
/// those of the life's ring and of its first segment.
#[test]
fn a_life_that_the_journal_names_has_its_files() {
    for seed in 0..4 * SEEDS {
        let (mut machine, rules) = (SimStorage::new(seed), FaultRules::new());
        let is_new = seed % 2 == 0;
        if !is_new {
            let db = open(&machine, &rules, small_options());
            put_synced(&db, b"key", b"value").unwrap();
            db.put(b"in the ring", b"value").unwrap();
            machine = machine.crash(seed, Crash::Process);
            drop(db);
        }
        let fault = Fault::FailAfter(Refusal::InputOutput);
        rules.add(Rule::new(Operation::Rename, fault).on("JOURNAL").halting());
        let storage: Arc<dyn Storage> = machine.with_faults(&rules);
        assert!(Db::open_with(storage, "/db", small_options()).is_err());
        let machine = machine.crash(seed, Crash::PowerCut);
        let db = open_simulated(&machine, small_options());
        let db = db.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let expected = (!is_new).then(|| b"value".to_vec());
        assert_eq!(db.get(b"key").unwrap(), expected, "seed {seed}");
    }
}

/// A device is frozen while another one settles. The sync of the freeze is under way when the settle ends: the second one
/// who asks for the same is answered when the freeze is durable, and not because the settle is.
#[test]
fn a_settle_makes_no_promise_for_what_came_after_its_sync() {
    for seed in 0..SEEDS {
        let (machine, rules) = (SimStorage::new(seed), FaultRules::new());
        let db = open(&machine, &rules, options_with_resting_devices());
        for key in [&b"settles:a"[..], b"leaves:a"] {
            put_synced(&db, key, b"value").unwrap();
        }
        let stall =
            |operation, part| rules.add(Rule::new(operation, Fault::Stall).on(part).times(1));
        let export = || {
            let export = db
                .devices()
                .export(b"leaves", "east", Durability::PowerLoss);
            export.map(|export| export.ticket().clone())
        };
        let table = stall(Operation::Sync, ".ldb");
        let (left, ticket) = thread::scope(|scope| {
            let settling = scope.spawn(|| db.devices().settle(b"settles"));
            wait_until_caught(&rules, table);
            let write = stall(Operation::Write, SEGMENTS);
            let first = scope.spawn(export);
            wait_until_caught(&rules, write);
            rules.remove(table);
            wait_a_while(&settling);
            let second = scope.spawn(export);
            wait_a_while(&second);
            if !second.is_finished() {
                rules.remove(write);
            }
            let ticket = second.join().unwrap().unwrap();
            let left = machine.crash(seed, Crash::PowerCut);
            rules.clear();
            let _ = (first.join().unwrap(), settling.join().unwrap());
            (left, ticket)
        });
        drop(db);
        let db = open_simulated(&left, options_with_resting_devices()).unwrap();
        assert_eq!(db.devices().exports().unwrap(), [ticket], "seed {seed}");
    }
}

/// A device departs, and nothing needs the grave any more that hid some of its data. As long as the departure is not
/// durable the grave stays in its file: a power cut takes both back, or none.
#[test]
fn graves_stay_until_the_departure_that_retired_them_is_durable() {
    let options = || Options {
        graves_bytes: 0,
        ..options_with_resting_devices()
    };
    for seed in 0..SEEDS {
        let (machine, rules) = (SimStorage::new(seed), FaultRules::new());
        let db = open(&machine, &rules, options());
        db.put(b"car1:a", b"value").unwrap();
        db.put(b"other", b"value").unwrap();
        db.flush().unwrap();
        let snapshot = db.snapshot();
        db.delete_range(b"car1:", Some(b"car1:~")).unwrap();
        db.delete(b"other").unwrap();
        db.flush().unwrap();
        // As long as the snapshot needs the grave nothing retires it.
        assert_eq!(spill_files(&*machine, "/db").len(), 1);
        drop(snapshot);
        let fault = Fault::Fail(Refusal::InputOutput);
        rules.add(Rule::new(Operation::Write, fault).on(SEGMENTS));
        db.devices().depart(b"car1").unwrap();
        // Whoever looks after graves does so as time passes; and, as it should be, to no end.
        for _ in 0..40 {
            if db.stats().graves.ranges > 0 {
                let _ = db.compact_range(Bound::Unbounded, Bound::Unbounded);
            }
            if spill_files(&*machine, "/db").is_empty() {
                break;
            }
            machine.sleep(Duration::from_millis(100));
            thread::sleep(Duration::from_millis(2));
        }
        let machine = cut_power(db, &machine, seed);
        let db = open_simulated(&machine, options()).unwrap();
        assert_eq!(db.get(b"car1:a").unwrap(), None, "seed {seed}");
        assert_eq!(db.get(b"other").unwrap(), None, "seed {seed}");
    }
}
