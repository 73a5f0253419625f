//! The compaction engine: a job in, sorted blocks out, by hardware or by software.
//!
//! ```text
//! tables --TableImage--> Job --+--> Engine (the simulated hardware) --+--> Output: blocks, index, counters
//!                              +--> reference::run (software)        --+        |
//!                                                                        table::write -> a LevelDB table
//! ```
//!
//! A job is plain data: for each input the tables it chains, each with its bytes and where its blocks lie. What the
//! hardware sees of it (the memory image and the descriptors) is made in [`image`]. Both ways give the same
//! [`Output`], byte for byte.

mod engine;
#[cfg(verilator)]
mod ffi;
pub mod image;
mod job;
pub mod law;
pub mod reference;
pub mod table;

pub use engine::{Engine, MemoryTiming, Progress, Traffic, sizes};
pub use job::{
    Block, Counters, Failure, FailureKind, IpError, Job, Limits, Output, Settings, TableImage,
};
