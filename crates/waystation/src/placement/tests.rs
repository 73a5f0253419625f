//! A database whose main directory is slow, with a fast one that works, fails, lies, fills up and goes away.

use super::FastTier;
use super::slow_main_tests::SlowMain;
use crate::options::Compression;
use crate::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use crate::storage::sim::Crash;
use crate::storage::{Area, OpenMode, SimStorage, Storage, Transfer};
use crate::{Db, Error, Options, PlacementStats};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MAIN: &str = "/db";
const FAST: &str = "/fast";
const KEYS: u32 = 4_000;

fn options(capacity_bytes: u64) -> Options {
    Options {
        cache_bytes: 0,
        compression: Compression::None,
        table_bytes: 256 << 10,
        memtable_bytes: 512 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 1 << 20,
        fast: Some(FastTier::new(FAST, capacity_bytes)),
        ..Options::default()
    }
}

fn machine(seed: u64) -> (Arc<SimStorage>, Arc<dyn Storage>, FaultRules) {
    let machine = SimStorage::new(seed);
    let (faulty, rules) = faulty(&machine);
    (machine, faulty, rules)
}

fn faulty(machine: &Arc<SimStorage>) -> (Arc<dyn Storage>, FaultRules) {
    machine.stop_clock();
    let rules = FaultRules::default();
    let inner: Arc<dyn Storage> = machine.with_faults(&rules);
    (slow_main(inner, Duration::from_micros(5)), rules)
}

/// `inner`, whose fast directory is read within `fast`.
fn slow_main(inner: Arc<dyn Storage>, fast: Duration) -> Arc<dyn Storage> {
    Arc::new(SlowMain {
        inner,
        fast: (FAST, fast),
        write: Duration::ZERO,
    })
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    let mut value = format!("{number:08}").into_bytes();
    value.resize(500, b'.');
    value
}

/// A database of some two megabytes in tables.
fn filled(storage: &Arc<dyn Storage>, capacity_bytes: u64) -> Db {
    let db = Db::open_with(Arc::clone(storage), MAIN, options(capacity_bytes)).unwrap();
    for number in 0..KEYS {
        db.put(&key(number), &value(number)).unwrap();
    }
    db.flush().unwrap();
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .unwrap();
    db
}

fn placement(db: &Db) -> PlacementStats {
    db.stats().placement.expect("a fast tier")
}

fn check(db: &Db, numbers: impl IntoIterator<Item = u32>) {
    for number in numbers {
        let found = db.get(&key(number)).unwrap();
        assert_eq!(found.as_deref(), Some(&value(number)[..]), "{number}");
    }
}

