//! The cycle law: how long the engine takes for a job, without running it.
//!
//! Reading, decoding, and merging with writing work side by side; each has a sum of its own, and the largest one is the
//! job's time, with what start and end add:
//!
//! ```text
//! start  = 130 + 300 for each input after the second
//! ahead  = 600 words for each input, but no more than seven tenths of what is read
//! cycles = max(writing + start, fullest input's decoding + start, reading + ahead)
//! ```
//!
//! The start is the descriptors, read one input after another. `ahead` is what a job pays that is bound by memory: its
//! queues are filled in turn while writing waits for one of them, and what they hold when reading ends is still to be
//! written. Neither grows with the job.
//!
//! The constants belong to a memory with a latency of 30 cycles that never hesitates. They were found by
//! `tests/suite/speed.rs`, which checks that no neighbours of theirs fit better, and checks the law on runs that had no part
//! in that.

use super::job::{IpError, Job, Output, TableImage};
use super::reference::stored;
use waystation_format::table::{BlockHandle, TRAILER_BYTES};
use waystation_format::varint::Reader;

/// Cycles until the first record is written, whatever the number of inputs.
const START: u64 = 130;

/// Cycles of an output block, beside its restart points: their number, the type with room for the checksum, and filling
/// that in, which takes two words.
const BLOCK: u64 = 4;

/// The law's constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Law {
    /// Cycles from a record's choice to the next, beside the words of its key.
    pub record: u64,
    /// Cycles of an input block in its decoder.
    pub decode_block: u64,
    /// Cycles before the first record, for each input after the second.
    pub start: u64,
    /// Words that an input's queues hold when reading ends.
    pub ahead: u64,
}

impl Default for Law {
    /// What the simulation follows.
    fn default() -> Self {
        Self {
            record: 10,
            decode_block: 5,
            start: 300,
            ahead: 600,
        }
    }
}

/// A long job of equal records that are spread evenly over the inputs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Even {
    /// Inputs that have records.
    pub inputs: u64,
    /// Bytes of a user key.
    pub user_bytes: u64,
    /// How many of them are shared with the key before.
    pub shared_bytes: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// The part of the records that is kept: 0 to 1.
    pub kept: f64,
    /// Bytes of a block.
    pub block_bytes: u64,
}

/// The cycles of each room, and of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// Words of eight bytes that are read, descriptors with them.
    pub reading: u64,
    /// Decoding of the input with most to decode.
    pub decoding: u64,
    /// Merging, filtering and writing.
    pub writing: u64,
    /// The whole job.
    pub cycles: u64,
}

impl Law {
    /// The cycles of a job with this output (the reference's will do).
    pub fn predict(&self, job: &Job, output: &Output) -> Result<Prediction, IpError> {
        let (mut reading, mut decoding, mut writing, mut inputs) = (0, 0, 0, 0);
        for input in &job.inputs {
            let mut decoded = 0;
            for table in input {
                reading += words_read(table);
                decoded += self.decode_block * table.blocks.len() as u64;
                for_each_record(table, |record| {
                    let words = words_of(record.user) + words_of(record.value);
                    decoded += (3 + words).max(self.between(record));
                    writing += self.dropped(record);
                })?;
            }
            decoding = decoding.max(decoded);
            inputs += u64::from(decoded > 0);
        }
        // So far as if every record were dropped; now those that are kept.
        let mut kept = 0;
        for block in &output.blocks {
            for_each_entry(&output.bytes, block.handle, &mut |record| {
                writing -= self.dropped(record);
                kept += self.kept(record);
            })?;
            let restarts = u64::from(block.entries).div_ceil(job.settings.restart_interval.into());
            kept += restarts + BLOCK;
        }
        writing += kept;
        let start = START + self.start * u64::saturating_sub(inputs, 2);
        let ahead = (self.ahead * inputs).min(reading * 7 / 10);
        Ok(Prediction {
            reading,
            decoding,
            writing,
            cycles: (writing.max(decoding) + start).max(reading + ahead),
        })
    }

