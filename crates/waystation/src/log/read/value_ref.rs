//! Value references: some bytes of a record, and how they are cut out of the bytes that were read.

use crate::log::layout::Place;
use std::ops::Range;
use waystation_format::log::{RECORD_HEADER_BYTES, RecordHeader, UNIT_BYTES};

/// Some bytes of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ValueRef {
    /// The position of the record.
    pub(crate) record_lsn: u64,
    /// Where in the record, header included, they start.
    pub(crate) offset: usize,
    /// Where in the reader's memory they go.
    pub(crate) target: Range<usize>,
}

impl ValueRef {
    /// Where in the record they end.
    pub(super) fn end(&self) -> usize {
        self.offset + self.target.len()
    }

    /// Copies them out of the record.
    #[must_use]
    pub(super) fn copy(&self, record: &[u8], values: &mut [u8]) -> Option<()> {
        let found = record.get(self.offset..self.end())?;
        values[self.target.clone()].copy_from_slice(found);
        Some(())
    }
}

/// Where in their record all of `value_refs` end.
pub(super) fn end_of(value_refs: &[ValueRef]) -> usize {
    value_refs.iter().map(ValueRef::end).max().unwrap_or(0)
}

/// A record, and where the block ends in which it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    pub(super) record_lsn: u64,
    pub(super) first_block_end: u64,
}

impl Start {
    /// Where the record's bytes lie: (LSN, length), up to its end and beyond.
    fn chunks(self) -> impl Iterator<Item = (u64, usize)> {
        let place = Place {
            record_lsn: self.record_lsn,
            first_block_end: self.first_block_end,
            end_lsn: u64::MAX / 2,
        };
        place.chunks()
    }

    /// Where the `range` of its bytes lies: (LSN, part of the range).
    pub(super) fn parts(self, range: Range<usize>) -> impl Iterator<Item = (u64, Range<usize>)> {
        let (mut chunks, mut before) = (self.chunks(), 0);
        std::iter::from_fn(move || {
            while before < range.end && !range.is_empty() {
                let (lsn, length) = chunks.next()?;
                let first = before;
                before += length;
                if before > range.start {
                    let part = first.max(range.start)..before.min(range.end);
                    return Some((lsn + (part.start - first) as u64, part));
                }
            }
            None
        })
    }

    /// The whole units in which its first `bytes` bytes lie.
    pub(super) fn units(self, bytes: usize) -> Range<u64> {
        let unit = UNIT_BYTES as u64;
        let last = self.parts(bytes - 1..bytes).next();
        let end = last.map_or(self.record_lsn, |(lsn, _)| lsn) + 1;
        self.record_lsn / unit * unit..end.next_multiple_of(unit)
    }

    /// The record, if all of it lies in `bytes`, the log from `start` on, and checks. Put together in `scattered` if it
    /// lies in several blocks.
    pub(super) fn verified<'a>(
        self,
        bytes: &'a [u8],
        start: u64,
        incarnation: u64,
        scattered: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        let from = (self.record_lsn - start) as usize;
        let block_end = (self.first_block_end - start) as usize;
        let within = bytes.get(from..block_end.min(bytes.len()))?;
        let header = RecordHeader::peek(within)?;
        let length = RECORD_HEADER_BYTES + header.payload_bytes as usize;
        let record = if let Some(record) = within.get(..length) {
            record
        } else {
            scattered.clear();
            for (lsn, part) in self.parts(0..length) {
                let from = (lsn - start) as usize;
                scattered.extend_from_slice(bytes.get(from..from + part.len())?);
            }
            scattered
        };
        let (head, payload) = record.split_first_chunk()?;
        RecordHeader::matches(head, payload, self.record_lsn, incarnation).then_some(record)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use waystation_format::log::{BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES};

    const BLOCK: u64 = BLOCK_BYTES_MAX as u64;
    const HEADER: u64 = BLOCK_HEADER_BYTES as u64;

    #[test]
    fn parts_skip_the_headers_of_blocks() {
        let start = Start {
            record_lsn: 3 * BLOCK - 100,
            first_block_end: 3 * BLOCK,
        };
        let all: Vec<_> = start.parts(40..200).collect();
        let second = 3 * BLOCK + HEADER;
        assert_eq!(all, [(3 * BLOCK - 60, 40..100), (second, 100..200)]);
        let behind: Vec<_> = start.parts(130..140).collect();
        assert_eq!(behind, [(second + 30, 130..140)]);
        let far = 100 + (BLOCK - HEADER) as usize;
        let last: Vec<_> = start.parts(far..far + 1).collect();
        assert_eq!(last, [(4 * BLOCK + HEADER, far..far + 1)]);
        assert_eq!(start.parts(50..50).count(), 0);
    }

    #[test]
    fn units_are_those_that_a_record_touches() {
        let unit = UNIT_BYTES as u64;
        let start = |record_lsn| Start {
            record_lsn,
            first_block_end: BLOCK,
        };
        assert_eq!(start(HEADER).units(10), 0..unit);
        assert_eq!(start(unit - 10).units(10), 0..unit);
        assert_eq!(start(unit - 10).units(11), 0..2 * unit);
        // Its last byte lies behind the next block's header.
        assert_eq!(start(BLOCK - 30).units(31), BLOCK - unit..BLOCK + unit);
    }
}
