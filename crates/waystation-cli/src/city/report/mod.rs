//! What a run has to tell: as text, as JSON, and as a page with plots.

mod html;
mod text;

pub(crate) use html::html;
pub(crate) use text::text;

use super::args::{City, Survives};
use super::audit::Verdict;
use super::drive::{CellFigures, Run, Sample};
use super::machine;
use super::meters::{Counts, Percentiles};
use super::trace::{BOLOGNA_TERMS, Trace};
use serde::Serialize;
use std::time::Duration;

/// The whole report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// What the trace is called.
    pub(crate) trace: String,
    /// Whose it is, if it came with the command.
    pub(crate) terms: Option<&'static str>,
    pub(crate) vehicles: usize,
    pub(crate) cells: usize,
    pub(crate) settings: Settings,
    /// One run after the other.
    pub(crate) engines: Vec<EngineReport>,
}

/// What was asked for.
#[derive(Debug, Serialize)]
pub(crate) struct Settings {
    pub(crate) readings_per_second: f64,
    pub(crate) value_bytes: u32,
    pub(crate) sensors: u32,
    pub(crate) queries_per_second: f64,
    pub(crate) threads: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) hand_offs_survive: Survives,
    pub(crate) reopen_every_s: u32,
}

impl Report {
    /// One without runs.
    pub(crate) fn new(args: &City, trace: &Trace) -> Self {
        Self {
            trace: trace.name.clone(),
            terms: args.trace.is_none().then_some(BOLOGNA_TERMS),
            vehicles: trace.vehicles(),
            cells: trace.cells.len(),
            settings: Settings {
                readings_per_second: args.readings_per_second,
                value_bytes: args.value_bytes,
                sensors: args.sensors,
                queries_per_second: args.queries_per_second,
                threads: args.threads,
                memory_bytes: args.memory,
                hand_offs_survive: args.hand_offs_survive,
                reopen_every_s: args.reopen_every,
            },
            engines: Vec::new(),
        }
    }

    /// Whether no audit found anything.
    pub(crate) fn is_clean(&self) -> bool {
        self.engines.iter().all(|engine| engine.audit.is_clean())
    }
}

/// Which engine ran.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    /// What it was set to.
    pub(crate) settings: String,
}

/// The process before a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    cpu: Duration,
    written_bytes: u64,
    memory_bytes: u64,
}

impl Before {
    /// As it is.
    pub(crate) fn now() -> Self {
        Self {
            cpu: machine::cpu_time(),
            written_bytes: machine::written_bytes(),
            memory_bytes: machine::memory_bytes(),
        }
    }
}

/// One engine's run.
#[derive(Debug, Serialize)]
pub(crate) struct EngineReport {
    pub(crate) engine: &'static str,
    pub(crate) settings: String,
    /// The city's time at the end (seconds).
    pub(crate) city_s: u32,
    /// Whether somebody ended the run early.
    pub(crate) was_stopped: bool,
    /// Driving, without opening, closing and auditing whole engines (seconds).
    pub(crate) elapsed_s: f64,
    /// All of it (seconds).
    pub(crate) elapsed_in_all_s: f64,
    pub(crate) reopened: u32,
    pub(crate) counts: Counts,
    /// Readings sent in a second of driving; those that hand-offs carried are not among them.
    pub(crate) readings_per_s: f64,
    /// The same for those that hand-offs carried.
    pub(crate) handed_records_per_s: f64,
    pub(crate) put: Percentiles,
    pub(crate) hand_off: Percentiles,
    pub(crate) depart: Percentiles,
    pub(crate) settle: Percentiles,
    pub(crate) latest: Percentiles,
    pub(crate) range: Percentiles,
    pub(crate) windows: Percentiles,
    /// Of the queries that were watched, the share that read storage.
    pub(crate) queries_from_storage: f64,
    /// What all threads' audits took together (seconds).
    pub(crate) audit_thread_s: f64,
    /// What the process wrote to storage (bytes).
    pub(crate) written_bytes: u64,
    /// That, for each byte of readings sent: what hand-offs carry counts as amplification.
    pub(crate) written_per_sent_byte: f64,
    /// That, for each byte of readings sent or carried by hand-offs.
    pub(crate) write_amplification: f64,
    /// Processor time of the whole run (seconds).
    pub(crate) cpu_s: f64,
    /// The part of it for driving, without opening, closing and looking at the engines' files (seconds).
    pub(crate) driving_cpu_s: f64,
    /// That, for each reading sent (microseconds).
    pub(crate) driving_cpu_us_per_reading: f64,
    /// The most that the engines' files took at a sample (bytes).
    pub(crate) most_disk_bytes: u64,
    /// The most memory that the process had, and what it had before.
    pub(crate) peak_memory_bytes: u64,
    pub(crate) memory_before_bytes: u64,
    pub(crate) audit: Verdict,
    pub(crate) cells: Vec<CellFigures>,
    pub(crate) samples: Vec<Sample>,
}

