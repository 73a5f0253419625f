//! All records of the log that check, whatever lies between them: segments in the order of the stream, then the ring.
//!
//! Every block and every record says where it belongs in the stream, so a loss shows as a hole between two
//! positions; and every record counts its writes, so that the hole's writes can be counted once a record follows. A
//! hole of which all writes are in tables is none.
//!
//! A block that does not check, with nothing behind it that says it was durable, is the end of the log, as for the engine:
//! what was being written when the process or the machine died.

use super::report::{Loss, Resurrection, damage_of};
use super::ring::{RingBlock, RingCopy};
use crate::directory::{JOURNAL_NAME, RING_NAME, segment_name, segment_number};
use crate::error::Result;
use crate::inspect::segment::{self, Known, Step};
use crate::inspect::source::Source;
use crate::inspect::stream::{Record, StreamItem, StreamReader};
use crate::storage::{Area, Storage};
use std::path::Path;
use waystation_format::log::{
    BlockHeader, JournalState, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, Seal, SegmentHeader,
    UNIT_BYTES, body_is_valid, ring_file_lengths,
};

/// The findings on the way.
pub(super) enum Event<'a> {
    /// A record that checks.
    Record(&'a Record<'a>),
    /// Something that does not.
    Loss(Loss),
}

type Sink<'a> = dyn FnMut(Event<'_>) -> Result<()> + 'a;

/// The log of a directory.
pub(super) struct Journal<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) dir: &'a Path,
    pub(super) state: Option<JournalState>,
    /// Writes up to here are not needed; `None` if that is not known.
    pub(super) needless: Option<u64>,
    /// Whether a clean close leaves nothing in the log that is needed.
    pub(super) empties_at_close: bool,
}

/// A segment whose blocks can be told.
struct Segment {
    name: String,
    source: Source,
    header: SegmentHeader,
}

/// The segment that should follow the last one that was read.
struct Following {
    name: String,
    /// Whether it was begun for sure. A file that is there and has no header may have been made ready alone.
    is_lost: bool,
}

/// A hole in the stream.
struct Hole {
    file: String,
    offset: u64,
    /// Where it begins in the stream, as long as its end is not known.
    open_since: Option<u64>,
    bytes: Option<u64>,
    reason: String,
}

/// The walk so far.
#[derive(Default)]
struct Walk {
    stream: StreamReader,
    /// Where the stream goes on, once it has begun.
    next_lsn: Option<u64>,
    /// Where the last segment ends by its footer, and the number of the next one.
    sealed: Option<(u64, u64)>,
    /// The last write that was met.
    last_sequence: Option<u64>,
    hole: Option<Hole>,
}

