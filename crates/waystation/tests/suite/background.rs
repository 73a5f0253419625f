//! What compactions do by themselves: drop what nobody needs, also after reopening and after a snapshot's release,
//! and keep to their rate; and what coming to rest waits for.

use crate::support::{
    open_simulated, options_with_devices, options_with_resting_devices, small_options, wait_until,
};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, DeviceLevel, Options, Snapshot, Stats};

fn options() -> Options {
    Options {
        // All deletions in one: tables with few are left alone.
        memtable_bytes: 2 << 20,
        table_bytes: 1 << 20,
        ..small_options()
    }
}

fn open(machine: &Arc<SimStorage>, options: Options) -> Db {
    open_simulated(machine, options).expect("opens")
}

fn tables(stats: &Stats) -> usize {
    stats.tree.levels.iter().map(|level| level.tables).sum()
}

/// A database in which everything is deleted, and a snapshot that still sees it.
fn deleted(machine: &Arc<SimStorage>) -> (Db, Snapshot) {
    let db = open(machine, options());
    for number in 0..5_000_u32 {
        db.put(&key(number), &[7; 100]).expect("writes");
    }
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .expect("compacts");
    let snapshot = db.snapshot();
    for number in 0..5_000_u32 {
        db.delete(&key(number)).expect("deletes");
    }
    db.flush().expect("flushes");
    db.wait_idle().expect("comes to rest");
    // What is done after a time without writes is done by then, too.
    machine.sleep(Duration::from_secs(60));
    std::thread::sleep(Duration::from_secs(1));
    db.wait_idle().expect("comes to rest");
    assert!(tables(&db.stats()) > 0);
    assert!(db.get_at(&key(1), &snapshot).expect("gets").is_some());
    (db, snapshot)
}

fn wait_until_empty(db: &Db, what: &str) {
    wait_until(what, || tables(&db.stats()) == 0);
}

fn key(number: u32) -> Vec<u8> {
    format!("{number:010}").into_bytes()
}

#[test]
fn releasing_a_snapshot_lets_go_what_it_held_back() {
    let machine = SimStorage::new(1);
    let (db, snapshot) = deleted(&machine);
    drop(snapshot);
    wait_until_empty(&db, "after the release");
    db.close().expect("closes");
}

#[test]
fn deletions_are_known_after_reopening() {
    let machine = SimStorage::new(2);
    let (db, snapshot) = deleted(&machine);
    db.close().expect("closes");
    drop(snapshot);
    let db = open(&machine, options());
    wait_until_empty(&db, "after reopening");
    db.close().expect("closes");
}

#[test]
fn compactions_keep_to_their_rate() {
    const RATE: usize = 2 << 20;
    let machine = SimStorage::new(3);
    let options = Options {
        memtable_bytes: 128 << 10,
        table_bytes: 64 << 10,
        compaction_bytes_per_second: RATE,
        background_jobs: 2,
        ..options()
    };
    let db = open(&machine, options);
    let start = machine.now();
    for number in 0..40_000_u32 {
        let key = key(number.wrapping_mul(2_654_435_761));
        db.put(&key, &[number as u8; 100]).expect("writes");
    }
    db.flush().expect("flushes");
    db.wait_idle().expect("comes to rest");
    let levels = db.stats().tree.levels;
    let written: u64 = levels.iter().map(|level| level.merges.written_bytes).sum();
    assert!(written > 4 << 20, "{written} bytes are too few to tell");
    let least = written as f64 / RATE as f64 - 0.2;
    let took = machine.now().saturating_sub(start).as_secs_f64();
    assert!(took >= least, "{written} bytes in {took} s");
    db.close().expect("closes");
    let low = Options {
        compaction_bytes_per_second: 1000,
        ..Options::default()
    };
    let storage = machine as Arc<dyn Storage>;
    let refused = Db::open_with(storage, Path::new("/db"), low).map(|_| ());
    assert!(refused.is_err_and(|error| error.to_string().contains("compaction_bytes_per_second")));
}

#[test]
fn coming_to_rest_waits_for_the_devices_that_are_settling() {
    let machine = SimStorage::new(4);
    let db = open(&machine, options_with_devices(Duration::from_secs(1)));
    let value = [7; 1000];
    for number in 0..20_000 {
        let key = format!("car:{number:05}");
        db.put(key.as_bytes(), &value).expect("put");
    }
    let level = || db.devices().list().expect("devices")[0].level;
    wait_until("it does not settle", || level() != DeviceLevel::Upper);
    db.wait_idle().expect("comes to rest");
    assert_eq!(level(), DeviceLevel::Tree);
}

#[test]
fn a_departure_from_a_database_at_rest_keeps_the_deadline_of_deletions() {
    let machine = SimStorage::new(5);
    let options = Options {
        deletion_deadline: Some(Duration::from_secs(1)),
        ..options_with_resting_devices()
    };
    let db = open(&machine, options);
    for number in 0..100 {
        let key = format!("car:{number:05}");
        db.put(key.as_bytes(), &[7; 100]).expect("put");
    }
    db.devices().settle(b"car").expect("settles");
    db.wait_idle().expect("comes to rest");
    assert!(tables(&db.stats()) > 0);
    db.devices().depart(b"car").expect("departs");
    wait_until_empty(&db, "after the departure");
    db.close().expect("closes");
}
