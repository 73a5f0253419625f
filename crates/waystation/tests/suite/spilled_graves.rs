//! Graves beyond their memory: they are in files, hide what they hid, and leave when nothing needs them.

use crate::support::{is_spill_file, open_simulated, small_options, spill_files, wait_until};
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use waystation::backup::Backups;
use waystation::inspect::{Inspection, Item, dump};
use waystation::repair::{Resurrection, repair};
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, Error, IterOptions, Options, PutOptions};

const DIR: &str = "/db";
const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn options() -> Options {
    Options {
        graves_bytes: 16 << 10,
        ..small_options()
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:07}").into_bytes()
}

/// `count` keys in tables.
fn filled(machine: &Arc<SimStorage>, options: Options, count: u32) -> Db {
    let db = open_simulated(machine, options).expect("works");
    for number in 0..count {
        db.put(&key(number), &number.to_le_bytes()).expect("works");
    }
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .expect("works");
    db
}

fn count(db: &Db, options: IterOptions) -> u32 {
    let mut cursor = db.iter(options).expect("works");
    let mut entries = 0;
    cursor.seek_to_first().expect("works");
    while cursor.valid() {
        entries += 1;
        cursor.next().expect("works");
    }
    let mut back = 0;
    cursor.seek_to_last().expect("works");
    while cursor.valid() {
        back += 1;
        cursor.prev().expect("works");
    }
    assert_eq!(entries, back);
    entries
}

fn check(machine: &Arc<SimStorage>) -> Vec<String> {
    let storage = Arc::clone(machine) as Arc<dyn Storage>;
    let report = Inspection::open(storage, DIR)
        .expect("works")
        .check(&mut |_| ());
    let problems = report.expect("works").problems;
    problems
        .iter()
        .map(|it| format!("{}: {}", it.file, it.reason))
        .collect()
}

#[test]
fn a_million_graves_under_a_held_snapshot_take_little_memory() {
    const KEYS: u32 = 1_000_000;
    let machine = SimStorage::new(1);
    let options = Options {
        memtable_bytes: 4 << 20,
        table_bytes: 2 << 20,
        graves_bytes: 1 << 20,
        log_segment_bytes: 4 << 20,
        ..options()
    };
    let db = filled(&machine, options.clone(), KEYS);
    let held = db.snapshot();
    for number in 0..KEYS {
        db.delete(&key(number)).unwrap();
    }
    db.flush().unwrap();
    let graves = db.stats().graves;
    assert_eq!(graves.points, u64::from(KEYS));
    assert!(graves.spilled >= u64::from(KEYS) * 9 / 10, "{graves:?}");
    // In memory: at most what may be, the two memtables' graves, and under three bytes for each in files.
    let filters = 3 * u64::from(KEYS);
    assert!(
        graves.memory_bytes < (1 << 20) + (8 << 20) + filters,
        "{graves:?}"
    );
    // In files: under 48 bytes a grave beyond the ten of its key, by far.
    assert!(graves.spilled_bytes < 24 * graves.spilled, "{graves:?}");
    assert!(graves.pinned_bytes > 0, "{graves:?}");
    println!("{graves:?}");
    for number in (0..KEYS).step_by(997) {
        assert_eq!(db.get(&key(number)).unwrap(), None);
        let then = db.get_at(&key(number), &held).unwrap();
        assert_eq!(then.as_deref(), Some(&number.to_le_bytes()[..]));
    }
    assert_eq!(count(&db, IterOptions::default()), 0);
    // Some live again, in the midst of spilled graves.
    for number in (0..KEYS).step_by(1_000) {
        db.put(&key(number), b"again").unwrap();
    }
    assert_eq!(count(&db, IterOptions::default()), KEYS / 1_000);
    drop(held);
    wait_until("nothing needs the graves any more", || {
        db.put(b"writes", b"go on").unwrap();
        db.stats().graves.points == 0 && spill_files(&*machine, DIR).is_empty()
    });
    assert_eq!(count(&db, IterOptions::prefix("key")), KEYS / 1_000);
    db.close().unwrap();
}

