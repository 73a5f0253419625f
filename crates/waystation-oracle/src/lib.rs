//! The real LevelDB, for tests that compare.
//!
//! Debian's library is linked where it is installed (`cfg(leveldb)`, decided by build.rs); elsewhere
//! [`LevelDb::open`] fails and the tests of this crate are ignored. Debian's build carries live assertions and
//! software checksums: good for finding what LevelDB would not accept, useless for measuring.
//!
//! The tests of compatibility live in this crate's `tests/`: databases written by one engine and read by the
//! other, in both directions.

#[cfg(leveldb)]
mod ffi;
#[cfg_attr(leveldb, path = "linked.rs")]
#[cfg_attr(not(leveldb), path = "missing.rs")]
mod library;

pub use library::LevelDb;

/// How a LevelDB database is written. Defaults are small, so that little data makes many files and levels.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Fill of the memtable, in bytes (LevelDB allows no less than 64 KiB).
    pub write_buffer_bytes: usize,
    /// Length of a table, in bytes (LevelDB allows no less than 1 MiB).
    pub table_bytes: usize,
    /// Length of a block, in bytes (LevelDB allows no less than 1 KiB).
    pub block_bytes: usize,
    /// Entries between restarts within a block.
    pub restart_interval: i32,
    /// Whether blocks are compressed with Snappy.
    pub snappy: bool,
    /// Bits per key of the Bloom filters; 0 for none.
    pub filter_bits_per_key: i32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            write_buffer_bytes: 64 << 10,
            table_bytes: 1 << 20,
            block_bytes: 4096,
            restart_interval: 16,
            snappy: true,
            filter_bits_per_key: 0,
        }
    }
}

/// One operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Store a value under a key.
    Put(Vec<u8>, Vec<u8>),
    /// Delete a key.
    Delete(Vec<u8>),
}
