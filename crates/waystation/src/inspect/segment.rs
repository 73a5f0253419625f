//! One segment file of the log, block by block, as it stands: without the ring, and possibly being written.
//!
//! A block that does not check is the end of the log, or damage: damage if anything that is still readable says
//! that the log was durable beyond it (a later block, the footer, or what the caller knows).
//!
//! A segment ends where its header says. A file may be longer: nothing behind the end is read. It may become shorter while
//! it is read: an owner that opens cuts off what is not used.

use super::source::Source;
use crate::error::Result;
use waystation_format::log::{
    BLOCK_HEADER_BYTES, BlockHeader, FOOTER_BYTES, IndexEntry, SEGMENT_HEADER_BYTES, SegmentFooter,
    SegmentHeader, UNIT_BYTES, body_is_valid, decode_index,
};

/// What a segment says of itself, and what was found in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentSummary {
    /// Present if the segment is sealed.
    pub(crate) footer: Option<SegmentFooter>,
    /// How many blocks check.
    pub(crate) blocks: u64,
    /// Where the last block that checks ends.
    pub(crate) end_lsn: u64,
}

/// The findings on the way through a segment.
pub(crate) enum Step<'a> {
    /// A block that checks.
    Block {
        offset: u64,
        header: BlockHeader,
        bytes: &'a [u8],
    },
    /// Damage: bytes that were durable once.
    Damage { offset: u64, reason: String },
}

/// Reads the header; `None` for a file that is prepared, or recycled, and not begun.
pub(crate) fn header(source: &Source, number: Option<u64>) -> Result<Option<SegmentHeader>> {
    if source.bytes() < SEGMENT_HEADER_BYTES as u64 {
        return Ok(None);
    }
    let header = SegmentHeader::decode(&source.read(0, UNIT_BYTES)?);
    Ok(header.filter(|header| number.is_none_or(|number| number == header.number)))
}

/// What the caller knows from elsewhere about the stream in a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    /// Below this LSN the log is durable: what does not check there is damage.
    pub(crate) durable_lsn: u64,
    /// From this LSN on a later segment has the stream (recovery or healing cut this one there).
    pub(crate) cut_lsn: u64,
}

