//! The valid blocks of the chain, a large part of a segment at a time, read and checked ahead of their reader.
//!
//! ```text
//! reading    window | window | window ..        some threads, in turns: the device never waits for a processor
//! checking     blocks | blocks | blocks ..      another: up to the first block that is not valid
//! taking         records | records ..           the caller
//! ```
//!
//! What a window's end cuts off of a block is put before the next window. A log of one window needs no thread, and none
//! outlives [`for_each_part`]. At most nine windows are in memory: each reader has one that waits and one that it reads,
//! and there is one part that waits, one being checked and one looked at.

use super::ahead::Ahead;
use super::blocks::valid_block;
use crate::error::Result;
use crate::storage::{AlignedBuffer, File};
use crate::sync::Arc;
use std::ops::Range;
use waystation_format::log::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, BlockHeader, SEGMENT_HEADER_BYTES, SegmentHeader,
    UNIT_BYTES,
};

/// So much is read at once.
const WINDOW_BYTES: usize = 2 * 1024 * 1024;
/// So many windows are read at a time: with all processors busy a device that has but one to read is idle until the reader
/// has its turn again.
const READERS: usize = 3;
/// Room before a window for the block that was cut off.
const HEADROOM: usize = BLOCK_BYTES_MAX;

/// A segment of the chain.
pub(super) struct Extent {
    pub(super) file: Arc<dyn File>,
    pub(super) header: SegmentHeader,
    /// Its part of the stream ends here.
    pub(super) limit: u64,
    /// Blocks can be up to this offset.
    pub(super) end: u64,
}

/// Valid blocks of one segment, one behind the other.
#[derive(Default)]
pub(super) struct ChainPart {
    window: Window,
    /// The blocks' headers, and where in the window's memory they start.
    blocks: Vec<(BlockHeader, usize)>,
    /// So far its blocks are valid.
    pub(super) end_lsn: u64,
}

impl ChainPart {
    /// Which segment of the chain they are in.
    pub(super) fn link(&self) -> usize {
        self.window.link
    }

    /// The blocks: header and whole bytes.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (&BlockHeader, &[u8])> {
        self.blocks.iter().map(|(header, at)| {
            let block = *at..at + header.seal.length as usize;
            (header, &self.window.memory[block])
        })
    }
}

/// Shows `take` the valid blocks of `chain` in order, at least one part, perhaps empty, of each segment that is reached:
/// up to the first segment whose valid blocks end before its limit.
pub(super) fn for_each_part(
    chain: Vec<Extent>,
    mut take: impl FnMut(&ChainPart) -> Result<()>,
) -> Result<()> {
    let chain: Arc<[Extent]> = chain.into();
    let mut places = Places::new(Arc::clone(&chain));
    let mut checker = Checker::new(chain);
    let mut part = ChainPart::default();
    let Some(first) = places.next() else {
        return Ok(());
    };
    first.read(&mut part.window)?;
    checker.check(&mut part);
    if checker.is_ended() {
        return take(&part);
    }
    let mut readers = Vec::new();
    for turn in 0..READERS {
        let mut places = places.clone().skip(turn).step_by(READERS);
        let read = move |mut window| {
            let place = places.next();
            place.map_or(Ok(None), |it| it.read(&mut window).map(|()| Some(window)))
        };
        readers.push(Ahead::start("waystation-read", read)?);
    }
    let mut turns = (0..READERS).cycle();
    let check = move |mut part: ChainPart| {
        while !checker.is_ended()
            && let Some(turn) = turns.next()
            && let Some(mut window) = readers[turn].next()?
        {
            std::mem::swap(&mut part.window, &mut window);
            readers[turn].give_back(window);
            // A segment may go on behind the limit of its part.
            if checker.is_at(&part.window) {
                checker.check(&mut part);
                return Ok(Some(part));
            }
        }
        Ok(None)
    };
    let mut parts = Ahead::start("waystation-check", check)?;
    take(&part)?;
    drop(part);
    while let Some(part) = parts.next()? {
        take(&part)?;
        parts.give_back(part);
    }
    Ok(())
}

