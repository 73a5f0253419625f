//! Keys with a time to live, from before there was an extractor, that change their engine with their device.

use crate::support::{
    content, content_by, open_older, open_simulated, options_with_resting_devices, wait_until,
};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, Durability, IterOptions, PutOptions, Receipt};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn open(machine: &Arc<SimStorage>) -> Db {
    open_simulated(machine, options_with_resting_devices()).expect("open")
}

fn put_rows(db: &Db, device: &str, rows: u32) {
    for row in 0..rows {
        db.put(format!("{device}:{row:04}").as_bytes(), b"row")
            .expect("put");
    }
}

fn rows(db: &Db, device: &str) -> usize {
    let prefix = format!("{device}:").into_bytes();
    content_by(db, IterOptions::prefix(prefix)).len()
}

fn hand_on(west: &Db, east: &Db, device: &[u8]) -> Receipt {
    let export = west.devices().export(device, "east", Durability::PowerLoss);
    let receipt = east
        .devices()
        .admit(export.expect("export"))
        .expect("admit");
    west.devices().complete(&receipt).expect("complete");
    receipt
}

/// What a key has left of its time to live goes with it.
#[test]
fn a_time_to_live_goes_along() {
    for settles in [false, true] {
        let (west_machine, mut east_machine) = (SimStorage::new(1), SimStorage::new(2));
        let west = open_older(&west_machine, |db| {
            put_rows(db, "car", 20);
            for row in [3, 7, 30, 31] {
                let key = format!("car:{row:04}");
                db.put_with(key.as_bytes(), b"expires", PutOptions::expiring(YEAR))
                    .expect("put");
            }
            db.put_with(b"car:0040", b"later", PutOptions::expiring(9 * YEAR))
                .expect("put");
        });
        west.put(b"car:0003", b"stays").expect("put");
        let mut east = open(&east_machine);
        put_rows(&east, "bus", 10);
        hand_on(&west, &east, b"car");
        assert_eq!((rows(&west, "car"), rows(&east, "car")), (0, 23));
        assert_eq!(
            east.get(b"car:0007").expect("get").as_deref(),
            Some(&b"expires"[..])
        );
        // What is deleted or written there counts, on both levels and after a crash.
        east.delete(b"car:0031").expect("delete");
        east.put(b"car:0001", b"newer").expect("put");
        if settles {
            east.devices().settle(b"car").expect("settle");
            east.compact_range(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)
                .expect("compact");
        }
        assert_eq!(rows(&east, "car"), 22);
        let before = content(&east);
        for crash in [Crash::Process, Crash::PowerCut] {
            east.sync().expect("sync");
            east_machine = east_machine.crash(5, crash);
            drop(east);
            east = open(&east_machine);
            assert!(content(&east) == before, "{settles} {crash:?}");
        }
        east_machine.sleep(2 * YEAR);
        assert_eq!(east.get(b"car:0007").expect("get"), None);
        assert_eq!(east.get(b"car:0030").expect("get"), None);
        let stays = east.get(b"car:0003").expect("get");
        assert_eq!(stays.as_deref(), Some(&b"stays"[..]));
        assert_eq!(rows(&east, "car"), 20);
        // Buried, and for good.
        wait_until("nothing is buried", || east.stats().graves.expiring == 1);
        assert_eq!(rows(&east, "car"), 20);
        east.close().expect("close");
        east = open(&east_machine);
        assert_eq!(rows(&east, "car"), 20);
        // On it goes.
        let north_machine = SimStorage::new(3);
        let north = open(&north_machine);
        hand_on(&east, &north, b"car");
        assert_eq!((rows(&east, "car"), rows(&north, "car")), (0, 20));
        assert_eq!(rows(&east, "bus"), 10);
        north.checkpoint("/copy").expect("checkpoint");
        north_machine.sleep(9 * YEAR);
        assert_eq!(rows(&north, "car"), 19);
        assert!(north.check().expect("check").problems.is_empty());
        let copy = Db::open_with(north_machine, "/copy", options_with_resting_devices());
        assert_eq!(rows(&copy.expect("open"), "car"), 19);
    }
}

/// What expires between the export and its end changes nothing of what was handed over.
#[test]
fn what_expires_on_the_way_does_not_keep_a_device_frozen() {
    let machine = SimStorage::new(1);
    let west = open_older(&machine, |db| {
        put_rows(db, "car", 20);
        db.put_with(b"car:ttl", b"expires", PutOptions::expiring(YEAR))
            .expect("put");
    });
    let east = open(&SimStorage::new(2));
    let mut stream = Vec::new();
    let mut export = west
        .devices()
        .export(b"car", "east", Durability::PowerLoss)
        .expect("export");
    export.read_to_end(&mut stream).expect("read");
    drop(export);
    let receipt = east.devices().admit(&stream[..]).expect("admit");
    west.close().expect("close");
    machine.sleep(2 * YEAR);
    let west = open(&machine);
    assert_eq!(rows(&west, "car"), 20);
    west.devices().complete(&receipt).expect("complete");
    assert_eq!(rows(&west, "car"), 0);
    assert!(west.devices().exports().expect("exports").is_empty());
}
