//! Backups of keys with a time to live: each restores to its moment, and what had expired by then stays gone.

use super::{Content, content, options, quiet};
use crate::backup::Backups;
use crate::storage::sim::Crash;
use crate::storage::{SimStorage, Storage};
use crate::{Db, Options, PutOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const YEAR: Duration = Duration::from_secs(365 * 86_400);
const BACKUPS: &str = "/backups";

fn open(machine: &Arc<SimStorage>, path: &str, options: Options) -> Db {
    Db::open_with(Arc::clone(machine) as Arc<dyn Storage>, path, options).unwrap()
}

fn restore(machine: &Arc<SimStorage>, number: u64, target: &str) {
    let storage = Arc::clone(machine) as Arc<dyn Storage>;
    Backups::open(storage, BACKUPS)
        .unwrap()
        .restore(Some(number), Path::new(target), &mut quiet())
        .unwrap();
}

/// Keys that live for one to four years, over older values in tables, and beside them all kinds of graves.
fn fill(db: &Db) {
    for number in 0..300_u32 {
        db.put(format!("key{number:03}").as_bytes(), &[1; 300])
            .unwrap();
    }
    db.flush().unwrap();
    for number in 0..240_u32 {
        let lifetime = YEAR * (1 + number % 4);
        db.put_with(
            format!("key{number:03}").as_bytes(),
            &[2; 300],
            PutOptions::expiring(lifetime),
        )
        .unwrap();
    }
    db.delete(b"key241").unwrap();
    db.delete_range(b"key250", Some(b"key260")).unwrap();
    // Put again, for ever.
    db.put(b"key000", b"again").unwrap();
}

/// What is left of [`fill`] when so many whole years have passed.
fn expected(years: u32) -> Content {
    let mut content: Content = (0..300_u32)
        .filter(|number| *number >= 240 || number % 4 + 1 > years)
        .filter(|number| *number != 241 && !(250..260).contains(number))
        .map(|number| {
            let value = if number < 240 { 2 } else { 1 };
            (format!("key{number:03}").into_bytes(), vec![value; 300])
        })
        .collect();
    content.insert(b"key000".to_vec(), b"again".to_vec());
    content
}

#[test]
fn keys_that_expire_are_restored_with_what_is_left_of_their_time() {
    for has_devices in [false, true] {
        let machine = SimStorage::new(1);
        let db = open(&machine, "/db", options(has_devices));
        fill(&db);
        machine.sleep(YEAR / 2);
        for number in 1..=3 {
            assert!(content(&db) == expected(number - 1));
            let made = db.backup(BACKUPS, &mut quiet()).unwrap();
            assert_eq!(made.backup.number, u64::from(number));
            machine.sleep(YEAR);
        }
        db.close().unwrap();
        for number in 1..=3_u32 {
            // The machine's clock goes on; a backup knows when each key ends, not how long it has yet.
            let target = format!("/restored{number}");
            restore(&machine, u64::from(number), &target);
            let db = open(&machine, &target, options(has_devices));
            assert!(content(&db) == expected(3), "{number}, {has_devices}");
            assert_eq!(db.check().unwrap().problems, []);
            machine.sleep(YEAR);
            assert!(content(&db) == expected(4), "{number}, {has_devices}");
            db.close().unwrap();
            machine.step_wall_clock(-365 * 86_400);
        }
    }
}

#[test]
fn a_backup_never_brings_back_what_had_expired_when_it_was_made() {
    for has_devices in [false, true] {
        for (restarts, holds_snapshot) in [(false, false), (true, false), (false, true)] {
            let machine = SimStorage::new(2);
            let mut db = open(&machine, "/db", options(has_devices));
            fill(&db);
            let snapshot = holds_snapshot.then(|| db.snapshot());
            machine.sleep(2 * YEAR + YEAR / 2);
            if restarts {
                db.close().unwrap();
                db = open(&machine, "/db", options(has_devices));
            }
            // A reader was there, so it is known to be gone.
            assert!(content(&db) == expected(2));
            db.backup(BACKUPS, &mut quiet()).unwrap();
            drop(snapshot);
            db.close().unwrap();
            // A machine whose clock stands before everything.
            machine.step_wall_clock(-10 * 365 * 86_400);
            restore(&machine, 1, "/restored");
            let db = open(&machine, "/restored", options(has_devices));
            assert!(content(&db) == expected(2), "{has_devices}, {restarts}");
            machine.sleep(YEAR);
            assert!(content(&db) == expected(3), "{has_devices}, {restarts}");
        }
    }
}

#[test]
fn power_cuts_under_backups_of_keys_that_expire() {
    for seed in 0..12 {
        let machine = SimStorage::new(seed);
        let db = open(&machine, "/db", options(seed % 2 == 0));
        fill(&db);
        db.sync().unwrap();
        machine.sleep(YEAR / 2);
        db.backup(BACKUPS, &mut quiet()).unwrap();
        machine.sleep(YEAR);
        let left = std::cell::Cell::new(1 + seed);
        let made = db.backup(BACKUPS, &mut |_| {
            left.set(left.get().wrapping_sub(1));
            if left.get() == 0 {
                machine.power_off();
            }
        });
        machine.power_off();
        let machine = machine.crash(seed, Crash::PowerCut);
        drop((made, db));
        restore(&machine, 1, "/restored");
        for path in ["/restored", "/db"] {
            let db = open(&machine, path, options(seed % 2 == 0));
            assert!(content(&db) == expected(1), "seed {seed}: {path}");
            machine.sleep(YEAR);
            assert!(content(&db) == expected(2), "seed {seed}: {path}");
            db.close().unwrap();
            machine.step_wall_clock(-365 * 86_400);
        }
    }
}
