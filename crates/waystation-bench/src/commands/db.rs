//! `db`: every benchmark on every engine, several times, engines taking turns.

use super::progress_bar;
use super::series::{Series, Which, shapes};
use crate::cli::DbArgs;
use crate::error::Result;
use crate::machine::Machine;
use crate::place::Place;
use crate::report::{Report, rows, table};

/// Runs it and prints the rows.
pub(crate) fn db(args: &DbArgs) -> Result<()> {
    args.load.check()?;
    if args.load.benchmarks.iter().any(|it| it.is_scenario()) {
        return super::deletions::deletions(args);
    }
    let engines = args.common.engines()?;
    let place = Place::new(&args.common.data_dir)?;
    let machine = Machine::here(&place);
    let shapes = shapes(&args.load);
    let series_count = shapes.len() * args.runs as usize * engines.len();
    let bar = progress_bar((series_count * args.load.benchmarks.len()) as u64);
    let mut series = Series::new(&args.load, &place, &bar)?;

    let mut runs = Vec::new();
    for (value_bytes, threads) in shapes {
        for round in 1..=args.runs {
            // Each round begins with another engine, so that none always follows the same one.
            let first = (round as usize - 1) % engines.len();
            for engine in engines[first..].iter().chain(&engines[..first]) {
                let which = Which {
                    engine: *engine,
                    value_bytes,
                    threads,
                    round,
                };
                runs.extend(series.run(which)?);
            }
        }
    }
    bar.finish_and_clear();

    let report = Report {
        machine,
        rows: rows(&runs),
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
