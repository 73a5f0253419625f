//! Replay: reading segments and ring back to a prefix of the order in which they were written.
//!
//! Segments are taken in the order of their numbers, each up to the start of the next (a later segment that
//! starts earlier cuts the ones before it: a recovery's or a healing's cut). The first block that is not
//! valid ends the log, unless something shows that it had been durable: the clean-close mark, or the durable
//! LSN of any valid block or segment behind it. Then it is corruption, and reported. What the last life had
//! only in the staging ring follows, as far as its records check.
//!
//! Segments that were freed may still lie about, kept for use again or brought back by a power cut that lost
//! their removal. They hold nothing but flushed records, and what follows them starts no later than right
//! behind those: then a gap between them and the next segment is no loss.

use super::segment::segment_number;
use super::{RING_NAME, ring::RingBuffer};
use crate::error::{Error, Result};
use crate::storage::{AlignedBuffer, Area, File, OpenMode, Storage, Transfer};
use crate::sync::Arc;
use std::path::{Path, PathBuf};
use waystation_format::log::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, BlockHeader, FOOTER_BYTES, JournalState,
    RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, SegmentFooter, SegmentHeader,
    UNIT_BYTES, body_is_valid,
};

/// Segments are read in pieces of this size; no smaller than two blocks.
const READ_BYTES: usize = 2 * 1024 * 1024;

/// A record of the log as it is read back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    /// Its header.
    pub(crate) header: RecordHeader,
    /// The operations' bytes.
    pub(crate) payload: &'a [u8],
    /// Where it starts in the stream.
    pub(crate) lsn: u64,
}

/// A segment file found in the directory.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    pub(crate) header: SegmentHeader,
}

impl Found {
    fn offset_of(&self, lsn: u64) -> u64 {
        SEGMENT_HEADER_BYTES as u64 + (lsn - self.header.start_lsn)
    }

    /// The footer, if the segment was sealed.
    fn footer(&self) -> Result<Option<SegmentFooter>> {
        let mut unit = AlignedBuffer::zeroed(UNIT_BYTES);
        let Some(offset) = self.header.capacity.checked_sub(UNIT_BYTES as u64) else {
            return Ok(None);
        };
        if self.file.read_at(unit.as_mut_slice(), offset)? < UNIT_BYTES {
            return Ok(None);
        }
        let footer = SegmentFooter::peek(&unit[UNIT_BYTES - FOOTER_BYTES..]);
        Ok(footer.filter(|footer| {
            footer.number == self.header.number && footer.incarnation == self.header.incarnation
        }))
    }
}

/// The segments of a directory, by number, and the files that are none.
pub(crate) struct Survey {
    pub(crate) segments: Vec<Found>,
    /// Unfinished or superseded: to be removed.
    pub(crate) leftovers: Vec<PathBuf>,
    /// The highest number seen, in use or not.
    pub(crate) highest_number: u64,
}

/// Looks at every segment file of `dir` that belongs to the life in `journal` or an earlier one.
pub(crate) fn survey(storage: &dyn Storage, dir: &Path, journal: &JournalState) -> Result<Survey> {
    let mut numbered: Vec<(u64, PathBuf)> = storage
        .list(dir)?
        .into_iter()
        .filter_map(|entry| Some((segment_number(&entry.name)?, dir.join(&entry.name))))
        .collect();
    numbered.sort_unstable();
    let mut survey = Survey {
        segments: Vec::new(),
        leftovers: Vec::new(),
        highest_number: numbered.last().map_or(0, |last| last.0),
    };
    for (number, path) in numbered {
        let file = storage.open(&path, OpenMode::Read, Transfer::Direct, Area::Journal)?;
        let mut unit = AlignedBuffer::zeroed(UNIT_BYTES);
        let read = file.read_at(unit.as_mut_slice(), 0)?;
        let header = SegmentHeader::decode(&unit[..read]).filter(|header| header.number == number);
        match header {
            Some(header) if header.incarnation <= journal.incarnation => {
                survey.segments.push(Found { path, file, header });
            }
            Some(_) => survey.leftovers.push(path),
            None => {
                refuse_lost_header(&*file, &path, number)?;
                survey.leftovers.push(path);
            }
        }
    }
    let newest = survey
        .segments
        .last()
        .map_or(0, |segment| segment.header.number);
    if newest < journal.first_segment {
        return Err(Error::corruption(
            dir.join(super::segment_name(journal.first_segment)),
            0,
            "the log's segment is missing",
        ));
    }
    Ok(survey)
}

