//! Waystation: an embedded ordered key-value engine for data that arrives fast, stays a while, and leaves.
//!
//! [`Db`] is an open database: it puts, gets and deletes keys, and gives ranges, cursors and snapshots. [`WriteBatch`]
//! holds writes that become visible together, [`Durability`] says what a write survives, [`Options`] how a database is
//! opened. [`Db::devices`] leads to the calls about devices, [`Error`] names the decision that a caller takes.
//! [`backup`], [`repair`] and [`inspect`] work on directories.
//!
//! All types are for any number of threads, unless they say otherwise. The engine starts threads of its own, has no
//! asynchronous runtime and opens no sockets.
//!
//! With the feature `test-storage`, `storage` has a simulated machine for tests, which crashes, tears and lies.

#![cfg_attr(
    any(loom, shuttle),
    allow(
        dead_code,
        reason = "helpers of tests that run without a model checker"
    )
)]
#![deny(missing_docs)]

/// The code of the guides and of README.md, compiled by the tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/start.md")]
    mod start {}
    #[doc = include_str!("../../../docs/guides/embed.md")]
    mod embed {}
    #[doc = include_str!("../../../docs/guides/devices.md")]
    mod devices {}
    #[doc = include_str!("../../../docs/guides/deletes.md")]
    mod deletes {}
}

mod background;
pub mod backup;
mod cemetery;
mod db;
mod devices;
mod directory;
pub mod error;
pub mod inspect;
mod log;
mod lsm;
mod options;
#[doc(hidden)]
pub mod parsers;
mod placement;
mod read_state;
mod recovery;
pub mod repair;
mod retirement;
mod sst;
pub mod storage;
mod sync;

/// Merges in another process: what the engine needs of a way to a worker, and what a worker runs.
pub mod offload {
    pub use crate::lsm::compaction::offload::{
        EngineError, EngineTask, JobControl, Link, LinkError, LocalReason, MergeEngine, Merged,
        Offload, OffloadSettings, OffloadStats, Session, Verification, Worker,
    };
    #[cfg(any(all(test, not(any(loom, shuttle))), feature = "test-storage"))]
    pub use crate::lsm::tree::check_engine;
}

pub use db::{
    AreaStats, BatchMark, Db, DbIterator, DeviceHandle, DeviceStats, Entries, Entry, Exported,
    GraveStats, IterOptions, Snapshot, Stats, TableInfo, WriteBatch,
};
pub use db::{Digest, EngineId, Export, Receipt, Refusal, Ticket};
pub use devices::{DeviceInfo, DeviceLevel};
pub use error::{DeviceError, Error, Result};
pub use log::LogStats;
pub use lsm::tree::{CheckReport, LevelStats, Problem, TreeStats, WorkStats};
pub use options::{
    BATCH_BYTES_MAX, Compression, DatabaseMemory, DeviceOptions, Durability, Extractor,
    KEY_BYTES_MAX, MemoryStats, Options, PutOptions, ResourceStats, Resources, UnknownExtractor,
    VALUE_BYTES_MAX,
};
pub use placement::{
    AreaPlacement, FastTier, LogPlacement, PlacementDecision, PlacementDivision,
    PlacementPrediction, PlacementStats, TablePlacement,
};
pub use waystation_format::order::{Comparator, Order};
