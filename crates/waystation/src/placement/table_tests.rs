//! Tables in a durable fast directory: whatever fails or ends, each is found whole, and its room goes to what gains most.

use super::link::is_table;
use super::slow_main_tests::SlowMain;
use super::{FastTier, PlacementStats, Spread, TablePlacement};
use crate::directory::{FAST_NAME, TABLE_DRAFT, destroy};
use crate::inspect::Inspection;
use crate::offload::{Link, LinkError, LocalReason, Offload, OffloadSettings, Session};
use crate::options::Compression;
use crate::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use crate::storage::sim::Crash;
use crate::storage::{SimStorage, Storage};
use crate::{Db, DeviceOptions, Durability, Extractor, Options, PutOptions};
use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MAIN: &str = "/db";
const FAST: &str = "/fast";
const TABLES: &str = "/fast/tables";
const KEYS: u32 = 8_000;
const RING: u64 = 256 << 10;
const CAPACITY: u64 = (3 << 20) + RING;
/// Less than the blocks of two thousand keys take.
const FREE: u64 = (512 << 10) + RING;

fn options(capacity_bytes: Option<u64>) -> Options {
    Options {
        cache_bytes: 0,
        compression: Compression::None,
        table_bytes: 128 << 10,
        memtable_bytes: 256 << 10,
        ring_bytes: RING as usize,
        log_segment_bytes: 256 << 10,
        devices: Some(DeviceOptions::new(Extractor::until(b':'))),
        fast: capacity_bytes.map(|bytes| FastTier {
            durable: true,
            ..FastTier::new(FAST, bytes)
        }),
        ..Options::default()
    }
}

fn open(storage: &Arc<dyn Storage>, capacity_bytes: Option<u64>) -> crate::Result<Db> {
    Db::open_with(Arc::clone(storage), MAIN, options(capacity_bytes))
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

fn put(db: &Db, numbers: std::ops::Range<u32>) -> crate::Result<()> {
    numbers
        .into_iter()
        .try_for_each(|number| db.put(&key(number), &[number as u8; 500]))
}

fn check(db: &Db, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let found = db.get(&key(number)).unwrap();
        assert_eq!(found.as_deref(), Some(&[number as u8; 500][..]), "{number}");
    }
}

fn compact(db: &Db) -> crate::Result<()> {
    db.flush()?;
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
}

fn placement(db: &Db) -> PlacementStats {
    db.stats().placement.expect("a fast tier")
}

fn tables(db: &Db) -> TablePlacement {
    placement(db).tables.expect("the share of tables")
}

/// The names and bytes of the tables in `directory`.
fn files(storage: &Arc<dyn Storage>, directory: &str) -> Vec<(String, u64)> {
    let entries = storage.list(Path::new(directory)).unwrap_or_default();
    let entries = entries.into_iter().map(|entry| (entry.name, entry.bytes));
    entries.filter(|(name, _)| is_table(name)).collect()
}

fn machine(seed: u64) -> (Arc<SimStorage>, Arc<dyn Storage>, FaultRules) {
    let machine = SimStorage::new(seed);
    let rules = FaultRules::new();
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    (machine, storage, rules)
}

#[test]
fn tables_lie_in_both_directories_and_are_found() {
    let (_, storage, _) = machine(1);
    let capacity = Some(CAPACITY);
    let db = open(&storage, capacity).unwrap();
    put(&db, 0..KEYS).unwrap();
    compact(&db).unwrap();
    let share = tables(&db);
    assert!(
        share.tables >= 2 && share.table_bytes <= CAPACITY,
        "{share:?}"
    );
    check(&db, 0..KEYS);
    assert!(db.check().unwrap().problems.is_empty());
    db.checkpoint(Path::new("/checkpoint")).unwrap();
    let exported = db.export_leveldb(Path::new("/exported"), Compression::None, &mut |_| ());
    assert_eq!(exported.unwrap().entries, u64::from(KEYS));
    db.close().unwrap();
    let there = files(&storage, TABLES).len() as u64;
    // The background may have moved some meanwhile, or removed what a merge made useless.
    assert!(there >= 1 && there <= share.tables, "{there}, {share:?}");
    assert!(!files(&storage, MAIN).is_empty(), "not all of them fit");
    let inspection = Inspection::open(Arc::clone(&storage), MAIN).unwrap();
    assert!(inspection.check(&mut |_| ()).unwrap().problems.is_empty());
    let checkpoint = Db::open_with(Arc::clone(&storage), "/checkpoint", options(None)).unwrap();
    check(&checkpoint, 0..KEYS);
    checkpoint.close().unwrap();
    let db = open(&storage, capacity).unwrap();
    let found = tables(&db).tables;
    assert!(found >= 1 && found <= there, "{found} of {there}");
    check(&db, 0..KEYS);
    db.close().unwrap();
    // Without the option they come back.
    let db = open(&storage, None).unwrap();
    check(&db, 0..KEYS);
    db.close().unwrap();
    assert_eq!(files(&storage, TABLES), []);
}

