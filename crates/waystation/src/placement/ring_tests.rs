//! The staging ring of a database with a durable fast directory: it lies in one directory, and nothing in it is lost when it
//! gets its place in the other one.

use super::FastTier;
use super::spread_tests::durable_each;
use super::table_share::TableShare;
use super::tier::Tier;
use crate::directory::{RING_NAME, destroy};
use crate::inspect::Inspection;
use crate::options::Compression;
use crate::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use crate::storage::sim::Crash;
use crate::storage::{SimStorage, Storage};
use crate::{Db, Options};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MAIN: &str = "/db";
const FAST: &str = "/fast";
const LOG: &str = "/fast/log";
const CAPACITY: u64 = 3 << 20;
const RING: usize = 1 << 20;
/// `OWNER` and the like.
const OTHERS: u64 = 4 << 10;

/// A database with a fast directory of so many bytes, and a ring of so many.
fn open(
    storage: &Arc<dyn Storage>,
    capacity_bytes: Option<u64>,
    ring_bytes: usize,
) -> crate::Result<Db> {
    let options = Options {
        compression: Compression::None,
        table_bytes: 64 << 10,
        memtable_bytes: 256 << 10,
        ring_bytes,
        log_segment_bytes: 256 << 10,
        cache_bytes: 0,
        fast: capacity_bytes.map(|bytes| FastTier {
            durable: true,
            ..FastTier::new(FAST, bytes)
        }),
        ..Options::default()
    };
    Db::open_with(Arc::clone(storage), MAIN, options)
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

/// Puts of which every tenth survives a power cut. Returns how many were acknowledged.
fn put(db: &Db, numbers: std::ops::Range<u32>) -> u32 {
    let is_put = |number: &u32| {
        let options = durable_each(10, *number);
        db.put_with(&key(*number), &[*number as u8; 700], options)
            .is_ok()
    };
    numbers.take_while(is_put).count() as u32
}

fn check(db: &Db, count: u32, context: &str) {
    for number in 0..count {
        let found = db.get(&key(number)).unwrap();
        let expected = [number as u8; 700];
        assert_eq!(found.as_deref(), Some(&expected[..]), "{context}: {number}");
    }
}

/// The length of the ring in `directory`.
fn ring(storage: &Arc<dyn Storage>, directory: &str) -> Option<u64> {
    let entries = storage.list(Path::new(directory)).unwrap_or_default();
    let found = entries.into_iter().find(|entry| entry.name == RING_NAME);
    found.map(|entry| entry.bytes)
}

/// Whether the ring lies in the fast directory. It lies in one of both.
fn is_there(storage: &Arc<dyn Storage>) -> bool {
    let (main, fast) = (ring(storage, MAIN), ring(storage, LOG));
    assert!(main.is_some() != fast.is_some(), "{main:?}, {fast:?}");
    fast.is_some()
}

#[test]
fn it_lies_there_if_it_fits_and_moves_when_the_options_change() {
    let mut machine = SimStorage::new(1);
    let lives = [
        (Some(CAPACITY), RING, true),
        (None, RING, false),
        (Some(CAPACITY), RING, true),
        // Not beside a segment.
        (Some(1 << 20), RING, false),
        (Some(CAPACITY), RING / 2, true),
        (Some(CAPACITY), RING, true),
        (None, RING / 2, false),
    ];
    let mut written = 0;
    for (seed, (capacity, ring_bytes, expected)) in (0..).zip(lives) {
        let storage: Arc<dyn Storage> = Arc::clone(&machine) as _;
        let db = open(&storage, capacity, ring_bytes).unwrap();
        assert_eq!(is_there(&storage), expected, "{capacity:?}, {ring_bytes}");
        check(&db, written, "before");
        written += put(&db, written..written + 35);
        check(&db, written, "after");
        machine = if seed % 3 == 2 {
            db.close().unwrap();
            let inspection = Inspection::open(Arc::clone(&storage), MAIN).unwrap();
            assert!(inspection.check(&mut |_| ()).unwrap().problems.is_empty());
            machine.crash(seed, Crash::PowerCut)
        } else {
            machine.crash(seed, Crash::Process)
        };
    }
    let storage: Arc<dyn Storage> = machine as _;
    let db = open(&storage, Some(CAPACITY), RING).unwrap();
    check(&db, written, "at the end");
    db.close().unwrap();
    super::Spread::while_destroyed(&storage, Path::new(MAIN), |files| {
        destroy(files, Path::new(MAIN))
    })
    .unwrap();
    assert_eq!((ring(&storage, MAIN), ring(&storage, LOG)), (None, None));
}

#[test]
fn the_machine_ends_at_any_call_of_a_move_and_nothing_is_lost() {
    let operations = [
        Operation::MapRing,
        Operation::Remove,
        Operation::Rename,
        Operation::SyncDir,
        Operation::Write,
        Operation::Sync,
    ];
    let faults = [
        Fault::Fail(Refusal::InputOutput),
        Fault::FailAfter(Refusal::InputOutput),
    ];
    for moves in [(None, Some(CAPACITY)), (Some(CAPACITY), None)] {
        for operation in operations {
            for fault in faults {
                let ended = (0..).take_while(|after| ends_in_move(moves, operation, fault, *after));
                assert!(ended.count() > 0, "{moves:?} {operation:?} {fault:?}");
            }
        }
    }
}

/// Has the machine end at call `after` of an opening that gives the ring the other place. Returns whether there was such a call.
fn ends_in_move(
    (before, then): (Option<u64>, Option<u64>),
    operation: Operation,
    fault: Fault,
    after: u64,
) -> bool {
    let rules = FaultRules::new();
    let first = SimStorage::new(after);
    let storage: Arc<dyn Storage> = Arc::clone(&first) as _;
    let db = open(&storage, before, RING).unwrap();
    let written = put(&db, 0..45);
    let machine = first.crash(after, Crash::Process);
    drop(db);
    let storage = machine.with_faults(&rules);
    let rule = rules.add(Rule::new(operation, fault).after(after).halting());
    drop(open(&(storage as Arc<dyn Storage>), then, RING));
    let caught = rules.count(rule).caught > 0;
    for (crash, promised) in [
        (Crash::Process, written),
        (Crash::PowerCut, written / 10 * 10),
    ] {
        for next in [before, then] {
            let context = format!("{then:?} {operation:?} {fault:?} {after}, {crash:?}, {next:?}");
            let left: Arc<dyn Storage> = machine.crash(after, crash);
            let db = open(&left, next, RING).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(is_there(&left), next.is_some(), "{context}");
            check(&db, promised, &context);
            assert!(db.check().unwrap().problems.is_empty(), "{context}");
            db.close().unwrap();
        }
    }
    caught
}

#[test]
fn it_does_not_grow_into_the_room_of_others_however_often_it_tries() {
    let storage: Arc<dyn Storage> = SimStorage::new(4);
    let options = FastTier {
        durable: true,
        ..FastTier::new(FAST, CAPACITY)
    };
    let tier = Tier::open(&storage, Path::new(MAIN), &options).unwrap();
    tier.claim_ring(RING as u64);
    let segment = "journal-0000000001.seg";
    let present = HashMap::from([(segment.to_owned(), (CAPACITY - (300 << 10), true))]);
    tier.share(present, TableShare::new("/fast/tables".into(), []));
    tier.note_ring(256 << 10);
    for _ in 0..3 {
        assert!(!tier.lengthen_ring(512 << 10));
        let ring_bytes = tier.stats().log.map(|it| it.ring_bytes);
        assert_eq!(ring_bytes, Some(256 << 10));
    }
    tier.forget_segment(segment);
    assert!(tier.lengthen_ring(512 << 10));
}

#[test]
fn it_leaves_its_room_to_tables_soon_after_the_last_write() {
    let machine = SimStorage::new(5);
    let storage: Arc<dyn Storage> = Arc::clone(&machine) as _;
    let db = open(&storage, Some(CAPACITY), RING).unwrap();
    let shortest = ring(&storage, LOG);
    let mut written = 0;
    while ring(&storage, LOG) == shortest {
        for number in written..written + 100 {
            db.put(&key(number), &[number as u8; 700]).unwrap();
        }
        written += 100;
    }
    let since = storage.now();
    while ring(&storage, LOG) != shortest {
        assert!(storage.now() < since + Duration::from_secs(8));
        std::thread::sleep(Duration::from_millis(5));
    }
    check(&db, written, "short again");
    drop(db);
    let left: Arc<dyn Storage> = machine.crash(5, Crash::PowerCut);
    check(&open(&left, Some(CAPACITY), RING).unwrap(), written, "cut");
}

#[test]
fn it_grows_within_the_capacity_and_goes_round_where_the_directory_has_no_room() {
    let machine = SimStorage::new(3);
    let rules = FaultRules::new();
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    let db = open(&storage, Some(CAPACITY), RING).unwrap();
    let shortest = ring(&storage, LOG).unwrap();
    let rule = Rule::new(Operation::ResizeRing, Fault::Fail(Refusal::NoSpace));
    rules.add(rule.on(LOG));
    let mut written = 0;
    let mut put_more = |count: u32| {
        let numbers = written..written + count;
        numbers.for_each(|number| db.put(&key(number), &[number as u8; 700]).unwrap());
        written += count;
        written
    };
    put_more(3_000);
    assert_eq!(ring(&storage, LOG), Some(shortest));
    rules.clear();
    let mut written = 0;
    while ring(&storage, LOG) == Some(shortest) {
        written = put_more(500);
        assert!(written < 100_000, "it stays short");
    }
    let there = [LOG, FAST, "/fast/tables"].map(|it| {
        let entries = storage.list(Path::new(it)).unwrap_or_default();
        entries.iter().map(|entry| entry.bytes).sum::<u64>()
    });
    assert!(there.iter().sum::<u64>() <= CAPACITY + OTHERS, "{there:?}");
    check(&db, written, "grown");
    db.close().unwrap();
    check(&open(&storage, None, RING).unwrap(), written, "moved");
}
