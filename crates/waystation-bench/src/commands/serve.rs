//! `serve`: the daemon beside Redis, and behind Mosquitto.

use super::progress_bar;
use crate::cli::{ServeArgs, ServeFigure};
use crate::drives::program_beside;
use crate::error::Result;
use crate::machine::Machine;
use crate::place::Place;
use crate::report::Report;
use crate::serve::{
    Cores, Durability, Rig, ServeRow, Suite, large_rows, medians, memory_rows, message_rows,
    start_rows, suite_rows, whole,
};
use std::fmt::Write;

/// Figures in the order in which they are measured. Memory and start come first: what others leave behind would count.
const FIGURES: [ServeFigure; 7] = [
    ServeFigure::Memory,
    ServeFigure::Get,
    ServeFigure::Redis,
    ServeFigure::Always,
    ServeFigure::Big,
    ServeFigure::Mqtt,
    ServeFigure::Start,
];
/// The unit of resident data (bytes).
const GB: f64 = 1e9;

/// Measures the figures that the arguments name, and prints them.
pub(crate) fn serve(args: &ServeArgs) -> Result<()> {
    let place = Place::new(&args.data_dir)?;
    let machine = Machine::here(&place);
    let program = program_beside(args.waystation.as_deref())?;
    let rig = Rig {
        program: &program,
        place: &place,
        cores: Cores::new(args.both_cores)?,
        seconds: args.seconds,
        clients: args.clients,
    };
    let is_asked = |figure: &ServeFigure| {
        args.figure.contains(figure) || args.figure.contains(&ServeFigure::All)
    };
    let mut runs = Vec::new();
    for figure in FIGURES.into_iter().filter(is_asked) {
        runs.extend(measure(args, &rig, figure)?);
    }
    let report = Report {
        machine,
        rows: medians(&runs),
        runs,
    };
    let json = args.json.as_deref();
    if json.is_none_or(|path| path.as_os_str() != "-") {
        let (machine, cores) = (report.machine.summary(), rig.cores.summary());
        println!("{machine}\n{cores}\n{}", table(&report.rows));
    }
    json.map_or(Ok(()), |path| report.write_json(path))
}

fn measure(args: &ServeArgs, rig: &Rig<'_>, figure: ServeFigure) -> Result<Vec<ServeRow>> {
    let suite = suite(args, figure);
    let steps = suite.as_ref().map_or(0, Suite::len);
    let bar = if steps > 0 {
        progress_bar(steps)
    } else {
        indicatif::ProgressBar::new_spinner()
    };
    let mut step = |what: &str| {
        bar.set_message(what.to_owned());
        bar.inc(1);
    };
    let step: &mut dyn FnMut(&str) = &mut step;
    let rows = match (suite, figure) {
        (Some(suite), _) => suite_rows(rig, &suite, step),
        (None, ServeFigure::Big) => large_rows(rig, args.runs, args.big_share, step),
        (None, ServeFigure::Mqtt) => message_rows(rig, args.runs, step),
        (None, ServeFigure::Start) => start_rows(rig, whole(args.gb * GB), args.runs, step),
        (None, _) => memory_rows(rig, &args.engines, args.connections, step),
    };
    bar.finish_and_clear();
    rows
}

/// What a figure asks of Redis clients, if it is about them.
fn suite(args: &ServeArgs, figure: ServeFigure) -> Option<Suite> {
    let pipelines = |command: &'static str| args.pipelines.iter().map(move |it| (command, *it));
    let (figure, durability, loads): (_, _, Vec<(&'static str, u32)>) = match figure {
        ServeFigure::Redis => {
            let commands = ["get", "mix", "set"];
            let loads = commands.into_iter().flat_map(pipelines).collect();
            ("redis", Durability::EverySecond, loads)
        }
        ServeFigure::Always => ("always", Durability::Always, pipelines("set").collect()),
        ServeFigure::Get => ("get", Durability::EverySecond, vec![("get", 1)]),
        _ => return None,
    };
    Some(Suite {
        figure,
        durability,
        loads,
        value_bytes: args.value_bytes.clone(),
        keys: args.keys,
        engines: args.engines.clone(),
        runs: args.runs,
    })
}

fn table(rows: &[ServeRow]) -> String {
    let mut text = format!(
        "{:<7} {:<11} {:>5} {:>6} {:<8} {:<22} {:<17} {:>10} {:>6} {:>9} {:>6} {:>8} {:>7} {:>9}\n",
        "figure",
        "command",
        "pipe",
        "value",
        "durable",
        "setting",
        "engine",
        "ops/s",
        "ratio",
        "p99 us",
        "ratio",
        "cpu us",
        "rss MB",
        "start ms"
    );
    let or_dash = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |it| format!("{it:.digits$}"))
    };
    for row in rows {
        // Writing into a string cannot fail.
        let _ = writeln!(
            text,
            "{:<7} {:<11} {:>5} {:>6} {:<8} {:<22} {:<17} {:>10} {:>6} {:>9} {:>6} {:>8} {:>7} {:>9}{}",
            row.figure,
            row.command,
            row.pipeline,
            row.value_bytes,
            row.durability,
            row.setting,
            row.engine,
            or_dash(row.ops_per_s, 0),
            or_dash(row.ops_ratio, 2),
            or_dash(row.p99_us, 0),
            or_dash(row.p99_ratio, 2),
            or_dash(row.cpu_us_per_op, 2),
            or_dash(row.rss_mb.or(row.binary_mb), 0),
            or_dash(row.start_ms, 0),
            row.refusal
                .as_ref()
                .map_or_else(String::new, |it| format!("  {it}")),
        );
    }
    text
}
