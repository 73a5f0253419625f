//! Reads records, and tells a torn tail from damage.
//!
//! Torn: the file ends within a chunk or within a record, as after a crash while it was written. Damaged:
//! anything else that does not check. A chunk that seems to reach past the end because a bit of its *length*
//! flipped is damage too: its data still matches its checksum at the length it had.

use super::{BLOCK_BYTES, FIRST, FULL, HEADER_BYTES, LAST, MIDDLE};
use crate::checksum;
use crate::error::FormatError;

/// How a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With the last byte of a record (or zeros that were written ahead).
    Clean,
    /// Within a record, which was never complete.
    Torn,
}

/// The records of a log file.
///
/// [`next`](Self::next) answers damage with an error, and when called again goes on with the next record
/// that is whole. A strict caller stops at the first error; one that salvages goes on.
#[derive(Debug)]
pub struct RecordReader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The pieces of the record being read.
    pieces: Vec<u8>,
    /// Where the record being read begins, once its first chunk was read.
    began: Option<usize>,
    whole_through: usize,
    ending: Ending,
}

enum Chunk<'a> {
    Data { at: usize, kind: u8, data: &'a [u8] },
    End,
}

impl<'a> RecordReader<'a> {
    /// A reader of a whole file.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            pieces: Vec::new(),
            began: None,
            whole_through: 0,
            ending: Ending::Clean,
        }
    }

    /// How the log ends; meaningful once [`next`](Self::next) answered `None`.
    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// Where the last record read ends: what follows it was not complete, or not read yet.
    pub fn whole_through(&self) -> u64 {
        self.whole_through as u64
    }

    /// The next record; `None` at the end.
    #[expect(
        clippy::should_implement_trait,
        reason = "a record may lie in the reader's own memory"
    )]
    pub fn next(&mut self) -> Result<Option<&[u8]>, FormatError> {
        loop {
            let (at, kind, data) = match self.next_chunk() {
                Ok(Chunk::Data { at, kind, data }) => (at, kind, data),
                Ok(Chunk::End) => {
                    if self.began.take().is_some() {
                        self.ending = Ending::Torn;
                    }
                    return Ok(None);
                }
                Err(error) => {
                    self.began = None;
                    return Err(error);
                }
            };
            match (kind, self.began) {
                (FULL | FIRST, Some(began)) => {
                    self.at = at; // this chunk is read again, as what it is
                    self.began = None;
                    // An old LevelDB left empty FIRST chunks at the end of blocks.
                    if !self.pieces.is_empty() {
                        return Err(FormatError::malformed(began, "a record has no end"));
                    }
                }
                (FULL, None) => {
                    self.whole_through = self.at;
                    return Ok(Some(data));
                }
                (FIRST, None) => {
                    self.began = Some(at);
                    self.pieces.clear();
                    self.pieces.extend_from_slice(data);
                }
                (MIDDLE, Some(_)) => self.pieces.extend_from_slice(data),
                (LAST, Some(_)) => {
                    self.pieces.extend_from_slice(data);
                    self.began = None;
                    self.whole_through = self.at;
                    return Ok(Some(&self.pieces));
                }
                (MIDDLE | LAST, None) => {
                    return Err(FormatError::malformed(at, "a record has no beginning"));
                }
                _ => return Err(FormatError::unsupported(at, "a chunk has type 1 to 4")),
            }
        }
    }

    fn next_chunk(&mut self) -> Result<Chunk<'a>, FormatError> {
        loop {
            let at = self.at;
            let block_end = (at / BLOCK_BYTES + 1) * BLOCK_BYTES;
            let in_last_block = block_end > self.bytes.len();
            let block = &self.bytes[at..block_end.min(self.bytes.len())];
            let Some((header, after)) = block.split_first_chunk::<HEADER_BYTES>() else {
                let zeros = block.iter().all(|&byte| byte == 0);
                if in_last_block {
                    self.at = self.bytes.len();
                    if !zeros {
                        self.ending = Ending::Torn;
                    }
                    return Ok(Chunk::End);
                }
                self.at = block_end;
                if !zeros {
                    return Err(FormatError::malformed(at, "a block is filled with zeros"));
                }
                continue;
            };
            // Wherever this goes wrong, the next block is the next place to look.
            self.at = block_end.min(self.bytes.len());
            let &[c0, c1, c2, c3, l0, l1, kind] = header;
            let stored = checksum::unmask(u32::from_le_bytes([c0, c1, c2, c3]));
            let length = usize::from(u16::from_le_bytes([l0, l1]));
            if *header == [0; HEADER_BYTES] && after.iter().all(|&byte| byte == 0) {
                continue; // space that was written ahead
            }
            let crc = |data| checksum::extend(checksum::crc32c(&[kind]), data);
            let Some(data) = after.get(..length) else {
                let once_shorter = |bit: u32| after.get(..length ^ (1 << bit));
                let damaged = (0..16).filter_map(once_shorter).any(|d| crc(d) == stored);
                if in_last_block && !damaged {
                    self.ending = Ending::Torn;
                    return Ok(Chunk::End);
                }
                return Err(FormatError::malformed(at, "a chunk passes its block's end"));
            };
            if crc(data) != stored {
                return Err(FormatError::checksum(at, "a chunk of a log"));
            }
            self.at = at + HEADER_BYTES + length;
            return Ok(Chunk::Data { at, kind, data });
        }
    }
}
