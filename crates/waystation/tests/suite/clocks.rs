//! Time and devices: who is silent for long departs, if that is wished; a clock set forth or back changes nothing.

use crate::support::{options_with_devices, wait_until};
use std::sync::Arc;
use std::time::Duration;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, DeviceError, DeviceLevel, Durability, Error};

const DAY: Duration = Duration::from_secs(86_400);

/// Simulated time passes fast, some thousand seconds in one; so limits are long here.
fn open(machine: &Arc<SimStorage>, residency: Duration, idle: Option<Duration>) -> Db {
    let storage: Arc<dyn Storage> = machine.clone();
    let mut options = options_with_devices(residency);
    if let Some(devices) = &mut options.devices {
        devices.idle_departure = idle;
    }
    Db::open_with(storage, "/db", options).expect("open")
}

fn names(db: &Db) -> Vec<String> {
    let devices = db.devices().list().expect("devices");
    let there = devices
        .iter()
        .filter(|info| info.level != DeviceLevel::Departed);
    there
        .map(|info| String::from_utf8_lossy(&info.name).into_owned())
        .collect()
}

/// Lets the threads in the background look round many times.
fn wait(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

#[test]
fn silent_devices_depart_and_no_others() {
    let machine = SimStorage::new(1);
    let db = open(&machine, 100_000 * DAY, Some(1000 * DAY));
    for name in ["bus", "car", "tram", "van"] {
        db.put(format!("{name}:1").as_bytes(), b"").expect("put");
    }
    // What has settled has its own time, and what is being handed on waits for an answer.
    db.devices().settle(b"tram").expect("settle");
    let export = db
        .devices()
        .export(b"van", "east", Durability::ProcessCrash);
    drop(export.expect("export"));
    machine.sleep(600 * DAY);
    db.put(b"bus:2", b"").expect("put");
    wait(20);
    assert_eq!(names(&db), ["bus", "car", "tram", "van"]);
    machine.sleep(600 * DAY);
    wait_until("the car departs", || names(&db).len() == 3);
    assert_eq!(names(&db), ["bus", "tram", "van"]);
    assert_eq!(db.get(b"car:1").expect("get"), None);
    assert!(db.get(b"bus:1").expect("get").is_some());
    db.put(b"bus:3", b"").expect("put");
    db.put(b"car:3", b"").expect("it comes again");
    machine.sleep(600 * DAY);
    wait(20);
    assert_eq!(names(&db), ["bus", "car", "tram", "van"]);
    assert!(matches!(
        db.devices().depart(b"van"),
        Err(Error::Device(DeviceError::Moving { .. }))
    ));
}

#[test]
fn a_clock_that_is_set_changes_nothing() {
    let machine = SimStorage::new(2);
    let db = open(&machine, 300 * DAY, Some(900 * DAY));
    db.put(b"car:1", b"").expect("put");
    for days in [1, -1, -1, 1, 1000, -3000, 2000] {
        machine.step_wall_clock(days * 86_400);
        db.put(format!("bus:{days}").as_bytes(), b"").expect("put");
        wait(10);
        let info = db.devices().list().expect("devices");
        let levels: Vec<_> = info.iter().map(|it| it.level).collect();
        assert_eq!(levels, [DeviceLevel::Upper; 2], "{days} days");
        assert!(info.iter().all(|it| it.age.is_some_and(|age| age < DAY)));
    }
    db.close().expect("close");
    machine.step_wall_clock(-86_400);
    let db = open(&machine, 300 * DAY, Some(900 * DAY));
    wait(10);
    assert_eq!(names(&db), ["bus", "car"]);
    // Time that has really passed counts; they wait half of it for others to settle with.
    machine.sleep(451 * DAY);
    wait_until("both settle", || {
        let info = db.devices().list().expect("devices");
        info.iter().all(|it| it.level == DeviceLevel::Tree)
    });
    assert_eq!(names(&db), ["bus", "car"]);
}
