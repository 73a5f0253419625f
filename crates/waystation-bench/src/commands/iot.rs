//! `iot`: devices that come, settle or leave, on every engine, several times, engines taking turns.
//!
//! The raw device is measured before and after each run; if it changed its speed meanwhile, the run is repeated on a
//! fresh database.

use super::progress_bar;
use crate::cli::IotArgs;
use crate::engines::{EngineKind, OpenSettings};
use crate::error::Result;
use crate::machine::Machine;
use crate::place::Place;
use crate::protocol::{Command, Reply};
use crate::raw::{RawGauge, RawSettings, is_steady};
use crate::report::{IotRun, RawFigures, Report, iot_rows, iot_table};
use crate::session::Worker;
use crate::workload::{DEVICES, IOT_VALUE_BYTES, IotFigures, IotLoad};
use indicatif::ProgressBar;

/// How often a run is tried until the device is steady.
const ATTEMPTS: u32 = 3;
/// At least so much of Waystation's log was freed, and used again, in a run that counts: its segments have 64 MiB.
const RECYCLED_MB: f64 = 67.2;

/// Runs it and prints the rows.
pub(crate) fn iot(args: &IotArgs) -> Result<()> {
    let engines = args.common.engines()?;
    let load = args.load()?;
    let raw = args.raw.settings()?;
    let place = Place::new(&args.common.data_dir)?;
    let machine = Machine::here(&place);
    let bar = progress_bar(engines.len() as u64 * u64::from(args.runs));
    let mut bench = Bench {
        load,
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
            bench.run(*engine, round, &mut runs)?;
            bar.inc(1);
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
    load: IotLoad,
    raw: RawSettings,
    gauge: RawGauge,
    place: &'a Place,
    bar: &'a ProgressBar,
}

impl Bench<'_> {
    /// One run that counts, and those before it that did not.
    fn run(&mut self, engine: EngineKind, round: u32, runs: &mut Vec<IotRun>) -> Result<()> {
        for attempt in 1..=ATTEMPTS {
            let before = self.measure()?;
            let figures = self.execute(engine)?;
            let measured = before.zip(self.measure()?);
            let steady = measured.is_none_or(|(before, after)| is_steady(before, after));
            let is_last = steady || attempt == ATTEMPTS;
            let raw = raw_figures(&figures, measured);
            runs.push(IotRun {
                engine,
                workload: "iot",
                value_bytes: IOT_VALUE_BYTES,
                devices: DEVICES,
                residency_s: self.load.residency().as_secs_f64(),
                flags: self.load,
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
                break;
            }
        }
        Ok(())
    }

    /// The load on a fresh database, which is removed afterwards.
    fn execute(&self, engine: EngineKind) -> Result<IotFigures> {
        let seconds = self.load.seconds;
        self.bar
            .set_message(format!("{engine}: {seconds} s of devices"));
        let mut worker = Worker::start(&OpenSettings {
            engine,
            directory: self.place.path(engine.name()),
            memtable_bytes: None,
            residency: Some(self.load.residency()),
        })?;
        let figures = match worker.ask(&Command::Iot(self.load))? {
            Reply::IotRan(figures) => *figures,
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
