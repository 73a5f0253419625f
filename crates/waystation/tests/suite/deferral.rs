//! Writes that need not survive a power cut reach storage once, with their table: the log passes over them.

use crate::support::{Content, content, open_simulated};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use waystation::inspect::Inspection;
use waystation::repair::{Resurrection, repair};
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use waystation::storage::sim::Crash;
use waystation::storage::{Area, OsStorage, SimStorage, Storage};
use waystation::{Db, DeviceOptions, Extractor, Options};

fn options() -> Options {
    Options {
        memtable_bytes: 1 << 20,
        ring_bytes: 4 << 20,
        log_segment_bytes: 1 << 20,
        table_bytes: 1 << 20,
        ..Options::default()
    }
}

fn written_to_log(storage: &dyn Storage) -> u64 {
    let meters: BTreeMap<Area, _> = storage.meters().into_iter().collect();
    meters[&Area::Journal].written_bytes
}

/// Writes generation after generation of about half a memtable, each over some keys of the one before.
fn write(db: &Db, generations: u64, deletes: bool, mut after: impl FnMut(u64)) -> Content {
    let mut written = Content::new();
    for generation in 0..generations {
        for number in 0..500 {
            let key = format!("{:06}", (generation * 300 + number) % 100_000).into_bytes();
            if deletes && number % 7 == generation % 7 {
                db.delete(&key).unwrap();
                written.remove(&key);
            } else {
                let value = vec![(generation + number) as u8; 900 + number as usize % 200];
                db.put(&key, &value).unwrap();
                written.insert(key, value);
            }
        }
        after(generation);
    }
    written
}

#[test]
fn what_tables_hold_is_not_written_to_the_log() {
    let with_devices = Options {
        devices: Some(DeviceOptions::new(Extractor::until(b':'))),
        ..options()
    };
    let limited = Options {
        disk_bytes_max: Some(1 << 30),
        ..options()
    };
    let short_ring = Options {
        ring_bytes: 1 << 20,
        ..options()
    };
    // On a machine that is busy records may wait for so long that they are written.
    assert!((0..5).any(|_| share_in_log(options()) < 0.3));
    for options in [with_devices, limited, short_ring] {
        let share = share_in_log(options);
        assert!(share > 0.8, "{share} of the bytes");
    }
}

/// Writes some megabytes and flushes them again and again. Returns which part of them the log's files took.
fn share_in_log(options: Options) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let storage = OsStorage::new();
    let db = Db::open_with(storage.clone(), dir.path(), options).unwrap();
    let before = written_to_log(&*storage);
    let mut bytes = 0;
    write(&db, 60, false, |_| {
        db.flush().unwrap();
        bytes += 500 * 1_000;
    });
    (written_to_log(&*storage) - before) as f64 / f64::from(bytes)
}

/// The file of graves goes ahead of the tables of its flush, and is in force if a power cut takes these.
#[test]
fn no_deletion_outlives_a_write_before_it() {
    for seed in 0..20 {
        let machine = SimStorage::new(seed);
        let rules = FaultRules::new();
        let storage: Arc<dyn Storage> = machine.with_faults(&rules);
        let db = Db::open_with(storage, "/db", options()).unwrap();
        for key in [&b"first"[..], b"other"] {
            db.put(key, b"").unwrap();
        }
        db.flush().unwrap();
        // There is a file of graves, which go on being needed.
        let held = db.snapshot();
        db.delete(b"other").unwrap();
        db.flush().unwrap();
        let between = || (0..100_u8).map(|number| [b'k', number]);
        for key in between() {
            db.put(&key, &[7; 1000]).unwrap();
        }
        db.delete(b"first").unwrap();
        let fault = Fault::Fail(Refusal::InputOutput);
        rules.add(Rule::new(Operation::Write, fault).on("MANIFEST"));
        assert!(db.flush().is_err());
        let machine = machine.crash(seed, Crash::PowerCut);
        drop(held);
        let again = open_simulated(&machine, options()).unwrap();
        let has = |key: &[u8]| again.get(key).unwrap().is_some();
        let is_there = has(b"first");
        assert!(is_there || between().all(|key| has(&key)), "seed {seed}");
        // Nor does it take effect once as much was written again.
        for key in between() {
            again.put(&key, b"").unwrap();
        }
        again.put(b"last", b"").unwrap();
        assert_eq!(has(b"first"), is_there, "seed {seed}");
    }
}

