//! A model of the drive: how long a load takes when compactions run on the host, on an external card, or in the drive.
//!
//! ```text
//!            puts            tables                jobs
//!   writer ------> memtable -------> shape (LSM) ------> job, on the host, the card or the drive
//!                     |                                   |  pages
//!                     +----- log, flush ----> link -> firmware -> FTL -> channels -> dies
//!                                               drive: memory, engine, compaction manager
//! ```
//!
//! Discrete events in whole nanoseconds ([`calendar`]); no clock, no chance, no records: tables are counts of pages and
//! what a merge leaves is computed. The parts: [`flash`] (queues of two classes, channels, dies), [`ftl`] (page map,
//! cleaning, trim), [`drive`] (link, firmware, memory), [`staging`] (which tables are merged first), [`job`] (loading,
//! merging, writing back), [`shape`] (LevelDB's tree), [`bench`] (the load). The engine's speed is the cycle law of
//! [`crate::ip::law`]. What is assumed, what is fitted and what is predicted: `docs/design/drive-model.md`.

pub mod bench;
mod calendar;
pub mod config;
pub mod drive;
mod flash;
mod ftl;
mod job;
mod layout;
pub mod report;
pub mod shape;
pub mod single;
pub mod staging;
pub mod study;

pub use bench::{Compactions, Outcome, run};
pub use calendar::Nanos;
pub use config::{Load, Machine, ModelError};
pub use flash::Class;
pub use job::Place;
