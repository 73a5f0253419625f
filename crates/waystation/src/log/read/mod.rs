//! Reading back: the values that the upper level keeps in the log and nowhere else.
//!
//! ```text
//!          segments                    | the ring, a window over the end of the log
//!   spans of units, cached         | released, not overwritten yet | not released
//! ```
//!
//! Whatever the ring still holds is copied out of it: bytes that are not released under the writer's lock (nothing is
//! released meanwhile, so no thread writes there), released ones under the front's (nothing is reserved meanwhile, so
//! no thread overwrites what no reservation reaches).
//!
//! Of segments those units are read in which the records lie, neighbours together, and each record is verified by
//! its own checksum. Where that does not do (a record so long that only its beginning was read, one that runs over a
//! segment's end, one that does not check), the blocks are read as a whole and verified by theirs, or are damaged.

mod cache;
mod span;
mod value_ref;

pub(crate) use cache::{LogBlocks, LogCache};
pub(crate) use value_ref::ValueRef;

use super::Log;
use super::ring::Settled;
use super::segment::{Inherited, SealedSegment, SegmentFile};
use super::writer_state::WriterState;
use crate::error::{Error, Result};
use crate::storage::{AlignedBuffer, IoPriority};
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{Arc, lock};
#[cfg(all(test, not(any(loom, shuttle))))]
pub(super) use span::READERS_MAX;
pub(super) use span::Readers;
use span::{Plan, Records, Span};
use value_ref::Start;
use waystation_format::log::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, BlockHeader, IndexEntry, SEGMENT_HEADER_BYTES, Seal,
    UNIT_BYTES, body_is_valid,
};

/// How often a reader comes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Here or near by again soon: the bytes are cached.
    Often,
    /// Once: nothing is. The higher the priority, the longer the reads, and the more at a time.
    Once(IoPriority),
}

/// A block, and where it is.
struct Found {
    start_lsn: u64,
    end_lsn: u64,
    /// `None`: in the ring.
    stored: Option<Stored>,
}

/// A block in a segment.
#[derive(Clone)]
struct Stored {
    file: Arc<SegmentFile>,
    block: IndexEntry,
}

impl From<Stored> for Found {
    fn from(stored: Stored) -> Self {
        Self {
            start_lsn: stored.block.start_lsn,
            end_lsn: stored.end_lsn(),
            stored: Some(stored),
        }
    }
}

impl Stored {
    fn end_lsn(&self) -> u64 {
        self.block.start_lsn + u64::from(self.block.length)
    }

    fn damaged(&self, reason: &str) -> Error {
        let offset = self.file.offset_of(self.block.start_lsn);
        Error::corruption(&self.file.path, offset, reason)
    }
}

impl Log {
    /// Reads the `value_refs`, by ascending positions of the records, into `values`. The records are visible, and their
    /// segments are not recycled.
    pub(crate) fn read_values(
        &self,
        value_refs: &[ValueRef],
        pass: Pass,
        values: &mut [u8],
    ) -> Result<()> {
        let ring_start = self.ring_start();
        let mut last: Option<Found> = None;
        let mut plan = Plan::new(pass);
        for of_record in value_refs.chunk_by(|a, b| a.record_lsn == b.record_lsn) {
            let lsn = of_record[0].record_lsn;
            let holds = |block: &Found| (block.start_lsn..block.end_lsn).contains(&lsn);
            let found = match last.take().filter(holds) {
                Some(found) => found,
                None => self.find_block(lsn)?,
            };
            let found = last.insert(found);
            let start = Start {
                record_lsn: lsn,
                first_block_end: found.end_lsn,
            };
            if lsn >= ring_start && self.copy_from_ring(start, of_record, values) {
                continue;
            }
            let Some(stored) = found
                .stored
                .as_ref()
                .filter(|it| it.is_short(start, of_record))
            else {
                self.read_by_blocks(start, of_record, values)?;
                continue;
            };
            if pass == Pass::Often && self.copy_cached(stored, start, of_record, values) {
                continue;
            }
            plan.add(stored, start, of_record);
            if plan.is_enough() {
                self.carry_out(&mut plan, values)?;
            }
        }
        self.carry_out(&mut plan, values)
    }

    fn carry_out(&self, plan: &mut Plan<'_>, values: &mut [u8]) -> Result<()> {
        let is_kept = plan.pass == Pass::Often;
        plan.carry_out(&self.readers, |span, records, bytes| {
            self.copy_span(span, records, bytes, values)?;
            if is_kept {
                self.keep_span(span, records, bytes);
            }
            Ok(())
        })
    }

    /// From here on the ring still holds the log, for now.
    fn ring_start(&self) -> u64 {
        lock(&self.front).ring_start(self.ring.len())
    }

    /// Copies what the ring still holds. Returns whether that was all of it.
    fn copy_from_ring(&self, start: Start, value_refs: &[ValueRef], values: &mut [u8]) -> bool {
        value_refs.iter().all(|one| {
            let to = &mut values[one.target.clone()];
            start.parts(one.offset..one.end()).all(|(lsn, part)| {
                let front = lock(&self.front);
                // Nothing is reserved meanwhile, and no thread writes beyond the open block.
                let is_there = lsn >= front.ring_start(self.ring.len());
                if is_there {
                    let len = part.len();
                    let at = part.start - one.offset;
                    self.copy_settled(&Settled { lsn, len }, &mut to[at..at + len]);
                }
                is_there
            })
        })
    }

    fn copy_settled(&self, settled: &Settled, out: &mut [u8]) {
        let [first, second] = self.ring.chunks(settled);
        let (left, right) = out.split_at_mut(first.len());
        left.copy_from_slice(first);
        right.copy_from_slice(second);
    }

