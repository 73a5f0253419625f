//! Images: what a copy of the tree, as it is now, consists of; for whoever copies the files.

use super::Tree;
use super::checkpoint::exists;
use crate::error::Result;
use crate::lsm::version::{State, Version};
use crate::sync::Arc;
use std::path::PathBuf;
use waystation_format::filename::{legacy_table_name, table_name};

/// What a copy consists of. The tables stay for as long as this is held.
pub(crate) struct Image {
    /// The files that describe it: name and content.
    pub(crate) made: Vec<(String, Vec<u8>)>,
    pub(crate) tables: Vec<ImageTable>,
    /// Writes up to this sequence number are in tables.
    pub(crate) flushed_through: u64,
    _version: Arc<Version>,
}

/// A table of an image.
pub(crate) struct ImageTable {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

impl Tree {
    /// The tree as it is now; in the copy the rooms above find `state`. Without any, `LevelDB` may open the copy.
    pub(crate) fn image(&self, state: &State) -> Result<Image> {
        let (version, flushed_through) = self.versions.current_and_flushed_through();
        let mut tables = Vec::new();
        for (_, table) in version.tables() {
            let mut path = self.dir.join(table_name(table.number));
            if !exists(&*self.storage, &path)? {
                path = self.dir.join(legacy_table_name(table.number));
            }
            tables.push(ImageTable {
                path,
                bytes: table.file_bytes,
            });
        }
        Ok(Image {
            made: self.versions.image(&version, flushed_through, state),
            tables,
            flushed_through,
            _version: version,
        })
    }
}
