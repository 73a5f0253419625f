//! Rows: every run, and for each row the median run with its ratio to the rival of the same round.

use crate::stats::{median, median_index};
use serde::{Deserialize, Serialize};

/// One measurement; in a report, the median of several.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServeRow {
    pub(crate) engine: String,
    pub(crate) workload: String,
    /// The figure that asked for it: `redis`, `mqtt`, ...
    pub(crate) figure: String,
    /// `redis` or `mqtt`; nothing for rows about the process.
    pub(crate) protocol: Option<String>,
    /// What clients or process do: `SET`, `GET`, `MIX`, `PUBLISH`, `idle`, ...
    pub(crate) command: String,
    /// Commands of one client under way at once; messages that the broker sends ahead.
    pub(crate) pipeline: u32,
    pub(crate) value_bytes: u32,
    /// Connections.
    pub(crate) clients: u32,
    /// `everysec`, `always`, or what a reading survives.
    pub(crate) durability: String,
    /// What else tells the row from others.
    pub(crate) setting: String,
    pub(crate) ops_per_s: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    /// Memory of the server behind the load (10^6 bytes).
    pub(crate) rss_mb: Option<f64>,
    /// Processor time of the server.
    pub(crate) cpu_us_per_op: Option<f64>,
    /// From the start of the process until it is ready.
    pub(crate) start_ms: Option<f64>,
    /// The program without symbols (10^6 bytes).
    pub(crate) binary_mb: Option<f64>,
    /// What the server said against it.
    pub(crate) refusal: Option<String>,
    /// The number of the round in which all engines take their turn, from 1; in a report, that of the median.
    pub(crate) round: u32,
    /// How many rounds there were.
    pub(crate) runs: u32,
    pub(crate) ops_per_s_min: Option<f64>,
    pub(crate) ops_per_s_max: Option<f64>,
    /// The median of the rounds' ratios to the rival's operations per second.
    pub(crate) ops_ratio: Option<f64>,
    /// The same of the 99th percentile of latencies.
    pub(crate) p99_ratio: Option<f64>,
}

impl ServeRow {
    /// A row of `figure` with nothing measured.
    pub(crate) fn new(engine: &str, figure: &str, command: &str, round: u32) -> Self {
        Self::default().named(engine, figure, command, round)
    }

    /// The same figures under these names.
    pub(crate) fn named(self, engine: &str, figure: &str, command: &str, round: u32) -> Self {
        Self {
            engine: engine.to_owned(),
            workload: "serve".to_owned(),
            figure: figure.to_owned(),
            command: command.to_owned(),
            round,
            runs: 1,
            ..self
        }
    }

    /// Whether both are the same measurement, of whichever engine.
    fn is_like(&self, other: &Self) -> bool {
        self.figure == other.figure
            && self.command == other.command
            && self.pipeline == other.pipeline
            && self.value_bytes == other.value_bytes
            && self.setting == other.setting
    }

    /// Whether both are the same measurement of the same engine.
    fn is_again(&self, other: &Self) -> bool {
        self.engine == other.engine && self.durability == other.durability && self.is_like(other)
    }

    /// What the median is taken by.
    fn key(&self) -> f64 {
        let figures = [self.ops_per_s, self.start_ms, self.rss_mb];
        figures.into_iter().flatten().next().unwrap_or(0.0)
    }
}

/// Engines that others are compared with.
const RIVALS: [&str; 2] = ["redis", "mosquitto"];

/// The median of each row, in the order in which they first appear.
pub(crate) fn medians(runs: &[ServeRow]) -> Vec<ServeRow> {
    let mut rows: Vec<ServeRow> = Vec::new();
    for run in runs {
        if rows.iter().any(|row| row.is_again(run)) {
            continue;
        }
        let group: Vec<&ServeRow> = runs.iter().filter(|it| it.is_again(run)).collect();
        let Some(middle) = median_index(&group, |it| it.key()) else {
            continue;
        };
        let speeds = || group.iter().filter_map(|it| it.ops_per_s);
        let mut row = group[middle].clone();
        row.runs = u32::try_from(group.len()).unwrap_or(u32::MAX);
        row.ops_per_s_min = speeds().reduce(f64::min);
        row.ops_per_s_max = speeds().reduce(f64::max);
        row.ops_ratio = ratio(&group, runs, |it| it.ops_per_s);
        row.p99_ratio = ratio(&group, runs, |it| it.p99_us);
        rows.push(row);
    }
    rows
}

/// The median ratio of a figure in `group` to that of the rival in the same round.
fn ratio(
    group: &[&ServeRow],
    runs: &[ServeRow],
    figure: impl Fn(&ServeRow) -> Option<f64>,
) -> Option<f64> {
    let of_round = |it: &&ServeRow| {
        let is_rival = |other: &&ServeRow| {
            RIVALS.contains(&other.engine.as_str()) && other.round == it.round && other.is_like(it)
        };
        let rival = runs.iter().find(is_rival).and_then(&figure)?;
        Some(figure(it)? / rival)
    };
    let ratios: Vec<f64> = group.iter().filter_map(of_round).collect();
    (!ratios.is_empty()).then(|| median(&ratios))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(engine: &str, round: u32, ops_per_s: f64) -> ServeRow {
        ServeRow {
            ops_per_s: Some(ops_per_s),
            ..ServeRow::new(engine, "redis", "SET", round)
        }
    }

    #[test]
    fn a_row_is_the_median_run_with_the_median_ratio_of_its_rounds() {
        let runs = [
            run("redis", 1, 100.0),
            run("waystation", 1, 200.0),
            run("redis", 2, 10.0),
            run("waystation", 2, 30.0),
            run("redis", 3, 50.0),
            run("waystation", 3, 50.0),
        ];
        let rows = medians(&runs);
        assert_eq!(rows.len(), 2);
        assert_eq!(
            (rows[0].ops_per_s, rows[0].ops_ratio),
            (Some(50.0), Some(1.0))
        );
        assert_eq!(
            (rows[1].ops_per_s, rows[1].ops_ratio),
            (Some(50.0), Some(2.0))
        );
        assert_eq!(rows[1].ops_per_s_max, Some(200.0));
        assert_eq!(rows[1].p99_ratio, None);
    }

    #[test]
    fn a_row_without_a_rival_has_no_ratio() {
        let rows = medians(&[run("waystation", 1, 5.0)]);
        assert_eq!(rows[0].ops_ratio, None);
    }
}
