//! Keys with a time to live, and a snapshot that goes on seeing them.

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;
use waystation::{Db, Options, PutOptions};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let db = Db::open(directory.path(), Options::default())?;

    db.put(b"session:16", b"stays")?;
    let short = PutOptions::expiring(Duration::from_millis(200));
    db.put_with(b"session:17", b"goes", short)?;
    let before = db.snapshot();

    sleep(Duration::from_millis(250));
    assert_eq!(db.get(b"session:17")?, None);
    assert_eq!(db.prefix("session:").count(), 1);
    assert_eq!(
        db.get_at(b"session:17", &before)?.as_deref(),
        Some(&b"goes"[..])
    );

    // A later put is not touched by the earlier time.
    db.put(b"session:17", b"is back")?;
    assert_eq!(db.get(b"session:17")?.as_deref(), Some(&b"is back"[..]));
    println!("session:17 expired and is back");

    db.close()?;
    Ok(())
}
