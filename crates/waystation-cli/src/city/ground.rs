//! The directory that the engines work in: taken only if it is empty or an earlier run's, and given back.

use super::error::CityError;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Lies in a directory that a run may clear.
const MARK: &str = "CITY";

/// A directory of ours, removed with all that is in it when this goes.
pub(crate) struct Ground {
    directory: PathBuf,
    is_kept: bool,
    /// Locked, so that no other run clears the directory meanwhile.
    _mark: File,
}

impl Ground {
    /// Takes `directory`.
    pub(crate) fn take(directory: &Path, is_kept: bool) -> Result<Self, CityError> {
        if directory.as_os_str().is_empty() {
            return Err(CityError::Usage("--dir is empty; name a directory".into()));
        }
        match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(CityError::file("open", directory)(error)),
            Ok(mut entries) => {
                if let Ok(mark) = File::open(directory.join(MARK)) {
                    lock(&mark, directory)?;
                    fs::remove_dir_all(directory).map_err(CityError::file("clear", directory))?;
                } else if entries.next().is_some() {
                    return Err(CityError::Usage(format!(
                        "{} holds something that is no city's; name another --dir",
                        directory.display()
                    )));
                }
            }
        }
        fs::create_dir_all(directory).map_err(CityError::file("create", directory))?;
        Ok(Self {
            directory: directory.to_owned(),
            is_kept,
            _mark: mark(directory)?,
        })
    }

    /// The directory of the engines of one kind.
    pub(crate) fn of(&self, engine: &str) -> PathBuf {
        self.directory.join(engine)
    }

    /// Removes the directory of the engines of one kind, unless all is kept.
    pub(crate) fn clear(&self, engine: &str) {
        if !self.is_kept {
            let _ = fs::remove_dir_all(self.of(engine));
        }
    }
}

/// Marks `directory` as one that a run may clear, and as one that is in use.
fn mark(directory: &Path) -> Result<File, CityError> {
    let path = directory.join(MARK);
    let text = "`waystation city` works here and clears this directory.\n";
    let file = File::create(&path).map_err(CityError::file("write", &path))?;
    lock(&file, directory)?;
    (&file)
        .write_all(text.as_bytes())
        .map_err(CityError::file("write", &path))?;
    Ok(file)
}

fn lock(mark: &File, directory: &Path) -> Result<(), CityError> {
    mark.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => CityError::Usage(format!(
            "another run works in {}; name another --dir",
            directory.display()
        )),
        TryLockError::Error(error) => CityError::file("lock", directory)(error),
    })
}

impl Drop for Ground {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_directory_or_a_citys_is_taken() {
        let outer = tempfile::tempdir().unwrap();
        let directory = outer.path().join("a/b");
        drop(Ground::take(&directory, true).unwrap());
        fs::write(directory.join("old"), "old").unwrap();
        let again = Ground::take(&directory, false).unwrap();
        assert!(
            !directory.join("old").exists(),
            "an earlier city's is cleared"
        );
        let beside = Ground::take(&directory, false).err().unwrap();
        assert!(beside.to_string().contains("another run"), "{beside}");
        fs::create_dir_all(again.of("waystation")).unwrap();
        again.clear("waystation");
        assert!(!again.of("waystation").exists());
        drop(again);
        assert!(!directory.exists());
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("letter"), "dear").unwrap();
        let refused = Ground::take(&directory, false).err().unwrap();
        assert!(refused.to_string().contains("no city's"), "{refused}");
        assert!(directory.join("letter").exists());
        assert!(Ground::take(Path::new(""), false).is_err());
        assert!(Ground::take(&directory.join("letter/x"), false).is_err());
    }
}
