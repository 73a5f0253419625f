//! The tables that lie in a fast directory alone: their bytes, and their open files.
//!
//! A table takes the room that segments of the log and copies have left when it is made. It stays until a merge makes it
//! useless, or until its room serves something else better: then it is moved to the main directory ([`moves`](super::moves)).
//!
//! A table has no length before it is complete. Until then it counts with the length that its writer expects, or with what it has
//! if that is more.

use super::placed_table::PlacedTable;
use super::report::TablePlacement;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{Arc, Mutex, Weak, lock};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// One table.
#[derive(Default)]
struct Placed {
    bytes: u64,
    is_complete: bool,
    /// It was there when the heat was halved: all reads since then are known.
    is_known: bool,
    /// Its file, while a reader or its writer has it open.
    file: Weak<PlacedTable>,
}

/// See the module.
pub(super) struct TableShare {
    /// Where the tables lie.
    dir: PathBuf,
    tables: Mutex<HashMap<String, Placed>>,
    /// The lengths that new tables are to get, before their files are created.
    expected: Mutex<HashMap<String, u64>>,
    moved: AtomicU64,
}

impl TableShare {
    /// Of the directory `dir`, in which there are the `present` tables, names and bytes.
    pub(super) fn new(dir: PathBuf, present: impl IntoIterator<Item = (String, u64)>) -> Self {
        let complete = |bytes| Placed {
            bytes,
            is_complete: true,
            ..Placed::default()
        };
        let present = present.into_iter();
        Self {
            dir,
            tables: Mutex::new(
                present
                    .map(|(name, bytes)| (name, complete(bytes)))
                    .collect(),
            ),
            expected: Mutex::default(),
            moved: AtomicU64::new(0),
        }
    }

    /// Where the tables lie.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The bytes of all tables there, and how many these are.
    pub(super) fn placed(&self) -> (u64, u64) {
        let tables = lock(&self.tables);
        let bytes = tables.values().map(|it| it.bytes).sum();
        (bytes, tables.len() as u64)
    }

    /// What users see of it.
    pub(super) fn stats(&self) -> TablePlacement {
        let (table_bytes, tables) = self.placed();
        TablePlacement {
            tables,
            table_bytes,
            moved: self.moved.load(Relaxed),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        lock(&self.tables).contains_key(name)
    }

    /// Notes that the table `name`, which is made next, will have about `bytes`.
    pub(super) fn expect(&self, name: &str, bytes: u64) {
        lock(&self.expected).insert(name.to_owned(), bytes);
    }

    /// Notes a table that is about to be made.
    pub(super) fn begin(&self, name: &str) {
        let bytes = lock(&self.expected).remove(name).unwrap_or(0);
        let begun = Placed {
            bytes,
            ..Placed::default()
        };
        lock(&self.tables).insert(name.to_owned(), begun);
    }

    /// Notes that the table being made has `bytes` now. Returns whether it is longer than it counted.
    pub(super) fn grow(&self, name: &str, bytes: u64) -> bool {
        let mut tables = lock(&self.tables);
        let grown = tables.get_mut(name).filter(|it| it.bytes < bytes);
        grown.map(|it| it.bytes = bytes).is_some()
    }

    /// Notes that the table is complete, with `bytes`.
    pub(super) fn complete(&self, name: &str, bytes: u64) {
        if let Some(table) = lock(&self.tables).get_mut(name) {
            (table.bytes, table.is_complete) = (bytes, true);
        }
    }

    /// Notes that there is no table `name` there any more. Returns whether there was one.
    pub(super) fn forget(&self, name: &str) -> bool {
        lock(&self.tables).remove(name).is_some()
    }

    /// Notes that the heat is halved.
    pub(super) fn begin_period(&self) {
        for table in lock(&self.tables).values_mut() {
            table.is_known = table.is_complete;
        }
    }

    /// The tables that lie there since the heat was halved.
    pub(super) fn known_ones(&self) -> Vec<String> {
        let tables = lock(&self.tables);
        let known = tables.iter().filter(|(_, it)| it.is_known);
        known.map(|(name, _)| name.clone()).collect()
    }

    /// The tables that are complete.
    pub(super) fn complete_ones(&self) -> Vec<String> {
        let tables = lock(&self.tables);
        let complete = tables.iter().filter(|(_, it)| it.is_complete);
        complete.map(|(name, _)| name.clone()).collect()
    }

    /// The file of the table, if it lies there and is open.
    pub(super) fn file(&self, name: &str) -> Option<Arc<PlacedTable>> {
        lock(&self.tables).get(name)?.file.upgrade()
    }

    /// Notes `file` as the table's, unless another reader has opened one meanwhile: that is returned then. `None`: the table
    /// lies there no more.
    pub(super) fn keep_file(&self, name: &str, file: Arc<PlacedTable>) -> Option<Arc<PlacedTable>> {
        let mut tables = lock(&self.tables);
        let table = tables.get_mut(name)?;
        let other = table.file.upgrade();
        if other.is_none() {
            table.file = Arc::downgrade(&file);
        }
        Some(other.unwrap_or(file))
    }

    /// Notes that the table was moved to the main directory: its open file has to be switched. `false`: it was removed before.
    pub(super) fn leave(&self, name: &str) -> (bool, Option<Arc<PlacedTable>>) {
        let table = lock(&self.tables).remove(name);
        if table.is_some() {
            self.moved.fetch_add(1, Relaxed);
        }
        (table.is_some(), table.and_then(|it| it.file.upgrade()))
    }
}