    /// The cycles that each record adds to a long job, its share of blocks included; start and end are not in it.
    pub fn per_record(&self, job: Even) -> f64 {
        let record = Record {
            header: if job.value_bytes < 128 { 3 } else { 4 },
            user: job.user_bytes,
            shared: job.shared_bytes,
            unshared: job.user_bytes - job.shared_bytes,
            value: job.value_bytes,
        };
        let stored = record.header + record.unshared + 8 + record.value;
        let in_block = (job.block_bytes as f64 / stored as f64).max(1.0);
        // A block's tail and trailer, the words it straddles, and its descriptor.
        let reading = stored as f64 / 8.0 + 5.0 / in_block;
        let words = words_of(record.user) + words_of(record.value);
        let decoded = (3 + words).max(self.between(record)) as f64;
        let decoding = (decoded + self.decode_block as f64 / in_block) / job.inputs as f64;
        let restarts = (in_block / 16.0).ceil();
        let kept = self.kept(record) as f64 + (restarts + BLOCK as f64) / in_block;
        let writing = kept * job.kept + self.dropped(record) as f64 * (1.0 - job.kept);
        reading.max(decoding).max(writing)
    }

    /// A record that is dropped: its value is taken from the queue all the same.
    fn dropped(&self, record: Record) -> u64 {
        words_of(record.value).max(self.between(record))
    }

    /// A record that is kept: the chunks in which it is written.
    fn kept(&self, record: Record) -> u64 {
        let in_word = record.unshared.min(8 - record.shared % 8);
        let in_head = in_word.min(8 - record.header);
        let key = u64::from(in_word > in_head) + words_of(record.unshared - in_word);
        (1 + key + 1 + words_of(record.value)).max(self.between(record))
    }

    fn between(&self, record: Record) -> u64 {
        self.record + words_of(record.user) + 1
    }
}

/// Lengths of a record as it is stored, in bytes; those of keys without the trailer.
#[derive(Clone, Copy)]
struct Record {
    header: u64,
    user: u64,
    shared: u64,
    unshared: u64,
    value: u64,
}

/// Words of eight bytes.
fn words_of(bytes: u64) -> u64 {
    bytes.div_ceil(8)
}

/// Words that reading a table takes: its descriptor, and of each block the descriptor, the restart count with the type
/// byte ahead of the rest, and the block with its trailer.
fn words_read(table: &TableImage) -> u64 {
    let straddled = |start: u64, bytes: u64| words_of(start % 8 + bytes);
    let blocks = table.blocks.iter().map(|handle| {
        let tail = handle.offset + handle.length - 4;
        2 + straddled(tail, 5) + straddled(handle.offset, handle.length + TRAILER_BYTES as u64)
    });
    4 + blocks.sum::<u64>()
}

/// Walks a table's records as they are stored.
fn for_each_record(table: &TableImage, mut each: impl FnMut(Record)) -> Result<(), IpError> {
    for &handle in &table.blocks {
        for_each_entry(&table.bytes, handle, &mut each)?;
    }
    Ok(())
}

/// Walks a block's records.
fn for_each_entry(
    bytes: &[u8],
    handle: BlockHandle,
    each: &mut impl FnMut(Record),
) -> Result<(), IpError> {
    let damaged = || IpError::Refused("an entry does not lie within its block".to_owned());
    let contents = &stored(bytes, handle)?[..handle.length as usize];
    let (before, count) = contents.split_last_chunk::<4>().ok_or_else(damaged)?;
    let restarts = (u32::from_le_bytes(*count) as usize).checked_mul(4);
    let end = restarts.and_then(|bytes| before.len().checked_sub(bytes));
    let mut entries = Reader::new(&before[..end.ok_or_else(damaged)?]);
    while !entries.is_empty() {
        let begin = entries.offset();
        let shared = u64::from(entries.var_u32("shared")?);
        let unshared = u64::from(entries.var_u32("unshared")?);
        let value = u64::from(entries.var_u32("value length")?);
        let header = (entries.offset() - begin) as u64;
        entries.take((unshared + value) as usize, "key and value")?;
        each(Record {
            header,
            user: (shared + unshared).checked_sub(8).ok_or_else(damaged)?,
            shared,
            unshared: unshared.saturating_sub(8),
            value,
        });
    }
    Ok(())
}
