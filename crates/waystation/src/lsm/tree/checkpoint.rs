//! Checkpoints: the tree as it is now, in a directory of its own.
//!
//! Tables never change, so a second name is a copy; where the file system gives none (another device), bytes
//! are copied. The new directory has a MANIFEST with the plain comparator name: it holds everything in tables,
//! and LevelDB may open it as well.

use super::Tree;
use crate::error::{Error, Result};
use crate::lsm::table::TableMeta;
use crate::storage::{Area, OpenMode, Storage, Transfer};
use std::path::Path;
use waystation_format::filename::{legacy_table_name, table_name};

/// How much is copied at a time.
const PIECE_BYTES: usize = 1 << 20;

impl Tree {
    /// Writes the tree as it is now, up to the sequence number returned, to the new or empty directory
    /// `target`. Reading and writing go on meanwhile. When it fails, what is in `target` is no database.
    pub(crate) fn checkpoint(&self, target: &Path) -> Result<u64> {
        self.storage.create_dir(target)?;
        if !self.storage.list(target)?.is_empty() {
            let reason = format!("{} is not empty; name a new directory", target.display());
            return Err(Error::InvalidArgument(reason));
        }
        let (version, flushed_through) = self.versions.current_and_flushed_through();
        for (_, table) in version.tables() {
            self.copy_table(table, target)?;
        }
        self.versions
            .write_copy(&version, flushed_through, target)?;
        if let Some(parent) = target
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            self.storage.sync_dir(parent)?;
        }
        Ok(flushed_through)
    }

    fn copy_table(&self, table: &TableMeta, target: &Path) -> Result<()> {
        let mut name = table_name(table.number);
        if !exists(&*self.storage, &self.dir.join(&name))? {
            name = legacy_table_name(table.number);
        }
        let (source, target) = (self.dir.join(&name), target.join(&name));
        if self.storage.link(&source, &target).is_ok() {
            return Ok(());
        }
        copy(&*self.storage, &source, &target)
    }
}

pub(super) fn exists(storage: &dyn Storage, path: &Path) -> Result<bool> {
    match storage.open(path, OpenMode::Read, Transfer::Buffered, Area::Tables) {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

fn copy(storage: &dyn Storage, source: &Path, target: &Path) -> Result<()> {
    let source = storage.open(source, OpenMode::Read, Transfer::Buffered, Area::Tables)?;
    let target = storage.open(target, OpenMode::Create, Transfer::Buffered, Area::Tables)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = 0;
    loop {
        let length = source.read_at(&mut piece, offset)?;
        if length == 0 {
            return target.sync();
        }
        target.write_at(&piece[..length], offset)?;
        offset += length as u64;
    }
}
