//! `ycsb`: YCSB's core workloads on every engine, several times, engines taking turns.
//!
//! Workloads follow each other on the records that were loaded, in YCSB's order: those that add records come last, and
//! scans (E) have a load of their own.

use super::progress_bar;
use crate::cli::YcsbArgs;
use crate::engines::{EngineKind, ExecutorSettings, OpenSettings};
use crate::error::Result;
use crate::machine::Machine;
use crate::place::Place;
use crate::protocol::{Command, PhaseEnd, Reply};
use crate::report::Report;
use crate::session::Worker;
use crate::stats::median_index;
use crate::workload::{YCSB_RECORD_BYTES, YcsbFigures, YcsbLoad, YcsbPhase, YcsbWorkload};
use indicatif::ProgressBar;
use serde::Serialize;
use std::fmt::Write;

/// One phase on one engine, once.
#[derive(Debug, Clone, Serialize)]
struct YcsbRun {
    engine: EngineKind,
    /// `load`, or `a` to `f`.
    workload: YcsbPhase,
    threads: u32,
    value_bytes: usize,
    /// The number of the round in which all engines take their turn, from 1.
    round: u32,
    engine_version: &'static str,
    engine_settings: &'static str,
    flags: YcsbLoad,
    #[serde(flatten)]
    figures: YcsbFigures,
}

/// The median run, and how far the others were from it.
#[derive(Debug, Clone, Serialize)]
struct YcsbRow {
    /// The median run by operations per second.
    #[serde(flatten)]
    median: YcsbRun,
    runs: usize,
    ops_per_s_min: f64,
    ops_per_s_max: f64,
}

/// Runs it and prints the rows.
pub(crate) fn ycsb(args: &YcsbArgs) -> Result<()> {
    let engines = args.common.engines()?;
    let workloads = args.workloads()?;
    let place = Place::new(&args.common.data_dir)?;
    let machine = Machine::here(&place);
    let chains = chains(&workloads);
    let phases: usize = chains.iter().map(|chain| chain.len() + 1).sum();
    let bar = progress_bar((phases * engines.len()) as u64 * u64::from(args.runs));
    let mut runs = Vec::new();
    for round in 1..=args.runs {
        // Each round begins with another engine, so that none always follows the same one.
        let first = (round as usize - 1) % engines.len();
        for engine in engines[first..].iter().chain(&engines[..first]) {
            for chain in &chains {
                run_chain(
                    *engine,
                    chain,
                    args.load(),
                    &place,
                    &bar,
                    |workload, figures| {
                        runs.push(YcsbRun {
                            engine: *engine,
                            workload,
                            threads: args.load().threads,
                            value_bytes: YCSB_RECORD_BYTES,
                            round,
                            engine_version: engine.version(),
                            engine_settings: engine.settings(),
                            flags: args.load(),
                            figures,
                        });
                    },
                )?;
            }
        }
    }
    bar.finish_and_clear();

    let report = Report {
        machine,
        rows: rows(&engines, &workloads, &runs),
        runs,
    };
    let json = args.common.json.as_deref();
    if json.is_none_or(|path| path.as_os_str() != "-") {
        println!("{}\n{}", report.machine.summary(), table(&report.rows));
    }
    json.map_or(Ok(()), |path| report.write_json(path))
}

/// The workloads that follow each other on the same records.
fn chains(workloads: &[YcsbWorkload]) -> Vec<&[YcsbWorkload]> {
    workloads
        .chunk_by(|_, next| !next.needs_fresh_records())
        .collect()
}

