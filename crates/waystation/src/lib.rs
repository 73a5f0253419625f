//! Waystation: an embedded ordered key-value engine for data that arrives fast, stays a while, and leaves.

pub mod error;
pub mod storage;
mod sync;

pub use error::{Error, Result};
