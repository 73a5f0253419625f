//! The native trace format: columns, compressed, with an index at the end.
//!
//! ```text
//! "WSTRACE1"                                            8 bytes
//! block*:  u32le rows | u32le stored bytes | u32le crc32c of the stored bytes | stored bytes (zstd)
//! end:     u32le 0    | u32le stored bytes | u32le crc32c                     | stored bytes (zstd of JSON TraceInfo)
//! u64le offset of "end" | "WSTRCEND"                    16 bytes
//! ```
//! A block holds up to [`BLOCK_ROWS`] rows, one column after the other, all little-endian base-128 integers
//! ("varints"; signed ones zigzag) except the three byte columns:
//!
//! | column | content |
//! |---|---|
//! | issue | difference to the row before (to 0 for a block's first row), nanoseconds |
//! | latency | completion - issue + 1, or 0 when there is no completion |
//! | op, flags, area | one byte each |
//! | offset | zigzag difference to the end of the request before *in the same area* of the block |
//! | length | bytes |
//! | pid | zigzag difference to the row before |
//! | comm | index into the command names |
//!
//! Rows are in order of issue. Each block decodes by itself, so a reader holds one block whatever the size of the
//! trace. A file without its end was not finished, and is refused as such.

mod column;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::Reader;
pub use writer::Writer;

use crate::error::Result;
use crate::event::{Request, TraceInfo};
use std::path::Path;

/// Rows of a full block.
pub const BLOCK_ROWS: usize = 65_536;

const MAGIC: &[u8; 8] = b"WSTRACE1";
const END_MAGIC: &[u8; 8] = b"WSTRCEND";
const TRAILER_BYTES: u64 = 16;

/// A whole trace in memory.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// What is known about it.
    pub info: TraceInfo,
    /// Its requests in order of issue.
    pub requests: Vec<Request>,
}

/// Reads a whole trace into memory.
pub fn load(path: &Path) -> Result<Trace> {
    let mut reader = Reader::open(path)?;
    let mut requests = Vec::with_capacity(
        usize::try_from(reader.info().requests)
            .unwrap_or(0)
            .min(1 << 24),
    );
    let mut block = Vec::new();
    while reader.next_block(&mut block)? {
        requests.extend_from_slice(&block);
    }
    Ok(Trace {
        info: reader.into_info(),
        requests,
    })
}
