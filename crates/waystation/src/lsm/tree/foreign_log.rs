//! Taking over LevelDB's write-ahead logs: what they hold goes to tables, and they go.
//!
//! The MANIFEST names the oldest log that is needed until everything is in tables; a crash on the way does it
//! all again, and versions that are in two tables then are one and the same.

use super::entries::Entries;
use super::{Flush, Tree};
use crate::directory::read_file;
use crate::error::{Error, Result};
use crate::lsm::compaction::Hidden;
use crate::lsm::version::{Change, Progress};
use std::path::Path;
use waystation_format::filename::log_name;
use waystation_format::key::MAX_SEQUENCE;
use waystation_format::leveldb_log::{RecordReader, misses_sector};

/// Entries are written to a table once they have this many bytes.
const BATCH_BYTES: usize = 32 << 20;

impl Tree {
    /// Brings what LevelDB's logs `numbers` hold, the oldest first, into tables.
    pub(super) fn take_over_logs(&self, numbers: &[u64]) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        let mut entries = Entries::new(self.order());
        for &number in numbers {
            let path = self.dir.join(log_name(number));
            let content = read_file(&*self.storage, &path)?;
            self.take_over_log(&path, &content, &mut entries)?;
        }
        self.flush_entries(&mut entries)?;
        let needless = Progress {
            flushed_through: None,
            log_number: Some(self.versions.new_file_number()),
        };
        self.versions.apply(&Change::default(), needless)?;
        self.versions.discard_logs(numbers);
        log::info!("took over {} write-ahead logs of LevelDB", numbers.len());
        Ok(())
    }

    fn take_over_log(&self, path: &Path, content: &[u8], entries: &mut Entries) -> Result<()> {
        let mut reader = RecordReader::new(content);
        loop {
            let began = reader.whole_through();
            match reader.next() {
                Ok(Some(record)) => entries
                    .add(record)
                    .map_err(|reason| Error::corruption(path, began, reason))?,
                Err(error) if !misses_sector(content, began, error.offset()) => {
                    return Err(Error::corruption(path, error.offset(), error.reason()));
                }
                // The end; or sectors that a power cut kept from the medium. What follows them was not synced.
                Ok(None) | Err(_) => return Ok(()),
            }
            if entries.bytes() >= BATCH_BYTES {
                self.flush_entries(entries)?;
            }
        }
    }

    fn flush_entries(&self, entries: &mut Entries) -> Result<()> {
        entries.sort();
        let flush = Flush {
            last_sequence: entries.newest(),
            // There are no readers yet.
            oldest_snapshot: MAX_SEQUENCE,
            bytes: entries.bytes() as u64,
            hidden: &Hidden::default(),
            hurried: false,
        };
        self.flush(&mut *entries, &flush)?;
        entries.clear();
        Ok(())
    }
}
