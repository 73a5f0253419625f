//! The byte formats of Waystation and LevelDB, as pure functions over byte slices.
//!
//! No I/O and no `unsafe`: this is what the engine, the tools, the tests and the fuzzers link. Every decoder
//! takes arbitrary bytes and answers with a value or a [`FormatError`]; none panics, and none allocates more
//! than a small multiple of its input. Fixed-width integers are little-endian everywhere.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod batch;
pub mod block;
pub mod bloom;
pub mod checksum;
pub mod compaction;
pub mod error;
pub mod filename;
pub mod handoff;
pub mod key;
pub mod leveldb_log;
pub mod log;
pub mod order;
pub mod table;
pub mod varint;
pub mod version_edit;

pub use error::FormatError;