impl EngineReport {
    /// The report of a run.
    pub(crate) fn new(engine: Engine, run: Run, before: &Before) -> Self {
        let counts = run.meters.counts;
        let driving_cpu_s = run.driving_cpu.as_secs_f64();
        let elapsed_s = run.elapsed.as_secs_f64();
        let written_bytes = machine::written_bytes() - before.written_bytes;
        let disk = run.samples.iter().map(|sample| sample.disk_bytes);
        let [latest, range, windows] = &run.meters.queries;
        Self {
            engine: engine.name,
            settings: engine.settings,
            city_s: run.city_s,
            was_stopped: run.was_stopped,
            elapsed_s,
            elapsed_in_all_s: run.elapsed_in_all.as_secs_f64(),
            reopened: run.reopened,
            counts,
            readings_per_s: ratio(counts.readings as f64, elapsed_s),
            handed_records_per_s: ratio(counts.handed_records as f64, elapsed_s),
            put: run.meters.put.percentiles(),
            hand_off: run.meters.hand_off.percentiles(),
            depart: run.meters.depart.percentiles(),
            settle: run.meters.settle.percentiles(),
            latest: latest.percentiles(),
            range: range.percentiles(),
            windows: windows.percentiles(),
            queries_from_storage: ratio(
                counts.storage_queries as f64,
                counts.watched_queries as f64,
            ),
            audit_thread_s: run.meters.audit.as_secs_f64(),
            written_bytes,
            written_per_sent_byte: ratio(written_bytes as f64, counts.reading_bytes as f64),
            write_amplification: ratio(
                written_bytes as f64,
                (counts.reading_bytes + counts.handed_bytes) as f64,
            ),
            cpu_s: machine::cpu_time().saturating_sub(before.cpu).as_secs_f64(),
            driving_cpu_s,
            driving_cpu_us_per_reading: ratio(driving_cpu_s * 1e6, counts.readings as f64),
            most_disk_bytes: disk.max().unwrap_or(0),
            peak_memory_bytes: machine::peak_memory_bytes(),
            memory_before_bytes: before.memory_bytes,
            audit: run.verdict,
            cells: run.cells,
            samples: run.samples,
        }
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// A row of figures for all engines: what it is, and how an engine's is written.
type Row = (&'static str, fn(&EngineReport) -> String);

/// The rows that text and page show.
fn rows() -> Vec<Row> {
    use crate::output::{bytes_text, count_text};
    vec![
        ("city time", |it| format!("{} min", it.city_s / 60)),
        ("driven in", |it| format!("{:.1} s", it.elapsed_s)),
        ("with opening, closing and auditing", |it| {
            format!("{:.1} s", it.elapsed_in_all_s)
        }),
        ("readings sent", |it| count_text(it.counts.readings)),
        ("readings sent a second", |it| {
            count_text(whole(it.readings_per_s))
        }),
        ("bytes sent", |it| bytes_text(it.counts.reading_bytes)),
        ("hand-offs", |it| count_text(it.counts.hand_offs)),
        ("readings handed over", |it| {
            count_text(it.counts.handed_records)
        }),
        ("bytes handed over", |it| bytes_text(it.counts.handed_bytes)),
        ("departures", |it| count_text(it.counts.departures)),
        ("settled vehicles", |it| count_text(it.counts.settled)),
        (
            "learned residency, shortest / median / longest",
            residencies,
        ),
        ("put p50 / p99 / p99.9 / max", |it| latency(&it.put)),
        ("hand-off p50 / p99 / p99.9 / max", |it| {
            latency(&it.hand_off)
        }),
        ("departure p50 / p99 / p99.9 / max", |it| {
            latency(&it.depart)
        }),
        ("settling p50 / p99 / p99.9 / max", |it| latency(&it.settle)),
        ("queries: latest, p50 / p99 / p99.9 / max", |it| {
            latency(&it.latest)
        }),
        ("queries: range", |it| latency(&it.range)),
        ("queries: windows", |it| latency(&it.windows)),
        ("queries answered", |it| {
            count_text(it.latest.count + it.range.count + it.windows.count)
        }),
        ("  of them from storage", |it| {
            format!("{:.0} %", it.queries_from_storage * 100.0)
        }),
        ("  of them wrong", |it| count_text(it.audit.wrong_answers)),
        ("written to storage", |it| bytes_text(it.written_bytes)),
        ("  per byte sent or handed over", |it| {
            format!("{:.2}", it.write_amplification)
        }),
        ("  per byte sent", |it| {
            format!("{:.2}", it.written_per_sent_byte)
        }),
        ("processor time", |it| format!("{:.1} s", it.cpu_s)),
        ("  of it driving", |it| format!("{:.1} s", it.driving_cpu_s)),
        ("  of that, for each reading", |it| {
            format!("{:.1} us", it.driving_cpu_us_per_reading)
        }),
        ("audit during the drive, all threads", |it| {
            format!("{:.1} s", it.audit_thread_s)
        }),
        ("most disk", |it| bytes_text(it.most_disk_bytes)),
        ("most memory (before the run)", |it| {
            let before = bytes_text(it.memory_before_bytes);
            format!("{} ({before})", bytes_text(it.peak_memory_bytes))
        }),
        ("lost / doubled / left behind", |it| {
            let audit = &it.audit;
            format!("{} / {} / {}", audit.lost, audit.doubled, audit.left_behind)
        }),
    ]
}

/// The whole part of a number that is not negative.
#[expect(clippy::cast_sign_loss, reason = "it is not negative")]
pub(super) fn whole(number: f64) -> u64 {
    number.max(0.0) as u64
}

/// What the cells have learned: the shortest, the middle and the longest residency.
fn residencies(engine: &EngineReport) -> String {
    let mut all: Vec<u32> = engine.cells.iter().map(|cell| cell.residency_s).collect();
    all.sort_unstable();
    match (all.first(), all.get(all.len() / 2), all.last()) {
        (Some(least), Some(middle), Some(most)) => format!("{least} / {middle} / {most} s"),
        _ => "-".into(),
    }
}

fn latency(percentiles: &Percentiles) -> String {
    if percentiles.count == 0 {
        return "-".into();
    }
    let times = [
        percentiles.p50_us,
        percentiles.p99_us,
        percentiles.p999_us,
        percentiles.max_us,
    ];
    times.map(duration).join(" / ")
}

fn duration(micros: f64) -> String {
    if micros < 1_000.0 {
        format!("{micros:.0} us")
    } else {
        format!("{:.1} ms", micros / 1e3)
    }
}
