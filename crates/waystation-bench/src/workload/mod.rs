//! What is done to an engine: LevelDB's `db_bench`, benchmark by benchmark.
//!
//! The semantics are those of `benchmarks/db_bench.cc` in LevelDB 1.23: 16-byte keys in decimal, values that
//! compress to half, one operation per call, and every thread running the full number of operations over the
//! same keys. Three things differ, each because the figures are read differently here:
//! - `fillsync` fills a database of its own, so that the reads after it see the filled one;
//! - a read starts only when the writes before it have been digested (no flush or compaction is due);
//! - `fillsync` does at least 1,000 operations per thread, for num/1000 of a small num measures nothing.

mod crew;
mod deletions;
mod departure;
mod generator;
mod iot;
mod list;
mod offload;
mod pace;
mod pauses;
mod random;
mod run;
mod scattered;
mod ycsb;

pub(crate) use deletions::{DeletionLoad, DeletionRow, Scenario, run_deletions};
pub(crate) use departure::{DepartureFigures, DepartureLoad, run_departure};
pub(crate) use generator::{COMPRESSION_RATIO, KEY_BYTES, Key, Values};
pub(crate) use iot::{
    IOT_VALUE_BYTES, IotFigures, IotLevels, IotLoad, IotMode, IotValues, run_iot,
};
pub(crate) use list::{Benchmark, check_order, replay_before};
#[cfg(test)]
pub(crate) use offload::between;
pub(crate) use offload::{OffloadFigures, OffloadLoad, run_offload};
pub(crate) use pauses::{PauseFigures, PauseLoad, run_pauses};
pub(crate) use random::Random;
pub(crate) use run::{Load, Outcome, run};
pub(crate) use scattered::{count_missing, fill_scattered};
pub(crate) use ycsb::{
    YCSB_RECORD_BYTES, YcsbFigures, YcsbLoad, YcsbPhase, YcsbWorkload, run_ycsb,
};
