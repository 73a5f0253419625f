//! A block as it is stored: payload, compression, checksum.

use super::compression::{Compression, Compressor, decompress};
use crate::checksum;
use crate::error::FormatError;

/// The length of what follows the payload of a stored block: compression and checksum.
pub const TRAILER_BYTES: usize = 1 + 4;

/// Appends `raw` as a stored block; the length of its payload.
pub(super) fn append_block(compressor: &mut Compressor, raw: &[u8], out: &mut Vec<u8>) -> usize {
    let start = out.len();
    let compression = compressor.append_payload(raw, out);
    let length = out.len() - start;
    out.push(compression as u8);
    let crc = checksum::crc32c(&out[start..]);
    out.extend_from_slice(&checksum::mask(crc).to_le_bytes());
    length
}

/// A block as it is stored, whose checksum is right.
#[derive(Debug, Clone, Copy)]
pub struct StoredBlock<'a> {
    compression: Compression,
    payload: &'a [u8],
}

impl<'a> StoredBlock<'a> {
    /// Verifies `stored`: a payload and its trailer.
    #[inline]
    pub fn check(stored: &'a [u8]) -> Result<Self, FormatError> {
        let Some((covered, crc)) = stored.split_last_chunk::<4>() else {
            return Err(FormatError::truncated(stored.len(), "trailer of a block"));
        };
        if checksum::mask(checksum::crc32c(covered)) != u32::from_le_bytes(*crc) {
            return Err(FormatError::checksum(covered.len(), "a block of a table"));
        }
        let Some((&compression, payload)) = covered.split_last() else {
            return Err(FormatError::truncated(stored.len(), "trailer of a block"));
        };
        match Compression::from_byte(compression) {
            Some(compression) => Ok(Self {
                compression,
                payload,
            }),
            None => Err(FormatError::unsupported(
                payload.len(),
                "the compression of a block is 0, 1 or 2",
            )),
        }
    }

    /// Whether the payload is the block itself.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.compression == Compression::None
    }

    /// Makes `out` the bytes of the block.
    #[inline]
    pub fn decode(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        decompress(self.compression, self.payload, out)
    }
}

/// The bytes of a block that is stored as `stored`, trailer included; they lie in `stored` itself, or
/// decompressed in `scratch`. The checksum is verified first.
pub fn decode_block<'a>(
    stored: &'a [u8],
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8], FormatError> {
    let block = StoredBlock::check(stored)?;
    if block.is_plain() {
        return Ok(block.payload);
    }
    block.decode(scratch)?;
    Ok(scratch)
}