/// Walks through the blocks of a segment that was begun.
pub(crate) fn walk(
    source: &Source,
    header: SegmentHeader,
    known: Known,
    sink: &mut dyn FnMut(Step<'_>) -> Result<()>,
) -> Result<SegmentSummary> {
    let (index, footer) = index_and_footer(source, &header)?.unzip();
    let index = index.unwrap_or_default();
    let whole = end_of(source, &header);
    let end = footer.map_or(whole, |footer| footer.index_offset.min(whole));
    let end_lsn = footer
        .map_or(u64::MAX, |footer| footer.end_lsn)
        .min(known.cut_lsn);
    let durable = known
        .durable_lsn
        .max(footer.map_or(0, |footer| footer.end_lsn.min(known.cut_lsn)));
    let mut summary = SegmentSummary {
        footer,
        blocks: 0,
        end_lsn: header.start_lsn,
    };
    let mut offset = SEGMENT_HEADER_BYTES as u64;
    while offset < end {
        let lsn = header.start_lsn + (offset - SEGMENT_HEADER_BYTES as u64);
        if lsn >= end_lsn {
            break;
        }
        if let Some((block, bytes)) = block_at(source, &header, offset)? {
            summary.blocks += 1;
            summary.end_lsn = block.seal.end_lsn();
            let told = index.binary_search_by_key(&lsn, |entry| entry.start_lsn);
            if footer.is_some() && told.map(|at| index[at]) != Ok(IndexEntry::from(&block.seal)) {
                let reason = format!("the segment's index is wrong about the block at LSN {lsn}");
                sink(Step::Damage { offset, reason })?;
            }
            sink(Step::Block {
                offset,
                header: block,
                bytes: &bytes,
            })?;
            offset += u64::from(block.seal.length);
            continue;
        }
        // Where does the log go on, and what does it say was durable?
        let next = next_block(source, &header, offset + UNIT_BYTES as u64, end)?;
        let durable = next.map_or(durable, |(_, block)| durable.max(block.durable_lsn));
        if durable > lsn {
            let reason =
                format!("the log's block at LSN {lsn} does not check, and was durable once");
            sink(Step::Damage { offset, reason })?;
        }
        match next {
            Some((found, _)) if durable > lsn => offset = found,
            _ => break,
        }
    }
    Ok(summary)
}

/// The footer of a sealed segment: it must name this segment, and check together with the index.
pub(crate) fn footer(source: &Source, header: &SegmentHeader) -> Result<Option<SegmentFooter>> {
    Ok(index_and_footer(source, header)?.map(|(_, footer)| footer))
}

/// No segment is longer (bytes): the options' longest, and what a recovery puts into the first one besides.
const BYTES_MAX: u64 = 6 << 30;

/// Up to where the file of a segment is worth reading, if its header does not tell.
pub(crate) fn search_end(source: &Source) -> u64 {
    source.bytes().min(BYTES_MAX)
}

/// Where the segment ends in its file.
fn end_of(source: &Source, header: &SegmentHeader) -> u64 {
    header.capacity.min(search_end(source))
}

fn index_and_footer(
    source: &Source,
    header: &SegmentHeader,
) -> Result<Option<(Vec<IndexEntry>, SegmentFooter)>> {
    let end = end_of(source, header);
    let Some(at) = end.checked_sub(FOOTER_BYTES as u64) else {
        return Ok(None);
    };
    let Some(bytes) = source.read_while_there(at, FOOTER_BYTES)? else {
        return Ok(None);
    };
    let Some(footer) = SegmentFooter::peek(&bytes) else {
        return Ok(None);
    };
    let start = end.checked_sub(footer.tail_bytes() as u64);
    if footer.number != header.number || start != Some(footer.index_offset) {
        return Ok(None);
    }
    let tail = source.read_while_there(footer.index_offset, footer.tail_bytes())?;
    Ok(tail.and_then(|tail| decode_index(&tail)))
}

/// The block at `offset`, if it checks and belongs there.
fn block_at(
    source: &Source,
    segment: &SegmentHeader,
    offset: u64,
) -> Result<Option<(BlockHeader, Vec<u8>)>> {
    let Some(block) = block_header_at(source, segment, offset)? else {
        return Ok(None);
    };
    if offset + u64::from(block.seal.length) > source.bytes() {
        return Ok(None);
    }
    let bytes = source.read_while_there(offset, block.seal.length as usize)?;
    let sound = bytes.filter(|bytes| body_is_valid(bytes));
    Ok(sound.map(|bytes| (block, bytes)))
}

fn block_header_at(
    source: &Source,
    segment: &SegmentHeader,
    offset: u64,
) -> Result<Option<BlockHeader>> {
    if offset + BLOCK_HEADER_BYTES as u64 > source.bytes() {
        return Ok(None);
    }
    let lsn = segment.start_lsn + (offset - SEGMENT_HEADER_BYTES as u64);
    let bytes = source.read_while_there(offset, BLOCK_HEADER_BYTES)?;
    let block = bytes.and_then(|bytes| BlockHeader::decode(&bytes));
    Ok(block.filter(|block| {
        block.segment == segment.number && block.seal.start_lsn == lsn && block.seal.length > 0
    }))
}

/// The first block from `offset` on that checks, looked for at every unit.
fn next_block(
    source: &Source,
    segment: &SegmentHeader,
    mut offset: u64,
    end: u64,
) -> Result<Option<(u64, BlockHeader)>> {
    while offset < end {
        if let Some((block, _)) = block_at(source, segment, offset)? {
            return Ok(Some((offset, block)));
        }
        offset += UNIT_BYTES as u64;
    }
    Ok(None)
}
