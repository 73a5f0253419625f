//! What the files of a database say of each other: each kind of disagreement is made, and the check names it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use waystation::inspect::{Inspection, Problem};
use waystation::storage::OsStorage;
use waystation::{Db, DeviceError, DeviceOptions, Error, Extractor, Options};
use waystation_format::checksum;

fn options(has_devices: bool) -> Options {
    Options {
        memtable_bytes: 256 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        table_bytes: 256 << 10,
        cache_bytes: 1 << 20,
        devices: has_devices.then(|| DeviceOptions::new(Extractor::until(b':'))),
        ..Options::default()
    }
}

fn problems(dir: &Path) -> Vec<Problem> {
    let inspection = Inspection::open(OsStorage::new(), dir).unwrap();
    inspection.check(&mut |_| ()).unwrap().problems
}

fn assert_names(dir: &Path, file: &str, reason: &str) {
    let found = problems(dir);
    let is_named = found
        .iter()
        .any(|it| it.file == file && it.reason.contains(reason));
    assert!(is_named, "{file}, {reason}: {found:?}");
}

fn write_devices(db: &Db, from: u32, count: u32) {
    for number in from..from + count {
        let key = format!("car{}:{number:05}", number % 5);
        db.put(key.as_bytes(), &[number as u8; 1000]).unwrap();
    }
}

fn copy(source: &Path, target: &Path) {
    fs::create_dir_all(target).unwrap();
    for entry in fs::read_dir(source).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), target.join(entry.file_name())).unwrap();
    }
}

/// The files of a directory whose names have this in them, sorted.
fn files(dir: &Path, part: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().contains(part))
        .collect();
    files.sort();
    files
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn the_log_against_the_device_table() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("db");
    let db = Db::open(&path, options(true)).unwrap();
    write_devices(&db, 0, 1500);
    db.close().unwrap();
    assert_eq!(problems(&path), []);

    let segments = files(&path, ".seg");
    assert!(segments.len() > 4, "{segments:?}");
    for lost in [&segments[0], &segments[2]] {
        let damaged = root.path().join(format!("without-{}", name(lost)));
        copy(&path, &damaged);
        fs::remove_file(damaged.join(name(lost))).unwrap();
        assert!(!problems(&damaged).is_empty(), "without {lost:?}");
        assert!(Db::open(&damaged, options(true)).is_err());
    }
    let damaged = root.path().join("without-first");
    copy(&path, &damaged);
    fs::remove_file(damaged.join(name(&segments[0]))).unwrap();
    assert_names(&damaged, "DEVICES", "which the log does not hold");

    let damaged = root.path().join("table-damaged");
    copy(&path, &damaged);
    let mut bytes = fs::read(path.join("DEVICES")).unwrap();
    bytes[30] ^= 1;
    fs::write(damaged.join("DEVICES"), bytes).unwrap();
    assert_names(&damaged, "DEVICES", "checksum");
}

#[test]
fn a_device_table_of_another_time() {
    let root = tempfile::tempdir().unwrap();
    let (path, later) = (root.path().join("db"), root.path().join("later"));
    let db = Db::open(&path, options(true)).unwrap();
    write_devices(&db, 0, 300);
    db.close().unwrap();
    copy(&path, &later);
    let db = Db::open(&later, options(true)).unwrap();
    write_devices(&db, 300, 2000);
    db.devices().depart(b"car1").unwrap();
    write_devices(&db, 2300, 10);
    db.close().unwrap();
    assert_eq!(problems(&later), []);
    // It tells of writes that this log never reached.
    fs::copy(later.join("DEVICES"), path.join("DEVICES")).unwrap();
    assert_names(&path, "DEVICES", "which the log does not hold");
}

#[test]
fn graves_that_should_be_there() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("db");
    let db = Db::open(&path, options(false)).unwrap();
    for number in 0..2000_u32 {
        db.put(format!("key{number:05}").as_bytes(), &[7; 100])
            .unwrap();
    }
    db.flush().unwrap();
    let held = db.snapshot();
    db.delete_range(b"key00500", Some(b"key00600")).unwrap();
    db.flush().unwrap();
    drop(held);
    // Killed before anything is purged.
    let killed = root.path().join("killed");
    copy(&path, &killed);
    db.close().unwrap();
    assert_eq!(problems(&path), []);
    assert!(killed.join("GRAVES").exists());
    assert_eq!(problems(&killed), []);
    fs::remove_file(killed.join("GRAVES")).unwrap();
    assert_names(&killed, "GRAVES", "deletions are in it alone");
}

