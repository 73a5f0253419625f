//! Reading back: the values that the upper level keeps in the log and nowhere else.
//!
//! A record lies in a block that is open, closed and waiting, being written, or in a segment. Bytes that are not
//! released yet are copied out of the ring under the writer's lock: nothing is released meanwhile, so nobody
//! writes there. Other bytes come from their segment, a whole block at a time, which is verified by its checksum
//! and cached.

use super::Log;
use super::layout::Place;
use super::ring::Settled;
use super::segment::{Inherited, SealedSegment, SegmentFile};
use super::writer_state::WriterState;
use crate::error::{Error, Result};
use crate::storage::AlignedBuffer;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{Arc, lock};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use waystation_format::log::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, BlockHeader, IndexEntry, RECORD_HEADER_BYTES,
    RecordHeader, SEGMENT_HEADER_BYTES, Seal, UNIT_BYTES, body_is_valid,
};

/// Reading on over a gap of this size costs no more than another read (bytes).
const GAP_BYTES_MAX: u64 = 64 * 1024;
/// At most this much is read at once (bytes). After each read the thread has to get a processor again, which
/// busy writers make it wait for.
const STRETCH_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Blocks of the log that were read lately, by position.
pub(super) struct LogCache(Option<Cache<u64, Arc<[u8]>, ByLength>>);

#[derive(Clone)]
struct ByLength;

impl Weighter<u64, Arc<[u8]>> for ByLength {
    fn weight(&self, _: &u64, block: &Arc<[u8]>) -> u64 {
        block.len() as u64
    }
}

impl LogCache {
    /// A cache of `bytes`; none at all if there is no room for a few blocks.
    pub(super) fn new(bytes: usize) -> Self {
        let blocks = bytes / BLOCK_BYTES_MAX;
        Self((blocks >= 4).then(|| Cache::with_weighter(blocks, bytes as u64, ByLength)))
    }

    fn get(&self, lsn: u64) -> Option<Arc<[u8]>> {
        self.0.as_ref()?.get(&lsn)
    }

    fn insert(&self, lsn: u64, block: &Arc<[u8]>) {
        if let Some(cache) = &self.0 {
            cache.insert(lsn, Arc::clone(block));
        }
    }
}

/// Where a block is.
enum Found {
    /// In the ring; it ends here.
    Staged {
        end_lsn: u64,
    },
    Stored(Stored),
}

/// A block in a segment.
#[derive(Clone)]
struct Stored {
    file: Arc<SegmentFile>,
    block: IndexEntry,
}

impl Found {
    fn end_lsn(&self) -> u64 {
        match self {
            Self::Staged { end_lsn } => *end_lsn,
            Self::Stored(stored) => stored.end_lsn(),
        }
    }
}

impl Stored {
    /// Whether it is worth reading together with `near`, which begins with `first`.
    fn is_near(&self, first: &Self, near: &[(usize, Self)]) -> bool {
        let end = near.last().map_or(0, |(_, last)| last.end_lsn());
        Arc::ptr_eq(&self.file, &first.file)
            && self.block.start_lsn <= end + GAP_BYTES_MAX
            && self.end_lsn() - first.block.start_lsn <= STRETCH_BYTES_MAX
    }

    fn end_lsn(&self) -> u64 {
        self.block.start_lsn + u64::from(self.block.length)
    }

    fn damaged(&self, reason: &str) -> Error {
        let offset = self.file.offset_of(self.block.start_lsn);
        Error::corruption(&self.file.path, offset, reason)
    }
}

impl Log {
    /// Reads `bytes.len()` bytes of the record at `record_lsn`, from `offset` on (its header included). The
    /// record is visible, and its part of the log is not freed.
    pub(crate) fn read_back(&self, record_lsn: u64, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let first_block_end = self.find_block(record_lsn)?.end_lsn();
        let place = Place {
            record_lsn,
            first_block_end,
            end_lsn: u64::MAX - 2 * BLOCK_BYTES_MAX as u64,
        };
        let (mut skip, mut rest) = (offset, bytes);
        for (lsn, length) in place.pieces() {
            if rest.is_empty() {
                break;
            }
            if skip >= length {
                skip -= length;
                continue;
            }
            let wanted = rest.len().min(length - skip);
            let (now, later) = std::mem::take(&mut rest).split_at_mut(wanted);
            self.read_piece(lsn + skip as u64, now)?;
            (rest, skip) = (later, 0);
        }
        Ok(())
    }

