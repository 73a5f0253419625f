//! Backups: a directory of several, in which what they share is kept once.
//!
//! ```text
//! BACKUP/000001.backup     what the first one consists of: names, lengths, checksums
//!        000002.backup     the second
//!        files/            every file of any of them, named by its own name, length and checksum
//! ```
//!
//! A backup is a database closed cleanly at one moment: its tables, its graves and, with devices, its device table and
//! the part of the log that it needs. Tables never change and the log only grows, so files whose name, length and checksum
//! are there already are not copied again. Files are copied and never linked: a backup shares no block with the database.
//!
//! Invariants:
//! - a name in `files/` stands for whole, synced content; a `.backup` file for files that are all there. So what dies on
//!   its way, or for want of room, leaves earlier backups as they were and is itself not listed;
//! - nothing enters that does not check: the blocks of tables and of the log are verified before they are copied.
//!
//! [`Db::backup`](crate::Db::backup) makes one while the owner goes on writing; [`Backups`] does everything else, without a
//! database. The format: docs/formats/backup.md.

mod add;
mod manifest;
mod restore;
mod store;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;

pub(crate) use add::{Moment, SourceFile, add};
pub(crate) use manifest::Manifest;
pub(crate) use store::{Item, Store, Watch, read_through};

use crate::error::{Error, Result};
use crate::inspect::Problem;
use crate::storage::Storage;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One backup.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Backup {
    /// Its number: one more than that of the one before.
    pub number: u64,
    /// When it was made, by the wall clock: seconds since the Unix epoch.
    pub taken_at: u64,
    /// The last write that is in it.
    pub last_sequence: u64,
    /// The device extractor of the database, if it has one.
    pub extractor: Option<String>,
    /// How many files it consists of.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What there is.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Listing {
    /// The backups, the oldest first.
    pub backups: Vec<Backup>,
    /// Those of which the list of files cannot be read.
    pub damaged: Vec<Problem>,
}

/// A backup that was just made.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BackedUp {
    /// The backup.
    pub backup: Backup,
    /// How many of its files were not there before.
    pub new_files: u64,
    /// Their bytes.
    pub new_bytes: u64,
}

/// What a verification read.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Verified {
    /// The backups it looked at.
    pub backups: u64,
    /// Their files, each read once.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Files that are missing or damaged. Empty if all is sound.
    pub problems: Vec<Problem>,
}

/// What pruning removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Pruned {
    /// The numbers of the backups that went.
    pub backups: Vec<u64>,
    /// Files that no backup needs any more.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// How far long work has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read so far.
    pub done_bytes: u64,
    /// Bytes to be read.
    pub total_bytes: u64,
}

/// A directory of backups.
pub struct Backups {
    store: Store,
}

impl Backups {
    /// The backups in `dir`, which exists.
    ///
    /// # Errors
    /// [`Error::Incompatible`] if `dir` holds none and never did.
    pub fn open(storage: Arc<dyn Storage>, dir: impl AsRef<Path>) -> Result<Self> {
        let store = Store::new(storage, dir.as_ref())?;
        if !store.exists()? {
            return Err(Error::Incompatible {
                path: store.dir().to_owned(),
                reason: "there are no backups in it; check the path".into(),
            });
        }
        Ok(Self { store })
    }

    /// What there is.
    pub fn list(&self) -> Result<Listing> {
        let mut listing = Listing::default();
        for number in self.store.numbers()? {
            match self.store.manifest(number) {
                Ok(manifest) => listing.backups.push(manifest.info()),
                // Removed meanwhile.
                Err(error) if error.is_not_found() => {}
                Err(error) => listing.damaged.push(damage(error)?),
            }
        }
        Ok(listing)
    }

    /// Reads every file of backup `number`, or of all, and compares it with what was written.
    pub fn verify(
        &self,
        number: Option<u64>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Verified> {
        let mut verified = Verified::default();
        let mut items = BTreeSet::new();
        let numbers = match number {
            Some(number) => vec![number],
            None => self.store.numbers()?,
        };
        for number in numbers {
            match self.named(number) {
                Ok(manifest) => {
                    verified.backups += 1;
                    items.extend(manifest.items);
                }
                Err(error) => verified.problems.push(damage(error)?),
            }
        }
        let total_bytes = items.iter().map(|item| item.bytes).sum();
        for item in &items {
            let checked = self.store.check(item, &mut |bytes| {
                verified.bytes += bytes;
                progress(Progress {
                    done_bytes: verified.bytes,
                    total_bytes,
                });
            });
            match checked {
                Ok(()) => verified.files += 1,
                Err(error) => verified.problems.push(damage(error)?),
            }
        }
        Ok(verified)
    }

    /// Removes all but the newest `keep` backups, and the files that no remaining one needs.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for none to keep. [`Error::Corruption`] if a backup's list of files cannot be read: then
    /// its needs are unknown, and nothing is removed.
    pub fn prune(&self, keep: usize) -> Result<Pruned> {
        if keep == 0 {
            let reason = "pruning keeps at least one backup; remove the directory to remove all";
            return Err(Error::InvalidArgument(reason.into()));
        }
        let _lock = self.store.lock()?;
        let numbers = self.store.numbers()?;
        for &number in &numbers {
            self.store.manifest(number)?;
        }
        let going = &numbers[..numbers.len().saturating_sub(keep)];
        for &number in going {
            self.store.remove_manifest(number)?;
        }
        let (files, bytes) = self.store.sweep()?;
        Ok(Pruned {
            backups: going.to_vec(),
            files,
            bytes,
        })
    }

    /// Writes backup `number`, or the newest, to the new directory `target`, which is a database when it is complete and not
    /// before; every byte is verified on its way and read back.
    ///
    /// The database is the one that was backed up, at that moment: with devices it is the same engine towards others. It
    /// takes the place of one that is lost; beside one that lives, both would own the same devices.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `target` is not empty, or there is no such backup; [`Error::Corruption`] if anything of
    /// it is damaged. What was written is removed then.
    pub fn restore(
        &self,
        number: Option<u64>,
        target: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Backup> {
        let newest = || -> Result<u64> {
            let newest = self.store.numbers()?.last().copied();
            newest.ok_or_else(|| Error::InvalidArgument("there is no backup to restore".into()))
        };
        let number = number.map_or_else(newest, Ok)?;
        let manifest = self.named(number)?;
        restore::restore(&self.store, &manifest, target, progress)?;
        Ok(manifest.info())
    }

    /// The directory.
    pub fn path(&self) -> &PathBuf {
        self.store.dir()
    }

    fn named(&self, number: u64) -> Result<Manifest> {
        self.store.manifest(number).map_err(|error| {
            if error.is_not_found() {
                let dir = self.store.dir().display();
                return Error::InvalidArgument(format!("there is no backup {number} in {dir}"));
            }
            error
        })
    }
}

/// The damage, if the error tells of one.
fn damage(error: Error) -> Result<Problem> {
    let Error::Corruption {
        path,
        offset,
        reason,
    } = error
    else {
        return Err(error);
    };
    let file = path.file_name().unwrap_or_default();
    Ok(Problem {
        file: file.to_string_lossy().into_owned(),
        offset,
        reason,
    })
}
