//! Removing a database: its files by their names, and the directory if nothing else is in it.

use super::{FAST_NAME, LOCK_NAME, is_of_database, remove_job_directories};
use crate::error::Result;
use crate::storage::Storage;
use std::path::Path;
use waystation_format::filename::CURRENT;

/// Removes the database in `dir`; see [`crate::Db::destroy`].
pub(crate) fn destroy(storage: &dyn Storage, dir: &Path) -> Result<()> {
    let entries = match storage.list(dir) {
        Err(error) if error.is_not_found() => return Ok(()),
        entries => entries?,
    };
    let lock = storage.lock(&dir.join(LOCK_NAME))?;
    let is_file = |entry: &&crate::storage::Entry| {
        !entry.is_dir && entry.name != LOCK_NAME && is_of_database(&entry.name)
    };
    remove_job_directories(storage, dir)?;
    // What makes it a database goes first: half of one is never taken for a whole one.
    let (first, rest): (Vec<_>, Vec<_>) = entries
        .iter()
        .filter(is_file)
        .partition(|entry| entry.name == CURRENT);
    // The file that leads to others goes after them, in whatever order a power cut undoes removals.
    let (last, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|it| it.name == FAST_NAME);
    let remove = |entry: &crate::storage::Entry| storage.remove(&dir.join(&entry.name));
    first.into_iter().chain(rest).try_for_each(remove)?;
    for entry in last {
        storage.sync_dir(dir)?;
        remove(entry)?;
        storage.sync_dir(dir)?;
    }
    storage.remove(&dir.join(LOCK_NAME))?;
    drop(lock);
    if storage.list(dir)?.is_empty() {
        storage.remove_dir(dir)?;
    }
    Ok(())
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
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