    /// Copies from cached units. Returns whether all were there, and the record whole and sound.
    fn copy_cached(
        &self,
        stored: &Stored,
        start: Start,
        value_refs: &[ValueRef],
        values: &mut [u8],
    ) -> bool {
        let units = start.units(value_ref::end_of(value_refs));
        let (mut bytes, mut scattered) = (Vec::new(), Vec::new());
        if !self.cache.units(units.start, units.end, &mut bytes) {
            return false;
        }
        let incarnation = stored.file.header.incarnation;
        let record = start.verified(&bytes, units.start, incarnation, &mut scattered);
        record.is_some_and(|record| {
            value_refs
                .iter()
                .all(|one| one.copy(record, values).is_some())
        })
    }

    /// Copies the referenced values out of the `bytes` of a span.
    fn copy_span(
        &self,
        span: &Span,
        records: &Records<'_>,
        bytes: &[u8],
        values: &mut [u8],
    ) -> Result<()> {
        let (first, incarnation) = (span.units.start, span.incarnation());
        let mut scattered = Vec::new();
        for (start, value_refs) in records {
            let Some(record) = start.verified(bytes, first, incarnation, &mut scattered) else {
                self.read_by_blocks(*start, value_refs, values)?;
                continue;
            };
            for one in *value_refs {
                let copied = one.copy(record, values);
                copied.ok_or_else(|| self.too_short(start.record_lsn))?;
            }
        }
        Ok(())
    }

    /// Caches the units in which the referenced values lie.
    fn keep_span(&self, span: &Span, records: &Records<'_>, bytes: &[u8]) {
        let mut kept_end = span.units.start;
        for (start, value_refs) in records {
            let units = start.units(value_ref::end_of(value_refs));
            let fresh = units.start.max(kept_end)..units.end;
            let [from, to] = [fresh.start, fresh.end].map(|lsn| (lsn - span.units.start) as usize);
            if let Some(fresh_bytes) = bytes.get(from..to).filter(|it| !it.is_empty()) {
                self.cache.keep_units(fresh.start, fresh_bytes);
                kept_end = fresh.end;
            }
        }
    }

    /// Reads by way of whole blocks.
    fn read_by_blocks(
        &self,
        start: Start,
        value_refs: &[ValueRef],
        values: &mut [u8],
    ) -> Result<()> {
        for one in value_refs {
            for (lsn, part) in start.parts(one.offset..one.end()) {
                let at = one.target.start + part.start - one.offset;
                self.read_chunk(lsn, &mut values[at..at + part.len()])?;
            }
        }
        Ok(())
    }

    /// Reads bytes that lie within one block.
    fn read_chunk(&self, lsn: u64, bytes: &mut [u8]) -> Result<()> {
        while self.released_lsn.load(SeqCst) <= lsn {
            let _no_release = lock(&self.writer);
            if self.released_lsn.load(SeqCst) <= lsn {
                let len = bytes.len();
                self.copy_settled(&Settled { lsn, len }, bytes);
                return Ok(());
            }
        }
        let Some(stored) = self.find_block(lsn)?.stored else {
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
        if let Some(block) = self.cache.block(lsn) {
            return Ok(block);
        }
        let bytes = stored.file.read(lsn, stored.block.length as usize)?;
        let sound = BlockHeader::decode(&bytes)
            .is_some_and(|header| header.seal.start_lsn == lsn && body_is_valid(&bytes));
        if !sound {
            return Err(stored.damaged("a block does not check"));
        }
        let block: Arc<[u8]> = Arc::from(&bytes[..]);
        self.cache.keep_block(lsn, &block);
        Ok(block)
    }

    /// The block that holds the byte at `lsn`.
    fn find_block(&self, lsn: u64) -> Result<Found> {
        // What has been released stays so; the front, which every writer passes, is asked for the rest only.
        let open_lsn =
            (lsn >= self.released_lsn.load(SeqCst)).then(|| lock(&self.front).layout.block_start());
        let state = lock(&self.writer);
        if lsn >= self.released_lsn.load(SeqCst) {
            let staged = if let Some(open_lsn) = open_lsn.filter(|open| lsn >= *open) {
                // Whatever is visible and begins in it lies in it, even if it is closed early meanwhile.
                Some((open_lsn, open_lsn + BLOCK_BYTES_MAX as u64))
            } else {
                let holds = |seal: &&Seal| (seal.start_lsn..seal.end_lsn()).contains(&lsn);
                let waiting = state.staged_blocks().find(holds).copied();
                let waiting = waiting.or_else(|| lock(&self.closed).iter().find(holds).copied());
                waiting.map(|seal| (seal.start_lsn, seal.end_lsn()))
            };
            let (start_lsn, end_lsn) = staged.ok_or_else(|| self.lost(lsn))?;
            return Ok(Found {
                start_lsn,
                end_lsn,
                stored: None,
            });
        }
        if let Some(block) = block_in(&state.current.blocks, lsn) {
            let file = Arc::clone(&state.current.file);
            return Ok(Stored { file, block }.into());
        }
        let inherited = match sealed_block(&state, lsn) {
            Some(Sealed::Own(stored)) => return Ok(stored.into()),
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
        let file = Arc::clone(&segment.file);
        Ok(Stored { file, block }.into())
    }

    fn lost(&self, lsn: u64) -> Error {
        let reason = format!("the log does not hold position {lsn}, which the upper level names");
        Error::corruption(&self.dir, 0, reason)
    }

    fn too_short(&self, lsn: u64) -> Error {
        let reason =
            format!("the record at position {lsn} is shorter than the index of its device says");
        Error::corruption(&self.dir, 0, reason)
    }
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
