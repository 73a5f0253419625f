//! How the payload of a block is compressed.
//!
//! Hostile lengths: a payload that claims to become longer than its compression could make it, or longer
//! than any block is, is refused before memory is taken for it.

use super::snappy;
use crate::error::FormatError;
use std::fmt;

/// How the payload of a block is compressed. On disk: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    None = 0,
    /// Snappy.
    #[default]
    Snappy = 1,
    /// Zstandard. LevelDB up to 1.23 cannot read it.
    Zstd = 2,
}

/// The level of Zstandard that LevelDB has by default.
const ZSTD_LEVEL: i32 = 1;
/// No block is longer; nothing that LevelDB or we write comes near.
const MAX_BLOCK_BYTES: usize = 1 << 30;
/// The most bytes one byte of Snappy can stand for, rounded up: three bytes copy at most 64.
const SNAPPY_MAX_RATIO: usize = 32;

impl Compression {
    /// The compression whose number is `byte`.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::None),
            1 => Some(Self::Snappy),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Compresses blocks, keeping its tables from one to the next.
pub(super) struct Compressor {
    kind: Compression,
    snappy: snap::raw::Encoder,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Compressor {
    pub(super) fn new(kind: Compression) -> Self {
        let zstd = match kind {
            Compression::Zstd => zstd::bulk::Compressor::new(ZSTD_LEVEL).ok(),
            Compression::None | Compression::Snappy => None,
        };
        Self {
            kind,
            snappy: snap::raw::Encoder::new(),
            zstd,
        }
    }

    /// Appends the payload for `raw`, compressed if that saves at least an eighth of it.
    pub(super) fn append_payload(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Compression {
        let start = out.len();
        if let Some(length) = self.compress(raw, out)
            && length < raw.len() - raw.len() / 8
        {
            out.truncate(start + length);
            return self.kind;
        }
        out.truncate(start);
        out.extend_from_slice(raw);
        Compression::None
    }

    /// Appends `raw` compressed, then perhaps zeros; the compressed length, if there is any.
    fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let bound = match self.kind {
            Compression::None => return None,
            Compression::Snappy => snap::raw::max_compress_len(raw.len()),
            Compression::Zstd => zstd::zstd_safe::compress_bound(raw.len()),
        };
        let start = out.len();
        out.resize(start + bound, 0);
        match self.kind {
            Compression::Zstd => self
                .zstd
                .as_mut()?
                .compress_to_buffer(raw, &mut out[start..])
                .ok(),
            _ => self.snappy.compress(raw, &mut out[start..]).ok(),
        }
    }
}

/// Makes `out` the bytes that `payload` stands for.
#[inline]
pub(super) fn decompress(
    kind: Compression,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), FormatError> {
    match kind {
        Compression::None => {
            out.clear();
            out.extend_from_slice(payload);
            Ok(())
        }
        Compression::Snappy => decompress_snappy(payload, out),
        Compression::Zstd => decompress_zstd(payload, out),
    }
}

fn decompress_snappy(payload: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
    let damaged = FormatError::malformed(0, "a block is not well-formed Snappy");
    let Some((length, start)) = snappy::output_length(payload) else {
        return Err(damaged);
    };
    if length / SNAPPY_MAX_RATIO > payload.len() || length > MAX_BLOCK_BYTES {
        return Err(damaged);
    }
    snappy::decode(&payload[start..], length, out).ok_or(damaged)
}

fn decompress_zstd(payload: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
    let damaged = FormatError::malformed(0, "a block is not well-formed Zstandard");
    let length = match zstd::zstd_safe::get_frame_content_size(payload) {
        Ok(Some(length)) if length <= MAX_BLOCK_BYTES as u64 => length as usize,
        _ => return Err(damaged),
    };
    out.clear();
    if out.try_reserve(length).is_err() {
        return Err(damaged);
    }
    match zstd::bulk::Decompressor::new()
        .and_then(|mut zstd| zstd.decompress_to_buffer(payload, out))
    {
        Ok(written) if written == length => Ok(()),
        _ => Err(damaged),
    }
}