    /// Reads bytes that lie within one block.
    fn read_piece(&self, lsn: u64, bytes: &mut [u8]) -> Result<()> {
        while self.released_lsn.load(SeqCst) <= lsn {
            let _no_release = lock(&self.writer);
            if self.released_lsn.load(SeqCst) <= lsn {
                let settled = Settled {
                    lsn,
                    len: bytes.len(),
                };
                let [first, second] = self.ring.pieces(&settled);
                let (left, right) = bytes.split_at_mut(first.len());
                left.copy_from_slice(first);
                right.copy_from_slice(second);
                return Ok(());
            }
        }
        let Found::Stored(stored) = self.find_block(lsn)? else {
            return Err(self.lost(lsn));
        };
        let block = self.stored_block(&stored)?;
        let at = (lsn - stored.block.start_lsn) as usize;
        let found = block.get(at..at + bytes.len());
        bytes.copy_from_slice(found.ok_or_else(|| stored.damaged("a value runs over its block"))?);
        Ok(())
    }

    /// The whole block, from the cache or verified into it.
    fn stored_block(&self, stored: &Stored) -> Result<Arc<[u8]>> {
        let lsn = stored.block.start_lsn;
        if let Some(block) = self.cache.get(lsn) {
            return Ok(block);
        }
        let bytes = stored.file.read(lsn, stored.block.length as usize)?;
        let sound = BlockHeader::decode(&bytes)
            .is_some_and(|header| header.seal.start_lsn == lsn && body_is_valid(&bytes));
        if !sound {
            return Err(stored.damaged("a block does not check"));
        }
        let block: Arc<[u8]> = Arc::from(&bytes[..]);
        self.cache.insert(lsn, &block);
        Ok(block)
    }

