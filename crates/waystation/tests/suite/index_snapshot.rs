//! Images of the indexes: an opening reads the log behind the image alone, and finds what it would have found without one;
//! and where one is of no use, all of the log is read.

use crate::support::{Content, Random, content, open_simulated, wait_until};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use waystation::repair;
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use waystation::storage::sim::Crash;
use waystation::storage::{Area, OpenMode, SimStorage, Storage, Transfer};
use waystation::{
    Db, DeviceInfo, DeviceLevel, DeviceOptions, Durability, Extractor, Options, inspect,
};

const NAME: &str = "/db/INDEXES";

/// Devices that stay, and an image whenever the log has grown by `replay_bytes`.
fn options(replay_bytes: u64) -> Options {
    Options {
        devices: Some(DeviceOptions {
            residency: Duration::from_secs(1_000_000),
            replay_bytes,
            ..DeviceOptions::new(Extractor::until(b':'))
        }),
        memtable_bytes: 64 << 10,
        table_bytes: 64 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        cache_bytes: 256 << 10,
        ..Options::default()
    }
}

/// Nothing is drawn any more.
fn resting() -> Options {
    options(u64::MAX)
}

fn put(db: &Db, expected: &mut Content, key: String, bytes: usize) {
    let value = vec![bytes as u8; bytes];
    db.put(key.as_bytes(), &value).expect("put");
    expected.insert(key.into_bytes(), value);
}

/// Some devices with records, some of them overwritten and deleted, and keys of none.
fn fill(db: &Db, expected: &mut Content, records: usize) {
    for number in 0..records {
        let key = format!("car-{:02}:{:05}", number % 40, number / 3);
        put(db, expected, key, 1_000 + number % 100);
        if number % 50 == 0 {
            put(db, expected, format!("plain-{number:05}"), 40);
        }
        if number % 70 == 0 {
            let key = format!("car-{:02}:{:05}", number % 40, number / 3);
            db.delete(key.as_bytes()).expect("delete");
            expected.remove(key.as_bytes());
        }
    }
}

fn exists(machine: &SimStorage) -> bool {
    let entries = machine.list(Path::new("/db")).expect("list");
    entries.iter().any(|entry| entry.name == "INDEXES")
}

/// The devices that have not departed.
fn present(db: &Db) -> Vec<DeviceInfo> {
    let mut devices = db.devices().list().expect("devices");
    devices.retain(|it| it.level != DeviceLevel::Departed);
    devices
}

fn unspared(db: &Db) -> u64 {
    db.stats().devices.expect("there are some").replay_bytes
}

/// Fills a database and waits for an image of nearly all of it.
fn with_image(seed: u64) -> (Arc<SimStorage>, Db, Content) {
    let machine = SimStorage::new(seed);
    let db = open_simulated(&machine, options(16 << 10)).expect("open");
    let mut expected = Content::new();
    fill(&db, &mut expected, 12_000);
    let needed = db.stats().devices.expect("there are some").needed_log_bytes;
    assert!(needed > 2 << 20);
    // Eight times the indexes, which is far less than half of the log.
    wait_until("an image", || {
        exists(&machine) && unspared(&db) <= needed / 2
    });
    (machine, db, expected)
}

/// The bytes of the image there is.
fn image(machine: &SimStorage) -> Vec<u8> {
    let file = machine.open(
        Path::new(NAME),
        OpenMode::Read,
        Transfer::Buffered,
        Area::Tables,
    );
    let file = file.expect("open");
    let mut bytes = vec![0; file.size().expect("size") as usize];
    file.read_at(&mut bytes, 0).expect("read");
    bytes
}

/// Puts another image in the place of the one there is.
fn replace(machine: &SimStorage, bytes: &[u8]) {
    let file = machine.open(
        Path::new(NAME),
        OpenMode::Create,
        Transfer::Buffered,
        Area::Tables,
    );
    file.expect("create").write_at(bytes, 0).expect("write");
}

/// What is left of such a machine when the process has died, all of it durable.
fn killed_with_image(seed: u64) -> (Arc<SimStorage>, Content) {
    let (machine, db, expected) = with_image(seed);
    db.sync().expect("sync");
    let left = machine.crash(seed, Crash::Process);
    drop(db);
    (left, expected)
}

/// What an opening read of the log.
fn opened(machine: &Arc<SimStorage>, options: Options) -> (Db, u64) {
    let read = |machine: &SimStorage| {
        let meters = machine.meters();
        let journal = meters.iter().find(|(area, _)| *area == Area::Journal);
        journal.map_or(0, |(_, meter)| meter.read_bytes)
    };
    let before = read(machine);
    let db = open_simulated(machine, options).expect("open");
    let after = read(machine);
    (db, after - before)
}

