//! A database whose log lies in two directories: whatever fails, goes away or ends, each segment is found once.

use super::slow_main_tests::SlowMain;
use super::{FastTier, Spread};
use crate::backup::Backups;
use crate::directory::{FAST_NAME, destroy, segment_number};
use crate::inspect::Inspection;
use crate::options::Compression;
use crate::repair::{Resurrection, repair};
use crate::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use crate::storage::sim::Crash;
use crate::storage::{Area, OpenMode, SimStorage, Storage, Transfer};
use crate::{
    Db, DeviceOptions, Durability, Error, Extractor, LogPlacement, Options, PlacementStats,
    PutOptions,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MAIN: &str = "/db";
const FAST: &str = "/fast";
const LOG: &str = "/fast/log";
const SEGMENT: usize = 256 << 10;

fn durable(directory: &str, capacity_bytes: u64) -> FastTier {
    FastTier {
        durable: true,
        ..FastTier::new(directory, capacity_bytes)
    }
}

fn options(fast: Option<FastTier>) -> Options {
    Options {
        memtable_bytes: 128 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: SEGMENT,
        devices: Some(DeviceOptions::new(Extractor::until(b':'))),
        fast,
        ..Options::default()
    }
}

fn open(storage: &Arc<dyn Storage>, fast: Option<FastTier>) -> crate::Result<Db> {
    Db::open_with(Arc::clone(storage), MAIN, options(fast))
}

fn key(number: u32) -> Vec<u8> {
    format!("car{}:{number:06}", number % 7).into_bytes()
}

/// Has put `number` survive a power cut if it is the last of `count`.
pub(super) fn durable_each(count: u32, number: u32) -> PutOptions {
    let is_last = number % count == count - 1;
    PutOptions {
        durability: if is_last {
            Durability::PowerLoss
        } else {
            Durability::ProcessCrash
        },
        ..PutOptions::default()
    }
}

fn put(db: &Db, numbers: std::ops::Range<u32>) -> crate::Result<()> {
    for number in numbers {
        let options = durable_each(50, number);
        db.put_with(&key(number), &[number as u8; 1_000], options)?;
    }
    Ok(())
}

fn check(db: &Db, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let found = db.get(&key(number)).unwrap();
        assert_eq!(
            found.as_deref(),
            Some(&[number as u8; 1_000][..]),
            "{number}"
        );
    }
}

fn log(db: &Db) -> LogPlacement {
    let placement = db.stats().placement.expect("a fast tier");
    placement.log.expect("the log's share")
}

/// The segments in `directory`.
fn segments(storage: &Arc<dyn Storage>, directory: &str) -> Vec<String> {
    let entries = storage.list(Path::new(directory)).unwrap_or_default();
    let names = entries.into_iter().map(|entry| entry.name);
    names
        .filter(|name| segment_number(name).is_some())
        .collect()
}

fn machine(seed: u64) -> (Arc<SimStorage>, Arc<dyn Storage>) {
    let machine = SimStorage::new(seed);
    let storage: Arc<dyn Storage> = Arc::clone(&machine) as _;
    (machine, storage)
}

#[test]
fn segments_lie_in_both_directories_and_are_found() {
    let (_, storage) = machine(1);
    let db = open(&storage, Some(durable(FAST, 4 << 20))).unwrap();
    put(&db, 0..2_000).unwrap();
    check(&db, 0..2_000);
    let share = log(&db);
    assert!(
        share.segments >= 4 && share.fast_bytes > 1 << 20,
        "{share:?}"
    );
    assert!(db.check().unwrap().problems.is_empty());
    db.close().unwrap();
    let (main, fast) = (segments(&storage, MAIN), segments(&storage, LOG));
    assert!(!main.is_empty(), "the first segment of a life");
    assert!(fast.len() >= 4 && fast.iter().all(|name| !main.contains(name)));
    let inspection = Inspection::open(Arc::clone(&storage), MAIN).unwrap();
    assert!(inspection.check(&mut |_| ()).unwrap().problems.is_empty());
    let db = open(&storage, Some(durable(FAST, 4 << 20))).unwrap();
    check(&db, 0..2_000);
    db.close().unwrap();
    // Without the option all is read, and nothing new lies there.
    let before = segments(&storage, LOG);
    let db = open(&storage, None).unwrap();
    check(&db, 0..2_000);
    put(&db, 2_000..4_000).unwrap();
    check(&db, 0..4_000);
    db.close().unwrap();
    assert!(
        segments(&storage, LOG)
            .iter()
            .all(|name| before.contains(name))
    );
}

