//! The record: one batch of operations, atomic and checksummed.
//!
//! ```text
//!  0 checksum        u32   crc32c of bytes 4..24, the LSN, the incarnation and the payload's crc32c
//!  4 payload length  u32
//!  8 first sequence  u64
//! 16 operations      u32   each operation has a sequence number of its own, counting from the first
//! 20 kind            u32
//! 24 payload
//! ```
//!
//! The checksum is built in two steps so that the long part is computed before the record's place is known:
//! the payload's checksum outside of any lock, the header's when LSN and sequence have been handed out.

use super::{RECORD_HEADER_BYTES, u32_at, u64_at};
use crate::checksum;
use crate::key::MAX_SEQUENCE;

/// What a record holds. On disk: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum RecordKind {
    /// Puts and deletes in `LevelDB`'s batch encoding, without its 12-byte header.
    Batch = 1,
    /// What happened to devices: see docs/formats/devices.md. Counts as one operation.
    Devices = 2,
    /// Sequence numbers that no operation has: a process died before it had completed the record that took them. The
    /// payload is empty.
    Gap = 3,
}

impl RecordKind {
    fn from_u32(kind: u32) -> Option<Self> {
        match kind {
            1 => Some(Self::Batch),
            2 => Some(Self::Devices),
            3 => Some(Self::Gap),
            _ => None,
        }
    }
}

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// The payload's length in bytes.
    pub payload_bytes: u32,
    /// The sequence number of the first operation.
    pub first_sequence: u64,
    /// How many operations the payload holds.
    pub operations: u32,
    /// What the payload is.
    pub kind: RecordKind,
}

impl RecordHeader {
    /// The sequence number of the last operation.
    pub fn last_sequence(&self) -> u64 {
        self.first_sequence + u64::from(self.operations.max(1)) - 1
    }

    /// The header's bytes for a record at `lsn` of life `incarnation`.
    pub fn encode(
        &self,
        lsn: u64,
        incarnation: u64,
        payload_checksum: u32,
    ) -> [u8; RECORD_HEADER_BYTES] {
        let mut header = [0; RECORD_HEADER_BYTES];
        header[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        header[8..16].copy_from_slice(&self.first_sequence.to_le_bytes());
        header[16..20].copy_from_slice(&self.operations.to_le_bytes());
        header[20..24].copy_from_slice(&(self.kind as u32).to_le_bytes());
        let checksum = bound_checksum(&header, lsn, incarnation, payload_checksum);
        header[..4].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// Reads a header without checking it against its payload: only the shape. `None` if it cannot be one.
    pub fn peek(header: &[u8]) -> Option<Self> {
        let kind = RecordKind::from_u32(u32_at(header, 20)?)?;
        let first_sequence = u64_at(header, 8)?;
        let operations = u32_at(header, 16)?;
        let last = first_sequence.checked_add(u64::from(operations).checked_sub(1)?)?;
        (last <= MAX_SEQUENCE).then_some(Self {
            payload_bytes: u32_at(header, 4)?,
            first_sequence,
            operations,
            kind,
        })
    }

    /// Whether `header` and `payload` are a record that was written at `lsn` in life `incarnation`.
    pub fn matches(
        header: &[u8; RECORD_HEADER_BYTES],
        payload: &[u8],
        lsn: u64,
        incarnation: u64,
    ) -> bool {
        u32_at(header, 0)
            == Some(bound_checksum(
                header,
                lsn,
                incarnation,
                checksum::crc32c(payload),
            ))
    }
}

fn bound_checksum(
    header: &[u8; RECORD_HEADER_BYTES],
    lsn: u64,
    incarnation: u64,
    payload_checksum: u32,
) -> u32 {
    let mut bound = [0; RECORD_HEADER_BYTES - 4 + 20];
    bound[..20].copy_from_slice(&header[4..]);
    bound[20..28].copy_from_slice(&lsn.to_le_bytes());
    bound[28..36].copy_from_slice(&incarnation.to_le_bytes());
    bound[36..40].copy_from_slice(&payload_checksum.to_le_bytes());
    checksum::crc32c(&bound)
}
