//! Looking into a database's files without owning it.
//!
//! Nothing here takes the lock, writes, or asks the owner: files are read as they are, beside a running
//! owner or without one. What the owner holds in memory only (the end of the log in the staging ring) is not
//! seen; every report says so where it matters. Tables never change, the log only grows, and a MANIFEST is
//! replaced as a whole, so a reader sees a true state of a moment ago.
//!
//! - [`Inspection::summary`]: what there is
//! - [`Inspection::check`]: whether it is what was written
//! - [`Inspection::find`]: every version of one key
//! - [`dump()`]: everything in one file

mod check;
mod cross;
mod dump;
mod find;
pub(crate) mod graves;
mod index_snapshot;
pub(crate) mod log;
pub(crate) mod manifest;
pub(crate) mod segment;
mod sound;
pub(crate) mod source;
pub(crate) mod stream;
mod summary;
pub(crate) mod table;
mod table_walk;

pub use check::{CheckProgress, CheckReport, Problem};
pub use dump::{DumpedVersion, Item, ItemSink, dump};
pub use find::{Found, Place};
pub(crate) use sound::{segment_is_sound, table_is_sound};
pub use summary::{JournalSummary, LevelSummary, SegmentState, SegmentSummary, Summary};

use crate::error::{Error, Result};
use crate::placement::Spread;
use crate::storage::Storage;
use manifest::Manifest;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A database, looked at from outside.
pub struct Inspection {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    manifest: Manifest,
}

impl Inspection {
    /// Reads which files make up the database in `dir`. Fails if there is none, or if its MANIFEST is damaged.
    pub fn open(storage: Arc<dyn Storage>, dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref().to_owned();
        if dir.as_os_str().is_empty() {
            return Err(Error::InvalidArgument(
                "the path is empty; name the database directory".to_owned(),
            ));
        }
        let storage = Spread::look(storage, &dir)?;
        let manifest = manifest::read(&*storage, &dir)?;
        Ok(Self {
            storage,
            dir,
            manifest,
        })
    }

    /// The name of the order of keys, if it is a program's own: what follows from the order is not told then.
    pub fn own_order(&self) -> Option<&str> {
        let manifest = &self.manifest;
        (!manifest.is_bytewise()).then(|| manifest.order_name())
    }

    /// Calls `action` with the tables in force, and once more with new ones if a table it opened was gone because
    /// the owner had replaced it meanwhile. `action` keeps nothing of an attempt that fails.
    fn with_stable_manifest(&self, action: &mut dyn FnMut(&Manifest) -> Result<()>) -> Result<()> {
        let mut manifest = manifest::read(&*self.storage, &self.dir)?;
        loop {
            match action(&manifest) {
                Err(error) if error.is_not_found() => {
                    let newer = manifest::read(&*self.storage, &self.dir)?;
                    if newer.is_same_as(&manifest) {
                        return Err(error);
                    }
                    manifest = newer;
                }
                result => return result,
            }
        }
    }
}