/// A segment without a header was never begun, unless its blocks tell that it had been durable.
fn refuse_lost_header(file: &dyn File, path: &Path, number: u64) -> Result<()> {
    let mut start = None;
    let mut reader = BlockReader::new(file, SEGMENT_HEADER_BYTES as u64, file.size()?);
    while let Some(block) = reader.next_valid(|header| header.segment == number)? {
        let start = *start.get_or_insert(block.seal.start_lsn);
        if block.durable_lsn > start {
            return Err(Error::corruption(
                path,
                0,
                "the segment's header is damaged",
            ));
        }
    }
    Ok(())
}

/// Reads the blocks of one file in order of their offsets.
struct BlockReader<'a> {
    file: &'a dyn File,
    /// The next offset to look at, a multiple of the unit.
    offset: u64,
    end: u64,
    window: AlignedBuffer,
    window_start: u64,
    window_len: usize,
}

impl<'a> BlockReader<'a> {
    fn new(file: &'a dyn File, offset: u64, end: u64) -> Self {
        Self {
            file,
            offset,
            end,
            window: AlignedBuffer::new(),
            window_start: 0,
            window_len: 0,
        }
    }

    /// Up to one longest block's bytes from the current offset.
    fn view(&mut self) -> Result<&[u8]> {
        let wanted = (self.end.saturating_sub(self.offset)).min(BLOCK_BYTES_MAX as u64) as usize;
        let inside = self.offset >= self.window_start
            && self.offset + wanted as u64 <= self.window_start + self.window_len as u64;
        if !inside {
            let len = (self.end.saturating_sub(self.offset)).min(READ_BYTES as u64) as usize;
            self.window.resize(len.next_multiple_of(UNIT_BYTES));
            self.window_start = self.offset;
            self.window_len = self
                .file
                .read_at(self.window.as_mut_slice(), self.offset)?
                .min(len);
        }
        let from = (self.offset - self.window_start) as usize;
        Ok(&self.window[from..self.window_len.min(from + wanted)])
    }

    /// The block at the current offset, header and whole bytes, if it is valid and `belongs`.
    fn block(
        &mut self,
        belongs: impl Fn(&BlockHeader) -> bool,
    ) -> Result<Option<(BlockHeader, &[u8])>> {
        let view = self.view()?;
        let Some(header) = BlockHeader::decode(view).filter(&belongs) else {
            return Ok(None);
        };
        Ok(view
            .get(..header.seal.length as usize)
            .filter(|block| body_is_valid(block))
            .map(|block| (header, block)))
    }

    /// Skips unit by unit to the next valid block that `belongs`, and past it.
    fn next_valid(
        &mut self,
        belongs: impl Fn(&BlockHeader) -> bool,
    ) -> Result<Option<BlockHeader>> {
        while self.offset < self.end {
            let found = self.block(&belongs)?.map(|(header, _)| header);
            match found {
                Some(header) => {
                    self.offset += u64::from(header.seal.length);
                    return Ok(Some(header));
                }
                None => self.offset += UNIT_BYTES as u64,
            }
        }
        Ok(None)
    }
}

/// Puts records together from blocks and hands them on in order.
struct Assembler<'a, F> {
    deliver: &'a mut F,
    /// The bytes of a record whose end has not come yet.
    partial: Vec<u8>,
    partial_lsn: u64,
    incarnation: u64,
    started: bool,
    flushed_sequence: u64,
    last_sequence: Option<u64>,
    /// Whether the next record must continue the last one's sequence numbers.
    contiguous: bool,
    /// Once the segments are read: what comes from then on.
    tail: Option<Vec<TailRecord>>,
}

/// A record that is not in segments as a whole.
pub(super) struct TailRecord {
    pub(super) header: RecordHeader,
    pub(super) payload: Vec<u8>,
}

