//! Repair of databases of which files are lost or damaged, whatever files: all that is sound is saved, what is lost is
//! told, and nothing that was deleted comes back unless that is accepted.

use crate::support::{Content, Random, content, copy_files, options_with_resting_devices};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use waystation::inspect::Inspection;
use waystation::repair::{Repaired, Resurrection, repair, repair_in_place};
use waystation::storage::{Area, OpenMode, OsStorage, SimStorage, Storage, Transfer};
use waystation::{Compression, Db, Error, Options, PutOptions};

/// The files of a directory, by name.
type Files = BTreeMap<String, Vec<u8>>;

/// What there is, and all that there ever was.
#[derive(Default)]
struct Model {
    now: BTreeMap<Vec<u8>, Vec<u8>>,
    ever: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
}

impl Model {
    fn put(&mut self, db: &Db, key: String, value: String) {
        db.put(key.as_bytes(), value.as_bytes()).unwrap();
        self.note(key.into(), value.into());
    }

    fn note(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.ever
            .entry(key.clone())
            .or_default()
            .insert(value.clone());
        self.now.insert(key, value);
    }

    fn delete(&mut self, db: &Db, key: &str) {
        db.delete(key.as_bytes()).unwrap();
        self.now.remove(key.as_bytes());
    }

    fn forget(&mut self, prefix: &str) {
        self.now
            .retain(|key, _| !key.starts_with(prefix.as_bytes()));
    }
}

/// How a database is made; `Spilled` has devices, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    WithDevices,
    Spilled,
}

const KINDS: [Kind; 3] = [Kind::Plain, Kind::WithDevices, Kind::Spilled];

fn options(has_devices: bool) -> Options {
    let with = options_with_resting_devices();
    Options {
        devices: with.devices.clone().filter(|_| has_devices),
        block_bytes: 1024,
        memtable_bytes: 128 << 10,
        compression: Compression::None,
        deletion_deadline: None,
        ..with
    }
}

fn padding(number: u64) -> String {
    format!("{number:0120}")
}

/// Several levels, graves that hide something in tables, an unflushed end, keys that expire and keys that have.
fn write(db: &Db, model: &mut Model, has_devices: bool) {
    for round in 0..4 {
        for number in 0..900_u64 {
            let key = format!("plain{:05}", number * 7 % 900 + 200 * round);
            model.put(db, key, padding(number + 10_000 * round));
        }
        if round == 1 {
            db.compact_range(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)
                .unwrap();
        }
    }
    if has_devices {
        for number in 0..2400_u64 {
            let key = format!("car{}:{:05}", number % 6, number / 6 % 250);
            model.put(db, key, padding(number));
        }
        for number in 0..50 {
            model.delete(db, &format!("car2:{number:05}"));
        }
        db.devices().settle(b"car1").unwrap();
        db.devices().settle(b"car2").unwrap();
        db.devices().settle(b"car3").unwrap();
        for number in 0..60_u64 {
            model.put(db, format!("car3:{number:05}"), padding(70_000 + number));
        }
        for device in ["car1", "car4"] {
            db.devices().depart(device.as_bytes()).unwrap();
            model.forget(&format!("{device}:"));
        }
        for number in 0..20_u64 {
            model.put(db, format!("car4:{number:05}"), padding(80_000 + number));
        }
    }
    db.flush().unwrap();
    db.delete_prefix(b"plain003").unwrap();
    model.forget("plain003");
    for number in 0..200 {
        model.delete(db, &format!("plain{:05}", 600 + number));
    }
    db.put_with(
        b"plain-brief",
        b"gone",
        PutOptions::expiring(Duration::from_micros(1)),
    )
    .unwrap();
    db.put_with(
        b"plain-long",
        b"there",
        PutOptions::expiring(Duration::from_secs(100_000)),
    )
    .unwrap();
    model.note(b"plain-long".to_vec(), b"there".to_vec());
    model
        .ever
        .insert(b"plain-brief".to_vec(), [b"gone".to_vec()].into());
    db.flush().unwrap();
    for number in 0..150_u64 {
        model.put(
            db,
            format!("plain{:05}", 2 * number),
            padding(90_000 + number),
        );
        model.delete(db, &format!("plain{:05}", 900 + number));
    }
    db.wait_idle().unwrap();
    // In the ring alone.
    model.put(db, "plain-last".to_owned(), padding(99_999));
}

