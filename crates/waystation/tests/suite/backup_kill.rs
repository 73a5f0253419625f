//! kill -9 amid backups and restores: a backup that is listed is whole, and a restore that was cut short is no database.
//!
//! The process that writes and backs up, or restores, is this test binary started again. It writes numbers in order, so
//! that a database tells by itself whether it is a prefix of what was written; a line on a pipe says which numbers a
//! backup holds at the least. An eighth of `WAYSTATION_KILLS` (default 48) of each kind.

use crate::support::kills::test_name;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use waystation::backup::Backups;
use waystation::storage::OsStorage;
use waystation::{Db, DeviceOptions, Error, Extractor, IterOptions, Options};

const CHILD: &str = "WAYSTATION_BACKUP_CHILD";
/// A child gets so many times as long at most to finish a first backup.
const PATIENCE_MAX: u32 = 32;

fn options(has_devices: bool) -> Options {
    Options {
        memtable_bytes: 256 << 10,
        table_bytes: 128 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 512 << 10,
        cache_bytes: 1 << 20,
        devices: has_devices.then(|| DeviceOptions {
            residency: Duration::from_millis(60),
            ..DeviceOptions::new(Extractor::until(b':'))
        }),
        ..Options::default()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("car{}:{number:08}", number / 100 % 9).into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    let mut value = vec![number as u8; 300];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// How many numbers the database holds, which must be the first ones.
fn count(db: &Db) -> u64 {
    let mut cursor = db.iter(IterOptions::default()).unwrap();
    cursor.seek_to_first().unwrap();
    let mut found = BTreeSet::new();
    while cursor.valid() {
        let number = u64::from_le_bytes(cursor.value()[..8].try_into().unwrap());
        assert_eq!(cursor.key(), key(number));
        assert_eq!(cursor.value(), value(number));
        found.insert(number);
        cursor.next().unwrap();
    }
    let count = found.len() as u64;
    assert!(found.iter().copied().eq(0..count), "a hole in {count}");
    count
}

/// Body of a child: writes, and backs up as often as it can.
fn back_up_until_killed(root: &Path, has_devices: bool) {
    let db = Db::open(root.join("db"), options(has_devices)).unwrap();
    let written = AtomicU64::new(count(&db));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let number = written.load(SeqCst);
                db.put(&key(number), &value(number)).unwrap();
                written.store(number + 1, SeqCst);
                if number.is_multiple_of(8) {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        });
        loop {
            let least = written.load(SeqCst);
            let made = db.backup(root.join("backups"), &mut |_| ()).unwrap();
            tell(&format!("{} {least}\n", made.backup.number));
        }
    });
}

/// One write call a line, so that a kill cannot tear what was told.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).unwrap();
    out.flush().unwrap();
}

fn start(root: &Path, what: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .arg(test_name(module_path!(), "killed_at_any_time"))
        .args(["--exact", "--nocapture"])
        .env(CHILD, format!("{what} {}", root.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets a child run for so long, and kills it. What it told, by the first number of each line.
fn kill_after(mut child: Child, time: Duration) -> BTreeMap<u64, u64> {
    let mut pipe = child.stdout.take().unwrap();
    let reader = std::thread::Builder::new()
        .spawn(move || {
            let mut told = String::new();
            pipe.read_to_string(&mut told).unwrap();
            told
        })
        .unwrap();
    std::thread::sleep(time);
    child.kill().unwrap();
    child.wait().unwrap();
    let told = reader.join().unwrap();
    let numbers = told.lines().filter_map(|line| {
        let (first, second) = line.split_once(' ')?;
        Some((first.parse().ok()?, second.parse().ok()?))
    });
    numbers.collect()
}

#[test]
fn killed_at_any_time() {
    if let Ok(child) = std::env::var(CHILD) {
        let (what, root) = child.split_once(' ').unwrap();
        let root = Path::new(root);
        if what == "restore" {
            let backups = Backups::open(OsStorage::new(), root.join("backups")).unwrap();
            backups
                .restore(None, &root.join("restored"), &mut |_| ())
                .unwrap();
            return tell("1 1\n");
        }
        back_up_until_killed(root, what == "devices");
    }
    let kills = std::env::var("WAYSTATION_KILLS").map_or(48, |n| n.parse::<u64>().unwrap()) / 8;
    for has_devices in [false, true] {
        kill_backups(kills, has_devices);
    }
}

fn kill_backups(kills: u64, has_devices: bool) {
    let root = tempfile::tempdir().unwrap();
    let what = if has_devices { "devices" } else { "plain" };
    let mut told = BTreeMap::new();
    let mut restores = 0;
    // Where others take the processors, a child gets nothing done in a moment.
    let mut patience = 1;
    for kill in 0..kills {
        let time = Duration::from_millis(60 + kill * 37 % 300) * patience;
        told.extend(kill_after(start(root.path(), what), time));
        if told.is_empty() {
            patience = PATIENCE_MAX.min(patience * 2);
        }
        check_backups(root.path(), &told, has_devices);
        if !told.is_empty() {
            kill_restore(root.path(), kill, has_devices);
            restores += 1;
        }
    }
    println!(
        "backup kill test: {kills} kills under backups (devices: {has_devices}), {restores} under restores, {} backups told of, none lost",
        told.len()
    );
    assert!(!told.is_empty(), "no backup was ever finished");
}

fn check_backups(root: &Path, told: &BTreeMap<u64, u64>, has_devices: bool) {
    let Ok(backups) = Backups::open(OsStorage::new(), root.join("backups")) else {
        assert!(told.is_empty());
        return;
    };
    let listing = backups.list().unwrap();
    assert_eq!(listing.damaged, []);
    let listed: Vec<_> = listing.backups.iter().map(|it| it.number).collect();
    assert!(
        told.keys()
            .all(|number| listed.contains(number) || listed.is_empty() || *number < listed[0])
    );
    assert_eq!(backups.verify(None, &mut |_| ()).unwrap().problems, []);
    for number in listed.iter().rev().take(2) {
        let target = root.join(format!("restored{number}"));
        backups
            .restore(Some(*number), &target, &mut |_| ())
            .unwrap();
        let db = Db::open(&target, options(has_devices)).unwrap();
        let count = count(&db);
        let least = told.get(number).copied().unwrap_or(0);
        assert!(count >= least, "backup {number}: {count} of {least}");
        db.close().unwrap();
        std::fs::remove_dir_all(target).unwrap();
    }
    if listed.len() > 3 {
        backups.prune(3).unwrap();
    }
}

fn kill_restore(root: &Path, kill: u64, has_devices: bool) {
    let target = root.join("restored");
    let child = start(root, "restore");
    let done = kill_after(child, Duration::from_millis(2 + kill * 7 % 40));
    let opened = Db::open(
        &target,
        Options {
            create_if_missing: false,
            ..options(has_devices)
        },
    );
    match opened {
        Ok(db) => {
            count(&db);
            db.close().unwrap();
        }
        Err(Error::Incompatible { .. } | Error::Corruption { .. } | Error::Io { .. }) => {
            assert!(done.is_empty(), "it was done");
            assert!(!target.join("CURRENT").exists());
        }
        Err(error) => panic!("{error}"),
    }
    let _ = std::fs::remove_dir_all(target);
}
