//! `depart`: how long a device with very much data takes to depart, and whether others notice.

use super::progress_bar;
use crate::cli::DepartArgs;
use crate::engines::{EngineKind, ExecutorSettings, OpenSettings};
use crate::error::Result;
use crate::machine::Machine;
use crate::place::Place;
use crate::protocol::{Command, Reply};
use crate::report::Report;
use crate::session::Worker;
use crate::stats::median_index;
use crate::workload::{DepartureFigures, DepartureLoad};
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// One departure.
#[derive(Debug, Clone, Serialize)]
struct DepartRow {
    engine: EngineKind,
    run: u32,
    engine_version: &'static str,
    engine_settings: String,
    flags: DepartureLoad,
    #[serde(flatten)]
    figures: DepartureFigures,
}

/// Runs it and prints the times.
pub(crate) fn depart(args: &DepartArgs) -> Result<()> {
    let engines = args.common.engines()?;
    let load = args.load()?;
    let place = Place::new(&args.common.data_dir)?;
    let machine = Machine::here(&place);
    let bar = progress_bar(u64::from(args.runs) * engines.len() as u64);
    let mut runs = Vec::new();
    for run in 1..=args.runs {
        for engine in &engines {
            bar.set_message(format!("{engine}: a device of {} records", load.records));
            runs.push(DepartRow {
                engine: *engine,
                run,
                engine_version: engine.version(),
                engine_settings: engine.device_settings(),
                flags: load,
                figures: depart_once(*engine, load, &place)?,
            });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();

    let median = |engine: &EngineKind| {
        let group: Vec<&DepartRow> = runs.iter().filter(|run| run.engine == *engine).collect();
        let median = median_index(&group, |run| run.figures.call_us)?;
        Some(group[median].clone())
    };
    let report = Report {
        machine,
        rows: engines.iter().filter_map(median).collect(),
        runs,
    };
    let json = args.common.json.as_deref();
    if json.is_none_or(|path| path.as_os_str() != "-") {
        println!("{}\n{}", report.machine.summary(), table(&report.rows));
    }
    json.map_or(Ok(()), |path| report.write_json(path))
}

/// Fills a fresh database, lets the device depart, and removes it all.
fn depart_once(engine: EngineKind, load: DepartureLoad, place: &Place) -> Result<DepartureFigures> {
    let mut worker = Worker::start(&OpenSettings {
        engine,
        directory: place.path(engine.name()),
        memtable_bytes: None,
        executor: ExecutorSettings::default(),
        // Nothing settles by itself: what is measured is the departure.
        residency: Some(Duration::MAX),
        tiers: None,
    })?;
    let figures = match worker.ask(&Command::Departure(load))? {
        Reply::Departed(figures) => *figures,
        other => return Err(worker.nonsense(&other)),
    };
    worker.quit()?;
    place.clear(engine.name())?;
    Ok(figures)
}

fn table(rows: &[DepartRow]) -> String {
    let mut text = format!(
        "{:<16} {:>9} {:>10} {:>12} {:>13} {:>16} {:>12} {:>6} {:>16}\n",
        "engine",
        "records",
        "offered/s",
        "call us",
        "p99 before us",
        "p99 meanwhile us",
        "p99 after us",
        "ratio",
        "max meanwhile us"
    );
    for row in rows {
        let figures = &row.figures;
        let _ = writeln!(
            text,
            "{:<16} {:>9} {:>10.0} {:>12.1} {:>13.1} {:>16.1} {:>12.1} {:>6.2} {:>16.1}",
            row.engine.name(),
            row.flags.records,
            figures.offered_per_s,
            figures.call_us,
            figures.p99_before_us,
            figures.p99_meanwhile_us,
            figures.p99_after_us,
            figures.p99_ratio,
            figures.max_meanwhile_us,
        );
    }
    text
}
