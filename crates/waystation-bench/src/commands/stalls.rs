//! `stalls`: the longest put while random puts go on at full speed.

use super::progress_bar;
use crate::cli::StallsArgs;
use crate::engines::{EngineKind, ExecutorSettings, OpenSettings};
use crate::error::Result;
use crate::machine::Machine;
use crate::place::Place;
use crate::protocol::{Command, Reply};
use crate::report::Report;
use crate::session::Worker;
use crate::workload::{PauseFigures, PauseLoad};
use serde::Serialize;
use std::fmt::Write;

/// One engine's pauses.
#[derive(Debug, Clone, Serialize)]
struct StallRow {
    engine: EngineKind,
    #[serde(flatten)]
    load: PauseLoad,
    #[serde(flatten)]
    figures: PauseFigures,
}

/// Runs it and prints the pauses.
pub(crate) fn stalls(args: &StallsArgs) -> Result<()> {
    let engines = args.common.engines()?;
    let place = Place::new(&args.common.data_dir)?;
    let machine = Machine::here(&place);
    let load = PauseLoad {
        num: args.num,
        value_bytes: args.value_bytes,
        threads: args.threads,
        seconds: args.seconds,
    };
    let bar = progress_bar(engines.len() as u64);
    let mut rows = Vec::new();
    for engine in engines {
        bar.set_message(format!("{engine}: {} s of random puts", args.seconds));
        let directory = place.path(engine.name());
        let mut worker = Worker::start(&OpenSettings {
            engine,
            directory,
            memtable_bytes: None,
            executor: ExecutorSettings::default(),
            residency: None,
            tiers: None,
        })?;
        let figures = match worker.ask(&Command::Pauses(load))? {
            Reply::Paused(figures) => figures,
            other => return Err(worker.nonsense(&other)),
        };
        worker.kill();
        place.clear(engine.name())?;
        rows.push(StallRow {
            engine,
            load,
            figures,
        });
        bar.inc(1);
    }
    bar.finish_and_clear();

    let report = Report {
        machine,
        runs: rows.clone(),
        rows,
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

fn table(rows: &[StallRow]) -> String {
    let mut text = format!(
        "{:<14} {:>11} {:>13} {:>14} {:>9} {:>10}  puts of at least (ms: puts)\n",
        "engine", "ops/s", "worst second", "longest put ms", "p99 us", "p99.9 us"
    );
    for row in rows {
        let figures = &row.figures;
        let pauses = figures.pauses.iter().filter(|pause| pause.puts > 0);
        let pauses: Vec<String> = pauses
            .map(|pause| format!("{}: {}", pause.from_ms, pause.puts))
            .collect();
        let _ = writeln!(
            text,
            "{:<14} {:>11.0} {:>13} {:>14.2} {:>9.2} {:>10.2}  {}",
            row.engine.name(),
            figures.ops_per_s,
            figures.slowest_second_ops,
            figures.longest_put_ms,
            figures.p99_us,
            figures.p999_us,
            pauses.join(", "),
        );
    }
    text
}
