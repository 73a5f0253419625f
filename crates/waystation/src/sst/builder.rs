//! Writes one table to storage.

use super::{TableFacts, TableMeta, TableSettings};
use crate::error::{Error, Result};
use crate::storage::{File, Output, RateLimit, Storage};
use std::path::Path;
use std::sync::Arc;
use waystation_format::table::{Properties, TableWriter};

/// Writes one table to storage, entry by entry in the order of internal keys.
pub(crate) struct TableBuilder {
    storage: Arc<dyn Storage>,
    number: u64,
    writer: TableWriter,
    output: Output,
}

impl TableBuilder {
    /// Creates the file of table `number` at `path`.
    pub(crate) fn create(
        storage: &Arc<dyn Storage>,
        path: &Path,
        number: u64,
        settings: TableSettings,
    ) -> Result<Self> {
        Ok(Self {
            storage: Arc::clone(storage),
            number,
            writer: TableWriter::new(settings),
            output: Output::create(&**storage, path)?,
        })
    }

    /// Writes no faster than `rate` lets it.
    pub(crate) fn at_rate(mut self, rate: Option<Arc<RateLimit>>) -> Self {
        let storage = &self.storage;
        self.output
            .set_rate(rate.map(|rate| (rate, Arc::clone(storage))));
        self
    }

    /// Appends an entry, which must follow all before it.
    #[inline]
    pub(crate) fn add(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        if let Err(error) = self.writer.add(internal_key, value) {
            return Err(self.refused(&error));
        }
        if self.writer.pending().is_empty() {
            return Ok(());
        }
        self.output.append(self.writer.pending())?;
        self.writer.clear_pending();
        Ok(())
    }

    #[cold]
    fn refused(&self, error: &waystation_format::FormatError) -> Error {
        let path = self.output.path().display();
        Error::InvalidArgument(format!(
            "an entry was refused while {path} was written: {error}"
        ))
    }

    /// How many bytes the data has so far, the block being built uncompressed.
    pub(crate) fn estimated_bytes(&self) -> u64 {
        self.writer.estimated_bytes()
    }

    /// Completes the table and makes its content durable. Its name is durable once its directory is synced.
    /// On an error the file is removed.
    pub(crate) fn finish(self) -> Result<TableMeta> {
        let storage = Arc::clone(&self.storage);
        let (table, file) = self.complete()?;
        if let Err(error) = file.sync() {
            let _ = storage.remove(file.path());
            return Err(error);
        }
        Ok(table)
    }

    /// Completes the table: its description, and its file, whose content is durable once it is synced. On an error the file is
    /// removed.
    pub(crate) fn complete(mut self) -> Result<(TableMeta, Arc<dyn File>)> {
        let properties = self.writer.finish().clone();
        let appended = self.output.append(self.writer.pending());
        let path = self.output.path().to_owned();
        match appended.and_then(|()| self.output.complete()) {
            Ok((file_bytes, file)) => Ok((table_meta(self.number, file_bytes, properties), file)),
            Err(error) => {
                // The first failure is the one to report; a file that stays is removed as obsolete later.
                let _ = self.storage.remove(&path);
                Err(error)
            }
        }
    }

    /// Gives the table up and removes its file.
    pub(crate) fn abandon(self) -> Result<()> {
        let path = self.output.path().to_owned();
        drop(self.output);
        self.storage.remove(&path)
    }
}

fn table_meta(number: u64, file_bytes: u64, properties: Properties) -> TableMeta {
    let facts = TableFacts::from(&properties);
    TableMeta {
        number,
        file_bytes,
        smallest: properties.smallest_key,
        largest: properties.largest_key,
        facts: Some(facts).into(),
    }
}

impl From<&Properties> for TableFacts {
    fn from(properties: &Properties) -> Self {
        Self {
            smallest_sequence: properties.smallest_sequence,
            largest_sequence: properties.largest_sequence,
            purged_through: properties.purged_through,
            entries: properties.entries,
            deletions: properties.deletions,
        }
    }
}
