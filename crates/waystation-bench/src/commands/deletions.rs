//! `db` with scenarios of deletions: engines take turns, and each row is the median of its runs.

use super::progress_bar;
use crate::cli::DbArgs;
use crate::engines::{EngineKind, ExecutorSettings, OpenSettings};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::place::Place;
use crate::protocol::{Command, Reply};
use crate::report::Report;
use crate::session::Worker;
use crate::stats;
use crate::workload::{Benchmark, DeletionLoad, DeletionRow, Scenario};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::Write as _;

/// One row of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Ran {
    pub(super) engine: EngineKind,
    engine_version: Cow<'static, str>,
    engine_settings: Cow<'static, str>,
    pub(super) scenario: Scenario,
    pub(super) value_bytes: usize,
    threads: u32,
    round: u32,
    #[serde(flatten)]
    pub(super) row: DeletionRow,
}

/// A row of P2's sequence on the first engine against another one: operations per second, pair by pair.
pub(super) struct Ratio {
    pub(super) engine: EngineKind,
    pub(super) baseline: EngineKind,
    pub(super) value_bytes: usize,
    pub(super) row: String,
    pub(super) median: f64,
    /// Its 95 % interval.
    pub(super) interval: (f64, f64),
    pub(super) pairs: usize,
}

/// The scenario that `benchmark` names, if it is one.
fn scenario(benchmark: Benchmark) -> Option<Scenario> {
    match benchmark {
        Benchmark::P2 => Some(Scenario::P2),
        Benchmark::MassDelete => Some(Scenario::MassDelete),
        Benchmark::Churn => Some(Scenario::Churn),
        _ => None,
    }
}

/// Runs the scenarios and prints the rows.
pub(super) fn deletions(args: &DbArgs) -> Result<()> {
    let engines = args.common.engines()?;
    let scenarios: Vec<_> = (args.load.benchmarks.iter().copied())
        .filter_map(scenario)
        .collect();
    if scenarios.len() < args.load.benchmarks.len() {
        let message = "p2, massdelete and churn make databases of their own: name no other benchmarks with them";
        return Err(Error::Refused(message.to_owned()));
    }
    let place = Place::new(&args.common.data_dir)?;
    let machine = Machine::here(&place);
    let per_scenario = args.load.value_bytes.len() * args.runs as usize * engines.len();
    let bar = progress_bar((scenarios.len() * per_scenario) as u64);
    let mut runs = Vec::new();
    for scenario in scenarios {
        for &value_bytes in &args.load.value_bytes {
            for round in 1..=args.runs {
                let first = (round as usize - 1) % engines.len();
                for &engine in engines[first..].iter().chain(&engines[..first]) {
                    bar.set_message(format!("{engine} {scenario:?}"));
                    let load = DeletionLoad {
                        scenario,
                        value_bytes,
                        threads: args.load.threads.first().copied().unwrap_or(1),
                        p2_row_seconds: args.p2_row_seconds,
                    };
                    runs.extend(run(&place, engine, load, round)?);
                    bar.inc(1);
                }
            }
        }
    }
    bar.finish_and_clear();
    let report = Report {
        machine,
        rows: medians(&runs),
        runs,
    };
    let json = args.common.json.as_deref();
    if json.is_none_or(|path| path.as_os_str() != "-") {
        let summary = report.machine.summary();
        let ratios = ratio_table(&ratios(&report.runs));
        println!("{summary}\n{}{ratios}", table(&report.rows));
    }
    json.map_or(Ok(()), |path| report.write_json(path))
}

fn run(place: &Place, engine: EngineKind, load: DeletionLoad, round: u32) -> Result<Vec<Ran>> {
    let settings = OpenSettings {
        engine,
        directory: place.path(engine.name()),
        memtable_bytes: None,
        executor: ExecutorSettings::default(),
        residency: None,
        tiers: None,
    };
    place.settle()?;
    let mut worker = Worker::start(&settings)?;
    let rows = match worker.ask(&Command::Deletions(load))? {
        Reply::Deleted(rows) => rows,
        other => return Err(worker.nonsense(&other)),
    };
    worker.quit()?;
    place.clear(engine.name())?;
    let ran = |row| Ran {
        engine,
        engine_version: engine.version().into(),
        engine_settings: engine.settings().into(),
        scenario: load.scenario,
        value_bytes: load.value_bytes,
        threads: load.threads,
        round,
        row,
    };
    Ok(rows.into_iter().map(ran).collect())
}

