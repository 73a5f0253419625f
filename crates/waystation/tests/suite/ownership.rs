//! Who owns a directory, and what of it: a cursor that outlives its database keeps the directory, and what is made
//! there is its owner's alone.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use waystation::backup::Backups;
use waystation::repair::{self, Resurrection};
use waystation::storage::{OsStorage, Storage};
use waystation::{
    Compression, Db, DeviceOptions, Durability, Error, Extractor, IterOptions, Options, WriteBatch,
};

fn options(has_devices: bool) -> Options {
    Options {
        memtable_bytes: 128 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        devices: has_devices.then(|| DeviceOptions::new(Extractor::until(b':'))),
        ..Options::default()
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("car-1:{number:04}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; 1000]
}

/// What another program does as soon as it may: opens the database and writes more than the ring holds.
fn intrude(dir: &Path, has_devices: bool) -> Result<(), Error> {
    let db = Db::open(dir, options(has_devices))?;
    for number in 0..1000 {
        db.put(format!("van-2:{number:04}").as_bytes(), &[0xee; 1000])?;
    }
    db.close()
}

fn a_cursor_outlives(has_devices: bool, end: fn(Db)) {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), options(has_devices)).expect("opens");
    for number in 0..100 {
        db.put(&key(number), &value(number)).expect("writes");
    }
    let mut cursor = db.iter(IterOptions::default()).expect("a cursor");
    cursor.seek_to_first().expect("moves");
    end(db);
    let intruded = intrude(dir.path(), has_devices);
    for number in 0..100 {
        assert!(cursor.valid(), "{number}");
        assert_eq!(cursor.key(), key(number));
        assert!(cursor.value() == value(number), "the value of {number}");
        cursor.next().expect("moves");
    }
    assert!(!cursor.valid());
    assert!(
        matches!(&intruded, Err(Error::Locked { path }) if path == dir.path()),
        "{intruded:?}"
    );
    let destroyed = Db::destroy(dir.path());
    assert!(matches!(destroyed, Err(Error::Locked { .. })));
    drop(cursor);
    intrude(dir.path(), has_devices).expect("nobody is left");
    let db = Db::open(dir.path(), options(has_devices)).expect("opens");
    assert_eq!(db.get(&key(99)).expect("reads"), Some(value(99)));
}

#[test]
fn a_cursor_over_the_upper_level_outlives_its_database() {
    a_cursor_outlives(true, |db| db.close().expect("closes"));
    a_cursor_outlives(true, drop);
}

#[test]
fn a_cursor_over_the_tree_outlives_its_database() {
    a_cursor_outlives(false, |db| db.close().expect("closes"));
    a_cursor_outlives(false, drop);
}

#[test]
fn a_snapshot_keeps_nobody_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), options(true)).expect("opens");
    db.put(&key(1), &value(1)).expect("writes");
    let snapshot = db.snapshot();
    db.close().expect("closes");
    let next = Db::open(dir.path(), options(true)).expect("opens");
    let strange = next.get_at(&key(1), &snapshot);
    assert!(
        matches!(strange, Err(Error::InvalidArgument(_))),
        "{strange:?}"
    );
}

/// Everything below `dir` with its mode, `dir` included.
fn modes(dir: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = vec![(dir.to_owned(), fs::metadata(dir).expect("there").mode())];
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(modes(&path));
        } else {
            let mode = fs::metadata(&path).expect("there").mode();
            found.push((path, mode));
        }
    }
    found
}

fn assert_private(dir: &Path) {
    for (path, mode) in modes(dir) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode & 0o777, expected, "{}: {mode:o}", path.display());
    }
}

#[test]
fn what_is_made_is_its_owners_alone() {
    let parent = tempfile::tempdir().expect("a directory");
    let at = |name: &str| parent.path().join("made/here").join(name);
    for has_devices in [false, true] {
        let name = |what: &str| at(&format!("{what}-{has_devices}"));
        let db = Db::open(name("db"), options(has_devices)).expect("opens");
        for number in 0..500 {
            db.put(&key(number), &value(number)).expect("writes");
        }
        let mut batch = WriteBatch::new();
        batch.delete(&key(7));
        db.write(&batch, Durability::PowerLoss).expect("writes");
        db.flush().expect("flushes");
        assert_private(&name("db"));
        db.checkpoint(name("checkpoint")).expect("copies");
        db.backup(name("backups"), &mut |_| ()).expect("backs up");
        db.export_leveldb(&name("export"), Compression::Snappy, &mut |_| ())
            .expect("exports");
        db.close().expect("closes");
        Backups::open(OsStorage::new(), name("backups"))
            .expect("backups")
            .restore(None, &name("restored"), &mut |_| ())
            .expect("restores");
        let storage: Arc<dyn Storage> = OsStorage::new();
        repair::repair(
            &storage,
            &name("db"),
            &name("repaired"),
            &options(has_devices),
            Resurrection::Likely,
            &mut |_| (),
        )
        .expect("repairs");
    }
    assert_private(&parent.path().join("made"));
}

#[test]
fn what_was_there_keeps_its_mode() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("db");
    fs::create_dir(&dir).expect("makes");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("sets");
    let open = || Db::open(&dir, options(false)).expect("opens");
    open().close().expect("closes");
    let lock = dir.join("LOCK");
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o640)).expect("sets");
    open().close().expect("closes");
    for (path, expected) in [(&dir, 0o755), (&lock, 0o640)] {
        let mode = fs::metadata(path).expect("there").mode();
        assert_eq!(mode & 0o777, expected, "{}", path.display());
    }
}

#[test]
fn a_place_without_directories_says_so() {
    for path in ["/proc/none", "/proc/none/deeper"] {
        let Err(error) = Db::open(path, options(false)) else {
            panic!("{path} opens");
        };
        assert!(matches!(error, Error::Io { .. }), "{error}");
        assert!(error.to_string().contains(path), "{error}");
    }
}