/// The files of a directory.
type Image = BTreeMap<OsString, Vec<u8>>;

/// The files of `dir` at one moment, at which nothing in the background changes them.
fn image(dir: &Path) -> Image {
    let files = || -> Image {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
        let content = |entry: &fs::DirEntry| fs::read(entry.path()).unwrap_or_default();
        entries
            .map(|entry| (entry.file_name(), content(&entry)))
            .collect()
    };
    loop {
        let seen = files();
        if files() == seen {
            return seen;
        }
    }
}

/// Makes `dir` of the files of `image` whose names do not begin with `lost`.
fn restore(image: &Image, dir: &Path, lost: Option<&str>) {
    fs::create_dir(dir).unwrap();
    for (name, bytes) in image {
        let is_lost = lost.is_some_and(|lost| name.to_str().unwrap().starts_with(lost));
        if !is_lost {
            fs::write(dir.join(name), bytes).unwrap();
        }
    }
}

#[test]
fn a_database_that_is_killed_is_sound_and_can_be_repaired() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    let db = Db::open(&dir, options()).unwrap();
    let storage: Arc<dyn Storage> = OsStorage::new();
    // Each time all keys of the time before, and more.
    for (flushed_at, cut) in [(0, 5), (3, 11), (1, 30), (2, 31)] {
        let written = write(&db, cut, true, |generation| {
            if generation % 4 == flushed_at {
                db.flush().unwrap();
            }
        });
        assert_eq!(db.check().unwrap().problems, []);
        // No table is half written.
        db.wait_idle().unwrap();
        let left = image(&dir);
        for lost in [None, Some("JOURNAL"), Some("MANIFEST")] {
            let what = format!("{cut} without {lost:?}");
            let (killed, target) = (root.path().join(&what), root.path().join("saved"));
            restore(&left, &killed, lost);
            if lost.is_none() {
                let inspection = Inspection::open(Arc::clone(&storage), &killed).unwrap();
                assert_eq!(inspection.check(&mut |_| ()).unwrap().problems, []);
            }
            let accepted = match lost {
                None => Resurrection::Impossible,
                Some(_) => Resurrection::Possible,
            };
            let saved = repair(
                &storage,
                &killed,
                &target,
                &options(),
                accepted,
                &mut |_| (),
            );
            let losses = saved.unwrap().losses;
            assert_eq!(losses.is_empty(), lost.is_none(), "{what}: {losses:?}");
            let is_of_lost = |file: &str| lost.is_some_and(|lost| file.starts_with(lost));
            // Without MANIFEST nothing tells which segments are needed.
            assert!(
                lost == Some("MANIFEST") || losses.iter().all(|it| is_of_lost(&it.file)),
                "{what}: {losses:?}"
            );
            let saved = Db::open(&target, options()).unwrap();
            let found = content(&saved);
            // Without MANIFEST graves are lost, and deleted keys come back.
            let is_there = |(key, value): (&Vec<u8>, &Vec<u8>)| found.get(key) == Some(value);
            assert!(written.iter().all(is_there), "{what}");
            assert!(
                lost == Some("MANIFEST") || found.len() == written.len(),
                "{what}"
            );
            drop(saved);
            fs::remove_dir_all(&target).unwrap();
        }
        let killed = root.path().join(format!("{cut}"));
        restore(&left, &killed, None);
        let again = Db::open(&killed, options()).unwrap();
        assert!(content(&again) == written, "{cut}");
    }
}
