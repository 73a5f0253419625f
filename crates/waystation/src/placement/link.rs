//! Which two directories belong together, where the ring, segments of the log and tables lie in the fast one.
//!
//! ```text
//!   main directory                       fast directory
//!   FAST: id, path of the fast one       log/OWNER: id, path of the main one
//!   journal-0000000007.seg               log/journal-0000000008.seg
//!                                        log/journal.ring
//!   000009.ldb                           tables/000010.ldb
//! ```
//!
//! Both files name the same random id. `OWNER` is durable before `FAST`, and `FAST` before the first file; they go in the
//! reverse order. So a file in the fast directory is never without a `FAST` that leads to it, and `FAST` never leads to
//! the files of another database.

use super::text;
use crate::directory::{FAST_DRAFT, FAST_NAME, LOCK_NAME, RING_NAME, segment_number};
use crate::error::{Error, Result};
use crate::storage::{DirectoryLock, Entry, Storage};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use waystation_format::filename::{self, FileKind};

/// Segments and the ring lie in this directory within the fast one.
const LOG_DIR: &str = "log";
/// Tables lie in this one.
const TABLES_DIR: &str = "tables";
const OWNER_NAME: &str = "OWNER";
const OWNER_DRAFT: &str = "OWNER.new";

/// The content of `FAST` and of `OWNER`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Link {
    /// The same in both directories: 32 hexadecimal digits.
    id: String,
    /// The other directory.
    directory: PathBuf,
}

impl Link {
    /// What the database in `dir` says of its fast directory. `None`: no file of it lies in one.
    pub(super) fn read(storage: &dyn Storage, dir: &Path) -> Result<Option<Self>> {
        text::read(storage, &dir.join(FAST_NAME))
    }

    /// The fast directory.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the segments lie.
    pub(super) fn log_dir(&self) -> PathBuf {
        self.directory.join(LOG_DIR)
    }

    /// Where the tables lie.
    pub(super) fn tables_dir(&self) -> PathBuf {
        self.directory.join(TABLES_DIR)
    }

    /// Whether no file of the database lies in the fast directory.
    pub(super) fn is_empty(&self, storage: &dyn Storage) -> Result<bool> {
        let of_log = files_of_log(storage, &self.log_dir())?;
        Ok(of_log.is_empty() && tables(storage, &self.tables_dir())?.is_empty())
    }

    /// Makes the fast directory `fast` part of the database in `dir`. It is locked from the return on.
    ///
    /// # Errors
    /// [`Error::Locked`] and [`Error::Incompatible`] if another database has files there; [`Error::Io`].
    pub(super) fn begin(
        storage: &dyn Storage,
        dir: &Path,
        fast: &Path,
    ) -> Result<(Self, Box<dyn DirectoryLock>)> {
        let halves = [storage.random(), storage.random()];
        let link = Self {
            id: halves.map(|half| format!("{half:016x}")).concat(),
            directory: fast.to_owned(),
        };
        let log_dir = link.log_dir();
        storage.create_dir(&log_dir)?;
        let lock = storage.lock(&log_dir.join(LOCK_NAME))?;
        let owner: Option<Self> = text::read(storage, &log_dir.join(OWNER_NAME))
            .ok()
            .flatten();
        if !link.is_empty(storage)? {
            return Err(link.taken_by(owner.as_ref()));
        }
        if let Some(other) =
            owner.filter(|owner| owner.directory != dir && owner.is_linked(storage))
        {
            return Err(link.kept_for(&other));
        }
        let owner = Self {
            id: link.id.clone(),
            directory: dir.to_owned(),
        };
        text::write(storage, &log_dir, (OWNER_DRAFT, OWNER_NAME), &owner)?;
        text::write(storage, dir, (FAST_DRAFT, FAST_NAME), &link)?;
        Ok((link, lock))
    }

    /// Whether the database that this `OWNER` names still leads here.
    fn is_linked(&self, storage: &dyn Storage) -> bool {
        let link = Self::read(storage, &self.directory).ok().flatten();
        link.is_some_and(|link| link.id == self.id)
    }

