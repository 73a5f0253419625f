//! The room that a database takes: little while it is empty, and little beside its content at rest and when it is closed.

use crate::support::disks::SmallDisk;
use crate::support::{Content, content, open_simulated, wait_until};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use waystation::storage::sim::Crash;
use waystation::storage::{OsStorage, SimStorage, Storage};
use waystation::{Db, DeviceOptions, Extractor, IterOptions, Options};

const MIB: u64 = 1 << 20;

fn options(has_devices: bool) -> Options {
    Options {
        devices: has_devices.then(|| DeviceOptions {
            residency: Duration::from_secs(1 << 40),
            ..DeviceOptions::new(Extractor::until(b':'))
        }),
        ..Options::default()
    }
}

/// The lengths of all files whose names contain `part`.
fn used(storage: &dyn Storage, dir: &Path, part: &str) -> u64 {
    let entries = storage.list(dir).expect("list");
    let counted = entries.iter().filter(|entry| entry.name.contains(part));
    counted.map(|entry| entry.bytes).sum()
}

fn key(number: u64) -> Vec<u8> {
    format!("car-{}:{:08}", number % 20, number / 20).into_bytes()
}

/// Writes values of a kilobyte that do not compress.
fn fill(db: &Db, count: u64) -> Content {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut value = || {
        let mut bytes = Vec::with_capacity(1024);
        while bytes.len() < 1024 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bytes.extend_from_slice(&random.to_le_bytes());
        }
        bytes
    };
    let entries = (0..count).map(|number| (key(number), value()));
    let written: Content = entries.collect();
    for (key, value) in &written {
        db.put(key, value).expect("put");
    }
    written
}

#[test]
fn an_empty_database_takes_less_than_two_mebibytes() {
    for has_devices in [false, true] {
        let dir = tempfile::tempdir().expect("tempdir");
        let storage = OsStorage::new();
        let db = Db::open(dir.path(), options(has_devices)).expect("open");
        db.put(b"car:key", b"value").expect("put");
        let open = used(&*storage, dir.path(), "");
        db.close().expect("close");
        let closed = used(&*storage, dir.path(), "");
        assert!(open < 2 * MIB && closed < 2 * MIB, "{open}, {closed}");
    }
}

#[test]
fn a_closed_database_takes_little_beside_its_content() {
    for has_devices in [false, true] {
        let dir = tempfile::tempdir().expect("tempdir");
        let storage = OsStorage::new();
        let db = Db::open(dir.path(), options(has_devices)).expect("open");
        let written = fill(&db, 50_000);
        let ring = if has_devices { 16 * MIB } else { 64 * MIB };
        // Its last doublings need quick writers.
        assert!((2 * MIB..=ring).contains(&used(&*storage, dir.path(), "journal.ring")));
        // It outlives the database, and finds in segments what the ring does not have any more.
        let mut cursor = db.iter(IterOptions::default()).expect("iterate");
        cursor.seek_to_first().expect("seek");
        db.close().expect("close");
        let of_log = used(&*storage, dir.path(), ".seg");
        let beside = used(&*storage, dir.path(), "") - used(&*storage, dir.path(), ".ldb") - of_log;
        assert!(beside < 2 * MIB, "{beside} bytes beside log and tables");
        // Without devices tables have all of it.
        let of_log_most = if has_devices { 64 * MIB } else { MIB };
        assert!(of_log < of_log_most, "{of_log} bytes of log");
        let mut found = Content::new();
        while cursor.valid() {
            found.insert(cursor.key().to_vec(), cursor.value().to_vec());
            cursor.next().expect("next");
        }
        assert!(found == written);
        drop(cursor);
        let db = Db::open(dir.path(), options(has_devices)).expect("reopen");
        assert!(content(&db) == written);
        assert_eq!(db.check().expect("check").problems, []);
    }
}

/// Ten seconds after the last write, and again after a burst.
#[test]
fn a_database_at_rest_takes_little_beside_its_content() {
    for (has_devices, crash) in [
        (false, Crash::Process),
        (false, Crash::PowerCut),
        (true, Crash::Process),
        (true, Crash::PowerCut),
    ] {
        let machine = SimStorage::new(3);
        let options = Options {
            ring_bytes: 2 << 20,
            memtable_bytes: 1 << 20,
            ..options(has_devices)
        };
        let db = open_simulated(&machine, options.clone()).expect("open");
        let of = |part| used(&*machine, Path::new("/db"), part);
        let mut written = Content::new();
        for _ in 0..2 {
            written.extend(fill(&db, 5_000));
            assert!((MIB..=2 * MIB).contains(&of("journal.ring")));
            wait_until("it gives back room", || {
                of("journal.ring") + of("RESERVE") < 2 * MIB
            });
            // The log has its content, and room for little more.
            let log = db.stats().log;
            let beside = of(".seg").saturating_sub(log.live_bytes);
            assert!(beside < MIB, "{beside} bytes beside the log's content");
            assert!(content(&db) == written);
        }
        let machine = machine.crash(4, crash);
        let again = open_simulated(&machine, options).expect("reopen");
        assert!(content(&again) == written);
        assert_eq!(again.check().expect("check").problems, []);
    }
}

