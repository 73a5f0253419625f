//! Repair of databases with damaged tables: what can be read is saved, what is lost is told, nothing comes back.

use crate::support::{Content, content};
use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use waystation::repair::{Repaired, Resurrection, repair};
use waystation::storage::{OsStorage, Storage};
use waystation::{Compression, Db, DeviceOptions, Extractor, Options};

fn options(has_devices: bool) -> Options {
    Options {
        block_bytes: 1024,
        table_bytes: 64 << 10,
        memtable_bytes: 256 << 10,
        compression: Compression::None,
        devices: has_devices.then(|| DeviceOptions::new(Extractor::until(b':'))),
        ..Options::default()
    }
}

/// Two generations of keys in different tables, with deletions in the second.
fn make(dir: &Path, has_devices: bool) -> Content {
    let db = Db::open(dir, options(has_devices)).unwrap();
    let mut content = Content::new();
    for generation in 0..2 {
        for number in (0..3000).step_by(1 + generation) {
            let key = format!("car{}:{number:05}", number % 3).into_bytes();
            if generation == 1 && number % 5 == 0 {
                db.delete(&key).unwrap();
                content.remove(&key);
            } else {
                let value = format!("value {number} of generation {generation}").into_bytes();
                db.put(&key, &value).unwrap();
                content.insert(key, value);
            }
        }
        db.flush().unwrap();
        if generation == 0 {
            db.compact_range(Bound::Unbounded, Bound::Unbounded)
                .unwrap();
        }
    }
    if has_devices {
        db.devices().depart(b"car1").unwrap();
        content.retain(|key, _| !key.starts_with(b"car1:"));
    }
    db.close().unwrap();
    content
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    let mut tables: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ldb"))
        .collect();
    tables.sort();
    tables
}

fn flip(path: &Path, at: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at as usize] ^= 0x40;
    fs::write(path, bytes).unwrap();
}

fn repaired(dir: &Path, target: &Path, has_devices: bool) -> (Repaired, Content) {
    let storage: Arc<dyn Storage> = OsStorage::new();
    let answer = repair(
        &storage,
        dir,
        target,
        &options(has_devices),
        Resurrection::Impossible,
        &mut |_| (),
    )
    .unwrap();
    let db = Db::open(target, options(has_devices)).unwrap();
    let found = content(&db);
    assert_eq!(found.len() as u64, answer.entries);
    (answer, found)
}

fn check_damaged(has_devices: bool) {
    let parent = tempfile::tempdir().unwrap();
    let pristine = parent.path().join("pristine");
    let content = make(&pristine, has_devices);
    for (number, table) in tables(&pristine).iter().enumerate() {
        let length = fs::metadata(table).unwrap().len();
        // A data block, and the index.
        for at in [length / 3, length - 120] {
            let dir = parent.path().join(format!("damaged-{number}-{at}"));
            fs::create_dir(&dir).unwrap();
            for entry in fs::read_dir(&pristine).unwrap() {
                let path = entry.unwrap().path();
                fs::copy(&path, dir.join(path.file_name().unwrap())).unwrap();
            }
            flip(&dir.join(table.file_name().unwrap()), at);
            let (answer, found) = repaired(&dir, &dir.with_extension("new"), has_devices);
            for (key, value) in &found {
                assert_eq!(content.get(key), Some(value), "{}", key.escape_ascii());
            }
            for key in content.keys().filter(|key| !found.contains_key(*key)) {
                let is_told = answer.gaps.iter().any(|gap| {
                    gap.after.as_ref().is_none_or(|after| after < key) && *key <= gap.through
                });
                assert!(is_told, "{} is lost and not told", key.escape_ascii());
            }
            // Without its index a table that spans all keys makes every one of them doubtful.
            let is_index = at > length / 2;
            assert!(
                is_index || found.len() * 10 > content.len() * 9,
                "{} of {}",
                found.len(),
                content.len()
            );
        }
    }
}

#[test]
fn what_a_damaged_block_does_not_hold_is_saved() {
    check_damaged(false);
}

#[test]
fn what_departed_does_not_come_back() {
    check_damaged(true);
}

#[test]
fn a_sound_database_is_copied_whole() {
    let parent = tempfile::tempdir().unwrap();
    for has_devices in [false, true] {
        let dir = parent.path().join(format!("sound-{has_devices}"));
        let content = make(&dir, has_devices);
        let (answer, found) = repaired(&dir, &dir.with_extension("new"), has_devices);
        assert_eq!(answer.gaps, []);
        assert_eq!(found, content);
    }
}
