//! Everything in one file, whatever its kind. The kind is told by the name, or by the bytes if the name says
//! nothing (a file copied elsewhere).

mod devices;
mod log;
mod tree;

use super::source::Source;
use crate::directory::{
    CHECKPOINT_DRAFT, CHECKPOINT_NAME, FAST_NAME, GRAVES_NAME, INDEX_SNAPSHOT_DRAFT,
    INDEX_SNAPSHOT_NAME, JOURNAL_NAME, PLACEMENT_NAME, RESERVE_NAME, RING_NAME, SIDE_FILE,
    segment_number, spill_number,
};
use crate::error::{Error, Result};
use crate::storage::{Area, Storage};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::Path;
use waystation_format::filename::{self, FileKind};

/// A version of a key as a file holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DumpedVersion {
    /// The user's key.
    pub key: Vec<u8>,
    /// The sequence number.
    pub sequence: u64,
    /// The value; none for a deletion.
    pub value: Option<Vec<u8>>,
}

/// One thing in a file, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "item", rename_all = "snake_case")]
pub enum Item {
    /// A named fact: of a header, a footer, the properties.
    Fact {
        /// The fact.
        name: &'static str,
        /// What it says.
        value: String,
    },
    /// A block of a table or of the log.
    Block {
        /// Where it starts in the file.
        offset: u64,
        /// Its bytes in the file.
        stored_bytes: u64,
        /// What it is, and how it is stored.
        what: String,
    },
    /// An edit of a MANIFEST begins.
    Edit {
        /// Where it starts in the file.
        offset: u64,
        /// Its fields without the tables, as `name value`.
        fields: Vec<String>,
    },
    /// A table comes into force.
    TableAdded {
        /// At this level.
        level: u32,
        /// Its number.
        number: u64,
        /// Its length.
        bytes: u64,
        /// The first version in it (its value is not known here).
        smallest: DumpedVersion,
        /// The last version in it (its value is not known here).
        largest: DumpedVersion,
    },
    /// A table is no longer in force.
    TableRemoved {
        /// At this level.
        level: u32,
        /// Its number.
        number: u64,
    },
    /// A batch of a log begins.
    Batch {
        /// Where it starts: in the file for LevelDB's logs, in the stream (LSN) for ours.
        position: u64,
        /// The sequence number of its first operation.
        first_sequence: u64,
        /// How many operations.
        operations: u32,
        /// How many bytes they take.
        bytes: u64,
    },
    /// A range of keys was deleted.
    RangeDeletion {
        /// The first key.
        start: Vec<u8>,
        /// Where it ends, excluded; none: nowhere.
        end: Option<Vec<u8>>,
        /// The sequence number.
        sequence: u64,
    },
    /// What was put under a key expires.
    Expiry {
        /// The key.
        key: Vec<u8>,
        /// The sequence number; what was put has a lower one.
        sequence: u64,
        /// When, in microseconds since 1970.
        at_micros: u64,
    },
    /// A version of a key.
    Version(DumpedVersion),
    /// Something about a device.
    Device {
        /// What its keys begin with, or its name.
        prefix: Vec<u8>,
        /// When it happened, in a log: the sequence number.
        sequence: Option<u64>,
        /// What happened, or how it stands.
        what: String,
    },
    /// Something that is not as it was written.
    Problem {
        /// Where in the file.
        offset: u64,
        /// What does not hold.
        reason: String,
    },
}

/// Takes items; answers whether it wants more.
pub type ItemSink<'a> = dyn FnMut(Item) -> ControlFlow<()> + 'a;

/// Where items go, until there are enough.
struct Out<'a, 'b> {
    sink: &'a mut ItemSink<'b>,
    is_full: bool,
}

impl Out<'_, '_> {
    fn put(&mut self, item: Item) {
        if !self.is_full {
            self.is_full = (self.sink)(item).is_break();
        }
    }

    fn fact(&mut self, name: &'static str, value: impl std::fmt::Display) {
        self.put(Item::Fact {
            name,
            value: value.to_string(),
        });
    }

    fn problem(&mut self, offset: u64, reason: impl Into<String>) {
        self.put(Item::Problem {
            offset,
            reason: reason.into(),
        });
    }