#[test]
fn a_database_that_is_gone_keeps_nothing() {
    let fast = || FastTier::new(FAST, 4 << 20);
    for options in [None, Some(fast()), Some(durable(FAST, 4 << 20))] {
        let (_, storage) = machine(9);
        for is_closed in [true, false] {
            let db = open(&storage, options.clone()).unwrap();
            put(&db, 0..500).unwrap();
            if is_closed {
                db.close().unwrap();
            } else {
                drop(db);
            }
            assert_eq!(Arc::strong_count(&storage), 1, "{options:?}, {is_closed}");
        }
    }
}

#[test]
fn the_capacity_is_not_crossed() {
    let (_, storage) = machine(2);
    let db = open(&storage, Some(durable(FAST, 1 << 20))).unwrap();
    for round in 0..8 {
        put(&db, round * 300..(round + 1) * 300).unwrap();
        let lengths = storage.list(Path::new(LOG)).unwrap();
        let bytes: u64 = lengths.iter().map(|entry| entry.bytes).sum();
        assert!(bytes <= (1 << 20) + 1_000, "{bytes}");
    }
    let share = log(&db);
    assert!(
        share.segment_bytes <= 1 << 20 && share.main_bytes > 0,
        "{share:?}"
    );
    check(&db, 0..2_400);
}

#[test]
fn segments_are_short_where_they_are_to_fit_alone() {
    const CAPACITY: u64 = 2 << 20;
    const SHORT: u64 = 512 << 10;
    let (_, storage) = machine(12);
    let options = Options {
        log_segment_bytes: 4 << 20,
        ..options(Some(durable(FAST, CAPACITY)))
    };
    let db = Db::open_with(Arc::clone(&storage), MAIN, options).unwrap();
    let lengths = |directory: &str| {
        let entries = storage.list(Path::new(directory)).unwrap().into_iter();
        let of_log = entries.filter(|entry| segment_number(&entry.name).is_some());
        of_log.map(|entry| entry.bytes).collect::<Vec<_>>()
    };
    // Later rounds use the files of earlier ones again.
    for round in 0..4 {
        let numbers = round * 12_000..(round + 1) * 12_000;
        for start in numbers.clone().step_by(500) {
            put(&db, start..start + 500).unwrap();
            let there = lengths(LOG);
            assert!(there.iter().all(|bytes| *bytes <= SHORT), "{there:?}");
            assert!(there.iter().sum::<u64>() <= CAPACITY, "{there:?}");
        }
        check(&db, numbers);
        let main = lengths(MAIN);
        // After a pause they begin short.
        let longest = main.iter().max();
        assert!(longest > Some(&(2 * SHORT)), "round {round}: {main:?}");
        for device in 0..7 {
            db.devices()
                .depart(format!("car{device}").as_bytes())
                .unwrap();
        }
    }
}

#[test]
fn a_directory_without_segments_is_given_up() {
    let (_, storage) = machine(3);
    let db = open(&storage, Some(durable(FAST, 4 << 20))).unwrap();
    put(&db, 0..1_500).unwrap();
    for device in 0..7 {
        db.devices()
            .depart(format!("car{device}").as_bytes())
            .unwrap();
    }
    db.close().unwrap();
    for _ in 0..3 {
        open(&storage, None).unwrap().close().unwrap();
    }
    assert_eq!(segments(&storage, LOG), Vec::<String>::new());
    let names = storage.list(Path::new(MAIN)).unwrap();
    assert!(names.iter().all(|entry| entry.name != FAST_NAME));
    // Another database may have it.
    let other = Db::open_with(
        Arc::clone(&storage),
        "/other",
        options(Some(durable(FAST, 1 << 20))),
    );
    other.unwrap().close().unwrap();
}

