//! `offload`: random puts while merges run in the engine's process, or elsewhere.

use super::progress_bar;
use crate::cli::{ExecutorKind, OffloadArgs};
use crate::cores::{on_core, two_cores};
use crate::engines::{EngineKind, ExecutorSettings, OpenSettings};
use crate::error::Result;
use crate::machine::Machine;
use crate::offload::Merger;
use crate::place::Place;
use crate::protocol::{Command, Reply};
use crate::report::Report;
use crate::session::Worker;
use crate::stats::median_index;
use crate::workload::{OffloadFigures, OffloadLoad};
use indicatif::ProgressBar;
use serde::Serialize;
use std::fmt::Write;

/// Parts of a run, for its progress.
const STEPS: u64 = 100;

/// The processors that engine and clients may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Cores {
    One,
    Both,
}

/// The executor of merges, and the cores of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    executor: ExecutorKind,
    cores: Cores,
}

/// The case that ratios are of.
const BASE: Case = Case {
    executor: ExecutorKind::Local,
    cores: Cores::One,
};

impl Case {
    /// The cases of `executors`: the engine alone has one core, or both.
    fn all(executors: &[ExecutorKind]) -> Vec<Self> {
        let others = executors.iter().map(|executor| Self {
            executor: *executor,
            cores: Cores::Both,
        });
        [BASE].into_iter().chain(others).collect()
    }

    /// What it is, for people.
    fn name(self) -> &'static str {
        match (self.executor, self.cores) {
            (ExecutorKind::Local, Cores::One) => "alone on one core",
            (ExecutorKind::Local, Cores::Both) => "alone on both cores",
            (ExecutorKind::Worker, _) => "worker on the other core",
            (ExecutorKind::Drive, _) => "modelled drive",
            (ExecutorKind::Rtl, _) => "simulated hardware",
        }
    }

    /// What merges in another process; nothing if the engine does.
    fn engine(self) -> Option<&'static str> {
        match self.executor {
            ExecutorKind::Local => None,
            ExecutorKind::Worker => Some("processor"),
            ExecutorKind::Drive => Some("drive"),
            ExecutorKind::Rtl => Some("hardware"),
        }
    }
}

/// A run, or the median run of several.
#[derive(Debug, Clone, Serialize)]
struct OffloadRow {
    engine: EngineKind,
    workload: &'static str,
    executor: ExecutorKind,
    value_bytes: usize,
    /// Processors of engine and whatever merges for it, together.
    cores: Cores,
    run: u32,
    memtable_bytes: usize,
    ops_per_s: f64,
    /// To the median of the engine alone on one core.
    ratio_to_local: f64,
    host_cpu_us_per_record: f64,
    /// The part of the processor time of the engine's process that merges took.
    merge_share: f64,
    p999_us: f64,
    share_offloaded: f64,
    /// Processor time of the process that merges, in microseconds per record; 0 if there is none.
    worker_cpu_us_per_record: f64,
    details: OffloadFigures,
}

/// Runs it and prints the rows.
pub(crate) fn offload(args: &OffloadArgs) -> Result<()> {
    let cases = Case::all(&args.executors()?);
    let loads = args.loads()?;
    let rig = Rig {
        place: Place::new(&args.data_dir)?,
        cores: two_cores()?,
        memtable_bytes: args.memtable_bytes(),
    };
    let machine = Machine::here(&rig.place);
    let bar = progress_bar((loads.len() * cases.len()) as u64 * u64::from(args.runs) * STEPS);
    let mut runs = Vec::new();
    for (value_bytes, num) in loads {
        for run in 1..=args.runs {
            // Each round begins with another case, so that none always follows the same one.
            let first = (run as usize - 1) % cases.len();
            for case in cases[first..].iter().chain(&cases[..first]) {
                bar.set_message(format!("{}, {value_bytes} bytes", case.name()));
                runs.push(rig.run(*case, OffloadLoad { num, value_bytes }, run, &bar)?);
            }
        }
    }
    bar.finish_and_clear();
    let report = Report {
        machine,
        rows: rows(&mut runs),
        runs,
    };
    let json = args.json.as_deref();
    if json.is_none_or(|path| path.as_os_str() != "-") {
        println!("{}\n{}", report.machine.summary(), table(&report.rows));
    }
    json.map_or(Ok(()), |path| report.write_json(path))
}

