//! The MANIFEST: a log of version edits, in LevelDB's format.
//!
//! Edits are appended and synced one at a time, so that only the last one can be torn by a crash. Reading cuts
//! a torn last edit off. An edit that does not check although another begins behind it, or although all its
//! sectors were written, is damage, and reported: cutting there would lose tables.

use super::{Change, Fence, LEVELS, Version};
use crate::directory::read_file;
use crate::error::{Error, Result};
use crate::sst::{LearntFacts, TableMeta};
use crate::storage::{Area, File, OpenMode, Storage, Transfer};
use crate::sync::Arc;
use std::collections::BTreeMap;
use std::path::Path;
use waystation_format::FormatError;
use waystation_format::checksum::extend;
use waystation_format::filename::manifest_name;
use waystation_format::key::MAX_SEQUENCE;
use waystation_format::leveldb_log::{
    RecordReader, RecordWriter, begins_record_after, misses_sector,
};
use waystation_format::order::Order;
use waystation_format::version_edit::{NewFile, VersionEdit};

/// What stands in a MANIFEST besides the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// LevelDB's write-ahead logs below this number are not needed.
    pub log_number: u64,
    /// No file has this number or a higher one.
    pub next_file: u64,
    /// No table holds a higher sequence number.
    pub last_sequence: u64,
}

/// What a MANIFEST says.
#[derive(Debug)]
pub(crate) struct Manifest {
    /// The name under which it shows its key order.
    pub fence: Fence,
    /// The numbers.
    pub numbers: Numbers,
    /// A write-ahead log that is needed although its number is lower; 0 if none. Very old directories only.
    pub prev_log_number: u64,
    /// The tables.
    pub version: Version,
    /// The bytes it was read from, a torn last edit included.
    pub content: Vec<u8>,
}

impl Manifest {
    /// Reads the MANIFEST at `path` of a database whose keys are in `order`.
    pub(crate) fn read(storage: &dyn Storage, path: &Path, order: &Order) -> Result<Self> {
        let content = read_file(storage, path)?;
        let mut state = Replay::default();
        let mut reader = RecordReader::new(&content);
        loop {
            let began = reader.whole_through();
            match reader.next() {
                Ok(Some(record)) => {
                    let edit =
                        VersionEdit::decode(record).map_err(|error| damage(path, began, &error))?;
                    state.apply(edit);
                }
                Ok(None) => break,
                Err(error) => {
                    let is_last = !begins_record_after(&content, error.offset());
                    if !is_last || !misses_sector(&content, began, error.offset()) {
                        return Err(Error::corruption(path, error.offset(), error.reason()));
                    }
                    break;
                }
            }
        }
        state.finish(path, content, order)
    }
}

fn damage(path: &Path, record_offset: u64, error: &FormatError) -> Error {
    let reason = format!("the version edit that begins here cannot be read: {error}");
    Error::corruption(path, record_offset, reason)
}

/// The state while edits are applied one after the other.
#[derive(Default)]
struct Replay {
    comparator: Option<String>,
    log_number: Option<u64>,
    prev_log_number: u64,
    next_file: Option<u64>,
    last_sequence: Option<u64>,
    levels: [BTreeMap<u64, TableMeta>; LEVELS],
}

impl Replay {
    fn apply(&mut self, edit: VersionEdit) {
        self.comparator = edit.comparator.or(self.comparator.take());
        self.log_number = edit.log_number.or(self.log_number);
        self.prev_log_number = edit.prev_log_number.unwrap_or(self.prev_log_number);
        self.next_file = edit.next_file_number.or(self.next_file);
        self.last_sequence = edit.last_sequence.or(self.last_sequence);
        for (level, number) in edit.deleted_files {
            self.levels[level as usize].remove(&number);
        }
        for NewFile {
            level,
            number,
            file_bytes,
            smallest,
            largest,
        } in edit.new_files
        {
            let table = TableMeta {
                number,
                file_bytes,
                smallest,
                largest,
                facts: LearntFacts::default(),
            };
            self.levels[level as usize].insert(number, table);
        }
    }

