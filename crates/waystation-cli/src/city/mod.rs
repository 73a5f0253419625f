//! `waystation city`: a real hour of a city's traffic, driven through an engine for each radio cell.
//!
//! A trace says which vehicle is in which cell when ([`trace`]). A vehicle in a cell sends readings ([`reading`]), which
//! the cell's engine stores ([`edge`]), and questions about it are answered ([`query`]). When it goes on to another
//! cell everything it has sent travels with it; when it leaves the city everything is deleted ([`journey`]). What stays
//! longer than most settles into the tree ([`residency`], [`residents`]). The city's clock is virtual: its hour takes
//! as long as the engines do ([`drive`], [`worker`]).
//!
//! Whether every reading is where it must be, and nowhere else, is the business of one who knows the trace and asks
//! the engines, and nobody else: the [`audit`].

pub(crate) mod args;
mod audit;
mod drive;
mod edge;
mod error;
mod ground;
mod journey;
mod machine;
mod meters;
mod names;
mod query;
mod reading;
mod report;
mod residency;
mod residents;
mod rivals;
#[cfg(test)]
mod tests;
mod trace;
mod watch;
mod worker;

use crate::commands::Context;
use crate::failure::{self, Failure};
use crate::output::JsonTarget;
use args::City;
use audit::Audit;
use drive::Setup;
use edge::{Edge, WaystationEdge, options_within};
use error::CityError;
use ground::Ground;
use reading::Plan;
use report::{EngineReport, Report};
use std::cmp::Ordering;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use trace::Trace;

/// Files that the process has open besides those of the cells.
const FILES_BESIDES: usize = 64;

/// Runs the city and reports; an audit that finds anything is a failure.
pub(crate) fn city(context: &mut Context, args: &City) -> Result<(), Failure> {
    let is_json = context.output.is_json() || args.json == Some(JsonTarget::Output);
    let report = run(args, context.quiet)?;
    let printed = if is_json {
        context.output.json(&report)
    } else {
        context.output.raw(report::text(&report).as_bytes())
    };
    let printed = printed.map_err(Failure::from);
    if report.is_clean() {
        printed
    } else {
        // What the audit found counts for more than that the report's reader has gone.
        Failure::found(failure::NOT_FOUND, printed)
    }
}

fn run(args: &City, quiet: bool) -> Result<Report, CityError> {
    rivals::check_built(&args.against)?;
    let whole = Trace::load(args.trace.as_deref())?;
    let until = args.until.unwrap_or(u32::MAX).min(whole.end());
    let trace = in_cells(whole.cut(until), args.cells)?;
    let plan = Plan {
        interval_us: report::whole((1e6 / args.readings_per_second).round()),
        sensors: args.sensors,
        value_bytes: args.value_bytes as usize,
    };
    let actions = journey::actions(&trace);
    let setup = Setup {
        actions: &actions,
        cells: &trace.cells,
        plan,
        queries_per_million: report::whole((args.queries_per_second * 1e6).round()),
        threads: args.threads as usize,
        until,
        reopen_every: args.reopen_every,
        directory: &args.dir,
    };
    check_memory(args.memory, trace.cells.len())?;
    check_files(args)?;
    let ground = Ground::take(&args.dir, args.keep)?;
    watch::catch_interrupts()?;
    let mut report = Report::new(args, &trace);
    report
        .engines
        .push(waystation(args, &trace, &setup, &ground, quiet)?);
    for rival in &args.against {
        // Who stops the run stops all of it.
        if watch::is_stopped() {
            break;
        }
        let ran = rivals::run(*rival, args, &trace, &setup, &ground, quiet)?;
        report.engines.push(ran);
    }
    write_files(args, &report)?;
    Ok(report)
}

/// `trace` in as many cells as were asked for.
fn in_cells(trace: Trace, asked: Option<u32>) -> Result<Trace, CityError> {
    let count = asked.map_or(trace.cells.len(), |count| count as usize);
    match count.cmp(&trace.cells.len()) {
        Ordering::Equal => Ok(trace),
        Ordering::Greater => Ok(trace.split(count)),
        Ordering::Less => Err(CityError::Usage(format!(
            "--cells is {count}, and the trace has {}: cells can be split, not joined",
            trace.cells.len()
        ))),
    }
}