/// What all runs have in common.
struct Rig {
    place: Place,
    cores: [usize; 2],
    memtable_bytes: usize,
}

impl Rig {
    /// Runs `case` in a fresh database.
    fn run(
        &self,
        case: Case,
        load: OffloadLoad,
        run: u32,
        bar: &ProgressBar,
    ) -> Result<OffloadRow> {
        let engine = EngineKind::Waystation;
        let begun = bar.position();
        self.place.settle()?;
        let start = |engine| {
            let (socket, allowed) = (self.place.path("worker"), self.place.path(""));
            Merger::start(&socket, &allowed, engine, self.cores[1])
        };
        let merger = case.engine().map(start).transpose()?;
        let settings = OpenSettings {
            engine,
            directory: self.place.path(engine.name()),
            memtable_bytes: Some(self.memtable_bytes),
            executor: merger.as_ref().map_or(ExecutorSettings::Local, |it| {
                ExecutorSettings::Worker(it.address.clone())
            }),
            residency: None,
            tiers: None,
        };
        let mut worker = self.start_engine(case, &settings)?;
        // Processor seconds of the worker when the counted half of the puts begins, and now.
        let mut spent_s: Option<(f64, f64)> = None;
        #[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
        let mut told = |share: f64| {
            bar.set_position(begun + (share * STEPS as f64) as u64);
            if share >= 0.5 {
                let now_s = merger.as_ref().map_or(0.0, Merger::cpu_s);
                spent_s = Some((spent_s.map_or(now_s, |spent| spent.0), now_s));
            }
        };
        let figures = match worker.ask_long(&Command::Offload(load), &mut told)? {
            Reply::OffloadRan(figures) => *figures,
            other => return Err(worker.nonsense(&other)),
        };
        worker.quit()?;
        self.place.clear(engine.name())?;
        bar.set_position(begun + STEPS);
        let worker_cpu_s = spent_s.map_or(0.0, |(from, to)| to - from);
        Ok(OffloadRow {
            memtable_bytes: self.memtable_bytes,
            run,
            ..row_of(case, load.value_bytes, figures, worker_cpu_s)
        })
    }

    /// Starts the engine's process on the cores of `case`.
    fn start_engine(&self, case: Case, settings: &OpenSettings) -> Result<Worker> {
        let start = || Worker::start(settings);
        match case {
            Case {
                executor: ExecutorKind::Local,
                cores: Cores::Both,
            } => start(),
            _ => on_core(self.cores[0], start)?,
        }
    }
}

/// The figures of a run, before it is placed among others.
fn row_of(
    case: Case,
    value_bytes: usize,
    figures: OffloadFigures,
    worker_cpu_s: f64,
) -> OffloadRow {
    let per_record = |seconds: f64| seconds * 1e6 / figures.ops.max(1) as f64;
    OffloadRow {
        engine: EngineKind::Waystation,
        workload: "offload",
        executor: case.executor,
        value_bytes,
        cores: case.cores,
        run: 0,
        memtable_bytes: 0,
        ops_per_s: figures.ops_per_s,
        ratio_to_local: 0.0,
        host_cpu_us_per_record: per_record(figures.host_cpu_s),
        merge_share: figures.host_merge_cpu_s / figures.host_cpu_s.max(1e-9),
        p999_us: figures.p999_us,
        share_offloaded: figures.share_offloaded,
        worker_cpu_us_per_record: per_record(worker_cpu_s),
        details: figures,
    }
}

/// The median runs, in the order in which their cases first appear; every ratio is to the first of them.
fn rows(runs: &mut [OffloadRow]) -> Vec<OffloadRow> {
    let key = |row: &OffloadRow| (row.value_bytes, row.executor, row.cores);
    let mut keys = Vec::new();
    for run in &*runs {
        if !keys.contains(&key(run)) {
            keys.push(key(run));
        }
    }
    let median = |wanted| {
        let group: Vec<&OffloadRow> = runs.iter().filter(|run| key(run) == wanted).collect();
        let median = median_index(&group, |run| run.ops_per_s)?;
        Some(group[median].clone())
    };
    let mut rows: Vec<OffloadRow> = keys.into_iter().filter_map(median).collect();
    let is_base = |row: &OffloadRow| (row.executor, row.cores) == (BASE.executor, BASE.cores);
    let bases: Vec<(usize, f64)> = rows
        .iter()
        .filter(|row| is_base(row))
        .map(|row| (row.value_bytes, row.ops_per_s))
        .collect();
    for row in rows.iter_mut().chain(runs) {
        let base = bases.iter().find(|(bytes, _)| *bytes == row.value_bytes);
        row.ratio_to_local = base.map_or(0.0, |(_, ops_per_s)| row.ops_per_s / ops_per_s);
    }
    rows
}

