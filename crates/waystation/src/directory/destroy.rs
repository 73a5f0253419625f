//! Removing a database: its files by their names, and the directory if nothing else is in it.

use super::Db;
use super::open::CURRENT_NAME;
use crate::directory::{LOCK_NAME, is_of_database};
use crate::error::Result;
use crate::storage::{OsStorage, Storage};
use std::path::Path;

impl Db {
    /// Removes the database in `path` with all it holds. What else is in the directory stays, and then so does
    /// the directory. Nothing happens if there is no directory.
    ///
    /// # Errors
    /// [`Error::Locked`](crate::Error::Locked) if somebody has it open; [`Error::Io`](crate::Error::Io): what is
    /// left then is no database any more, and a second attempt removes the rest.
    pub fn destroy(path: impl AsRef<Path>) -> Result<()> {
        destroy(&*OsStorage::new(), path.as_ref())
    }
}

fn destroy(storage: &dyn Storage, dir: &Path) -> Result<()> {
    let entries = match storage.list(dir) {
        Err(error) if error.is_not_found() => return Ok(()),
        entries => entries?,
    };
    let lock = storage.lock(&dir.join(LOCK_NAME))?;
    let is_file = |entry: &&crate::storage::Entry| {
        !entry.is_dir && entry.name != LOCK_NAME && is_of_database(&entry.name)
    };
    // What makes it a database goes first: half of one is never taken for a whole one.
    let (first, rest): (Vec<_>, Vec<_>) = entries
        .iter()
        .filter(is_file)
        .partition(|entry| entry.name == CURRENT_NAME);
    for entry in first.into_iter().chain(rest) {
        storage.remove(&dir.join(&entry.name))?;
    }
    storage.remove(&dir.join(LOCK_NAME))?;
    drop(lock);
    if storage.list(dir)?.is_empty() {
        storage.remove_dir(dir)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{Db, Error, Extractor, Options};
    use std::fs;

    #[test]
    fn a_database_goes_with_its_directory() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("db");
        let options = Options {
            devices: Some(crate::DeviceOptions::new(Extractor::until(b':'))),
            ..Options::default()
        };
        let db = Db::open(&dir, options).unwrap();
        db.put(b"car:1", b"x").unwrap();
        db.put(b"plain", b"y").unwrap();
        db.flush().unwrap();
        assert!(matches!(Db::destroy(&dir), Err(Error::Locked { .. })));
        assert!(db.get(b"plain").unwrap().is_some());
        db.close().unwrap();
        Db::destroy(&dir).unwrap();
        assert!(!dir.exists());
        Db::destroy(&dir).unwrap();
    }

    #[test]
    fn what_is_not_ours_stays() {
        let dir = tempfile::tempdir().unwrap();
        Db::open(dir.path(), Options::default())
            .unwrap()
            .close()
            .unwrap();
        fs::write(dir.path().join("notes.txt"), "mine").unwrap();
        Db::destroy(dir.path()).unwrap();
        let names: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["notes.txt"]);
    }
}
