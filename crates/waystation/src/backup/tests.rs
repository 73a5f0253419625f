//! Backups made of real databases, restored and compared; damage; shared files; storage that fails and crashes.

mod expiry;

use super::{Backups, Manifest, Progress};
use crate::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use crate::storage::sim::Crash;
use crate::storage::{OsStorage, SimStorage, Storage};
use crate::{Db, DeviceError, DeviceOptions, Error, Extractor, IterOptions, Options};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use waystation_format::checksum;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(has_devices: bool) -> Options {
    Options {
        memtable_bytes: 256 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        table_bytes: 128 << 10,
        cache_bytes: 1 << 20,
        devices: has_devices.then(|| DeviceOptions::new(Extractor::until(b':'))),
        ..Options::default()
    }
}

fn content(db: &Db) -> Content {
    let mut cursor = db.iter(IterOptions::default()).unwrap();
    let mut content = Content::new();
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        content.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next().unwrap();
    }
    content
}

/// Some of everything: overwritten, deleted one by one and by range, departed, settled, plain.
fn fill(db: &Db, round: u32) {
    for number in 0..400_u32 {
        let key = format!("car{}:{number:04}", number % 7);
        let value = [&round.to_le_bytes()[..], &[number as u8; 500]].concat();
        db.put(key.as_bytes(), &value).unwrap();
        db.put(format!("plain{number:04}").as_bytes(), &value)
            .unwrap();
    }
    db.delete(b"plain0007").unwrap();
    db.delete_range(b"plain0100", Some(b"plain0150")).unwrap();
    match db.devices().depart(b"car3") {
        Ok(()) | Err(Error::InvalidArgument(_) | Error::Device(DeviceError::Unknown { .. })) => {}
        Err(error) => panic!("{error}"),
    }
    if round % 2 == 1 {
        let _ = db.devices().settle(b"car5");
    }
}

fn quiet() -> impl FnMut(Progress) {
    |_| {}
}