impl Journal<'_> {
    /// Hands every record that checks to `sink`, in order, and every loss.
    pub(super) fn walk(&self, sink: &mut Sink<'_>) -> Result<()> {
        let segments = self.segments(sink)?;
        let mut walk = Walk::default();
        for (at, segment) in segments.iter().enumerate() {
            let later = || segments[at + 1..].iter().map(|it| &it.header);
            let cut_lsn = later().map(|it| it.start_lsn).min().unwrap_or(u64::MAX);
            if segment.header.start_lsn >= cut_lsn {
                continue;
            }
            let durable_lsn = later().map(|it| it.durable_lsn).max().unwrap_or(0);
            let clean_lsn = self.state.map_or(0, |journal| journal.clean_lsn);
            let known = Known {
                durable_lsn: durable_lsn.max(clean_lsn),
                cut_lsn,
            };
            self.begin(&mut walk, segment, sink)?;
            self.segment(&mut walk, segment, known, sink)?;
        }
        self.end(&mut walk, &segments, sink)
    }

    /// The segments that were begun, the oldest first.
    fn segments(&self, sink: &mut Sink<'_>) -> Result<Vec<Segment>> {
        let listed = self.storage.list(self.dir)?;
        let numbers = listed
            .iter()
            .filter_map(|entry| segment_number(&entry.name));
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        let mut found = Vec::new();
        for number in numbers {
            let name = segment_name(number);
            let opened = Source::open_lenient(self.storage, &self.dir.join(&name), Area::Journal);
            let source = match opened {
                Ok(source) => source,
                Err(error) => {
                    let (_, reason) = damage_of(error)?;
                    sink(Event::Loss(Loss::of(&name, reason, Resurrection::Possible)))?;
                    continue;
                }
            };
            let mut header = segment::header(&source, Some(number))?;
            if header.is_none() {
                header = rebuild_header(&source, number)?;
                if header.is_some() {
                    let reason = "its header is damaged; what its blocks hold is read all the same";
                    sink(Event::Loss(Loss::of(
                        &name,
                        reason,
                        Resurrection::Impossible,
                    )))?;
                }
            }
            let Some(header) = header else {
                judge_headless(&source, sink)?;
                continue;
            };
            // One of a later life belongs to a recovery that was not finished.
            if self
                .state
                .is_none_or(|it| header.incarnation <= it.incarnation)
            {
                found.push(Segment {
                    name,
                    source,
                    header,
                });
            }
        }
        Ok(found)
    }

    /// Where a segment begins: is anything missing before it?
    fn begin(&self, walk: &mut Walk, segment: &Segment, sink: &mut Sink<'_>) -> Result<()> {
        let header = &segment.header;
        // Tables hold everything before it.
        let is_first = (self.needless).is_some_and(|it| header.first_sequence <= it + 1);
        if is_first {
            walk.hole = None;
        }
        // Where the log passed over blocks, the segment before it says so, in its footer.
        let follows = |next| walk.sealed == Some((next, header.number));
        match walk.next_lsn {
            Some(next) if is_first || follows(next) => {}
            Some(next) if header.start_lsn > next => {
                walk.hole.get_or_insert_with(|| Hole {
                    file: match header.previous {
                        0 => segment.name.clone(),
                        previous => segment_name(previous),
                    },
                    offset: 0,
                    open_since: None,
                    bytes: Some(header.start_lsn - next),
                    reason: "it is missing, or ends too early".to_owned(),
                });
            }
            None => {
                let first = header.first_sequence;
                if let Some(needless) = self.needless
                    && first > needless + 1
                {
                    let reason =
                        format!("the log before it is missing, from write {}", needless + 1);
                    let loss = Loss::of(&segment.name, reason, Resurrection::Possible);
                    sink(Event::Loss(Loss {
                        writes: Some(first - needless - 1),
                        ..loss
                    }))?;
                }
                walk.last_sequence = first.checked_sub(1).filter(|last| *last > 0);
            }
            Some(_) => {}
        }
        walk.next_lsn = Some(header.start_lsn);
        Ok(())
    }

    fn segment(
        &self,
        walk: &mut Walk,
        segment: &Segment,
        known: Known,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let Segment {
            name,
            source,
            header,
        } = segment;
        let summary = segment::walk(source, *header, known, &mut |step| match step {
            Step::Block {
                offset,
                header,
                bytes,
            } => {
                let seal = &header.seal;
                if let Some(hole) = &mut walk.hole
                    && let Some(since) = hole.open_since.take()
                {
                    hole.bytes = Some(seal.start_lsn.saturating_sub(since));
                }
                // What the index alone says wrongly is no hole.
                walk.hole.take_if(|hole| hole.bytes == Some(0));
                walk.next_lsn = Some(seal.end_lsn());
                let mut outcome = Ok(());
                let mut stream = std::mem::take(&mut walk.stream);
                stream.block(seal, bytes, &mut |item| {
                    if outcome.is_ok() {
                        outcome = self.item(walk, &item, (name, offset, seal), sink);
                    }
                });
                walk.stream = stream;
                outcome
            }
            Step::Damage { offset, reason } => {
                let place = offset - SEGMENT_HEADER_BYTES as u64;
                walk.hole.get_or_insert_with(|| Hole {
                    file: name.clone(),
                    offset,
                    open_since: Some(header.start_lsn + place),
                    bytes: None,
                    reason,
                });
                Ok(())
            }
        })?;
        walk.sealed = summary.footer.map(|it| (it.end_lsn, it.next));
        Ok(())
    }

    /// Takes what the block of `seal`, at `offset` of `file`, holds.
    fn item(
        &self,
        walk: &mut Walk,
        item: &StreamItem<'_>,
        (file, offset, seal): (&str, u64, &Seal),
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let (lsn, bytes, reason) = match item {
            StreamItem::Record(record) if record.is_sound => {
                let first = record.header.first_sequence;
                self.fill_hole(walk, Some(first), sink)?;
                walk.last_sequence = walk.last_sequence.max(Some(record.header.last_sequence()));
                return sink(Event::Record(record));
            }
            StreamItem::Record(record) => {
                let bytes = RECORD_HEADER_BYTES as u64 + u64::from(record.header.payload_bytes);
                (record.lsn, bytes, "does not check")
            }
            StreamItem::Nonsense { lsn } => (*lsn, seal.end_lsn() - lsn, "is none"),
        };
        walk.hole.get_or_insert_with(|| Hole {
            file: file.to_owned(),
            offset: offset + lsn.saturating_sub(seal.start_lsn),
            open_since: None,
            bytes: Some(bytes),
            reason: format!("the record at position {lsn} {reason}"),
        });
        Ok(())
    }

    /// Ends a hole before write `next`, or at the end of the log.
    fn fill_hole(&self, walk: &mut Walk, next: Option<u64>, sink: &mut Sink<'_>) -> Result<()> {
        let Some(hole) = walk.hole.take() else {
            return Ok(());
        };
        let last = walk.last_sequence.unwrap_or(0);
        if let (Some(next), Some(needless)) = (next, self.needless)
            && next <= needless + 1
        {
            return Ok(());
        }
        let from = last.max(self.needless.unwrap_or(0)) + 1;
        let writes = next.map(|next| next.saturating_sub(from));
        let is_emptied = self.empties_at_close && self.state.is_some_and(|it| it.clean_lsn > 0);
        // A record that was begun and never finished, or one that is there once more.
        if writes == Some(0) || (next.is_none() && is_emptied) {
            return Ok(());
        }
        let reason = match next {
            Some(next) => format!("{}; writes {from} to {} are lost", hole.reason, next - 1),
            None => format!("{}; all writes from {from} on are lost", hole.reason),
        };
        let loss = Loss::of(hole.file, reason, Resurrection::Possible);
        sink(Event::Loss(Loss {
            writes,
            ..loss.at(hole.offset, hole.bytes)
        }))
    }

    /// What only the ring holds; and whether the end is the end.
    fn end(&self, walk: &mut Walk, segments: &[Segment], sink: &mut Sink<'_>) -> Result<()> {
        let following = self.following_segment(walk, segments)?;
        let clean_lsn = self.state.map_or(0, |journal| journal.clean_lsn);
        let end = walk.next_lsn.unwrap_or(0);
        let is_short = clean_lsn > end;
        let before = walk.last_sequence;
        if clean_lsn == 0 {
            self.ring(walk, sink)?;
        }
        let is_behind = walk.last_sequence > before;
        let is_lost = following.as_ref().is_some_and(|it| it.is_lost);
        if walk.hole.is_none() && !is_behind && (is_lost || is_short) {
            let last = segments.last().map(|segment| segment.name.clone());
            let file = following.map(|it| it.name).or(last);
            walk.hole = Some(Hole {
                file: file.unwrap_or_else(|| JOURNAL_NAME.to_owned()),
                offset: 0,
                open_since: None,
                bytes: is_short.then(|| clean_lsn - end),
                reason: "it is missing, or ends too early".to_owned(),
            });
        }
        self.fill_hole(walk, None, sink)
    }

    /// The segment that should follow the last one that was read.
    fn following_segment(&self, walk: &Walk, segments: &[Segment]) -> Result<Option<Following>> {
        let first = self.state.map_or(0, |journal| journal.first_segment);
        let last = segments.last().filter(|last| last.header.number >= first);
        let Some(last) = last else {
            return Ok((first > 0).then(|| Following {
                name: segment_name(first),
                is_lost: true,
            }));
        };
        let footer = segment::footer(&last.source, &last.header)?;
        let next = footer.filter(|footer| Some(footer.end_lsn) == walk.next_lsn);
        let Some(next) = next.map(|footer| footer.next).filter(|next| *next > 0) else {
            return Ok(None);
        };
        let name = segment_name(next);
        let listed = self.storage.list(self.dir)?;
        let is_lost = !listed.iter().any(|entry| entry.name == name);
        Ok(Some(Following { name, is_lost }))
    }

    fn ring(&self, walk: &mut Walk, sink: &mut Sink<'_>) -> Result<()> {
        let source = Source::open_lenient(self.storage, &self.dir.join(RING_NAME), Area::Journal);
        let bytes = match source.and_then(|source| source.read_all()) {
            Ok(bytes) => bytes,
            Err(error) => {
                let (_, reason) = damage_of(error)?;
                if self.state.is_none() && walk.next_lsn.is_none() {
                    return Ok(());
                }
                let reason = format!("{reason}; the last writes, which were in it alone, are lost");
                return sink(Event::Loss(Loss::of(
                    RING_NAME,
                    reason,
                    Resurrection::Possible,
                )));
            }
        };
        if let Some(journal) = self.state
            && ring_file_lengths(journal.ring_bytes).all(|length| length != bytes.len() as u64)
        {
            let reason = format!(
                "it has {} bytes, and {JOURNAL_NAME} says {}; the last writes, which were in it alone, are lost",
                bytes.len(),
                journal.ring_bytes
            );
            return sink(Event::Loss(Loss::of(
                RING_NAME,
                reason,
                Resurrection::Possible,
            )));
        }
        let ring = RingCopy::new(&bytes, self.state.map(|it| it.incarnation));
        let mut at = walk.next_lsn.unwrap_or_else(|| ring.first_lsn());
        let had_hole = walk.hole.is_some();
        while let Some(block) = ring.block_from(at) {
            let seal = &block.seal;
            if seal.start_lsn > at {
                let missing = seal.start_lsn - at;
                walk.hole.get_or_insert_with(|| Hole {
                    file: RING_NAME.to_owned(),
                    offset: ring.offset(at),
                    open_since: None,
                    bytes: Some(missing),
                    reason: "blocks of the log are missing in segments and ring".to_owned(),
                });
            }
            at = seal.end_lsn();
            self.ring_block(walk, &block, ring.offset(seal.start_lsn), sink)?;
            if block.is_open {
                break;
            }
        }
        // With nothing behind it, it is where the process or the machine died.
        let cut = walk.next_lsn.unwrap_or(0);
        if !had_hole && ring.durable_lsn() <= cut {
            walk.hole = None;
        }
        Ok(())
    }

    /// Takes a block of the ring, which lies at `offset`: every record that checks.
    fn ring_block(
        &self,
        walk: &mut Walk,
        block: &RingBlock,
        offset: u64,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let mut seal = block.seal;
        loop {
            let mut failed = None;
            let mut outcome = Ok(());
            let mut stream = std::mem::take(&mut walk.stream);
            stream.block(&seal, &block.bytes, &mut |item| {
                match &item {
                    StreamItem::Record(record) if record.is_sound => {}
                    StreamItem::Record(Record { lsn, .. }) | StreamItem::Nonsense { lsn } => {
                        failed.get_or_insert(lsn - seal.start_lsn);
                    }
                }
                if outcome.is_ok() {
                    outcome = self.item(walk, &item, (RING_NAME, offset, &seal), sink);
                }
            });
            outcome?;
            let Some(failed) = failed else {
                walk.stream = stream;
                return Ok(());
            };
            let Some(next) = block.record_behind(failed as usize) else {
                walk.stream = stream;
                return Ok(());
            };
            seal.first_record = next as u32;
        }
    }
}

