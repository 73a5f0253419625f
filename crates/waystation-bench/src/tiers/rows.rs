//! What comes out: seconds of each load under each policy and capacity, and the ratio to the best fixed one.

use super::Policy;
use crate::engines::EngineKind;
use crate::stats::median_index;
use serde::Serialize;
use std::fmt::Write;
use waystation::{AreaPlacement, PlacementStats};

/// One load under one policy, once.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PlacementRun {
    pub(crate) engine: EngineKind,
    pub(crate) workload: &'static str,
    /// `ingest`, a workload of YCSB, `delete`, `graves`, or `phases`: all of them, one after the other; or `iot`: devices.
    pub(crate) load: &'static str,
    /// The part of the data that may lie on the fast device.
    pub(crate) capacity_share: f64,
    pub(crate) policy: Policy,
    pub(crate) seconds: f64,
    pub(crate) ops_per_s: f64,
    pub(crate) p99_us: f64,
    /// The most that the engine had on the fast device, which may be more than the policy gives it.
    pub(crate) fast_peak_mb: f64,
    /// The part of the processors' time that the hypervisor took away while the load ran.
    pub(crate) stolen: f64,
    /// Seconds until the load's rate came to nine tenths of that of its last quarter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) adapted_s: Option<f64>,
    pub(crate) round: u32,
    /// What the engine said of its own choice after the last load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) placement: Option<PlacementStats>,
}

/// The median run of a load, a policy and a capacity.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PlacementRow {
    #[serde(flatten)]
    pub(crate) median: PlacementRun,
    pub(crate) runs: usize,
    /// The seconds of the engine's best other policy, nothing on the fast device included, over these: above 1 it is faster.
    pub(crate) ratio_to_best_static: Option<f64>,
}

fn is_same(one: &PlacementRun, other: &PlacementRun) -> bool {
    let key = |run: &PlacementRun| (run.engine, run.load, run.policy);
    key(one) == key(other) && (one.capacity_share - other.capacity_share).abs() < 1e-9
}

/// One row for each combination that was run.
pub(crate) fn rows(runs: &[PlacementRun]) -> Vec<PlacementRow> {
    let firsts = runs
        .iter()
        .enumerate()
        .filter(|(at, run)| !runs[..*at].iter().any(|before| is_same(before, run)));
    let medians: Vec<(PlacementRun, usize)> = firsts
        .filter_map(|(_, first)| {
            let group: Vec<_> = runs.iter().filter(|run| is_same(run, first)).collect();
            let median = median_index(&group, |run| run.seconds)?;
            Some((group[median].clone(), group.len()))
        })
        .collect();
    let row = |(median, runs): &(PlacementRun, usize)| PlacementRow {
        ratio_to_best_static: best_other(&medians, median).map(|best| best / median.seconds),
        median: median.clone(),
        runs: *runs,
    };
    medians.iter().map(row).collect()
}

/// The seconds of the best policy but Waystation's own, of the same engine, load and capacity.
fn best_other(medians: &[(PlacementRun, usize)], run: &PlacementRun) -> Option<f64> {
    let others = medians.iter().map(|(it, _)| it).filter(|it| {
        let is_of_capacity =
            it.policy == Policy::None || (it.capacity_share - run.capacity_share).abs() < 1e-9;
        (it.engine, it.load) == (run.engine, run.load)
            && is_of_capacity
            && !matches!(it.policy, Policy::Own | Policy::Durable)
    });
    others.map(|it| it.seconds).min_by(f64::total_cmp)
}

/// The rows for people.
pub(crate) fn table(rows: &[PlacementRow]) -> String {
    let mut text = format!(
        "{:<12} {:<8} {:<8} {:>9} {:>9} {:>10} {:>10} {:>8} {:>8} {:>9} {:>14}\n",
        "engine",
        "load",
        "policy",
        "capacity",
        "seconds",
        "ops/s",
        "p99 us",
        "peak MB",
        "stolen",
        "adapted s",
        "to best fixed"
    );
    for row in rows {
        let run = &row.median;
        let _ = writeln!(
            text,
            "{:<12} {:<8} {:<8} {:>7.0} % {:>9.2} {:>10.0} {:>10.0} {:>8.1} {:>6.0} % {:>9} {:>14}",
            run.engine.name(),
            run.load,
            run.policy.name(),
            run.capacity_share * 100.0,
            run.seconds,
            run.ops_per_s,
            run.p99_us,
            run.fast_peak_mb,
            run.stolen * 100.0,
            run.adapted_s
                .map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.0}")),
            row.ratio_to_best_static
                .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
        );
    }
    text
}

/// Which share of reads the fast device served, and which share the engine predicts for other capacities.
pub(crate) fn predictions(runs: &[PlacementRun]) -> String {
    let mut text = String::new();
    for run in runs {
        let Some(stats) = &run.placement else {
            continue;
        };
        let sum = |of: fn(&AreaPlacement) -> u64| stats.areas.iter().map(of).sum::<u64>();
        let (fast, slow) = (sum(|it| it.fast_reads), sum(|it| it.slow_reads));
        let _ = write!(
            text,
            "{}, {}, with {:.0} % of the data: {:.1} % of reads from the fast device;",
            run.engine.name(),
            run.policy.name(),
            run.capacity_share * 100.0,
            100.0 * fast as f64 / (fast + slow).max(1) as f64
        );
        for prediction in &stats.predictions {
            let part = prediction.capacity_bytes as f64 / stats.capacity_bytes as f64;
            let share = prediction.share * 100.0;
            let _ = write!(text, " {share:.1} % predicted with {part} of the capacity");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(policy: Policy, capacity_share: f64, seconds: f64) -> PlacementRun {
        PlacementRun {
            engine: EngineKind::Waystation,
            workload: "placement",
            load: "c",
            capacity_share,
            policy,
            seconds,
            ops_per_s: 1.0,
            p99_us: 1.0,
            fast_peak_mb: 0.0,
            stolen: 0.0,
            adapted_s: None,
            round: 1,
            placement: None,
        }
    }

    #[test]
    fn the_ratio_is_to_the_best_fixed_policy_of_that_capacity() {
        let runs = [
            run(Policy::None, 0.0, 40.0),
            run(Policy::Cache, 0.05, 30.0),
            run(Policy::Cache, 0.2, 10.0),
            run(Policy::Own, 0.05, 20.0),
            run(Policy::Own, 0.05, 22.0),
            run(Policy::Own, 0.05, 90.0),
        ];
        let rows = rows(&runs);
        assert_eq!(rows.len(), 4);
        let own = rows.last().expect("a row");
        assert_eq!((own.runs, own.ratio_to_best_static), (3, Some(30.0 / 22.0)));
    }
}
