//! Wrong calls, foreign or broken directories, full and failing storage: each gets a typed error with a sentence,
//! nothing is lost silently, and reads go on where they can. (The command's answers: its own tests.)

use crate::support::disks::SmallDisk;
use rustix::fs::{FileType, Mode};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use waystation::storage::{SimStorage, Storage};
use waystation::{
    Db, Durability, Error, IterOptions, KEY_BYTES_MAX, Options, PutOptions, VALUE_BYTES_MAX,
    WriteBatch,
};
use waystation_format::filename::{current_content, manifest_name};
use waystation_format::leveldb_log::RecordWriter;
use waystation_format::version_edit::VersionEdit;

fn options() -> Options {
    Options {
        memtable_bytes: 128 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        ..Options::default()
    }
}

fn refused(path: &Path) -> Error {
    match Db::open(path, options()) {
        Ok(_) => panic!("{} opens", path.display()),
        Err(error) => error,
    }
}

fn all(db: &Db) -> waystation::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut cursor = db.iter(IterOptions::default())?;
    cursor.seek_to_first()?;
    while cursor.valid() {
        found.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next()?;
    }
    Ok(found)
}

fn write(db: &Db, count: u32) {
    for number in 0..count {
        db.put(&key(number), &[number as u8; 1000]).expect("writes");
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("{number:010}").into_bytes()
}

#[test]
fn an_empty_path() {
    let error = refused(Path::new(""));
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    assert!(error.to_string().contains("name a directory"), "{error}");
}

#[test]
fn a_directory_in_use() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), options()).expect("opens");
    let error = refused(dir.path());
    assert!(
        matches!(&error, Error::Locked { path } if path == dir.path()),
        "{error}"
    );
    db.put(b"the owner", b"goes on").expect("writes");
    db.close().expect("closes");
}

#[test]
fn a_database_that_must_or_must_not_be_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let existing = Options {
        create_if_missing: false,
        ..options()
    };
    let error = Db::open(dir.path().join("none"), existing)
        .map(|_| ())
        .expect_err("refused");
    assert!(matches!(error, Error::Incompatible { .. }), "{error}");
    assert!(!dir.path().join("none").exists(), "nothing was created");
    Db::open(dir.path(), options())
        .expect("opens")
        .close()
        .expect("closes");
    let fresh = Options {
        error_if_exists: true,
        ..options()
    };
    let error = Db::open(dir.path(), fresh)
        .map(|_| ())
        .expect_err("refused");
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
}

/// Writes a database without entries whose MANIFEST names `comparator`.
fn write_foreign(dir: &Path, comparator: &str) {
    let edit = VersionEdit {
        comparator: Some(comparator.to_owned()),
        log_number: Some(0),
        prev_log_number: Some(0),
        next_file_number: Some(2),
        last_sequence: Some(0),
        ..VersionEdit::default()
    };
    let mut content = Vec::new();
    RecordWriter::new(0).append(&edit.to_bytes(), &mut content);
    std::fs::write(dir.join(manifest_name(1)), content).expect("writes");
    std::fs::write(dir.join("CURRENT"), current_content(1)).expect("writes");
}

#[test]
fn a_foreign_order_and_a_newer_format() {
    for comparator in ["idb_cmp1", "waystation/2:leveldb.BytewiseComparator"] {
        let dir = tempfile::tempdir().expect("a directory");
        write_foreign(dir.path(), comparator);
        let error = refused(dir.path());
        assert!(
            matches!(error, Error::Incompatible { .. }),
            "{comparator}: {error}"
        );
    }
    // The log's own files tell, too: the version is the number behind the checksum.
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), options()).expect("opens");
    db.put(b"key", b"value").expect("writes");
    db.close().expect("closes");
    let is_segment = |name: &str| name.starts_with("journal-");
    for is_meant in [&is_segment as &dyn Fn(&str) -> bool, &|name| {
        name == "JOURNAL"
    }] {
        let path = files(dir.path())
            .into_iter()
            .rfind(|path| is_meant(name(path)))
            .expect("a file");
        let old = std::fs::read(&path).expect("reads");
        let mut newer = old.clone();
        newer[12] = 9;
        std::fs::write(&path, newer).expect("writes");
        let error = refused(dir.path());
        assert!(
            matches!(error, Error::Incompatible { .. }),
            "{}: {error}",
            path.display()
        );
        std::fs::write(&path, old).expect("writes");
    }
    Db::open(dir.path(), options()).expect("opens again");
}

fn name(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .expect("a name")
}

/// The files of a directory, by name.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("lists");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
}

fn copy(source: &Path) -> tempfile::TempDir {
    let target = tempfile::tempdir().expect("a directory");
    for path in files(source) {
        match std::fs::copy(&path, target.path().join(name(&path))) {
            // The database removes a file that it needs no more.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            copied => drop(copied.expect("copies")),
        }
    }
    target
}

