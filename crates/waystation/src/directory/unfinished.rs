//! A database that is being made of another: under another name until all of it is there.
//!
//! A directory is a database from its first moment on, as opening it makes one of it. So a copy is made beside its
//! place, and renamed when it is whole, synced and closed. What a death or a power cut leaves has a name that says what it
//! is, and the place itself stays free.

use crate::error::{Error, Result};
use crate::storage::Storage;
use std::path::{Path, PathBuf};

/// What the name of a copy that is not whole ends with.
const ENDING: &str = ".unfinished";

/// A directory that is being made. Dropped without [`Unfinished::finish`] it is removed, as far as that is possible.
pub(crate) struct Unfinished<'a> {
    storage: &'a dyn Storage,
    target: &'a Path,
    dir: PathBuf,
    is_finished: bool,
}

impl<'a> Unfinished<'a> {
    /// Begins the one that is to become `target`, which does not exist or is empty.
    pub(crate) fn begin(storage: &'a dyn Storage, target: &'a Path) -> Result<Self> {
        refuse_used(storage, target)?;
        // Without a slash at its end.
        let mut name = target.components().as_path().as_os_str().to_owned();
        name.push(ENDING);
        let dir = PathBuf::from(name);
        if storage.list(&dir).is_ok_and(|entries| !entries.is_empty()) {
            let reason = format!(
                "{} is there, of an attempt that was cut short; remove it, or name another directory",
                dir.display()
            );
            return Err(Error::InvalidArgument(reason));
        }
        storage.create_dir(&dir)?;
        Ok(Self {
            storage,
            target,
            dir,
            is_finished: false,
        })
    }

    /// Where it is being made.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Gives it its name: durable on return. All that is in it is synced.
    pub(crate) fn finish(mut self) -> Result<()> {
        if let Err(error) = self.storage.remove_dir(self.target)
            && !error.is_not_found()
        {
            return Err(error);
        }
        self.storage.rename(&self.dir, self.target)?;
        self.is_finished = true;
        sync_parent(self.storage, self.target)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        for entry in self.storage.list(&self.dir).unwrap_or_default() {
            let _ = self.storage.remove(&self.dir.join(&entry.name));
        }
        let _ = self.storage.remove_dir(&self.dir);
    }
}

/// Makes the name of `path` durable.
pub(crate) fn sync_parent(storage: &dyn Storage, path: &Path) -> Result<()> {
    match path.parent().filter(|it| !it.as_os_str().is_empty()) {
        Some(parent) => storage.sync_dir(parent),
        None => storage.sync_dir(Path::new(".")),
    }
}

/// Refuses a target that is not empty.
pub(crate) fn refuse_used(storage: &dyn Storage, target: &Path) -> Result<()> {
    match storage.list(target) {
        Ok(entries) if !entries.is_empty() => {
            let reason = format!("{} is not empty; name a new directory", target.display());
            Err(Error::InvalidArgument(reason))
        }
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
