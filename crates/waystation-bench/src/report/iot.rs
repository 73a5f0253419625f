//! The rows of `iot`: as those of every benchmark, and what devices add.

use super::RawFigures;
use crate::engines::EngineKind;
use crate::stats;
use crate::workload::{IotFigures, IotLoad};
use serde::Serialize;
use std::fmt::Write;

/// How inserts come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum IotWorkload {
    /// Each when the one before is acknowledged.
    #[serde(rename = "iot")]
    Closed,
    /// At a rate.
    #[serde(rename = "iot-open")]
    Open,
}

impl IotWorkload {
    const ALL: [Self; 2] = [Self::Closed, Self::Open];

    /// That of a load.
    pub(crate) fn of(load: &IotLoad) -> Self {
        match load.offered_per_s {
            None => Self::Closed,
            Some(_) => Self::Open,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Closed => "iot",
            Self::Open => "iot-open",
        }
    }
}

/// One engine under the load, once.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct IotRun {
    /// The engine and its configuration.
    pub(crate) engine: EngineKind,
    /// How inserts come.
    pub(crate) workload: IotWorkload,
    /// The length of every value.
    pub(crate) value_bytes: usize,
    /// How long a device stays before it settles, in seconds.
    pub(crate) residency_s: f64,
    /// The flags.
    pub(crate) flags: IotLoad,
    /// What was seen.
    #[serde(flatten)]
    pub(crate) figures: IotFigures,
    /// What the device gave.
    #[serde(flatten)]
    pub(crate) raw: RawFigures,
    /// The bytes of keys and values per second over the device's direct writes.
    pub(crate) raw_share: Option<f64>,
    /// Whether the run counts for Waystation: its log's segments were used again. Nothing for the others.
    pub(crate) recycled: Option<bool>,
    /// The number of the round in which all engines take their turn, from 1.
    pub(crate) round: u32,
    /// The number of the attempt, from 1: a run is repeated while the device is not steady.
    pub(crate) attempt: u32,
    /// Whether a later attempt took its place.
    pub(crate) discarded: bool,
    /// Whether the device was not steady in the last attempt either.
    pub(crate) unstable: bool,
    /// The engine's version.
    pub(crate) engine_version: &'static str,
    /// The engine's settings.
    pub(crate) engine_settings: String,
    /// How long the device was measured before and after.
    pub(crate) raw_seconds: f64,
    /// In blocks of this size.
    pub(crate) raw_block_bytes: usize,
    /// So many in flight.
    pub(crate) raw_depth: u32,
}

/// The median run, and how far the others were from it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct IotRow {
    /// The median run by operations per second.
    #[serde(flatten)]
    pub(crate) median: IotRun,
    /// How many runs there were.
    pub(crate) runs: usize,
    /// The slowest of them.
    pub(crate) ops_per_s_min: f64,
    /// The fastest of them.
    pub(crate) ops_per_s_max: f64,
}

/// One row for each workload and engine, in the order of `engines`.
pub(crate) fn iot_rows(engines: &[EngineKind], runs: &[IotRun]) -> Vec<IotRow> {
    let row = |engine: EngineKind, workload: IotWorkload| {
        let counted =
            |run: &&IotRun| (run.engine, run.workload) == (engine, workload) && !run.discarded;
        let group: Vec<&IotRun> = runs.iter().filter(counted).collect();
        let speed = |run: &&IotRun| run.figures.common.ops_per_s;
        let median = stats::median_index(&group, speed)?;
        Some(IotRow {
            median: group[median].clone(),
            runs: group.len(),
            ops_per_s_min: group.iter().map(speed).fold(f64::INFINITY, f64::min),
            ops_per_s_max: group.iter().map(speed).fold(0.0, f64::max),
        })
    };
    let of_workload = |workload| {
        engines
            .iter()
            .filter_map(move |engine| row(*engine, workload))
    };
    IotWorkload::ALL.into_iter().flat_map(of_workload).collect()
}

/// The rows as a table to read.
pub(crate) fn iot_table(rows: &[IotRow]) -> String {
    let mut text = format!(
        "{:<9} {:<16} {:>9} {:>7} {:>6} {:>8} {:>9} {:>9} {:>6} {:>7} {:>6} {:>7} {:>9} {:>10} {:>8} {:>10} {:>10} {:>7} {:>7} {:>6} {:>7}\n",
        "workload",
        "engine",
        "ops/s",
        "MB/s",
        "of raw",
        "p99 us",
        "p99.9 us",
        "stall ms",
        "WA",
        "settled",
        "tree",
        "idx B",
        "departed",
        "dep p99 us",
        "queries",
        "rows/query",
        "qu p99 us",
        "rss MB",
        "cpu s",
        "us/op",
        "read/st"
    );
    let or_dash = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    for row in rows {
        let run = &row.median;
        let (figures, common) = (&run.figures, &run.figures.common);
        let levels = &figures.levels;
        let _ = writeln!(
            text,
            "{:<9} {:<16} {:>9.0} {:>7.1} {:>6} {:>8.1} {:>9.1} {:>9.1} {:>6} {:>7} {:>6} {:>7} {:>9} {:>10.1} {:>8} {:>10.1} {:>10.1} {:>7.0} {:>7.1} {:>6.2} {:>7}{}",
            run.workload.name(),
            run.engine.name(),
            common.ops_per_s,
            common.mb_per_s,
            or_dash(run.raw_share, 2),
            common.p99_us,
            common.p999_us,
            figures.longest_stall_ms,
            or_dash(common.write_amplification, 2),
            or_dash(levels.settled_share, 3),
            or_dash(levels.tree_share, 3),
            or_dash(levels.index_bytes_per_record, 1),
            figures.departures,
            figures.departure_p99_us,
            figures.queries,
            figures.query_rows as f64 / figures.queries.max(1) as f64,
            figures.query_p99_us,
            common.peak_rss_mb,
            common.cpu_s,
            figures.cpu_us_per_op,
            or_dash(levels.read_per_settled_byte, 2),
            remarks(run),
        );
    }
    text
}

/// What is to be known of a run that does not count without it.
fn remarks(run: &IotRun) -> String {
    let remarks = [
        (run.unstable, "  device not steady"),
        (run.recycled == Some(false), "  log not recycled: too short"),
        (
            run.figures.behind_residencies > 1.0,
            "  deletions more than a residency late",
        ),
    ];
    let held = remarks.iter().filter(|(holds, _)| *holds);
    held.map(|(_, remark)| *remark).collect()
}
