//! `placement`: a load and workloads of YCSB on a slow device, with what the policies keep on a fast one.

use super::progress_bar;
use crate::cli::PlacementArgs;
use crate::engines::{EngineKind, ExecutorSettings, OpenSettings};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::place::Place;
use crate::protocol::{Command, PhaseEnd, Reply};
use crate::report::Report;
use crate::session::Worker;
use crate::stolen::StolenMeter;
use crate::tiers::{PeakWatch, PlacementRun, Policy, Rig, TierSettings, predictions, rows, table};
use crate::workload::{IotFigures, YcsbFigures, YcsbLoad, YcsbPhase};
use indicatif::ProgressBar;
use waystation::PlacementStats;
use waystation::storage::OsStorage;

/// Memtables and cache of all engines: the process has little memory.
const MEMTABLE_BYTES: usize = 8 << 20;
const CACHE_BYTES: usize = 8 << 20;

/// Ingest, deletions, and the sum of all loads.
const LOADS_OF_PHASES: usize = 3;

/// How often a run is tried while the hypervisor takes away too much.
const ATTEMPTS: u32 = 3;

/// An engine, a policy and a part of the data.
type Combination = (EngineKind, Policy, f64);

/// Runs it and prints the rows.
pub(crate) fn placement(args: &PlacementArgs) -> Result<()> {
    let engines = args.engines()?;
    let combinations = combinations(&engines, args.policies()?, args.shares()?);
    let machine = Machine::here(&Place::new(&args.common.data_dir)?);
    let rig = Rig::build(&args.common.data_dir, &args.rig()?)?;
    let phases = if args.phases { LOADS_OF_PHASES } else { 1 };
    let loads = match args.devices() {
        Some(_) => 1,
        None => args.workloads()?.len() + phases + usize::from(args.graves),
    };
    let steps = combinations.len() * loads;
    let bar = progress_bar(steps as u64 * u64::from(args.runs));
    let mut runs = Vec::new();
    for round in 1..=args.runs {
        for combination in &combinations {
            let (engine, policy, share) = *combination;
            bar.set_message(format!("{engine}: {} {share}", policy.name()));
            for (load, figures) in run_quietly(&rig, args, *combination, &bar)? {
                runs.push(PlacementRun {
                    engine,
                    workload: "placement",
                    load,
                    capacity_share: share,
                    policy,
                    seconds: figures.seconds,
                    ops_per_s: figures.ops_per_s,
                    p99_us: figures.p99_us,
                    fast_peak_mb: figures.fast_peak_mb,
                    stolen: figures.stolen,
                    adapted_s: figures.adapted_s,
                    round,
                    placement: None,
                });
            }
            if matches!(policy, Policy::Own | Policy::Durable)
                && let Some(last) = runs.last_mut()
            {
                last.placement = told(&rig)?;
            }
        }
    }
    bar.finish_and_clear();
    drop(rig);
    let report = Report {
        machine,
        rows: rows(&runs),
        runs,
    };
    let json = args.common.json.as_deref();
    if json.is_none_or(|path| path.as_os_str() != "-") {
        println!(
            "{}\n{}\n{}",
            report.machine.summary(),
            table(&report.rows),
            predictions(&report.runs)
        );
    }
    json.map_or(Ok(()), |path| report.write_json(path))
}

/// Runs the loads of a combination, and again if the hypervisor took too much away meanwhile.
fn run_quietly(
    rig: &Rig,
    args: &PlacementArgs,
    combination: Combination,
    bar: &ProgressBar,
) -> Result<Vec<(&'static str, LoadFigures)>> {
    let mut attempt = 1;
    loop {
        let mut loads = Vec::new();
        let on_figures = |load, figures| {
            bar.inc(1);
            loads.push((load, figures));
        };
        Session::start(rig, args, combination)?.run(args, on_figures)?;
        let is_quiet = |figures: &LoadFigures| figures.stolen <= args.stolen_max;
        if attempt == ATTEMPTS || loads.iter().all(|(_, figures)| is_quiet(figures)) {
            return Ok(loads);
        }
        attempt += 1;
        bar.inc_length(loads.len() as u64);
    }
}

/// The figures of one load, or of all together.
#[derive(Debug, Clone, Copy, Default)]
struct LoadFigures {
    seconds: f64,
    operations: f64,
    ops_per_s: f64,
    p99_us: f64,
    fast_peak_mb: f64,
    stolen: f64,
    adapted_s: Option<f64>,
}

impl LoadFigures {
    /// Writes are done when what they have left to the background is done.
    fn of(phase: YcsbPhase, figures: &YcsbFigures) -> Self {
        let common = &figures.common;
        let after = match phase {
            YcsbPhase::Load | YcsbPhase::Delete => common.idle_after_s,
            YcsbPhase::Run(_) | YcsbPhase::Graves => 0.0,
        };
        Self {
            seconds: common.seconds + after,
            operations: common.ops_per_s * common.seconds,
            ops_per_s: common.ops_per_s,
            p99_us: common.p99_us,
            adapted_s: figures.adapted_s,
            ..Self::default()
        }
    }

    /// Devices write for some time, however many inserts that makes: the seconds are those that `inserts` take, with what they
    /// leave to the background.
    fn of_devices(figures: &IotFigures, inserts: u32) -> Self {
        let common = &figures.common;
        let elapsed = common.seconds + common.idle_after_s;
        Self {
            seconds: elapsed * f64::from(inserts) / common.ops.max(1) as f64,
            operations: common.ops as f64,
            ops_per_s: common.ops_per_s,
            p99_us: common.p99_us,
            ..Self::default()
        }
    }