fn backups(dir: &Path) -> Backups {
    Backups::open(OsStorage::new(), dir).unwrap()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir.join("files"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

#[test]
fn each_backup_restores_to_its_moment_and_shares_what_it_can() {
    for has_devices in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let (target, path) = (root.path().join("backups"), root.path().join("db"));
        let db = Db::open(&path, options(has_devices)).unwrap();
        let mut states = Vec::new();
        for round in 0..4 {
            fill(&db, round);
            // Else merges go on while backups are made, and what they write is new.
            db.flush().unwrap();
            db.wait_idle().unwrap();
            let made = db.backup(&target, &mut quiet()).unwrap();
            assert_eq!(made.backup.number, u64::from(round) + 1);
            assert!(made.new_files > 0);
            states.push(content(&db));
        }
        // Nothing was written since: only what describes the moment is new, and it is little.
        let again = db.backup(&target, &mut quiet()).unwrap();
        assert!(again.new_bytes < 64 << 10, "{again:?}");
        assert!(again.backup.bytes > 4 * again.new_bytes, "{again:?}");
        states.push(content(&db));
        db.close().unwrap();

        let backups = backups(&target);
        let listing = backups.list().unwrap();
        assert_eq!((listing.backups.len(), listing.damaged.len()), (5, 0));
        let extractor = listing.backups[0].extractor.as_deref();
        assert_eq!(extractor, has_devices.then_some("until/3a"));
        let verified = backups.verify(None, &mut quiet()).unwrap();
        assert_eq!((verified.backups, verified.problems.len()), (5, 0));
        for (number, state) in (1..).zip(&states) {
            let restored = root.path().join(format!("restored{number}"));
            let mut last = None;
            let info = backups
                .restore(Some(number), &restored, &mut |progress| {
                    last = Some(progress);
                })
                .unwrap();
            assert_eq!(info.number, number);
            let last = last.unwrap();
            assert_eq!(last.done_bytes, last.total_bytes);
            let db = Db::open(&restored, options(has_devices)).unwrap();
            assert!(content(&db) == *state, "backup {number}, {has_devices}");
            assert_eq!(db.check().unwrap().problems, []);
            // It goes on as any database does.
            fill(&db, 9);
            let after = content(&db);
            db.close().unwrap();
            let db = Db::open(&restored, options(has_devices)).unwrap();
            assert!(content(&db) == after);
        }
    }
}

#[test]
fn a_backup_is_a_prefix_of_what_is_written_meanwhile() {
    for has_devices in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("backups");
        let mut settings = options(has_devices);
        if let Some(devices) = &mut settings.devices {
            devices.residency = std::time::Duration::from_millis(30);
        }
        let db = Db::open(root.path().join("db"), settings.clone()).unwrap();
        let write = |number: u32| {
            let key = format!("car{}:{:05}", number / 50 % 40, number % 3000);
            let value = [&number.to_le_bytes()[..], &[7; 400]].concat();
            db.put(key.as_bytes(), &value).unwrap();
            if number.is_multiple_of(64) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            if number % 500 == 499 {
                db.delete_range(b"car1:", Some(b"car2:")).unwrap();
            }
        };
        let stop = std::sync::atomic::AtomicBool::new(false);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let count = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let numbers = (0..).take_while(|_| !stop.load(relaxed));
                numbers.map(write).count()
            });
            for _ in 0..5 {
                std::thread::sleep(std::time::Duration::from_millis(60));
                db.backup(&target, &mut quiet()).unwrap();
            }
            stop.store(true, relaxed);
            writer.join().unwrap()
        });
        db.close().unwrap();
        // What each prefix of the writes leaves, told by its newest write.
        let mut model = Content::new();
        let mut states: Vec<(Vec<u8>, u32)> = Vec::new();
        for info in backups(&target).list().unwrap().backups {
            let restored = root.path().join(format!("restored{}", info.number));
            backups(&target)
                .restore(Some(info.number), &restored, &mut quiet())
                .unwrap();
            let db = Db::open(&restored, settings.clone()).unwrap();
            let state = content(&db);
            let newest = state
                .values()
                .map(|value| u32::from_le_bytes(value[..4].try_into().unwrap()))
                .max();
            states.push((digest(&state), newest.unwrap()));
        }
        let mut expected = Vec::new();
        for number in 0..count as u32 {
            let key = format!("car{}:{:05}", number / 50 % 40, number % 3000).into_bytes();
            let value = [&number.to_le_bytes()[..], &[7; 400]].concat();
            model.insert(key, value);
            let is_wanted = |states: &[(Vec<u8>, u32)]| states.iter().any(|it| it.1 == number);
            if is_wanted(&states) {
                expected.push((digest(&model), number));
            }
            if number % 500 == 499 {
                model.retain(|key, _| key[..] < b"car1:"[..] || key[..] >= b"car2:"[..]);
                if is_wanted(&states) {
                    expected.push((digest(&model), number));
                }
            }
        }
        for state in &states {
            assert!(expected.contains(state), "write {} of {count}", state.1);
        }
    }
}

fn digest(content: &Content) -> Vec<u8> {
    let mut sum = 0;
    for (key, value) in content {
        sum = checksum::extend(checksum::extend(sum, key), value);
    }
    [
        (content.len() as u64).to_le_bytes().to_vec(),
        sum.to_le_bytes().to_vec(),
    ]
    .concat()
}

#[test]
fn damage_is_named_and_never_restored() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("backups");
    let db = Db::open(root.path().join("db"), options(true)).unwrap();
    fill(&db, 1);
    db.backup(&target, &mut quiet()).unwrap();
    db.close().unwrap();
    let backups = backups(&target);
    for path in files(&target) {
        let sound = fs::read(&path).unwrap();
        let mut flipped = sound.clone();
        flipped[sound.len() / 2] ^= 4;
        let cut = &sound[..sound.len() - 1];
        for damaged in [&flipped[..], cut, &[&sound[..], b"x"].concat()] {
            fs::write(&path, damaged).unwrap();
            let verified = backups.verify(None, &mut quiet()).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            assert_eq!(verified.problems.len(), 1, "{name}");
            assert_eq!(verified.problems[0].file, name);
            let restored = root.path().join("restored");
            let refused = backups.restore(None, &restored, &mut quiet());
            assert!(matches!(refused, Err(Error::Corruption { .. })), "{name}");
            // Nothing is left of the attempt that would be in the way of the next.
            assert!(!restored.join("CURRENT").exists());
            assert_eq!(fs::read_dir(&restored).unwrap().count(), 0, "{name}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(
            backups.verify(None, &mut quiet()).unwrap().problems.len(),
            1
        );
        fs::write(&path, sound).unwrap();
    }
    let list = target.join("000001.backup");
    let sound = fs::read(&list).unwrap();
    for at in 0..sound.len() {
        let mut damaged = sound.clone();
        damaged[at] ^= 1;
        fs::write(&list, damaged).unwrap();
        let listing = backups.list();
        let is_told = listing.as_ref().map_or(true, |it| it.damaged.len() == 1);
        assert!(is_told, "byte {at}: {listing:?}");
    }
    // Its needs are unknown, so nothing is removed.
    fs::write(&list, &sound[..20]).unwrap();
    assert!(matches!(backups.prune(1), Err(Error::Corruption { .. })));
    fs::write(&list, &sound).unwrap();
    assert!(backups.prune(1).unwrap().backups.is_empty());
    assert_eq!(backups.verify(None, &mut quiet()).unwrap().problems, []);
}