#[test]
fn the_capacity_is_not_crossed_by_tables_that_grow() {
    let (machine, storage, _) = machine(2);
    let capacity = CAPACITY;
    let long = Options {
        table_bytes: 4 << 20,
        ..options(Some(capacity))
    };
    let db = Db::open_with(Arc::clone(&storage), MAIN, long).unwrap();
    for round in 0..4 {
        put(&db, round * KEYS..(round + 1) * KEYS).unwrap();
        compact(&db).unwrap();
        let bytes: u64 = files(&storage, TABLES).iter().map(|(_, bytes)| bytes).sum();
        assert!(bytes <= capacity, "{bytes}");
    }
    check(&db, 0..4 * KEYS);
    drop(db);
    let again: Arc<dyn Storage> = machine.crash(2, Crash::PowerCut);
    let db = open(&again, Some(capacity)).unwrap();
    assert!(db.check().unwrap().problems.is_empty());
    db.close().unwrap();
}

#[test]
fn a_table_that_gets_too_long_is_not_begun_there() {
    // A memtable of 9,000 keys is longer than the room, and is flushed when all keys are there.
    for (keys, expected) in [(9_000, 0), (20, 1)] {
        let (_, storage, rules) = machine(8);
        let rule = Rule::new(Operation::Open, Fault::Fail(Refusal::NoSpace));
        let opened = rules.add(rule.on(TABLES).after(u64::MAX));
        let options = Options {
            memtable_bytes: 16 << 20,
            ..options(Some(CAPACITY))
        };
        let db = Db::open_with(Arc::clone(&storage), MAIN, options).unwrap();
        put(&db, 0..keys).unwrap();
        db.flush().unwrap();
        assert_eq!(rules.count(opened).matched > 0, expected > 0);
        assert_eq!(tables(&db).tables, expected);
        check(&db, 0..keys);
        db.close().unwrap();
    }
}

