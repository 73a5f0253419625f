//! The segment file: a header unit, blocks, and once it is sealed an index and a footer at its very end.
//!
//! ```text
//! header   0 magic "WSSEGMT1"   8 checksum u32 of 12..72   12 version u32   16 number u64   24 incarnation u64
//!         32 start LSN u64     40 capacity u64 (file length)   48 durable LSN u64 (when the segment was begun)
//!         56 first sequence u64   64 previous segment u64
//! index    32 bytes a block: start LSN u64, first sequence u64, length u32, first record u32, used u32, zero u32
//! footer   0 magic "WSSEGEND"   8 checksum u32 of 12..72 and the index   12 blocks u32   16 number u64
//!         24 incarnation u64   32 end LSN u64   40 last sequence u64   48 index offset u64   56 durable LSN u64
//!         64 next segment u64
//! ```
//!
//! The first sequence tells a reader that knows which writes are in tables whether anything before the segment is
//! needed; the neighbours' numbers tell it whether a file is missing.
//!
//! The footer lies in the last 72 bytes of the file, the index right before it, so that opening finds both
//! without a scan. A recycled file's old footer names another segment and is ignored.

use super::block::Seal;
use super::{UNIT_BYTES, u32_at, u64_at};
use crate::checksum;

const HEADER_MAGIC: &[u8; 8] = b"WSSEGMT1";
const FOOTER_MAGIC: &[u8; 8] = b"WSSEGEND";
const HEADER_USED: usize = 72;
const ENTRY_BYTES: usize = 32;
/// The version of the segment format.
const VERSION: u32 = 1;
/// No segment holds more blocks: a file has 4 GiB at most, and a block a unit at least.
const BLOCKS_MAX: u32 = ((4_u64 << 30) / UNIT_BYTES as u64) as u32;
/// The length of a sealed segment's footer (bytes).
pub const FOOTER_BYTES: usize = 72;

/// What a segment says of itself at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Never used twice.
    pub number: u64,
    /// The life of the database that began it.
    pub incarnation: u64,
    /// The stream position of its first block.
    pub start_lsn: u64,
    /// The file's full length in bytes.
    pub capacity: u64,
    /// Everything below was durable when the segment was begun.
    pub durable_lsn: u64,
    /// The first record that starts in this segment or later has this sequence number: every write below it
    /// starts before the segment does.
    pub first_sequence: u64,
    /// The segment that holds the bytes right before this one's; 0 if there is none.
    pub previous: u64,
}

impl SegmentHeader {
    /// Writes the header into the start of `unit`, which is zeroed first.
    pub fn encode_into(&self, unit: &mut [u8]) {
        unit.fill(0);
        unit[..8].copy_from_slice(HEADER_MAGIC);
        unit[12..16].copy_from_slice(&VERSION.to_le_bytes());
        unit[16..24].copy_from_slice(&self.number.to_le_bytes());
        unit[24..32].copy_from_slice(&self.incarnation.to_le_bytes());
        unit[32..40].copy_from_slice(&self.start_lsn.to_le_bytes());
        unit[40..48].copy_from_slice(&self.capacity.to_le_bytes());
        unit[48..56].copy_from_slice(&self.durable_lsn.to_le_bytes());
        unit[56..64].copy_from_slice(&self.first_sequence.to_le_bytes());
        unit[64..72].copy_from_slice(&self.previous.to_le_bytes());
        let checksum = checksum::crc32c(&unit[12..HEADER_USED]);
        unit[8..12].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads a header; `None` if the bytes are not one of a version this code knows.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..HEADER_USED)?;
        let sound = &header[..8] == HEADER_MAGIC
            && u32_at(header, 8)? == checksum::crc32c(&header[12..])
            && u32_at(header, 12)? == VERSION;
        sound.then_some(Self {
            number: u64_at(header, 16)?,
            incarnation: u64_at(header, 24)?,
            start_lsn: u64_at(header, 32)?,
            capacity: u64_at(header, 40)?,
            durable_lsn: u64_at(header, 48)?,
            first_sequence: u64_at(header, 56)?,
            previous: u64_at(header, 64)?,
        })
    }

    /// Whether `bytes` are a header of a newer version of the format than this code knows.
    pub fn is_newer(bytes: &[u8]) -> bool {
        bytes.starts_with(HEADER_MAGIC)
            && u32_at(bytes, 12).is_some_and(|version| version > VERSION)
    }
}

