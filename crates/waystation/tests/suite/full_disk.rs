//! A disk that is really full: a small file system of its own, in memory.
//!
//! Reads and deletions go on, writes fail with an error that says why, and go on by themselves once there is room,
//! without a restart; nothing acknowledged is lost. Killed there while devices settle, the database opens again, and
//! whoever leaves gives room back: the same below a limit of its own (`WAYSTATION_KILLS` sets the number of cycles). Needs the
//! right to mount; without it only the latter is tested, and that is said.

use crate::support::disks::SmallDisk;
use crate::support::failing::{MIB, assert_all, options, put, put_once_healed};
use crate::support::{Random, kills, wait_until};
use std::fs;
use std::ops::Bound;
use std::path::Path;
use std::thread;
use std::time::Duration;
use waystation::inspect::Inspection;
use waystation::storage::OsStorage;
use waystation::{Db, DeviceError, Durability, Error, Options};

fn fill_and_heal(disk: &SmallDisk, has_devices: bool) {
    let ballast = disk.path("ballast");
    fs::write(&ballast, vec![1; 24 * MIB]).unwrap();
    let path = disk.path("db");
    let db = Db::open(&path, options(has_devices)).unwrap();
    let mut written = Vec::new();
    let mut number = 0;
    let mut refused = 0;
    // A flush may still free a part of the log: full is what refuses ten times.
    let error = loop {
        let durability = if number % 50 == 0 {
            Durability::PowerLoss
        } else {
            Durability::ProcessCrash
        };
        match put(&db, number, durability) {
            Ok(()) => {
                written.push(number);
                number += 1;
                refused = 0;
            }
            Err(error) if refused == 10 => break error,
            Err(_) => {
                refused += 1;
                thread::sleep(Duration::from_millis(20));
            }
        }
        assert!(number < 20_000, "the disk does not get full");
    };
    // Writers are refused before the disk is full: departures and deletions need a little of it.
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert!(written.len() > 500, "{} writes fit", written.len());

    // Full: everything is read, writes go on failing, and deletions go on.
    assert_all(&db, &written, "on the full disk");
    let put_on = put(&db, number, Durability::PowerLoss);
    assert!(matches!(put_on, Err(Error::DiskFull { .. })));
    db.delete(b"none").expect("a deletion has room");
    assert!(Inspection::open(OsStorage::new(), &path).is_ok());

    // Room again: it heals by itself.
    fs::remove_file(&ballast).unwrap();
    put_once_healed(&db, &mut written, 200);
    assert_all(&db, &written, "after it healed");
    db.close().unwrap();
    let db = Db::open(&path, options(has_devices)).unwrap();
    assert_all(&db, &written, "after opening again");
    assert_eq!(db.check().unwrap().problems, []);
    db.close().unwrap();
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_full_disk_loses_nothing_and_heals_without_a_restart() {
    if let Some(disk) = SmallDisk::in_memory("full_disk", 40 * MIB) {
        fill_and_heal(&disk, false);
    }
}

#[test]
fn so_it_is_with_devices() {
    if let Some(disk) = SmallDisk::in_memory("full_disk", 40 * MIB) {
        fill_and_heal(&disk, true);
    }
}

/// Tells the child where the database is, whether it has a limit, and with which number to begin.
const CHILD: &str = "WAYSTATION_FULL_DISK_CHILD";
const DISK_BYTES: usize = 24 * MIB;
const CARS: u64 = 5;

fn options_of(is_limited: bool) -> Options {
    Options {
        disk_bytes_max: is_limited.then_some(DISK_BYTES as u64),
        compression: waystation::Compression::None,
        ..kills::options(true)
    }
}

fn row(number: u64) -> (Vec<u8>, Vec<u8>) {
    let key = format!("car{}/{number:08}", number % CARS);
    (key.into_bytes(), vec![number as u8; 4000])
}

/// Writes until it is killed, mostly refused, while devices settle.
fn fill_for_ever(told: &str) {
    let mut words = told.split(' ');
    let mut word = || words.next().expect("three words");
    let (dir, is_limited, first) = (word(), word() == "true", word().parse().expect("a number"));
    let db = Db::open(dir, options_of(is_limited)).expect("opens");
    for number in first.. {
        let (key, value) = row(number);
        while let Err(error) = db.put(&key, &value) {
            assert!(matches!(error, Error::DiskFull { .. }), "{error}");
            thread::sleep(Duration::from_millis(1));
        }
        kills::tell(0, number + 1);
    }
}

fn kill_where_it_is_full(test: &str, dir: &Path, is_limited: bool) {
    let (cycles, seed) = kills::cycles_and_seed();
    let mut random = Random(seed);
    let mut written = Vec::new();
    let mut next = 0;
    for cycle in 0..cycles.div_ceil(8) {
        let told = format!("{} {is_limited} {next}", dir.display());
        let done = kills::one_life(
            &kills::test_name(module_path!(), test),
            (CHILD, &told),
            &[next],
            &mut random,
        )[0];
        let db = Db::open(dir, options_of(is_limited))
            .unwrap_or_else(|error| panic!("cycle {cycle}: cannot open: {error}"));
        written.extend(next..done);
        for (key, value) in written.iter().map(|number| row(*number)) {
            assert!(
                db.get(&key).unwrap() == Some(value),
                "{key:?}, cycle {cycle}"
            );
        }
        // One that was not acknowledged may be there.
        next = done + 1;
        db.delete(b"car1/none").expect("a deletion works");
        if random.one_in(3) {
            for car in 0..CARS {
                match db.devices().depart(format!("car{car}").as_bytes()) {
                    Ok(()) | Err(Error::Device(DeviceError::Unknown { .. })) => {}
                    Err(error) => panic!("a departure works: {error}"),
                }
            }
            written.clear();
            db.compact_range(Bound::Unbounded, Bound::Unbounded)
                .expect("compaction works");
            wait_until("writes resume", || db.put(b"none", &[0; 4000]).is_ok());
        }
    }
}

#[test]
fn killed_at_its_limit_it_opens_again_and_is_left() {
    if let Ok(told) = std::env::var(CHILD) {
        return fill_for_ever(&told);
    }
    let dir = tempfile::tempdir().unwrap();
    let test = "killed_at_its_limit_it_opens_again_and_is_left";
    kill_where_it_is_full(test, &dir.path().join("db"), true);
}

#[test]
fn so_it_is_on_a_full_disk_without_a_limit() {
    if let Ok(told) = std::env::var(CHILD) {
        return fill_for_ever(&told);
    }
    if let Some(disk) = SmallDisk::in_memory("full_disk", DISK_BYTES) {
        let test = "so_it_is_on_a_full_disk_without_a_limit";
        kill_where_it_is_full(test, &disk.path("db"), false);
    }
}
