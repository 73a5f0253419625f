//! Waystation: an embedded ordered key-value engine for data that arrives fast, stays a while, and leaves.

pub mod error;
pub mod inspect;
#[allow(
    dead_code,
    unused_imports,
    reason = "the db room, which uses the log, is being built"
)]
mod log;
#[allow(
    dead_code,
    unused_imports,
    reason = "the db room, which uses the tree, is being built"
)]
mod lsm;
pub mod storage;
mod sync;

pub use error::{Error, Result};
pub use log::LogStats;
pub use lsm::tree::{CheckReport, LevelStats, Problem, TreeStats, WorkStats};