/// Files of a database, and what they should hold.
struct Made {
    /// After a kill, and after a close.
    states: [(&'static str, Files); 2],
    model: Model,
    has_devices: bool,
}

impl Made {
    fn new(kind: Kind) -> Self {
        let has_devices = kind != Kind::Plain;
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("db");
        let mut options = options(has_devices);
        if kind == Kind::Spilled {
            options.graves_bytes = 0;
        }
        let db = Db::open(&path, options).unwrap();
        let mut model = Model::default();
        // So that nothing deleted is purged.
        let held = db.snapshot();
        write(&db, &mut model, has_devices);
        let killed = files_of(&*OsStorage::new(), &path);
        drop(held);
        db.close().unwrap();
        let closed = files_of(&*OsStorage::new(), &path);
        for files in [&killed, &closed] {
            assert_eq!(
                files.keys().any(|name| is_spill_file(name)),
                kind == Kind::Spilled
            );
        }
        Self {
            states: [("killed", killed), ("closed", closed)],
            model,
            has_devices,
        }
    }

    fn killed(&self) -> &Files {
        &self.states[0].1
    }

    fn options(&self) -> Options {
        Options {
            devices: None,
            ..options(self.has_devices)
        }
    }

    /// Repairs a database of `files`; the answer, and what is in the new one.
    fn repair(&self, files: &Files, accepted: Resurrection) -> Result<(Repaired, Content), Error> {
        let machine: Arc<dyn Storage> = machine(files);
        let (dir, target) = (Path::new("/db"), Path::new("/new"));
        let options = self.options();
        let repaired = repair(&machine, dir, target, &options, accepted, &mut |_| ());
        let mut left = files_of(&*machine, dir);
        left.retain(|name, _| name != "LOCK" || files.contains_key(name));
        assert!(left == *files, "the damaged directory is changed");
        assert!(machine.list(Path::new("/new.unfinished")).is_err());
        if repaired.is_err() {
            assert!(machine.list(target).is_err());
        }
        repaired.map(|repaired| {
            let found = content_at(&machine, target);
            assert_eq!(found.len() as u64, repaired.entries);
            (repaired, found)
        })
    }

    /// Repairs a database of `files` and compares with the model; returns what it took to be accepted, and the answer.
    fn check(&self, files: &Files, what: &str) -> (Resurrection, Repaired) {
        let accepted = [
            Resurrection::Impossible,
            Resurrection::Possible,
            Resurrection::Likely,
        ];
        for accepted in accepted {
            match self.repair(files, accepted) {
                Err(Error::Resurrection { .. }) => assert!(accepted < Resurrection::Likely),
                Err(error) => panic!("{what}: {error}"),
                Ok((repaired, found)) => {
                    self.compare(&found, &repaired, accepted, what);
                    return (accepted, repaired);
                }
            }
        }
        unreachable!("the last is accepted")
    }

    fn compare(&self, found: &Content, repaired: &Repaired, accepted: Resurrection, what: &str) {
        for (key, value) in found {
            let name = key.escape_ascii();
            if accepted == Resurrection::Impossible {
                assert_eq!(
                    self.model.now.get(key),
                    Some(value),
                    "{what}: {name} came back"
                );
            }
            let ever = self.model.ever.get(key);
            assert!(
                ever.is_some_and(|ever| ever.contains(value)),
                "{what}: {name}"
            );
        }
        // Of what is not as it was, every key lies in a gap or is one of the writes that are lost.
        let is_right = |key: &[u8]| found.get(key) == self.model.now.get(key);
        let is_told = |key: &[u8]| {
            let mut gaps = repaired.gaps.iter();
            gaps.any(|gap| {
                gap.after.as_deref().is_none_or(|after| after < key) && *key <= gap.through[..]
            })
        };
        let all = self.model.now.keys();
        let wrong = all.filter(|key| !is_right(key) && !is_told(key)).count() as u64;
        let open_ended = repaired
            .losses
            .iter()
            .any(|loss| loss.resurrection > Resurrection::Impossible && loss.writes.is_none());
        let lost: u64 = repaired.losses.iter().filter_map(|loss| loss.writes).sum();
        assert!(
            wrong <= lost || (open_ended && wrong < 700),
            "{what}: {wrong} keys are wrong, and {:?} {:?}",
            repaired.losses,
            repaired.gaps
        );
    }
}

/// A machine with a database of `files`.
fn machine(files: &Files) -> Arc<SimStorage> {
    let machine = SimStorage::new(1);
    // Later than by the clock that what has a time to live was written by.
    let (theirs, ours) = (OsStorage::new().wall_clock(), machine.wall_clock());
    let ahead = theirs.saturating_sub(ours).as_secs().cast_signed();
    machine.step_wall_clock(ahead + 3600);
    machine.create_dir(Path::new("/db")).unwrap();
    for (name, bytes) in files {
        let path = Path::new("/db").join(name);
        let file = machine.open(&path, OpenMode::Create, Transfer::Buffered, Area::Tables);
        file.unwrap().write_at(bytes, 0).unwrap();
    }
    machine
}

fn files_of(storage: &dyn Storage, dir: &Path) -> Files {
    let listed = storage.list(dir).unwrap().into_iter();
    let read = |name: String| {
        let mode = (OpenMode::Read, Transfer::Buffered, Area::Tables);
        let file = match storage.open(&dir.join(&name), mode.0, mode.1, mode.2) {
            // An image of the indexes that was being drawn has its name by now.
            Err(error) if error.is_not_found() => return None,
            file => file.unwrap(),
        };
        let mut bytes = vec![0; file.size().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        Some((name, bytes))
    };
    listed.filter_map(|entry| read(entry.name)).collect()
}

/// What is in the new database `dir`, which checks and opens.
fn content_at(storage: &Arc<dyn Storage>, dir: &Path) -> Content {
    let inspection = Inspection::open(Arc::clone(storage), dir).unwrap();
    let checked = inspection.check(&mut |_| ()).unwrap();
    assert_eq!(checked.problems, []);
    let listed = storage.list(dir).unwrap();
    let keeps_devices = listed.iter().any(|entry| entry.name == "DEVICES");
    let db = Db::open_with(Arc::clone(storage), dir, options(keeps_devices)).unwrap();
    let found = content(&db);
    db.close().unwrap();
    found
}

/// `files` without one of them.
fn without(files: &Files, name: &str) -> Files {
    let mut files = files.clone();
    files.remove(name).unwrap();
    files
}

/// `files`, one of which `damage` changes.
fn damaged(files: &Files, name: &str, damage: impl FnOnce(&mut Vec<u8>)) -> Files {
    let mut files = files.clone();
    damage(files.get_mut(name).unwrap());
    files
}

fn is_table(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|it| it == "ldb")
}

fn is_spill_file(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|it| it == "vault")
}

fn is_named(repaired: &Repaired, file: &str) -> bool {
    let mut losses = repaired.losses.iter();
    losses.any(|loss| loss.file == file) || repaired.gaps.iter().any(|gap| gap.file == file)
}

/// If the log ends too early as segment `file` is empty, the segment is named.
fn assert_named_where_the_log_ends(repaired: &Repaired, file: &str, what: &str) {
    let is_segment = Path::new(file).extension().is_some_and(|it| it == "seg");
    let mut losses = repaired.losses.iter();
    let end = losses.find(|loss| loss.reason.contains("ends too early; all writes"));
    if let Some(end) = end.filter(|_| is_segment) {
        assert_eq!(end.file, file, "{what}");
    }
}

#[test]
fn sound_databases_are_copied_whole() {
    for kind in KINDS {
        let made = Made::new(kind);
        for (name, files) in &made.states {
            let (repaired, found) = made.repair(files, Resurrection::Impossible).unwrap();
            assert_eq!(
                (&repaired.losses[..], &repaired.gaps[..]),
                (&[][..], &[][..])
            );
            assert!(found == made.model.now, "{name}");
        }
    }
}

#[test]
fn any_file_may_be_lost() {
    for kind in KINDS {
        let made = Made::new(kind);
        for (name, files) in &made.states {
            for file in files.keys().map(String::as_str) {
                let what = format!("{name} without {file}, {kind:?}");
                let (accepted, repaired) = made.check(&without(files, file), &what);
                let is_all = repaired.entries == made.model.now.len() as u64;
                // What is there still says all.
                let is_harmless = ["LOCK", "CURRENT", "JOURNAL", "WAYSTATION"].contains(&file)
                    || (file == "journal.ring" && *name == "closed");
                if is_harmless {
                    let how = (accepted, is_all);
                    assert_eq!(
                        how,
                        (Resurrection::Impossible, true),
                        "{what}: {repaired:?}"
                    );
                }
                let is_likely = ["GRAVES", "DEVICES"].contains(&file) || is_spill_file(file);
                assert_eq!(accepted == Resurrection::Likely, is_likely, "{what}");
                if is_likely || file.contains("MANIFEST") {
                    assert!(repaired.entries >= made.model.now.len() as u64, "{what}");
                }
                // A table of no concern any more may be there.
                if is_likely || file.contains("MANIFEST") || (is_table(file) && !is_all) {
                    assert!(is_named(&repaired, file), "{what}: {repaired:?}");
                }
                if file == "journal.ring" && *name == "killed" {
                    assert_eq!(accepted, Resurrection::Possible);
                }
            }
        }
    }
}

#[test]
fn any_file_may_be_damaged() {
    for kind in KINDS {
        let made = Made::new(kind);
        for (name, files) in &made.states {
            for (file, bytes) in files.iter().filter(|(_, bytes)| !bytes.is_empty()) {
                let length = bytes.len();
                for at in [9.min(length - 1), length / 3, length - 60.min(length)] {
                    let what = format!("{name}, {file} at {at}, {kind:?}");
                    made.check(&damaged(files, file, |bytes| bytes[at] ^= 0x40), &what);
                }
                for part in 1..5 {
                    let what = format!("{name}, {part} fifths of {file}, {kind:?}");
                    let cut = |bytes: &mut Vec<u8>| bytes.truncate(length * part / 5);
                    made.check(&damaged(files, file, cut), &what);
                }
                // A ring of zeros is no damage: so it lies on the storage after a power cut, if it was never synced.
                if file != "journal.ring" {
                    let what = format!("{name}, zeros in {file}, {kind:?}");
                    let zeroed = damaged(files, file, |bytes| bytes.fill(0));
                    let (_, repaired) = made.check(&zeroed, &what);
                    assert_named_where_the_log_ends(&repaired, file, &what);
                }
            }
        }
    }
}

#[test]
fn several_files_may_be_lost_together() {
    let mut random = Random(7);
    for kind in KINDS {
        let made = Made::new(kind);
        for (name, files) in &made.states {
            for _ in 0..25 {
                let mut some = files.clone();
                some.retain(|_, _| !random.one_in(4));
                let kept = some.keys().collect::<Vec<_>>();
                let what = format!("{name}, {kept:?} alone, {kind:?}");
                let (_, found) = made.repair(&some, Resurrection::Likely).expect(&what);
                for (key, value) in &found {
                    let ever = made.model.ever.get(key);
                    assert!(ever.is_some_and(|ever| ever.contains(value)), "{what}");
                }
            }
        }
    }
}

#[test]
fn what_is_no_database_is_not_repaired() {
    let root = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = OsStorage::new();
    let target = root.path().join("target");
    let refused = |dir: &Path| {
        let accepted = Resurrection::Likely;
        let options = Options::default();
        let refused = repair(&storage, dir, &target, &options, accepted, &mut |_| ());
        assert!(!target.exists());
        refused.unwrap_err().to_string()
    };
    let dir = root.path().join("db");
    assert!(refused(&dir).contains("No such file"));
    fs::create_dir(&dir).unwrap();
    assert!(refused(&dir).contains("nothing to repair"));
    fs::write(dir.join("LOCK"), []).unwrap();
    fs::write(dir.join("notes.txt"), b"mine").unwrap();
    assert!(refused(&dir).contains("nothing to repair"));
    assert_eq!(files_of(&*storage, &dir).len(), 2);
}

#[test]
fn a_lost_device_table_is_missed() {
    let made = Made::new(Kind::WithDevices);
    for (_, files) in &made.states {
        let machine: Arc<dyn Storage> = machine(&without(files, "DEVICES"));
        for has_devices in [false, true] {
            let refused = Db::open_with(Arc::clone(&machine), "/db", options(has_devices));
            let refused = refused.map(drop).unwrap_err().to_string();
            assert!(refused.contains("DEVICES"), "{refused}");
        }
        let inspection = Inspection::open(machine, "/db").unwrap();
        let problems = inspection.check(&mut |_| ()).unwrap().problems;
        let is_named = problems.iter().any(|it| it.file == "DEVICES");
        assert!(is_named, "{problems:?}");
    }
}

#[test]
fn an_owned_database_is_not_repaired() {
    let machine: Arc<dyn Storage> = SimStorage::new(1);
    let (dir, target) = (Path::new("/db"), Path::new("/new"));
    let _db = Db::open_with(Arc::clone(&machine), dir, options(false)).unwrap();
    let accepted = Resurrection::Likely;
    let refused = repair(
        &machine,
        dir,
        target,
        &options(false),
        accepted,
        &mut |_| (),
    );
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
}

#[test]
fn a_plain_leveldb_directory_is_repaired() {
    let made = Made::new(Kind::Plain);
    let machine: Arc<dyn Storage> = machine(&made.states[1].1);
    let db = Db::open_with(Arc::clone(&machine), "/db", options(false)).unwrap();
    let plain = Path::new("/plain");
    db.export_leveldb(plain, Compression::Snappy, &mut |_| ())
        .unwrap();
    db.close().unwrap();
    let files = files_of(&*machine, plain);
    let (_, found) = made.repair(&files, Resurrection::Impossible).unwrap();
    assert!(found == made.model.now);
    for part in ["MANIFEST", "CURRENT"] {
        let mut files = files.clone();
        files.retain(|name, _| !name.contains(part));
        let (_, found) = made.repair(&files, Resurrection::Possible).unwrap();
        assert!(found == made.model.now, "without {part}");
    }
}

#[test]
fn a_repair_in_place_leaves_a_database_at_its_path() {
    let made = Made::new(Kind::WithDevices);
    let machine: Arc<dyn Storage> = machine(&without(made.killed(), "CURRENT"));
    let dir = Path::new("/db");
    let mend = |accepted| repair_in_place(&machine, dir, &made.options(), accepted, &mut |_| ());
    let mended = mend(Resurrection::Impossible).unwrap().unwrap();
    assert_eq!(mended.kept, Path::new("/db.before-repair"));
    let mut kept = files_of(&*machine, &mended.kept);
    kept.remove("LOCK");
    assert!(kept == without(&without(made.killed(), "CURRENT"), "LOCK"));
    assert!(content_at(&machine, dir) == made.model.now);
    // Now there is nothing to do.
    let again = |accepted| repair_in_place(&machine, dir, &options(true), accepted, &mut |_| ());
    assert!(again(Resurrection::Impossible).unwrap().is_none());

    machine.remove(&dir.join("DEVICES")).unwrap();
    let damaged = files_of(&*machine, dir);
    let refused = mend(Resurrection::Possible).unwrap_err();
    assert!(refused.to_string().contains("DEVICES"), "{refused}");
    assert!(files_of(&*machine, dir) == damaged);
    let mended = mend(Resurrection::Likely).unwrap().unwrap();
    assert_eq!(mended.kept, Path::new("/db.before-repair-2"));
    assert!(content_at(&machine, dir) == made.model.now);
}

#[test]
fn on_real_storage_too() {
    let made = Made::new(Kind::WithDevices);
    let root = tempfile::tempdir().unwrap();
    let (dir, copy) = (root.path().join("db"), root.path().join("copy"));
    fs::create_dir_all(&dir).unwrap();
    for (name, bytes) in made.killed() {
        fs::write(dir.join(name), bytes).unwrap();
    }
    fs::create_dir(&copy).unwrap();
    copy_files(&dir, &copy);
    fs::remove_file(dir.join("WAYSTATION")).unwrap();
    fs::remove_file(copy.join("CURRENT")).unwrap();
    let storage: Arc<dyn Storage> = OsStorage::new();
    let none = Resurrection::Impossible;
    let mended = repair_in_place(&storage, &dir, &made.options(), none, &mut |_| ()).unwrap();
    assert!(mended.unwrap().kept.join("CURRENT").exists());
    let target = root.path().join("new");
    repair(&storage, &copy, &target, &made.options(), none, &mut |_| ()).unwrap();
    for found in [dir, target].map(|dir| content_at(&storage, &dir)) {
        assert!(found == made.model.now);
    }
}
