//! Two backups that share their files, a check of all their bytes, and a restore.

use std::error::Error;
use waystation::backup::Backups;
use waystation::storage::OsStorage;
use waystation::{Db, Options};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let backups = directory.path().join("backups");
    let db = Db::open(directory.path().join("cars"), Options::default())?;

    for number in 0..10_000 {
        db.put(format!("car{number:05}").as_bytes(), b"red")?;
    }
    let first = db.backup(&backups, &mut |_| {})?;
    db.put(b"car00001", b"blue")?;
    let second = db.backup(&backups, &mut |_| {})?; // writers may go on meanwhile
    println!(
        "backup {}: {} bytes; backup {}: {} new bytes",
        first.backup.number, first.new_bytes, second.backup.number, second.new_bytes
    );
    db.close()?;

    let backups = Backups::open(OsStorage::new(), &backups)?;
    let verified = backups.verify(None, &mut |_| {})?;
    assert_eq!((verified.backups, verified.problems.len()), (2, 0));

    let restored = directory.path().join("restored");
    backups.restore(Some(first.backup.number), &restored, &mut |_| {})?;
    let db = Db::open(&restored, Options::default())?;
    assert_eq!(db.get(b"car00001")?.as_deref(), Some(&b"red"[..]));
    assert_eq!(db.prefix("car").count(), 10_000);
    db.close()?;
    Ok(())
}