/// Of the runs of each row the median, by the middle latency.
fn medians(runs: &[Ran]) -> Vec<Ran> {
    let key = |run: &Ran| (run.engine, run.value_bytes, run.row.row.clone());
    let mut keys = Vec::new();
    for run in runs {
        if !keys.contains(&key(run)) {
            keys.push(key(run));
        }
    }
    let median = |wanted| {
        let group: Vec<&Ran> = runs.iter().filter(|run| key(run) == wanted).collect();
        let at = stats::median_index(&group, |run| run.row.ops_per_s)?;
        Some(group[at].clone())
    };
    keys.into_iter().filter_map(median).collect()
}

/// P2's rows of the first engine against each other one, pairs being runs of one round.
pub(super) fn ratios(runs: &[Ran]) -> Vec<Ratio> {
    let p2: Vec<&Ran> = (runs.iter())
        .filter(|run| run.scenario == Scenario::P2)
        .collect();
    let Some(engine) = p2.first().map(|run| run.engine) else {
        return Vec::new();
    };
    let mut found: Vec<(EngineKind, &Ran, Vec<f64>)> = Vec::new();
    for run in p2.iter().filter(|run| run.engine != engine) {
        let is_same = |a: &Ran, b: &Ran| {
            (a.value_bytes, a.threads, &a.row.row) == (b.value_bytes, b.threads, &b.row.row)
        };
        let mut own = p2.iter().filter(|it| it.engine == engine);
        let Some(own) = own.find(|it| is_same(it, run) && it.round == run.round) else {
            continue;
        };
        let ratio = own.row.ops_per_s / run.row.ops_per_s;
        let known =
            |it: &&mut (EngineKind, &Ran, Vec<f64>)| it.0 == run.engine && is_same(it.1, run);
        match found.iter_mut().find(known) {
            Some((_, _, all)) => all.push(ratio),
            None => found.push((run.engine, run, vec![ratio])),
        }
    }
    let ratio = |(baseline, run, all): (EngineKind, &Ran, Vec<f64>)| Ratio {
        engine,
        baseline,
        value_bytes: run.value_bytes,
        row: run.row.row.clone(),
        median: stats::median(&all),
        interval: stats::median_interval(&all),
        pairs: all.len(),
    };
    found.into_iter().map(ratio).collect()
}

fn ratio_table(ratios: &[Ratio]) -> String {
    let mut text = String::new();
    for ratio in ratios {
        let (low, high) = ratio.interval;
        let _ = writeln!(
            text,
            "{:<12} {} B: {} over {}: {:.2} ({low:.2} to {high:.2}, {} pairs)",
            ratio.row, ratio.value_bytes, ratio.engine, ratio.baseline, ratio.median, ratio.pairs
        );
    }
    text
}

fn table(rows: &[Ran]) -> String {
    let mut text = format!(
        "{:<24} {:<16} {:>6} {:>10} {:>12} {:>10} {:>10} {:>12} {:>8} {:>9}\n",
        "row",
        "engine",
        "value",
        "ops",
        "ops/s",
        "p50 us",
        "p99 us",
        "max us",
        "disk MB",
        "returned"
    );
    let mut sorted: Vec<&Ran> = rows.iter().collect();
    sorted.sort_by(|a, b| (a.value_bytes, &a.row.row).cmp(&(b.value_bytes, &b.row.row)));
    for run in sorted {
        let row = &run.row;
        let returned = row
            .returned
            .map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0));
        let _ = writeln!(
            text,
            "{:<24} {:<16} {:>6} {:>10} {:>12.0} {:>10.2} {:>10.2} {:>12.1} {:>8.1} {returned:>9}",
            row.row,
            run.engine.name(),
            run.value_bytes,
            row.ops,
            row.ops_per_s,
            row.p50_us,
            row.p99_us,
            row.max_us,
            row.disk_mb,
        );
    }
    text
}
