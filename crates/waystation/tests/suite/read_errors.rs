//! A device that really fails on reads: they end with `EIO`, and later they do not any more.
//!
//! The device is a file, as a disk (loop) with a file system in it. While the file is cut off, what lay behind the cut cannot
//! be read; when the bytes are put back, all is well. A read that meets the device's failure says so and names the file, the
//! others go on and are right, and so do writes; a repair to another place saves what can be read; and when the cause is
//! gone everything is there, without a restart.
//!
//! The test runs as a process of its own, in a mount namespace of its own. Needs the right to mount; without it nothing is
//! tested, and that is said.

use crate::support::failing::{
    MIB, assert_all, key, not_run, options, put, put_once_healed, value,
};
use crate::support::kills::test_name;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use waystation::repair::{Resurrection, repair};
use waystation::storage::{OsStorage, Storage};
use waystation::{Db, Durability, Error, IterOptions, Options};

const NAME: &str = "read_errors";
const CHILD: &str = "WAYSTATION_READ_ERRORS_CHILD";
const DISK_BYTES: usize = 96 * MIB;
const WRITES: usize = 4_000;
const PAGE: usize = 4096;

/// A disk in a file.
struct Disk {
    image: PathBuf,
}

impl Disk {
    fn make(dir: &Path) -> Option<Self> {
        let image = dir.join("disk");
        let file = fs::File::create(&image).ok()?;
        file.set_len(DISK_BYTES as u64).ok()?;
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-O", "^has_journal", "-N", "512"])
            .args(["-E", "lazy_itable_init=0"])
            .arg(&image)
            .output();
        made.is_ok_and(|made| made.status.success())
            .then_some(Self { image })
    }

    fn mount(&self, at: &Path) -> bool {
        let mounted = Command::new("mount")
            .args(["-o", "loop,errors=continue"])
            .arg(&self.image)
            .arg(at)
            .output();
        mounted.is_ok_and(|mounted| mounted.status.success())
    }

    /// Cuts off what is behind `bytes`, and returns it.
    fn cut(&self, bytes: usize) -> Vec<u8> {
        let mut file = fs::File::options()
            .read(true)
            .write(true)
            .open(&self.image)
            .unwrap();
        file.seek(SeekFrom::Start(bytes as u64)).unwrap();
        let mut behind = Vec::new();
        file.read_to_end(&mut behind).unwrap();
        file.set_len(bytes as u64).unwrap();
        behind
    }

    /// Cuts off so much that between a quarter and three quarters of what `count` tells of cannot be read (how much can be,
    /// and cannot), wherever the file system has put it. Returns what was cut off, and from where.
    fn cut_half(&self, dir: &Path, count: impl Fn() -> (usize, usize)) -> (Vec<u8>, usize) {
        rustix::fs::syncfs(fs::File::open(dir).unwrap()).unwrap();
        let (mut low, mut high) = (0, DISK_BYTES);
        while high - low > PAGE {
            let bytes = (low + (high - low) / 2).next_multiple_of(PAGE);
            let behind = self.cut(bytes);
            forget_pages(dir);
            let (readable, unreadable) = count();
            forget_pages(dir);
            if unreadable < readable / 3 {
                high = bytes;
            } else if readable < unreadable / 3 {
                low = bytes;
            } else {
                return (behind, bytes);
            }
            self.put_back(&behind, bytes);
        }
        panic!("no place of the disk is in the middle of the files");
    }

    fn put_back(&self, behind: &[u8], bytes: usize) {
        let mut file = fs::File::options().write(true).open(&self.image).unwrap();
        file.seek(SeekFrom::Start(bytes as u64)).unwrap();
        file.write_all(behind).unwrap();
    }
}

/// The files of `dir` that hold keys: the tables, or the log of devices that have not settled.
fn data_files(dir: &Path) -> Vec<PathBuf> {
    let ending_with = |kind: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.extension().is_some_and(|found| found == kind))
            .collect()
    };
    let tables = ending_with("ldb");
    if tables.is_empty() {
        return ending_with("seg");
    }
    tables
}