fn table(rows: &[OffloadRow]) -> String {
    let mut text = format!(
        "{:<9} {:<6} {:>6} {:>9} {:>6} {:>11} {:>12} {:>6} {:>8} {:>10} {:>9} {:>9} {:>8}  merged here (reason jobs)\n",
        "executor",
        "cores",
        "value",
        "ops/s",
        "ratio",
        "host us/op",
        "worker us/op",
        "merge",
        "offload",
        "p99.9 us",
        "L0 MB/s",
        "L1+ MB/s",
        "debt MB",
    );
    for row in rows {
        let details = &row.details;
        let reasons = details.local.iter();
        let reasons: Vec<String> = reasons.map(|(why, jobs)| format!("{why} {jobs}")).collect();
        let _ = writeln!(
            text,
            "{:<9} {:<6} {:>6} {:>9.0} {:>6.2} {:>11.2} {:>12.2} {:>6.2} {:>8.2} {:>10.1} {:>9.1} {:>9.1} {:>8.1}  {}",
            format!("{:?}", row.executor).to_lowercase(),
            format!("{:?}", row.cores).to_lowercase(),
            row.value_bytes,
            row.ops_per_s,
            row.ratio_to_local,
            row.host_cpu_us_per_record,
            row.worker_cpu_us_per_record,
            row.merge_share,
            row.share_offloaded,
            row.p999_us,
            details.level0_mb_per_s,
            details.deeper_mb_per_s,
            details.debt_mb[1],
            reasons.join(", "),
        );
    }
    if let Some(row) = rows.first() {
        let _ = writeln!(text, "memtables of {} bytes", row.memtable_bytes);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::Merges;
    use crate::workload::between;
    use std::time::Duration;

    fn run(case: Case, value_bytes: usize, ops_per_s: f64) -> OffloadRow {
        let of = |cpu_s| Merges {
            cpu: Duration::from_secs(cpu_s),
            read_bytes: (30 * cpu_s, 10 * cpu_s),
            ..Merges::default()
        };
        let figures = OffloadFigures {
            ops: 1_000_000,
            ops_per_s,
            host_cpu_s: 10.0,
            ..between(&of(1), &of(5))
        };
        row_of(case, value_bytes, figures, 2.0)
    }

    #[test]
    fn ratios_are_to_the_median_of_the_engine_alone_on_one_core() {
        let cases = Case::all(&[ExecutorKind::Local, ExecutorKind::Worker]);
        assert_eq!(cases.len(), 3);
        let mut runs = Vec::new();
        for value_bytes in [100, 1000] {
            for (at, case) in cases.iter().enumerate() {
                for speed in [90.0, 100.0, 140.0] {
                    let ops_per_s = speed * (at + 1) as f64 * value_bytes as f64;
                    runs.push(run(*case, value_bytes, ops_per_s));
                }
            }
        }
        let rows = rows(&mut runs);
        let ratios: Vec<f64> = rows.iter().map(|row| row.ratio_to_local).collect();
        assert_eq!(ratios, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
        assert!((runs[0].ratio_to_local - 0.9).abs() < 1e-9);
        let told = table(&rows);
        assert_eq!(told.lines().count(), 8, "{told}");
    }

    #[test]
    fn figures_are_those_between_two_looks() {
        let row = run(BASE, 100, 1e5);
        assert!((row.merge_share - 0.4).abs() < 1e-9);
        assert!((row.share_offloaded - 0.75).abs() < 1e-9);
        assert!((row.host_cpu_us_per_record - 10.0).abs() < 1e-9);
        assert!((row.worker_cpu_us_per_record - 2.0).abs() < 1e-9);
    }
}
