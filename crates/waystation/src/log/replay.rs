//! Replay: reading segments and ring back to a prefix of the order in which they were written.
//!
//! Segments are taken in the order of their numbers, each up to the start of the next (a later segment that
//! starts earlier cuts the ones before it: a recovery's or a healing's cut). What remains is the *chain*.
//!
//! **Where it begins.** Recycled segments may still lie about, kept for use again or brought back by a power cut that
//! lost their removal; some of them may be missing. Each header says with which sequence number the records go on
//! that start behind it. So reading begins at the last segment of the chain before which everything is in tables;
//! if there is none, one that is needed is missing, and that is corruption. From there on nothing may be missing:
//! a segment names the one before it, and, once sealed, the one behind it, and their names were durable before they
//! were written to.
//!
//! **Where it ends.** The first block that is not valid ends the log, unless something shows that it had been
//! durable: the clean-close mark, or the durable LSN in any valid block, in segments or ring, or in a segment's
//! header or footer. Then it is corruption, and reported. What the last life had only in the staging ring
//! follows: see `leftover`.

use super::assembler::{Assembler, Record, TailRecord};
use super::blocks::BlockSearch;
use super::chain::{ChainPart, Extent, for_each_part};
use super::leftover::Leftover;
use super::survey::{Found, Survey, missing, survey};
use crate::error::{Error, Result};
use crate::storage::{Storage, Transfer};
use crate::sync::Arc;
use std::path::Path;
use waystation_format::log::{JournalState, SEGMENT_HEADER_BYTES};

/// What an opening needs of the log, by sequence numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    /// Records up to this one may be missing.
    pub(crate) after: u64,
    /// Records up to this one, which is none before that, are not read.
    pub(crate) read_after: u64,
    /// The log was durable through this one, whether it is read or not.
    pub(crate) through: u64,
}

impl Needs {
    /// All records that follow `sequence`.
    pub(crate) fn after(sequence: u64) -> Self {
        Self {
            after: sequence,
            read_after: sequence,
            through: 0,
        }
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

/// A segment of the chain: its part of the stream ends at `limit`, where the next one's begins.
#[derive(Clone, Copy)]
struct Link<'a> {
    segment: &'a Found,
    limit: u64,
}

impl Link<'_> {
    fn extent(&self) -> Result<Extent> {
        let (file, header) = (&self.segment.file, self.segment.header);
        Ok(Extent {
            file: Arc::clone(file),
            header,
            limit: self.limit,
            end: header.capacity.min(file.size()?),
        })
    }
}

/// The segments that later ones do not supersede, in the order of the stream.
fn chain(segments: &[Found]) -> Vec<Link<'_>> {
    let mut limit = u64::MAX;
    let mut links = Vec::new();
    for segment in segments.iter().rev() {
        if segment.header.start_lsn < limit {
            links.push(Link { segment, limit });
            limit = segment.header.start_lsn;
        }
    }
    links.reverse();
    links
}

/// Delivers every record of the log in order from where it is to be read, perhaps beginning with some before that:
/// of the segments, then of what is left in the ring.
pub(crate) fn replay(
    dir: &Path,
    survey: &Survey,
    ring: &Leftover,
    journal: &JournalState,
    needs: &Needs,
    deliver: &mut impl FnMut(Record<'_>) -> Result<()>,
) -> Result<Replayed> {
    let chain = chain(&survey.segments);
    let needed = needed_part(dir, &chain, needs.after)?;
    refuse_missing(dir, needed, survey)?;
    let needed = needed_part(dir, needed, needs.read_after)?;
    let mut assembler = Assembler::new(deliver, needs.read_after);
    let (mut ended, mut cut) = (0, 0);
    let extents: Result<_> = needed.iter().map(Link::extent).collect();
    for_each_part(extents?, |part| {
        (ended, cut) = (part.link(), part.end_lsn);
        take_blocks(needed[ended].segment, part, &mut assembler)
    })?;
    let last = &needed[ended];
    let evidence = Evidence { journal, ring };
    evidence.refuse_if_durable(last, cut, &needed[ended + 1..])?;
    refuse_missing_end(dir, last, cut, survey)?;
    assembler.tail = Some(Vec::new());
    if journal.clean_lsn == 0 {
        ring.replay(cut, &mut assembler)?;
    }
    let before = needed[0].segment.header.first_sequence.saturating_sub(1);
    if assembler.last_sequence.unwrap_or(0).max(before) < needs.through {
        let reason = format!(
            "the log ends here, and was durable through write {}",
            needs.through
        );
        let offset = last.segment.offset_of(cut);
        return Err(Error::corruption(&last.segment.path, offset, reason));
    }
    let mut tail = assembler.tail.unwrap_or_default();
    // The log may end before what tables hold (`deferral`): the next life goes on behind that.
    tail.retain(|record| record.header.last_sequence() > needs.after);
    Ok(Replayed {
        cut_lsn: cut,
        tail,
        last_sequence: assembler.last_sequence,
    })
}

/// Looks whether a segment that is needed is missing: one with records behind `needless_sequence`. Reads headers and
/// footers alone, and changes nothing.
pub(crate) fn check_chain(
    storage: &dyn Storage,
    dir: &Path,
    journal: &JournalState,
    needless_sequence: u64,
) -> Result<()> {
    let survey = survey(storage, dir, journal, Transfer::Buffered)?;
    let chain = chain(&survey.segments);
    let needed = needed_part(dir, &chain, needless_sequence)?;
    refuse_missing(dir, needed, &survey)?;
    let Some(last) = needed.last() else {
        return Ok(());
    };
    let end = last.segment.footer()?.map_or(0, |footer| footer.end_lsn);
    refuse_missing_end(dir, last, end, &survey)
}

/// The chain from the last segment on before which every record is in tables.
fn needed_part<'c, 'a>(
    dir: &Path,
    chain: &'c [Link<'a>],
    flushed_sequence: u64,
) -> Result<&'c [Link<'a>]> {
    let begins = |link: &Link<'_>| link.segment.header.first_sequence <= flushed_sequence + 1;
    match (chain.iter().rposition(begins), chain.first()) {
        (Some(at), _) => Ok(&chain[at..]),
        (None, Some(first)) => {
            let header = &first.segment.header;
            let reason = format!(
                "the log's segment before this one is missing: tables hold the writes up to {flushed_sequence}, \
                 this segment those from {} on",
                header.first_sequence
            );
            Err(Error::corruption(&first.segment.path, 0, reason))
        }
        (None, None) => Err(Error::corruption(dir, 0, "the log has no segment")),
    }
}

