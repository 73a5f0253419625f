//! Tables: sorted, immutable files of blocks, as LevelDB lays them out.
//!
//! ```text
//! table   = data block* | filter block? | properties block | metaindex block | index block | footer
//! block   = payload | u8: compression | u32: masked crc32c of payload and compression
//! footer  = handle of metaindex | handle of index | zeros to 40 bytes | u64: magic
//! handle  = varint: offset | varint: payload length
//! index   = block: key >= all keys of a data block and < all of the next -> its handle
//! metaindex = block: name -> handle
//! ```
//!
//! LevelDB looks for `filter.<policy>` in the metaindex and ignores every other name; ours is
//! `waystation.properties` ([`Properties`]). Its filter block can hold one filter for the whole table
//! ([`FilterBlock`]), which is what [`TableWriter`] writes.

mod compression;
mod filter;
mod properties;
mod snappy;
mod stored;
#[cfg(test)]
mod tests;
mod writer;

pub use compression::Compression;
pub use filter::FilterBlock;
pub use properties::Properties;
pub use stored::{StoredBlock, TRAILER_BYTES, decode_block};
pub use writer::{TableOptions, TableWriter};

use crate::error::FormatError;
use crate::varint::{MAX_U64_BYTES, Reader, put_u64};

/// The length of the footer.
pub const FOOTER_BYTES: usize = HANDLES_BYTES + 8;

/// The metaindex entry of the filter block.
pub const FILTER_NAME: &[u8] = b"filter.leveldb.BuiltinBloomFilter2";
/// The metaindex entry of the properties block.
pub const PROPERTIES_NAME: &[u8] = b"waystation.properties";

const HANDLES_BYTES: usize = 2 * 2 * MAX_U64_BYTES;
const MAGIC: u64 = 0xdb47_7524_8b80_fb57;

/// Where a block lies in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockHandle {
    /// The offset of its first byte.
    pub offset: u64,
    /// The length of its payload; the trailer of [`TRAILER_BYTES`] follows.
    pub length: u64,
}

impl BlockHandle {
    /// Appends the bytes of this handle.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.offset);
        put_u64(out, self.length);
    }

    /// Reads the handle at the start of `bytes`. LevelDB allows anything to follow it.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        Self::read(&mut Reader::new(bytes))
    }

    #[inline]
    fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let offset = reader.var_u64("offset of a block")?;
        let length = reader.var_u64("length of a block")?;
        Ok(Self { offset, length })
    }

    /// Where the block with its trailer ends; `None` past all numbers.
    #[inline]
    pub fn end(&self) -> Option<u64> {
        self.offset
            .checked_add(self.length)?
            .checked_add(TRAILER_BYTES as u64)
    }
}

/// The end of a table: where to begin reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// The metaindex block.
    pub metaindex: BlockHandle,
    /// The index block.
    pub index: BlockHandle,
}

impl Footer {
    /// Appends the [`FOOTER_BYTES`] bytes of this footer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        self.metaindex.encode(out);
        self.index.encode(out);
        out.resize(start + HANDLES_BYTES, 0);
        out.extend_from_slice(&MAGIC.to_le_bytes());
    }

    /// Reads the footer, the last [`FOOTER_BYTES`] bytes of a table.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut magic = Reader::new(bytes);
        magic.take(HANDLES_BYTES, "footer of a table")?;
        if magic.fixed_u64("magic number of a table")? != MAGIC {
            return Err(FormatError::malformed(
                HANDLES_BYTES,
                "a table ends with its magic number",
            ));
        }
        let mut handles = Reader::new(&bytes[..HANDLES_BYTES]);
        let metaindex = BlockHandle::read(&mut handles)?;
        let index = BlockHandle::read(&mut handles)?;
        Ok(Self { metaindex, index })
    }
}