impl<'a, F: FnMut(Record<'_>) -> Result<()>> Assembler<'a, F> {
    fn new(deliver: &'a mut F, flushed_sequence: u64) -> Self {
        Self {
            deliver,
            partial: Vec::new(),
            partial_lsn: 0,
            incarnation: 0,
            started: false,
            flushed_sequence,
            last_sequence: None,
            contiguous: false,
            tail: None,
        }
    }

    /// Takes the records of a block that has been verified as a whole. The error is the offset in the block
    /// at which it makes no sense.
    fn block(&mut self, header: &BlockHeader, block: &[u8]) -> Result<Result<(), u32>> {
        let seal = &header.seal;
        let mut at = BLOCK_HEADER_BYTES;
        self.enter_life(seal.incarnation);
        if !self.started {
            if seal.first_record == 0 {
                return Ok(Ok(()));
            }
            at = seal.first_record as usize;
            self.started = true;
        }
        let used = seal.used as usize;
        while at < used {
            match self.take(&block[at..used], seal.start_lsn + at as u64)? {
                Some(taken) => at += taken,
                None => return Ok(Err(at as u32)),
            }
        }
        Ok(Ok(()))
    }

    /// Whether nothing was delivered that is not in tables.
    fn has_only_flushed(&self) -> bool {
        self.last_sequence
            .is_none_or(|last| last <= self.flushed_sequence)
    }

    /// Starts over behind a gap.
    fn skip_gap(&mut self) {
        self.partial.clear();
        self.contiguous = false;
        self.started = false;
    }

    /// An earlier life's unfinished record ends with that life; the next life may have skipped sequences.
    fn enter_life(&mut self, incarnation: u64) {
        if self.incarnation != incarnation {
            self.partial.clear();
            self.contiguous = false;
            self.incarnation = incarnation;
        }
    }

    /// Takes the beginning of `bytes`, which lie at `lsn`: a record, or the rest of one, or the beginning of
    /// one. Returns how much was taken, or `None` if it is no record.
    fn take(&mut self, bytes: &[u8], lsn: u64) -> Result<Option<usize>> {
        if self.partial.is_empty() {
            let Some(header) = RecordHeader::peek(bytes) else {
                return Ok(None);
            };
            let whole = RECORD_HEADER_BYTES + header.payload_bytes as usize;
            if let Some(record) = bytes.get(..whole) {
                let sound = self.hand_on(header, record, lsn)?;
                return Ok(sound.then_some(whole));
            }
            self.partial.extend_from_slice(bytes);
            self.partial_lsn = lsn;
            return Ok(Some(bytes.len()));
        }
        let Some(header) = RecordHeader::peek(&self.partial) else {
            return Ok(None);
        };
        let whole = RECORD_HEADER_BYTES + header.payload_bytes as usize;
        let taken = bytes.len().min(whole - self.partial.len());
        self.partial.extend_from_slice(&bytes[..taken]);
        if self.partial.len() < whole {
            return Ok(Some(taken));
        }
        let record = std::mem::take(&mut self.partial);
        let sound = self.hand_on(header, &record, self.partial_lsn)?;
        self.partial = record;
        self.partial.clear();
        Ok(sound.then_some(taken))
    }

    fn hand_on(&mut self, header: RecordHeader, record: &[u8], lsn: u64) -> Result<bool> {
        let Some((head, payload)) = record.split_first_chunk::<RECORD_HEADER_BYTES>() else {
            return Ok(false);
        };
        let first = header.first_sequence;
        let known = self.last_sequence.unwrap_or(0).max(self.flushed_sequence);
        let follows = first <= known + 1
            && self
                .last_sequence
                .is_none_or(|last| first == last + 1 || (!self.contiguous && first > last));
        if !follows || !RecordHeader::matches(head, payload, lsn, self.incarnation) {
            return Ok(false);
        }
        match &mut self.tail {
            // It gets another place, and is delivered with that.
            Some(tail) => tail.push(TailRecord {
                header,
                payload: payload.to_vec(),
            }),
            None => (self.deliver)(Record {
                header,
                payload,
                lsn,
            })?,
        }
        self.last_sequence = Some(header.last_sequence());
        self.contiguous = true;
        Ok(true)
    }
}

