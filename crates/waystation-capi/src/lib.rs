//! Waystation for C, and for every language that calls C.
//!
//! - [`leveldb`]: the 68 functions of LevelDB's `leveldb/c.h`, by their names, with their ownership and their
//!   error rules; the header is `include/leveldb/c.h`
//! - [`waystation`]: what LevelDB does not have, on the same handles; the header is `include/waystation/c.h`
//!
//! What holds for all of them:
//!
//! - A pointer is what the header says: a live handle from its `create` or `open`, bytes with their length, or null
//!   where that is allowed. Handles may be used by several threads at once where LevelDB's may: databases,
//!   snapshots, options that nobody changes; not iterators, nor batches.
//! - What is handed out as bytes or text comes from `malloc` and goes by `leveldb_free` or `free`.
//! - Errors are texts that begin with LevelDB's words for the kind of error (the `status` module).
//! - No panic crosses into C: one that reaches the border is a bug of ours and aborts the process.

#![expect(
    unsafe_code,
    reason = "C hands over pointers; every use is argued where it stands"
)]
#![expect(
    non_camel_case_types,
    reason = "the names are those of the C interface"
)]
#![expect(
    clippy::missing_safety_doc,
    reason = "what must hold of each pointer is said once, above and in the headers"
)]

mod memory;
mod status;

pub mod leveldb;
pub mod waystation;