/// The header of segment `number` as its first block that checks tells it.
fn rebuild_header(source: &Source, number: u64) -> Result<Option<SegmentHeader>> {
    let end = segment::search_end(source);
    let mut offset = SEGMENT_HEADER_BYTES as u64;
    while offset + UNIT_BYTES as u64 <= end {
        let unit = source.read(offset, UNIT_BYTES)?;
        if let Some(block) = BlockHeader::decode(&unit).filter(|block| block.segment == number)
            && offset + u64::from(block.seal.length) <= end
            && body_is_valid(&source.read(offset, block.seal.length as usize)?)
            && let Some(start_lsn) =
                (block.seal.start_lsn + SEGMENT_HEADER_BYTES as u64).checked_sub(offset)
        {
            return Ok(Some(SegmentHeader {
                number,
                incarnation: block.seal.incarnation,
                start_lsn,
                capacity: end,
                durable_lsn: 0,
                first_sequence: block.seal.first_sequence,
                previous: 0,
            }));
        }
        offset += UNIT_BYTES as u64;
    }
    Ok(None)
}

/// A file without header and without blocks was made ready and not begun, if it is empty or of an earlier use.
fn judge_headless(source: &Source, sink: &mut Sink<'_>) -> Result<()> {
    let length = source.bytes().min(UNIT_BYTES as u64) as usize;
    let unit = source.read(0, length)?;
    if unit.iter().all(|byte| *byte == 0) || SegmentHeader::decode(&unit).is_some() {
        return Ok(());
    }
    let reason = "its header is damaged, and no block of it checks";
    let loss = Loss::of(source.name(), reason, Resurrection::Possible);
    sink(Event::Loss(loss.at(0, Some(source.bytes()))))
}