/// The city on Waystation.
fn waystation(
    args: &City,
    trace: &Trace,
    setup: &Setup<'_>,
    ground: &Ground,
    quiet: bool,
) -> Result<EngineReport, CityError> {
    let cells = setup.cells.len();
    let options = options_within(args.memory, cells, files_for_each(cells)?)
        .map_err(|error| CityError::Usage(error.to_string()))?;
    let directory = ground.of("waystation");
    let open = |cell: usize| {
        let directory = directory.join(cell_directory(setup.cells, cell));
        WaystationEdge::open(&directory, options.clone(), args.hand_offs_survive.into())
    };
    let engine = report::Engine {
        name: "waystation",
        settings: format!(
            "shared by all cells: a cache of {}; per cell: a ring of {}, memtable and indexes up to {} each",
            crate::output::bytes_text(args.memory / 4),
            crate::output::bytes_text(options.ring_bytes as u64),
            crate::output::bytes_text(options.memtable_bytes as u64),
        ),
    };
    let setup = Setup {
        directory: &directory,
        ..*setup
    };
    let ran = one_engine(engine, trace, &setup, &open, quiet);
    ground.clear("waystation");
    ran
}

/// What the directory of the cell in a place is called.
fn cell_directory(cells: &[String], place: usize) -> PathBuf {
    format!("cell-{}", names::in_a_path(&cells[place])).into()
}

/// Refuses memory that the cells cannot work with, or that the machine does not have.
fn check_memory(memory: u64, cells: usize) -> Result<(), CityError> {
    let least = edge::MEMORY_MIN as u64 * cells as u64;
    if memory < least {
        return Err(CityError::Usage(format!(
            "--memory is {memory} bytes for {cells} cells, each an engine that needs {}: name at least {least}",
            edge::MEMORY_MIN
        )));
    }
    let there = machine::physical_memory_bytes();
    if there > 0 && memory > there {
        return Err(CityError::Usage(format!(
            "--memory is {memory} bytes; this machine has {there}"
        )));
    }
    Ok(())
}

/// How many files each of so many cells may have open.
fn files_for_each(cells: usize) -> Result<usize, CityError> {
    let allowed = usize::try_from(machine::allow_files()).unwrap_or(usize::MAX);
    let each = allowed.saturating_sub(FILES_BESIDES) / cells;
    if each < edge::FILES_MIN {
        return Err(CityError::Usage(format!(
            "{cells} cells need {} open files, and this process may have {allowed}: raise the limit (`ulimit -Hn`), or \
             cut the trace to fewer cells",
            cells * edge::FILES_MIN + FILES_BESIDES
        )));
    }
    Ok(each)
}

/// The city on engines of one kind.
fn one_engine<E: Edge>(
    engine: report::Engine,
    trace: &Trace,
    setup: &Setup<'_>,
    open: drive::Open<'_, E>,
    quiet: bool,
) -> Result<EngineReport, CityError> {
    let audit = Audit::new(trace, setup.plan);
    let mut bar = watch::Bar::new(engine.name, setup.until, quiet);
    machine::forget_peak();
    let before = report::Before::now();
    let run = drive::run(setup, &audit, open, &mut bar)?;
    Ok(EngineReport::new(engine, run, &before))
}

/// Makes the report's files, before anybody has waited for a report that has no place.
fn check_files(args: &City) -> Result<(), CityError> {
    let json = match &args.json {
        Some(JsonTarget::File(path)) => Some(path),
        _ => None,
    };
    for path in json.into_iter().chain(&args.html) {
        fs::write(path, "").map_err(CityError::file("write", path))?;
    }
    Ok(())
}

fn write_files(args: &City, report: &Report) -> Result<(), CityError> {
    let write =
        |path: &Path, text: String| fs::write(path, text).map_err(CityError::file("write", path));
    if let Some(JsonTarget::File(path)) = &args.json {
        let text = serde_json::to_string_pretty(report)
            .map_err(|error| CityError::file("write", path)(error.into()))?;
        write(path, text + "\n")?;
    }
    if let Some(path) = &args.html {
        write(path, report::html(report))?;
    }
    Ok(())
}