    /// All loads so far and `next`, one after the other.
    fn add(&mut self, next: &Self) {
        self.seconds += next.seconds;
        self.operations += next.operations;
        self.ops_per_s = self.operations / self.seconds;
        self.p99_us = self.p99_us.max(next.p99_us);
        self.fast_peak_mb = self.fast_peak_mb.max(next.fast_peak_mb);
        self.stolen = self.stolen.max(next.stolen);
    }
}

/// What there is to run: nothing on the fast device once, every other policy with every part of the data.
fn combinations(engines: &[EngineKind], policies: &[Policy], shares: &[f64]) -> Vec<Combination> {
    let mut all = Vec::new();
    for engine in engines {
        let is_ours = engine.version() == EngineKind::Waystation.version();
        for policy in policies {
            match policy {
                Policy::None => all.push((*engine, *policy, 0.0)),
                Policy::Own | Policy::Durable | Policy::Tables | Policy::Cache if !is_ours => {}
                _ => all.extend(shares.iter().map(|share| (*engine, *policy, *share))),
            }
        }
    }
    all
}

/// An engine that is open on both devices.
struct Session {
    worker: Worker,
    peak: PeakWatch,
    stolen: StolenMeter,
}

impl Session {
    fn start(
        rig: &Rig,
        args: &PlacementArgs,
        (engine, policy, share): Combination,
    ) -> Result<Self> {
        rig.clear()?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of the data is some bytes"
        )]
        let capacity_bytes = ((args.data_bytes() as f64 * share) as u64).max(1 << 20);
        if args.confined && policy != Policy::None {
            rig.confine_fast(capacity_bytes)?;
        }
        let worker = Worker::start(&OpenSettings {
            engine,
            directory: rig.slow().join("db"),
            memtable_bytes: Some(MEMTABLE_BYTES),
            executor: ExecutorSettings::default(),
            residency: args.devices().map(|load| load.residency()),
            tiers: Some(TierSettings {
                policy,
                directory: rig.fast().join("db"),
                capacity_bytes,
                is_confined: args.confined,
                cache_bytes: CACHE_BYTES,
            }),
        })?;
        rig.limit(worker.process())?;
        let peak = PeakWatch::start(&rig.fast())?;
        let stolen = StolenMeter::start()?;
        Ok(Self {
            worker,
            peak,
            stolen,
        })
    }

    /// Runs devices; or ingest, the workloads, and what follows them.
    fn run(
        mut self,
        args: &PlacementArgs,
        mut on_figures: impl FnMut(&'static str, LoadFigures),
    ) -> Result<()> {
        if let Some(load) = args.devices() {
            let figures = match self.worker.ask(&Command::Iot(load))? {
                Reply::IotRan(figures) => figures,
                other => return Err(self.worker.nonsense(&other)),
            };
            let figures = LoadFigures::of_devices(&figures, args.load().records);
            on_figures("iot", self.watched(figures)?);
            return self.worker.quit();
        }
        let mut sum = LoadFigures::default();
        let phases = [YcsbPhase::Load].into_iter();
        let phases = phases.chain(args.workloads()?.into_iter().map(YcsbPhase::Run));
        let last = match (args.phases, args.graves) {
            (true, _) => Some(YcsbPhase::Delete),
            (_, true) => Some(YcsbPhase::Graves),
            _ => None,
        };
        for phase in phases.chain(last) {
            let name = match phase {
                YcsbPhase::Load => "ingest",
                YcsbPhase::Run(workload) => {
                    Rig::drop_caches()?;
                    workload.name()
                }
                YcsbPhase::Delete => "delete",
                YcsbPhase::Graves => "graves",
            };
            // What was taken away between the loads is none of theirs.
            self.stolen.take()?;
            let figures = ask(&mut self.worker, phase, args.load())?;
            let figures = self.watched(LoadFigures::of(phase, &figures))?;
            sum.add(&figures);
            on_figures(name, figures);
        }
        if args.phases {
            on_figures("phases", sum);
        }
        self.worker.quit()
    }

    /// The figures of a load that has just ended, with what was seen beside it.
    fn watched(&mut self, figures: LoadFigures) -> Result<LoadFigures> {
        Ok(LoadFigures {
            fast_peak_mb: self.peak.take()? as f64 / 1e6,
            stolen: self.stolen.take()?,
            ..figures
        })
    }
}

/// What the database said of its fast directory when it was closed.
fn told(rig: &Rig) -> Result<Option<PlacementStats>> {
    let directory = rig.slow().join("db");
    PlacementStats::read(&*OsStorage::new(), &directory)
        .map_err(|error| Error::engine("waystation", "read the report of", error))
}

fn ask(worker: &mut Worker, phase: YcsbPhase, load: YcsbLoad) -> Result<YcsbFigures> {
    let end = match phase {
        // Merges that are not due go on while the next load runs, and cost that.
        YcsbPhase::Load => PhaseEnd::NothingDue,
        _ => PhaseEnd::AtRest,
    };
    match worker.ask(&Command::Ycsb { phase, load, end })? {
        Reply::YcsbRan(figures) => Ok(*figures),
        other => Err(worker.nonsense(&other)),
    }
}