/// Half of 4,000 keys, deleted and spilled to files, as a snapshot is held.
fn half_deleted(machine: &Arc<SimStorage>) -> (Db, waystation::Snapshot) {
    let db = filled(machine, options(), 4_000);
    let held = db.snapshot();
    for part in 0..4 {
        for number in (0..1_000).filter(|it| it % 2 == 0) {
            db.delete(&key(part * 1_000 + number)).expect("works");
        }
        db.flush().expect("works");
    }
    assert!(db.stats().graves.spilled > 1_000);
    assert!(!spill_files(&**machine, DIR).is_empty());
    (db, held)
}

fn assert_half(db: &Db) {
    assert_eq!(count(db, IterOptions::default()), 2_000);
    for number in 0..4_000 {
        assert_eq!(
            db.get(&key(number)).expect("works").is_some(),
            number % 2 == 1,
            "{number}"
        );
    }
}

#[test]
fn what_is_spilled_is_found_after_a_crash_and_in_every_copy() {
    let machine = SimStorage::new(2);
    let (db, held) = half_deleted(&machine);
    assert_half(&db);
    for number in 0..4_000 {
        assert!(
            db.get_at(&key(number), &held).unwrap().is_some(),
            "{number}"
        );
    }
    db.checkpoint("/checkpoint").unwrap();
    db.backup("/backups", &mut |_| ()).unwrap();
    assert_eq!(check(&machine), Vec::<String>::new());
    assert!(spill_files(&*machine, "/checkpoint").len() == spill_files(&*machine, DIR).len());
    let copy = Db::open_with(
        Arc::clone(&machine) as Arc<dyn Storage>,
        "/checkpoint",
        options(),
    );
    let copy = copy.unwrap();
    assert_half(&copy);
    copy.close().unwrap();
    let storage = Arc::clone(&machine) as Arc<dyn Storage>;
    let backups = Backups::open(Arc::clone(&storage), "/backups").unwrap();
    backups
        .restore(None, Path::new("/restored"), &mut |_| ())
        .unwrap();
    let restored = Db::open_with(storage, "/restored", options()).unwrap();
    assert_half(&restored);
    restored.close().unwrap();
    let crashed = machine.crash(3, Crash::Process);
    drop((db, held));
    let db = open_simulated(&crashed, options()).unwrap();
    assert_half(&db);
    db.close().unwrap();
}

#[test]
fn spill_files_are_maintained_and_leave_with_the_last_that_needs_them() {
    let machine = SimStorage::new(4);
    let (db, held) = half_deleted(&machine);
    // One by one, so that spill files are many.
    for round in 0..20 {
        for number in (round..2_000).step_by(20) {
            db.put(&key(number), b"again").unwrap();
            db.delete(&key(number)).unwrap();
        }
        db.flush().unwrap();
    }
    wait_until("spill files are merged", || {
        db.put(b"writes", b"go on").unwrap();
        spill_files(&*machine, DIR).len() <= 5
    });
    assert_eq!(check(&machine), Vec::<String>::new());
    drop(held);
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .unwrap();
    wait_until("the graves are retired", || {
        db.put(b"writes", b"go on").unwrap();
        let graves = db.stats().graves;
        (graves.points, graves.spilled_bytes) == (0, 0)
    });
    wait_until("the files are gone", || {
        spill_files(&*machine, DIR).is_empty()
    });
    assert_eq!(count(&db, IterOptions::prefix("key")), 1_000);
    db.close().unwrap();
    assert!(
        !machine
            .list(Path::new(DIR))
            .unwrap()
            .iter()
            .any(|it| it.name == "GRAVES")
    );
}

