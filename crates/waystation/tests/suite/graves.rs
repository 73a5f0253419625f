//! Deletions apart from the tree: what they hide, from whom, for how long, and what becomes of their file.

use crate::support::{open_simulated, small_options, wait_until};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use waystation::storage::{Area, OpenMode, SimStorage, Storage, Transfer};
use waystation::{Db, Durability, Error, IterOptions, Options, WriteBatch};

fn key(prefix: char, number: u32) -> Vec<u8> {
    format!("{prefix}{number:05}").into_bytes()
}

/// Keys a, b and c, 2,000 of each, in tables.
fn filled(machine: &Arc<SimStorage>, options: Options) -> Db {
    let db = open_simulated(machine, options).expect("works");
    for prefix in ['a', 'b', 'c'] {
        for number in 0..2_000 {
            db.put(&key(prefix, number), &[7; 100]).expect("works");
        }
    }
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .expect("works");
    db
}

fn count(db: &Db, prefix: &str) -> usize {
    let mut cursor = db.iter(IterOptions::prefix(prefix)).expect("works");
    let mut entries = 0;
    cursor.seek_to_first().expect("works");
    while cursor.valid() {
        entries += 1;
        cursor.next().expect("works");
    }
    entries
}

fn files(machine: &Arc<SimStorage>) -> Vec<String> {
    let entries = machine.list(Path::new("/db")).expect("works");
    entries.into_iter().map(|entry| entry.name).collect()
}

#[test]
fn a_deleted_range_is_dropped_unread_and_forgotten() {
    let machine = SimStorage::new(1);
    let db = filled(&machine, small_options());
    let before = db.stats().tree;
    db.delete_prefix(b"b").unwrap();
    assert_eq!(
        (count(&db, "a"), count(&db, "b"), count(&db, "c")),
        (2_000, 0, 2_000)
    );
    db.put(&key('b', 7), b"again").unwrap();
    assert_eq!(count(&db, "b"), 1);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let after = db.stats().tree;
    assert!(after.dropped_tables > before.dropped_tables, "{after:?}");
    wait_until("the grave is retired", || {
        db.wait_idle().unwrap();
        db.compact_range(Bound::Unbounded, Bound::Unbounded)
            .unwrap();
        db.stats().graves.ranges == 0
    });
    assert_eq!(
        (count(&db, "b"), db.get(&key('b', 7)).unwrap()),
        (1, Some(b"again".to_vec()))
    );
    assert!(db.check().unwrap().problems.is_empty());
    db.close().unwrap();
    assert!(!files(&machine).contains(&"GRAVES".to_owned()));
}

#[test]
fn snapshots_and_cursors_from_before_see_what_was_deleted() {
    let machine = SimStorage::new(2);
    let db = filled(&machine, small_options());
    let mut cursor = db.iter(IterOptions::prefix("b")).unwrap();
    let snapshot = db.snapshot();
    db.delete_range(&key('b', 10), None).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&key('b', 3), b"put, then deleted");
    batch.delete_prefix(b"b");
    batch.put(&key('b', 5), b"deleted, then put");
    db.write(&batch, Durability::PowerLoss).unwrap();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!((count(&db, "b"), count(&db, "c")), (1, 0));
    assert_eq!(
        db.get_at(&key('c', 1_999), &snapshot).unwrap(),
        Some(vec![7; 100])
    );
    let mut entries = 0;
    cursor.seek_to_last().unwrap();
    while cursor.valid() {
        entries += 1;
        cursor.prev().unwrap();
    }
    assert_eq!(entries, 2_000);
    drop((cursor, snapshot));
    db.close().unwrap();
    let db = open_simulated(&machine, small_options()).unwrap();
    assert_eq!(
        (count(&db, "a"), count(&db, "b"), count(&db, "c")),
        (2_000, 1, 0)
    );
}

#[test]
fn a_run_of_dead_keys_is_walked_once() {
    let machine = SimStorage::new(3);
    let db = filled(&machine, small_options());
    let _held_back = db.snapshot();
    for number in 0..2_000 {
        db.delete(&key('b', number)).unwrap();
    }
    let mut cursor = db.iter(IterOptions::default()).unwrap();
    cursor.seek(b"b").unwrap();
    assert_eq!(cursor.key(), key('c', 0));
    assert!(db.stats().graves.dead_ranges > 0);
    // What is put there later is seen.
    db.put(&key('b', 1_000), b"alive").unwrap();
    let mut cursor = db.iter(IterOptions::default()).unwrap();
    cursor.seek(b"b").unwrap();
    assert_eq!(cursor.key(), key('b', 1_000));
    cursor.next().unwrap();
    assert_eq!(cursor.key(), key('c', 0));
    cursor.prev().unwrap();
    cursor.prev().unwrap();
    assert_eq!(cursor.key(), key('a', 1_999));
}

