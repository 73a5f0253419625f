//! `reopen`: how long opening takes after kill -9 with much in the log.
//!
//! A process puts keys in no order until keys and values make up the wanted bytes, with a memtable large enough
//! that all of it is in the log only (or, as the keys of devices, in the upper level), and is killed. Another process opens the database, which is timed, and
//! looks for the keys (of very many, evenly spread ones). What the page cache holds of the log stays there: after the death of a process it does.

use super::progress_bar;
use crate::cli::ReopenArgs;
use crate::engines::{EngineKind, ExecutorSettings, OpenSettings};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::measure::disk_mb;
use crate::place::Place;
use crate::protocol::{Command, Reply};
use crate::report::Report;
use crate::session::Worker;
use crate::stats::median_index;
use crate::workload::KEY_BYTES;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// One opening.
#[derive(Debug, Clone, Serialize)]
struct ReopenRow {
    engine: EngineKind,
    log_bytes: u64,
    value_bytes: usize,
    /// Devices whose keys they were; 0 for none.
    devices: u32,
    run: u32,
    /// Entries put before the kill.
    entries: u32,
    /// What the directory occupied after the kill, in units of 10^6 bytes.
    disk_mb: f64,
    /// How long opening took.
    open_s: f64,
    /// So many of them were looked for afterwards.
    looked_for: u32,
    /// Of these, those that are not there.
    missing: u32,
}

/// Runs it and prints the times.
pub(crate) fn reopen(args: &ReopenArgs) -> Result<()> {
    let engines = args.common.engines()?;
    let place = Place::new(&args.common.data_dir)?;
    let machine = Machine::here(&place);
    let bar = progress_bar(u64::from(args.runs) * engines.len() as u64);
    let mut runs = Vec::new();
    for run in 1..=args.runs {
        for engine in &engines {
            runs.push(open_once(args, &place, *engine, run, |what| {
                bar.set_message(format!("{engine}: {what}"));
            })?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();

    let rows: Vec<ReopenRow> = engines
        .iter()
        .filter_map(|engine| row(&runs, *engine))
        .collect();
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
        .map_or(Ok(()), |path| report.write_json(path))?;
    match report.runs.iter().find(|run| run.missing > 0) {
        None => Ok(()),
        Some(run) => Err(Error::Refused(format!(
            "{} lost {} of {} acknowledged entries in a kill",
            run.engine, run.missing, run.looked_for
        ))),
    }
}

fn open_once(
    args: &ReopenArgs,
    place: &Place,
    engine: EngineKind,
    run: u32,
    say: impl Fn(&str),
) -> Result<ReopenRow> {
    let (value_bytes, devices) = (args.value_bytes, args.devices);
    let directory = place.path(engine.name());
    let memtable_bytes = usize::try_from(memtable_bytes(args.log_bytes, value_bytes)).ok();
    let settings = OpenSettings {
        engine,
        directory,
        // The memtable is for keys without devices.
        memtable_bytes: memtable_bytes.filter(|_| devices == 0),
        executor: ExecutorSettings::default(),
        residency: (devices > 0).then_some(Duration::MAX),
        tiers: None,
    };

    say("filling the log");
    let mut writer = Worker::start(&settings)?;
    let fill = Command::Fill {
        bytes: args.log_bytes,
        value_bytes,
        devices,
    };
    let entries = match writer.ask(&fill)? {
        Reply::Filled { entries } => entries,
        other => return Err(writer.nonsense(&other)),
    };
    writer.kill();
    let disk_mb = disk_mb(&settings.directory);

    say("opening");
    let mut reader = Worker::start(&settings)?;
    let open_s = reader.open_s();
    let every = entries.div_ceil(args.look_for).max(1);
    say("looking for the keys");
    let missing = match reader.ask(&Command::Check {
        entries,
        value_bytes,
        devices,
        every,
    })? {
        Reply::Checked { missing } => missing,
        other => return Err(reader.nonsense(&other)),
    };
    reader.kill();
    place.clear(engine.name())?;
    Ok(ReopenRow {
        engine,
        log_bytes: args.log_bytes,
        value_bytes,
        devices,
        run,
        entries,
        disk_mb,
        open_s,
        looked_for: entries.div_ceil(every),
        missing,
    })
}

/// A memtable that holds so many bytes of keys and values, with what it needs for each entry.
fn memtable_bytes(log_bytes: u64, value_bytes: usize) -> u64 {
    const ENTRY_BYTES: u64 = 128;
    const SPARE_BYTES: u64 = 64 << 20;
    let entries = log_bytes / (KEY_BYTES + value_bytes) as u64;
    log_bytes
        .saturating_add(entries.saturating_mul(ENTRY_BYTES))
        .saturating_add(SPARE_BYTES)
}

/// The median run of an engine.
fn row(runs: &[ReopenRow], engine: EngineKind) -> Option<ReopenRow> {
    let group: Vec<&ReopenRow> = runs.iter().filter(|run| run.engine == engine).collect();
    let median = median_index(&group, |run| run.open_s)?;
    Some(group[median].clone())
}

fn table(rows: &[ReopenRow]) -> String {
    let mut text = format!(
        "{:<14} {:>11} {:>9} {:>9} {:>9} {:>10} {:>8}\n",
        "engine", "log MB", "disk MB", "entries", "open s", "looked for", "missing"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "{:<14} {:>11.0} {:>9.0} {:>9} {:>9.3} {:>10} {:>8}",
            row.engine.name(),
            row.log_bytes as f64 / 1e6,
            row.disk_mb,
            row.entries,
            row.open_s,
            row.looked_for,
            row.missing
        );
    }
    text
}