#[test]
fn damage_in_the_database_does_not_enter() {
    let root = tempfile::tempdir().unwrap();
    let (target, path) = (root.path().join("backups"), root.path().join("db"));
    let db = Db::open(&path, options(false)).unwrap();
    fill(&db, 1);
    db.backup(&target, &mut quiet()).unwrap();
    let before = files(&target);
    let table = path.join(format!("{:06}.ldb", db.tables()[0].number));
    let mut bytes = fs::read(&table).unwrap();
    bytes[100] ^= 1;
    fs::write(&table, bytes).unwrap();
    let error = db.backup(&target, &mut quiet()).unwrap_err();
    assert!(matches!(&error, Error::Corruption { path, .. } if *path == table));
    assert_eq!(files(&target), before);
    assert_eq!(backups(&target).list().unwrap().backups.len(), 1);
}

#[test]
fn pruning_keeps_what_the_rest_needs() {
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("backups");
    let db = Db::open(root.path().join("db"), options(false)).unwrap();
    for round in 0..5 {
        fill(&db, round);
        db.compact_range(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)
            .unwrap();
        db.backup(&target, &mut quiet()).unwrap();
    }
    let backups = backups(&target);
    let before = files(&target).len() as u64;
    let pruned = backups.prune(2).unwrap();
    assert_eq!(pruned.backups, [1, 2, 3]);
    assert!(pruned.files > 0 && pruned.bytes > 0);
    assert_eq!(files(&target).len() as u64, before - pruned.files);
    let verified = backups.verify(None, &mut quiet()).unwrap();
    assert_eq!((verified.backups, verified.problems.len()), (2, 0));
    assert!(matches!(backups.prune(0), Err(Error::InvalidArgument(_))));
    // Numbers go on.
    assert_eq!(db.backup(&target, &mut quiet()).unwrap().backup.number, 6);
}

#[test]
fn what_is_in_the_way_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("db");
    let db = Db::open(&path, options(false)).unwrap();
    db.put(b"a", b"b").unwrap();
    let target = root.path().join("backups");
    let invalid = |result: Result<_, Error>| matches!(result, Err(Error::InvalidArgument(_)));
    assert!(invalid(db.backup(&path, &mut quiet()).map(drop)));
    assert!(invalid(db.backup("", &mut quiet()).map(drop)));
    assert!(Backups::open(OsStorage::new(), root.path()).is_err());
    db.backup(&target, &mut quiet()).unwrap();
    let backups = backups(&target);
    assert!(invalid(
        backups.restore(None, &path, &mut quiet()).map(drop)
    ));
    assert!(invalid(
        backups
            .restore(Some(7), &root.path().join("new"), &mut quiet())
            .map(drop)
    ));
    assert!(invalid(backups.verify(Some(7), &mut quiet()).map(drop)));
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"b"[..]));
}

/// A database and one backup in memory, and the state of it.
fn simulated(seed: u64) -> (Arc<SimStorage>, Db, Content) {
    let machine = SimStorage::new(seed);
    let db = Db::open_with(machine.clone(), "/db", options(true)).unwrap();
    fill(&db, 1);
    db.backup("/backups", &mut quiet()).unwrap();
    let state = content(&db);
    (machine, db, state)
}

