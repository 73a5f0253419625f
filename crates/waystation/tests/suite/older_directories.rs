//! Directories that are older than their extractor: what they held before is of devices now, in every respect.

use crate::support::{content_by, open_older, open_simulated, options_with_resting_devices};
use std::time::Duration;
use waystation::storage::{SimStorage, Storage};
use waystation::{
    Db, DeviceError, DeviceInfo, DeviceLevel, Durability, Error, Extractor, IterOptions, Options,
    PutOptions,
};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

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

#[track_caller]
fn assert_unknown<T: std::fmt::Debug>(answer: &Result<T, Error>) {
    assert!(
        matches!(answer, Err(Error::Device(DeviceError::Unknown { .. }))),
        "{answer:?}"
    );
}

fn names(devices: &[DeviceInfo]) -> Vec<String> {
    let text = |info: &DeviceInfo| String::from_utf8_lossy(&info.name).into_owned();
    devices.iter().map(text).collect()
}

#[test]
fn devices_that_never_were_are_unknown() {
    let machine = SimStorage::new(1);
    let db = open_older(&machine, |db| {
        put_rows(db, "bus", 50);
        put_rows(db, "van", 3);
        db.delete_prefix(b"van:").expect("delete");
        db.put_with(b"tram:1", b"", PutOptions::expiring(YEAR))
            .expect("put");
    });
    machine.sleep(2 * YEAR);
    for device in [&b"car"[..], b"van", b"tram"] {
        assert_unknown(&db.devices().export(device, "east", Durability::PowerLoss));
        assert_unknown(&db.devices().depart(device));
        assert_unknown(&db.devices().settle(device));
    }
    assert!(db.devices().exports().expect("exports").is_empty());
    assert_eq!(names(&db.devices().list().expect("devices")), ["bus"]);
    // They can still arrive.
    db.put(b"car:1", b"").expect("put");
    db.put(b"van:1", b"").expect("put");
    assert_eq!(
        names(&db.devices().list().expect("devices")),
        ["bus", "car", "van"]
    );
    db.devices().depart(b"car").expect("depart");
    db.devices().settle(b"bus").expect("it has");
    db.devices().depart(b"bus").expect("depart");
    assert_unknown(&db.devices().depart(b"bus"));
    assert_unknown(&db.devices().export(b"bus", "east", Durability::PowerLoss));
    assert_eq!(rows(&db, "bus"), 0);
}

#[test]
fn devices_from_before_are_listed() {
    let machine = SimStorage::new(1);
    let db = open_older(&machine, |db| {
        for device in 0..40 {
            put_rows(db, &format!("car-{device:02}"), 50);
        }
        db.put(b"settings", b"of nobody").expect("put");
        db.put(b"zzz", b"of nobody").expect("put");
    });
    let listed = db.devices().list().expect("devices");
    assert_eq!(listed.len(), 40);
    assert!(listed.iter().all(|it| it.level == DeviceLevel::Tree));
    // A device that left is listed until merges have purged all it had: this holds them up.
    let _held = db.snapshot();
    // One writes again, one leaves, one is on its way, one comes.
    db.put(b"car-07:9999", b"").expect("put");
    db.devices().depart(b"car-08").expect("depart");
    drop(
        db.devices()
            .export(b"car-09", "east", Durability::PowerLoss),
    );
    db.put(b"bus:1", b"").expect("put");
    let listed = db.devices().list().expect("devices");
    let all = names(&listed);
    assert!(all.is_sorted(), "{all:?}");
    let level = |name: &str| {
        let found = listed.iter().find(|it| it.name == name.as_bytes());
        found.map(|it| (it.level, it.moving_to.clone()))
    };
    assert_eq!(level("bus"), Some((DeviceLevel::Upper, None)));
    assert_eq!(level("car-07"), Some((DeviceLevel::Upper, None)));
    assert_eq!(level("car-08"), Some((DeviceLevel::Departed, None)));
    let moving = Some((DeviceLevel::Tree, Some("east".to_owned())));
    assert_eq!(level("car-09"), moving);
    assert_eq!(level("car-10"), Some((DeviceLevel::Tree, None)));
    assert_eq!(all.len(), 41);
    // A row from before that was deleted since is no device's.
    db.delete_prefix(b"car-10:").expect("delete");
    assert!(!names(&db.devices().list().expect("devices")).contains(&"car-10".to_owned()));
}

#[test]
fn devices_of_a_length_are_listed_from_before() {
    let machine = SimStorage::new(1);
    let plain = Options {
        devices: None,
        ..options_with_resting_devices()
    };
    let db = open_simulated(&machine, plain.clone()).expect("open");
    for key in [&b"aa1"[..], b"aa2", b"b", b"\xff\xff1", b"\xff\xff2"] {
        db.put(key, b"").expect("put");
    }
    db.close().expect("close");
    let devices = Some(waystation::DeviceOptions::new(Extractor::fixed(2)));
    let db = open_simulated(&machine, Options { devices, ..plain }).expect("open");
    let listed = db.devices().list().expect("devices");
    let listed: Vec<_> = listed.iter().map(|it| &it.name[..]).collect();
    assert_eq!(listed, [&b"aa"[..], b"\xff\xff"]);
}
