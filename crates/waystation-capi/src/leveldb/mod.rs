//! The functions of LevelDB's `leveldb/c.h`, version 1.23.
//!
//! Where Waystation differs, `include/leveldb/c.h` says so at the function; in short: filters are Waystation's own; every
//! checksum is verified always; what is set for an environment or an info log does not count, as this interface can make
//! none but the default.

mod batch;
mod callbacks;
mod database;
mod environment;
mod iterator;
mod manage;
mod options;
mod property;

pub use batch::*;
pub use callbacks::*;
pub use database::*;
pub use environment::*;
pub use iterator::*;
pub use manage::*;
pub use options::*;
