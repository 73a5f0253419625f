//! LevelDB's log framing: of manifests, and of the write-ahead logs of directories LevelDB left behind.
//!
//! ```text
//! file   = block*                          blocks of 32 KiB, the last one as long as it got
//! block  = chunk* | zeros                  zeros where less than a chunk header would fit
//! chunk  = u32: masked crc32c of type and data | u16: data length | u8: type | data
//! record = FULL | FIRST MIDDLE* LAST
//! ```
//!
//! A record never depends on the one before it: a reader that meets damage goes on at the next block.
//! Type numbers are LevelDB's (`db/log_format.h`): never renumber. Types of 5 and above are never written:
//! LevelDB takes 5 for the end of the file.

mod reader;
mod search;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::{Ending, RecordReader};
pub use search::{begins_record_after, misses_sector};
pub use writer::RecordWriter;

/// The length of a block.
pub const BLOCK_BYTES: usize = 32 * 1024;

/// The length of a chunk header: checksum, length, type.
pub const HEADER_BYTES: usize = 4 + 2 + 1;

const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;