/// What a process crash leaves of a database with tables, a log over several segments and entries in the ring alone.
fn crashed() -> (tempfile::TempDir, BTreeMap<Vec<u8>, Vec<u8>>) {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), options()).expect("opens");
    write(&db, 300);
    db.flush().expect("flushes");
    write(&db, 100);
    db.write(&WriteBatch::new(), Durability::PowerLoss)
        .expect("syncs");
    db.put(b"in the ring", b"only").expect("writes");
    let content = all(&db).expect("reads");
    let image = copy(dir.path());
    db.close().expect("closes");
    (image, content)
}

/// Opens: everything is there, or an error says what is wrong, and a refusal changes nothing that the next one needs.
fn assert_all_or_told(dir: &Path, content: &BTreeMap<Vec<u8>, Vec<u8>>, what: &str) -> bool {
    let is_typed =
        |error: &Error| matches!(error, Error::Corruption { .. } | Error::Incompatible { .. });
    match Db::open(dir, options()) {
        Ok(db) => match all(&db) {
            Ok(found) => {
                assert!(found == *content, "{what}: a silent loss");
                true
            }
            Err(error) => {
                assert!(is_typed(&error), "{what}: {error}");
                false
            }
        },
        Err(error) => {
            assert!(is_typed(&error), "{what}: {error}");
            false
        }
    }
}

#[test]
fn a_missing_file() {
    let (image, content) = crashed();
    for path in files(image.path()) {
        let dir = copy(image.path());
        let missing = dir.path().join(name(&path));
        std::fs::remove_file(&missing).expect("removes");
        let before: Vec<_> = files(dir.path());
        let what = format!("without {}", name(&path));
        let opens = assert_all_or_told(dir.path(), &content, &what);
        let needed = ["CURRENT", "JOURNAL", "WAYSTATION", "journal.ring"].contains(&name(&path))
            || name(&path).starts_with("MANIFEST");
        assert!(!(opens && needed), "{what}: it opens");
        if needed {
            // The tree may have written its MANIFEST anew by then.
            let matters = |path: &&PathBuf| !name(path).starts_with("MANIFEST");
            let lost: Vec<_> = before
                .iter()
                .filter(matters)
                .filter(|path| !path.exists())
                .collect();
            assert!(lost.is_empty(), "{what}: the refusal removed {lost:?}");
        }
    }
}

/// A reader of a pipe waits for its writer, and none comes.
#[test]
fn a_pipe_in_place_of_a_file() {
    let (image, content) = crashed();
    for path in files(image.path()) {
        let dir = copy(image.path());
        let pipe = dir.path().join(name(&path));
        std::fs::remove_file(&pipe).expect("removes");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, mode, 0).expect("makes a pipe");
        let (answered, answer) = std::sync::mpsc::channel();
        let dir = dir.keep();
        let at = dir.clone();
        let open = move || answered.send(Db::open(at, options()).and_then(|db| all(&db)));
        (std::thread::Builder::new().spawn(open)).expect("starts");
        let what = format!("{} is a pipe", name(&path));
        let answer = answer.recv_timeout(Duration::from_secs(60));
        match answer.unwrap_or_else(|_| panic!("{what}: no answer")) {
            Ok(found) => assert!(found == content, "{what}: a silent loss"),
            Err(Error::Io { .. } | Error::Corruption { .. } | Error::Incompatible { .. }) => {}
            Err(error) => panic!("{what}: {error}"),
        }
        std::fs::remove_dir_all(dir).expect("removes");
    }
}

#[test]
fn a_damaged_file() {
    let (image, content) = crashed();
    for path in files(image.path()) {
        let length = std::fs::metadata(&path).expect("size").len();
        // What the ring alone holds may end anywhere after a power cut: its damage is a torn tail.
        if length == 0 || name(&path) == "journal.ring" {
            continue;
        }
        for at in [0, 13, length / 3, length / 2, length - 1] {
            let dir = copy(image.path());
            let damaged = dir.path().join(name(&path));
            let mut bytes = std::fs::read(&damaged).expect("reads");
            bytes[at.min(length - 1) as usize] ^= 0x10;
            std::fs::write(&damaged, bytes).expect("writes");
            let what = format!("{} damaged at {at}", name(&path));
            assert_all_or_told(dir.path(), &content, &what);
        }
    }
}

/// Whether a write is refused before it touches what is kept, or after the storage failed; it may go well later.
fn is_for_want_of_room(error: &Error) -> bool {
    error.is_out_of_space() || matches!(error, Error::Suspended { .. })
}

/// Fills a database until it is refused, frees space by `free`, and sees it go on; nothing acknowledged is lost.
fn fill_and_heal(db: &Db, free: impl FnOnce()) {
    let mut acknowledged = 0_u32;
    let error = loop {
        match db.put(&key(acknowledged), &[acknowledged as u8; 4000]) {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 1 << 20, "it is never full");
    };
    assert!(is_for_want_of_room(&error), "{error}");
    let check = || {
        for number in 0..acknowledged {
            let value = db.get(&key(number)).expect("reads go on");
            assert_eq!(value, Some(vec![number as u8; 4000]), "of {acknowledged}");
        }
    };
    check();
    // A merge that fails gives back what it wrote: that may have been enough for the flush, and for who writes.
    let is_told = db.stats().failure.is_some();
    let meanwhile = db.put(b"meanwhile", b"it healed");
    assert!(
        is_told
            || meanwhile
                .as_ref()
                .map_or_else(is_for_want_of_room, |()| true)
    );
    free();
    let mut patience = 1_000;
    while let Err(error) = db.put(b"again", b"and again") {
        assert!(is_for_want_of_room(&error), "{error}");
        patience -= 1;
        assert!(patience > 0, "it never heals: {error}");
        std::thread::sleep(Duration::from_millis(10));
    }
    check();
}

