//! Which tables make up the database: CURRENT and the MANIFEST, read and not written.
//!
//! Beside a running owner the MANIFEST may end within an edit that is just being appended; that edit does not
//! count yet. Between reading CURRENT and opening what it names, the owner may have moved on to a new
//! MANIFEST: then the reading starts over.

use super::source::Source;
use crate::error::{Error, Result};
use crate::lsm::version::order_name;
use crate::storage::{Area, Storage};
use std::collections::BTreeMap;
use std::path::Path;
use waystation_format::filename::{self, CURRENT, FileKind};
use waystation_format::leveldb_log::{RecordReader, begins_record_after};
use waystation_format::version_edit::{BYTEWISE_COMPARATOR, LEVELS, NewFile, VersionEdit};

/// How often reading starts over when the owner replaces the MANIFEST meanwhile.
const ATTEMPTS: usize = 10;

/// What the MANIFEST says.
#[derive(Debug, Default)]
pub(crate) struct Manifest {
    /// The name of the MANIFEST file.
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) edits: u64,
    pub(crate) comparator: String,
    pub(crate) last_sequence: u64,
    pub(crate) next_file_number: u64,
    /// LevelDB's logs from this number on hold what is not in tables.
    pub(crate) log_number: u64,
    /// A log that is needed although its number is lower; 0 if none. Very old directories only.
    pub(crate) prev_log_number: u64,
    /// By level: level 0 newest first, the others in key order; in that of file numbers where the order of keys is a
    /// program's.
    pub(crate) levels: [Vec<NewFile>; LEVELS],
    /// Whether the file ends within an edit.
    pub(crate) has_torn_tail: bool,
}

/// Reads the MANIFEST in force in `dir`.
pub(crate) fn read(storage: &dyn Storage, dir: &Path) -> Result<Manifest> {
    let mut attempt = 1;
    loop {
        let name = current(storage, dir)?;
        match read_named(storage, &dir.join(&name), name) {
            Err(error) if error.is_not_found() && attempt < ATTEMPTS => attempt += 1,
            result => return result,
        }
    }
}

/// The name of the MANIFEST in force.
fn current(storage: &dyn Storage, dir: &Path) -> Result<String> {
    let path = dir.join(CURRENT);
    let content = match Source::open(storage, &path, Area::Tables) {
        Ok(source) => source.read_all()?,
        Err(error) if error.is_not_found() => return Err(without_current(storage, dir)?),
        Err(error) => return Err(error),
    };
    let name = filename::parse_current(&content);
    name.map(str::to_owned)
        .map_err(|error| Error::corruption(&path, error.offset(), error.reason()))
}

/// What to say of a directory without CURRENT (an error of its own if it is no directory).
fn without_current(storage: &dyn Storage, dir: &Path) -> Result<Error> {
    let is_database_file = |name: &str| {
        matches!(
            filename::parse(name),
            Some(FileKind::Manifest(_) | FileKind::Table(_))
        )
    };
    let is_database = storage
        .list(dir)?
        .iter()
        .any(|entry| is_database_file(&entry.name));
    let reason = if is_database {
        "its CURRENT file is missing; restore the directory from a copy"
    } else {
        "it is not a database (there is no CURRENT file in it)"
    };
    Ok(Error::Incompatible {
        path: dir.to_owned(),
        reason: reason.to_owned(),
    })
}

/// Replays the edits of one MANIFEST.
fn read_named(storage: &dyn Storage, path: &Path, name: String) -> Result<Manifest> {
    let bytes = Source::open(storage, path, Area::Tables)?.read_all()?;
    let mut manifest = Manifest {
        name,
        bytes: bytes.len() as u64,
        ..Manifest::default()
    };
    let mut tables: [BTreeMap<u64, NewFile>; LEVELS] = Default::default();
    let mut reader = RecordReader::new(&bytes);
    loop {
        let at = reader.whole_through();
        match reader.next() {
            Ok(Some(record)) => {
                let edit = VersionEdit::decode(record)
                    .map_err(|error| Error::corruption(path, at, error.reason()))?;
                manifest.edits += 1;
                manifest.apply(edit, &mut tables);
            }
            Err(error) if begins_record_after(&bytes, error.offset()) => {
                return Err(Error::corruption(path, error.offset(), error.reason()));
            }
            // The end; or the last edit, torn by a crash or being appended now.
            Ok(None) | Err(_) => break,
        }
    }
    manifest.has_torn_tail = reader.whole_through() < manifest.bytes;
    if manifest.edits == 0 {
        return Err(Error::corruption(
            path,
            0,
            "the MANIFEST holds no whole edit",
        ));
    }
    for (level, tables) in tables.into_iter().enumerate() {
        manifest.levels[level] = tables.into_values().collect();
        if level == 0 {
            manifest.levels[0].reverse();
        } else if manifest.is_bytewise() {
            manifest.levels[level]
                .sort_by(|a, b| waystation_format::key::compare_internal(&a.smallest, &b.smallest));
        }
    }
    Ok(manifest)
}

impl Manifest {
    fn apply(&mut self, edit: VersionEdit, tables: &mut [BTreeMap<u64, NewFile>; LEVELS]) {
        if let Some(comparator) = edit.comparator {
            self.comparator = comparator;
        }
        self.last_sequence = edit.last_sequence.unwrap_or(self.last_sequence);
        self.next_file_number = edit.next_file_number.unwrap_or(self.next_file_number);
        self.log_number = edit.log_number.unwrap_or(self.log_number);
        self.prev_log_number = edit.prev_log_number.unwrap_or(self.prev_log_number);
        for (level, number) in edit.deleted_files {
            if let Some(level) = tables.get_mut(level as usize) {
                level.remove(&number);
            }
        }
        for file in edit.new_files {
            if let Some(level) = tables.get_mut(file.level as usize) {
                level.insert(file.number, file);
            }
        }
    }

    /// The name of the key order, without our fence.
    pub(crate) fn order_name(&self) -> &str {
        order_name(&self.comparator)
    }

    /// Whether keys are in the order of their bytes: in any other one no tool can look, or judge, without the comparator.
    pub(crate) fn is_bytewise(&self) -> bool {
        self.order_name() == BYTEWISE_COMPARATOR
    }

    /// All tables, level by level.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &NewFile> {
        self.levels.iter().flatten()
    }

    /// Whether nothing has changed between two readings.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.name == other.name && self.edits == other.edits
    }

    /// Whether LevelDB's log `number` holds what is not in tables yet.
    pub(crate) fn needs_log(&self, number: u64) -> bool {
        number >= self.log_number || (number != 0 && number == self.prev_log_number)
    }
}
