//! Tables to jobs and outputs to tables.
//!
//! The engine knows data blocks only. Index, filter and footer are a few hundred bytes per megabyte and stay with
//! software: read by [`read`], written by [`write()`].

use super::job::{IpError, Output, TableImage};
use super::reference::stored;
use waystation_format::block::{self, BlockBuilder, BlockIter};
use waystation_format::checksum;
use waystation_format::key::{shorten_separator, shorten_successor};
use waystation_format::table::{BlockHandle, FOOTER_BYTES, Footer, decode_block};

/// The table in `bytes`: where its data blocks lie, from its index.
pub fn read(bytes: Vec<u8>) -> Result<TableImage, IpError> {
    let start = bytes.len().saturating_sub(FOOTER_BYTES);
    let footer = Footer::decode(&bytes[start..])?;
    let mut scratch = Vec::new();
    let index = decode_block(stored(&bytes, footer.index)?, &mut scratch)?;
    let mut entries = BlockIter::new(block::Block::new(index)?);
    let mut blocks = Vec::new();
    entries.seek_to_first()?;
    while entries.valid() {
        blocks.push(BlockHandle::decode(entries.value())?);
        entries.next()?;
    }
    Ok(TableImage { bytes, blocks })
}

/// The table whose data blocks are an engine's output.
pub fn write(output: &Output) -> Result<Vec<u8>, IpError> {
    let mut table = output.bytes.clone();
    let mut index = BlockBuilder::new(1);
    let mut value = Vec::new();
    for (number, block) in output.blocks.iter().enumerate() {
        let mut key = block.last_key.clone();
        match output.blocks.get(number + 1) {
            Some(next) => {
                let first = first_key(&output.bytes, next.handle)?;
                shorten_separator(&mut key, &first);
            }
            None => shorten_successor(&mut key),
        }
        value.clear();
        block.handle.encode(&mut value);
        index.add(&key, &value);
    }
    let metaindex = append(&mut table, BlockBuilder::new(1).finish());
    let index = append(&mut table, index.finish());
    Footer { metaindex, index }.encode(&mut table);
    Ok(table)
}

/// The first key of a block of the output.
pub(super) fn first_key(bytes: &[u8], handle: BlockHandle) -> Result<Vec<u8>, IpError> {
    let mut scratch = Vec::new();
    let contents = decode_block(stored(bytes, handle)?, &mut scratch)?;
    let mut entries = BlockIter::new(block::Block::new(contents)?);
    entries.seek_to_first()?;
    Ok(entries.key().to_vec())
}

fn append(table: &mut Vec<u8>, contents: &[u8]) -> BlockHandle {
    let offset = table.len() as u64;
    table.extend_from_slice(contents);
    table.push(0);
    let crc = checksum::mask(checksum::crc32c(&table[offset as usize..]));
    table.extend_from_slice(&crc.to_le_bytes());
    BlockHandle {
        offset,
        length: contents.len() as u64,
    }
}