#[test]
fn a_database_is_not_opened_without_its_segments() {
    let (_, storage) = machine(4);
    let db = open(&storage, Some(durable(FAST, 4 << 20))).unwrap();
    put(&db, 0..1_500).unwrap();
    db.close().unwrap();
    let refused = |fast: Option<FastTier>| {
        let error = open(&storage, fast).err().expect("an error");
        assert!(matches!(error, Error::Incompatible { .. }), "{error}");
        error.to_string()
    };
    storage
        .rename(Path::new(LOG), Path::new("/elsewhere"))
        .unwrap();
    for fast in [
        None,
        Some(durable(FAST, 4 << 20)),
        Some(durable("/empty", 4 << 20)),
    ] {
        let told = refused(fast);
        assert!(
            told.contains("/fast cannot be opened: it is not there"),
            "{told}"
        );
    }
    assert!(Inspection::open(Arc::clone(&storage), MAIN).is_err());
    // The device is mounted elsewhere now.
    storage.create_dir(Path::new("/moved")).unwrap();
    storage
        .rename(Path::new("/elsewhere"), Path::new("/moved/log"))
        .unwrap();
    let db = open(&storage, Some(durable("/moved", 4 << 20))).unwrap();
    check(&db, 0..1_500);
    db.close().unwrap();
    let db = open(&storage, None).unwrap();
    check(&db, 0..1_500);
    db.close().unwrap();
    // Another database has it now.
    let other = Db::open_with(
        Arc::clone(&storage),
        "/other",
        options(Some(durable("/moved", 1 << 20))),
    );
    let told = other.err().expect("an error").to_string();
    assert!(
        told.contains("segments or tables of the database in /db lie in it"),
        "{told}"
    );
    let damaged = Path::new("/moved/log/OWNER");
    storage.remove(damaged).unwrap();
    let told = refused(None);
    assert!(
        told.contains("/moved cannot be opened: it is not there"),
        "{told}"
    );
}

#[test]
fn a_damaged_link_is_told_and_a_directory_that_cannot_be_made_is_gone_without() {
    let (machine, storage) = machine(13);
    let db = open(&storage, Some(durable(FAST, 4 << 20))).unwrap();
    put(&db, 0..500).unwrap();
    db.close().unwrap();
    machine
        .flip_bit(&Path::new(MAIN).join(FAST_NAME), 80)
        .unwrap();
    let error = open(&storage, None).err().expect("an error");
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
    assert!(error.to_string().contains("FAST"), "{error}");

    let machine = SimStorage::new(14);
    let rules = FaultRules::new();
    rules.add(Rule::new(Operation::CreateDir, Fault::Fail(Refusal::InputOutput)).on(LOG));
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    let db = open(&storage, Some(durable(FAST, 4 << 20))).unwrap();
    put(&db, 0..500).unwrap();
    check(&db, 0..500);
    assert_eq!(db.stats().placement.expect("a fast tier").log, None);
    db.close().unwrap();
}

#[test]
fn a_file_that_could_not_be_removed_does_not_count() {
    let (_, storage) = machine(15);
    let db = open(&storage, Some(durable(FAST, 4 << 20))).unwrap();
    put(&db, 0..1_500).unwrap();
    db.close().unwrap();
    let double = segments(&storage, MAIN).remove(0);
    let path = Path::new(LOG).join(&double);
    let file = storage.open(&path, OpenMode::Create, Transfer::Buffered, Area::Journal);
    file.unwrap().preallocate(4_096).unwrap();
    let inspection = Inspection::open(Arc::clone(&storage), MAIN).unwrap();
    assert!(inspection.check(&mut |_| ()).unwrap().problems.is_empty());
    let db = open(&storage, Some(durable(FAST, 4 << 20))).unwrap();
    check(&db, 0..1_500);
    db.close().unwrap();
    assert!(!segments(&storage, LOG).contains(&double));
}

#[test]
fn two_databases_do_not_share_one() {
    let (_, storage) = machine(5);
    let db = open(&storage, Some(durable(FAST, 4 << 20))).unwrap();
    put(&db, 0..100).unwrap();
    let other = Db::open_with(
        Arc::clone(&storage),
        "/other",
        options(Some(durable(FAST, 1 << 20))),
    );
    let error = other.err().expect("an error");
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    db.close().unwrap();
}

#[test]
fn a_directory_in_which_its_database_has_no_file_yet_is_not_another_ones() {
    let machine = SimStorage::new(16);
    let rules = FaultRules::new();
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    // Neither the ring nor a segment has room there.
    for operation in [Operation::MapRing, Operation::Preallocate] {
        rules.add(Rule::new(operation, Fault::Fail(Refusal::NoSpace)).on(LOG));
    }
    let fast = || Some(durable(FAST, 4 << 20));
    let db = open(&storage, fast()).unwrap();
    put(&db, 0..100).unwrap();
    db.close().unwrap();
    assert_eq!(segments(&storage, LOG), Vec::<String>::new());
    let other = || Db::open_with(Arc::clone(&storage), "/other", options(fast()));
    let told = other().err().expect("an error").to_string();
    let expected = "it is the fast directory of the database in /db";
    assert!(told.contains(expected), "{told}");
    open(&storage, fast()).unwrap().close().unwrap();
    // While its device fails, the directory is not given up, and the database opens without it.
    rules.add(Rule::new(Operation::SyncDir, Fault::Fail(Refusal::InputOutput)).on(LOG));
    check(&open(&storage, None).unwrap(), 0..100);
    assert!(other().is_err());
    rules.clear();
    open(&storage, None).unwrap().close().unwrap();
    other().unwrap().close().unwrap();
    check(&open(&storage, None).unwrap(), 0..100);
}

