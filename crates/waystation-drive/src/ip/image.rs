//! What the hardware sees of a job: a memory image with tables, descriptors and room for the output.
//!
//! ```text
//! table descriptor, 32 bytes, 32-byte aligned
//!    0 u32 address of the table        4 u32 its bytes
//!    8 u32 address of its block list  12 u32 blocks, less than 2^24
//!   16 u32 ordinal within the input   20 u8 input, 3 bytes "TAW"
//!   24 u32 zero                       28 u32 crc32c of the 32 bytes with this field zero
//! block descriptor, 16 bytes, 16-byte aligned
//!    0 u32 offset within the table     4 u32 bytes without the trailer
//!    8 u32 ordinal within the table   12 u32 crc32c of the 16 bytes with this field zero
//! index entry, 128 bytes apart
//!    0 u32 offset of the block in the output     4 u32 its bytes without the trailer
//!    8 u32 entries                              12 u32 bytes of the user key of its last record
//!   16 u64 trailer of that record               24 user key
//! ```
//!
//! All integers are little-endian.

use super::job::{Block, IpError, Job, Limits, TableImage};
use waystation_format::block::{self, BlockIter};
use waystation_format::checksum::crc32c;
use waystation_format::key;
use waystation_format::table::{BlockHandle, TRAILER_BYTES};

/// Bytes of an index entry.
const INDEX_ENTRY_BYTES: usize = 128;
const TABLE_DESCRIPTOR_BYTES: usize = 32;
const BLOCK_DESCRIPTOR_BYTES: usize = 16;
const TABLE_MARK: [u8; 3] = *b"TAW";

/// A region of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Its first byte.
    pub address: u32,
    /// Its bytes.
    pub bytes: u32,
}

/// The memory image of a job, and where things are in it.
#[derive(Debug, Clone)]
pub struct Image {
    /// The memory.
    pub memory: Vec<u8>,
    /// Per input, its list of table descriptors.
    pub lists: Vec<Region>,
    /// Per input, the descriptors of all blocks of its tables.
    pub block_lists: Vec<Vec<Region>>,
    /// Per input, where its tables lie.
    pub tables: Vec<Vec<Region>>,
    /// Room for the index entries.
    pub index: Region,
    /// Room for the blocks.
    pub out: Region,
}

/// Builds the image of a job with room for `out_bytes` of output.
pub fn build(job: &Job, out_bytes: usize) -> Result<Image, IpError> {
    let mut layout = Layout(Vec::new());
    layout.place(&[0; 128], 128)?; // address 0 stays unused
    let mut image = Image {
        memory: Vec::new(),
        lists: Vec::new(),
        block_lists: Vec::new(),
        tables: Vec::new(),
        index: Region {
            address: 0,
            bytes: 0,
        },
        out: Region {
            address: 0,
            bytes: 0,
        },
    };
    for (number, input) in job.inputs.iter().enumerate() {
        let mut descriptors = Vec::new();
        let mut block_lists = Vec::new();
        let mut tables = Vec::new();
        for (ordinal, table) in input.iter().enumerate() {
            check_blocks(table)?;
            let bytes = layout.place(&table.bytes, 8)?;
            let blocks = layout.place(&block_descriptors(&table.blocks), BLOCK_DESCRIPTOR_BYTES)?;
            descriptors.extend(table_descriptor(number, ordinal, bytes, blocks));
            block_lists.push(blocks);
            tables.push(bytes);
        }
        image
            .lists
            .push(layout.place(&descriptors, TABLE_DESCRIPTOR_BYTES)?);
        image.block_lists.push(block_lists);
        image.tables.push(tables);
    }
    // A cut block has `block_bytes` at least, or all its restart points, each with an entry of eleven bytes or more.
    let block_bytes_min = (job.settings.block_bytes as usize).clamp(16, Limits::RESTARTS * 11);
    let entries = out_bytes / block_bytes_min + 2;
    image.index = layout.place(&vec![0; entries * INDEX_ENTRY_BYTES], INDEX_ENTRY_BYTES)?;
    image.out = layout.place(&vec![0; out_bytes.next_multiple_of(8)], 128)?;
    image.memory = layout.0;
    Ok(image)
}

/// Memory as it grows.
struct Layout(Vec<u8>);

impl Layout {
    fn place(&mut self, bytes: &[u8], alignment: usize) -> Result<Region, IpError> {
        let address = self.0.len().next_multiple_of(alignment);
        if address + bytes.len() > Limits::MEMORY_BYTES {
            return Err(IpError::Refused(
                "the job needs more than a gibibyte of the drive's memory".to_owned(),
            ));
        }
        self.0.resize(address, 0);
        self.0.extend_from_slice(bytes);
        Ok(Region {
            address: address as u32,
            bytes: bytes.len() as u32,
        })
    }
}

