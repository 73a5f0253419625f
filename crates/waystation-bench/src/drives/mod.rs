//! A document database over a host and its drives, after the experiment of Yoo et al. (2024): filters without an index
//! over large documents, with drives whose processor is about a third of the host's.
//!
//! ```text
//!   core 0   server: shards of the host, merge, HTTP            control group: 0.85 of the core
//!   core 1   agent 1 | agent 2 | agent 3                        control groups: 1/2.9 of that each
//! ```
//!
//! The quotas are *calibrated* before anything counts: the same scan goes on host and drives at once, on databases of
//! the same documents, and the drives' quotas are moved until each takes 2.8 to 3.0 times the host's time. A machine on
//! which that is not reached measures nothing.

mod http;
mod process;
mod rig;
mod rows;

pub(crate) use http::Server;
pub(crate) use process::{cpu_seconds, peak_rss_mb};
pub(crate) use rig::{Rig, RigSettings, program_beside};
pub(crate) use rows::{DrivesRow, Figure, Filter, Plan, Size, measure, plans, single_plans};
