//! The `JOURNAL` file: which life of the database owns the log.
//!
//! ```text
//!  0 magic "WSJOURN1"   8 checksum u32 of 12..48   12 version u32   16 incarnation u64
//! 24 ring bytes u64    32 first segment u64       40 clean LSN u64 (0: not closed cleanly)
//! 48 boot 16 bytes     (zeros: unknown; version 1 ends before it)
//! ```
//!
//! It is replaced (temporary file, sync, rename, directory sync) once at each open, as the last step of
//! recovery, and once at a clean close. Until it names a new incarnation, whatever a half-done recovery
//! wrote does not count; from then on the ring's old content does not count.

use super::{BLOCK_BYTES_MAX, UNIT_BYTES, u32_at, u64_at};
use crate::checksum;
use std::iter;

/// The longest ring there can be (bytes).
const RING_BYTES_MAX: u64 = 1 << 30;
/// A ring's file is no shorter (bytes): writers fill one block of a ring while another one is written out, and the longest
/// record that is not written chunk by chunk takes half a ring.
const RING_FILE_BYTES_MIN: u64 = 4 * BLOCK_BYTES_MAX as u64;
const MAGIC: &[u8; 8] = b"WSJOURN1";
const VERSION: u32 = 2;
/// The length of the file in version 1, and in this one.
const BYTES_OF_1: usize = 48;
const BYTES: usize = 64;

/// The content of the `JOURNAL` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalState {
    /// The life of the database, counted up at each open.
    pub incarnation: u64,
    /// The length in bytes up to which the staging ring grows in this life.
    pub ring_bytes: u64,
    /// The first segment of this life: it, or one after it, must exist.
    pub first_segment: u64,
    /// After a clean close, where the log ends; everything below must be there. 0 while open.
    pub clean_lsn: u64,
    /// The start of the machine during which this life runs, if that is known: a ring is whole as long as it lasts.
    pub boot: Option<[u8; 16]>,
}

impl JournalState {
    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        for field in [
            self.incarnation,
            self.ring_bytes,
            self.first_segment,
            self.clean_lsn,
        ] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&self.boot.unwrap_or_default());
        let checksum = checksum::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Whether `bytes` are a file of a newer version of the format than this code knows.
    pub fn is_newer(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC) && u32_at(bytes, 12).is_some_and(|version| version > VERSION)
    }

    /// Reads the file's bytes; the error says what does not hold.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let fields = (|| {
            Some((
                u32_at(bytes, 8)?,
                u32_at(bytes, 12)?,
                [16, 24, 32, 40].map(|at| u64_at(bytes, at)),
            ))
        })();
        let Some((
            checksum,
            version,
            [
                Some(incarnation),
                Some(ring_bytes),
                Some(first_segment),
                Some(clean_lsn),
            ],
        )) = fields
        else {
            return Err("it is shorter than a journal file");
        };
        if &bytes[..8] != MAGIC || ![BYTES_OF_1, BYTES].contains(&bytes.len()) {
            return Err("it is not a journal file");
        }
        if checksum != checksum::crc32c(&bytes[12..]) {
            return Err("its checksum does not match");
        }
        let boot = match (version, bytes.len()) {
            (1, BYTES_OF_1) => None,
            (VERSION, BYTES) => bytes.last_chunk().copied().filter(|boot| boot != &[0; 16]),
            (1 | VERSION, _) => return Err("its length is that of another version"),
            _ => return Err("it was written by a newer version"),
        };
        let is_ring = ring_bytes <= RING_BYTES_MAX && ring_bytes.is_multiple_of(UNIT_BYTES as u64);
        if !is_ring {
            return Err("it names a length that no ring has");
        }
        Ok(Self {
            incarnation,
            ring_bytes,
            first_segment,
            clean_lsn,
            boot,
        })
    }
}

/// The lengths (bytes) that the file of a ring of `ring_bytes` can have, the longest first. It begins with the shortest, and
/// is doubled until it has all of `ring_bytes`.
///
/// ```
/// # use waystation_format::log::ring_file_lengths;
/// let lengths: Vec<u64> = ring_file_lengths(1 << 20).collect();
/// assert_eq!(lengths, [1 << 20, 512 << 10, 256 << 10]);
/// ```
pub fn ring_file_lengths(ring_bytes: u64) -> impl Iterator<Item = u64> {
    let half = |length: &u64| {
        let half = length / 2;
        let is_length = length.is_multiple_of(2 * UNIT_BYTES as u64) && half >= RING_FILE_BYTES_MIN;
        is_length.then_some(half)
    };
    iter::successors(Some(ring_bytes), half)
}