#[test]
fn a_deadline_makes_deletions_physical() {
    let machine = SimStorage::new(4);
    let options = Options {
        deletion_deadline: Some(Duration::from_millis(400)),
        ..small_options()
    };
    let db = filled(&machine, options.clone());
    // Too few to be purged for any other reason.
    for number in (0..2_000).step_by(100) {
        db.delete(&key('b', number)).unwrap();
    }
    wait_until("what is deleted is gone", || {
        // Somebody writes all the time.
        db.put(b"writes", b"go on").unwrap();
        db.stats().graves.pinned_bytes == 0 && db.stats().graves.oldest_unpersisted.is_none()
    });
    db.close().unwrap();
    let too_short = Options {
        deletion_deadline: Some(Duration::from_millis(1)),
        ..options
    };
    assert!(matches!(
        open_simulated(&machine, too_short),
        Err(Error::InvalidArgument(_))
    ));
}

#[test]
fn graves_beyond_their_memory_are_purged() {
    let machine = SimStorage::new(9);
    let options = Options {
        graves_bytes: 0,
        ..small_options()
    };
    let db = filled(&machine, options);
    // Too few to be purged for any other reason.
    for number in (0..2_000).step_by(20) {
        db.delete(&key('b', number)).unwrap();
    }
    db.flush().unwrap();
    wait_until("graves fit their memory", || {
        db.put(b"writes", b"go on").unwrap();
        db.stats().graves.points == 0
    });
    assert_eq!(count(&db, "b"), 1_900);
}

#[test]
fn a_range_that_is_none_is_refused() {
    let machine = SimStorage::new(5);
    let db = filled(&machine, small_options());
    for (start, end) in [("b", "a"), ("b", "b"), ("", "")] {
        let refused = db.delete_range(start.as_bytes(), Some(end.as_bytes()));
        assert!(
            matches!(refused, Err(Error::InvalidArgument(_))),
            "{start} to {end}"
        );
    }
    let mut batch = WriteBatch::new();
    batch.put(b"d", b"with it");
    batch.delete_range(b"x", Some(b"w"));
    assert!(db.write(&batch, Durability::ProcessCrash).is_err());
    assert_eq!((count(&db, ""), db.get(b"d").unwrap()), (6_000, None));
    // A prefix that covers everything is one.
    db.delete_prefix(b"").unwrap();
    assert_eq!(count(&db, ""), 0);
}

#[test]
fn nothing_comes_back_without_the_file_of_graves() {
    let machine = SimStorage::new(6);
    let db = filled(&machine, small_options());
    let held_back = db.snapshot();
    db.delete_prefix(b"b").unwrap();
    db.delete(&key('c', 1)).unwrap();
    db.close().unwrap();
    drop(held_back);
    let path = Path::new("/db/GRAVES");
    let open_file = |mode| {
        machine
            .open(path, mode, Transfer::Buffered, Area::Tables)
            .unwrap()
    };
    let file = open_file(OpenMode::Read);
    let mut content = vec![0; file.size().unwrap() as usize];
    file.read_at(&mut content, 0).unwrap();
    drop(file);
    machine.remove(path).unwrap();
    let refused = open_simulated(&machine, small_options())
        .map(|_| ())
        .unwrap_err();
    assert!(refused.to_string().contains("GRAVES"), "{refused}");
    for at in [0, 9, content.len() / 2, content.len() - 1] {
        let mut damaged = content.clone();
        damaged[at] ^= 1;
        open_file(OpenMode::Create).write_at(&damaged, 0).unwrap();
        let refused = open_simulated(&machine, small_options()).map(|_| ());
        assert!(matches!(
            refused,
            Err(Error::Corruption { .. } | Error::Incompatible { .. })
        ));
    }
    open_file(OpenMode::Create).write_at(&content, 0).unwrap();
    let db = open_simulated(&machine, small_options()).unwrap();
    assert_eq!(
        (count(&db, "a"), count(&db, "b"), count(&db, "c")),
        (2_000, 0, 1_999)
    );
}

#[test]
fn a_full_disk_loses_no_deletion() {
    let machine = SimStorage::new(7);
    let rules = FaultRules::new();
    let storage = machine.with_faults(&rules);
    drop(filled(&machine, small_options()));
    let db = Db::open_with(storage, "/db", small_options()).unwrap();
    let held_back = db.snapshot();
    db.delete_prefix(b"b").unwrap();
    db.delete(&key('c', 1)).unwrap();
    let full = Rule::new(Operation::Write, Fault::Fail(Refusal::NoSpace)).on("GRAVES");
    rules.add(full.times(2));
    // The flush is tried again.
    let _ = db.flush();
    assert_eq!((count(&db, "b"), count(&db, "c")), (0, 1_999));
    db.flush().unwrap();
    drop((held_back, db));
    let db = open_simulated(&machine, small_options()).unwrap();
    assert_eq!(
        (count(&db, "a"), count(&db, "b"), count(&db, "c")),
        (2_000, 0, 1_999)
    );
}

