//! Blocks: sorted entries whose keys share their beginnings, as LevelDB lays them out.
//!
//! ```text
//! block = entry* | u32: offset of each restart point | u32: number of restart points
//! entry = varint: shared | varint: unshared | varint: value length | unshared key bytes | value
//! ```
//!
//! A key is the first `shared` bytes of the key before it, then the unshared ones. At a restart point `shared`
//! is zero, so a search halves over the restart points and then walks at most one interval.

mod builder;
mod entry;
mod find;
mod iter;
#[cfg(test)]
mod tests;

pub use builder::BlockBuilder;
pub use iter::BlockIter;

use crate::error::FormatError;
use std::sync::Arc;

const RESTART_BYTES: usize = 4;

/// A block in memory. Cheap to clone: clones share the bytes.
#[derive(Debug, Clone)]
pub struct Block(Arc<Contents>);

#[derive(Debug)]
struct Contents {
    bytes: Vec<u8>,
    /// Where the entries end and the restart points begin.
    restarts: u32,
}

impl Block {
    /// The block whose bytes, uncompressed and without trailer, are `bytes`.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, FormatError> {
        let bytes = bytes.into();
        let end = bytes.len();
        if u32::try_from(end).is_err() {
            return Err(FormatError::malformed(0, "a block is shorter than 4 GiB"));
        }
        let Some((before, count)) = bytes.split_last_chunk::<RESTART_BYTES>() else {
            return Err(FormatError::truncated(
                end,
                "a block ends with the number of its restart points",
            ));
        };
        let count = u32::from_le_bytes(*count) as usize;
        if count > before.len() / RESTART_BYTES {
            return Err(FormatError::malformed(
                before.len(),
                "a block is shorter than its restart points",
            ));
        }
        let restarts = (before.len() - count * RESTART_BYTES) as u32;
        Ok(Self(Arc::new(Contents { bytes, restarts })))
    }

    /// The memory of the block for the next one, if nobody else holds it.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        Arc::try_unwrap(self.0).ok().map(|contents| contents.bytes)
    }

    /// The bytes of the block.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// How many bytes the block has.
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.0.bytes.len()
    }

    /// Where the entries end.
    #[inline]
    fn end(&self) -> u32 {
        self.0.restarts
    }

    #[inline]
    fn entries(&self) -> &[u8] {
        &self.0.bytes[..self.0.restarts as usize]
    }

    /// The key at restart point `index`; `None` if it is not whole, or not there.
    #[inline]
    fn restart_key(&self, index: usize) -> Option<&[u8]> {
        let header = entry::header(self.entries(), self.restart(index))?;
        (header.shared == 0)
            .then(|| &self.0.bytes[header.key_start as usize..header.value_start as usize])
    }

    #[inline]
    fn restart_count(&self) -> usize {
        (self.0.bytes.len() - RESTART_BYTES - self.0.restarts as usize) / RESTART_BYTES
    }

    /// The offset of restart point `index`, which is below the count.
    #[inline]
    fn restart(&self, index: usize) -> u32 {
        let at = self.0.restarts as usize + index * RESTART_BYTES;
        self.0.bytes[at..]
            .first_chunk()
            .map_or(u32::MAX, |bytes| u32::from_le_bytes(*bytes))
    }
}

/// How many bytes `a` and `b` have in common at their beginnings.
#[inline]
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (a_words, a_tail) = a.as_chunks::<8>();
    let (b_words, b_tail) = b.as_chunks::<8>();
    for (i, (a_word, b_word)) in a_words.iter().zip(b_words).enumerate() {
        let difference = u64::from_le_bytes(*a_word) ^ u64::from_le_bytes(*b_word);
        if difference != 0 {
            return i * 8 + difference.trailing_zeros() as usize / 8;
        }
    }
    let words = a_words.len().min(b_words.len());
    let (a_rest, b_rest) = match (a_words.len() > words, b_words.len() > words) {
        (true, _) => (&a_words[words][..], b_tail),
        (_, true) => (a_tail, &b_words[words][..]),
        _ => (a_tail, b_tail),
    };
    words * 8
        + a_rest
            .iter()
            .zip(b_rest)
            .take_while(|(x, y)| x == y)
            .count()
}
