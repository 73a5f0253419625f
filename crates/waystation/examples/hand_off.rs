//! A device moves from one engine to another, which owns it from then on. The stream may as well go through a socket.

use std::error::Error;
use std::path::Path;
use waystation::{
    Db, DeviceError, DeviceOptions, Durability, Error as DbError, Extractor, Options,
};

fn open(path: &Path) -> waystation::Result<Db> {
    let options = Options {
        devices: Some(DeviceOptions::new(Extractor::until(b':'))),
        ..Options::default()
    };
    Db::open(path, options)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let north = open(&directory.path().join("north"))?;
    let south = open(&directory.path().join("south"))?;
    north.put(b"car17:speed:0001", b"50")?;

    // 1. The source freezes the device and gives its stream; it answers reads, and no writes.
    let stream = north
        .devices()
        .export(b"car17", "south", Durability::PowerLoss)?;
    let refused = north.put(b"car17:speed:0002", b"52");
    assert!(matches!(
        refused,
        Err(DbError::Device(DeviceError::Moving { .. }))
    ));
    // 2. The destination takes all of it at once, and answers with a receipt.
    let receipt = south.devices().admit(stream)?;
    // 3. The receipt lets the device depart at the source.
    north.devices().complete(&receipt)?;

    assert_eq!(south.get(b"car17:speed:0001")?.as_deref(), Some(&b"50"[..]));
    assert_eq!(north.prefix("car17:").count(), 0);
    let moved_to = north.devices().moved_to(b"car17")?;
    assert_eq!(moved_to.as_deref(), Some("south"));

    // A device that is not wanted is refused, and stays.
    south.put(b"car18:speed:0001", b"70")?;
    let stream = south
        .devices()
        .export(b"car18", "north", Durability::PowerLoss)?;
    let refusal = north.devices().refuse(stream.ticket())?;
    drop(stream);
    south.devices().abort(&refusal)?;
    south.put(b"car18:speed:0002", b"72")?;
    println!("car17 is in the south; car18 stays there");

    north.close()?;
    south.close()?;
    Ok(())
}