/// The last grave of a spill file is retired while the database is at rest, and nobody writes afterwards.
#[test]
fn spill_files_leave_in_a_rest_as_well() {
    let machine = SimStorage::new(10);
    let options = Options {
        deletion_deadline: None,
        ..options()
    };
    let db = filled(&machine, options, 1_000);
    let held = db.snapshot();
    for number in 0..1_000 {
        db.delete(&key(number)).unwrap();
    }
    db.flush().unwrap();
    assert!(!spill_files(&*machine, DIR).is_empty());
    std::thread::sleep(Duration::from_secs(1));
    drop(held);
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .unwrap();
    wait_until("nothing is left of them", || {
        db.stats().graves.points == 0 && spill_files(&*machine, DIR).is_empty()
    });
}

#[test]
fn dates_are_not_kept_in_memory_nor_written_again_and_again() {
    const KEYS: u32 = 51_000;
    const LATE: u32 = KEYS / 3;
    let machine = SimStorage::new(5);
    let options = Options {
        graves_bytes: 256 << 10,
        ..options()
    };
    let db = open_simulated(&machine, options.clone()).unwrap();
    db.put(&key(8), b"hidden by what expires").unwrap();
    for number in 0..KEYS {
        // Two of three end sooner, in the midst of the others.
        let years = 1 + u32::from(number % 3 == 0);
        db.put_with(
            &key(number),
            &number.to_le_bytes(),
            PutOptions::expiring(years * YEAR),
        )
        .unwrap();
    }
    db.flush().unwrap();
    let graves = db.stats().graves;
    assert_eq!(graves.expiring, u64::from(KEYS));
    assert!(graves.spilled > u64::from(KEYS) * 8 / 10, "{graves:?}");
    assert!(
        graves.memory_bytes < (256 << 10) + (512 << 10),
        "{graves:?}"
    );
    let content = machine.list(Path::new(DIR)).unwrap();
    assert!(content.iter().any(|it| it.name == "GRAVES"));
    let held = db.snapshot();
    machine.sleep(YEAR + YEAR / 2);
    let now = count(&db, IterOptions::default());
    assert_eq!(now, LATE);
    assert_eq!(db.get(&key(8)).unwrap(), None);
    assert!(db.get(&key(9)).unwrap().is_some());
    let then = IterOptions {
        snapshot: Some(held),
        ..IterOptions::default()
    };
    assert_eq!(count(&db, then), KEYS);
    let db = {
        db.close().unwrap();
        open_simulated(&machine, options).unwrap()
    };
    assert_eq!(count(&db, IterOptions::default()), LATE);
    assert_eq!(check(&machine), Vec::<String>::new());
    wait_until(
        "what has expired is parted from the rest, and buried",
        || {
            db.put(b"writes", b"go on").unwrap();
            db.stats().graves.expiring <= u64::from(LATE)
        },
    );
    assert_eq!(count(&db, IterOptions::prefix("key")), LATE);
    machine.sleep(YEAR);
    assert_eq!(count(&db, IterOptions::prefix("key")), 0);
    wait_until("all is gone", || {
        machine.sleep(Duration::from_secs(60));
        db.put(b"writes", b"go on").unwrap();
        db.flush().unwrap();
        db.stats().graves.expiring == 0
    });
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .unwrap();
    wait_until("nothing is left of it", || {
        db.put(b"writes", b"go on").unwrap();
        db.stats().graves.points == 0 && spill_files(&*machine, DIR).is_empty()
    });
    assert_eq!(count(&db, IterOptions::default()), 1);
}

