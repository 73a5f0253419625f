//! What a table says about itself, in the meta block `waystation.properties`.
//!
//! The block is one of names and values in LevelDB's block layout, names ascending. Numbers are varints; a name
//! that is not known is skipped, a name that is missing counts as zero or empty. Names are on disk: never
//! change what one means.

use crate::block::{Block, BlockBuilder, BlockIter};
use crate::error::FormatError;
use crate::varint;

/// What a table says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    /// How many of the entries are deletions.
    pub deletions: u64,
    /// How many entries there are.
    pub entries: u64,
    /// The last internal key.
    pub largest_key: Vec<u8>,
    /// The highest sequence number of any entry.
    pub largest_sequence: u64,
    /// The highest G such that every grave with a sequence number up to G was fully applied when the table
    /// was written; zero if nothing is known.
    pub purged_through: u64,
    /// The length of all internal keys.
    pub raw_key_bytes: u64,
    /// The length of all values.
    pub raw_value_bytes: u64,
    /// The first internal key.
    pub smallest_key: Vec<u8>,
    /// The lowest sequence number of any entry.
    pub smallest_sequence: u64,
}

const LARGEST_KEY: &str = "largest-key";
const SMALLEST_KEY: &str = "smallest-key";

impl Properties {
    /// The bytes of the properties block.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = BlockBuilder::new(1);
        let mut number = Vec::new();
        let mut add_number = |block: &mut BlockBuilder, name: &str, value: u64| {
            number.clear();
            varint::put_u64(&mut number, value);
            block.add(name.as_bytes(), &number);
        };
        add_number(&mut block, "deletions", self.deletions);
        add_number(&mut block, "entries", self.entries);
        block.add(LARGEST_KEY.as_bytes(), &self.largest_key);
        add_number(&mut block, "largest-sequence", self.largest_sequence);
        add_number(&mut block, "purged-through", self.purged_through);
        add_number(&mut block, "raw-key-bytes", self.raw_key_bytes);
        add_number(&mut block, "raw-value-bytes", self.raw_value_bytes);
        block.add(SMALLEST_KEY.as_bytes(), &self.smallest_key);
        add_number(&mut block, "smallest-sequence", self.smallest_sequence);
        block.finish().to_vec()
    }

    /// Reads a properties block from its bytes, uncompressed and without trailer.
    pub fn decode(data: impl Into<Vec<u8>>) -> Result<Self, FormatError> {
        let mut properties = Self::default();
        let mut iter = BlockIter::new(Block::new(data)?);
        iter.seek_to_first()?;
        while iter.valid() {
            properties.set(iter.key(), iter.value())?;
            iter.next()?;
        }
        Ok(properties)
    }

    fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), FormatError> {
        let number = match name {
            b"deletions" => &mut self.deletions,
            b"entries" => &mut self.entries,
            b"largest-sequence" => &mut self.largest_sequence,
            b"purged-through" => &mut self.purged_through,
            b"raw-key-bytes" => &mut self.raw_key_bytes,
            b"raw-value-bytes" => &mut self.raw_value_bytes,
            b"smallest-sequence" => &mut self.smallest_sequence,
            _ => {
                if name == LARGEST_KEY.as_bytes() {
                    self.largest_key = value.to_vec();
                } else if name == SMALLEST_KEY.as_bytes() {
                    self.smallest_key = value.to_vec();
                }
                return Ok(());
            }
        };
        *number = match varint::get_u64(value) {
            Some((number, length)) if length == value.len() => number,
            _ => return Err(FormatError::malformed(0, "a property is not a number")),
        };
        Ok(())
    }
}