#[test]
fn an_opening_reads_what_lies_behind_the_image_and_finds_everything() {
    for (seed, crash) in (0..).zip([Crash::Process, Crash::PowerCut, Crash::Process]) {
        let (machine, db, mut expected) = with_image(seed);
        // Behind the image: new records, and devices that leave and come back.
        fill(&db, &mut expected, 300);
        for device in ["car-03", "car-17"] {
            db.devices().depart(device.as_bytes()).expect("depart");
            expected.retain(|key, _| !key.starts_with(format!("{device}:").as_bytes()));
        }
        put(&db, &mut expected, "car-17:again".into(), 30);
        db.sync().expect("sync");
        let before = present(&db);
        let machine = machine.crash(seed, crash);
        drop(db);
        let (db, read) = opened(&machine, resting());
        assert_eq!(content(&db), expected);
        let devices = present(&db);
        for (was, is) in before.iter().zip(&devices) {
            let known = |it: &DeviceInfo| (it.name.clone(), it.level, it.incarnation);
            assert_eq!(known(was), known(is));
            assert_eq!((was.records, was.bytes), (is.records, is.bytes));
        }
        assert_eq!(before.len(), devices.len());
        db.close().expect("close");
        // All of it is read without the image.
        machine.remove(Path::new(NAME)).expect("remove");
        let (db, all) = opened(&machine, resting());
        assert_eq!(content(&db), expected);
        assert!(read * 10 < all * 8, "{read} of {all} bytes were read");
    }
}

/// Or a large part of what is written would be images.
#[test]
fn there_is_no_image_while_the_log_is_not_much_larger_than_the_indexes() {
    let machine = SimStorage::new(7);
    let db = open_simulated(&machine, options(16 << 10)).expect("open");
    let mut expected = Content::new();
    for number in 0..12_000 {
        let key = format!("car-{}:{number:05}", number % 40);
        put(&db, &mut expected, key, 10);
    }
    db.wait_idle().expect("idle");
    let stats = db.stats().devices.expect("there are some");
    assert!(stats.replay_bytes > 16 << 10 && stats.replay_bytes < 8 * stats.index_bytes);
    assert!(!exists(&machine));
    for number in 0..2_000 {
        let key = format!("car-{}:{number:05}", number % 40);
        put(&db, &mut expected, key, 3_000);
    }
    wait_until("an image", || exists(&machine));
    assert_eq!(content(&db), expected);
}

#[test]
fn devices_that_settled_or_were_about_to_are_what_they_were() {
    let (machine, db, mut expected) = with_image(5);
    db.devices().settle(b"car-01").expect("settle");
    // The load of its tables fails, so that it remains about to settle.
    let rules = FaultRules::new();
    let machine = {
        let crashed = machine.crash(5, Crash::Process);
        drop(db);
        crashed
    };
    let faulty = machine.with_faults(&rules);
    let db = Db::open_with(faulty, "/db", options(16 << 10)).expect("open");
    db.flush().expect("flush");
    let rule = Rule::new(Operation::Open, Fault::Fail(Refusal::InputOutput)).on(".ldb");
    let id = rules.add(rule.times(u64::MAX));
    assert!(db.devices().settle(b"car-02").is_err());
    let earlier = image(&machine);
    for number in 0..20_000 {
        let key = format!("car-30:later{number:04}");
        put(&db, &mut expected, key, 1_000);
    }
    wait_until("another image", || image(&machine) != earlier);
    for device in ["car-01", "car-02"] {
        put(&db, &mut expected, format!("{device}:later"), 250);
    }
    let machine = machine.crash(6, Crash::Process);
    rules.remove(id);
    drop(db);
    let (db, _) = opened(&machine, resting());
    assert_eq!(content(&db), expected);
    db.wait_idle().expect("idle");
    let level = |name: &[u8]| {
        let devices = db.devices().list().expect("devices");
        devices
            .into_iter()
            .find(|it| it.name == name)
            .map(|it| it.level)
    };
    db.devices().settle(b"car-02").expect("settle");
    assert_eq!(level(b"car-01"), Some(DeviceLevel::Tree));
    assert_eq!(level(b"car-02"), Some(DeviceLevel::Tree));
    assert_eq!(level(b"car-30"), Some(DeviceLevel::Upper));
    assert_eq!(content(&db), expected);
}

#[test]
fn an_image_that_is_damaged_is_not_used() {
    let (machine, expected) = killed_with_image(7);
    let bytes = image(&machine).len() as u64;
    let mut random = Random(7);
    for round in 0..60 {
        let machine = machine.crash(round, Crash::Process);
        let bit = random.below(8 * bytes);
        machine.flip_bit(Path::new(NAME), bit).expect("flip");
        let storage: Arc<dyn Storage> = machine.clone();
        let checked = inspect::Inspection::open(storage, "/db").expect("inspect");
        let problems = checked.check(&mut |_| ()).expect("check").problems;
        assert!(problems.iter().any(|it| it.file == "INDEXES"), "bit {bit}");
        let (db, _) = opened(&machine, resting());
        assert_eq!(content(&db), expected, "bit {bit}");
        assert!(!exists(&machine), "it is removed");
    }
}

