//! What engines remember of hand-offs does not grow for good.

use crate::support::options_with_resting_devices;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use waystation::storage::sim::Crash;
use waystation::storage::{Area, OpenMode, SimStorage, Storage, Transfer};
use waystation::{Db, DeviceError, Durability, Error};

fn open(machine: &Arc<SimStorage>) -> Db {
    Db::open_with(
        machine.clone(),
        Path::new("/db"),
        options_with_resting_devices(),
    )
    .expect("open")
}

fn stream(west: &Db, device: &str) -> Vec<u8> {
    west.put(format!("{device}:1").as_bytes(), b"")
        .expect("put");
    let mut export = west
        .devices()
        .export(device.as_bytes(), "east", Durability::PowerLoss)
        .expect("export");
    let mut stream = Vec::new();
    export.read_to_end(&mut stream).expect("read");
    stream
}

/// Hands a device on, and takes it away there.
fn hand_on(west: &Db, east: &Db, device: &str) -> Vec<u8> {
    let stream = stream(west, device);
    let receipt = east.devices().admit(&stream[..]).expect("admit");
    west.devices().complete(&receipt).expect("complete");
    west.devices().lift_stub(device.as_bytes()).expect("lift");
    east.devices().depart(device.as_bytes()).expect("depart");
    stream
}

fn devices_bytes(machine: &SimStorage) -> u64 {
    let path = Path::new("/db/DEVICES");
    let file = machine.open(path, OpenMode::Read, Transfer::Buffered, Area::Tables);
    file.expect("open").size().expect("length")
}

/// Two hand-offs never end, one that was admitted and one that was not; a thousand come after.
#[test]
fn a_hand_off_that_never_ends_costs_no_more_than_itself() {
    let (west_machine, mut east_machine) = (SimStorage::new(1), SimStorage::new(2));
    let (mut west, mut east) = (open(&west_machine), open(&east_machine));
    let waiting = stream(&west, "waiting");
    let admitted = stream(&west, "admitted");
    let receipt = east.devices().admit(&admitted[..]).expect("admit");
    let mut sizes = Vec::new();
    // Its end is durable long before the last one begins.
    let first = hand_on(&west, &east, "first");
    for round in 0..3 {
        for number in 0..300 {
            hand_on(&west, &east, &format!("car-{round}-{number}"));
        }
        // A checkpoint of the table tells of all of it.
        east.close().expect("close");
        sizes.push(devices_bytes(&east_machine));
        east = open(&east_machine);
    }
    assert!(sizes[2] < sizes[0] + 1_000, "{sizes:?}");
    // Who is asked again answers as before: what is over is over, what is not is not.
    for crash in [None, Some(Crash::Process), Some(Crash::PowerCut)] {
        if let Some(crash) = crash {
            east_machine = east_machine.crash(3, crash);
            drop(east);
            east = open(&east_machine);
        }
        assert_eq!(east.devices().admit(&admitted[..]).expect("again"), receipt);
        hand_on(&west, &east, &format!("car-{crash:?}"));
        let over = east.devices().admit(&first[..]);
        assert!(
            matches!(over, Err(Error::Device(DeviceError::Ticket { .. }))),
            "{over:?}"
        );
    }
    west.devices().complete(&receipt).expect("complete");
    let late = east.devices().admit(&waiting[..]).expect("admit");
    west.devices().complete(&late).expect("complete");
    assert!(west.devices().exports().expect("exports").is_empty());
    drop(west);
    west = open(&west_machine);
    assert!(west.devices().exports().expect("exports").is_empty());
}
