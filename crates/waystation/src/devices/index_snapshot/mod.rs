//! Index snapshots: the file `INDEXES` holds the indexes of the upper level, which spares an opening most of the log.
//!
//! An index snapshot shows the upper level as it was when the log had come to one sequence number, *through*: every residency, and its
//! versions up to there, which is what reading the log back to there makes of it. It is a shortcut, and nothing is in it
//! alone: the log is released without regard to it, and where it is missing, damaged, or of another directory, all of the
//! log is read.
//!
//! ```text
//! header       8 bytes  "WSINDEXS"
//!              u32      masked crc32c of the rest of the header
//!              u32      format: 1; never reuse a number
//!              16 bytes the engine's identity, as in DEVICES
//!              u64      through
//!              u64      where the log ended when it had come to there (LSN)
//! sections     u32      length; then masked crc32c (u32) of what follows and of where the section begins (u64); then
//!                       so many bytes: parts, one after the other, by prefix. A residency may have several.
//!   part
//!     prefix   string
//!     first    varint   sequence number of the residency's first write
//!     position varint   of its first record (LSN)
//!     switch   varint   the sequence number from which on its writes go to the memtable; 0: they do not
//!     versions varint   how many; then how many bytes they take (varint)
//!   version, by key, of one key the newest first
//!     shared   varint   bytes that the key, which is without the prefix, has in common with the one before in the part
//!     rest     string   its other bytes
//!     value    varint   0: it is deleted; else one more than the value's length
//!     sequence varint   the difference to the version before, of either sign (zigzag)
//!     position varint   of the record, likewise; not of a deletion
//!     offset   varint   of the value in the record; not of a deletion
//! end          u32 0, u32 masked crc32c as of a section, then
//!              u64      needless: up to here all that is not of the upper level is in tables
//!              u64      parts
//!              u64      versions
//! ```
//!
//! Integers are little-endian, a string is a varint length and its bytes. It is replaced as a whole (temporary file, sync,
//! rename, directory sync), after the log is durable through all that it shows, and after a checkpoint of the device table
//! that tells of everything which happened up to there.
//!
//! Reading the log back takes a second for each gigabyte, and the upper level may need tens of them. So its indexes are
//! saved now and then ([`draw`]), and an opening ([`load`]) reads the log behind that alone. How an index snapshot is kept
//! from telling anything but what the log tells:
//!
//! - it shows the upper level at *one* sequence number: what was logged later is left out, whenever it is drawn;
//! - what had happened to devices by then is told by the device table's checkpoint, which is written after it is drawn and
//!   before it counts; so a residency that has gone meanwhile is known by its absence there, and skipped;
//! - the log is durable through what it shows, before it counts: places in the log stay true.

mod draw;
mod load;
mod reader;
mod section;
mod writer;

pub(crate) use draw::IndexSnapshots;
pub(crate) use load::{Spared, load};
pub(crate) use reader::{Next, SnapshotReader};
pub(crate) use section::{Head, parts, rewritten, unpack};
pub(crate) use writer::SnapshotWriter;

use waystation_format::FormatError;
use waystation_format::checksum::{crc32c, extend, mask};
use waystation_format::handoff::EngineId;
use waystation_format::varint::Reader;

const MAGIC: &[u8; 8] = b"WSINDEXS";
const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 48;
/// Length and checksum of a section.
const FRAME_BYTES: usize = 8;
const END_BYTES: usize = 24;
/// A section ends when it is this long.
const SECTION_BYTES: usize = 128 << 10;
/// None is longer: a part is about as long as a section at most, and so is a key.
const SECTION_BYTES_MAX: usize = 4 << 20;

/// What an index snapshot says of itself at its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The identity of the engine that drew it.
    pub(crate) engine: EngineId,
    /// It shows all versions up to this sequence number.
    pub(crate) through: u64,
    /// Where the log ended then.
    pub(crate) lsn: u64,
}

/// What an index snapshot says of itself at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// Up to this sequence number all that is not of the upper level is in tables.
    pub(crate) needless: u64,
    /// How many parts there are.
    pub(crate) parts: u64,
    /// How many versions.
    pub(crate) versions: u64,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::from(FORMAT.to_le_bytes());
        fields.extend_from_slice(&self.engine.0);
        fields.extend_from_slice(&self.through.to_le_bytes());
        fields.extend_from_slice(&self.lsn.to_le_bytes());
        let mut out = Vec::from(MAGIC);
        out.extend_from_slice(&mask(crc32c(&fields)).to_le_bytes());
        out.append(&mut fields);
        out
    }

    /// `None` in the answer: a newer version wrote it.
    fn decode(bytes: &[u8]) -> Result<Option<Self>, FormatError> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len(), "magic number")? != MAGIC {
            return Err(malformed(0, "it does not begin with its magic number"));
        }
        let checksum = reader.fixed_u32("checksum")?;
        if mask(crc32c(reader.rest())) != checksum {
            return Err(malformed(8, "its header's checksum does not match"));
        }
        if reader.fixed_u32("format")? != FORMAT {
            return Ok(None);
        }
        Ok(Some(Self {
            engine: EngineId::from_bytes(reader.take(16, "engine")?),
            through: reader.fixed_u64("sequence number")?,
            lsn: reader.fixed_u64("position")?,
        }))
    }
}

impl End {
    fn encode(&self) -> Vec<u8> {
        let numbers = [self.needless, self.parts, self.versions];
        numbers.map(u64::to_le_bytes).concat()
    }

    fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes);
        Ok(Self {
            needless: reader.fixed_u64("sequence number")?,
            parts: reader.fixed_u64("count of parts")?,
            versions: reader.fixed_u64("count of versions")?,
        })
    }
}

/// The stored checksum of `content`, the section's that begins at `offset`.
fn section_checksum(content: &[u8], offset: u64) -> u32 {
    mask(extend(crc32c(content), &offset.to_le_bytes()))
}

fn malformed(offset: u64, reason: &'static str) -> FormatError {
    FormatError::Malformed { offset, reason }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
