//! The tables that are open: opened when first asked for, closed when others need the room.

use super::memory::TableMemory;
use super::{Table, TableMeta};
use crate::error::Result;
use crate::storage::{Area, File, OpenMode, Storage, Transfer};
use crate::sync::{Arc, Mutex, lock};
use quick_cache::sync::Cache;
use std::path::{Path, PathBuf};
use waystation_format::filename::{legacy_table_name, table_name};
use waystation_format::order::Order;

/// So many tables can be opened at once.
const OPENINGS: usize = 16;

/// The open tables of one directory.
pub(crate) struct TableCache {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    tables: Cache<u64, Arc<Table>>,
    /// Held while a table is opened: the one of its number's remainder. The cache has locks of its own for that, which the
    /// model checkers do not see.
    openings: [Mutex<()>; OPENINGS],
    memory: TableMemory,
    order: Order,
}

impl TableCache {
    /// Keeps up to `max_open_tables` tables of `directory` open, beside the ones that a reader uses. Their user keys are in
    /// `order`.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        directory: &Path,
        max_open_tables: usize,
        memory: TableMemory,
        order: Order,
    ) -> Self {
        Self {
            storage,
            directory: directory.to_owned(),
            tables: Cache::new(max_open_tables.max(1)),
            openings: std::array::from_fn(|_| Mutex::new(())),
            memory,
            order,
        }
    }

    /// The order of user keys.
    #[inline]
    pub(crate) fn order(&self) -> &Order {
        &self.order
    }

    /// The table that `meta` describes. Threads that ask at once open it once.
    #[inline]
    pub(crate) fn get(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        match self.tables.get(&meta.number) {
            Some(table) => Ok(table),
            None => self.get_or_open(meta),
        }
    }

    #[cold]
    fn get_or_open(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        let _opening = lock(&self.openings[meta.number as usize % OPENINGS]);
        if let Some(table) = self.tables.get(&meta.number) {
            return Ok(table);
        }
        let table = Arc::new(self.open(meta)?);
        self.tables.insert(meta.number, Arc::clone(&table));
        Ok(table)
    }

    /// Closes table `number` once no reader uses it any more: its file is about to go.
    pub(crate) fn evict(&self, number: u64) {
        self.tables.remove(&number);
    }

    /// The path under which table `number` is written.
    pub(crate) fn path(&self, number: u64) -> PathBuf {
        self.directory.join(table_name(number))
    }

    /// The memory of the tables.
    pub(crate) fn memory(&self) -> &TableMemory {
        &self.memory
    }

    fn open(&self, meta: &TableMeta) -> Result<Table> {
        let file = match self.open_file(&self.path(meta.number)) {
            Err(error) if error.is_not_found() => {
                let legacy = self.directory.join(legacy_table_name(meta.number));
                // The name to miss is today's, not that of old.
                self.open_file(&legacy)
                    .map_err(|e| if e.is_not_found() { error } else { e })
            }
            opened => opened,
        }?;
        // The facts of one that was there already are only found out now.
        let is_near = !meta.facts.are_unread();
        let table = Table::open(file, meta.file_bytes, is_near, &self.memory, &self.order)?;
        meta.facts.learn(table.facts());
        Ok(table)
    }

    fn open_file(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.storage
            .open(path, OpenMode::Read, Transfer::Buffered, Area::Tables)
    }
}
