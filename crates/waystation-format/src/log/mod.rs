//! Waystation's own log: an endless stream of bytes, cut into blocks, carried by segment files.
//!
//! A *log sequence number* (LSN) is a position in that stream; it counts everything, headers and padding too,
//! so that a position in a segment file is `SEGMENT_HEADER_BYTES + (lsn - start_lsn)` and a position in the
//! staging ring is `lsn % ring_bytes`.
//!
//! ```text
//! segment file   | header unit | block | block | block ...        | index | footer |
//! block          | 64-byte header | end of a record | record | record | start of a rec | zero padding |
//! record         | 24-byte header | payload: the operations of one batch |
//! ```
//!
//! - A block is at most [`BLOCK_BYTES_MAX`] long, a multiple of [`UNIT_BYTES`], and starts on such a multiple:
//!   a unit that was made durable is never written again, so padding closes a block early at each sync.
//! - A record may run over several blocks, and over a segment's end; its header never does.
//! - Both checksums of a record are bound to the place (LSN) and the life of the database (incarnation) it was
//!   written in, so that bytes of an earlier lap of the ring, or behind a cut, are never taken for a record.
//! - All integers are little-endian. The numbers below are on disk: never renumber.

mod block;
mod journal;
mod record;
mod segment;

pub use block::{BlockHeader, Seal, body_is_valid, finish_block};
pub use journal::{JournalState, ring_file_lengths};
pub use record::{RecordHeader, RecordKind};
pub use segment::{
    FOOTER_BYTES, IndexEntry, SegmentFooter, SegmentHeader, decode_index, encode_index, tail_bytes,
};

/// The unit of placement: blocks start and end on multiples of it (bytes).
pub const UNIT_BYTES: usize = 4096;
/// The length of a block that was not closed early (bytes).
pub const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// The length of a block's header (bytes).
pub const BLOCK_HEADER_BYTES: usize = 64;
/// The length of a record's header (bytes).
pub const RECORD_HEADER_BYTES: usize = 24;
/// The length of a segment's header: one unit, so that blocks stay aligned (bytes).
pub const SEGMENT_HEADER_BYTES: usize = UNIT_BYTES;

/// Reads a little-endian `u32` at `offset`, or `None` past the end.
fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes
        .get(offset..)?
        .first_chunk::<4>()
        .map(|b| u32::from_le_bytes(*b))
}

/// Reads a little-endian `u64` at `offset`, or `None` past the end.
fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes
        .get(offset..)?
        .first_chunk::<8>()
        .map(|b| u64::from_le_bytes(*b))
}

#[cfg(test)]
mod tests;
