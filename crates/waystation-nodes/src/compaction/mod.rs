//! Compactions in another process: the worker that listens, and an engine's way to it.
//!
//! ```text
//!   engine                                         worker
//!   Options::offload ── WorkerAddress ═══════════ CompactionWorker ── jobs, so many at once
//!                          TCP or Unix socket, one job on each connection
//! ```
//!
//! A connection begins with the greeting that hosts and drives have, under another name, and carries one job: requests
//! and answers of [`waystation_format::compaction`]. When it ends, so does the job. A worker works in the directories that
//! it was allowed, and there in the directories of jobs alone; see [`waystation::offload`]. Tables of other directories are
//! sent to its spool, and their results back.

mod address;
mod link;
mod queue;
mod spool;
mod worker;

pub use address::Address;
pub use link::WorkerAddress;
pub use worker::{CompactionWorker, WorkerSettings, WorkerStopper};