/// Reads `numbers` again and again until `is_done`.
fn read_until(db: &Db, numbers: std::ops::Range<u32>, is_done: impl Fn(&PlacementStats) -> bool) {
    for _ in 0..2_000 {
        check(db, numbers.clone());
        if is_done(&placement(db)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it never came: {:#?}", placement(db));
}

fn tables(stats: &PlacementStats) -> &super::AreaPlacement {
    let mut areas = stats.areas.iter();
    areas.find(|it| it.area == Area::Tables).expect("tables")
}

#[test]
fn what_is_read_comes_to_the_fast_directory() {
    let (_, storage, _) = machine(1);
    let db = filled(&storage, 1 << 20);
    // Some 200 kB of two megabytes.
    read_until(&db, 0..400, |stats| tables(stats).fast_reads > 4_000);
    let stats = placement(&db);
    assert!(stats.placed_bytes <= 400 << 10, "{stats:#?}");
    let slow = tables(&stats).slow_reads;
    check(&db, 0..400);
    assert_eq!(tables(&placement(&db)).slow_reads, slow, "all from there");
    assert!(tables(&stats).saved_seconds > 1.0, "{stats:#?}");
    read_until(&db, 0..400, |stats| stats.predictions[1].share > 0.9);
    let stats = placement(&db);
    db.close().unwrap();
    let told = PlacementStats::read(&*storage, Path::new(MAIN)).unwrap();
    let told = told.expect("the report");
    assert_eq!(
        tables(&told),
        tables(&PlacementStats {
            areas: told.areas.clone(),
            ..stats
        })
    );
    let entries = storage.list(Path::new(FAST)).unwrap();
    assert!(entries.iter().all(|it| it.name == "LOCK"), "{entries:?}");
}

#[test]
fn what_is_read_once_takes_no_place_from_what_is_read_again() {
    let (_, storage, _) = machine(13);
    let db = filled(&storage, 1 << 20);
    let hot = 0..1_600;
    read_until(&db, hot.clone(), |stats| tables(stats).fast_reads > 20_000);
    // Each block of twice as much as there is room for; eight keys lie in one.
    check(&db, (0..KEYS).step_by(8));
    let before = tables(&placement(&db)).slow_reads;
    check(&db, hot.clone());
    let slow = tables(&placement(&db)).slow_reads - before;
    assert!(
        slow * 20 < u64::from(hot.end),
        "{slow} slow reads: {:#?}",
        placement(&db)
    );
}

#[test]
fn a_new_phase_takes_the_places_of_the_old() {
    let (_, storage, _) = machine(2);
    let db = filled(&storage, 1 << 20);
    let is_full = |stats: &PlacementStats| stats.placed_bytes + (64 << 10) > stats.usable_bytes;
    read_until(&db, 0..2_000, is_full);
    let hits = |stats: &PlacementStats| (tables(stats).fast_reads, tables(stats).slow_reads);
    let mut before = hits(&placement(&db));
    for _ in 0..400 {
        check(&db, 3_000..3_600);
        let now = hits(&placement(&db));
        let (fast, slow) = (now.0 - before.0, now.1 - before.1);
        before = now;
        if slow * 20 < fast {
            let stats = placement(&db);
            assert!(stats.placed_bytes <= stats.capacity_bytes);
            assert!(stats.decisions.len() > 1, "{stats:#?}");
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it stays with the old phase: {:#?}", placement(&db));
}

#[test]
fn writes_and_merges_beside_it_are_read_right() {
    let (_, storage, _) = machine(3);
    let db = filled(&storage, 1 << 20);
    read_until(&db, 0..500, |stats| stats.placed_bytes > 100 << 10);
    for number in 0..300 {
        db.put(&key(number), b"new").unwrap();
    }
    db.flush().unwrap();
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .unwrap();
    for number in 0..300 {
        assert_eq!(db.get(&key(number)).unwrap().as_deref(), Some(&b"new"[..]));
    }
    check(&db, 300..KEYS);
    let entries = db.range::<&[u8]>(..).map(Result::unwrap).count();
    assert_eq!(entries, KEYS as usize);
    db.close().unwrap();
}

#[test]
fn a_copy_that_is_not_what_was_written_is_not_read() {
    let (_, storage, rules) = machine(4);
    let db = filled(&storage, 1 << 20);
    // What is written to the fast directory goes elsewhere, or nowhere.
    rules.add(
        Rule::new(Operation::Write, Fault::Misdirect(0))
            .on("SLABS")
            .times(4),
    );
    rules.add(
        Rule::new(Operation::Write, Fault::Lie)
            .on("SLABS")
            .after(4)
            .times(8),
    );
    read_until(&db, 0..500, |stats| stats.damaged > 2);
    check(&db, 0..KEYS);
    rules.clear();
    read_until(&db, 0..500, |stats| tables(stats).fast_reads > 1_000);
    assert_eq!(placement(&db).failure, None);
}

#[test]
fn a_check_looks_at_the_files_and_not_at_their_copies() {
    let (machine, storage, _) = machine(16);
    let db = Db::open_with(Arc::clone(&storage), MAIN, options(1 << 20)).unwrap();
    for number in 0..5 {
        db.put(&key(number), &value(number)).unwrap();
    }
    db.flush().unwrap();
    // What a check reads is not kept: the next one would read copies.
    for _ in 0..5 {
        assert!(db.check().unwrap().problems.is_empty());
        std::thread::sleep(Duration::from_millis(5));
    }
    let entries = machine.list(Path::new(MAIN)).unwrap();
    let is_table = |name: &str| Path::new(name).extension().is_some_and(|it| it == "ldb");
    let table = entries
        .iter()
        .find(|it| is_table(&it.name))
        .expect("a table");
    let path = Path::new(MAIN).join(&table.name);
    let file = machine.open(&path, OpenMode::ReadWrite, Transfer::Buffered, Area::Tables);
    file.unwrap().write_at(b"damage", 100).unwrap();
    assert!(!db.check().unwrap().problems.is_empty());
}

#[test]
fn a_fast_directory_that_fails_rests_and_comes_back() {
    for (seed, operation) in [(5, Operation::Read), (6, Operation::Write)] {
        let (_, storage, rules) = machine(seed);
        let db = filled(&storage, 1 << 20);
        let refuse = Fault::Fail(Refusal::InputOutput);
        if operation == Operation::Read {
            read_until(&db, 0..500, |stats| tables(stats).fast_reads > 500);
        }
        rules.add(Rule::new(operation, refuse).on(FAST));
        rules.add(Rule::new(Operation::Open, refuse).on(FAST));
        read_until(&db, 0..500, |stats| stats.failure.is_some());
        check(&db, 0..KEYS);
        db.put(b"written meanwhile", b"yes").unwrap();
        rules.clear();
        read_until(&db, 0..500, |stats| stats.failure.is_none());
        read_until(&db, 0..500, |stats| tables(stats).fast_reads > 1_000);
        assert_eq!(
            db.get(b"written meanwhile").unwrap().as_deref(),
            Some(&b"yes"[..])
        );
        db.close().unwrap();
    }
}

#[test]
fn a_fast_directory_that_is_not_there_at_first_is_used_later() {
    let (_, storage, rules) = machine(7);
    rules.add(Rule::new(Operation::CreateDir, Fault::Fail(Refusal::InputOutput)).on(FAST));
    let db = filled(&storage, 1 << 20);
    check(&db, 0..500);
    let failure = placement(&db).failure.expect("it rests");
    assert!(failure.contains(FAST), "{failure}");
    rules.clear();
    read_until(&db, 0..500, |stats| tables(stats).fast_reads > 1_000);
}

#[test]
fn a_full_fast_directory_keeps_what_it_has() {
    let (machine, storage, rules) = machine(8);
    let db = filled(&storage, 1 << 20);
    rules.add(
        Rule::new(Operation::Write, Fault::Fail(Refusal::NoSpace))
            .on("SLABS")
            .after(5),
    );
    read_until(&db, 0..800, |stats| tables(stats).fast_reads > 1_000);
    let stats = placement(&db);
    assert_eq!(stats.usable_bytes, 64 << 10, "{stats:#?}");
    assert_eq!(stats.placed_blocks, 5, "{stats:#?}");
    assert_eq!(stats.failure, None);
    check(&db, 0..KEYS);
    // A minute later there is room again.
    rules.clear();
    machine.sleep(Duration::from_secs(60));
    read_until(&db, 0..800, |stats| stats.placed_blocks > 50);
    assert_eq!(placement(&db).usable_bytes, 1 << 20);
}

#[test]
fn a_fast_directory_slower_than_the_main_one_rests() {
    let machine = SimStorage::new(9);
    machine.stop_clock();
    let storage = slow_main(machine, Duration::from_millis(20));
    let db = filled(&storage, 1 << 20);
    read_until(&db, 0..500, |stats| stats.failure.is_some());
    let failure = placement(&db).failure.expect("it rests");
    assert!(failure.contains("a read there took"), "{failure}");
    check(&db, 0..KEYS);
}

#[test]
fn each_end_of_the_machine_leaves_all_data_and_an_empty_tier() {
    for (seed, crash) in [(10, Crash::Process), (11, Crash::PowerCut)] {
        let (machine, storage, _) = machine(seed);
        let db = filled(&storage, 1 << 20);
        read_until(&db, 0..500, |stats| stats.placed_bytes > 100 << 10);
        machine.power_off();
        let (storage, _) = faulty(&machine.crash(seed, crash));
        let again = Db::open_with(Arc::clone(&storage), MAIN, options(1 << 20)).unwrap();
        assert_eq!(placement(&again).placed_bytes, 0);
        check(&again, 0..KEYS);
        read_until(&again, 0..500, |stats| tables(stats).fast_reads > 500);
        again.close().unwrap();
        drop(db);
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let (_, storage, _) = machine(12);
    let open = |fast: FastTier| {
        let options = Options {
            fast: Some(fast),
            ..options(1 << 20)
        };
        Db::open_with(Arc::clone(&storage), MAIN, options)
    };
    for (fast, part) in [
        (FastTier::new(FAST, 0), "must be at least"),
        (FastTier::new("", 1 << 20), "is empty"),
        (FastTier::new(MAIN, 1 << 20), "is the database's own"),
    ] {
        let error = open(fast).err().expect("an error");
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    let first = Db::open_with(Arc::clone(&storage), "/other", options(1 << 20)).unwrap();
    let error = open(FastTier::new(FAST, 1 << 20)).err().expect("an error");
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    first.close().unwrap();
    let error = open(FastTier::new("/other", 1 << 20))
        .err()
        .expect("an error");
    assert!(matches!(error, Error::Incompatible { .. }), "{error}");
    open(FastTier::new(FAST, 1 << 20)).unwrap().close().unwrap();
}

#[test]
fn readers_beside_each_other_see_nothing_else_than_was_written() {
    const ROUNDS_MAX: u32 = 2_000;
    let (_, storage, _) = machine(14);
    let db = filled(&storage, 1 << 20);
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let db = &db;
            scope.spawn(move || {
                for round in 0..ROUNDS_MAX {
                    // Each round has another half that is hot, so that places change hands all the time.
                    let first = (thread * 700 + round * 1_300) % (KEYS / 2);
                    for _ in 0..4 {
                        check(db, (first..first + KEYS / 2).step_by(8));
                    }
                    // The thread that fills the fast directory may get its turn late.
                    if round >= 5 && tables(&placement(db)).fast_reads > 0 {
                        break;
                    }
                }
            });
        }
        // Tables come and go meanwhile.
        for number in 0..KEYS {
            db.put(&key(number), &value(number)).unwrap();
        }
        db.flush().unwrap();
        db.compact_range(Bound::Unbounded, Bound::Unbounded)
            .unwrap();
    });
    let stats = placement(&db);
    assert!(tables(&stats).fast_reads > 0, "{stats:#?}");
    assert_eq!(stats.damaged, 0);
    // The readers share one clock: the fast directory may seem slow by the reads of others.
    let is_slow = |failure: &String| failure.contains("a read there took");
    assert!(stats.failure.as_ref().is_none_or(is_slow), "{stats:#?}");
    assert!(stats.placed_bytes <= stats.capacity_bytes);
}

#[test]
fn blocks_of_another_size_get_the_room_of_cold_ones() {
    let (_, storage, _) = machine(15);
    let db = filled(&storage, 1 << 20);
    // Values of their own size, longer than a block.
    let long = |number: u32| vec![number as u8; 9_000];
    for number in 0..200 {
        db.put(&[b"long-", &key(number)[..]].concat(), &long(number))
            .unwrap();
    }
    db.flush().unwrap();
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .unwrap();
    read_until(&db, 0..2_500, |stats| {
        stats.placed_bytes + (32 << 10) > stats.usable_bytes
    });
    let mut before = placement(&db);
    for _ in 0..2_000 {
        for number in 0..60 {
            let found = db.get(&[b"long-", &key(number)[..]].concat()).unwrap();
            assert_eq!(found, Some(long(number)));
        }
        let now = placement(&db);
        let fast = tables(&now).fast_reads - tables(&before).fast_reads;
        if fast > 50 {
            return;
        }
        before = now;
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the long blocks find no room: {before:#?}");
}

#[test]
fn a_capacity_beyond_the_device_is_what_the_device_has() {
    let (machine, storage, _) = machine(17);
    machine.set_capacity(Some(64 << 20));
    let db = filled(&storage, u64::MAX);
    let stats = placement(&db);
    assert!(stats.usable_bytes <= 64 << 20, "{stats:#?}");
    read_until(&db, 0..500, |stats| tables(stats).fast_reads > 1_000);
}

#[test]
fn what_the_copies_cost_is_told_apart() {
    let (_, storage, _) = machine(18);
    let db = filled(&storage, 1 << 20);
    let copied = |db: &Db| {
        let mut areas = db.stats().storage.into_iter();
        let copies = areas.find(|it| it.area == Area::Copies).expect("copies");
        copies.meter.written_bytes
    };
    let memory = |db: &Db| db.stats().memory.placement_bytes;
    // A round may have come by: files without parts take some bytes.
    assert!(copied(&db) == 0 && memory(&db) < 2_560, "{}", memory(&db));
    read_until(&db, 0..500, |stats| tables(stats).fast_reads > 1_000);
    assert!(copied(&db) >= 200 << 10, "{}", copied(&db));
    // A tenth of a table's blocks in a part of 512 KiB at least, and an item for each copy.
    assert!((2_560..200 << 10).contains(&memory(&db)), "{}", memory(&db));
    // A walk over all of it is no reason for copies.
    let before = placement(&db).placed_blocks;
    for _ in 0..20 {
        assert_eq!(db.range::<&[u8]>(..).count(), KEYS as usize);
    }
    let after = placement(&db).placed_blocks;
    assert!(after < before + 40, "{before} blocks, then {after}");
}