/// Takes what holds keys in `dir` out of the page cache, where it would be read from otherwise.
fn forget_pages(dir: &Path) {
    for path in data_files(dir) {
        // A table that was merged may be removed meanwhile.
        let Ok(file) = fs::File::open(path) else {
            continue;
        };
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

/// How many pages of the files that hold keys can be read, and how many cannot. Of a table without its end, which says where
/// its blocks are, none can. Pages of zeros do not count: a segment made ahead of its use has them alone, and they can be read
/// wherever the disk is cut.
fn count_pages(dir: &Path) -> (usize, usize) {
    let (mut readable, mut unreadable) = (0, 0);
    let mut page = vec![0; PAGE];
    for path in data_files(dir) {
        let file = fs::File::open(&path).unwrap();
        let bytes = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let is_table = path.extension().is_some_and(|found| found == "ldb");
        let end = bytes.saturating_sub(PAGE) as u64;
        let is_lost = is_table && file.read_at(&mut page, end).is_err();
        for start in (0..bytes).step_by(PAGE) {
            if is_lost || file.read_at(&mut page, start as u64).is_err() {
                unreadable += 1;
            } else if page.iter().any(|byte| *byte != 0) {
                readable += 1;
            }
        }
    }
    (readable, unreadable)
}

/// Reads every key: how many can be read, and are right, and how many cannot.
fn count_keys(db: &Db, written: &[usize]) -> (usize, usize) {
    let mut unreadable = 0;
    for &number in written {
        match db.get(&key(number)) {
            Ok(found) => assert!(found == Some(value(number)), "{number}"),
            Err(error @ Error::Io { .. }) => {
                let text = error.to_string();
                assert!(text.contains("Input/output error"), "{text}");
                assert!(text.contains(".ldb") || text.contains(".seg"), "{text}");
                unreadable += 1;
            }
            Err(error) => panic!("{number}: {error}"),
        }
    }
    (written.len() - unreadable, unreadable)
}

/// What a repair to `target` saves is right, and what it does not save is told.
fn save_what_can_be_read(dir: &Path, target: &Path, has_devices: bool, written: &[usize]) {
    let storage: Arc<dyn Storage> = OsStorage::new();
    let accepted = Resurrection::Likely;
    let settings = options(has_devices);
    let repaired = repair(&storage, dir, target, &settings, accepted, &mut |_| ()).unwrap();
    let is_told = !repaired.gaps.is_empty() || !repaired.losses.is_empty();
    assert!(is_told, "{} entries", repaired.entries);
    let db = Db::open(target, settings).unwrap();
    let mut saved = 0;
    for &number in written {
        if let Some(found) = db.get(&key(number)).unwrap() {
            assert!(found == value(number), "{number}");
            saved += 1;
        }
    }
    assert_eq!(saved, repaired.entries);
    assert!(
        saved > 0 && saved < written.len() as u64,
        "{saved} of {} were saved; gaps {:?}, losses {:?}",
        written.len(),
        repaired.gaps,
        repaired.losses
    );
    db.close().unwrap();
    fs::remove_dir_all(target).unwrap();
}

/// No table is left that reaches over all keys: every read would need it, and a repair would doubt all others.
fn leave_narrow_tables(db: &Db) {
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .unwrap();
    db.wait_idle().unwrap();
}

fn fail_and_heal(disk: &Disk, root: &Path, mounted: &Path, has_devices: bool) {
    let path = mounted.join(format!("db-{has_devices}"));
    let settings = Options {
        cache_bytes: MIB,
        ..options(has_devices)
    };
    let db = Db::open(&path, settings.clone()).unwrap();
    let mut written: Vec<usize> = (0..WRITES).collect();
    for &number in &written {
        put(&db, number, Durability::ProcessCrash).unwrap();
    }
    leave_narrow_tables(&db);
    db.sync().unwrap();

    let (behind, bytes) = disk.cut_half(&path, || count_keys(&db, &written));
    let mut cursor = db.iter(IterOptions::default()).unwrap();
    let mut stepped = cursor.seek_to_first();
    while stepped.is_ok() && cursor.valid() {
        stepped = cursor.next();
    }
    let text = stepped.unwrap_err().to_string();
    assert!(text.contains("Input/output error"), "{text}");
    drop(cursor);

    disk.put_back(&behind, bytes);
    assert_all(&db, &written, "once it can be read again");
    put_once_healed(&db, &mut written, 200);
    assert_eq!(db.check().unwrap().problems, []);
    leave_narrow_tables(&db);
    db.close().unwrap();

    // The cut is another, as files have come and gone since.
    let (behind, bytes) = disk.cut_half(&path, || count_pages(&path));
    save_what_can_be_read(&path, &root.join("saved"), has_devices, &written);
    disk.put_back(&behind, bytes);
    let db = Db::open(&path, settings).unwrap();
    assert_all(&db, &written, "after opening again");
    db.close().unwrap();
    fs::remove_dir_all(path).unwrap();
}

/// In the child: mounts the disk where only this process sees it.
fn in_namespace(root: &Path) {
    let Some(disk) = Disk::make(root) else {
        return not_run(NAME, "there is no mkfs.ext4");
    };
    let mounted = root.join("mounted");
    fs::create_dir(&mounted).unwrap();
    if !disk.mount(&mounted) {
        return not_run(NAME, "mounting a file as a disk (loop) is not allowed here");
    }
    let outcome = std::panic::catch_unwind(|| {
        for has_devices in [false, true] {
            fail_and_heal(&disk, root, &mounted, has_devices);
        }
    });
    let _ = Command::new("umount").arg("-l").arg(&mounted).status();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn what_cannot_be_read_is_told_and_heals_without_a_restart() {
    if let Ok(root) = std::env::var(CHILD) {
        return in_namespace(Path::new(&root));
    }
    let may_unshare = Command::new("unshare").args(["-m", "true"]).output();
    if !may_unshare.is_ok_and(|output| output.status.success()) {
        return not_run(NAME, "a mount namespace is not allowed here");
    }
    let root = tempfile::tempdir().unwrap();
    let done = Command::new("unshare")
        .args(["-m", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg(test_name(
            module_path!(),
            "what_cannot_be_read_is_told_and_heals_without_a_restart",
        ))
        .env(CHILD, root.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    if said.contains("NOT RUN") {
        let _ = std::io::stderr().write_all(said.as_bytes());
    }
}