#[test]
fn an_image_of_another_directory_or_another_time_is_not_used() {
    let (machine, db, expected) = with_image(8);
    let (other, other_db, _) = with_image(9);
    db.sync().expect("sync");
    other_db.sync().expect("sync");
    let (own, foreign) = (image(&machine), image(&other));
    let machine = machine.crash(8, Crash::Process);
    drop((db, other_db));
    let later = machine.crash(1, Crash::Process);
    let swapped = machine.crash(2, Crash::Process);
    replace(&swapped, &foreign);
    let (db, _) = opened(&swapped, resting());
    assert_eq!(content(&db), expected);
    // One from before: everybody it shows has left since, and the log that it knows is freed.
    drop(db);
    let (db, _) = opened(&later, resting());
    for device in db.devices().list().expect("devices") {
        db.devices().depart(&device.name).expect("depart");
    }
    let mut fresh = Content::new();
    fill(&db, &mut fresh, 3_000);
    db.flush().expect("flush");
    fresh.extend(
        expected
            .into_iter()
            .filter(|(key, _)| key.starts_with(b"plain") && !fresh.contains_key(key))
            .collect::<Vec<_>>(),
    );
    db.close().expect("close");
    replace(&later, &own);
    let (db, _) = opened(&later, resting());
    assert_eq!(content(&db), fresh);
}

#[test]
fn an_image_goes_when_nothing_in_it_is_left() {
    let (machine, db, _) = with_image(10);
    for device in db.devices().list().expect("devices") {
        db.devices().depart(&device.name).expect("depart");
    }
    wait_until("the image is removed", || !exists(&machine));
    let mut expected = content(&db);
    fill(&db, &mut expected, 2_000);
    wait_until("another image", || exists(&machine));
    let machine = machine.crash(10, Crash::Process);
    drop(db);
    let (db, _) = opened(&machine, resting());
    assert_eq!(content(&db), expected);
}

#[test]
fn one_that_cannot_be_written_costs_nothing() {
    let machine = SimStorage::new(11);
    let rules = FaultRules::new();
    let faulty = machine.with_faults(&rules);
    let operations = [
        Operation::Open,
        Operation::Write,
        Operation::Sync,
        Operation::Rename,
    ];
    let ids = operations.map(|operation| {
        let rule = Rule::new(operation, Fault::Fail(Refusal::NoSpace)).on("INDEXES");
        rules.add(rule.after(1).times(2))
    });
    let db = Db::open_with(faulty, "/db", options(8 << 10)).expect("open");
    let mut expected = Content::new();
    for _ in 0..20 {
        fill(&db, &mut expected, 500);
        db.write(&waystation::WriteBatch::new(), Durability::PowerLoss)
            .expect("write");
    }
    wait_until("an image", || exists(&machine));
    assert_eq!(content(&db), expected);
    for id in ids {
        rules.remove(id);
    }
    let machine = machine.crash(11, Crash::PowerCut);
    drop(db);
    let (db, _) = opened(&machine, resting());
    assert_eq!(content(&db), expected);
}

#[test]
fn a_log_that_ends_before_what_the_image_shows_is_refused() {
    let (machine, _) = killed_with_image(12);
    let entries = machine.list(Path::new("/db")).expect("list");
    let mut segments: Vec<_> = (entries.into_iter().map(|entry| entry.name))
        .filter(|name| name.starts_with("journal-"))
        .collect();
    segments.sort();
    let gone = Path::new("/db").join(&segments[segments.len() / 2]);
    machine.remove(&gone).expect("remove");
    let refused = open_simulated(&machine, resting()).err();
    assert!(
        matches!(refused, Some(waystation::Error::Corruption { .. })),
        "{refused:?}"
    );
}

#[test]
fn one_that_cannot_be_read_is_left_alone() {
    let (machine, expected) = killed_with_image(13);
    for operation in [Operation::Open, Operation::Read] {
        let rules = FaultRules::new();
        let rule = Rule::new(operation, Fault::Fail(Refusal::InputOutput)).on("INDEXES");
        let id = rules.add(rule.times(u64::MAX));
        let db = Db::open_with(machine.with_faults(&rules), "/db", resting()).expect("open");
        assert!(rules.count(id).caught > 0);
        assert_eq!(content(&db), expected);
        db.close().expect("close");
        assert!(exists(&machine));
    }
    let (db, _) = opened(&machine, resting());
    assert_eq!(content(&db), expected);
}

#[test]
fn a_damaged_image_is_nothing_to_repair() {
    let (machine, expected) = killed_with_image(14);
    machine.flip_bit(Path::new(NAME), 999).expect("flip");
    let storage: Arc<dyn Storage> = machine.clone();
    let none = repair::Resurrection::Impossible;
    let path = Path::new("/db");
    let repaired = repair::repair_in_place(&storage, path, &resting(), none, &mut |_| ());
    assert!(repaired.expect("repair").is_none());
    assert!(!exists(&machine));
    assert_eq!(content(&opened(&machine, resting()).0), expected);
}