/// The ring is whole from the start, and stays so.
#[test]
fn a_file_system_that_cannot_reserve_room_has_a_whole_ring() {
    let features = "^extent,^has_journal,^64bit,^metadata_csum";
    let Some(disk) = SmallDisk::in_file("disk_use", 400 * MIB, features) else {
        return;
    };
    let storage = OsStorage::new();
    let dir = disk.path("db");
    let ring = || used(&*storage, &dir, "journal.ring");
    let db = Db::open(&dir, options(false)).expect("open");
    assert_eq!(ring(), 16 * MIB);
    let written = fill(&db, 20_000);
    db.close().expect("close");
    assert_eq!(ring(), 16 * MIB);
    assert!(used(&*storage, &dir, ".seg") < MIB);
    let db = Db::open(&dir, options(false)).expect("reopen");
    assert!(content(&db) == written);
}

/// What there is for an opening stays while no more can be taken, and follows the ring once it can.
#[test]
fn the_room_for_an_opening_is_kept_while_it_cannot_grow() {
    let machine = SimStorage::new(1);
    let rules = FaultRules::new();
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    let options = Options {
        ring_bytes: 1 << 20,
        ..options(false)
    };
    let db = Db::open_with(storage, "/db", options).expect("open");
    let length = || used(&*machine, Path::new("/db"), "RESERVE");
    let before = length();
    assert!(before > 0);
    let fault = Fault::Fail(Refusal::NoSpace);
    let rule = rules.add(Rule::new(Operation::Preallocate, fault).on("RESERVE"));
    fill(&db, 2_500);
    wait_until("more was to be taken", || rules.count(rule).caught > 0);
    assert_eq!(length(), before);
    rules.clear();
    wait_until("there is more", || {
        db.put(b"car:again", b"").expect("put");
        length() > before + MIB / 2
    });
}

/// However far the last steps of closing come.
#[test]
fn a_process_that_dies_while_it_gives_room_back_loses_nothing() {
    let operations = [
        (Operation::ResizeRing, ""),
        (Operation::Preallocate, "RESERVE"),
        (Operation::Open, "RESERVE"),
        (Operation::Open, ".seg"),
        (Operation::Remove, ".seg"),
        (Operation::Sync, "draft"),
        (Operation::Rename, "draft"),
        (Operation::Open, "draft"),
        (Operation::Open, "GRAVES"),
        (Operation::Rename, "GRAVES"),
        (Operation::Open, "MANIFEST"),
        (Operation::Rename, "CURRENT"),
    ];
    for (seed, (operation, path)) in (0..).zip(operations) {
        for (has_devices, crash) in [
            (false, Crash::Process),
            (false, Crash::PowerCut),
            (true, Crash::Process),
            (true, Crash::PowerCut),
        ] {
            let machine = SimStorage::new(seed);
            let rules = FaultRules::new();
            let storage: Arc<dyn Storage> = machine.with_faults(&rules);
            let options = Options {
                ring_bytes: 1 << 20,
                ..options(has_devices)
            };
            let db = Db::open_with(storage, "/db", options.clone()).expect("open");
            let mut written = fill(&db, 2_500);
            // Graves are closed last.
            for number in (0..2_500).step_by(5) {
                db.delete(&key(number)).expect("delete");
                written.remove(&key(number));
            }
            let length = used(&*machine, Path::new("/db"), "journal.ring");
            assert!((MIB / 2..=MIB).contains(&length));
            let fault = Fault::Fail(Refusal::InputOutput);
            rules.add(Rule::new(operation, fault).on(path));
            // Room that stays is no reason to call the database unclosed.
            let closed = db.close();
            let what = format!("{operation:?} of {path}, {crash:?}: {closed:?}");
            let machine = machine.crash(seed, crash);
            let db = open_simulated(&machine, options).expect(&what);
            assert!(content(&db) == written, "{what}");
            assert_eq!(db.check().expect("check").problems, [], "{what}");
        }
    }
}
