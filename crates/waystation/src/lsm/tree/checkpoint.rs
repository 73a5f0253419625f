//! Checkpoints: the tree as it is now, in a directory of its own.
//!
//! Tables never change, so a second name is a copy; where the file system gives none (another device), bytes
//! are copied. If tables are all, the new directory has a MANIFEST with the plain comparator name, and LevelDB may open
//! it as well. CURRENT comes last: without it the directory is no database, whatever else is there by then.

use super::Tree;
use crate::error::{Error, Result};
use crate::lsm::version::{State, Version};
use crate::sst::TableMeta;
use crate::storage::{Area, OpenMode, Storage, Transfer, copy_bytes};
use crate::sync::Arc;
use std::path::Path;
use waystation_format::filename::{legacy_table_name, table_name};

/// All tables at one moment, and up to which write they cover everything.
pub(crate) struct Moment {
    version: Arc<Version>,
    flushed_through: u64,
}

impl Tree {
    /// The tree as it is now. Its tables stay for as long as this is held.
    pub(crate) fn moment(&self) -> Moment {
        let (version, flushed_through) = self.versions.current_and_flushed_through();
        Moment {
            version,
            flushed_through,
        }
    }

    /// Writes the tree as it was at `moment` to the new or empty directory `target`. Reading and writing go on meanwhile.
    /// `put_beside` writes what belongs to the tables, and says so in the state. When it fails, what is in `target` is no
    /// database.
    pub(crate) fn checkpoint(
        &self,
        moment: &Moment,
        target: &Path,
        put_beside: impl FnOnce(&mut State) -> Result<()>,
    ) -> Result<()> {
        self.storage.create_dir(target)?;
        if !self.storage.list(target)?.is_empty() {
            let reason = format!("{} is not empty; name a new directory", target.display());
            return Err(Error::InvalidArgument(reason));
        }
        for (_, table) in moment.version.tables() {
            self.copy_table(table, target)?;
        }
        let mut state = State::new();
        put_beside(&mut state)?;
        self.versions
            .write_copy(&moment.version, moment.flushed_through, &state, target)?;
        if let Some(parent) = target
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            self.storage.sync_dir(parent)?;
        }
        Ok(())
    }

    fn copy_table(&self, table: &TableMeta, target: &Path) -> Result<()> {
        let name = self.file_of(table)?;
        link_or_copy(&*self.storage, &self.dir.join(&name), &target.join(&name))
    }

    /// The name of a table's file.
    pub(super) fn file_of(&self, table: &TableMeta) -> Result<String> {
        let name = table_name(table.number);
        let is_there = exists(&*self.storage, &self.dir.join(&name))?;
        Ok(if is_there {
            name
        } else {
            legacy_table_name(table.number)
        })
    }
}

/// Gives the file `source`, which never changes, a second name, or copies it.
pub(crate) fn link_or_copy(storage: &dyn Storage, source: &Path, target: &Path) -> Result<()> {
    if storage.link(source, target).is_ok() {
        return Ok(());
    }
    copy(storage, source, target)
}

fn exists(storage: &dyn Storage, path: &Path) -> Result<bool> {
    match storage.open(path, OpenMode::Read, Transfer::Buffered, Area::Tables) {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

fn copy(storage: &dyn Storage, source: &Path, target: &Path) -> Result<()> {
    let source = storage.open(source, OpenMode::Read, Transfer::Buffered, Area::Tables)?;
    let target = storage.open(target, OpenMode::Create, Transfer::Buffered, Area::Tables)?;
    copy_bytes(&*source, &*target, source.size()?)?;
    target.sync()
}
