//! A disk that is really full: a small file system of its own, in memory.
//!
//! Reads go on, writes fail with an error that says why, `stats` says why too, and writes go on by themselves once
//! there is room, without a restart; nothing acknowledged is lost. Needs the right to mount; without it nothing is
//! tested, and that is said.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;
use support::failing::{MIB, assert_all, not_run, options, put, put_once_healed};
use waystation::inspect::Inspection;
use waystation::storage::OsStorage;
use waystation::{Db, Durability, Error};

/// A mounted file system, gone when dropped.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// One of `bytes`; none if mounting is not allowed.
    fn mount(bytes: usize) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={bytes}"))
            .arg("tmpfs")
            .arg(dir.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { dir }),
            _ => {
                not_run("full_disk", "mounting a file system is not allowed here");
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.dir.path())
            .status();
    }
}

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
    // With devices writers are refused before the disk is full: departures need a little of it.
    let text = error.to_string();
    let is_refused = matches!(error, Error::DiskFull { .. });
    assert_eq!(is_refused, has_devices, "{text}");
    assert!(
        is_refused || error.is_out_of_space() || matches!(error, Error::Suspended { .. }),
        "{text}"
    );
    assert!(is_refused || text.contains("No space left"), "{text}");
    assert!(written.len() > 500, "{} writes fit", written.len());

    // Full: everything is read, writes go on failing, and the database says why.
    assert_all(&db, &written, "on the full disk");
    assert!(put(&db, number, Durability::PowerLoss).is_err());
    if !is_refused {
        let failure = db.stats().failure.expect("the reason is told");
        assert!(failure.contains("No space left"), "{failure}");
    }
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
    if let Some(disk) = SmallDisk::mount(40 * MIB) {
        fill_and_heal(&disk, false);
    }
}

#[test]
fn so_it_is_with_devices() {
    if let Some(disk) = SmallDisk::mount(40 * MIB) {
        fill_and_heal(&disk, true);
    }
}
