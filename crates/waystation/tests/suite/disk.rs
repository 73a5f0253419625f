//! Full disks: a limit of the database's own, which nothing passes, and a file system without room. Whoever leaves can
//! leave; whoever comes hears why not; nothing is lost.

use crate::support::{Content, content, wait_until};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, DeviceLevel, DeviceOptions, Durability, Error, Extractor, Options};

const DIR: &str = "/db";

fn options(limit: Option<u64>) -> Options {
    Options {
        memtable_bytes: 64 << 10,
        table_bytes: 64 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        cache_bytes: 1 << 20,
        disk_bytes_max: limit,
        devices: Some(DeviceOptions {
            residency: Duration::from_secs(1 << 40),
            replay_bytes: 64 << 10,
            ..DeviceOptions::new(Extractor::until(b':'))
        }),
        ..Options::default()
    }
}

fn open(machine: &Arc<SimStorage>, limit: Option<u64>) -> Db {
    let storage: Arc<dyn Storage> = machine.clone();
    Db::open_with(storage, DIR, options(limit)).expect("open")
}

fn used(machine: &SimStorage) -> u64 {
    let entries = machine.list(Path::new(DIR)).expect("list");
    entries.iter().map(|entry| entry.bytes).sum()
}

/// Writes until the disk is full. Returns what was acknowledged.
fn fill(db: &Db, round: u32) -> (Content, Error) {
    let mut written = Content::new();
    for number in 0.. {
        let key = format!("car-{}:{round}/{number:06}", number % 20).into_bytes();
        let value = vec![7; 2000];
        match db.put(&key, &value) {
            Ok(()) => written.insert(key, value),
            Err(error) => return (written, error),
        };
    }
    unreachable!("a disk is full some time")
}

fn depart_all(db: &Db) {
    for info in db.devices().list().expect("devices") {
        if info.level != DeviceLevel::Departed {
            db.devices().depart(&info.name).expect("depart");
        }
    }
}

/// Says that a test is over, if it fails as well.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn the_limit_is_never_passed_and_leaving_works_at_it() {
    const LIMIT: u64 = 5 << 20;
    let machine = SimStorage::new(1);
    let db = open(&machine, Some(LIMIT));
    let other = open(&SimStorage::new(2), None);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                let used = used(&machine);
                assert!(used <= LIMIT, "{used} bytes");
                std::thread::yield_now();
            }
        });
        let _stop = SetOnDrop(&is_over);
        for round in 0..6 {
            let (written, error) = fill(&db, round);
            assert!(matches!(error, Error::DiskFull { .. }), "{error}");
            assert!(error.is_out_of_space() && !written.is_empty());
            assert!(content(&db) == written, "round {round}");
            // All that gives room goes on.
            db.devices().settle(b"car-1").expect("settle");
            let stream = db
                .devices()
                .export(b"car-2", "other", Durability::PowerLoss);
            let receipt = other
                .devices()
                .admit(stream.expect("export"))
                .expect("admit");
            db.devices().complete(&receipt).expect("complete");
            db.devices().lift_stub(b"car-2").expect("lift");
            other.devices().depart(b"car-2").expect("depart");
            db.delete(b"car-3:x").expect("delete");
            depart_all(&db);
            assert!(content(&db).is_empty());
            let put = || db.put(b"car-1:again", &[7; 4000]).is_ok();
            wait_until("there is room again", put);
            depart_all(&db);
        }
    });
    db.close().expect("close");
    let db = open(&machine, Some(LIMIT));
    assert!(content(&db).is_empty());
}

#[test]
fn a_limit_without_room_for_the_engine_is_refused() {
    let machine = SimStorage::new(1);
    let storage: Arc<dyn Storage> = machine;
    let opened = Db::open_with(storage, DIR, options(Some(1 << 20)));
    assert!(matches!(opened, Err(Error::InvalidArgument(_))));
}

