//! Keys with a time to live: gone at once, for good, at the cost of graves, whatever is done to the clock.

use crate::support::{open_simulated, small_options, wait_until};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{
    Compression, Db, DeviceOptions, Durability, Error, Extractor, IterOptions, Options, PutOptions,
    WriteBatch,
};

/// Simulated time passes by itself while threads in the background sleep, some thousand seconds in one.
const DAY: Duration = Duration::from_secs(86_400);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn open(machine: &Arc<SimStorage>) -> Db {
    open_with(machine, small_options())
}

fn open_with(machine: &Arc<SimStorage>, options: Options) -> Db {
    open_simulated(machine, options).expect("works")
}

fn keys(cursor: &mut waystation::DbIterator) -> Vec<String> {
    let mut keys = Vec::new();
    cursor.seek_to_first().expect("works");
    while cursor.valid() {
        keys.push(String::from_utf8_lossy(cursor.key()).into_owned());
        cursor.next().expect("works");
    }
    let mut back = Vec::new();
    cursor.seek_to_last().expect("works");
    while cursor.valid() {
        back.push(String::from_utf8_lossy(cursor.key()).into_owned());
        cursor.prev().expect("works");
    }
    back.reverse();
    assert_eq!(keys, back);
    keys
}

fn all(db: &Db) -> Vec<String> {
    keys(&mut db.iter(IterOptions::default()).expect("works"))
}

#[test]
fn what_has_expired_is_gone_at_once_and_what_was_put_after_is_not() {
    let machine = SimStorage::new(1);
    let db = open(&machine);
    db.put(b"older", b"hidden by what expires").unwrap();
    for name in ["expires", "older", "put", "deleted", "put for longer"] {
        db.put_with(name.as_bytes(), b"1", PutOptions::expiring(YEAR))
            .unwrap();
    }
    db.put(b"put", b"2").unwrap();
    db.delete(b"deleted").unwrap();
    let mut batch = WriteBatch::new();
    batch.put_with_ttl(b"put for longer", b"2", 3 * YEAR);
    batch.put_with_ttl(b"short, then long", b"1", YEAR);
    batch.put(b"short, then long", b"2");
    batch.put(b"in a batch", b"1");
    batch.put_with_ttl(b"in a batch", b"2", YEAR);
    db.write(&batch, Durability::PowerLoss).unwrap();
    let before = [
        "expires",
        "in a batch",
        "older",
        "put",
        "put for longer",
        "short, then long",
    ];
    assert_eq!(all(&db), before);
    assert_eq!(db.get(b"older").unwrap(), Some(b"1".to_vec()));
    machine.sleep(YEAR + DAY);
    let after = ["put", "put for longer", "short, then long"];
    assert_eq!(all(&db), after);
    assert_eq!(db.get(b"older").unwrap(), None);
    db.flush().unwrap();
    assert_eq!(
        (all(&db), db.get(b"older").unwrap()),
        (after.map(String::from).to_vec(), None)
    );
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .unwrap();
    assert_eq!(all(&db), after);
    machine.sleep(2 * YEAR);
    assert_eq!(all(&db), ["put", "short, then long"]);
    assert_eq!(db.get(b"put for longer").unwrap(), None);
    assert!(db.check().unwrap().problems.is_empty());
    db.close().unwrap();
    // Nothing was left to expire: the directory is LevelDB's again.
    let entries = machine.list(Path::new("/db")).unwrap();
    assert!(entries.iter().all(|entry| entry.name != "GRAVES"));
}

#[test]
fn a_snapshots_time_stands_still() {
    let machine = SimStorage::new(2);
    let db = open(&machine);
    for number in 0..300 {
        let key = format!("{number:03}");
        db.put_with(key.as_bytes(), &[7; 100], PutOptions::expiring(YEAR))
            .unwrap();
    }
    db.put(b"kept", b"").unwrap();
    let snapshot = db.snapshot();
    let mut cursor = db.iter(IterOptions::default()).unwrap();
    machine.sleep(2 * YEAR);
    let later = db.snapshot();
    assert_eq!(all(&db), ["kept"]);
    for round in 0..3 {
        let at = |snapshot: &waystation::Snapshot| {
            let options = IterOptions {
                snapshot: Some(snapshot.clone()),
                ..IterOptions::default()
            };
            keys(&mut db.iter(options).unwrap()).len()
        };
        assert_eq!((at(&snapshot), at(&later)), (301, 1), "round {round}");
        assert!(db.get_at(b"077", &snapshot).unwrap().is_some());
        assert!(db.get_at(b"077", &later).unwrap().is_none());
        db.put(b"kept", b"again").unwrap();
        db.flush().unwrap();
        db.compact_range(Bound::Unbounded, Bound::Unbounded)
            .unwrap();
    }
    assert_eq!(db.stats().graves.expiring, 300);
    // At rest nobody looks for what has expired before a snapshot is released, though another one has its number.
    db.wait_idle().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    drop(snapshot);
    assert_eq!(keys(&mut cursor).len(), 301);
    drop(cursor);
    wait_until("they are buried, once nobody can see them", || {
        db.stats().graves.expiring == 0
    });
    assert!(db.get_at(b"077", &later).unwrap().is_none());
    assert_eq!(all(&db), ["kept"]);
}

