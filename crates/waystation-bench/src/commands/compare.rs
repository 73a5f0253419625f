//! `compare`: is the first engine faster than each other one, and how sure is that?
//!
//! The engines take turns, forwards and backwards alternately, so that what changes slowly (the device, its
//! temperature, the neighbours) falls on all of them. Each turn gives one ratio for each row; their median and
//! its 95 % interval decide.

use super::progress_bar;
use super::series::{Series, Which, shapes};
use crate::cli::CompareArgs;
use crate::engines::EngineKind;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::place::Place;
use crate::report::{Report, Run};
use crate::stats::{Verdict, median, median_interval};
use crate::workload::Benchmark;
use serde::Serialize;
use std::fmt::Write;

/// The first engine against another, in one benchmark.
#[derive(Debug, Serialize)]
struct Comparison {
    engine: EngineKind,
    baseline: EngineKind,
    workload: Benchmark,
    threads: u32,
    value_bytes: usize,
    num: u32,
    /// Operations per second of the engine over those of the baseline, pair by pair.
    ratios: Vec<f64>,
    ratio_median: f64,
    ratio_low: f64,
    ratio_high: f64,
    floor: f64,
    verdict: Verdict,
    /// Pairs in which the device was not steady.
    unstable_pairs: usize,
}

/// Runs it and prints the comparisons.
pub(crate) fn compare(args: &CompareArgs) -> Result<()> {
    let mut engines = args.common.engines()?;
    args.load.check()?;
    if engines.len() < 2 {
        let message =
            "compare needs two engines or more: the first is compared with each other one";
        return Err(Error::Refused(message.to_owned()));
    }
    let (engine, baselines) = (engines[0], engines[1..].to_vec());
    let place = Place::new(&args.common.data_dir)?;
    let machine = Machine::here(&place);
    let shapes = shapes(&args.load);
    let series_count = shapes.len() * args.pairs as usize * engines.len();
    let bar = progress_bar((series_count * args.load.benchmarks.len()) as u64);
    let mut series = Series::new(&args.load, &place, &bar)?;

    let mut runs = Vec::new();
    for (value_bytes, threads) in &shapes {
        for round in 1..=args.pairs {
            for engine in &engines {
                let which = Which {
                    engine: *engine,
                    value_bytes: *value_bytes,
                    threads: *threads,
                    round,
                };
                runs.extend(series.run(which)?);
            }
            engines.reverse();
        }
        // An odd number of pairs leaves the order reversed.
        engines.sort_by_key(|other| *other != engine);
    }
    bar.finish_and_clear();

    let mut rows = Vec::new();
    for (value_bytes, threads) in shapes {
        for workload in &args.load.benchmarks {
            for baseline in &baselines {
                let pick = |of: EngineKind| picked(&runs, of, *workload, threads, value_bytes);
                let pairs: Vec<(&Run, &Run)> =
                    pick(engine).into_iter().zip(pick(*baseline)).collect();
                rows.push(comparison(&pairs, args.floor));
            }
        }
    }
    let rows: Vec<Comparison> = rows.into_iter().flatten().collect();
    let report = Report {
        machine,
        rows,
        runs,
    };
    let is_json_on_stdout = args
        .common
        .json
        .as_deref()
        .is_some_and(|path| path.as_os_str() == "-");
    if !is_json_on_stdout {
        println!("{}\n{}", report.machine.summary(), table(&report.rows));
    }
    args.common
        .json
        .as_deref()
        .map_or(Ok(()), |path| report.write_json(path))
}

/// The runs that count of one engine in one row, in the order of their numbers.
fn picked(
    runs: &[Run],
    engine: EngineKind,
    workload: Benchmark,
    threads: u32,
    value_bytes: usize,
) -> Vec<&Run> {
    let mut picked: Vec<&Run> = runs
        .iter()
        .filter(|run| {
            !run.discarded
                && (run.engine, run.workload, run.threads, run.value_bytes)
                    == (engine, workload, threads, value_bytes)
        })
        .collect();
    picked.sort_by_key(|run| run.round);
    picked
}

fn comparison(pairs: &[(&Run, &Run)], floor: f64) -> Option<Comparison> {
    let (run, baseline) = pairs.first()?;
    let ratio = |(ours, theirs): &(&Run, &Run)| ours.figures.ops_per_s / theirs.figures.ops_per_s;
    let ratios: Vec<f64> = pairs.iter().map(ratio).collect();
    let interval = median_interval(&ratios);
    Some(Comparison {
        engine: run.engine,
        baseline: baseline.engine,
        workload: run.workload,
        threads: run.threads,
        value_bytes: run.value_bytes,
        num: run.flags.num,
        ratio_median: median(&ratios),
        ratio_low: interval.0,
        ratio_high: interval.1,
        floor,
        verdict: Verdict::of(interval, floor),
        unstable_pairs: pairs
            .iter()
            .filter(|(one, other)| one.unstable || other.unstable)
            .count(),
        ratios,
    })
}

fn table(rows: &[Comparison]) -> String {
    let mut text = format!(
        "{:<12} {:>3} {:>6}  {:<28} {:>7} {:>17}  verdict\n",
        "workload", "thr", "value", "engine / baseline", "ratio", "95 % interval"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "{:<12} {:>3} {:>6}  {:<28} {:>7.3} {:>8.3} {:>8.3}  {}{}",
            row.workload.name(),
            row.threads,
            row.value_bytes,
            format!("{} / {}", row.engine, row.baseline),
            row.ratio_median,
            row.ratio_low,
            row.ratio_high,
            row.verdict.name(),
            match row.unstable_pairs {
                0 => String::new(),
                pairs => format!("  (device not steady in {pairs} of {})", row.ratios.len()),
            },
        );
    }
    text
}