/// A part of a segment.
#[derive(Default)]
struct Window {
    memory: AlignedBuffer,
    /// Where in the memory the bytes are.
    bytes: Range<usize>,
    /// Which segment of the chain it is of.
    link: usize,
    /// Whether the segment has no more.
    is_last: bool,
}

/// Where a window is.
struct Place {
    file: Arc<dyn File>,
    link: usize,
    offset: u64,
    length: usize,
    is_last: bool,
}

impl Place {
    fn read(&self, window: &mut Window) -> Result<()> {
        let units = self.length.next_multiple_of(UNIT_BYTES);
        window.memory.resize(HEADROOM + units);
        let target = &mut window.memory.as_mut_slice()[HEADROOM..];
        let read = self.file.read_at(target, self.offset)?.min(self.length);
        window.bytes = HEADROOM..HEADROOM + read;
        window.link = self.link;
        window.is_last = self.is_last || read < self.length;
        Ok(())
    }
}

/// The windows of the chain in order, at least one of each segment.
#[derive(Clone)]
struct Places {
    chain: Arc<[Extent]>,
    /// The segment of the next one, and where in it that starts.
    link: usize,
    offset: u64,
}

impl Places {
    fn new(chain: Arc<[Extent]>) -> Self {
        Self {
            chain,
            link: 0,
            offset: SEGMENT_HEADER_BYTES as u64,
        }
    }
}

impl Iterator for Places {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        let extent = self.chain.get(self.link)?;
        let rest = extent.end.saturating_sub(self.offset);
        let place = Place {
            file: Arc::clone(&extent.file),
            link: self.link,
            offset: self.offset,
            length: rest.min(WINDOW_BYTES as u64) as usize,
            is_last: rest <= WINDOW_BYTES as u64,
        };
        self.offset += place.length as u64;
        // The last block of its part may go beyond the limit.
        let part = extent.limit - extent.header.start_lsn;
        let needed = part.saturating_add((SEGMENT_HEADER_BYTES + BLOCK_BYTES_MAX) as u64);
        if place.is_last || self.offset >= needed {
            self.link += 1;
            self.offset = SEGMENT_HEADER_BYTES as u64;
        }
        Some(place)
    }
}

/// Finds the valid blocks of the chain.
struct Checker {
    chain: Arc<[Extent]>,
    /// The segment of the next block, and its position.
    link: usize,
    lsn: u64,
    /// What the last window had of the next block.
    cut_off: Vec<u8>,
}

impl Checker {
    fn new(chain: Arc<[Extent]>) -> Self {
        Self {
            lsn: chain.first().map_or(0, |extent| extent.header.start_lsn),
            chain,
            link: 0,
            cut_off: Vec::new(),
        }
    }

    fn is_ended(&self) -> bool {
        self.link >= self.chain.len()
    }

    /// Whether the next block may be in `window`.
    fn is_at(&self, window: &Window) -> bool {
        self.link == window.link
    }

    /// Notes the valid blocks in the window of `part`, which follows the last one.
    fn check(&mut self, part: &mut ChainPart) {
        let window = &mut part.window;
        window.bytes.start -= self.cut_off.len();
        window.memory.as_mut_slice()[window.bytes.start..HEADROOM].copy_from_slice(&self.cut_off);
        self.cut_off.clear();
        part.blocks.clear();
        let Extent { header, limit, .. } = &self.chain[self.link];
        let mut at = window.bytes.start;
        while self.lsn < *limit {
            let rest = &window.memory[at..window.bytes.end];
            if !window.is_last && is_cut_off(rest) {
                self.cut_off.extend_from_slice(rest);
                part.end_lsn = self.lsn;
                return;
            }
            let belongs = |block: &BlockHeader| {
                block.segment == header.number
                    && block.seal.incarnation == header.incarnation
                    && block.seal.start_lsn == self.lsn
            };
            let Some(block) = valid_block(rest, belongs) else {
                self.link = self.chain.len();
                part.end_lsn = self.lsn;
                return;
            };
            part.blocks.push((block, at));
            at += block.seal.length as usize;
            self.lsn = block.seal.end_lsn();
        }
        part.end_lsn = self.lsn;
        self.link += 1;
        if let Some(next) = self.chain.get(self.link) {
            self.lsn = next.header.start_lsn;
        }
    }
}

