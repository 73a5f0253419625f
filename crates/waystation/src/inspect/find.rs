//! Every version of one key, in every file that holds one.

use super::log::{LogEvent, operations, walk_leveldb_batches};
use super::source::Source;
use super::table::TableView;
use super::{Inspection, manifest::Manifest};
use crate::error::Result;
use crate::storage::Area;
use serde::Serialize;
use std::path::Path;
use waystation_format::key::user_key;

/// Where a version was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In the log: it is, or was, not yet in a table.
    Log,
    /// In the file of graves: a deletion, of the key or of a range around it.
    Graves,
    /// In a table of this level.
    Level(u32),
}

/// A version of the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Its sequence number: a higher one is newer.
    pub sequence: u64,
    /// The value, or none if this version says that the key was deleted.
    pub value: Option<Vec<u8>>,
    /// Where in the database.
    pub place: Place,
    /// The name of the file.
    pub file: String,
    /// Where in the file: the record's position in a log, the block's in a table.
    pub offset: u64,
}

impl Inspection {
    /// All versions of `key`, the newest first; one that is both in the log and in a table appears twice. What
    /// the owner holds in its staging ring only is not seen. In a program's own order of keys, versions are found that
    /// have the very bytes of `key`, and deletions of ranges are not.
    pub fn find(&self, key: &[u8]) -> Result<Vec<Found>> {
        // The log first: what leaves it meanwhile is in a table by the time the tables are read.
        let mut found = Vec::new();
        self.find_in_log(key, &mut found)?;
        self.find_in_leveldb_logs(key, &mut found)?;
        self.find_in_graves(key, &mut found)?;
        self.find_in_tables(key, &mut found)?;
        found.sort_by(|a, b| b.sequence.cmp(&a.sequence).then(a.place.cmp(&b.place)));
        Ok(found)
    }

    fn find_in_log(&self, key: &[u8], found: &mut Vec<Found>) -> Result<()> {
        self.walk_log(&mut |_| (), &mut |event| {
            if let LogEvent::Record {
                name,
                offset,
                record,
            } = event
                && record.is_sound
            {
                // A record that does not decode is for `check` to tell.
                let _ = operations(record, &mut |sequence, operation| {
                    let is_in_range = |end: Option<&[u8]>| {
                        self.manifest.is_bytewise()
                            && operation.key < key
                            && end.is_none_or(|end| key < end)
                    };
                    let is_version = operation.key == key && operation.time.is_none();
                    if is_version || operation.range().is_some_and(is_in_range) {
                        let value = operation.value.map(<[u8]>::to_vec);
                        found.push(Found {
                            sequence,
                            value,
                            place: Place::Log,
                            file: name.to_owned(),
                            offset,
                        });
                    }
                });
            }
            Ok(())
        })
    }

    fn find_in_leveldb_logs(&self, key: &[u8], found: &mut Vec<Found>) -> Result<()> {
        for path in self.leveldb_logs()? {
            let Some(source) = self.open_if_there(&path, Area::Journal)? else {
                continue;
            };
            walk_leveldb_batches(&source, &mut |batch| {
                // A batch that does not decode is for `check` to tell.
                let Ok((offset, _, batch)) = batch else {
                    return Ok(());
                };
                for (sequence, operation) in (batch.sequence()..).zip(batch) {
                    if operation.key == key {
                        let value = operation.value.map(<[u8]>::to_vec);
                        found.push(Found {
                            sequence,
                            value,
                            place: Place::Log,
                            file: source.name(),
                            offset,
                        });
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn find_in_tables(&self, key: &[u8], found: &mut Vec<Found>) -> Result<()> {
        // Read again: the log was read a while ago.
        self.with_stable_manifest(&mut |manifest: &Manifest| {
            let mut versions = Vec::new();
            for table in manifest.tables() {
                let bounds = user_key(&table.smallest)..=user_key(&table.largest);
                if manifest.is_bytewise() && !bounds.contains(&key) {
                    continue;
                }
                let view = TableView::open(&*self.storage, &self.dir, table)?;
                view.versions_of(
                    key,
                    manifest.is_bytewise(),
                    &mut |offset, sequence, value| {
                        let value = value.map(<[u8]>::to_vec);
                        let (place, file) = (Place::Level(table.level), view.name());
                        versions.push(Found {
                            sequence,
                            value,
                            place,
                            file,
                            offset,
                        });
                    },
                )?;
            }
            found.append(&mut versions);
            Ok(())
        })
    }

    /// Opens a file that the owner may remove at any time, because it is no longer needed.
    pub(super) fn open_if_there(&self, path: &Path, area: Area) -> Result<Option<Source>> {
        match Source::open(&*self.storage, path, area) {
            Ok(source) => Ok(Some(source)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