/// One block in a sealed segment's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// Where the block starts in the stream.
    pub start_lsn: u64,
    /// The sequence number of the first record that starts in it or later.
    pub first_sequence: u64,
    /// The whole block in bytes.
    pub length: u32,
    /// The offset of the first record that starts in it, 0 if none does.
    pub first_record: u32,
    /// The bytes in use, header included.
    pub used: u32,
}

impl From<&Seal> for IndexEntry {
    fn from(seal: &Seal) -> Self {
        Self {
            start_lsn: seal.start_lsn,
            first_sequence: seal.first_sequence,
            length: seal.length,
            first_record: seal.first_record,
            used: seal.used,
        }
    }
}

/// What a sealed segment says of itself at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentFooter {
    /// The segment's number; another number means a recycled file's old footer.
    pub number: u64,
    /// The life of the database that began the segment.
    pub incarnation: u64,
    /// How many blocks it holds.
    pub blocks: u32,
    /// Where its last block ends in the stream.
    pub end_lsn: u64,
    /// The highest sequence number that any record of it may hold.
    pub last_sequence: u64,
    /// Where the index starts in the file.
    pub index_offset: u64,
    /// Everything below was durable when the footer was written.
    pub durable_lsn: u64,
    /// The segment in which the log goes on.
    pub next: u64,
}

/// The bytes of index and footer together, to be written so that they end where the file does.
pub fn encode_index(entries: &[IndexEntry], footer: &SegmentFooter) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * ENTRY_BYTES + FOOTER_BYTES);
    for entry in entries {
        bytes.extend_from_slice(&entry.start_lsn.to_le_bytes());
        bytes.extend_from_slice(&entry.first_sequence.to_le_bytes());
        bytes.extend_from_slice(&entry.length.to_le_bytes());
        bytes.extend_from_slice(&entry.first_record.to_le_bytes());
        bytes.extend_from_slice(&entry.used.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
    }
    let index_bytes = bytes.len();
    bytes.extend_from_slice(FOOTER_MAGIC);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&footer.blocks.to_le_bytes());
    for field in [
        footer.number,
        footer.incarnation,
        footer.end_lsn,
        footer.last_sequence,
        footer.index_offset,
        footer.durable_lsn,
        footer.next,
    ] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    let checksum = checksum::extend(
        checksum::crc32c(&bytes[index_bytes + 12..]),
        &bytes[..index_bytes],
    );
    bytes[index_bytes + 8..index_bytes + 12].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

impl SegmentFooter {
    /// Reads a footer without checking it against the index: only the shape. `None` if it cannot be one.
    pub fn peek(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != FOOTER_BYTES || &bytes[..8] != FOOTER_MAGIC {
            return None;
        }
        let blocks = u32_at(bytes, 12).filter(|blocks| *blocks <= BLOCKS_MAX)?;
        Some(Self {
            blocks,
            number: u64_at(bytes, 16)?,
            incarnation: u64_at(bytes, 24)?,
            end_lsn: u64_at(bytes, 32)?,
            last_sequence: u64_at(bytes, 40)?,
            index_offset: u64_at(bytes, 48)?,
            durable_lsn: u64_at(bytes, 56)?,
            next: u64_at(bytes, 64)?,
        })
    }

    /// The length in bytes of index and footer together.
    pub fn tail_bytes(&self) -> usize {
        tail_bytes(self.blocks as usize)
    }
}

/// The length in bytes of the index of `blocks` blocks and the footer together.
pub fn tail_bytes(blocks: usize) -> usize {
    blocks * ENTRY_BYTES + FOOTER_BYTES
}

/// Reads index and footer back from the bytes that [`encode_index`] made; `None` if they do not check.
pub fn decode_index(bytes: &[u8]) -> Option<(Vec<IndexEntry>, SegmentFooter)> {
    let (index, tail) = bytes.split_at_checked(bytes.len().checked_sub(FOOTER_BYTES)?)?;
    let footer = SegmentFooter::peek(tail)?;
    let checksum = checksum::extend(checksum::crc32c(&tail[12..]), index);
    if footer.tail_bytes() != bytes.len() || u32_at(tail, 8)? != checksum {
        return None;
    }
    let entries = index.chunks_exact(ENTRY_BYTES).map(|entry| {
        Some(IndexEntry {
            start_lsn: u64_at(entry, 0)?,
            first_sequence: u64_at(entry, 8)?,
            length: u32_at(entry, 16)?,
            first_record: u32_at(entry, 20)?,
            used: u32_at(entry, 24)?,
        })
    });
    Some((entries.collect::<Option<_>>()?, footer))
}
