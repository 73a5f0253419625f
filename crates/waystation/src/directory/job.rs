//! The directory of one run of a job: made by the engine, filled by the worker, removed by the engine.

use crate::error::Result;
use crate::storage::Storage;
use std::path::{Path, PathBuf};
use waystation_format::compaction::{JobId, is_job_directory_name, job_directory_name};

/// The directory of one run of a job, removed when this is dropped.
pub(crate) struct JobDirectory<'a> {
    storage: &'a dyn Storage,
    path: PathBuf,
}

impl<'a> JobDirectory<'a> {
    /// Makes the one of this run in the directory `dir` of the database.
    pub(crate) fn create(
        storage: &'a dyn Storage,
        dir: &Path,
        id: JobId,
        attempt: u64,
    ) -> Result<Self> {
        let path = dir.join(job_directory_name(id, attempt));
        storage.create_dir(&path)?;
        Ok(Self { storage, path })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for JobDirectory<'_> {
    fn drop(&mut self) {
        if let Err(error) = remove(self.storage, &self.path) {
            log::warn!("the directory of a compaction job stays until the next opening: {error}");
        }
    }
}

/// Removes what jobs left in the directory `dir` of a database that no process has open. What cannot be removed, as when
/// a worker goes on with a job that no engine waits for, stays.
pub(crate) fn remove_job_directories(storage: &dyn Storage, dir: &Path) -> Result<()> {
    for entry in storage.list(dir)? {
        if entry.is_dir
            && is_job_directory_name(&entry.name)
            && let Err(error) = remove(storage, &dir.join(&entry.name))
        {
            log::warn!("the directory of a compaction job stays until the next opening: {error}");
        }
    }
    Ok(())
}

fn remove(storage: &dyn Storage, path: &Path) -> Result<()> {
    for entry in storage.list(path)? {
        storage.remove(&path.join(&entry.name))?;
    }
    storage.remove_dir(path)
}
