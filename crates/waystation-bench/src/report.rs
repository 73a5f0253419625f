//! What comes out: every run, and for each row the median run.
//!
//! A row is one (engine, workload, threads, value length). All its figures are those of one run that happened,
//! the median by operations per second, and not medians taken one by one: they belong together.

use crate::engines::EngineKind;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::protocol::Figures;
use crate::stats;
use crate::workload::{Benchmark, COMPRESSION_RATIO, KEY_BYTES};
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::path::Path;

mod iot;

pub(crate) use iot::{IotRun, IotWorkload, iot_rows, iot_table};

/// What the device gave around a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[expect(
    clippy::struct_field_names,
    reason = "the names are those of the report, where they stand among others"
)]
pub(crate) struct RawFigures {
    /// Direct writes as the log does them, in units of 10^6 bytes per second: the mean of before and after.
    pub(crate) raw_mb_per_s: Option<f64>,
    /// 4 KB direct writes, each synced, per second, of one thread: the mean of before and after.
    pub(crate) raw_syncs_per_s: Option<f64>,
    /// After over before.
    pub(crate) raw_drift: Option<f64>,
    /// What the engine made of it: its bytes per second over the device's, or its synced puts per second over
    /// the device's syncs per second and thread.
    pub(crate) raw_ratio: Option<f64>,
}

/// One benchmark on one engine, once.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Run {
    /// The engine and its configuration.
    pub(crate) engine: EngineKind,
    /// The benchmark.
    pub(crate) workload: Benchmark,
    /// Threads, each doing all of it.
    pub(crate) threads: u32,
    /// The length of every value.
    pub(crate) value_bytes: usize,
    /// What was seen.
    #[serde(flatten)]
    pub(crate) figures: Figures,
    /// What the device gave.
    #[serde(flatten)]
    pub(crate) raw: RawFigures,
    /// The number of the round in which all engines take their turn, from 1.
    pub(crate) round: u32,
    /// The number of the attempt, from 1: a run is repeated while the device is not steady.
    pub(crate) attempt: u32,
    /// Whether a later attempt took its place.
    pub(crate) discarded: bool,
    /// Whether the device was not steady in the last attempt either.
    pub(crate) unstable: bool,
    /// The flags it ran under.
    #[serde(flatten)]
    pub(crate) flags: Flags,
}

/// The flags a run was done under, and the constants that belong to them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Flags {
    /// The size of the key space.
    pub(crate) num: u32,
    /// The length of every key.
    pub(crate) key_bytes: usize,
    /// What a value compresses to.
    pub(crate) compression_ratio: f64,
    /// Whether every operation was synced.
    pub(crate) sync: bool,
    /// The engine's version.
    pub(crate) engine_version: &'static str,
    /// The engine's settings.
    pub(crate) engine_settings: &'static str,
    /// How long the device was measured before and after each write.
    pub(crate) raw_seconds: f64,
    /// In blocks of this size.
    pub(crate) raw_block_bytes: usize,
    /// So many in flight.
    pub(crate) raw_depth: u32,
}

impl Flags {
    /// The flags of one run.
    pub(crate) fn new(
        engine: EngineKind,
        workload: Benchmark,
        num: u32,
        raw: &crate::raw::RawSettings,
    ) -> Self {
        Self {
            num,
            key_bytes: KEY_BYTES,
            compression_ratio: COMPRESSION_RATIO,
            sync: workload == Benchmark::FillSync,
            engine_version: engine.version(),
            engine_settings: engine.settings(),
            raw_seconds: raw.span.as_secs_f64(),
            raw_block_bytes: raw.block_bytes,
            raw_depth: raw.depth,
        }
    }
}

/// The median run, and how far the others were from it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// The median run by operations per second.
    #[serde(flatten)]
    pub(crate) median: Run,
    /// How many runs there were.
    pub(crate) runs: u32,
    /// The slowest of them.
    pub(crate) ops_per_s_min: f64,
    /// The fastest of them.
    pub(crate) ops_per_s_max: f64,
}

/// Everything: the machine, the rows, the runs.
#[derive(Debug, Serialize)]
pub(crate) struct Report<R, S> {
    /// What it was measured on.
    pub(crate) machine: Machine,
    /// The results.
    pub(crate) rows: Vec<R>,
    /// What they were made from.
    pub(crate) runs: Vec<S>,
}

impl<R: Serialize, S: Serialize> Report<R, S> {
    /// Writes it as JSON; `-` is the standard output.
    pub(crate) fn write_json(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|error| Error::Refused(format!("the report is no JSON: {error}")))?;
        text.push('\n');
        if path.as_os_str() == "-" {
            print!("{text}");
            return Ok(());
        }
        fs::write(path, text).map_err(|source| Error::io("write the report to", path, source))
    }
}

/// The rows of `runs`, in the order in which they first appear.
pub(crate) fn rows(runs: &[Run]) -> Vec<Row> {
    let key = |run: &Run| (run.engine, run.workload, run.threads, run.value_bytes);
    let mut keys = Vec::new();
    for run in runs {
        if !keys.contains(&key(run)) {
            keys.push(key(run));
        }
    }
    let row = |wanted| {
        let counted = |run: &&Run| key(run) == wanted && !run.discarded;
        let group: Vec<&Run> = runs.iter().filter(counted).collect();
        let speed = |run: &&Run| run.figures.ops_per_s;
        let median = stats::median_index(&group, speed)?;
        Some(Row {
            median: group[median].clone(),
            runs: u32::try_from(group.len()).unwrap_or(u32::MAX),
            ops_per_s_min: group.iter().map(speed).fold(f64::INFINITY, f64::min),
            ops_per_s_max: group.iter().map(speed).fold(0.0, f64::max),
        })
    };
    keys.into_iter().filter_map(row).collect()
}

/// The rows as a table to read, grouped so that engines stand below each other.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by_key(|row| {
        let run = &row.median;
        (run.value_bytes, run.threads, run.workload, run.engine)
    });
    let mut text = format!(
        "{:<12} {:<14} {:>3} {:>6} {:>11} {:>8} {:>9} {:>9} {:>10} {:>10} {:>5} {:>8} {:>7} {:>8} {:>6}\n",
        "workload",
        "engine",
        "thr",
        "value",
        "ops/s",
        "MB/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "max us",
        "WA",
        "cpu s",
        "rss MB",
        "disk MB",
        "of raw"
    );
    for row in sorted {
        let run = &row.median;
        let figures = &run.figures;
        let or_dash = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
        };
        let _ = writeln!(
            text,
            "{:<12} {:<14} {:>3} {:>6} {:>11.0} {:>8.1} {:>9.2} {:>9.2} {:>10.2} {:>10.1} {:>5} {:>8.2} {:>7.0} {:>8.1} {:>6}{}",
            run.workload.name(),
            run.engine.name(),
            run.threads,
            run.value_bytes,
            figures.ops_per_s,
            figures.mb_per_s,
            figures.p50_us,
            figures.p99_us,
            figures.p999_us,
            figures.max_us,
            or_dash(figures.write_amplification),
            figures.cpu_s,
            figures.peak_rss_mb,
            figures.disk_mb,
            or_dash(run.raw.raw_ratio),
            if run.unstable {
                "  device not steady"
            } else {
                ""
            },
        );
    }
    text
}

#[cfg(test)]
mod tests;