    fn is_full(&self) -> bool {
        self.is_full
    }
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Table,
    Manifest,
    LevelDbLog,
    Segment,
    Ring,
    Journal,
    SideFile,
    Devices,
    Graves,
    IndexSnapshot,
    SpillFile,
    Reserve,
    Text,
}

/// Hands out everything in the file `path`, until `sink` has enough. Damage is an item, and what can still be
/// read behind it follows.
pub fn dump(storage: &dyn Storage, path: &Path, sink: &mut ItemSink<'_>) -> Result<()> {
    if path.as_os_str().is_empty() {
        return Err(Error::InvalidArgument(
            "the path is empty; name a file".to_owned(),
        ));
    }
    let source = Source::open(storage, path, Area::Tables)?;
    let mut out = Out {
        sink,
        is_full: false,
    };
    let result = match kind(&source)? {
        Kind::Table => tree::table(source, false, &mut out),
        Kind::SpillFile => tree::table(source, true, &mut out),
        Kind::Manifest => tree::manifest(&source, &mut out),
        Kind::LevelDbLog => log::leveldb_log(&source, &mut out),
        Kind::Segment => log::segment_file(&source, &mut out),
        Kind::Ring => log::ring(&source, &mut out),
        Kind::Journal => tree::journal(&source, &mut out),
        Kind::SideFile => tree::side_file(&source, &mut out),
        Kind::Devices => devices::checkpoint(&source, &mut out),
        Kind::Graves => tree::graves(&source, &mut out),
        Kind::IndexSnapshot => devices::index_snapshot(storage, path, &mut out),
        Kind::Reserve => {
            out.fact("kept for the next opening (bytes)", source.bytes());
            Ok(())
        }
        Kind::Text => tree::text(&source, &mut out),
    };
    match result {
        Err(Error::Corruption { offset, reason, .. }) => {
            out.problem(offset, reason);
            Ok(())
        }
        result => result,
    }
}

/// Tells what the file is by its name, else by its first or last bytes.
fn kind(source: &Source) -> Result<Kind> {
    let name = source.name();
    match filename::parse(&name) {
        Some(FileKind::Table(_)) => return Ok(Kind::Table),
        Some(FileKind::Manifest(_)) => return Ok(Kind::Manifest),
        Some(FileKind::Log(_)) => return Ok(Kind::LevelDbLog),
        Some(FileKind::Current | FileKind::InfoLog | FileKind::Temporary(_) | FileKind::Lock) => {
            return Ok(Kind::Text);
        }
        None => {}
    }
    if segment_number(&name).is_some() {
        return Ok(Kind::Segment);
    }
    if spill_number(&name).is_some() {
        return Ok(Kind::SpillFile);
    }
    match name.as_str() {
        PLACEMENT_NAME | FAST_NAME => return Ok(Kind::Text),
        RING_NAME => return Ok(Kind::Ring),
        JOURNAL_NAME => return Ok(Kind::Journal),
        RESERVE_NAME => return Ok(Kind::Reserve),
        SIDE_FILE => return Ok(Kind::SideFile),
        CHECKPOINT_NAME | CHECKPOINT_DRAFT => return Ok(Kind::Devices),
        GRAVES_NAME => return Ok(Kind::Graves),
        INDEX_SNAPSHOT_NAME | INDEX_SNAPSHOT_DRAFT => return Ok(Kind::IndexSnapshot),
        _ => {}
    }
    kind_by_bytes(source)?.ok_or_else(|| Error::Incompatible {
        path: source.path().to_owned(),
        reason: "neither its name nor its bytes are those of a file of a database".to_owned(),
    })
}

fn kind_by_bytes(source: &Source) -> Result<Option<Kind>> {
    let start = source.read(0, source.bytes().min(8) as usize)?;
    let end_at = source.bytes().saturating_sub(8);
    let end = source.read(end_at, (source.bytes() - end_at) as usize)?;
    Ok(match (start.as_slice(), end.as_slice()) {
        (b"WSSEGMT1", _) => Some(Kind::Segment),
        (b"WSJOURN1", _) => Some(Kind::Journal),
        (b"WAYSTATN", _) => Some(Kind::SideFile),
        (b"WSDEVICE", _) => Some(Kind::Devices),
        (b"WSGRAVES", _) => Some(Kind::Graves),
        (b"WSINDEXS", _) => Some(Kind::IndexSnapshot),
        (_, [0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb]) => Some(Kind::Table),
        _ => None,
    })
}
