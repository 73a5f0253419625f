//! The files of a directory of backups: named by what they hold, whole or not there.

use super::Progress;
use super::manifest::{Manifest, ManifestError};
use crate::directory::{read_file, replace_file};
use crate::error::{Error, Result};
use crate::storage::{Area, DirectoryLock, File, OpenMode, Storage, Transfer};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use waystation_format::checksum;

/// How much is read at a time.
const CHUNK_BYTES: usize = 1 << 20;
const FILES: &str = "files";
const LOCK: &str = "LOCK";
const SUFFIX: &str = ".backup";
/// What a file is called while it is written.
const DRAFT: &str = "draft";

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Item {
    /// Its name in the database directory.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// The crc32c of all of it.
    pub(crate) checksum: u32,
}

impl Item {
    /// Its name among the files of all backups.
    fn stored_name(&self) -> String {
        format!("{}-{}-{:08x}", self.name, self.bytes, self.checksum)
    }
}

/// A directory of backups.
pub(crate) struct Store {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    files: PathBuf,
}

impl Store {
    pub(crate) fn new(storage: Arc<dyn Storage>, dir: &Path) -> Result<Self> {
        if dir.as_os_str().is_empty() {
            let reason = "the path of the backups is empty; name a directory";
            return Err(Error::InvalidArgument(reason.into()));
        }
        Ok(Self {
            storage,
            dir: dir.to_owned(),
            files: dir.join(FILES),
        })
    }

    pub(crate) fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    pub(crate) fn dir(&self) -> &PathBuf {
        &self.dir
    }

    /// Whether there are backups, or were.
    pub(crate) fn exists(&self) -> Result<bool> {
        let entries = self.storage.list(&self.dir)?;
        Ok(entries
            .iter()
            .any(|entry| entry.is_dir && entry.name == FILES))
    }

    /// Makes the directory if it is missing; one with anything else in it is refused.
    pub(crate) fn prepare(&self) -> Result<()> {
        let entries = match self.storage.list(&self.dir) {
            Err(error) if error.is_not_found() => Vec::new(),
            entries => entries?,
        };
        let is_ours = entries.iter().any(|entry| entry.name == FILES);
        if !is_ours && entries.iter().any(|entry| entry.name != LOCK) {
            let dir = self.dir.display();
            let reason = format!("{dir} holds something else than backups; name a new directory");
            return Err(Error::InvalidArgument(reason));
        }
        self.storage.create_dir(&self.files)
    }

    /// Held while files are added or removed.
    pub(crate) fn lock(&self) -> Result<Box<dyn DirectoryLock>> {
        self.storage.lock(&self.dir.join(LOCK))
    }

