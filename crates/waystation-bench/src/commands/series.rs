//! One engine, one process, one list of benchmarks in order: what both `db` and `compare` are made of.
//!
//! Around each benchmark that writes, the raw device is measured; if it changed its speed meanwhile, the run is
//! repeated, after bringing the database back to the state the benchmark starts from. What is measured after one
//! run counts as the measure before the next, if nothing happened between. Before and after such a benchmark the
//! page cache is written back, so that neither the device nor the next figure is charged with what this one left.

use crate::cli::Load;
use crate::engines::{EngineKind, ExecutorSettings, OpenSettings};
use crate::error::Result;
use crate::place::Place;
use crate::protocol::{Figures, RunCommand};
use crate::raw::{RawGauge, RawSettings, is_steady};
use crate::report::{Flags, RawFigures, Run};
use crate::session::Worker;
use crate::workload::{Benchmark, replay_before};
use indicatif::ProgressBar;

/// How often a run is tried until the device is steady.
const ATTEMPTS: u32 = 3;

/// Everything that series have in common.
pub(super) struct Series<'a> {
    load: &'a Load,
    place: &'a Place,
    bar: &'a ProgressBar,
    raw: RawSettings,
    gauge: RawGauge,
    /// The last measure of the device, if nothing was written since, and whether it counts syncs.
    last_measure: Option<(bool, f64)>,
}

/// Which series.
#[derive(Debug, Clone, Copy)]
pub(super) struct Which {
    pub(super) engine: EngineKind,
    pub(super) value_bytes: usize,
    pub(super) threads: u32,
    pub(super) round: u32,
}

impl<'a> Series<'a> {
    pub(super) fn new(load: &'a Load, place: &'a Place, bar: &'a ProgressBar) -> Result<Self> {
        let raw = load.raw()?;
        let gauge = RawGauge::new(raw, place.path("raw"))?;
        Ok(Self {
            load,
            place,
            bar,
            raw,
            gauge,
            last_measure: None,
        })
    }

    /// Runs all benchmarks on a fresh database, which is removed afterwards.
    pub(super) fn run(&mut self, which: Which) -> Result<Vec<Run>> {
        let name = which.engine.name();
        let settings = OpenSettings {
            engine: which.engine,
            directory: self.place.path(name),
            memtable_bytes: None,
            executor: ExecutorSettings::default(),
            residency: None,
            tiers: None,
        };
        let mut worker = Worker::start(&settings)?;
        let mut runs = Vec::new();
        for position in 0..self.load.benchmarks.len() {
            self.run_one(&mut worker, which, position, &mut runs)?;
            self.bar.inc(1);
        }
        worker.quit()?;
        self.place.clear(name)?;
        Ok(runs)
    }

    fn run_one(
        &mut self,
        worker: &mut Worker,
        which: Which,
        position: usize,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        let workload = self.load.benchmarks[position];
        let mut attempt = 1;
        loop {
            let before = self.measure(workload, true)?;
            let figures = self.execute(worker, which, position, "")?;
            let after = self.measure(workload, false)?;
            let raw = raw_figures(workload, which.threads, &figures, before.zip(after));
            let steady = before
                .zip(after)
                .is_none_or(|(before, after)| is_steady(before, after));
            let is_last = steady || attempt == ATTEMPTS;
            runs.push(Run {
                engine: which.engine,
                workload,
                threads: which.threads,
                value_bytes: which.value_bytes,
                figures,
                raw,
                round: which.round,
                attempt,
                discarded: !is_last,
                unstable: !steady && is_last,
                flags: Flags::new(which.engine, workload, self.load.num, &self.raw),
            });
            if is_last {
                return Ok(());
            }
            attempt += 1;
            for (earlier, _) in replay_before(&self.load.benchmarks, position) {
                self.execute(worker, which, earlier, " again")?;
                self.last_measure = None;
            }
        }
    }

    /// Has the worker run the benchmark at `position`.
    fn execute(
        &mut self,
        worker: &mut Worker,
        which: Which,
        position: usize,
        remark: &str,
    ) -> Result<Figures> {
        let benchmark = self.load.benchmarks[position];
        let message = format!("{} {benchmark}{remark}", which.engine);
        self.bar.set_message(message.clone());
        let command = RunCommand {
            benchmark,
            num: self.load.num,
            value_bytes: which.value_bytes,
            threads: which.threads,
            threads_before: which.threads * position as u32,
            wants_progress: !self.bar.is_hidden(),
        };
        worker.run(command, |share| {
            self.bar
                .set_message(format!("{message} {:.0} %", share * 100.0));
        })
    }

    /// What the device gives now, if it is measured for this benchmark.
    fn measure(&mut self, workload: Benchmark, is_before: bool) -> Result<Option<f64>> {
        if !workload.is_write() {
            self.last_measure = None;
            return Ok(None);
        }
        self.place.settle()?;
        if !self.gauge.is_on() {
            return Ok(None);
        }
        let is_sync = workload == Benchmark::FillSync;
        if let Some((was_sync, figure)) = self.last_measure.take()
            && is_before
            && was_sync == is_sync
        {
            return Ok(Some(figure));
        }
        self.bar.set_message("the raw device");
        let figure = if is_sync {
            self.gauge.syncs_per_s()?
        } else {
            self.gauge.mb_per_s()?
        };
        self.last_measure = (!is_before).then_some((is_sync, figure));
        Ok(Some(figure))
    }
}

fn raw_figures(
    workload: Benchmark,
    threads: u32,
    figures: &Figures,
    measured: Option<(f64, f64)>,
) -> RawFigures {
    let Some((before, after)) = measured else {
        return RawFigures::default();
    };
    let mean = f64::midpoint(before, after);
    let raw_drift = Some(after / before);
    if workload == Benchmark::FillSync {
        let raw_ratio = Some(figures.ops_per_s / (mean * f64::from(threads)));
        RawFigures {
            raw_mb_per_s: None,
            raw_syncs_per_s: Some(mean),
            raw_drift,
            raw_ratio,
        }
    } else {
        let raw_ratio = Some(figures.mb_per_s / mean);
        RawFigures {
            raw_mb_per_s: Some(mean),
            raw_syncs_per_s: None,
            raw_drift,
            raw_ratio,
        }
    }
}

/// Every combination of value length and threads, in order.
pub(super) fn shapes(load: &Load) -> Vec<(usize, u32)> {
    let of_value = |value_bytes: &usize| {
        let value_bytes = *value_bytes;
        load.threads
            .iter()
            .map(move |threads| (value_bytes, *threads))
    };
    load.value_bytes.iter().flat_map(of_value).collect()
}