/// Loads the records, and runs some workloads on them.
fn run_chain(
    engine: EngineKind,
    chain: &[YcsbWorkload],
    load: YcsbLoad,
    place: &Place,
    bar: &ProgressBar,
    mut on_figures: impl FnMut(YcsbPhase, YcsbFigures),
) -> Result<()> {
    let mut worker = Worker::start(&OpenSettings {
        engine,
        directory: place.path(engine.name()),
        memtable_bytes: None,
        executor: ExecutorSettings::default(),
        residency: None,
        tiers: None,
    })?;
    let phases = [YcsbPhase::Load].into_iter();
    for phase in phases.chain(chain.iter().copied().map(YcsbPhase::Run)) {
        bar.set_message(format!("{engine}: {}", name(phase)));
        match worker.ask(&Command::Ycsb {
            phase,
            load,
            end: PhaseEnd::AtRest,
        })? {
            Reply::YcsbRan(figures) => on_figures(phase, *figures),
            other => return Err(worker.nonsense(&other)),
        }
        bar.inc(1);
    }
    worker.quit()?;
    place.clear(engine.name())
}

fn name(phase: YcsbPhase) -> &'static str {
    match phase {
        YcsbPhase::Load => "load",
        YcsbPhase::Delete => "delete",
        YcsbPhase::Graves => "graves",
        YcsbPhase::Run(workload) => workload.name(),
    }
}

/// One row for each phase and engine.
fn rows(engines: &[EngineKind], workloads: &[YcsbWorkload], runs: &[YcsbRun]) -> Vec<YcsbRow> {
    let row = |engine: EngineKind, phase: YcsbPhase| {
        let is_meant = |run: &&YcsbRun| (run.engine, run.workload) == (engine, phase);
        let group: Vec<&YcsbRun> = runs.iter().filter(is_meant).collect();
        let speed = |run: &&YcsbRun| run.figures.common.ops_per_s;
        let median = median_index(&group, speed)?;
        Some(YcsbRow {
            median: group[median].clone(),
            runs: group.len(),
            ops_per_s_min: group.iter().map(speed).fold(f64::INFINITY, f64::min),
            ops_per_s_max: group.iter().map(speed).fold(0.0, f64::max),
        })
    };
    let phases = [YcsbPhase::Load].into_iter();
    let phases = phases.chain(workloads.iter().copied().map(YcsbPhase::Run));
    phases
        .flat_map(|phase| engines.iter().filter_map(move |engine| row(*engine, phase)))
        .collect()
}

fn table(rows: &[YcsbRow]) -> String {
    let mut text = format!(
        "{:<8} {:<16} {:>3} {:>10} {:>8} {:>9} {:>10} {:>10} {:>5} {:>7} {:>7} {:>8}  by operation: p99 us\n",
        "workload",
        "engine",
        "thr",
        "ops/s",
        "MB/s",
        "p99 us",
        "p99.9 us",
        "max us",
        "WA",
        "cpu s",
        "rss MB",
        "disk MB"
    );
    for row in rows {
        let run = &row.median;
        let common = &run.figures.common;
        let amplification = common.write_amplification;
        let operations = run
            .figures
            .operations
            .iter()
            .map(|figures| format!("{:?} {:.1}", figures.operation, figures.p99_us));
        let _ = writeln!(
            text,
            "{:<8} {:<16} {:>3} {:>10.0} {:>8.1} {:>9.1} {:>10.1} {:>10.1} {:>5} {:>7.1} {:>7.0} {:>8.0}  {}",
            name(run.workload),
            run.engine.name(),
            run.threads,
            common.ops_per_s,
            common.mb_per_s,
            common.p99_us,
            common.p999_us,
            common.max_us,
            amplification.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}")),
            common.cpu_s,
            common.peak_rss_mb,
            common.disk_mb,
            operations.collect::<Vec<_>>().join(", "),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use YcsbWorkload::{A, C, D, E, F};

    #[test]
    fn scans_have_a_load_of_their_own() {
        assert_eq!(chains(&[A, C, F, D, E]), [&[A, C, F, D][..], &[E]]);
        assert_eq!(chains(&[E]), [&[E]]);
        assert_eq!(chains(&[A, D]), [&[A, D]]);
    }
}
