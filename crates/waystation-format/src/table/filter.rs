//! The filter block: Bloom filters over ranges of file offsets.
//!
//! ```text
//! filter block = filter* | u32: offset of each filter | u32: where those offsets begin | u8: lg of the range
//! ```
//!
//! Filter i is of the keys in data blocks that begin at offsets `i << lg` and above, below `(i + 1) << lg`.
//! LevelDB writes a filter for every 2 KiB (lg 11). With lg 40 there is one filter for all: it can be asked
//! before the index, and LevelDB reads it just as well.

use crate::bloom;
use crate::error::FormatError;
use std::sync::Arc;

/// The range of offsets that makes one filter cover every table.
const WHOLE_TABLE_LG: u8 = 40;
const OFFSET_BYTES: usize = 4;

/// The filters of a table, in memory.
#[derive(Debug, Clone)]
pub struct FilterBlock {
    data: Arc<[u8]>,
    /// Where the offsets of filters begin.
    offsets: usize,
    range_lg: u8,
}

impl FilterBlock {
    /// The filter block whose bytes, uncompressed and without trailer, are `data`.
    pub fn new(data: impl Into<Arc<[u8]>>) -> Result<Self, FormatError> {
        let data = data.into();
        let end = data.len();
        let Some(&[o0, o1, o2, o3, range_lg]) = data.last_chunk::<5>() else {
            return Err(FormatError::truncated(end, "end of a filter block"));
        };
        let offsets = u32::from_le_bytes([o0, o1, o2, o3]) as usize;
        if offsets > end - 5 {
            return Err(FormatError::malformed(
                end - 5,
                "a filter block is shorter than its filters",
            ));
        }
        Ok(Self {
            data,
            offsets,
            range_lg,
        })
    }

    /// How many bytes the filters have.
    pub fn byte_len(&self) -> usize {
        self.data.len()
    }

    /// Whether one filter covers all data blocks, so that any offset gets the same answer.
    #[inline]
    pub fn is_whole_table(&self) -> bool {
        self.range_lg >= WHOLE_TABLE_LG
    }

    /// Whether the key whose [`bloom::hash`] is given may be in the data block at `block_offset`. `false` is
    /// certain.
    #[inline]
    pub fn may_contain(&self, block_offset: u64, key_hash: u32) -> bool {
        let index = block_offset
            .checked_shr(u32::from(self.range_lg))
            .unwrap_or(0) as usize;
        match self.filter(index) {
            Some(filter) => bloom::may_contain(filter, key_hash),
            None => true, // a filter that cannot be found rules nothing out
        }
    }

    /// Filter `index`. The word after the last offset says where the offsets begin, which is where the last
    /// filter ends.
    #[inline]
    fn filter(&self, index: usize) -> Option<&[u8]> {
        let count = (self.data.len() - 5 - self.offsets) / OFFSET_BYTES;
        if index >= count {
            return None;
        }
        let at = self.offsets + index * OFFSET_BYTES;
        let (start, rest) = self.data.get(at..)?.split_first_chunk::<OFFSET_BYTES>()?;
        let end = rest.first_chunk::<OFFSET_BYTES>()?;
        let range = u32::from_le_bytes(*start) as usize..u32::from_le_bytes(*end) as usize;
        self.data[..self.offsets].get(range)
    }
}

/// Appends a filter block with one filter for all the keys whose hashes are given.
pub(super) fn append_whole_table_filter(hashes: &[u32], bits_per_key: u32, out: &mut Vec<u8>) {
    let start = out.len();
    bloom::build(hashes, bits_per_key, out);
    let offsets = (out.len() - start) as u32;
    out.extend_from_slice(&0_u32.to_le_bytes());
    out.extend_from_slice(&offsets.to_le_bytes());
    out.push(WHOLE_TABLE_LG);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// LevelDB's layout for several ranges of offsets (`table/filter_block_test.cc`, with Bloom filters).
    #[test]
    fn filters_are_found_by_offset() {
        let mut data = Vec::new();
        let mut ends = Vec::new();
        for keys in [&["foo", "bar", "box"][..], &["box"], &[], &["hello"]] {
            ends.push(data.len() as u32);
            let hashes: Vec<u32> = keys.iter().map(|k| bloom::hash(k.as_bytes())).collect();
            if !keys.is_empty() {
                bloom::build(&hashes, 10, &mut data);
            }
        }
        let offsets = data.len() as u32;
        for end in ends {
            data.extend_from_slice(&end.to_le_bytes());
        }
        data.extend_from_slice(&offsets.to_le_bytes());
        data.push(11);
        let filters = FilterBlock::new(data).unwrap();
        assert!(!filters.is_whole_table());
        let ask = |offset, key: &str| filters.may_contain(offset, bloom::hash(key.as_bytes()));
        for (offset, key, expected) in [
            (0, "foo", true),
            (2000, "bar", true),
            (100, "hello", false),
            (2048, "box", true),
            (3100, "foo", false),
            (4100, "box", false), // an empty filter: no key
            (6200, "hello", true),
            (9000, "hello", true), // no filter: rules nothing out
            (9000, "other", true),
        ] {
            assert_eq!(ask(offset, key), expected, "{key} at {offset}");
        }
    }

    #[test]
    fn one_filter_covers_every_offset() {
        let hashes = [bloom::hash(b"foo"), bloom::hash(b"bar")];
        let mut data = Vec::new();
        append_whole_table_filter(&hashes, 10, &mut data);
        let filter = FilterBlock::new(data).unwrap();
        assert!(filter.is_whole_table());
        for offset in [0, 4096, (1 << 40) - 1] {
            assert!(filter.may_contain(offset, hashes[0]));
            assert!(!filter.may_contain(offset, bloom::hash(b"other")));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(
            bytes in proptest::collection::vec(prop_oneof![Just(0_u8), 0..12_u8, any::<u8>()], 0..60),
            offset: u64, key_hash: u32,
        ) {
            if let Ok(filters) = FilterBlock::new(bytes) {
                for offset in [0, offset, offset % 8192, offset >> 24] {
                    let _ = filters.may_contain(offset, key_hash);
                }
            }
        }
    }
}
