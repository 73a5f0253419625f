//! Cuts records into chunks that fit their blocks.

use super::{BLOCK_BYTES, FIRST, FULL, HEADER_BYTES, LAST, MIDDLE};
use crate::checksum;

/// Frames records for a log file. It only knows how long the file is; the caller writes what it appends.
#[derive(Debug, Clone)]
pub struct RecordWriter {
    in_block: usize,
}

impl RecordWriter {
    /// A writer for a file that has `file_bytes` bytes: 0 if it is new.
    pub fn new(file_bytes: u64) -> Self {
        Self {
            in_block: (file_bytes % BLOCK_BYTES as u64) as usize,
        }
    }

    /// Appends to `out` the bytes that append `record` to the file.
    pub fn append(&mut self, record: &[u8], out: &mut Vec<u8>) {
        let mut rest = record;
        let mut first = true;
        loop {
            let room = self.room_for_chunk(out);
            let (data, after) = rest.split_at(rest.len().min(room));
            let kind = match (first, after.is_empty()) {
                (true, true) => FULL,
                (true, false) => FIRST,
                (false, false) => MIDDLE,
                (false, true) => LAST,
            };
            self.append_chunk(kind, data, out);
            if after.is_empty() {
                return;
            }
            rest = after;
            first = false;
        }
    }

    /// How much data the next chunk can hold; goes to the next block if not even a header fits.
    fn room_for_chunk(&mut self, out: &mut Vec<u8>) -> usize {
        let left = BLOCK_BYTES - self.in_block;
        if left < HEADER_BYTES {
            out.resize(out.len() + left, 0);
            self.in_block = 0;
        }
        BLOCK_BYTES - self.in_block - HEADER_BYTES
    }

    fn append_chunk(&mut self, kind: u8, data: &[u8], out: &mut Vec<u8>) {
        let crc = checksum::extend(checksum::crc32c(&[kind]), data);
        out.extend_from_slice(&checksum::mask(crc).to_le_bytes());
        out.extend_from_slice(&(data.len() as u16).to_le_bytes());
        out.push(kind);
        out.extend_from_slice(data);
        self.in_block += HEADER_BYTES + data.len();
        if self.in_block == BLOCK_BYTES {
            self.in_block = 0;
        }
    }
}
