//! Which tables make up the tree.
//!
//! The tables that the MANIFEST names. If it cannot be read, they are all that are found: among them may be some that a merge
//! had replaced already, of which the newer version of a key, or its deletion, is gone for good. Nothing in them tells; so
//! this is accepted only when it is asked for. A MANIFEST that says less than it did is treated the same, where that shows:
//! tables it names are gone, and others are there that it never heard of; or such as hold writes that the log need not
//! hold any more.

use super::report::{Loss, Resurrection, damage_of};
use super::survey::{Surveyor, without_manifest};
use crate::error::Result;
use crate::inspect::source::Source;
use crate::inspect::table::TableView;
use crate::lsm::version::ManifestFile;
use crate::storage::Area;
use std::collections::BTreeSet;
use waystation_format::filename::{FileKind, legacy_table_name, table_name};
use waystation_format::leveldb_log::RecordReader;
use waystation_format::version_edit::VersionEdit;

/// A table that counts.
#[derive(Debug, Clone)]
pub(super) struct FoundTable {
    pub(super) name: String,
    pub(super) number: u64,
    /// Where its footer ends.
    pub(super) bytes: u64,
    /// Its first and last internal key.
    pub(super) smallest: Vec<u8>,
    pub(super) largest: Vec<u8>,
    /// Its level, if a MANIFEST says so.
    pub(super) level: Option<usize>,
    /// The lowest sequence number of any entry, where it was looked up.
    pub(super) smallest_sequence: Option<u64>,
}

impl Surveyor<'_> {
    /// The tables in force. One that is missing, or too short, is found out when it is read.
    pub(super) fn tables_of(&self, manifest: &ManifestFile) -> Vec<FoundTable> {
        let tables = manifest.version.tables();
        let found = tables.map(|(level, table)| FoundTable {
            name: self.table_file(table.number),
            number: table.number,
            bytes: table.file_bytes,
            smallest: table.smallest.clone(),
            largest: table.largest.clone(),
            level: Some(level),
            smallest_sequence: None,
        });
        found.collect()
    }

    /// Whether the last edits of the MANIFEST seem to be lost, which nothing in it would tell. `released`: what the device
    /// table says that the log need not hold.
    pub(super) fn is_outdated(
        &mut self,
        name: Option<&str>,
        manifest: &ManifestFile,
        released: Option<u64>,
    ) -> bool {
        let Mentioned { replaced, newest } = mentioned_tables(&manifest.content);
        let listed = self.tables_of(manifest);
        let is_short = |table: &FoundTable| {
            let bytes = self.files.get(&table.name);
            bytes.is_none_or(|bytes| *bytes < table.bytes)
        };
        let lacks_some = listed.iter().any(is_short);
        let flushed = manifest.numbers.last_sequence;
        let needless = released.unwrap_or(flushed);
        let later = self.table_numbers();
        let later = later
            .range(newest + 1..)
            .filter(|it| !replaced.contains(it));
        let is_told_by = |number: &u64| {
            let looked = self.look_at_table(&self.table_file(*number), *number);
            looked.ok().flatten().is_some_and(|table| {
                let first = table.smallest_sequence.unwrap_or(u64::MAX);
                lacks_some || (flushed < first && first <= needless)
            })
        };
        let mut later = later.copied();
        let Some(number) = later.find(is_told_by) else {
            return false;
        };
        let reason = format!("it says nothing of table {number}, which was part of the tree");
        let name = name.unwrap_or("MANIFEST");
        self.losses.push(without_manifest(name, 0, &reason));
        true
    }

    fn table_numbers(&self) -> BTreeSet<u64> {
        self.numbers(|kind| match kind {
            FileKind::Table(number) => Some(number),
            _ => None,
        })
    }

    fn table_file(&self, number: u64) -> String {
        let legacy = legacy_table_name(number);
        if self.has(&legacy) && !self.has(&table_name(number)) {
            legacy
        } else {
            table_name(number)
        }
    }

    /// All tables that are there, but for the ones that the readable part of the MANIFEST says were replaced.
    pub(super) fn all_tables(&mut self, manifest: Option<&str>) -> Result<Vec<FoundTable>> {
        let content = manifest.and_then(|name| self.read(name).ok());
        let Mentioned { replaced, .. } = mentioned_tables(&content.unwrap_or_default());
        let mut tables = Vec::new();
        for number in self.table_numbers().difference(&replaced) {
            let name = self.table_file(*number);
            match self.look_at_table(&name, *number) {
                Ok(table) => tables.extend(table),
                Err(error) => {
                    let (offset, reason) = damage_of(error)?;
                    let reason = format!("{reason}; it was never finished, or all of it is lost");
                    let loss = Loss::of(name, reason, Resurrection::Possible);
                    self.losses.push(loss.at(offset, None));
                }
            }
        }
        Ok(tables)
    }

    /// A table as its own blocks describe it; `None` if it is empty.
    fn look_at_table(&self, name: &str, number: u64) -> Result<Option<FoundTable>> {
        let source = Source::open_lenient(self.storage, &self.dir.join(name), Area::Tables)?;
        let bytes = source.bytes();
        let view = TableView::new(source, bytes)?;
        let index = view.index()?;
        let (Some(first), Some(last)) = (index.first(), index.last()) else {
            return Ok(None);
        };
        // Where the first block is damaged, and no properties tell, from the first key of all.
        let (mut smallest, mut largest) = (Vec::new(), last.separator.clone());
        let mut smallest_sequence = None;
        if let Ok(Some(properties)) = view.properties() {
            smallest_sequence = Some(properties.smallest_sequence);
            (smallest, largest) = (properties.smallest_key, properties.largest_key);
        } else if let Ok(block) = view.block(first.handle) {
            view.each(&block, &mut |key, _| {
                smallest = key.to_vec();
                false
            })?;
        }
        Ok(Some(FoundTable {
            name: name.to_owned(),
            number,
            bytes,
            smallest,
            largest,
            level: None,
            smallest_sequence,
        }))
    }
}

/// What a MANIFEST says of tables, whatever is in force.
#[derive(Default)]
struct Mentioned {
    /// The tables that sound edits remove and do not add again.
    replaced: BTreeSet<u64>,
    /// The highest number of any.
    newest: u64,
}

fn mentioned_tables(manifest: &[u8]) -> Mentioned {
    let mut mentioned = Mentioned::default();
    let mut reader = RecordReader::new(manifest);
    loop {
        match reader.next() {
            Ok(None) => return mentioned,
            Err(_) => {}
            Ok(Some(record)) => {
                let Ok(edit) = VersionEdit::decode(record) else {
                    continue;
                };
                for (_, number) in edit.deleted_files {
                    mentioned.newest = mentioned.newest.max(number);
                    mentioned.replaced.insert(number);
                }
                for file in edit.new_files {
                    mentioned.newest = mentioned.newest.max(file.number);
                    mentioned.replaced.remove(&file.number);
                }
            }
        }
    }
}
