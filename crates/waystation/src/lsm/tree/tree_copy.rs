//! Tree copies: the files that a copy of the tree, as it is now, consists of.

use super::Tree;
use crate::error::Result;
use crate::lsm::version::{State, Version};
use crate::sync::Arc;
use std::path::PathBuf;

/// The files of a copy. The tables stay for as long as this is held.
pub(crate) struct TreeCopy {
    /// The files that describe it: name and content.
    pub(crate) made: Vec<(String, Vec<u8>)>,
    pub(crate) tables: Vec<CopiedTable>,
    /// Writes up to this sequence number are in tables.
    pub(crate) flushed_through: u64,
    _version: Arc<Version>,
}

/// A table of a tree copy.
pub(crate) struct CopiedTable {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

impl Tree {
    /// The tree as it is now; in the copy the rooms above find `state`. Without any, `LevelDB` may open the copy.
    pub(crate) fn tree_copy(&self, state: &State) -> Result<TreeCopy> {
        let (version, flushed_through) = self.versions.current_and_flushed_through();
        let mut tables = Vec::new();
        for (_, table) in version.tables() {
            let name = self.file_of(table)?;
            tables.push(CopiedTable {
                path: self.dir.join(&name),
                name,
                bytes: table.file_bytes,
            });
        }
        Ok(TreeCopy {
            made: self
                .versions
                .copied_files(&version, flushed_through, state)
                .1,
            tables,
            flushed_through,
            _version: version,
        })
    }
}