    /// Reads the payloads of the records at `lsns`, which ascend, and hands each on with its place in the list.
    /// Without the cache, for those who pass by once: what lies near together is read at once, and each record is
    /// verified by its own checksum. A record in the ring, or that goes on beyond what was read, takes the other way.
    pub(crate) fn read_payloads(
        &self,
        lsns: &[u64],
        hand_on: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<()> {
        let mut stretch = AlignedBuffer::new();
        let mut near: Vec<(usize, Stored)> = Vec::new();
        for (at, &lsn) in lsns.iter().enumerate() {
            if let Some((_, last)) = near.last()
                && lsn < last.end_lsn()
            {
                let stored = last.clone();
                near.push((at, stored));
                continue;
            }
            match self.find_block(lsn)? {
                Found::Stored(stored) => {
                    if near
                        .first()
                        .is_some_and(|(_, first)| !stored.is_near(first, &near))
                    {
                        self.read_near(lsns, &near, &mut stretch, hand_on)?;
                        near.clear();
                    }
                    near.push((at, stored));
                }
                Found::Staged { .. } => {
                    // In the order of the list.
                    self.read_near(lsns, &near, &mut stretch, hand_on)?;
                    near.clear();
                    hand_on(at, &self.read_payload(lsn)?);
                }
            }
        }
        self.read_near(lsns, &near, &mut stretch, hand_on)
    }

    /// Reads the records in neighbouring blocks, by way of `stretch`.
    fn read_near(
        &self,
        lsns: &[u64],
        near: &[(usize, Stored)],
        stretch: &mut AlignedBuffer,
        hand_on: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<()> {
        let (Some((_, first)), Some((_, last))) = (near.first(), near.last()) else {
            return Ok(());
        };
        let start = first.block.start_lsn;
        stretch.resize((last.end_lsn() - start) as usize);
        let bytes = stretch.as_mut_slice();
        first.file.read_into(start, bytes)?;
        let mut scattered = Vec::new();
        for (at, stored) in near {
            let lsn = lsns[*at];
            let record = record_in(bytes, start, lsn, stored, &mut scattered);
            let Some((head, payload)) = record.and_then(|it| it.split_first_chunk()) else {
                hand_on(*at, &self.read_payload(lsn)?);
                continue;
            };
            if !RecordHeader::matches(head, payload, lsn, stored.file.header.incarnation) {
                return Err(stored.damaged("a record in it does not check"));
            }
            hand_on(*at, payload);
        }
        Ok(())
    }

    /// Reads the payload of the record at `record_lsn`, wherever it is.
    fn read_payload(&self, record_lsn: u64) -> Result<Vec<u8>> {
        let mut head = [0; RECORD_HEADER_BYTES];
        self.read_back(record_lsn, 0, &mut head)?;
        let header = RecordHeader::peek(&head).ok_or_else(|| self.lost(record_lsn))?;
        let mut payload = vec![0; header.payload_bytes as usize];
        self.read_back(record_lsn, RECORD_HEADER_BYTES, &mut payload)?;
        Ok(payload)
    }

    /// The block that holds the byte at `lsn`.
    fn find_block(&self, lsn: u64) -> Result<Found> {
        // What has been released stays so; the front, which every writer passes, is asked for the rest only.
        let open_lsn =
            (lsn >= self.released_lsn.load(SeqCst)).then(|| lock(&self.front).layout.block_start());
        let state = lock(&self.writer);
        if lsn >= self.released_lsn.load(SeqCst) {
            let staged = if let Some(open_lsn) = open_lsn.filter(|open| lsn >= *open) {
                Some(open_lsn + BLOCK_BYTES_MAX as u64)
            } else {
                let holds = |seal: &&Seal| (seal.start_lsn..seal.end_lsn()).contains(&lsn);
                let waiting = state.staged_blocks().find(holds).map(Seal::end_lsn);
                waiting.or_else(|| lock(&self.closed).iter().find(holds).map(Seal::end_lsn))
            };
            return staged
                .map(|end_lsn| Found::Staged { end_lsn })
                .ok_or_else(|| self.lost(lsn));
        }
        if let Some(block) = block_in(&state.current.blocks, lsn) {
            return Ok(Found::Stored(Stored {
                file: Arc::clone(&state.current.file),
                block,
            }));
        }
        let inherited = match sealed_block(&state, lsn) {
            Some(Sealed::Own(stored)) => return Ok(Found::Stored(stored)),
            Some(Sealed::Inherited(inherited, end_lsn)) => (inherited, end_lsn),
            None => return Err(self.lost(lsn)),
        };
        drop(state);
        let (segment, end_lsn) = inherited;
        let blocks = if let Some(blocks) = segment.blocks.get() {
            blocks
        } else {
            let read = blocks_of(&segment.file, end_lsn)?;
            segment.blocks.get_or_init(|| read)
        };
        let block = block_in(blocks, lsn).ok_or_else(|| self.lost(lsn))?;
        Ok(Found::Stored(Stored {
            file: Arc::clone(&segment.file),
            block,
        }))
    }

    fn lost(&self, lsn: u64) -> Error {
        let reason = format!("the log does not hold position {lsn}, which the upper level names");
        Error::corruption(&self.dir, 0, reason)
    }
}

/// The record at `lsn`, which begins in the block `stored`, if all of it lies in `bytes`, the log from `start` on.
/// Put together in `scattered` if it lies in several blocks.
fn record_in<'a>(
    bytes: &'a [u8],
    start: u64,
    lsn: u64,
    stored: &Stored,
    scattered: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    let from = (lsn - start) as usize;
    let block_end = (stored.block.start_lsn - start) as usize + stored.block.used as usize;
    let within = bytes.get(from..block_end)?;
    let header = RecordHeader::peek(within)?;
    let length = RECORD_HEADER_BYTES + header.payload_bytes as usize;
    if let Some(record) = within.get(..length) {
        return Some(record);
    }
    let place = Place {
        record_lsn: lsn,
        first_block_end: stored.end_lsn(),
        end_lsn: start + bytes.len() as u64,
    };
    scattered.clear();
    for (lsn, piece) in place.pieces() {
        let from = (lsn - start) as usize;
        let wanted = piece.min(length - scattered.len());
        scattered.extend_from_slice(bytes.get(from..from + wanted)?);
        if scattered.len() == length {
            return Some(scattered);
        }
    }
    None
}

/// A block in a segment that is not filled any more.
enum Sealed {
    Own(Stored),
    Inherited(Arc<Inherited>, u64),
}

fn sealed_block(state: &WriterState, lsn: u64) -> Option<Sealed> {
    let at = state
        .sealed
        .partition_point(|segment| segment.end_lsn <= lsn);
    let holds = |segment: &&SealedSegment| (segment.start_lsn..segment.end_lsn).contains(&lsn);
    let segment = state.sealed.get(at).filter(holds)?;
    match (&segment.inherited, &segment.file) {
        (Some(inherited), _) => Some(Sealed::Inherited(Arc::clone(inherited), segment.end_lsn)),
        (None, Some(file)) => Some(Sealed::Own(Stored {
            file: Arc::clone(file),
            block: block_in(&segment.blocks, lsn)?,
        })),
        (None, None) => None,
    }
}

/// The block of `blocks` that holds the byte at `lsn`.
fn block_in(blocks: &[IndexEntry], lsn: u64) -> Option<IndexEntry> {
    let at = blocks.partition_point(|block| block.start_lsn <= lsn);
    let block = blocks[at.checked_sub(1)?];
    (lsn < block.start_lsn + u64::from(block.length)).then_some(block)
}

/// The blocks of an inherited segment below `end_lsn`, by their headers.
fn blocks_of(segment: &SegmentFile, end_lsn: u64) -> Result<Vec<IndexEntry>> {
    let mut blocks = Vec::new();
    let mut lsn = segment.header.start_lsn;
    let mut unit = AlignedBuffer::zeroed(UNIT_BYTES);
    while lsn < end_lsn {
        let offset = SEGMENT_HEADER_BYTES as u64 + (lsn - segment.header.start_lsn);
        segment.file.read_at(unit.as_mut_slice(), offset)?;
        let header = BlockHeader::decode(&unit[..BLOCK_HEADER_BYTES])
            .filter(|header| header.seal.start_lsn == lsn)
            .ok_or_else(|| Error::corruption(&segment.path, offset, "a block's header is gone"))?;
        blocks.push(IndexEntry::from(&header.seal));
        lsn = header.seal.end_lsn();
    }
    Ok(blocks)
}