/// Whether `bytes` end within the block at their beginning, or before it.
fn is_cut_off(bytes: &[u8]) -> bool {
    let whole = BlockHeader::decode(bytes).map_or(BLOCK_HEADER_BYTES, |it| it.seal.length as usize);
    bytes.len() < whole
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
    use crate::storage::sim::SimStorage;
    use crate::storage::{Area, OpenMode, Storage, Transfer};
    use std::path::PathBuf;
    use waystation_format::log::{Seal, finish_block};

    /// A window ends in the middle of one of these.
    const BLOCK_BYTES: usize = 48 * 1024;
    /// So many make several windows, and wait for their reader.
    const MANY: usize = 8 * WINDOW_BYTES / BLOCK_BYTES;

    /// Segments of so many blocks each, one behind the other in the stream; the last one has no limit.
    fn chain(storage: &dyn Storage, segments: &[usize]) -> Vec<Extent> {
        let mut lsn = 1 << 20;
        let mut chain: Vec<Extent> = Vec::new();
        for (number, blocks) in (1..).zip(segments) {
            if let Some(previous) = chain.last_mut() {
                previous.limit = lsn;
            }
            let start_lsn = lsn;
            let mut bytes = AlignedBuffer::zeroed(SEGMENT_HEADER_BYTES);
            for _ in 0..*blocks {
                bytes.extend_from_slice(&block(number, lsn));
                lsn += BLOCK_BYTES as u64;
            }
            let path = PathBuf::from(format!("/{number}"));
            let file = storage.open(&path, OpenMode::Create, Transfer::Buffered, Area::Journal);
            let file = file.expect("a new file");
            file.write_at(&bytes, 0).expect("written");
            let header = SegmentHeader {
                number,
                incarnation: 7,
                start_lsn,
                capacity: bytes.len() as u64,
                durable_lsn: 0,
                first_sequence: 0,
                previous: 0,
            };
            chain.push(Extent {
                file,
                header,
                limit: u64::MAX,
                end: bytes.len() as u64,
            });
        }
        chain
    }

    fn block(segment: u64, start_lsn: u64) -> Vec<u8> {
        let mut block = vec![start_lsn as u8; BLOCK_BYTES];
        let seal = Seal {
            start_lsn,
            length: BLOCK_BYTES as u32,
            used: BLOCK_BYTES as u32,
            first_record: 0,
            first_sequence: 0,
            incarnation: 7,
        };
        let mut header = seal.encode();
        finish_block(&mut header, [&block[BLOCK_HEADER_BYTES..], &[]], segment, 0);
        block[..BLOCK_HEADER_BYTES].copy_from_slice(&header);
        block
    }

    /// The positions of all blocks by segment, and where it ended.
    fn taken(chain: Vec<Extent>) -> Result<(Vec<Vec<u64>>, u64)> {
        let mut taken = Vec::new();
        let mut end = 0;
        for_each_part(chain, |part| {
            taken.resize(part.link() + 1, Vec::new());
            for (header, bytes) in part.blocks() {
                assert_eq!(bytes.len(), BLOCK_BYTES);
                taken[part.link()].push(header.seal.start_lsn);
            }
            end = part.end_lsn;
            Ok(())
        })?;
        Ok((taken, end))
    }

    /// The positions of the `count` blocks from the one `from` on.
    fn blocks(from: usize, count: usize) -> Vec<u64> {
        let lsn = |block| (1 << 20) + (block * BLOCK_BYTES) as u64;
        (from..from + count).map(lsn).collect()
    }

    #[test]
    fn every_block_is_shown_once_in_order_through_all_segments() {
        let chain = chain(&*SimStorage::new(1), &[MANY, 1, 0, MANY + 1]);
        let mut expected = vec![blocks(0, MANY), blocks(MANY, 1), Vec::new()];
        expected.push(blocks(MANY + 1, MANY + 1));
        let end = (1 << 20) + ((2 * MANY + 2) * BLOCK_BYTES) as u64;
        assert_eq!(taken(chain).unwrap(), (expected, end));
    }

    #[test]
    fn the_first_block_that_is_not_valid_ends_it() {
        // In the first window, at its end, behind it, and in the last one.
        for bad in [0, 1, 41, 42, 43, MANY - 1] {
            let chain = chain(&*SimStorage::new(1), &[MANY, MANY]);
            let at = SEGMENT_HEADER_BYTES + bad * BLOCK_BYTES + BLOCK_BYTES / 2;
            chain[0].file.write_at(b"damage", at as u64).unwrap();
            let end = (1 << 20) + (bad * BLOCK_BYTES) as u64;
            assert_eq!(taken(chain).unwrap(), (vec![blocks(0, bad)], end));
        }
    }

    #[test]
    fn a_log_of_one_window_needs_no_thread() {
        for (blocks, is_one) in [(3, true), (MANY, false)] {
            let chain = chain(&*SimStorage::new(1), &[blocks]);
            let chain: Arc<[Extent]> = chain.into();
            let mut checker = Checker::new(Arc::clone(&chain));
            let mut part = ChainPart::default();
            let first = Places::new(chain).next().expect("a segment");
            first.read(&mut part.window).unwrap();
            checker.check(&mut part);
            assert_eq!(checker.is_ended(), is_one);
        }
    }

    #[test]
    fn what_lies_behind_a_limit_is_passed_over() {
        let mut chain = chain(&*SimStorage::new(1), &[MANY, MANY]);
        // The second one begins where the first one still has windows.
        chain[0].limit = chain[0].header.start_lsn + 50 * BLOCK_BYTES as u64;
        let end = (1 << 20) + (2 * MANY * BLOCK_BYTES) as u64;
        let expected = vec![blocks(0, 50), blocks(MANY, MANY)];
        assert_eq!(taken(chain).unwrap(), (expected, end));
    }

    #[test]
    fn the_threads_end_when_nobody_takes_more() {
        let chain = chain(&*SimStorage::new(1), &[MANY]);
        let file = Arc::clone(&chain[0].file);
        let mut shown = 0;
        let refused = for_each_part(chain, |_| {
            shown += 1;
            if shown < 3 {
                return Ok(());
            }
            Err(Error::InvalidArgument("enough".into()))
        });
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
        assert_eq!((shown, Arc::strong_count(&file)), (3, 1));
    }

    #[test]
    fn a_read_that_fails_is_told_behind_what_was_read_before() {
        let rules = FaultRules::new();
        let storage = SimStorage::new(1).with_faults(&rules);
        let chain = chain(&*storage, &[MANY]);
        let file = Arc::clone(&chain[0].file);
        let fails = Rule::new(Operation::Read, Fault::Fail(Refusal::InputOutput));
        // One of the readers meets it, and what comes before its turn is shown.
        rules.add(fails.after(3).times(1));
        let mut shown = 0;
        let outcome = for_each_part(chain, |_| {
            shown += 1;
            Ok(())
        });
        assert!(matches!(outcome, Err(Error::Io { .. })));
        // A reader is at most a part that waits and one that it reads ahead of what is shown.
        assert!((1..=1 + 2 * READERS).contains(&shown), "{shown} parts");
        assert_eq!(Arc::strong_count(&file), 1);
    }
}