    fn finish(self, path: &Path, content: Vec<u8>, order: &Order) -> Result<Manifest> {
        let missing = |what: &str| {
            let reason = format!("no edit in it names the {what}");
            Error::corruption(path, content.len() as u64, reason)
        };
        let comparator = self.comparator.ok_or_else(|| missing("comparator"))?;
        let fence = Fence::parse(&comparator, path, order)?;
        let numbers = Numbers {
            log_number: self.log_number.ok_or_else(|| missing("log number"))?,
            next_file: self.next_file.ok_or_else(|| missing("next file number"))?,
            last_sequence: self
                .last_sequence
                .ok_or_else(|| missing("last sequence number"))?,
        };
        if numbers.last_sequence > MAX_SEQUENCE {
            let reason = "it names a sequence number past the last there can be";
            return Err(Error::corruption(path, 0, reason));
        }
        let mut change = Change::default();
        for (level, tables) in self.levels.into_iter().enumerate() {
            change
                .added
                .extend(tables.into_values().map(|table| (level, Arc::new(table))));
        }
        let version = Version::empty(order)
            .with(&change)
            .map_err(|reason| Error::corruption(path, content.len() as u64, reason))?;
        let prev_log_number = self.prev_log_number;
        Ok(Manifest {
            fence,
            numbers,
            prev_log_number,
            version,
            content,
        })
    }
}

/// The edit that makes `version` from nothing.
pub(crate) fn snapshot_edit(version: &Version, numbers: Numbers, fence: Fence) -> VersionEdit {
    let mut edit = numbers_edit(numbers);
    edit.comparator = Some(fence.comparator(version.order()));
    edit.new_files = version
        .tables()
        .map(|(level, table)| new_file(level, table))
        .collect();
    edit
}

/// The edit that makes the next version by `change`.
pub(crate) fn change_edit(change: &Change, numbers: Numbers) -> VersionEdit {
    let mut edit = numbers_edit(numbers);
    edit.deleted_files = change
        .removed
        .iter()
        .map(|&(level, number)| (level as u32, number))
        .collect();
    edit.new_files = change
        .added
        .iter()
        .map(|(level, table)| new_file(*level, table))
        .collect();
    edit
}

fn numbers_edit(numbers: Numbers) -> VersionEdit {
    VersionEdit {
        log_number: Some(numbers.log_number),
        prev_log_number: Some(0),
        next_file_number: Some(numbers.next_file),
        last_sequence: Some(numbers.last_sequence),
        ..VersionEdit::default()
    }
}

fn new_file(level: usize, table: &TableMeta) -> NewFile {
    NewFile {
        level: level as u32,
        number: table.number,
        file_bytes: table.file_bytes,
        smallest: table.smallest.clone(),
        largest: table.largest.clone(),
    }
}

/// A MANIFEST being written.
pub(crate) struct ManifestWriter {
    file: Arc<dyn File>,
    records: RecordWriter,
    bytes: u64,
    digest: u32,
    snapshot_bytes: u64,
}

impl ManifestWriter {
    /// Writes a new MANIFEST that begins with `snapshot`, and syncs it. Its name is not durable yet.
    pub(crate) fn create(
        storage: &dyn Storage,
        dir: &Path,
        number: u64,
        snapshot: &VersionEdit,
    ) -> Result<Self> {
        let path = dir.join(manifest_name(number));
        let file = storage.open(&path, OpenMode::Create, Transfer::Buffered, Area::Tables)?;
        let records = RecordWriter::new(0);
        let mut writer = Self {
            file,
            records,
            bytes: 0,
            digest: 0,
            snapshot_bytes: 0,
        };
        writer.append(snapshot)?;
        writer.snapshot_bytes = writer.bytes;
        Ok(writer)
    }

    /// Appends an edit and syncs it. After a failure the file must not be written any more: what the failed
    /// append left behind is unknown.
    pub(crate) fn append(&mut self, edit: &VersionEdit) -> Result<()> {
        let mut framed = Vec::new();
        self.records.append(&edit.to_bytes(), &mut framed);
        self.file.write_at(&framed, self.bytes)?;
        self.file.sync()?;
        self.bytes += framed.len() as u64;
        self.digest = extend(self.digest, &framed);
        Ok(())
    }

    /// Bytes written, and their crc32c.
    pub(crate) fn extent(&self) -> (u64, u32) {
        (self.bytes, self.digest)
    }

    /// Whether it is so much longer than the snapshot it began with that a new one is due.
    pub(crate) fn is_long(&self) -> bool {
        self.bytes > (self.snapshot_bytes * 4).max(64 * 1024)
    }
}
