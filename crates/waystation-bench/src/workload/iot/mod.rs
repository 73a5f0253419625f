//! TPCx-IoT with devices that come, settle or leave.
//!
//! Keys and values are told by [`reading`], the records of one device by [`stay`], queries by [`queries`]; who writes
//! next, and who goes, by [`schedule`]; how fast, by [`pace`](super::pace). [`run`] does it with as many threads as asked for, each
//! with devices of its own.

mod queries;
mod reading;
mod run;
mod schedule;
mod stay;

use crate::engines::Levels;
use crate::protocol::Figures;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub(crate) use reading::VALUE_BYTES as IOT_VALUE_BYTES;
pub(crate) use run::run_iot;

/// A run lasts this many residencies.
pub(crate) const RESIDENCIES: u32 = 5;

/// Whose keys, sensors and queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum IotMode {
    /// The kit's: 160 sensors, timestamps of 100 ms per insert, a pair of queries with every 20,000 inserts
    Kit,
    /// The specification's: 200 sensors in turn, timestamps by the clock, five queries with every 10,000 inserts
    Spec,
}

/// What the values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum IotValues {
    /// 1,000 bytes that do not compress
    Random,
    /// The kit's: a group of some 65 bytes again and again
    Kit,
}

/// What is done, and for how long.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct IotLoad {
    /// Whose keys, sensors and queries.
    pub(crate) mode: IotMode,
    /// What the values are.
    pub(crate) values: IotValues,
    /// Devices that are there at any time.
    pub(crate) devices: u32,
    /// Client threads.
    pub(crate) threads: u32,
    /// For how long.
    pub(crate) seconds: u32,
    /// The share of the devices that leave.
    pub(crate) departing: f64,
    /// Whether an insert is acknowledged only when it survives a power cut.
    pub(crate) sync: bool,
    /// Inserts that are offered in a second, by all threads; nothing if each comes when the one before is acknowledged.
    pub(crate) offered_per_s: Option<f64>,
    /// Records of one device that are put together; an earlier build knows one at a time.
    #[serde(default = "one")]
    pub(crate) batch: u32,
}

fn one() -> u32 {
    1
}

impl IotLoad {
    /// How long a device stays before it settles.
    pub(crate) fn residency(&self) -> std::time::Duration {
        std::time::Duration::from_secs(u64::from(self.seconds)) / RESIDENCIES
    }
}

/// Where the records were, as the engine says; nothing from an engine without devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct IotLevels {
    /// Of the inserts, those that went from the upper level to the tree, until idle.
    pub(crate) settled_share: Option<f64>,
    /// Of the inserts, those that went to the tree at once; what is in a memtable still does not count.
    pub(crate) tree_share: Option<f64>,
    /// Memory of all indexes at the end of the load, over the records in the upper level.
    pub(crate) index_bytes_per_record: Option<f64>,
    /// Bytes of the log that were freed for use again, in units of 10^6.
    pub(crate) freed_log_mb: Option<f64>,
    /// What was written to the log until idle, in units of 10^6 bytes.
    pub(crate) log_written_mb: Option<f64>,
    /// What was read from the log until idle, nearly all of it to settle, over the bytes that settled.
    #[serde(default)]
    pub(crate) read_per_settled_byte: Option<f64>,
    /// What flushes and settling wrote to tables until idle.
    pub(crate) loaded_mb: Option<f64>,
    /// What compactions wrote to tables until idle.
    pub(crate) merged_mb: Option<f64>,
}

impl IotLevels {
    /// The shares of `inserts` of `bytes`, from what the engine said at the end of the load and when idle.
    pub(crate) fn of(
        at_end: Option<Levels>,
        idle: Option<Levels>,
        inserts: u64,
        bytes: u64,
    ) -> Self {
        let Some((at_end, idle)) = at_end.zip(idle) else {
            return Self::default();
        };
        let settled_bytes = idle.settled_records as f64 * bytes as f64 / inserts.max(1) as f64;
        let share = |records: u64| Some(records as f64 / inserts.max(1) as f64);
        Self {
            settled_share: share(idle.settled_records),
            tree_share: share(idle.tree_records.saturating_sub(idle.settled_records)),
            index_bytes_per_record: Some(
                at_end.index_bytes as f64 / at_end.upper_records.max(1) as f64,
            ),
            freed_log_mb: Some(at_end.freed_log_bytes as f64 / 1e6),
            read_per_settled_byte: (settled_bytes > 0.0)
                .then(|| idle.log_read_bytes as f64 / settled_bytes),
            log_written_mb: Some(idle.log_written_bytes as f64 / 1e6),
            loaded_mb: Some(idle.loaded_bytes as f64 / 1e6),
            merged_mb: Some(idle.merged_bytes as f64 / 1e6),
        }
    }
}

/// The figures of one run, as they stand in the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct IotFigures {
    /// Those of every benchmark; the operations are the acknowledged inserts.
    #[serde(flatten)]
    pub(crate) common: Figures,
    /// Where the records were.
    #[serde(flatten)]
    pub(crate) levels: IotLevels,
    /// Records of one device that were put together.
    #[serde(default = "one")]
    pub(crate) batch: u32,
    /// Processor time of the process during the load, over the inserts.
    #[serde(default)]
    pub(crate) cpu_us_per_op: f64,
    /// The longest insert.
    pub(crate) longest_stall_ms: f64,
    /// Devices that were deleted.
    pub(crate) departures: u64,
    /// Records they had.
    pub(crate) departed_records: u64,
    /// The deletion of a device that 99 % of them do not exceed.
    pub(crate) departure_p99_us: f64,
    /// The longest deletion of a device.
    pub(crate) departure_max_us: f64,
    /// How far the client was behind with a deletion at most, in residencies.
    pub(crate) behind_residencies: f64,
    /// Queries: of one window in the kit's mode, of two by the specification.
    pub(crate) queries: u64,
    /// Readings that they found.
    pub(crate) query_rows: u64,
    /// The query that half of them do not exceed.
    pub(crate) query_p50_us: f64,
    /// The query that 99 % of them do not exceed.
    pub(crate) query_p99_us: f64,
    /// What was read from storage during the load, in units of 10^6 bytes: for queries, settling and compactions.
    pub(crate) read_mb: f64,
}