#[test]
fn a_copy_has_the_graves() {
    let machine = SimStorage::new(8);
    let db = filled(&machine, small_options());
    let held_back = db.snapshot();
    db.delete_prefix(b"b").unwrap();
    db.checkpoint("/copy").unwrap();
    assert!(db.get_at(&key('b', 1), &held_back).unwrap().is_some());
    let copy = Db::open_with(machine as Arc<dyn Storage>, "/copy", small_options()).unwrap();
    assert_eq!(
        (count(&copy, "a"), count(&copy, "b"), count(&copy, "c")),
        (2_000, 0, 2_000)
    );
    assert!(copy.check().unwrap().problems.is_empty());
}

/// Whatever fails on the way: then the copy is no database, or it has the graves.
#[test]
fn a_copy_without_its_graves_is_no_database() {
    for operation in [
        Operation::Open,
        Operation::Write,
        Operation::Sync,
        Operation::Rename,
    ] {
        let mut failures = 0;
        for spared in 0.. {
            let machine = SimStorage::new(12);
            let rules = FaultRules::new();
            let storage: Arc<dyn Storage> = machine.with_faults(&rules);
            let db = Db::open_with(storage, "/db", small_options()).unwrap();
            for number in 0..200 {
                db.put(&key('a', number), b"value").unwrap();
                db.put(&key('b', number), b"value").unwrap();
            }
            db.flush().unwrap();
            let held_back = db.snapshot();
            db.delete_prefix(b"b").unwrap();
            db.flush().unwrap();
            let fault = Fault::Fail(Refusal::NoSpace);
            let rule = rules.add(Rule::new(operation, fault).on("/copy").after(spared));
            let copied = db.checkpoint("/copy");
            let caught = rules.count(rule).caught;
            drop(held_back);
            if caught == 0 {
                copied.unwrap();
                break;
            }
            failures += 1;
            let existing = Options {
                create_if_missing: false,
                ..small_options()
            };
            if let Ok(copy) = Db::open_with(machine as Arc<dyn Storage>, "/copy", existing) {
                assert_eq!(
                    (count(&copy, "a"), count(&copy, "b")),
                    (200, 0),
                    "{operation:?} {spared}"
                );
            }
        }
        assert!(failures > 0, "{operation:?}");
    }
}

#[test]
fn a_seek_into_a_deleted_range_reads_nothing_of_it() {
    let machine = SimStorage::new(10);
    let db = filled(&machine, small_options());
    // What it sees stays in the tables.
    let held_back = db.snapshot();
    db.delete_prefix(b"b").unwrap();
    let reads = || {
        let stats = db.stats();
        let mut tables = stats.storage.iter().filter(|it| it.area == Area::Tables);
        tables.next().expect("tables are read").meter.reads
    };
    let mut cursor = db.iter(IterOptions::default()).unwrap();
    let before = reads();
    cursor.seek(b"b").unwrap();
    assert_eq!(cursor.key(), key('c', 0));
    assert_eq!(reads() - before, 1, "the block behind the range");
    assert!(db.get_at(&key('b', 0), &held_back).unwrap().is_some());
    assert!(reads() - before > 1, "nothing of the range was near");
}

#[test]
fn no_grave_is_left_by_a_close_amid_compactions() {
    let machine = SimStorage::new(9);
    let mut state = 1_u32;
    let mut any = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    let small = Options {
        memtable_bytes: 64 << 10,
        ..small_options()
    };
    for round in 0..100 {
        let db = open_simulated(&machine, small.clone()).unwrap();
        for _ in 0..any(12) {
            let (from, dead) = (any(2_500), any(2_500));
            for number in from..from + 200 {
                db.put(&key('k', number), &[7; 100]).unwrap();
            }
            for number in (dead..dead + 400).step_by(3) {
                db.delete(&key('k', number)).unwrap();
            }
        }
        db.close().unwrap();
        let left = files(&machine);
        assert!(
            !left.iter().any(|name| name == "GRAVES"),
            "round {round}: {left:?}"
        );
    }
}

/// As a retention by time deletes: all from the first key to one that moves on.
#[test]
fn ranges_that_grow_are_flushed_before_they_outgrow_memory() {
    let machine = SimStorage::new(10);
    let db = open_simulated(&machine, small_options()).unwrap();
    for number in 0..2_000 {
        db.put(&key('k', number), &[7; 10]).unwrap();
        db.delete_range(b"", Some(&key('k', number))).unwrap();
        if number % 100 == 99 {
            let taken = db.stats().graves.memory_bytes;
            assert!(taken < 8 << 20, "{taken} after {number}");
        }
    }
    assert_eq!(count(&db, "k"), 1);
    assert_eq!(db.get(&key('k', 1_999)).unwrap(), Some(vec![7; 10]));
}
