//! Power cuts around checkpoints, exports, backups and restores: what was made is whole, durable from the return on; and
//! what was cut short is no database.

use crate::support::{Content, content, options_with_resting_devices};
use std::path::Path;
use std::sync::Arc;
use waystation::backup::Backups;
use waystation::inspect::Inspection;
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{Compression, Db, Error, Options};

fn options(has_devices: bool) -> Options {
    let options = options_with_resting_devices();
    Options {
        devices: options.devices.clone().filter(|_| has_devices),
        ..options
    }
}

/// A database at `/db` with tables, graves and an end that is in no table.
fn make(storage: &Arc<dyn Storage>, has_devices: bool) -> (Db, Content) {
    let db = Db::open_with(Arc::clone(storage), "/db", options(has_devices)).unwrap();
    let mut content = Content::new();
    let key = |number: u32| format!("car{}:{number:04}", number % 4).into_bytes();
    for number in 0..600_u32 {
        let value = vec![number as u8; 100];
        db.put(&key(number), &value).unwrap();
        content.insert(key(number), value);
        if number == 300 {
            db.flush().unwrap();
        }
    }
    for number in 100..200 {
        db.delete(&key(number)).unwrap();
        content.remove(&key(number));
    }
    if has_devices {
        db.devices().settle(b"car1").unwrap();
        db.devices().depart(b"car2").unwrap();
        content.retain(|key, _| !key.starts_with(b"car2:"));
    }
    (db, content)
}

/// What is in the database at `path`; `None` if there is none.
fn content_at(storage: Arc<dyn Storage>, path: &str, options: Options) -> Option<Content> {
    let options = Options {
        create_if_missing: false,
        ..options
    };
    match Db::open_with(Arc::clone(&storage), path, options) {
        Ok(db) => {
            let found = content(&db);
            db.close().unwrap();
            let checked = Inspection::open(storage, path).unwrap().check(&mut |_| ());
            assert_eq!(checked.unwrap().problems, []);
            Some(found)
        }
        Err(Error::Incompatible { .. }) => None,
        // The name of the directory may have come, and nothing in it.
        Err(error) => {
            let has_current = storage.list(Path::new(path)).unwrap();
            let has_current = has_current.iter().any(|entry| entry.name == "CURRENT");
            assert!(!has_current, "{path} is half a database: {error}");
            None
        }
    }
}

#[test]
fn what_was_made_survives() {
    for seed in 0..6 {
        let has_devices = seed % 2 == 1;
        let machine = SimStorage::new(seed);
        let storage: Arc<dyn Storage> = machine.clone();
        let (db, expected) = make(&storage, has_devices);
        db.checkpoint("/copy").unwrap();
        let plain = Path::new("/plain");
        db.export_leveldb(plain, Compression::None, &mut |_| ())
            .unwrap();
        db.backup("/backups", &mut |_| ()).unwrap();
        let backups = Backups::open(Arc::clone(&storage), "/backups").unwrap();
        backups
            .restore(None, Path::new("/restored"), &mut |_| ())
            .unwrap();
        for cut in 0..8 {
            let left: Arc<dyn Storage> = machine.crash(cut, Crash::PowerCut);
            for (path, has_devices) in [
                ("/copy", has_devices),
                ("/restored", has_devices),
                ("/plain", false),
            ] {
                let found = content_at(Arc::clone(&left), path, options(has_devices));
                assert!(
                    found.as_ref() == Some(&expected),
                    "{path}, seed {seed}, cut {cut}"
                );
            }
            let backups = Backups::open(left, "/backups").unwrap();
            assert_eq!(backups.verify(None, &mut |_| ()).unwrap().problems, []);
            assert_eq!(backups.list().unwrap().backups.len(), 1);
        }
    }
}

/// A copy that a failing call ends, and the power goes: what `make_copy` makes of a database at `path`.
fn cut_short(
    has_devices: bool,
    path: &str,
    has_devices_then: bool,
    make_copy: &dyn Fn(&Db) -> Result<(), Error>,
) {
    let operations = [
        Operation::Open,
        Operation::Write,
        Operation::Sync,
        Operation::Link,
        Operation::Rename,
        Operation::CreateDir,
        Operation::SyncDir,
        Operation::MapRing,
    ];
    for (seed, operation) in (0..).zip(operations) {
        for spared in [0, 1, 2, 3, 5, 8, 13, 21, 34] {
            let machine = SimStorage::new(seed);
            let rules = FaultRules::new();
            let storage: Arc<dyn Storage> = machine.with_faults(&rules);
            let (db, expected) = make(&storage, has_devices);
            let fault = Fault::Fail(Refusal::InputOutput);
            let rule = rules.add(Rule::new(operation, fault).on(path).after(spared));
            let copied = make_copy(&db);
            let is_caught = rules.count(rule).caught > 0;
            for cut in 0..3 {
                let left: Arc<dyn Storage> = machine.crash(cut, Crash::PowerCut);
                let what = format!("{path}, {operation:?} after {spared}, cut {cut}");
                let found = content_at(left, path, options(has_devices_then));
                let is_whole = found.as_ref() == Some(&expected);
                assert!(is_whole || (found.is_none() && copied.is_err()), "{what}");
            }
            drop(db);
            if !is_caught {
                break;
            }
        }
    }
}

#[test]
fn a_checkpoint_is_whole_or_no_database() {
    for has_devices in [false, true] {
        cut_short(has_devices, "/copy", has_devices, &|db| {
            db.checkpoint("/copy")
        });
    }
}

#[test]
fn an_export_is_whole_or_no_database() {
    cut_short(true, "/plain", false, &|db| {
        let exported = db.export_leveldb(Path::new("/plain"), Compression::None, &mut |_| ());
        exported.map(drop)
    });
}
