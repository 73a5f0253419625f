//! Files on their way out.
//!
//! A table may go when no version holds it: it is kept here by `Arc`, and by every other holder, through a
//! version or a job, counts. While it is uncertain which MANIFEST a restart would find (*in doubt*), whatever
//! only one of the possible ones needs stays; once a new one is in force for sure, doubts are settled.

use super::Version;
use super::recover::Listing;
use super::side::Pin;
use crate::error::Result;
use crate::sst::TableMeta;
use crate::storage::Storage;
use crate::sync::Arc;
use std::collections::HashSet;
use std::path::Path;
use waystation_format::filename::{FileKind, legacy_table_name, table_name};

/// A file that may go now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Waste {
    /// A table, under either of its names.
    Table(u64),
    /// Any other file, by its name.
    File(String),
}

impl Waste {
    /// Removes the file; it does not matter if it is gone already.
    pub(super) fn remove(&self, storage: &dyn Storage, dir: &Path) -> Result<()> {
        match self {
            Self::File(name) => remove_if_there(storage, &dir.join(name)).map(|_| ()),
            Self::Table(number) => {
                if !remove_if_there(storage, &dir.join(table_name(*number)))? {
                    remove_if_there(storage, &dir.join(legacy_table_name(*number)))?;
                }
                Ok(())
            }
        }
    }
}

fn remove_if_there(storage: &dyn Storage, path: &Path) -> Result<bool> {
    match storage.remove(path) {
        Ok(()) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// All files on their way out.
#[derive(Debug, Default)]
pub(super) struct Garbage {
    /// Tables that the newest version does not list, though a reader may hold them.
    tables: Vec<Arc<TableMeta>>,
    /// What may go at once.
    due: Vec<Waste>,
    /// What may go once doubts are settled.
    doubtful: Vec<Waste>,
}

impl Garbage {
    /// Takes in what stands in the directory at open and belongs to nothing.
    pub(super) fn add_leftovers(
        &mut self,
        listing: &Listing,
        version: &Version,
        pins: &[Pin],
        needs_log: impl Fn(u64) -> bool,
    ) {
        let live: HashSet<u64> = version.tables().map(|(_, table)| table.number).collect();
        for (name, kind) in listing.files() {
            let leftover = match kind {
                FileKind::Table(number) => !live.contains(&number),
                FileKind::Manifest(number) => pins.iter().all(|pin| pin.manifest != number),
                FileKind::Log(number) => !needs_log(number),
                FileKind::Temporary(_) => true,
                FileKind::Current | FileKind::Lock | FileKind::InfoLog => false,
            };
            if leftover {
                self.due.push(Waste::File(name.to_owned()));
            }
        }
    }

    /// A table that left the newest version.
    pub(super) fn add_table(&mut self, table: Arc<TableMeta>) {
        self.tables.push(table);
    }

    /// A file that no MANIFEST which may be in force needs.
    pub(super) fn add(&mut self, waste: Waste) {
        self.due.push(waste);
    }

    /// A file that may go once the next MANIFEST is in force.
    pub(super) fn add_doubtful(&mut self, waste: Waste) {
        self.doubtful.push(waste);
    }

    /// A new MANIFEST is in force for sure; `kept` are the files it made itself.
    pub(super) fn settle(&mut self, kept: &[String]) {
        let is_kept = |waste: &Waste| matches!(waste, Waste::File(name) if kept.contains(name));
        let settled = std::mem::take(&mut self.doubtful);
        self.due
            .extend(settled.into_iter().filter(|waste| !is_kept(waste)));
    }

    /// What may go now; it is not listed here any more.
    pub(super) fn take_due(&mut self) -> Vec<Waste> {
        for table in std::mem::take(&mut self.tables) {
            match Arc::try_unwrap(table) {
                Ok(table) => self.due.push(Waste::Table(table.number)),
                Err(held) => self.tables.push(held),
            }
        }
        std::mem::take(&mut self.due)
    }

    /// How many tables only stay because a reader still holds them, and their bytes.
    pub(super) fn held(&self) -> (usize, u64) {
        (
            self.tables.len(),
            self.tables.iter().map(|table| table.file_bytes).sum(),
        )
    }
}