#[test]
fn a_directory_that_fails_or_is_full_holds_up_no_table() {
    for (seed, operation, refusal) in [
        (3, Operation::Write, Refusal::InputOutput),
        (4, Operation::Write, Refusal::NoSpace),
        (5, Operation::Open, Refusal::InputOutput),
        (6, Operation::Sync, Refusal::InputOutput),
        (7, Operation::Remove, Refusal::InputOutput),
    ] {
        let (machine, storage, rules) = machine(seed);
        let db = open(&storage, Some(CAPACITY)).unwrap();
        put(&db, 0..200).unwrap();
        rules.add(
            Rule::new(operation, Fault::Fail(refusal))
                .on(TABLES)
                .times(20),
        );
        let mut attempts = 0;
        // A call that needs the failing device may be refused; the next ones go on.
        let mut again = |act: &dyn Fn() -> crate::Result<()>| {
            while let Err(error) = act() {
                attempts += 1;
                assert!(attempts < 500, "{operation:?}: {error}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        for number in 200..KEYS {
            again(&|| put(&db, number..number + 1));
        }
        again(&|| compact(&db));
        rules.clear();
        check(&db, 0..KEYS);
        drop(db);
        let again: Arc<dyn Storage> = machine.crash(seed, Crash::PowerCut);
        let db = open(&again, Some(CAPACITY)).unwrap();
        check(&db, 0..KEYS - 600);
        assert!(db.check().unwrap().problems.is_empty());
        db.close().unwrap();
    }
}

/// No worker listens there.
struct Nowhere;

impl Link for Nowhere {
    fn connect(&self) -> Result<Box<dyn Session>, LinkError> {
        Err(LinkError::Unreachable("a test".to_owned()))
    }
}

#[test]
fn a_worker_is_not_asked_to_merge_tables_that_it_does_not_find() {
    let (_, storage, _) = machine(10);
    let reasons = |capacity_bytes| {
        let options = Options {
            offload: Some(Offload::new(Nowhere, OffloadSettings::default())),
            ..options(capacity_bytes)
        };
        let db = Db::open_with(Arc::clone(&storage), MAIN, options).unwrap();
        // Tables of the first time are merged with those of the second.
        for _ in 0..2 {
            put(&db, 0..KEYS).unwrap();
            compact(&db).unwrap();
        }
        let local = db.stats().tree.offload.expect("a worker").local;
        db.close().unwrap();
        local
    };
    let without = reasons(None);
    assert!(
        without.contains_key(&LocalReason::Unreachable),
        "{without:?}"
    );
    assert!(!without.contains_key(&LocalReason::Unfit), "{without:?}");
    let with = reasons(Some(CAPACITY));
    assert!(with.contains_key(&LocalReason::Unfit), "{with:?}");
}

#[test]
fn tables_stay_in_the_fast_directory_while_the_main_one_is_full() {
    let (machine, storage, rules) = machine(11);
    let db = open(&storage, Some(CAPACITY)).unwrap();
    put(&db, 0..KEYS).unwrap();
    compact(&db).unwrap();
    db.close().unwrap();
    let there = files(&storage, TABLES).len();
    let full = Rule::new(Operation::Write, Fault::Fail(Refusal::NoSpace)).on(TABLE_DRAFT);
    rules.add(full.times(1));
    let db = open(&storage, None).unwrap();
    check(&db, 0..KEYS);
    assert_eq!(files(&storage, TABLES).len(), there);
    drop(db);
    let again: Arc<dyn Storage> = machine.crash(11, Crash::PowerCut);
    let db = open(&again, None).unwrap();
    check(&db, 0..KEYS);
    assert_eq!(files(&again, TABLES), []);
    db.close().unwrap();
}

#[test]
fn a_power_cut_brings_nothing_back_to_a_directory_that_was_given_up() {
    for seed in 0..16 {
        let (machine, storage, _) = machine(seed);
        let db = open(&storage, Some(CAPACITY)).unwrap();
        put(&db, 0..1_000).unwrap();
        compact(&db).unwrap();
        assert!(tables(&db).tables > 0);
        db.close().unwrap();
        // The files leave the fast directory, and then it is given up; or the database is removed.
        if seed % 2 == 0 {
            while storage
                .list(Path::new(MAIN))
                .unwrap()
                .iter()
                .any(|it| it.name == FAST_NAME)
            {
                open(&storage, None).unwrap().close().unwrap();
            }
        } else {
            let main = Path::new(MAIN);
            Spread::while_destroyed(&storage, main, |all| destroy(all, main)).unwrap();
        }
        let left: Arc<dyn Storage> = machine.crash(seed, Crash::PowerCut);
        let db = open(&left, Some(CAPACITY)).unwrap_or_else(|error| panic!("{seed}: {error}"));
        db.close().unwrap();
    }
}

/// A life in which tables come, go and are moved, until a call fails or all is done. How many keys are flushed.
fn live(storage: &Arc<dyn Storage>) -> u32 {
    let mut flushed = 0;
    let mut lived = || -> crate::Result<()> {
        let db = open(storage, Some(CAPACITY))?;
        put(&db, 0..800)?;
        db.flush()?;
        flushed = 800;
        compact(&db)?;
        assert!(tables(&db).tables > 0);
        put(&db, 800..1_600)?;
        db.flush()?;
        flushed = 1_600;
        db.close()?;
        // The tables come back.
        open(storage, None)?.close()
    };
    let _ = lived();
    flushed
}

#[test]
fn the_machine_ends_at_any_call_and_each_table_is_found_whole() {
    for operation in [
        Operation::Open,
        Operation::Rename,
        Operation::Remove,
        Operation::SyncDir,
        Operation::Sync,
        Operation::Write,
    ] {
        for (fault, place) in [
            (Fault::Fail(Refusal::InputOutput), "tables"),
            (Fault::FailAfter(Refusal::InputOutput), "tables"),
            (Fault::Fail(Refusal::InputOutput), TABLE_DRAFT),
            (Fault::FailAfter(Refusal::InputOutput), TABLE_DRAFT),
        ] {
            let mut after = 0;
            while ends_well((operation, fault, place), after) {
                after += 1 + after / 4;
            }
        }
    }
}

fn ends_well((operation, fault, place): (Operation, Fault, &str), after: u64) -> bool {
    let (machine, storage, rules) = machine(after + 20);
    let rule = rules.add(Rule::new(operation, fault).on(place).after(after).halting());
    let flushed = live(&storage);
    let caught = rules.count(rule).caught > 0;
    for (crash, fast) in [
        (Crash::Process, Some(CAPACITY)),
        (Crash::PowerCut, Some(CAPACITY)),
        (Crash::PowerCut, None),
    ] {
        let context = format!("{operation:?} {fault:?} {place} after {after}, {crash:?}");
        let left: Arc<dyn Storage> = machine.crash(after, crash);
        let db = open(&left, fast).unwrap_or_else(|error| panic!("{context}: {error}"));
        for number in 0..flushed {
            assert!(
                db.get(&key(number)).unwrap().is_some(),
                "{context}: {number}"
            );
        }
        assert!(db.check().unwrap().problems.is_empty(), "{context}");
        db.close().unwrap();
        let main: HashSet<_> = files(&left, MAIN).into_iter().collect();
        let doubles = files(&left, TABLES)
            .into_iter()
            .filter(|it| main.contains(it));
        assert_eq!(doubles.count(), 0, "{context}");
    }
    caught
}

/// The machine's storage, with a main directory that is slow, and a clock that moves with it alone.
fn slow(machine: &Arc<SimStorage>) -> Arc<dyn Storage> {
    machine.stop_clock();
    Arc::new(SlowMain {
        inner: Arc::clone(machine) as _,
        fast: (FAST, Duration::from_micros(5)),
        write: Duration::ZERO,
    })
}

/// A database on a slow main directory, with as many tables in the fast one as fit.
fn filled(machine: &Arc<SimStorage>) -> Db {
    let db = open(&slow(machine), Some(CAPACITY)).unwrap();
    // Merges may end while the log has room that it leaves only then.
    for _ in 0..20 {
        put(&db, 0..KEYS).unwrap();
        compact(&db).unwrap();
        if tables(&db).table_bytes + FREE >= CAPACITY {
            return db;
        }
        // Files that the log keeps go one after the other.
        for _ in 0..10 {
            machine.sleep(Duration::from_secs(1));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    panic!("tables find no room: {:#?}", placement(&db));
}

/// Acts until `is_so`.
fn until(db: &Db, is_so: &dyn Fn(&PlacementStats) -> bool, act: &mut dyn FnMut()) {
    for _ in 0..2_000 {
        act();
        if is_so(&placement(db)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it never came: {:#?}", placement(db));
}

fn put_durably(db: &Db, key: &str) {
    let options = PutOptions {
        durability: Durability::PowerLoss,
        ..PutOptions::default()
    };
    db.put_with(key.as_bytes(), &[0; 500], options).unwrap();
}

#[test]
fn a_log_that_writers_wait_for_gets_the_room_of_tables_that_are_read_meanwhile() {
    let machine = SimStorage::new(8);
    let db = filled(&machine);
    let share = tables(&db);
    assert!(share.tables >= 2, "{share:?}");
    let mut next = 10_000;
    let moved = |stats: &PlacementStats| stats.tables.is_some_and(|it| it.moved > 0);
    until(&db, &moved, &mut || {
        // A device's data stays in the log.
        let keys = next..next + 100;
        keys.for_each(|number| {
            put_durably(&db, &format!("car:{number}"));
        });
        next += 100;
        check(&db, 0..50);
        machine.sleep(Duration::from_millis(300));
    });
    check(&db, 0..KEYS);
    assert!(db.check().unwrap().problems.is_empty());
    db.close().unwrap();
}

#[test]
fn tables_come_before_the_log_unless_writers_wait_for_it() {
    let machine = SimStorage::new(12);
    let db = filled(&machine);
    let quota_is = |bytes: u64| {
        move |stats: &PlacementStats| stats.log.is_some_and(|log| log.quota_bytes == bytes)
    };
    assert!(quota_is(0)(&placement(&db)), "{:#?}", placement(&db));
    until(&db, &quota_is(CAPACITY - RING), &mut || {
        put_durably(&db, "car:1");
    });
    let mut next = KEYS;
    until(&db, &quota_is(0), &mut || {
        put(&db, next..next + 100).unwrap();
        next += 100;
    });
    check(&db, 0..KEYS);
    db.close().unwrap();
}

/// Slow reads of the main directory so far.
fn slow_reads(db: &Db) -> u64 {
    let areas = placement(db).areas;
    areas.iter().map(|it| it.slow_reads).sum()
}

/// The keys of blocks in the main directory.
fn keys_read_slowly(db: &Db) -> Vec<u32> {
    // No more than a block has.
    const TOGETHER: u32 = 4;
    let firsts = (0..KEYS).step_by(TOGETHER as usize);
    let slow = firsts.filter(|first| {
        let before = slow_reads(db);
        check(db, *first..first + TOGETHER);
        slow_reads(db) > before
    });
    slow.flat_map(|first| first..first + TOGETHER).collect()
}

/// All tables lie in the main directory, and copies have the room of the fast one.
fn filled_with_copies(machine: &Arc<SimStorage>) -> Db {
    let storage = slow(machine);
    let db = open(&storage, None).unwrap();
    put(&db, 0..KEYS).unwrap();
    compact(&db).unwrap();
    db.close().unwrap();
    let db = open(&storage, Some(CAPACITY)).unwrap();
    let is_full = |stats: &PlacementStats| stats.placed_bytes + FREE >= CAPACITY;
    let mut numbers = (0..KEYS).cycle().step_by(97);
    until(&db, &is_full, &mut || {
        for number in numbers.by_ref().take(100) {
            check(&db, number..number + 1);
        }
    });
    assert_eq!(tables(&db).tables, 0);
    db
}

/// Writes keys of their own to new tables.
fn write_new_tables(db: &Db) {
    for first in (KEYS..2 * KEYS).step_by(400) {
        put(db, first..first + 400).unwrap();
        db.flush().unwrap();
    }
}

#[test]
fn new_tables_get_the_room_of_copies_that_are_read_no_more_than_tables() {
    let machine = SimStorage::new(13);
    let db = filled_with_copies(&machine);
    write_new_tables(&db);
    assert!(
        tables(&db).table_bytes + FREE >= CAPACITY,
        "{:#?}",
        placement(&db)
    );
    check(&db, 0..2 * KEYS);
    db.close().unwrap();
}

#[test]
fn copies_that_are_read_much_keep_their_room_though_new_tables_come() {
    const HOT: u32 = KEYS / 5;
    let machine = SimStorage::new(14);
    let db = filled_with_copies(&machine);
    // Until it is known for a while that they are hot.
    for _ in 0..50 {
        (0..2).for_each(|_| check(&db, 0..HOT));
        machine.sleep(Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(1));
    }
    write_new_tables(&db);
    let stats = placement(&db);
    assert!(
        tables(&db).tables > 0 && stats.placed_bytes > FREE,
        "{stats:#?}"
    );
    // Some of their copies have made room, and cold ones make room for nearly all of them.
    let before = Cell::new(0);
    let few = u64::from(HOT / 100);
    until(&db, &|_| slow_reads(&db) <= before.get() + few, &mut || {
        before.set(slow_reads(&db));
        check(&db, 0..HOT);
    });
    check(&db, 0..2 * KEYS);
    db.close().unwrap();
}

#[test]
fn hot_blocks_get_the_room_of_tables_that_are_not_read() {
    let machine = SimStorage::new(9);
    let db = filled(&machine);
    assert!(tables(&db).tables > 0, "{:#?}", placement(&db));
    let moved = |stats: &PlacementStats| stats.tables.is_some_and(|it| it.moved > 0);
    let mut hot = Vec::new();
    let mut rounds = 0..;
    until(&db, &moved, &mut || {
        // Late merges change which ones these are.
        if rounds.next().is_some_and(|round| round % 100 == 0) {
            hot = keys_read_slowly(&db);
        }
        // They do not fit into the room that is left, and other tables are not read.
        for key in &hot {
            check(&db, *key..key + 1);
        }
    });
    check(&db, 0..KEYS);
    db.close().unwrap();
}
