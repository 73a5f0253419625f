//! Tables to jobs and outputs to tables.
//!
//! The engine knows data blocks only, and checks their checksums. Index, filter, properties and footer are a few
//! hundred bytes per megabyte and stay with software: read and checked by [`read`], written by [`write()`].

use super::job::{IpError, Output, TableImage};
use super::reference::stored;
use waystation_format::FormatError;
use waystation_format::block::{self, BlockBuilder, BlockIter};
use waystation_format::checksum;
use waystation_format::key::{shorten_separator, shorten_successor};
use waystation_format::table::{
    BlockHandle, FILTER_NAME, FOOTER_BYTES, FilterBlock, Footer, PROPERTIES_NAME, Properties,
    decode_block,
};

/// The table in `bytes`: where its data blocks lie, from its index. Fails if anything but the data blocks is damaged,
/// which the engine never sees: the footer, the index, the metaindex, the filter, the properties.
pub fn read(bytes: Vec<u8>) -> Result<TableImage, IpError> {
    let start = bytes.len().saturating_sub(FOOTER_BYTES);
    let footer = Footer::decode(&bytes[start..])?;
    let mut whole = Vec::with_capacity(FOOTER_BYTES);
    footer.encode(&mut whole);
    // No checksum covers the footer. It has one spelling, and the blocks that it points to have checksums.
    if whole != bytes[start..] {
        return Err(damaged("footer", "it holds more than two handles"));
    }
    let index = side_block(&bytes, footer.index, "index")?;
    let handles = handles(&index).map_err(|error| damaged("index", error))?;
    let metaindex = side_block(&bytes, footer.metaindex, "metaindex")?;
    check_named(&bytes, &metaindex)?;
    Ok(TableImage {
        blocks: handles.into_iter().map(|(_, handle)| handle).collect(),
        bytes,
    })
}

/// A block that is not of data, whole and uncompressed; `name` is for messages.
fn side_block(bytes: &[u8], handle: BlockHandle, name: &str) -> Result<Vec<u8>, IpError> {
    let stored = stored(bytes, handle).map_err(|error| damaged(name, error))?;
    let mut scratch = Vec::new();
    let contents = decode_block(stored, &mut scratch).map_err(|error| damaged(name, error))?;
    Ok(contents.to_vec())
}

/// The entries of a block whose values are handles.
fn handles(contents: &[u8]) -> Result<Vec<(Vec<u8>, BlockHandle)>, FormatError> {
    let mut entries = BlockIter::new(block::Block::new(contents)?);
    let mut found = Vec::new();
    entries.seek_to_first()?;
    while entries.valid() {
        found.push((
            entries.key().to_vec(),
            BlockHandle::decode(entries.value())?,
        ));
        entries.next()?;
    }
    Ok(found)
}

/// Checks the filter and the properties that a metaindex names. Others' blocks are theirs to check.
fn check_named(bytes: &[u8], metaindex: &[u8]) -> Result<(), IpError> {
    for (name, handle) in handles(metaindex).map_err(|error| damaged("metaindex", error))? {
        if name == FILTER_NAME {
            let contents = side_block(bytes, handle, "filter")?;
            FilterBlock::new(contents).map_err(|error| damaged("filter", error))?;
        } else if name == PROPERTIES_NAME {
            let contents = side_block(bytes, handle, "properties")?;
            Properties::decode(contents).map_err(|error| damaged("properties", error))?;
        }
    }
    Ok(())
}

fn damaged(part: &str, reason: impl std::fmt::Display) -> IpError {
    IpError::Damaged(format!("its {part} is damaged: {reason}"))
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