#[test]
fn a_directory_that_fails_or_is_full_is_not_used_and_nothing_is_lost() {
    for (seed, operation, refusal) in [
        (6, Operation::Write, Refusal::InputOutput),
        (7, Operation::Open, Refusal::InputOutput),
        (8, Operation::Preallocate, Refusal::NoSpace),
        (9, Operation::Sync, Refusal::InputOutput),
        (10, Operation::SyncDir, Refusal::InputOutput),
    ] {
        let machine = SimStorage::new(seed);
        let rules = FaultRules::new();
        let storage: Arc<dyn Storage> = machine.with_faults(&rules);
        let db = open(&storage, Some(durable(FAST, 4 << 20))).unwrap();
        put(&db, 0..1_000).unwrap();
        let rule = Rule::new(operation, Fault::Fail(refusal));
        rules.add(rule.on(LOG).times(40));
        let mut done = 1_000;
        for number in 1_000..4_000 {
            // A call that needs the failing device may be refused; the next ones go on.
            if put(&db, number..number + 1).is_ok() {
                done += 1;
            } else {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        assert!(done > 3_000, "{operation:?}: {done}");
        rules.clear();
        drop(db);
        let again: Arc<dyn Storage> = machine.crash(seed, Crash::Process);
        let db = open(&again, Some(durable(FAST, 4 << 20))).unwrap();
        check(&db, 0..1_000);
        let found = (1_000..4_000).filter(|number| db.get(&key(*number)).unwrap().is_some());
        assert!(found.count() >= done - 1_000, "{operation:?}");
        db.close().unwrap();
    }
}

/// Writes until a call fails or all is done. What was acknowledged: in all, and to survive a power cut.
fn live(storage: &Arc<dyn Storage>) -> (u32, u32) {
    let Ok(db) = open(storage, Some(durable(FAST, 1 << 20))) else {
        return (0, 0);
    };
    let mut acknowledged = 0;
    while acknowledged < 1_600 && put(&db, acknowledged..acknowledged + 1).is_ok() {
        acknowledged += 1;
        if acknowledged == 900 {
            // Segments are free, and used again.
            for device in 0..7 {
                let _ = db.devices().depart(format!("car{device}").as_bytes());
            }
        }
    }
    let durable = acknowledged / 50 * 50;
    if acknowledged == 1_600 {
        let _ = db.close();
    }
    (acknowledged, durable)
}

#[test]
fn the_machine_ends_at_any_call_and_each_segment_is_found_once() {
    for operation in [
        Operation::Open,
        Operation::Preallocate,
        Operation::Rename,
        Operation::Remove,
        Operation::SyncDir,
        Operation::Write,
    ] {
        for fault in [
            Fault::Fail(Refusal::InputOutput),
            Fault::FailAfter(Refusal::InputOutput),
        ] {
            let mut after = 0;
            while ends_well(operation, fault, after) {
                after += 1 + after / 4;
            }
            assert!(after > 0, "{operation:?} {fault:?}");
        }
    }
}

fn ends_well(operation: Operation, fault: Fault, after: u64) -> bool {
    let machine = SimStorage::new(after + 20);
    let rules = FaultRules::new();
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    let rule = rules.add(Rule::new(operation, fault).on(FAST).after(after).halting());
    let (acknowledged, durable_to) = live(&storage);
    let caught = rules.count(rule).caught > 0;
    for (crash, promised) in [
        (Crash::Process, acknowledged),
        (Crash::PowerCut, durable_to),
    ] {
        let context = format!("{operation:?} {fault:?} after {after}, {crash:?}");
        let left: Arc<dyn Storage> = machine.crash(after, crash);
        let (main, fast) = (segments(&left, MAIN), segments(&left, LOG));
        assert!(fast.iter().all(|name| !main.contains(name)), "{context}");
        let db = open(&left, Some(durable(FAST, 1 << 20)));
        let db = db.unwrap_or_else(|error| panic!("{context}: {error}"));
        let first = if acknowledged < 900 { 0 } else { 900 };
        for number in first..promised {
            assert!(
                db.get(&key(number)).unwrap().is_some(),
                "{context}: {number}"
            );
        }
        put(&db, 2_000..2_600).unwrap();
        check(&db, 2_000..2_600);
        assert!(db.check().unwrap().problems.is_empty(), "{context}");
        db.close().unwrap();
    }
    caught
}

#[test]
fn backups_repairs_and_removal_know_both_directories() {
    let (_, storage) = machine(11);
    let db = open(&storage, Some(durable(FAST, 4 << 20))).unwrap();
    put(&db, 0..2_000).unwrap();
    db.backup(Path::new("/backups"), &mut |_| ()).unwrap();
    db.close().unwrap();
    assert!(!segments(&storage, LOG).is_empty());
    let backups = Backups::open(Arc::clone(&storage), "/backups").unwrap();
    backups
        .restore(None, Path::new("/restored"), &mut |_| ())
        .unwrap();
    let restored = Db::open_with(Arc::clone(&storage), "/restored", options(None)).unwrap();
    check(&restored, 0..2_000);
    restored.close().unwrap();
    let save = |target: &str, accepted| {
        let (from, to) = (Path::new(MAIN), Path::new(target));
        repair(&storage, from, to, &options(None), accepted, &mut |_| ())
    };
    let saved = save("/saved", Resurrection::Impossible).unwrap();
    assert!(saved.losses.is_empty(), "{:?}", saved.losses);
    let repaired = Db::open_with(Arc::clone(&storage), "/saved", options(None)).unwrap();
    check(&repaired, 0..2_000);
    repaired.close().unwrap();
    // Without the fast directory a repair saves the rest, and says so.
    storage.rename(Path::new(LOG), Path::new("/away")).unwrap();
    assert!(save("/part", Resurrection::Impossible).is_err());
    let saved = save("/part", Resurrection::Possible).unwrap();
    let of_directory = saved.losses.iter().find(|loss| loss.file == FAST_NAME);
    assert!(of_directory.is_some(), "{:?}", saved.losses);
    storage.rename(Path::new("/away"), Path::new(LOG)).unwrap();
    let main = Path::new(MAIN);
    Spread::while_destroyed(&storage, main, |all| destroy(all, main)).unwrap();
    assert!(storage.list(Path::new(MAIN)).is_err());
    assert!(segments(&storage, LOG).is_empty());
}

#[test]
fn the_division_follows_the_load_and_back() {
    let machine = SimStorage::new(12);
    machine.stop_clock();
    let storage: Arc<dyn Storage> = Arc::new(SlowMain {
        inner: Arc::clone(&machine) as _,
        fast: (FAST, Duration::ZERO),
        write: Duration::from_millis(1),
    });
    let options = Options {
        devices: None,
        cache_bytes: 0,
        compression: Compression::None,
        ..options(Some(durable(FAST, 2 << 20)))
    };
    let db = Db::open_with(Arc::clone(&storage), MAIN, options).unwrap();
    put(&db, 0..6_000).unwrap();
    let until = |is_so: &dyn Fn(&PlacementStats) -> bool, act: &dyn Fn(u32)| {
        for round in 0..2_000 {
            act(round);
            let stats = db.stats().placement.expect("a fast tier");
            if is_so(&stats) {
                return stats;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it never came: {:#?}", db.stats().placement);
    };
    let quota = |stats: &PlacementStats| stats.log.expect("the log's share").quota_bytes;
    // Where flushes keep up with the writer, their tables took all the room; the log gets some later.
    until(
        &|stats| stats.log.is_some_and(|log| log.segments > 0),
        &|round| put(&db, round % 20 * 300..(round % 20 + 1) * 300).unwrap(),
    );
    db.flush().unwrap();
    // More than fits.
    let read = |_| check(&db, 0..2_500);
    let stats = until(&|stats| quota(stats) == 0, &read);
    let last = stats.decisions.iter().rev().find_map(|it| it.division);
    let last = last.expect("a reason");
    assert!(last.copy_gain > last.log_gain, "{last:?}");
    // Files that are kept for use again give way; the one that is written stays, and the one before.
    until(
        &|stats| stats.log.is_some_and(|log| log.segments <= 2),
        &read,
    );
    until(&|stats| stats.placed_bytes > 1 << 18, &read);
    let write = |round: u32| {
        put(&db, 10_000 + round * 300..10_300 + round * 300).unwrap();
        machine.sleep(Duration::from_millis(200));
    };
    let stats = until(&|stats| quota(stats) >= 768 << 10, &write);
    let last = stats.decisions.iter().rev().find_map(|it| it.division);
    assert!(last.is_some_and(|it| it.log_gain > 0.0), "{last:?}");
    until(
        &|stats| stats.log.is_some_and(|log| log.segments > 2),
        &write,
    );
    check(&db, 0..6_000);
    db.close().unwrap();
}
