//! Devices: data that arrives fast, stays a while, and leaves in one call.

use std::error::Error;
use std::time::Duration;
use waystation::{Db, DeviceLevel, DeviceOptions, Durability, Extractor, Options, WriteBatch};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let devices = DeviceOptions {
        residency: Duration::from_secs(600),
        ..DeviceOptions::new(Extractor::until(b':'))
    };
    let options = Options {
        devices: Some(devices),
        ..Options::default()
    };
    let db = Db::open(directory.path(), options)?;

    // The readings of a car that arrive together are one batch.
    let mut batch = WriteBatch::new();
    for car in ["car16", "car17"] {
        for second in 0..1_000 {
            batch.put(format!("{car}:speed:{second:04}").as_bytes(), b"50");
            if batch.len() == 100 {
                db.write(&batch, Durability::ProcessCrash)?;
                batch.clear();
            }
        }
    }
    for device in db.devices().list()? {
        let name = device.name.escape_ascii();
        println!(
            "{name}: {} records in the {:?} level",
            device.records, device.level
        );
    }

    // A car that stays moves into the tree, once.
    db.devices().settle(b"car16")?;
    assert_eq!(db.devices().list()?[0].level, DeviceLevel::Tree);
    assert_eq!(db.prefix("car16:").count(), 1_000);

    // A car that leaves takes its data along, at the cost of one record.
    db.devices().depart(b"car17")?;
    assert_eq!(db.prefix("car17:").count(), 0);

    db.close()?;
    Ok(())
}