/// A cursor that walks over many dead keys remembers where they lie, for all who read at its sequence number. A snapshot
/// with this number and an earlier time still sees those that had not expired.
#[test]
fn what_a_cursor_learns_of_dead_keys_holds_at_earlier_times() {
    let machine = SimStorage::new(12);
    let db = open(&machine);
    db.put(b"first", b"").unwrap();
    for number in 0..400 {
        let key = format!("key{number:03}");
        db.put_with(key.as_bytes(), &[7; 100], PutOptions::expiring(YEAR))
            .unwrap();
        if number % 4 > 0 {
            db.delete(key.as_bytes()).unwrap();
        }
    }
    db.put(b"last", b"").unwrap();
    let earlier = db.snapshot();
    machine.sleep(2 * YEAR);
    let later = db.snapshot();
    assert_eq!(earlier.sequence(), later.sequence());
    let at = |snapshot: &waystation::Snapshot| {
        let options = IterOptions {
            snapshot: Some(snapshot.clone()),
            ..IterOptions::default()
        };
        keys(&mut db.iter(options).unwrap()).len()
    };
    for _ in 0..2 {
        assert_eq!((at(&later), at(&earlier)), (2, 102));
    }
}

#[test]
fn expiry_survives_crashes_and_closing_and_no_clock_brings_anything_back() {
    for (seed, crash) in [
        (3, Crash::Process),
        (4, Crash::PowerCut),
        (5, Crash::PowerCut),
    ] {
        let machine = SimStorage::new(seed);
        let db = open(&machine);
        for number in 0..2_000 {
            let (key, years) = (format!("{number:04}"), 1 + number % 3);
            db.put_with(
                key.as_bytes(),
                &[7; 100],
                PutOptions::expiring(YEAR * years),
            )
            .unwrap();
        }
        db.sync().unwrap();
        let machine = machine.crash(seed, crash);
        drop(db);
        let db = open(&machine);
        assert_eq!(all(&db).len(), 2_000);
        machine.step_wall_clock(-86_400);
        machine.step_wall_clock(10 * 365 * 86_400);
        assert_eq!(
            all(&db).len(),
            2_000,
            "a step does nothing while it is open"
        );
        machine.step_wall_clock(-10 * 365 * 86_400);
        machine.sleep(YEAR);
        assert_eq!(all(&db).len(), 1_333);
        wait_until("what has expired is buried", || {
            db.stats().graves.expiring == 1_333
        });
        db.sync().unwrap();
        let machine = machine.crash(seed, crash);
        drop(db);
        // Back to before anything had expired.
        machine.step_wall_clock(-2 * 365 * 86_400);
        let db = open(&machine);
        assert_eq!(all(&db).len(), 1_333, "what was buried stays so");
        db.close().unwrap();
        // Closed for two years by the wall clock, of which it makes up for one.
        machine.step_wall_clock(4 * 365 * 86_400);
        let db = open(&machine);
        assert_eq!(all(&db).len(), 0);
        db.close().unwrap();
    }
}

#[test]
fn what_expires_at_rest_gives_its_space_back_and_writes_no_tables_for_it() {
    let machine = SimStorage::new(6);
    let db = open(&machine);
    for number in 0..4_000 {
        let key = format!("{number:05}");
        db.put_with(key.as_bytes(), &[7; 500], PutOptions::expiring(YEAR))
            .unwrap();
    }
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .unwrap();
    let bytes = |db: &Db| {
        db.stats()
            .tree
            .levels
            .iter()
            .map(|it| it.bytes)
            .sum::<u64>()
    };
    let full = bytes(&db);
    assert_eq!(db.stats().graves.expiring, 4_000);
    machine.sleep(2 * YEAR);
    wait_until("all space comes back by itself", || {
        db.stats().graves.expiring == 0 && bytes(&db) < full / 50
    });
    wait_until("no grave is left", || db.stats().graves.points == 0);
    assert_eq!(all(&db).len(), 0);
    db.close().unwrap();
}

#[test]
fn many_puts_of_one_key_leave_one_date() {
    let machine = SimStorage::new(7);
    let db = open(&machine);
    for number in 0..10_000_u64 {
        db.put_with(
            b"position",
            &number.to_le_bytes(),
            PutOptions::expiring(10 * YEAR),
        )
        .unwrap();
    }
    db.flush().unwrap();
    assert_eq!(db.stats().graves.expiring, 1);
    machine.sleep(11 * YEAR);
    assert_eq!(db.get(b"position").unwrap(), None);
}