#[test]
fn a_full_disk() {
    for operation in [Operation::Write, Operation::Preallocate, Operation::Open] {
        let machine = SimStorage::new(1);
        let rules = FaultRules::new();
        let storage: Arc<dyn Storage> = machine.with_faults(&rules);
        let db = Db::open_with(storage, Path::new("/db"), options()).expect("opens");
        write(&db, 50);
        rules.add(Rule::new(operation, Fault::Fail(Refusal::NoSpace)));
        fill_and_heal(&db, || rules.clear());
        db.close().expect("closes");
    }
}

#[test]
fn a_disk_that_is_really_full() {
    let Some(disk) = SmallDisk::in_memory("bad_input", 8 << 20) else {
        return;
    };
    let ballast = disk.path("ballast");
    std::fs::write(&ballast, vec![0; 5 << 20]).expect("writes");
    let path = disk.path("db");
    let db = Db::open(&path, options()).expect("opens");
    fill_and_heal(&db, || std::fs::remove_file(&ballast).expect("removes"));
    let content = all(&db).expect("reads");
    db.close().expect("closes");
    let db = Db::open(&path, options()).expect("opens again");
    assert!(all(&db).expect("reads") == content);
}

#[test]
fn failing_input_and_output() {
    let machine = SimStorage::new(2);
    let rules = FaultRules::new();
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    let db = Db::open_with(storage, Path::new("/db"), options()).expect("opens");
    write(&db, 50);
    rules.add(Rule::new(
        Operation::Sync,
        Fault::Fail(Refusal::InputOutput),
    ));
    rules.add(Rule::new(
        Operation::Write,
        Fault::Fail(Refusal::InputOutput),
    ));
    let mut batch = WriteBatch::new();
    batch.put(b"not", b"acknowledged");
    let error = db
        .write(&batch, Durability::PowerLoss)
        .expect_err("refused");
    assert!(matches!(error, Error::Suspended { .. }), "{error}");
    fill_and_heal(&db, || rules.clear());
    db.flush().expect("flushes");
    drop(db);
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    let cold = Options {
        cache_bytes: 0,
        ..options()
    };
    let db = Db::open_with(storage, Path::new("/db"), cold).expect("opens again");
    rules.add(Rule::new(Operation::Read, Fault::Fail(Refusal::InputOutput)).on(".ldb"));
    let error = all(&db).expect_err("a table cannot be read");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    rules.clear();
    assert!(all(&db).expect("reads").len() > 50);
}

#[test]
fn a_key_value_or_batch_over_its_limit() {
    let machine = SimStorage::new(3);
    let db = Db::open_with(machine, Path::new("/db"), options()).expect("opens");
    let longest = vec![b'k'; KEY_BYTES_MAX];
    db.put(&longest, b"fits").expect("writes");
    let longer = vec![b'k'; KEY_BYTES_MAX + 1];
    for error in [
        db.put(&longer, b"").expect_err("refused"),
        db.delete(&longer).expect_err("refused"),
        db.put(b"key", &vec![0; VALUE_BYTES_MAX + 1])
            .expect_err("refused"),
    ] {
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        assert!(error.to_string().contains("at most"), "{error}");
    }
    // Longer than any length field: memory that nobody touches.
    let absurd = vec![0; (4 << 30) + 1];
    let mut sole = WriteBatch::new();
    sole.put(&absurd, b"");
    let second = Duration::from_secs(1);
    for error in [
        db.put_with(&absurd, b"", PutOptions::expiring(second))
            .expect_err("refused"),
        db.put_with(b"key", &absurd, PutOptions::expiring(second))
            .expect_err("refused"),
        db.delete_prefix(&absurd).expect_err("refused"),
        db.delete_range(&absurd, None).expect_err("refused"),
        db.delete_range(b"", Some(&absurd)).expect_err("refused"),
        db.write(&sole, Durability::PowerLoss).expect_err("refused"),
    ] {
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        assert!(error.to_string().contains("at most"), "{error}");
    }
    // Nothing of a batch is written if one of its keys is refused.
    let mut batch = WriteBatch::new();
    batch.put(b"key", b"value");
    batch.put(&longer, b"value");
    assert!(db.write(&batch, Durability::ProcessCrash).is_err());
    assert_eq!(db.get(b"key").expect("gets"), None);
    assert_eq!(db.get(&longer).expect("gets"), None);
    assert_eq!(
        db.get(&longest).expect("gets").as_deref(),
        Some(&b"fits"[..])
    );
}
