//! Tables as the engine takes them: whole files to images with uncompressed blocks.

use crate::ip::reference::stored;
use crate::ip::{IpError, TableImage, image, table};
use waystation_format::checksum;
use waystation_format::table::{BlockHandle, TRAILER_BYTES, decode_block};

/// The compression type of an uncompressed block.
const PLAIN: u8 = 0;
/// That of Snappy.
const SNAPPY: u8 = 1;

/// The table in `file`, if the engine can take it.
pub(super) fn table_of(file: Vec<u8>) -> Result<TableImage, IpError> {
    let table = table::read(file)?;
    // Before keys are looked at: damage is no reason to say that keys are too long.
    let mut scratch = Vec::new();
    for handle in &table.blocks {
        decode_block(stored(&table.bytes, *handle)?, &mut scratch)?;
    }
    let kinds = table.blocks.iter().map(|handle| kind_of(&table, *handle));
    let kinds = kinds.collect::<Result<Vec<u8>, IpError>>()?;
    let table = if kinds.iter().all(|kind| *kind == PLAIN) {
        table
    } else {
        unpack(&table, &kinds)?
    };
    image::survey_table(&table)?;
    Ok(table)
}

/// How a block is compressed.
fn kind_of(table: &TableImage, handle: BlockHandle) -> Result<u8, IpError> {
    let kind = stored(&table.bytes, handle)?[handle.length as usize];
    if matches!(kind, PLAIN | SNAPPY) {
        return Ok(kind);
    }
    let reason = format!("a block has compression {kind}, and the drive unpacks Snappy only");
    Err(IpError::Refused(reason))
}

/// The same table with its blocks unpacked.
fn unpack(table: &TableImage, kinds: &[u8]) -> Result<TableImage, IpError> {
    let mut unpacked = TableImage {
        bytes: Vec::with_capacity(2 * table.bytes.len()),
        blocks: Vec::with_capacity(table.blocks.len()),
    };
    let mut scratch = Vec::new();
    for (handle, kind) in table.blocks.iter().zip(kinds) {
        let bytes = stored(&table.bytes, *handle)?;
        let offset = unpacked.bytes.len() as u64;
        if *kind == PLAIN {
            unpacked.bytes.extend_from_slice(bytes);
        } else {
            let contents = decode_block(bytes, &mut scratch)?;
            unpacked.bytes.extend_from_slice(contents);
            unpacked.bytes.push(PLAIN);
            let crc = checksum::mask(checksum::crc32c(&unpacked.bytes[offset as usize..]));
            unpacked.bytes.extend_from_slice(&crc.to_le_bytes());
        }
        let length = unpacked.bytes.len() as u64 - offset - TRAILER_BYTES as u64;
        unpacked.blocks.push(BlockHandle { offset, length });
    }
    Ok(unpacked)
}
