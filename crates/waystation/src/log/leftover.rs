//! What a life left in the ring: records that had not reached a segment, as far as they are there.
//!
//! ```text
//!   from the cut on    | record 7 | record 8 |  9 ....  | record 11 | record 12 |  13 ..
//!   the process died     taken      taken      a hole     taken       taken        the end
//!   power failed         taken      taken      the end
//! ```
//!
//! Writers are acknowledged without waiting for those before them (`publication`). So after the death of the process a record
//! that is not complete, since its writer died while it copied, may stand before records that were acknowledged. Such a *hole*
//! was never acknowledged itself. Recovery goes on with the next record behind it: each one's checksum is bound to its
//! position, and its sequence number says how many the hole took. A record of the kind *gap* stands for them in the next
//! life.
//!
//! After a power cut each page of the ring is any old state of it. A record that is not complete may then be an acknowledged
//! one, and what stands behind it must not come back without it. `JOURNAL` says during which start of the machine the life
//! ran: holes are passed over only while that goes on.
//!
//! A closed block says where it ends, and its header is stored in the order of the log. So all closed blocks are known after the
//! death of a process, and nothing lies behind the first open one. A long record (`Log::is_long`) is the exception:
//! writes behind it wait for it, so nothing behind such a hole is looked for.
//!
//! A segment may begin amid a record, and the segments before it go once tables hold that record. So the rest of such a record may
//! stand before the first one: it is passed over like a hole, and took no sequence number.

use super::assembler::{Assembler, Record};
use super::ring::RingBuffer;
use crate::directory::RING_NAME;
use crate::error::{Error, Result};
use crate::storage::Storage;
use std::path::Path;
use waystation_format::log::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, BlockHeader, JournalState, RecordHeader, UNIT_BYTES,
    body_is_valid, ring_file_lengths,
};

/// The ring of a life that is over.
pub(crate) struct Leftover {
    ring: RingBuffer,
    incarnation: u64,
    /// Whether it is as its writers left it: the machine has not been off since.
    is_whole: bool,
}

/// The bytes of records from some position on, without block headers and padding.
struct Stream {
    bytes: Vec<u8>,
    /// Where each block's bytes begin here, and their position in the log.
    blocks: Vec<(usize, u64)>,
    /// Where the first open block ends.
    open_end: usize,
}

impl Leftover {
    /// Maps the ring that the life in `journal` left in `dir`. One that is needed and is not as it was left is an error, and
    /// stays as it is: a ring made anew in its place would say, at the next opening, that nothing was lost.
    pub(crate) fn map(storage: &dyn Storage, dir: &Path, journal: &JournalState) -> Result<Self> {
        let path = dir.join(RING_NAME);
        let is_of_ring =
            |bytes| ring_file_lengths(journal.ring_bytes).any(|length| length == bytes);
        if journal.clean_lsn == 0 {
            let entries = storage.list(dir)?;
            let reason = match entries.iter().find(|entry| entry.name == RING_NAME) {
                Some(entry) if is_of_ring(entry.bytes) => None,
                Some(entry) => Some(format!(
                    "the staging ring of a database that was not closed has {} bytes; {} bytes, or a half, a quarter .. \
                     of that, would be right",
                    entry.bytes, journal.ring_bytes
                )),
                None => {
                    Some("the staging ring of a database that was not closed is missing".to_owned())
                }
            };
            if let Some(reason) = reason {
                return Err(Error::corruption(path, 0, reason));
            }
        }
        let (ring, _) = storage.map_ring(&path, journal.ring_bytes as usize)?;
        Ok(Self {
            ring: RingBuffer::new(ring),
            incarnation: journal.incarnation,
            is_whole: journal.boot.is_some() && journal.boot == storage.boot_id(),
        })
    }

