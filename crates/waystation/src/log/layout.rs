//! Where the next record goes: pure arithmetic over stream positions.
//!
//! Invariants:
//! - `block_start` is a multiple of the unit; `block_start + BLOCK_HEADER_BYTES <= position <= block end`;
//! - a block is closed when the next record does not fit its header, when a record runs over its end, or at
//!   a sync (then padded to a unit); a closed block is never touched again by the layout;
//! - the records of a closed block tile it: nothing but headers and padding lies between them.

use waystation_format::log::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, RECORD_HEADER_BYTES, Seal, UNIT_BYTES,
};

const BLOCK: u64 = BLOCK_BYTES_MAX as u64;
const HEADER: u64 = BLOCK_HEADER_BYTES as u64;
const UNIT: u64 = UNIT_BYTES as u64;

/// The place handed out to one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The position of the record's header, to which its checksum is bound.
    pub(crate) record_lsn: u64,
    /// Where the block that holds the record's header ends; every later block of the record is full-length.
    pub(crate) first_block_end: u64,
    /// The position after the record's last byte.
    pub(crate) end_lsn: u64,
}

impl Place {
    /// The spans of the stream that the record's bytes go to, in order: (LSN, length).
    pub(crate) fn chunks(&self) -> impl Iterator<Item = (u64, usize)> + use<> {
        let (mut lsn, mut block_end, end) = (self.record_lsn, self.first_block_end, self.end_lsn);
        std::iter::from_fn(move || {
            if lsn >= end {
                return None;
            }
            let chunk = (lsn, (end.min(block_end) - lsn) as usize);
            lsn = block_end + HEADER;
            block_end += BLOCK;
            Some(chunk)
        })
    }
}

/// The open end of the stream.
#[derive(Debug)]
pub(crate) struct Layout {
    block_start: u64,
    position: u64,
    first_record: u32,
    /// That of the first record in the open block, if there is one.
    first_sequence: u64,
    /// That of the record to be placed next.
    next_sequence: u64,
    incarnation: u64,
}

impl Layout {
    /// An empty block at `start_lsn`, a multiple of the unit; the next record will have `next_sequence`.
    pub(crate) fn new(start_lsn: u64, incarnation: u64, next_sequence: u64) -> Self {
        assert_eq!(start_lsn % UNIT, 0, "a block starts on a unit");
        Self {
            block_start: start_lsn,
            position: start_lsn + HEADER,
            first_record: 0,
            first_sequence: 0,
            next_sequence,
            incarnation,
        }
    }

    /// A position with every record placed so far before it and every later one behind it, such that making
    /// the records before it durable reaches it: an empty block's header does not count.
    pub(crate) fn boundary(&self) -> u64 {
        if self.position == self.block_start + HEADER {
            self.block_start
        } else {
            self.position
        }
    }

    /// Where the open block starts: everything below is closed.
    pub(crate) fn block_start(&self) -> u64 {
        self.block_start
    }

    /// The sequence number of the first record that starts in the open block or later.
    pub(crate) fn first_sequence(&self) -> u64 {
        if self.first_record == 0 {
            self.next_sequence
        } else {
            self.first_sequence
        }
    }

    /// A position that a record of `record_bytes` placed now cannot run past.
    pub(crate) fn end_at_most(&self, record_bytes: usize) -> u64 {
        let bytes = record_bytes as u64;
        // The rest of this block may be skipped for want of room for a header; then a header a block.
        self.position + RECORD_HEADER_BYTES as u64 + bytes + HEADER * (2 + bytes / (BLOCK - HEADER))
    }

