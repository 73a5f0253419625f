//! The same job in software, written for clarity: the hardware's output must equal this byte for byte.
//!
//! It differs from LevelDB's builder in one liberty the format leaves: only user keys share their beginnings,
//! trailers are always written whole.

use super::job::{Block, Counters, IpError, Job, Limits, Output, Settings};
use std::collections::BinaryHeap;
use waystation_format::block::{self, BlockIter};
use waystation_format::checksum;
use waystation_format::key::{self, compare_internal};
use waystation_format::table::{BlockHandle, TRAILER_BYTES, decode_block};
use waystation_format::varint;

/// Does a job in software.
pub fn run(job: &Job) -> Result<Output, IpError> {
    let mut counters = Counters::default();
    let mut heads = BinaryHeap::new();
    for (number, input) in job.inputs.iter().enumerate() {
        let mut cursor = Cursor::new(job, number);
        for table in input {
            counters.blocks_in += table.blocks.len() as u64;
            for handle in &table.blocks {
                counters.bytes_in += handle.length + TRAILER_BYTES as u64;
            }
        }
        if cursor.advance()? {
            heads.push(cursor);
        }
    }
    let mut filter = Filter::new(job.settings);
    let mut encoder = Encoder::new(job.settings);
    while let Some(mut head) = heads.pop() {
        counters.records_in += 1;
        match filter.judge(head.key()) {
            Verdict::Keep => encoder.add(head.key(), head.value()),
            Verdict::Shadowed => counters.shadowed += 1,
            Verdict::Vanished => counters.vanished += 1,
        }
        if head.advance()? {
            heads.push(head);
        }
    }
    let (bytes, blocks) = encoder.finish();
    counters.records_out = blocks.iter().map(|block| u64::from(block.entries)).sum();
    counters.bytes_out = bytes.len() as u64;
    counters.blocks_out = blocks.len() as u64;
    Ok(Output {
        bytes,
        blocks,
        counters,
    })
}

/// Walks the records of one input.
struct Cursor<'a> {
    job: &'a Job,
    number: usize,
    table: usize,
    block: usize,
    entries: Option<BlockIter>,
}

impl<'a> Cursor<'a> {
    fn new(job: &'a Job, number: usize) -> Self {
        Self {
            job,
            number,
            table: 0,
            block: 0,
            entries: None,
        }
    }

    fn key(&self) -> &[u8] {
        self.entries.as_ref().map_or(&[], BlockIter::key)
    }

    fn value(&self) -> &[u8] {
        self.entries.as_ref().map_or(&[], BlockIter::value)
    }

    /// Moves to the next record; false at the end.
    fn advance(&mut self) -> Result<bool, IpError> {
        if let Some(entries) = &mut self.entries {
            entries.next()?;
            if entries.valid() {
                return Ok(true);
            }
        }
        let input = &self.job.inputs[self.number];
        while let Some(table) = input.get(self.table) {
            let Some(handle) = table.blocks.get(self.block) else {
                self.table += 1;
                self.block = 0;
                continue;
            };
            self.block += 1;
            let mut scratch = Vec::new();
            let contents = decode_block(stored(&table.bytes, *handle)?, &mut scratch)?;
            let mut entries = BlockIter::new(block::Block::new(contents)?);
            entries.seek_to_first()?;
            if entries.valid() {
                self.entries = Some(entries);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The bytes of a block with its trailer.
pub(crate) fn stored(bytes: &[u8], handle: BlockHandle) -> Result<&[u8], IpError> {
    let end = handle.end().and_then(|end| usize::try_from(end).ok());
    end.and_then(|end| bytes.get(handle.offset as usize..end))
        .ok_or_else(|| IpError::Refused("a block does not lie within its table".to_owned()))
}

impl Ord for Cursor<'_> {
    /// The greatest comes first out of the heap: the smallest internal key, of equal ones the lowest input.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        compare_internal(other.key(), self.key()).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Cursor<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Cursor<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Cursor<'_> {}

enum Verdict {
    Keep,
    Shadowed,
    Vanished,
}

/// LevelDB's rules of dropping.
struct Filter {
    settings: Settings,
    user_key: Option<Vec<u8>>,
    /// Whether the version before is visible to the smallest snapshot.
    hides: bool,
}

impl Filter {
    fn new(settings: Settings) -> Self {
        Self {
            settings,
            user_key: None,
            hides: false,
        }
    }

    fn judge(&mut self, internal_key: &[u8]) -> Verdict {
        let user_key = key::user_key(internal_key);
        let trailer = key::trailer(internal_key);
        let (sequence, deletion) = (trailer >> 8, trailer as u8 == 0);
        let shadowed = self.hides && self.user_key.as_deref() == Some(user_key);
        self.user_key = Some(user_key.to_vec());
        self.hides = sequence <= self.settings.smallest_snapshot;
        if shadowed {
            Verdict::Shadowed
        } else if deletion && self.hides && self.settings.bottom {
            Verdict::Vanished
        } else {
            Verdict::Keep
        }
    }
}

/// Writes blocks.
struct Encoder {
    settings: Settings,
    out: Vec<u8>,
    blocks: Vec<Block>,
    entries: Vec<u8>,
    restarts: Vec<u32>,
    since_restart: u8,
    count: u32,
    last_key: Vec<u8>,
}

impl Encoder {
    fn new(settings: Settings) -> Self {
        Self {
            settings,
            out: Vec::new(),
            blocks: Vec::new(),
            entries: Vec::new(),
            restarts: Vec::new(),
            since_restart: 0,
            count: 0,
            last_key: Vec::new(),
        }
    }

    fn add(&mut self, internal_key: &[u8], value: &[u8]) {
        let user_key = key::user_key(internal_key);
        let mut shared = 0;
        if self.restarts.is_empty() || self.since_restart == self.settings.restart_interval {
            self.restarts.push(self.entries.len() as u32);
            self.since_restart = 0;
        } else {
            let last = key::user_key(&self.last_key);
            shared = last
                .iter()
                .zip(user_key)
                .take_while(|(a, b)| a == b)
                .count();
        }
        varint::put_u64(&mut self.entries, shared as u64);
        varint::put_u64(&mut self.entries, (internal_key.len() - shared) as u64);
        varint::put_u64(&mut self.entries, value.len() as u64);
        self.entries.extend_from_slice(&internal_key[shared..]);
        self.entries.extend_from_slice(value);
        self.since_restart += 1;
        self.count += 1;
        internal_key.clone_into(&mut self.last_key);
        let estimate = self.entries.len() + 4 * self.restarts.len() + 4;
        let full = self.restarts.len() == Limits::RESTARTS
            && self.since_restart == self.settings.restart_interval;
        if estimate >= self.settings.block_bytes as usize || full {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let offset = self.out.len() as u64;
        self.out.append(&mut self.entries);
        for restart in &self.restarts {
            self.out.extend_from_slice(&restart.to_le_bytes());
        }
        let count = self.restarts.len() as u32;
        self.out.extend_from_slice(&count.to_le_bytes());
        let length = self.out.len() as u64 - offset;
        self.out.push(0);
        let crc = checksum::mask(checksum::crc32c(&self.out[offset as usize..]));
        self.out.extend_from_slice(&crc.to_le_bytes());
        self.blocks.push(Block {
            handle: BlockHandle { offset, length },
            entries: self.count,
            last_key: self.last_key.clone(),
        });
        self.restarts.clear();
        self.since_restart = 0;
        self.count = 0;
    }

    fn finish(mut self) -> (Vec<u8>, Vec<Block>) {
        if self.count > 0 {
            self.cut();
        }
        (self.out, self.blocks)
    }
}