    /// The refusal of a directory in which files of `owner` lie.
    fn taken_by(&self, owner: Option<&Self>) -> Error {
        let other = owner.map_or_else(
            || "a database that is not known".to_owned(),
            |owner| format!("the database in {}", owner.directory.display()),
        );
        Error::Incompatible {
            path: self.directory.clone(),
            reason: format!(
                "segments or tables of {other} lie in it; name another fast directory, or remove {} and {} if that \
                 database is gone",
                self.log_dir().display(),
                self.tables_dir().display()
            ),
        }
    }

    /// The refusal of a directory to which `owner` leads without a file in it.
    fn kept_for(&self, owner: &Self) -> Error {
        let other = owner.directory.display();
        Error::Incompatible {
            path: self.directory.clone(),
            reason: format!(
                "it is the fast directory of the database in {other}; name another one, or open that database once \
                 without a fast directory"
            ),
        }
    }

    /// The same link to the fast directory `moved`, if the files lie there now. `FAST` says so from the return on.
    pub(super) fn moved_to(
        &self,
        storage: &dyn Storage,
        dir: &Path,
        moved: &Path,
    ) -> Result<Option<Self>> {
        let link = Self {
            id: self.id.clone(),
            directory: moved.to_owned(),
        };
        if link.check(storage).is_err() {
            return Ok(None);
        }
        text::write(storage, dir, (FAST_DRAFT, FAST_NAME), &link)?;
        Ok(Some(link))
    }

    /// Checks that the fast directory is there and is this database's.
    pub(super) fn check(&self, storage: &dyn Storage) -> Result<()> {
        let refuse = |reason: &str| Error::Incompatible {
            path: self.directory.clone(),
            reason: format!(
                "{reason}, and a part of the database lies in its fast directory; mount the device, or name the \
                 directory that has it now as the fast one. A repair saves what the main directory holds",
            ),
        };
        let owner: Option<Self> = text::read(storage, &self.log_dir().join(OWNER_NAME))?;
        match owner {
            None => Err(refuse("it is not there or is empty")),
            Some(owner) if owner.id != self.id => Err(refuse("it belongs to another database")),
            Some(_) => Ok(()),
        }
    }

    /// Separates the directories again: no file lies in the fast one.
    pub(super) fn end(&self, storage: &dyn Storage, dir: &Path) -> Result<()> {
        // A file whose removal a power cut undoes would have no `FAST` that leads to it.
        storage.sync_dir(&self.log_dir())?;
        match storage.sync_dir(&self.tables_dir()) {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        storage.remove(&dir.join(FAST_NAME))?;
        storage.sync_dir(dir)?;
        self.leave(storage)
    }

    /// Gives the fast directory up, to which no `FAST` leads any more.
    pub(super) fn leave(&self, storage: &dyn Storage) -> Result<()> {
        storage.remove(&self.log_dir().join(OWNER_NAME))
    }
}

/// The segments and the ring in `log_dir`.
pub(super) fn files_of_log(storage: &dyn Storage, log_dir: &Path) -> Result<Vec<Entry>> {
    let mut entries = storage.list(log_dir)?;
    entries.retain(|entry| entry.name == RING_NAME || segment_number(&entry.name).is_some());
    Ok(entries)
}

/// The tables in `tables_dir`, which may not be there.
pub(super) fn tables(storage: &dyn Storage, tables_dir: &Path) -> Result<Vec<Entry>> {
    let mut entries = match storage.list(tables_dir) {
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        listed => listed?,
    };
    entries.retain(|entry| is_table(&entry.name));
    Ok(entries)
}

/// Whether `name` is that of a table.
pub(super) fn is_table(name: &str) -> bool {
    matches!(filename::parse(name), Some(FileKind::Table(_)))
}

/// Takes the lock of the files in `link`'s directory.
pub(super) fn lock_files(storage: &dyn Storage, link: &Link) -> Result<Box<dyn DirectoryLock>> {
    storage.lock(&link.log_dir().join(LOCK_NAME))
}