/// What was read back.
pub(crate) struct Replayed {
    /// The end of the valid blocks in segments: the log is cut here.
    pub(super) cut_lsn: u64,
    /// The records behind the cut, or across it, that the ring preserved.
    pub(super) tail: Vec<TailRecord>,
    /// The sequence of the last record, if there was any record.
    pub(crate) last_sequence: Option<u64>,
}

/// Delivers every record of the log in order: of the segments, skipping whole segments that hold nothing
/// after `flushed_sequence`, then of the ring of life `journal.incarnation`.
pub(crate) fn replay(
    segments: &[Found],
    ring: Option<&RingBuffer>,
    journal: &JournalState,
    flushed_sequence: u64,
    deliver: &mut impl FnMut(Record<'_>) -> Result<()>,
) -> Result<Replayed> {
    let mut assembler = Assembler::new(deliver, flushed_sequence);
    // Not the first one's start: a healing may have cut it, and what lay before may have been freed.
    let starts = segments.iter().map(|segment| segment.header.start_lsn);
    let mut cut = starts.min().unwrap_or(UNIT_BYTES as u64);
    for (index, segment) in segments.iter().enumerate() {
        let rest = &segments[index + 1..];
        let limit = rest
            .iter()
            .map(|later| later.header.start_lsn)
            .min()
            .unwrap_or(u64::MAX);
        let start = segment.header.start_lsn;
        if start >= limit {
            continue;
        }
        if start != cut {
            // The one before ended early and nothing showed that it had been durable: the log ends there.
            break;
        }
        if !assembler.started && holds_only_flushed(segment, flushed_sequence, limit)? {
            cut = limit;
            continue;
        }
        cut = replay_segment(segment, limit, &mut assembler)?;
        if cut < limit {
            if assembler.has_only_flushed() && goes_on(rest, limit, flushed_sequence)? {
                assembler.skip_gap();
                cut = limit;
                continue;
            }
            let bad = Bad {
                segment,
                lsn: cut,
                clean_lsn: journal.clean_lsn,
            };
            bad.refuse_if_durable(rest)?;
            break;
        }
    }
    assembler.tail = Some(Vec::new());
    if let Some(ring) = ring.filter(|_| journal.clean_lsn == 0) {
        replay_ring(ring, cut, journal.incarnation, &mut assembler)?;
    }
    Ok(Replayed {
        cut_lsn: cut,
        tail: assembler.tail.unwrap_or_default(),
        last_sequence: assembler.last_sequence,
    })
}

/// Whether a sealed segment that others follow holds nothing but flushed records. Only leading segments are
/// skipped for that, so that what is delivered has no hole.
fn holds_only_flushed(segment: &Found, flushed_sequence: u64, limit: u64) -> Result<bool> {
    Ok(limit != u64::MAX
        && segment
            .footer()?
            .is_some_and(|footer| footer.last_sequence <= flushed_sequence))
}

/// Whether the log goes on at `limit` with what follows the flushed records, so that all before is dispensable.
fn goes_on(rest: &[Found], limit: u64, flushed_sequence: u64) -> Result<bool> {
    let Some(next) = rest
        .iter()
        .find(|segment| segment.header.start_lsn == limit)
    else {
        return Ok(false);
    };
    let mut reader = BlockReader::new(&*next.file, SEGMENT_HEADER_BYTES as u64, next.file.size()?);
    while let Some((header, _)) = reader.block(|header| header.segment == next.header.number)? {
        if header.seal.first_record != 0 {
            return Ok(header.seal.first_sequence <= flushed_sequence + 1);
        }
        reader.offset += u64::from(header.seal.length);
    }
    // Nothing in it yet: what the ring holds has to follow.
    Ok(true)
}

/// Delivers the records of one segment below `limit`; returns where its valid blocks end.
fn replay_segment<F: FnMut(Record<'_>) -> Result<()>>(
    segment: &Found,
    limit: u64,
    assembler: &mut Assembler<'_, F>,
) -> Result<u64> {
    let mut lsn = segment.header.start_lsn;
    let end = segment.header.capacity.min(segment.file.size()?);
    let mut reader = BlockReader::new(&*segment.file, SEGMENT_HEADER_BYTES as u64, end);
    while lsn < limit {
        let belongs = |header: &BlockHeader| {
            header.segment == segment.header.number
                && header.seal.incarnation == segment.header.incarnation
                && header.seal.start_lsn == lsn
        };
        let Some((header, block)) = reader.block(belongs)? else {
            break;
        };
        if let Err(at) = assembler.block(&header, block)? {
            let offset = segment.offset_of(lsn) + u64::from(at);
            return Err(Error::corruption(
                &segment.path,
                offset,
                "a record in a valid block does not check",
            ));
        }
        reader.offset += u64::from(header.seal.length);
        lsn = header.seal.end_lsn();
    }
    Ok(lsn)
}

/// A place where a block should be and none is.
struct Bad<'a> {
    segment: &'a Found,
    lsn: u64,
    clean_lsn: u64,
}