    /// The numbers of all backups, ascending.
    pub(crate) fn numbers(&self) -> Result<Vec<u64>> {
        let entries = self.storage.list(&self.dir)?;
        let mut numbers: Vec<u64> = entries
            .iter()
            .filter_map(|entry| entry.name.strip_suffix(SUFFIX)?.parse().ok())
            .filter(|number| entries.iter().any(|it| it.name == manifest_name(*number)))
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// What backup `number` consists of.
    pub(crate) fn manifest(&self, number: u64) -> Result<Manifest> {
        let path = self.dir.join(manifest_name(number));
        let content = read_file(&*self.storage, &path)?;
        match Manifest::decode(&content) {
            Ok(manifest) if manifest.number != number => {
                let reason = format!("it is the list of backup {}", manifest.number);
                Err(Error::corruption(path, 0, reason))
            }
            Ok(manifest) => Ok(manifest),
            Err(ManifestError::Damaged(offset, reason)) => {
                Err(Error::corruption(path, offset, reason))
            }
            Err(ManifestError::Newer(format)) => Err(Error::Incompatible {
                path,
                reason: format!(
                    "it has format {format}; use the version that wrote it, or a newer one"
                ),
            }),
        }
    }

    /// Lists a backup, of which all files are there: durable on return.
    pub(crate) fn add_manifest(&self, manifest: &Manifest) -> Result<()> {
        self.storage.sync_dir(&self.files)?;
        let name = manifest_name(manifest.number);
        replace_file(&*self.storage, &self.dir, DRAFT, &name, &manifest.encode())
    }

    /// Takes a backup off the list: durable on return.
    pub(crate) fn remove_manifest(&self, number: u64) -> Result<()> {
        self.storage.remove(&self.dir.join(manifest_name(number)))?;
        self.storage.sync_dir(&self.dir)
    }

    /// Whether a file is there.
    pub(crate) fn has(&self, item: &Item) -> Result<bool> {
        let path = self.files.join(item.stored_name());
        match self.open(&path) {
            Ok(file) => Ok(file.size()? == item.bytes),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Adds the first bytes of `source`, which are `item`'s; `heard` hears of each chunk.
    pub(crate) fn add(
        &self,
        item: &Item,
        source: &dyn File,
        heard: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let draft = self.files.join(DRAFT);
        let target = self.create(&draft)?;
        let mut at = 0;
        let checksum = read_through(source, item.bytes, &mut |chunk| {
            target.write_at(chunk, at)?;
            at += chunk.len() as u64;
            heard(chunk.len() as u64);
            Ok(())
        })?;
        if checksum != item.checksum {
            let reason = "it changed while it was copied";
            return Err(Error::corruption(source.path(), 0, reason));
        }
        self.finish(&*target, &draft, item)
    }

    /// Adds a file of which the bytes are at hand.
    pub(crate) fn add_bytes(&self, item: &Item, content: &[u8]) -> Result<()> {
        let draft = self.files.join(DRAFT);
        let target = self.create(&draft)?;
        target.write_at(content, 0)?;
        self.finish(&*target, &draft, item)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.storage
            .open(path, OpenMode::Create, Transfer::Buffered, Area::Tables)
    }

    fn finish(&self, target: &dyn File, draft: &Path, item: &Item) -> Result<()> {
        target.sync()?;
        self.storage
            .rename(draft, &self.files.join(item.stored_name()))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.storage
            .open(path, OpenMode::Read, Transfer::Buffered, Area::Tables)
    }

    /// Reads a file and sees that it is what was written; `heard` hears how many bytes each chunk has.
    pub(crate) fn check(&self, item: &Item, heard: &mut dyn FnMut(u64)) -> Result<()> {
        self.read(item, &mut |chunk| {
            heard(chunk.len() as u64);
            Ok(())
        })
    }

    /// Hands a file out in chunks. It is verified at the end only.
    pub(crate) fn read(
        &self,
        item: &Item,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let path = self.files.join(item.stored_name());
        let file = self.open(&path).map_err(|error| {
            if error.is_not_found() {
                return Error::corruption(&path, 0, "it is missing, and a backup needs it");
            }
            error
        })?;
        let checksum = read_through(&*file, item.bytes, sink)?;
        if checksum != item.checksum || file.size()? != item.bytes {
            let reason = "it is not what was written: its checksum or its length does not match";
            return Err(Error::corruption(&path, 0, reason));
        }
        Ok(())
    }

    /// Removes what no listed backup needs. Returns how many files, and their bytes.
    pub(crate) fn sweep(&self) -> Result<(u64, u64)> {
        let mut needed = BTreeSet::new();
        for number in self.numbers()? {
            let manifest = self.manifest(number)?;
            needed.extend(manifest.items.iter().map(Item::stored_name));
        }
        let (mut files, mut bytes) = (0, 0);
        for entry in self.storage.list(&self.files)? {
            if !entry.is_dir && !needed.contains(&entry.name) {
                self.storage.remove(&self.files.join(&entry.name))?;
                files += 1;
                bytes += entry.bytes;
            }
        }
        Ok((files, bytes))
    }
}

fn manifest_name(number: u64) -> String {
    format!("{number:06}{SUFFIX}")
}

/// Reads the first `bytes` bytes of `file` chunk by chunk; returns their crc32c. Less is damage.
pub(crate) fn read_through(
    file: &dyn File,
    bytes: u64,
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<u32> {
    let mut buffer = vec![0; CHUNK_BYTES.min(usize::try_from(bytes).unwrap_or(CHUNK_BYTES))];
    let (mut at, mut checksum) = (0, 0);
    while at < bytes {
        let length_max = buffer.len().min((bytes - at) as usize);
        let length = file.read_window(&mut buffer[..length_max], at)?;
        if length == 0 {
            let reason = format!("it ends here, and should have {bytes} bytes");
            return Err(Error::corruption(file.path(), at, reason));
        }
        checksum = checksum::extend(checksum, &buffer[..length]);
        sink(&buffer[..length])?;
        at += length as u64;
    }
    Ok(checksum)
}

/// Counts bytes for progress.
pub(crate) struct Watch<'p> {
    pub(crate) done_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) progress: &'p mut dyn FnMut(Progress),
}

impl Watch<'_> {
    /// So many more are done.
    pub(crate) fn advance(&mut self, bytes: u64) {
        self.done_bytes += bytes;
        (self.progress)(Progress {
            done_bytes: self.done_bytes,
            total_bytes: self.total_bytes.max(self.done_bytes),
        });
    }
}