#[test]
fn a_side_file_that_is_missing_or_damaged() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("db");
    let db = Db::open(&path, options(true)).unwrap();
    write_devices(&db, 0, 100);
    db.close().unwrap();
    let side = path.join("WAYSTATION");
    let mut bytes = fs::read(&side).unwrap();
    bytes[14] ^= 1;
    fs::write(&side, bytes).unwrap();
    assert_names(&path, "WAYSTATION", "checksum");
    fs::remove_file(&side).unwrap();
    assert_names(&path, "WAYSTATION", "is missing");
}

#[test]
fn beside_an_owner_at_work_nothing_is_wrong() {
    for has_devices in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("db");
        let mut settings = options(has_devices);
        if let Some(devices) = &mut settings.devices {
            devices.residency = Duration::from_millis(40);
        }
        let db = Db::open(&path, settings).unwrap();
        write_devices(&db, 0, 100);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut from = 100;
                while !stop.load(SeqCst) {
                    write_devices(&db, from, 100);
                    // Written over again and again: what is checked must not grow faster than it is checked.
                    from = 100 + from % 4_000;
                    match from / 100 % 4 {
                        0 => db.delete_prefix(b"car4:0").unwrap(),
                        1 => match db.devices().depart(b"car2") {
                            Ok(())
                            | Err(
                                Error::InvalidArgument(_)
                                | Error::Device(DeviceError::Unknown { .. }),
                            ) => {}
                            Err(error) => panic!("{error}"),
                        },
                        _ => db.delete(format!("car0:{from:05}").as_bytes()).unwrap(),
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            let found: Vec<_> = (0..25)
                .flat_map(|_| {
                    std::thread::sleep(Duration::from_millis(15));
                    problems(&path)
                })
                .collect();
            stop.store(true, SeqCst);
            assert_eq!(found, []);
        });
        assert_eq!(db.check().unwrap().problems, []);
        db.close().unwrap();
        assert_eq!(problems(&path), []);
    }
}

#[test]
fn an_index_whose_log_is_damaged() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("db");
    let db = Db::open(&path, options(true)).unwrap();
    write_devices(&db, 0, 1500);
    db.sync().unwrap();
    let sound = db.check().unwrap();
    assert_eq!(sound.problems, []);
    assert_eq!(sound.upper_entries, 1500);
    let segment = &files(&path, ".seg")[1];
    let mut bytes = fs::read(segment).unwrap();
    for at in (4096..bytes.len() - 4096).step_by(512) {
        bytes[at + 100] ^= 1;
    }
    fs::write(segment, bytes).unwrap();
    let told = db.check().unwrap().problems;
    let is_named = |it: &waystation::Problem| it.reason.contains(name(segment));
    assert!(told.iter().any(is_named), "{told:?}");
}

#[test]
fn a_segments_index_against_its_blocks() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("db");
    let db = Db::open(&path, options(true)).unwrap();
    write_devices(&db, 0, 1500);
    db.close().unwrap();
    // How much of the first block is in use; with the checksum that fits.
    let segment = &files(&path, ".seg")[1];
    let mut bytes = fs::read(segment).unwrap();
    let footer = bytes.len() - 72;
    let blocks = u32::from_le_bytes(bytes[footer + 12..footer + 16].try_into().unwrap());
    let index = footer - 32 * blocks as usize;
    bytes[index + 24] ^= 1;
    let checksum = checksum::extend(
        checksum::crc32c(&bytes[footer + 12..]),
        &bytes[index..footer],
    );
    bytes[footer + 8..footer + 12].copy_from_slice(&checksum.to_le_bytes());
    fs::write(segment, bytes).unwrap();
    assert_names(&path, name(segment), "index is wrong about the block");
}