#[test]
fn nothing_comes_back_without_a_spill_file() {
    let machine = SimStorage::new(6);
    let (db, held) = half_deleted(&machine);
    db.close().unwrap();
    drop(held);
    let names = spill_files(&*machine, DIR);
    let name = names.first().unwrap().clone();
    let path = Path::new(DIR).join(&name);
    let aside = Path::new("/aside");
    machine.rename(&path, aside).unwrap();
    let refused = open_simulated(&machine, options()).map(|_| ()).unwrap_err();
    assert!(
        matches!(refused, Error::Corruption { .. }) && refused.to_string().contains(&name),
        "{refused}"
    );
    assert!(check(&machine).iter().any(|it| it.starts_with(&name)));
    // A block of graves is damaged: who needs it hears of it, and nobody sees what is deleted.
    machine.rename(aside, &path).unwrap();
    machine.flip_bit(&path, 300).unwrap();
    assert!(
        check(&machine).iter().any(|it| it.starts_with(&name)),
        "{:?}",
        check(&machine)
    );
    let db = open_simulated(&machine, options()).unwrap();
    let mut refused = 0;
    for number in (0..4_000).step_by(2) {
        match db.get(&key(number)) {
            Ok(found) => assert_eq!(found, None),
            Err(error) => {
                assert!(error.to_string().contains(&name), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    drop(db);
    machine.flip_bit(&path, 300).unwrap();
    // What no file of graves names is removed.
    let other = Path::new(DIR).join("000900.vault");
    machine.link(&path, &other).unwrap();
    let db = open_simulated(&machine, options()).unwrap();
    assert!(!spill_files(&*machine, DIR).contains(&"000900.vault".to_owned()));
    assert_half(&db);
}

#[test]
fn spill_files_can_be_looked_into() {
    let machine = SimStorage::new(8);
    let (db, held) = half_deleted(&machine);
    db.close().unwrap();
    drop(held);
    let storage = Arc::clone(&machine) as Arc<dyn Storage>;
    let inspection = Inspection::open(storage, DIR).unwrap();
    let found = inspection.find(&key(2)).unwrap();
    let in_spilled = found.iter().filter(|it| is_spill_file(&it.file));
    let deletions: Vec<_> = in_spilled.map(|it| it.value.clone()).collect();
    assert_eq!(deletions, [None], "{found:?}");
    assert!(found.iter().any(|it| it.value.is_some()));
    let report = inspection.check(&mut |_| ()).unwrap();
    assert!(
        report.problems.is_empty() && report.graves == 2_000,
        "{report:?}"
    );
    let mut deleted = 0;
    for name in spill_files(&*machine, DIR) {
        let path = Path::new(DIR).join(name);
        dump(&*machine, &path, &mut |item| {
            deleted += u32::from(matches!(item, Item::Version(version) if version.value.is_none()));
            ControlFlow::Continue(())
        })
        .unwrap();
    }
    assert!((1..=2_000).contains(&deleted), "{deleted}");
    let mut named = 0;
    dump(&*machine, &Path::new(DIR).join("GRAVES"), &mut |item| {
        named += usize::from(matches!(
            item,
            Item::Fact {
                name: "spill file",
                ..
            }
        ));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(named, spill_files(&*machine, DIR).len());
}

#[test]
fn repair_reads_spill_files_as_well() {
    let machine = SimStorage::new(9);
    let (db, held) = half_deleted(&machine);
    db.close().unwrap();
    drop(held);
    let storage = Arc::clone(&machine) as Arc<dyn Storage>;
    let save = |target: &str, accepted| {
        let (dir, target) = (Path::new(DIR), Path::new(target));
        repair(&storage, dir, target, &options(), accepted, &mut |_| ())
    };
    save("/saved", Resurrection::Impossible).unwrap();
    let saved = Db::open_with(Arc::clone(&storage), "/saved", options()).unwrap();
    assert_half(&saved);
    saved.close().unwrap();
    let name = spill_files(&*machine, DIR).first().unwrap().clone();
    machine.remove(&Path::new(DIR).join(&name)).unwrap();
    let refused = save("/refused", Resurrection::Impossible).map(|_| ());
    assert!(refused.is_err(), "what was deleted would come back");
    save("/accepted", Resurrection::Likely).unwrap();
}