#[test]
fn power_cuts_leave_whole_backups_only() {
    for seed in 0..25 {
        let (machine, db, first) = simulated(seed);
        fill(&db, 2);
        let second = content(&db);
        // It stops after so many transfers; the rest of it never happens.
        let left = std::cell::Cell::new(1 + seed);
        let made = db.backup("/backups", &mut |_| {
            left.set(left.get().wrapping_sub(1));
            if left.get() == 0 {
                machine.power_off();
            }
        });
        machine.power_off();
        let machine = machine.crash(seed, Crash::PowerCut);
        drop((made, db));
        let storage: Arc<dyn Storage> = machine;
        let backups = Backups::open(Arc::clone(&storage), "/backups").unwrap();
        let listing = backups.list().unwrap();
        assert!(listing.damaged.is_empty());
        for info in &listing.backups {
            let target = PathBuf::from(format!("/restored{}", info.number));
            backups
                .restore(Some(info.number), &target, &mut quiet())
                .unwrap();
            let db = Db::open_with(Arc::clone(&storage), &target, options(true)).unwrap();
            let expected = [&first, &second][info.number as usize - 1];
            assert!(content(&db) == *expected, "seed {seed}, {}", info.number);
        }
        assert!(!listing.backups.is_empty());
        // And the next one is made as if nothing had been.
        let db = Db::open_with(Arc::clone(&storage), "/db", options(true)).unwrap();
        db.backup("/backups", &mut quiet()).unwrap();
        assert_eq!(backups.verify(None, &mut quiet()).unwrap().problems, []);
    }
}

#[test]
fn failing_storage_leaves_earlier_backups_as_they_were() {
    let rules = FaultRules::new();
    let machine = SimStorage::new(5);
    let storage = machine.with_faults(&rules);
    let db = Db::open_with(storage.clone(), "/db", options(true)).unwrap();
    fill(&db, 1);
    db.backup("/backups", &mut quiet()).unwrap();
    let state = content(&db);
    fill(&db, 2);
    let backups = Backups::open(storage.clone(), "/backups").unwrap();
    let mut failed = 0;
    loop {
        let rule = rules.add(
            Rule::new(Operation::Write, Fault::Fail(Refusal::NoSpace))
                .on("/backups")
                .after(failed),
        );
        let made = db.backup("/backups", &mut quiet());
        rules.remove(rule);
        let Err(error) = made else {
            break;
        };
        assert!(error.is_out_of_space(), "after {failed}");
        failed += 1;
        assert_eq!(backups.list().unwrap().backups.len(), 1);
        assert_eq!(backups.verify(None, &mut quiet()).unwrap().problems, []);
    }
    assert!(failed >= 6, "{failed}");
    let listed = backups.list().unwrap().backups;
    assert_eq!(listed.len(), 2, "in the end there was room");
    backups
        .restore(Some(1), Path::new("/restored"), &mut quiet())
        .unwrap();
    let restored = Db::open_with(storage.clone(), "/restored", options(true)).unwrap();
    assert!(content(&restored) == state);
}

#[test]
fn hostile_lists_write_nowhere_else() {
    let list = |names: &[&str]| Manifest {
        number: 1,
        taken_at: 0,
        last_sequence: 0,
        extractor: String::new(),
        items: names
            .iter()
            .map(|name| super::Item {
                name: (*name).to_owned(),
                bytes: 1,
                checksum: 2,
            })
            .collect(),
    };
    let is_read = |names: &[&str]| Manifest::decode(&list(names).encode()).is_ok();
    assert!(is_read(&["000004.ldb", "MANIFEST-000005"]));
    for bad in [
        "../evil",
        "/etc/passwd",
        "x/000004.ldb",
        "",
        "CURRENT",
        "LOCK",
    ] {
        assert!(!is_read(&[bad, "MANIFEST-000005"]), "{bad}");
    }
    assert!(!is_read(&["000004.ldb"]));
    assert!(!is_read(&["MANIFEST-000005", "MANIFEST-000005"]));
    assert!(!is_read(&["MANIFEST-000005", "MANIFEST-000006"]));
    let whole = list(&["000004.ldb", "MANIFEST-000005"]);
    assert_eq!(Manifest::decode(&whole.encode()), Ok(whole));
}
