//! Open a database, write, read at a moment, scan from both ends, close.

use std::error::Error;
use waystation::{Db, Durability, Options, WriteBatch};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let db = Db::open(directory.path(), Options::default())?;

    db.put(b"car17:speed:0001", b"50")?; // survives the death of the process
    let mut batch = WriteBatch::new();
    batch.put(b"car17:speed:0002", b"52");
    batch.delete(b"car16:speed:0001");
    db.write(&batch, Durability::PowerLoss)?; // all or nothing, and survives a power cut
    assert_eq!(db.get(b"car17:speed:0002")?.as_deref(), Some(&b"52"[..]));

    let before = db.snapshot();
    db.put(b"car17:speed:0003", b"47")?;
    assert_eq!(db.prefix("car17:").count(), 3);
    assert_eq!(db.prefix("car17:").at(&before).count(), 2);

    for entry in db.range("car17:speed:0001".."car18") {
        let (key, value) = entry?;
        println!("{} = {}", key.escape_ascii(), value.escape_ascii());
    }
    let newest = db.prefix("car17:speed:").next_back().transpose()?;
    assert_eq!(newest, Some((b"car17:speed:0003".to_vec(), b"47".to_vec())));

    db.close()?;
    Ok(())
}