#[test]
fn bad_times_are_refused() {
    let machine = SimStorage::new(8);
    let db = open(&machine);
    let is_refused = |outcome: waystation::Result<()>, why: &str| {
        let Err(Error::InvalidArgument(reason)) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(reason.contains(why), "{reason}");
    };
    for (lifetime, why) in [(Duration::ZERO, "zero"), (Duration::MAX, "end of time")] {
        is_refused(
            db.put_with(b"key", b"", PutOptions::expiring(lifetime)),
            why,
        );
        let mut batch = WriteBatch::new();
        batch.put(b"other", b"");
        batch.put_with_ttl(b"key", b"", lifetime);
        batch.put_with_ttl(b"third", b"", YEAR);
        is_refused(db.write(&batch, Durability::ProcessCrash), why);
    }
    let mut time = WriteBatch::new();
    time.reach(7);
    is_refused(db.write(&time, Durability::ProcessCrash), "what time it is");
    // The batch of a put and its expiry, without the put.
    let mut whole = WriteBatch::new();
    whole.put_with_ttl(b"k", b"", YEAR);
    let mut bytes = whole.as_bytes().to_vec();
    bytes.drain(12..16);
    bytes[8] = 1;
    let alone = WriteBatch::from_bytes(bytes).unwrap();
    is_refused(
        db.write(&alone, Durability::ProcessCrash),
        "without the put",
    );
    assert_eq!(all(&db).len(), 0);
    db.put_with(
        b"key",
        b"",
        PutOptions::expiring(Duration::from_secs(3_000_000_000_000)),
    )
    .unwrap();
    assert_eq!(all(&db), ["key"]);
}

#[test]
fn devices_keys_have_no_time_to_live_of_their_own() {
    let machine = SimStorage::new(9);
    let options = Options {
        devices: Some(DeviceOptions {
            residency: 1000 * YEAR,
            ..DeviceOptions::new(Extractor::until(b':'))
        }),
        ..small_options()
    };
    let db = open_with(&machine, options.clone());
    let refused = db.put_with(b"car:1", b"", PutOptions::expiring(YEAR));
    assert!(matches!(refused, Err(Error::InvalidArgument(reason)) if reason.contains("device")));
    db.put(b"car:1", b"").unwrap();
    db.put_with(b"of no device", b"", PutOptions::expiring(YEAR))
        .unwrap();
    db.put_with(b"for longer", b"", PutOptions::expiring(3 * YEAR))
        .unwrap();
    db.checkpoint("/copy").unwrap();
    machine.sleep(2 * YEAR);
    assert_eq!(all(&db), ["car:1", "for longer"]);
    db.close().unwrap();
    let storage = Arc::clone(&machine) as Arc<dyn Storage>;
    let copy = Db::open_with(storage, "/copy", options).unwrap();
    assert_eq!(
        all(&copy),
        ["car:1", "for longer"],
        "a copy keeps what time is left"
    );
    machine.sleep(2 * YEAR);
    assert_eq!(all(&copy), ["car:1"]);
}

#[test]
fn copies_and_exports_say_what_they_do_with_time() {
    let machine = SimStorage::new(10);
    let db = open(&machine);
    db.put_with(b"short", b"", PutOptions::expiring(YEAR))
        .unwrap();
    db.put_with(b"long", b"", PutOptions::expiring(5 * YEAR))
        .unwrap();
    machine.sleep(2 * YEAR);
    db.checkpoint("/copy").unwrap();
    db.export_leveldb(Path::new("/plain"), Compression::None, &mut |_| {})
        .unwrap();
    let open_there = |path: &str| {
        let storage = Arc::clone(&machine) as Arc<dyn Storage>;
        Db::open_with(storage, path, small_options()).unwrap()
    };
    let (copy, plain) = (open_there("/copy"), open_there("/plain"));
    assert_eq!(
        (all(&copy), all(&plain)),
        (vec!["long".to_owned()], vec!["long".to_owned()])
    );
    machine.sleep(5 * YEAR);
    assert_eq!((all(&copy).len(), all(&plain).len()), (0, 1));
}

#[test]
fn a_copy_never_brings_back_what_had_expired_when_it_was_made() {
    for holds_snapshot in [false, true] {
        let machine = SimStorage::new(11);
        let db = open(&machine);
        db.put_with(b"short", b"", PutOptions::expiring(YEAR))
            .unwrap();
        db.put_with(b"long", b"", PutOptions::expiring(5 * YEAR))
            .unwrap();
        let snapshot = holds_snapshot.then(|| db.snapshot());
        machine.sleep(2 * YEAR);
        assert_eq!(all(&db), ["long"]);
        db.checkpoint("/copy").unwrap();
        drop(snapshot);
        // It is opened where the clock stands before everything.
        machine.step_wall_clock(-10 * 365 * 86_400);
        let storage = Arc::clone(&machine) as Arc<dyn Storage>;
        let copy = Db::open_with(storage, "/copy", small_options()).unwrap();
        assert_eq!(all(&copy), ["long"], "{holds_snapshot}");
        machine.sleep(4 * YEAR);
        assert_eq!(all(&copy).len(), 0);
    }
}
