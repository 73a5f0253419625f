//! Databases on simulated and real storage, and what their traces hold.

use super::*;
use crate::native::{Trace, load};
use std::ops::Bound;
use waystation::storage::OsStorage;
use waystation::{Db, Options};

fn options() -> Options {
    Options {
        memtable_bytes: 512 << 10,
        table_bytes: 512 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        cache_bytes: 0,
        ..Options::default()
    }
}

/// A kilobyte that no compression shortens.
fn value(number: u32) -> Vec<u8> {
    let mut state = u64::from(number) + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..125).flat_map(|_| next()).collect()
}

/// The trace of a database with `records` of a kilobyte, a part of which is read.
fn trace(records: u32) -> (Trace, Vec<(Area, AreaMeter)>) {
    trace_of_rounds(records, 1)
}

/// The same, with all records put in each of so many `rounds`.
fn trace_of_rounds(records: u32, rounds: u32) -> (Trace, Vec<(Area, AreaMeter)>) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace");
    let storage = TracedStorage::create(OsStorage::new(), &path).expect("create");
    let storage: Arc<dyn Storage> = Arc::new(storage);
    let db = Db::open_with(Arc::clone(&storage), directory.path().join("db"), options());
    let db = db.expect("open");
    for _ in 0..rounds {
        for number in 0..records {
            db.put(&number.to_le_bytes(), &value(number)).expect("put");
        }
        db.compact_range(Bound::Unbounded, Bound::Unbounded)
            .expect("compact");
    }
    for number in (0..records).step_by(7) {
        assert!(db.get(&number.to_le_bytes()).expect("get").is_some());
    }
    db.close().expect("close");
    let meters = storage.meters();
    drop(storage);
    (load(&path).expect("a whole trace"), meters)
}

fn sum(trace: &Trace, area: u8, op: Op) -> u64 {
    let requests = trace.requests.iter();
    let meant = requests.filter(|it| (it.area, it.op) == (area, op));
    meant.map(|it| u64::from(it.length)).sum()
}

#[test]
fn every_byte_that_the_meters_count_is_in_the_trace() {
    let (trace, meters) = trace(2000);
    for (area, meter) in meters {
        let Some(number) = number(area) else {
            continue;
        };
        assert_eq!(
            sum(&trace, number, Op::Write),
            meter.written_bytes,
            "{area:?}"
        );
        assert_eq!(sum(&trace, number, Op::Read), meter.read_bytes, "{area:?}");
        let flushes = trace.requests.iter();
        let flushes = flushes.filter(|it| (it.area, it.op) == (number, Op::Flush));
        assert_eq!(flushes.count() as u64, meter.syncs, "{area:?}");
    }
    assert!(trace.info.requests > 100 && trace.info.completed == trace.info.requests);
    let ordered = |pair: &[crate::event::Request]| pair[0].issue_ns <= pair[1].issue_ns;
    assert!(trace.requests.windows(2).all(ordered));
}

#[test]
fn addresses_are_used_again() {
    let (small, _) = trace(1000);
    let (large, _) = trace_of_rounds(8000, 4);
    let extent = |trace: &Trace, area: usize| trace.info.areas[area].extent_bytes;
    let written = |trace: &Trace| sum(trace, 1, Op::Write);
    // Merges write far more than the tables take in the end.
    assert!(extent(&large, 1) < written(&large) / 2, "{:?}", large.info);
    assert!(extent(&large, 1) > extent(&small, 1));
    assert!(sum(&large, 1, Op::Discard) > 0);
}

#[test]
fn files_lie_apart_and_keep_their_addresses_through_a_new_name() {
    let addresses = Addresses::default();
    let (a, b, c) = (Path::new("a"), Path::new("b"), Path::new("c"));
    let first = addresses.of(a, 1).addresses(10, 2 * addresses::CHUNK_BYTES);
    assert_eq!(first, [(10, 2 * addresses::CHUNK_BYTES)]);
    let other = addresses.of(b, 1).addresses(0, 1);
    assert_eq!(other, [(3 * addresses::CHUNK_BYTES, 1)]);
    assert_eq!(
        addresses.of(b, 0).addresses(0, 1),
        other,
        "known by its name"
    );
    addresses.rename(a, c);
    assert_eq!(addresses.of(c, 1).addresses(10, 1), [(10, 1)]);
    assert_eq!(addresses.remove(c).len(), 3);
    assert_eq!(addresses.of(a, 1).addresses(0, 1), [(0, 1)], "the lowest");
    assert!(addresses.remove(Path::new("d")).is_empty());
}

#[test]
fn a_full_trace_is_complete_while_the_database_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace");
    let storage = TracedStorage::up_to(50, OsStorage::new(), &path).expect("create");
    let db = Db::open_with(Arc::new(storage), directory.path().join("db"), options());
    let db = db.expect("open");
    let mut number = 0_u32;
    while !path.exists() {
        db.put(&number.to_le_bytes(), &value(number)).expect("put");
        number += 1;
    }
    db.put(b"more", b"").expect("put");
    assert!(load(&path).expect("a whole trace").info.requests >= 50);
    db.close().expect("close");
}

#[test]
fn a_trace_that_cannot_be_written_stops_no_database() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing/trace");
    assert!(TracedStorage::create(OsStorage::new(), &missing).is_err());
    // The disk of the trace is full: `/dev/full` takes no byte.
    let link = directory.path().join("trace");
    std::os::unix::fs::symlink("/dev/full", directory.path().join("trace.unfinished"))
        .expect("link");
    let storage = TracedStorage::create(OsStorage::new(), &link).expect("create");
    let db = Db::open_with(Arc::new(storage), directory.path().join("db"), options());
    let db = db.expect("open");
    for number in 0..3000_u32 {
        db.put(&number.to_le_bytes(), &[1; 1000]).expect("put");
    }
    assert!(db.get(&7_u32.to_le_bytes()).expect("get").is_some());
    db.close().expect("close");
    assert!(!link.exists());
}