impl Bad<'_> {
    /// An error if anything shows that the bad place had been durable.
    fn refuse_if_durable(&self, later: &[Found]) -> Result<()> {
        let mut known = self.clean_lsn;
        let number = self.segment.header.number;
        let offset = self.segment.offset_of(self.lsn);
        let end = self.segment.header.capacity.min(self.segment.file.size()?);
        let mut reader = BlockReader::new(&*self.segment.file, offset, end);
        while let Some(block) = reader.next_valid(|header| header.segment == number)? {
            known = known.max(block.durable_lsn);
        }
        if let Some(footer) = self.segment.footer()? {
            known = known.max(footer.durable_lsn);
        }
        for segment in later {
            known = known.max(segment.header.durable_lsn);
            let mut reader = BlockReader::new(
                &*segment.file,
                SEGMENT_HEADER_BYTES as u64,
                segment.file.size()?,
            );
            while let Some(block) =
                reader.next_valid(|header| header.segment == segment.header.number)?
            {
                known = known.max(block.durable_lsn);
            }
        }
        if known > self.lsn {
            return Err(Error::corruption(
                &self.segment.path,
                offset,
                format!(
                    "a block that was durable is damaged or missing (log position {})",
                    self.lsn
                ),
            ));
        }
        Ok(())
    }
}

/// Delivers what the ring holds from `lsn` on.
fn replay_ring<F: FnMut(Record<'_>) -> Result<()>>(
    ring: &RingBuffer,
    mut lsn: u64,
    incarnation: u64,
    assembler: &mut Assembler<'_, F>,
) -> Result<()> {
    assembler.enter_life(incarnation);
    assembler.started = true;
    let bytes = ring.leftover(lsn);
    let mut rest = &bytes[..];
    while rest.len() >= BLOCK_HEADER_BYTES {
        // A closed block says where it ends; the open one goes on as long as its records check.
        let closed = BlockHeader::decode(rest)
            .map(|header| header.seal)
            .filter(|seal| seal.start_lsn == lsn && seal.incarnation == incarnation);
        let length = closed
            .map_or(BLOCK_BYTES_MAX, |seal| seal.length as usize)
            .min(rest.len());
        let used = closed.map_or(length, |seal| seal.used as usize).min(length);
        let mut at = BLOCK_HEADER_BYTES;
        while at < used {
            match assembler.take(&rest[at..used], lsn + at as u64)? {
                Some(taken) => at += taken,
                None => return Ok(()),
            }
        }
        lsn += length as u64;
        rest = &rest[length..];
    }
    Ok(())
}

/// Maps the ring that an earlier life left, or says that it is missing.
pub(crate) fn leftover_ring(
    storage: &dyn Storage,
    dir: &Path,
    journal: &JournalState,
) -> Result<RingBuffer> {
    let path = dir.join(RING_NAME);
    let (ring, existed) = storage.map_ring(&path, journal.ring_bytes as usize)?;
    if !existed && journal.clean_lsn == 0 {
        return Err(Error::corruption(
            path,
            0,
            "the staging ring of a database that was not closed is missing",
        ));
    }
    Ok(RingBuffer::new(ring))
}