    /// Places a record of `record_bytes` (header included) with `operations` numbered from `first_sequence` on;
    /// `closed` receives each block this closes.
    pub(crate) fn place(
        &mut self,
        record_bytes: usize,
        first_sequence: u64,
        operations: u32,
        mut closed: impl FnMut(Seal),
    ) -> Place {
        debug_assert!(record_bytes >= RECORD_HEADER_BYTES);
        self.next_sequence = first_sequence;
        if self.room() < RECORD_HEADER_BYTES as u64 {
            closed(self.close(BLOCK));
        }
        if self.first_record == 0 {
            self.first_record = (self.position - self.block_start) as u32;
            self.first_sequence = first_sequence;
        }
        self.next_sequence = first_sequence + u64::from(operations);
        let record_lsn = self.position;
        let first_block_end = self.block_start + BLOCK;
        let mut left = record_bytes as u64;
        while left > self.room() {
            left -= self.room();
            self.position = self.block_start + BLOCK;
            closed(self.close(BLOCK));
        }
        self.position += left;
        Place {
            record_lsn,
            first_block_end,
            end_lsn: self.position,
        }
    }

    /// Closes the open block for a sync, padded to a unit; `None` if nothing was placed in it.
    pub(crate) fn seal(&mut self) -> Option<Seal> {
        let used = self.position - self.block_start;
        (used > HEADER).then(|| self.close(used.next_multiple_of(UNIT)))
    }

    fn room(&self) -> u64 {
        self.block_start + BLOCK - self.position
    }

    fn close(&mut self, length: u64) -> Seal {
        let seal = Seal {
            start_lsn: self.block_start,
            length: length as u32,
            used: (self.position - self.block_start) as u32,
            first_record: self.first_record,
            first_sequence: self.first_sequence(),
            incarnation: self.incarnation,
        };
        *self = Self::new(seal.end_lsn(), self.incarnation, self.next_sequence);
        seal
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Records and headers tile the stream without overlap, whatever the sizes and syncs.
        #[test]
        fn records_tile_the_stream(sizes in prop::collection::vec((24usize..200_000, any::<bool>()), 1..60)) {
            let mut layout = Layout::new(UNIT, 1, 1);
            let mut seals: Vec<Seal> = Vec::new();
            let mut places = Vec::new();
            for (sequence, (size, sync)) in sizes.iter().enumerate() {
                let bound = layout.end_at_most(*size);
                let place = layout.place(*size, sequence as u64 + 1, 1, |seal| seals.push(seal));
                prop_assert!(place.end_lsn <= bound);
                prop_assert_eq!(place.chunks().map(|chunk| chunk.1).sum::<usize>(), *size);
                prop_assert!(place.chunks().next().expect("chunk").1 >= RECORD_HEADER_BYTES);
                places.push(place);
                if *sync {
                    seals.extend(layout.seal());
                }
            }
            seals.extend(layout.seal());
            let mut next = UNIT;
            for seal in &seals {
                prop_assert_eq!(seal.start_lsn, next);
                next = seal.end_lsn();
            }
            let mut chunks = places.iter().flat_map(Place::chunks).peekable();
            for seal in &seals {
                let mut at = seal.start_lsn + HEADER;
                while let Some((lsn, length)) = chunks.next_if(|chunk| chunk.0 < seal.end_lsn()) {
                    prop_assert_eq!(lsn, at);
                    at += length as u64;
                }
                prop_assert_eq!(at, seal.start_lsn + u64::from(seal.used));
            }
            prop_assert!(chunks.next().is_none());
        }
    }

    #[test]
    fn a_block_knows_its_first_record() {
        let mut layout = Layout::new(0, 1, 5);
        let mut seals = Vec::new();
        layout.place(3 * BLOCK_BYTES_MAX, 5, 2, |seal| seals.push(seal));
        layout.place(100, 7, 1, |seal| seals.push(seal));
        seals.extend(layout.seal());
        let firsts: Vec<_> = seals
            .iter()
            .map(|seal| (seal.first_record, seal.first_sequence))
            .collect();
        // The first record runs through two more blocks and 192 bytes into the last; the second starts behind it.
        assert_eq!(firsts, [(64, 5), (0, 7), (0, 7), (64 + 3 * 64, 7)]);
        assert_eq!(layout.seal(), None, "an empty block is not closed");
    }
}