/// Without a limit the same is kept free on the file system, for as long as nobody else takes it.
#[test]
fn a_full_file_system_stops_writers_and_not_those_who_leave() {
    let machine = SimStorage::new(3);
    machine.set_capacity(Some(10 << 20));
    let db = open(&machine, None);
    let (mut written, error) = fill(&db, 0);
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    db.devices().settle(b"car-1").expect("settle");
    db.devices().depart(b"car-2").expect("depart");
    written.retain(|key, _| !key.starts_with(b"car-2:"));
    assert!(content(&db) == written);

    // Others take the rest, and what merges give back later: now not a byte is left. Puts are taken until the engine looks.
    machine.set_capacity(Some(0));
    let (more, error) = fill(&db, 1);
    let is_full = matches!(error, Error::DiskFull { .. } | Error::Suspended { .. });
    assert!(is_full, "{error}");
    written.extend(more);
    db.devices()
        .settle(b"car-3")
        .expect_err("there is no room for tables");
    assert!(content(&db) == written);
    // What is left of the log's segment is for departures; with none left they are refused, not half done.
    match db.devices().depart(b"car-4") {
        Ok(()) => written.retain(|key, _| !key.starts_with(b"car-4:")),
        Err(Error::DiskFull { .. } | Error::Suspended { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    assert!(content(&db) == written);

    // The process dies; there is room again.
    let machine = machine.crash(5, Crash::Process);
    machine.set_capacity(None);
    drop(db);
    let db = open(&machine, None);
    assert!(content(&db) == written);
    db.devices().settle(b"car-3").expect("settle");
    db.put(b"car-3:after", b"").expect("put");
    written.insert(b"car-3:after".to_vec(), Vec::new());
    assert!(content(&db) == written);
}

/// It would wait for ever for room that cannot be.
#[test]
fn what_never_fits_is_refused_at_once() {
    const LIMIT: u64 = 5 << 20;
    for has_devices in [true, false] {
        let machine = SimStorage::new(4);
        let mut options = options(Some(LIMIT));
        options.devices = options.devices.filter(|_| has_devices);
        let open = || Db::open_with(machine.clone(), DIR, options.clone()).expect("open");
        let db = open();
        for (key, value) in [(&b"car-1:a"[..], &b"1"[..]), (b"plain", b"2")] {
            db.put(key, value).expect("there is room");
            let huge = db.put(key, &vec![1; LIMIT as usize * 3 / 2]);
            assert!(matches!(huge, Err(Error::InvalidArgument(_))), "{huge:?}");
            // Less than the limit, and more than can ever be free.
            let large = db.put(key, &vec![1; LIMIT as usize * 7 / 8]);
            assert!(matches!(large, Err(Error::InvalidArgument(_))), "{large:?}");
            db.delete(key).expect("deletions go on");
        }
        assert!(content(&db).is_empty() && used(&machine) <= LIMIT);
        drop(db);
        let db = open();
        db.put(b"car-1:a", b"3").expect("there is room");
        assert_eq!(content(&db).len(), 1);
    }
}

/// On real files, where the new ring is written beside the old one.
#[test]
fn a_larger_ring_does_not_pass_the_limit() {
    const LIMIT: u64 = 8 << 20;
    let dir = tempfile::tempdir().expect("directory");
    let db = Db::open(dir.path(), options(Some(LIMIT))).expect("open");
    let (written, _) = fill(&db, 0);
    drop(db);
    let used = || {
        let entries = std::fs::read_dir(dir.path()).expect("list");
        let lengths = entries.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()));
        lengths.sum::<u64>()
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                let used = used();
                assert!(used <= LIMIT, "{used} bytes");
            }
        });
        let _stop = SetOnDrop(&is_over);
        for ring_bytes in [4 << 20, 512 << 10, 8 << 20] {
            let options = Options {
                ring_bytes,
                ..options(Some(LIMIT))
            };
            match Db::open(dir.path(), options) {
                Ok(db) => assert!(content(&db) == written),
                Err(error) => assert!(error.is_out_of_space(), "{error}"),
            }
        }
    });
    let db = Db::open(dir.path(), options(Some(LIMIT))).expect("open as before");
    assert!(content(&db) == written);
    depart_all(&db);
    wait_until("there is room again", || {
        db.put(b"car-1:again", b"").is_ok()
    });
}