fn check_blocks(table: &TableImage) -> Result<(), IpError> {
    if table.blocks.len() >= 1 << 24 {
        return Err(IpError::Refused(
            "a table has 2^24 blocks or more".to_owned(),
        ));
    }
    for handle in &table.blocks {
        let inside = handle
            .end()
            .is_some_and(|end| end <= table.bytes.len() as u64);
        if !inside || handle.length > Limits::BLOCK_BYTES as u64 || handle.length < 8 {
            return Err(IpError::Refused(format!(
                "a block of {} bytes at {} does not lie within its table or is longer than {} bytes",
                handle.length,
                handle.offset,
                Limits::BLOCK_BYTES
            )));
        }
    }
    Ok(())
}

fn block_descriptors(blocks: &[BlockHandle]) -> Vec<u8> {
    let mut out = Vec::with_capacity(blocks.len() * BLOCK_DESCRIPTOR_BYTES);
    for (ordinal, handle) in blocks.iter().enumerate() {
        let mut bytes = [0; BLOCK_DESCRIPTOR_BYTES];
        bytes[..4].copy_from_slice(&(handle.offset as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&(handle.length as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&(ordinal as u32).to_le_bytes());
        let crc = crc32c(&bytes);
        bytes[12..].copy_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&bytes);
    }
    out
}

fn table_descriptor(
    input: usize,
    ordinal: usize,
    table: Region,
    blocks: Region,
) -> [u8; TABLE_DESCRIPTOR_BYTES] {
    let mut bytes = [0; TABLE_DESCRIPTOR_BYTES];
    let count = blocks.bytes / BLOCK_DESCRIPTOR_BYTES as u32;
    for (at, value) in [
        (0, table.address),
        (4, table.bytes),
        (8, blocks.address),
        (12, count),
        (16, ordinal as u32),
    ] {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    bytes[20] = input as u8;
    bytes[21..24].copy_from_slice(&TABLE_MARK);
    let crc = crc32c(&bytes);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The `count` index entries at the start of `bytes`.
pub fn index_entries(bytes: &[u8], count: usize) -> Result<Vec<Block>, IpError> {
    let inconsistent = || IpError::Inconsistent("an index entry is out of its bounds".to_owned());
    bytes
        .chunks_exact(INDEX_ENTRY_BYTES)
        .take(count)
        .map(|entry| {
            let word = |at: usize| {
                entry[at..]
                    .first_chunk::<4>()
                    .copied()
                    .map(u32::from_le_bytes)
            };
            let (offset, length) = (word(0), word(4));
            let (entries, key_bytes) = (word(8), word(12));
            let (Some(offset), Some(length)) = (offset, length) else {
                return Err(inconsistent());
            };
            let (Some(entries), Some(key_bytes)) = (entries, key_bytes) else {
                return Err(inconsistent());
            };
            let user_key = entry
                .get(24..24 + key_bytes as usize)
                .ok_or_else(inconsistent)?;
            let mut last_key = user_key.to_vec();
            last_key.extend_from_slice(&entry[16..24]);
            Ok(Block {
                handle: BlockHandle {
                    offset: u64::from(offset),
                    length: u64::from(length),
                },
                entries,
                last_key,
            })
        })
        .collect()
}

/// Looks through a job for what the engine does not take, so that it is refused before anything is begun.
pub fn survey(job: &Job) -> Result<(), IpError> {
    job.tables().try_for_each(survey_table)
}

/// Looks through one table, as [`survey`] does.
pub fn survey_table(table: &TableImage) -> Result<(), IpError> {
    check_blocks(table)?;
    for handle in &table.blocks {
        let (start, end) = (
            handle.offset as usize,
            (handle.offset + handle.length) as usize,
        );
        if table.bytes[end] != 0 {
            return Err(IpError::Refused(
                "a table is compressed; the engine takes uncompressed blocks only".to_owned(),
            ));
        }
        let mut records = BlockIter::new(block::Block::new(&table.bytes[start..end])?);
        records.seek_to_first()?;
        while records.valid() {
            check_record(records.key(), records.value())?;
            records.next()?;
        }
    }
    Ok(())
}

fn check_record(internal_key: &[u8], value: &[u8]) -> Result<(), IpError> {
    let user_key = key::user_key(internal_key);
    if user_key.len() > Limits::USER_KEY_BYTES {
        return Err(IpError::Refused(format!(
            "a key has {} bytes; the engine takes keys of up to {}",
            user_key.len(),
            Limits::USER_KEY_BYTES
        )));
    }
    if value.len() > Limits::VALUE_BYTES {
        return Err(IpError::Refused(format!(
            "a value has {} bytes; the engine takes values of up to {}",
            value.len(),
            Limits::VALUE_BYTES
        )));
    }
    Ok(())
}

/// The bytes of all blocks with their trailers, as the counters count them.
pub(super) fn block_bytes(job: &Job) -> u64 {
    job.tables()
        .flat_map(|table| &table.blocks)
        .map(|handle| handle.length + TRAILER_BYTES as u64)
        .sum()
}
