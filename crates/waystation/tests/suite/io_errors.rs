//! A device that really fails: writes to it end with `EIO`, and later they do not any more.
//!
//! The device is a disk in compressed memory (zram) of which the memory is limited: what no page is left for fails as it
//! does on failing media, and is well again when the limit is lifted. It carries a file system without a journal, as one with a
//! journal would turn read-only for good. Reads go on, writes fail with an error that says why, `stats` says why too, `check`
//! finds what is there sound, and writes go on by themselves when the cause is gone, without a restart; nothing
//! acknowledged is lost.
//!
//! The test runs as a process of its own, in a mount namespace of its own: whatever becomes of it, nothing stays mounted.
//! Needs the right to make such a device; without it nothing is tested, and that is said.

use crate::support::failing::{MIB, assert_all, not_run, options, put, put_once_healed};
use crate::support::kills::test_name;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;
use waystation::inspect::Inspection;
use waystation::storage::OsStorage;
use waystation::{Db, Durability, Error};

const NAME: &str = "io_errors";
const CHILD: &str = "WAYSTATION_IO_ERRORS_CHILD";
const CONTROL: &str = "/sys/class/zram-control";

/// A disk in compressed memory, gone when dropped.
struct Disk {
    number: u32,
}

impl Disk {
    fn make(bytes: usize) -> Option<Self> {
        // Reading this file makes one.
        let number = fs::read_to_string(format!("{CONTROL}/hot_add")).ok()?;
        let disk = Self {
            number: number.trim().parse().ok()?,
        };
        disk.set("disksize", bytes).ok()?;
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-O", "^has_journal", "-N", "512"])
            .args(["-E", "lazy_itable_init=0,nodiscard"])
            .arg(disk.device())
            .output();
        made.is_ok_and(|made| made.status.success()).then_some(disk)
    }

    fn device(&self) -> PathBuf {
        format!("/dev/zram{}", self.number).into()
    }

    fn set(&self, name: &str, value: usize) -> std::io::Result<()> {
        let path = format!("/sys/block/zram{}/{name}", self.number);
        fs::write(path, value.to_string())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // It may be busy for a moment after the child's mounts went.
        for _ in 0..50 {
            let path = format!("{CONTROL}/hot_remove");
            if fs::write(path, self.number.to_string()).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Writes until it fails: the failure.
fn fill(db: &Db, written: &mut Vec<usize>) -> Error {
    loop {
        let number = written.last().map_or(0, |last| last + 1);
        let durability = if number.is_multiple_of(50) {
            Durability::PowerLoss
        } else {
            Durability::ProcessCrash
        };
        match put(db, number, durability) {
            Ok(()) => written.push(number),
            Err(error) => return error,
        }
        assert!(number < 30_000, "the device does not fail");
    }
}

/// Whether one more write is acknowledged.
fn put_next(db: &Db, written: &mut Vec<usize>) -> bool {
    let number = written.last().map_or(0, |last| last + 1);
    let is_acknowledged = put(db, number, Durability::PowerLoss).is_ok();
    if is_acknowledged {
        written.push(number);
    }
    is_acknowledged
}

fn fail_and_heal(disk: &Disk, dir: &Path, has_devices: bool) {
    let path = dir.join(format!("db-{has_devices}"));
    let db = Db::open(&path, options(has_devices)).unwrap();
    let mut written = Vec::new();
    for number in 0..500 {
        put(&db, number, Durability::ProcessCrash).unwrap();
        written.push(number);
    }
    db.sync().unwrap();
    // What it takes now, and a little more.
    let used = fs::read_to_string(format!("/sys/block/zram{}/mm_stat", disk.number)).unwrap();
    let used: usize = used.split_whitespace().nth(2).unwrap().parse().unwrap();
    disk.set("mem_limit", used + 6 * MIB).unwrap();

    let text = fill(&db, &mut written).to_string();
    assert!(text.contains("Input/output error"), "{text}");
    assert_all(&db, &written, "on the failing device");
    // A table that could not be written gives back what it took: that may be enough for a while.
    for _ in 0..3 {
        if put_next(&db, &mut written) {
            fill(&db, &mut written);
        }
        thread::sleep(Duration::from_millis(30));
    }
    let told = (0..100).find_map(|_| {
        let told = db.stats().failure;
        if told.is_none() {
            fill(&db, &mut written);
        }
        told
    });
    let failure = told.expect("the reason is told");
    assert!(failure.contains("Input/output error"), "{failure}");
    // From outside, too, what is in files is sound.
    // (A file that is replaced just then may not even be opened.)
    let check = || {
        let inspection = Inspection::open(OsStorage::new(), &path)?;
        inspection.check(&mut |_| ())
    };
    let mut checked = check();
    for _ in 0..50 {
        if !matches!(checked, Err(Error::Io { .. })) {
            break;
        }
        thread::sleep(Duration::from_millis(20));
        checked = check();
    }
    let checked = checked.unwrap();
    assert_eq!(checked.problems, []);

    disk.set("mem_limit", 0).unwrap();
    put_once_healed(&db, &mut written, 1_000);
    db.flush().unwrap();
    assert_eq!(db.stats().failure, None);
    assert_all(&db, &written, "after it healed");
    db.close().unwrap();
    let db = Db::open(&path, options(has_devices)).unwrap();
    assert_all(&db, &written, "after opening again");
    assert_eq!(db.check().unwrap().problems, []);
    db.close().unwrap();
    fs::remove_dir_all(path).unwrap();
}

/// In the child: mounts the device where only this process sees it.
fn in_namespace(number: u32) {
    let dir = tempfile::tempdir().unwrap();
    // Made and removed by the parent.
    let disk = std::mem::ManuallyDrop::new(Disk { number });
    let mounted = Command::new("mount")
        .args(["-o", "errors=continue"])
        .arg(disk.device())
        .arg(dir.path())
        .status();
    assert!(mounted.unwrap().success());
    let result = std::panic::catch_unwind(|| {
        fail_and_heal(&disk, dir.path(), false);
        fail_and_heal(&disk, dir.path(), true);
    });
    let _ = disk.set("mem_limit", 0);
    let _ = Command::new("umount").arg("-l").arg(dir.path()).status();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_failing_device_loses_nothing_and_heals_without_a_restart() {
    if let Ok(number) = std::env::var(CHILD) {
        return in_namespace(number.parse().unwrap());
    }
    let Some(disk) = Disk::make(200 * MIB) else {
        return not_run(
            NAME,
            "making a disk in memory (zram) is not allowed here, or not possible",
        );
    };
    let may_unshare = Command::new("unshare").args(["-m", "true"]).output();
    if !may_unshare.is_ok_and(|output| output.status.success()) {
        return not_run(NAME, "a mount namespace is not allowed here");
    }
    let done = Command::new("unshare")
        .args(["-m", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg(test_name(
            module_path!(),
            "a_failing_device_loses_nothing_and_heals_without_a_restart",
        ))
        .env(CHILD, disk.number.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
}