    /// The highest durable LSN in any block that was completed to be written out.
    pub(super) fn durable_lsn(&self) -> u64 {
        let bytes = self.ring.leftover(0);
        let mut known = 0;
        for (at, unit) in (0..).zip(bytes.chunks_exact(UNIT_BYTES)) {
            let at = at * UNIT_BYTES;
            let Some(header) = BlockHeader::decode(unit) else {
                continue;
            };
            let seal = &header.seal;
            if seal.incarnation != self.incarnation || seal.start_lsn % self.ring.len() != at as u64
            {
                continue;
            }
            let length = seal.length as usize;
            let valid = match bytes.get(at..at + length) {
                Some(block) => body_is_valid(block),
                // It runs over the window's end.
                None => {
                    body_is_valid(&[&bytes[at..], &bytes[..at + length - bytes.len()]].concat())
                }
            };
            if valid {
                known = known.max(header.durable_lsn);
            }
        }
        known
    }

    /// Delivers the records from `lsn` on.
    pub(super) fn replay<F: FnMut(Record<'_>) -> Result<()>>(
        &self,
        lsn: u64,
        assembler: &mut Assembler<'_, F>,
    ) -> Result<()> {
        assembler.enter_life(self.incarnation);
        assembler.started = true;
        let stream = self.stream(lsn);
        let mut at = 0;
        if assembler.is_amid_record() {
            // Segments hold its beginning. If its end is missing nothing behind it was acknowledged (`front`).
            match assembler.take(&stream.bytes, lsn)? {
                Some(taken) => at = taken,
                None => return Ok(()),
            }
        }
        loop {
            while let Some(taken) = assembler.take_whole(&stream.bytes[at..], stream.lsn(at))? {
                at += taken;
            }
            match self.behind_hole(&stream, at, assembler)? {
                Some(next) => at = next,
                None => return Ok(()),
            }
        }
    }

    /// Looks for the next record behind a hole that begins at `hole`, and takes the hole's sequence numbers for a gap. The rest of
    /// a record that tables hold, and that no segment does, is passed over in the same way.
    fn behind_hole<F: FnMut(Record<'_>) -> Result<()>>(
        &self,
        stream: &Stream,
        hole: usize,
        assembler: &mut Assembler<'_, F>,
    ) -> Result<Option<usize>> {
        // Each operation takes a byte at least.
        let gap_max = if self.is_whole { self.ring.len() } else { 0 };
        for at in hole + 1..stream.open_end {
            let bytes = &stream.bytes[at..stream.open_end];
            if let Some(header) = RecordHeader::peek(bytes)
                && let Some(gap) = assembler.gap_before(&header).filter(|gap| *gap <= gap_max)
                && assembler.holds(bytes, stream.lsn(at))
            {
                if gap > 0 {
                    assembler.add_gap(gap as u32)?;
                }
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn stream(&self, mut lsn: u64) -> Stream {
        let window = self.ring.leftover(lsn);
        let mut rest = &window[..];
        let mut stream = Stream {
            bytes: Vec::with_capacity(window.len()),
            blocks: Vec::new(),
            open_end: 0,
        };
        let mut is_behind_open = false;
        while rest.len() >= BLOCK_HEADER_BYTES {
            // A closed block says where it ends; the open one goes on as long as its records check.
            let closed = BlockHeader::decode(rest)
                .map(|header| header.seal)
                .filter(|seal| seal.start_lsn == lsn && seal.incarnation == self.incarnation);
            let length = closed
                .map_or(BLOCK_BYTES_MAX, |seal| seal.length as usize)
                .min(rest.len());
            let used = closed.map_or(length, |seal| seal.used as usize).min(length);
            let records = &rest[BLOCK_HEADER_BYTES.min(used)..used];
            stream
                .blocks
                .push((stream.bytes.len(), lsn + BLOCK_HEADER_BYTES as u64));
            stream.bytes.extend_from_slice(records);
            if !is_behind_open {
                stream.open_end = stream.bytes.len();
            }
            is_behind_open |= closed.is_none();
            lsn += length as u64;
            rest = &rest[length..];
        }
        stream
    }
}

impl Stream {
    /// The position in the log of the byte at `at`.
    fn lsn(&self, at: usize) -> u64 {
        let behind = self.blocks.partition_point(|(start, _)| *start <= at);
        let Some((start, lsn)) = behind.checked_sub(1).map(|block| self.blocks[block]) else {
            return 0;
        };
        lsn + (at - start) as u64
    }
}