/// The number of the first segment that is needed, if all records up to `flushed_sequence` are in tables. Those before it
/// may be there nevertheless: they were kept for use again, or a power cut undid their removal.
pub(super) fn first_needed(segments: &[Found], flushed_sequence: u64) -> u64 {
    let chain = chain(segments);
    let headers = chain.iter().map(|link| &link.segment.header);
    let mut begins = headers.filter(|header| header.first_sequence <= flushed_sequence + 1);
    begins.next_back().map_or(0, |header| header.number)
}

/// Refuses a chain in which a segment is missing, not merely empty or torn.
fn refuse_missing(dir: &Path, chain: &[Link<'_>], survey: &Survey) -> Result<()> {
    for pair in chain.windows(2) {
        let (number, previous) = (
            pair[0].segment.header.number,
            pair[1].segment.header.previous,
        );
        if previous != number && !survey.has_file(previous) {
            return Err(missing(dir, previous));
        }
    }
    Ok(())
}

/// Refuses a chain that ends with a sealed segment of which the successor is missing.
fn refuse_missing_end(dir: &Path, last: &Link<'_>, cut: u64, survey: &Survey) -> Result<()> {
    if last.limit < u64::MAX {
        return Ok(());
    }
    match last.segment.footer()? {
        Some(footer) if footer.end_lsn == cut && !survey.has_file(footer.next) => {
            Err(missing(dir, footer.next))
        }
        _ => Ok(()),
    }
}

/// Delivers the records of `part`, a part of `segment`.
fn take_blocks<F: FnMut(Record<'_>) -> Result<()>>(
    segment: &Found,
    part: &ChainPart,
    assembler: &mut Assembler<'_, F>,
) -> Result<()> {
    for (header, block) in part.blocks() {
        if let Err(at) = assembler.block(header, block)? {
            let offset = segment.offset_of(header.seal.start_lsn) + u64::from(at);
            return Err(Error::corruption(
                &segment.path,
                offset,
                "a record in a valid block does not check",
            ));
        }
    }
    Ok(())
}

/// What may know that a bad place had been durable.
struct Evidence<'a> {
    journal: &'a JournalState,
    ring: &'a Leftover,
}

impl Evidence<'_> {
    /// An error if anything shows that the log had been durable beyond `lsn`, where a block should be in the segment of
    /// `link` and none is.
    fn refuse_if_durable(&self, link: &Link<'_>, lsn: u64, later: &[Link<'_>]) -> Result<()> {
        let bad = link.segment;
        let mut known = self.journal.clean_lsn.max(bad.header.durable_lsn);
        known = known.max(durable_by_blocks(bad, bad.offset_of(lsn))?);
        for segment in later.iter().map(|link| link.segment) {
            known = known.max(segment.header.durable_lsn);
            known = known.max(durable_by_blocks(segment, SEGMENT_HEADER_BYTES as u64)?);
        }
        if self.journal.clean_lsn == 0 {
            known = known.max(self.ring.durable_lsn());
        }
        if known > lsn {
            return Err(Error::corruption(
                &bad.path,
                bad.offset_of(lsn),
                format!("a block that was durable is damaged or missing (log position {lsn})"),
            ));
        }
        Ok(())
    }
}

/// The highest durable LSN in the footer and in any valid block of `segment` at or behind `offset`.
fn durable_by_blocks(segment: &Found, offset: u64) -> Result<u64> {
    let end = segment.header.capacity.min(segment.file.size()?);
    let mut search = BlockSearch::new(&*segment.file, offset, end);
    let mut known = segment.footer()?.map_or(0, |footer| footer.durable_lsn);
    while let Some(block) = search.next(|header| header.segment == segment.header.number)? {
        known = known.max(block.durable_lsn);
    }
    Ok(known)
}
