//! The block header: where the block lies in the stream, and what is known durable.
//!
//! ```text
//!  0 body checksum  u32   crc32c of bytes 4..length; set when the block is written out
//!  4 seal checksum  u32   crc32c of bytes 8..48; set when the block is closed
//!  8 magic          u32
//! 12 length         u32   whole block, a multiple of the unit
//! 16 used           u32   header and records; the rest is zeros
//! 20 first record   u32   offset of the first record that starts here, 0 if none does
//! 24 start LSN      u64
//! 32 first sequence u64   of the first record that starts here or later
//! 40 incarnation    u64   the life of the database that wrote it
//! 48 segment        u64   the segment's number; set when the block is written out
//! 56 durable LSN    u64   everything below was durable when the block was written out
//! ```
//!
//! The first part (the *seal*) is written when the block is closed, in the ring, while later records are
//! already being copied behind it; the rest when the block leaves for its segment.

use super::{BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, UNIT_BYTES, u32_at, u64_at};
use crate::checksum;

const MAGIC: u32 = 0x4b4c_4257; // "WBLK"
const SEAL: std::ops::Range<usize> = 8..48;

/// A closed block: its place and extent, all a reader of the ring needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    /// Where the block starts in the stream.
    pub start_lsn: u64,
    /// The whole block in bytes, a multiple of [`UNIT_BYTES`].
    pub length: u32,
    /// The bytes in use, header included.
    pub used: u32,
    /// The offset of the first record that starts in the block, 0 if none does.
    pub first_record: u32,
    /// The sequence number of the first record that starts in the block or later.
    pub first_sequence: u64,
    /// The life of the database that wrote it.
    pub incarnation: u64,
}

impl Seal {
    /// Where the next block starts.
    pub fn end_lsn(&self) -> u64 {
        self.start_lsn + u64::from(self.length)
    }

    /// The header of a block that is closed and not yet written out.
    pub fn encode(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut header = [0; BLOCK_HEADER_BYTES];
        header[8..12].copy_from_slice(&MAGIC.to_le_bytes());
        header[12..16].copy_from_slice(&self.length.to_le_bytes());
        header[16..20].copy_from_slice(&self.used.to_le_bytes());
        header[20..24].copy_from_slice(&self.first_record.to_le_bytes());
        header[24..32].copy_from_slice(&self.start_lsn.to_le_bytes());
        header[32..40].copy_from_slice(&self.first_sequence.to_le_bytes());
        header[40..48].copy_from_slice(&self.incarnation.to_le_bytes());
        let checksum = checksum::crc32c(&header[SEAL]);
        header[4..8].copy_from_slice(&checksum.to_le_bytes());
        header
    }
}

/// A block's header as read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// The closed block's place and extent.
    pub seal: Seal,
    /// The segment it was written to (meaningless in the ring).
    pub segment: u64,
    /// Everything below this LSN was durable when the block was written out (meaningless in the ring).
    pub durable_lsn: u64,
}

impl BlockHeader {
    /// Reads a header; `None` if the bytes are not one (its own checksum is checked, the body's is not).
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..BLOCK_HEADER_BYTES)?;
        if u32_at(header, 8)? != MAGIC || u32_at(header, 4)? != checksum::crc32c(&header[SEAL]) {
            return None;
        }
        let seal = Seal {
            length: u32_at(header, 12)?,
            used: u32_at(header, 16)?,
            first_record: u32_at(header, 20)?,
            start_lsn: u64_at(header, 24)?,
            first_sequence: u64_at(header, 32)?,
            incarnation: u64_at(header, 40)?,
        };
        let (length, used) = (seal.length as usize, seal.used as usize);
        let sound = length % UNIT_BYTES == 0
            && (BLOCK_HEADER_BYTES..=length).contains(&used)
            && length <= BLOCK_BYTES_MAX
            && (seal.first_record == 0
                || (BLOCK_HEADER_BYTES..used).contains(&(seal.first_record as usize)))
            && seal.start_lsn.checked_add(u64::from(seal.length)).is_some();
        sound.then_some(Self {
            seal,
            segment: u64_at(header, 48)?,
            durable_lsn: u64_at(header, 56)?,
        })
    }
}

/// Completes the header of a closed block for writing it out: segment, durable LSN and the body's checksum.
/// `header` holds the seal; `body` is what follows it, in pieces (the ring may wrap inside a block).
pub fn finish_block(
    header: &mut [u8; BLOCK_HEADER_BYTES],
    body: [&[u8]; 2],
    segment: u64,
    durable_lsn: u64,
) {
    header[48..56].copy_from_slice(&segment.to_le_bytes());
    header[56..64].copy_from_slice(&durable_lsn.to_le_bytes());
    let mut checksum = checksum::crc32c(&header[4..]);
    for piece in body {
        checksum = checksum::extend(checksum, piece);
    }
    header[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// Whether a whole block (header included) is what was written out.
pub fn body_is_valid(block: &[u8]) -> bool {
    u32_at(block, 0).is_some_and(|stored| stored == checksum::crc32c(&block[4..]))
}
