//! Where the data lies: a directory of its own below the one that was named, gone at the end.

use crate::error::{Error, Result};
use crate::interrupt;
use rustix::fs::{statfs, syncfs};
use std::fs;
use std::path::{Path, PathBuf};

const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

/// A directory on real storage. Dropping it removes it with all that is in it.
#[derive(Debug)]
pub(crate) struct Place {
    directory: PathBuf,
    file_system: &'static str,
}

impl Place {
    /// A fresh directory below `data_directory`, which is made if missing. Refused in memory: there the
    /// comparison would be of something else.
    pub(crate) fn new(data_directory: &Path) -> Result<Self> {
        let file_system = file_system_of(data_directory)?;
        if matches!(file_system, TMPFS | RAMFS) {
            return Err(Error::Refused(format!(
                "{} lies in memory ({}), where there is no device to measure: name a directory on storage with \
                 --data-dir",
                data_directory.display(),
                file_system_name(file_system)
            )));
        }
        let failed = |source| Error::io("create a directory below", data_directory, source);
        fs::create_dir_all(data_directory).map_err(failed)?;
        let directory = fs::canonicalize(data_directory).map_err(failed)?;
        let directory = directory.join(format!("bench-{}", std::process::id()));
        interrupt::register_directory(&directory);
        fs::create_dir_all(&directory).map_err(failed)?;
        let file_system = file_system_name(file_system);
        Ok(Self {
            directory,
            file_system,
        })
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Waits until what was written so far has reached the device: what one engine left to the page cache is
    /// not to be paid for by the next measurement.
    pub(crate) fn settle(&self) -> Result<()> {
        let failed = |source| Error::io("sync", &self.directory, source);
        let directory = fs::File::open(&self.directory).map_err(failed)?;
        syncfs(&directory).map_err(|error| failed(error.into()))
    }

    /// The file system it is on.
    pub(crate) fn file_system(&self) -> &'static str {
        self.file_system
    }

    /// Removes a database in it.
    pub(crate) fn clear(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        match fs::remove_dir_all(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("remove", path, source))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
        interrupt::forget_directory(&self.directory);
    }
}

/// The number of the file system that holds `path`, or would if it were made.
fn file_system_of(path: &Path) -> Result<u64> {
    let failed = |error| Error::io("ask for the file system of", path, error);
    let absolute = std::path::absolute(path).map_err(failed)?;
    let existing = absolute.ancestors().find(|ancestor| ancestor.exists());
    let status = statfs(existing.unwrap_or(&absolute)).map_err(|error| failed(error.into()))?;
    // Some platforms have it signed.
    Ok(u64::try_from(status.f_type).unwrap_or(0))
}

fn file_system_name(magic: u64) -> &'static str {
    match magic {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0xf2f5_2010 => "f2fs",
        0x2fc1_2fc1 => "zfs",
        0x794c_7630 => "overlay",
        TMPFS => "tmpfs",
        RAMFS => "ramfs",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_refused_and_left_as_it_was() {
        let memory = Path::new("/dev/shm");
        if !file_system_of(memory).is_ok_and(|number| number == TMPFS) {
            return;
        }
        let directory = tempfile::tempdir_in(memory).expect("a directory in memory");
        let error = Place::new(&directory.path().join("a/b")).expect_err("it lies in memory");
        assert!(error.to_string().contains("--data-dir"), "{error}");
        let left = fs::read_dir(directory.path()).expect("still there").count();
        assert_eq!(left, 0);
    }

    #[test]
    fn it_goes_with_everything_in_it() {
        let binary = std::env::current_exe().expect("a running binary");
        let beside = binary.parent().expect("a directory");
        let directory = tempfile::tempdir_in(beside).expect("a directory");
        let Ok(place) = Place::new(&directory.path().join("made")) else {
            return; // the build directory itself lies in memory
        };
        fs::create_dir(place.path("db")).expect("a directory in it");
        fs::write(place.path("db/file"), "x").expect("a file in it");
        place.clear("db").expect("removed");
        place.clear("db").expect("nothing to remove is fine");
        fs::write(place.path("file"), "x").expect("a file in it");
        let path = place.path("");
        drop(place);
        assert!(!path.exists());
    }
}
