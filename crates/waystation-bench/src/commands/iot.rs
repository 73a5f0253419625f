//! `iot`: devices that come, settle or leave, on every engine, several times, engines taking turns.
//!
//! The raw device is measured before and after each run; if it changed its speed meanwhile, the run is repeated on a
//! fresh database. With `--open-loop` a run at full speed tells what the engine takes, and another one on a fresh
//! database offers a part of that.

use super::progress_bar;
use crate::cli::IotArgs;
use crate::engines::{EngineKind, ExecutorSettings, OpenSettings};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::place::Place;
use crate::protocol::{Command, Reply};
use crate::raw::{RawGauge, RawSettings, is_steady};
use crate::report::{IotRun, IotWorkload, RawFigures, Report, iot_rows, iot_table};
use crate::session::Worker;
use crate::workload::{IOT_VALUE_BYTES, IotFigures, IotLoad};
use indicatif::ProgressBar;

/// How often a run is tried until the device is steady.
const ATTEMPTS: u32 = 3;
/// At least so much of Waystation's log was freed, and used again, in a run that counts: its segments have 64 MiB.
const RECYCLED_MB: f64 = 67.2;

/// Runs it and prints the rows.
pub(crate) fn iot(args: &IotArgs) -> Result<()> {
    let engines = args.common.engines()?;
    let load = args.load()?;
    let loops = 1 + u64::from(args.open_loop.is_some());
    let raw = args.raw.settings()?;
    let place = Place::new(&args.common.data_dir)?;
    let machine = Machine::here(&place);
    let bar = progress_bar(engines.len() as u64 * u64::from(args.runs) * loops);
    let mut bench = Bench {
        raw,
        gauge: RawGauge::new(raw, place.path("raw"))?,
        place: &place,
        bar: &bar,
    };
    let mut runs = Vec::new();
    for round in 1..=args.runs {
        // Each round begins with another engine, so that none always follows the same one.
        let first = (round as usize - 1) % engines.len();
        for engine in engines[first..].iter().chain(&engines[..first]) {
            let ops_per_s = bench.run(*engine, load, round, &mut runs)?;
            bar.inc(1);
            if let Some(share) = args.open_loop {
                let offered = IotLoad {
                    offered_per_s: Some(share * ops_per_s),
                    ..load
                };
                bench.run(*engine, offered, round, &mut runs)?;
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();

    let report = Report {
        machine,
        rows: iot_rows(&engines, &runs),
        runs,
    };
    let json = args.common.json.as_deref();
    if json.is_none_or(|path| path.as_os_str() != "-") {
        println!("{}\n{}", report.machine.summary(), iot_table(&report.rows));
    }
    json.map_or(Ok(()), |path| report.write_json(path))
}

/// What all runs have in common.
struct Bench<'a> {
    raw: RawSettings,
    gauge: RawGauge,
    place: &'a Place,
    bar: &'a ProgressBar,
}

impl Bench<'_> {
    /// One run that counts, and those before it that did not. Returns the inserts per second of the one that counts.
    fn run(
        &mut self,
        engine: EngineKind,
        load: IotLoad,
        round: u32,
        runs: &mut Vec<IotRun>,
    ) -> Result<f64> {
        for attempt in 1.. {
            let before = self.measure()?;
            let figures = self.execute(engine, load)?;
            let measured = before.zip(self.measure()?);
            let steady = measured.is_none_or(|(before, after)| is_steady(before, after));
            let is_last = steady || attempt == ATTEMPTS;
            let raw = raw_figures(&figures, measured);
            let ops_per_s = figures.common.ops_per_s;
            runs.push(IotRun {
                engine,
                workload: IotWorkload::of(&load),
                value_bytes: IOT_VALUE_BYTES,
                residency_s: load.residency().as_secs_f64(),
                flags: load,
                recycled: figures
                    .levels
                    .freed_log_mb
                    .map(|freed| freed >= RECYCLED_MB),
                figures,
                raw_share: raw.raw_ratio,
                raw,
                round,
                attempt,
                discarded: !is_last,
                unstable: !steady && is_last,
                engine_version: engine.version(),
                engine_settings: engine.device_settings(),
                raw_seconds: self.raw.span.as_secs_f64(),
                raw_block_bytes: self.raw.block_bytes,
                raw_depth: self.raw.depth,
            });
            if is_last {
                return Ok(ops_per_s);
            }
        }
        Ok(0.0)
    }

    /// The load on a fresh database, which is removed afterwards.
    fn execute(&self, engine: EngineKind, load: IotLoad) -> Result<IotFigures> {
        let seconds = load.seconds;
        let message = match load.offered_per_s {
            None => format!("{engine}: {seconds} s of devices"),
            Some(per_s) => format!("{engine}: {seconds} s of {per_s:.0} inserts/s"),
        };
        self.bar.set_message(message);
        let mut worker = Worker::start(&OpenSettings {
            engine,
            directory: self.place.path(engine.name()),
            memtable_bytes: None,
            executor: ExecutorSettings::default(),
            residency: Some(load.residency()),
            tiers: None,
        })?;
        let figures = match worker.ask(&Command::Iot(load))? {
            Reply::IotRan(figures) if figures.batch == load.batch => *figures,
            Reply::IotRan(_) => {
                return Err(Error::Refused(format!(
                    "{engine} knows no --batch: its build is older than that"
                )));
            }
            other => return Err(worker.nonsense(&other)),
        };
        worker.quit()?;
        self.place.clear(engine.name())?;
        Ok(figures)
    }

    /// What the device gives now, if it is measured.
    fn measure(&mut self) -> Result<Option<f64>> {
        self.place.settle()?;
        if !self.gauge.is_on() {
            return Ok(None);
        }
        self.bar.set_message("the raw device");
        self.gauge.mb_per_s().map(Some)
    }
}

fn raw_figures(figures: &IotFigures, measured: Option<(f64, f64)>) -> RawFigures {
    let Some((before, after)) = measured else {
        return RawFigures::default();
    };
    let mean = f64::midpoint(before, after);
    RawFigures {
        raw_mb_per_s: Some(mean),
        raw_syncs_per_s: None,
        raw_drift: Some(after / before),
        raw_ratio: Some(figures.common.mb_per_s / mean),
    }
}
