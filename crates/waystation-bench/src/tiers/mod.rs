//! A slow device and a fast one, and engines that use both: how the seconds of a run depend on what lies on the fast one.
//!
//! ```text
//!   engine in a group with little memory
//!      |  database                      |  fast directory
//!   ext4 on a loop device,            ext4 on zram
//!   throttled by the kernel
//! ```
//!
//! The slow device is real: every read, write and write-back passes the kernel's throttle, or takes the time of an emulated
//! device ([`emulated`]). What a policy keeps on the fast device is limited to a share of the data.

mod cache;
mod emulated;
mod fixed;
mod peak;
mod rig;
mod rows;

pub(crate) use cache::LruCache;
pub(crate) use emulated::serve;
pub(crate) use fixed::FixedTier;
pub(crate) use peak::PeakWatch;
pub(crate) use rig::{Backing, Rig, RigSettings, SlowDevice, Throttle};
pub(crate) use rows::{PlacementRun, predictions, rows, table};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What lies on the fast device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Policy {
    /// Nothing
    None,
    /// What the engine chooses: Waystation's fast directory
    Own,
    /// The same, and the log may lie there, too
    Durable,
    /// The log, while it fits (RocksDB: `wal_dir`)
    Journal,
    /// Tables as they are made, while they fit
    Tables,
    /// The tables of level 0, while they fit (RocksDB: those of the upper levels, `db_paths`)
    Levels,
    /// Every block that was read, the least recently used one going first
    Cache,
}

impl Policy {
    /// Its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Own => "own",
            Self::Durable => "durable",
            Self::Journal => "journal",
            Self::Tables => "tables",
            Self::Levels => "levels",
            Self::Cache => "cache",
        }
    }
}

/// How an engine uses the two devices.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TierSettings {
    pub(crate) policy: Policy,
    /// The directory on the fast device, and how much may lie there.
    pub(crate) directory: PathBuf,
    pub(crate) capacity_bytes: u64,
    /// Whether the fast device has no more room than that.
    pub(crate) is_confined: bool,
    /// Memory for blocks.
    pub(crate) cache_bytes: usize,
}
