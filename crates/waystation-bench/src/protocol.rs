//! What the parent and the process that runs an engine say to each other: one JSON value per line.
//!
//! The worker says `Ready` once the database is open, answers every command with one reply (after any number
//! of `Progress`), and ends after `Quit`, or at once when the parent is gone.

use crate::workload::{
    Benchmark, DeletionLoad, DeletionRow, DepartureFigures, DepartureLoad, IotFigures, IotLoad,
    OffloadFigures, OffloadLoad, PauseFigures, PauseLoad, YcsbFigures, YcsbLoad, YcsbPhase,
};
use serde::{Deserialize, Serialize};

/// What the parent asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    /// One benchmark.
    Run(RunCommand),
    /// Puts at full speed, in search of pauses.
    Pauses(PauseLoad),
    /// Random puts while merges run, here or elsewhere.
    Offload(OffloadLoad),
    /// Devices that come, settle or leave, in a fresh database.
    Iot(IotLoad),
    /// A device with very much data departs.
    Departure(DepartureLoad),
    /// The load of YCSB, or one of its workloads.
    Ycsb {
        /// Which.
        phase: YcsbPhase,
        /// How much.
        load: YcsbLoad,
        /// When it is over.
        end: PhaseEnd,
    },
    /// A scenario of deletions, in databases of its own.
    Deletions(DeletionLoad),
    /// Scattered keys, until they and their values make up so many bytes.
    Fill {
        /// Keys and values.
        bytes: u64,
        /// The length of every value.
        value_bytes: usize,
        /// Whose they are, in turn; 0 for nobody's.
        devices: u32,
    },
    /// Are the first `entries` scattered keys there? One in `every` is looked for.
    Check {
        /// How many were put.
        entries: u32,
        /// The length of every value.
        value_bytes: usize,
        /// Whose they are, in turn; 0 for nobody's.
        devices: u32,
        /// Not 0.
        every: u32,
    },
    /// Close and end.
    Quit,
}

/// When a phase is over: the next one begins then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PhaseEnd {
    /// When the engine is at rest.
    AtRest,
    /// When no flush and no compaction is due. Compactions that an engine does without need go on in the next phase.
    NothingDue,
}

/// One benchmark, and how much of it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct RunCommand {
    /// Which.
    pub(crate) benchmark: Benchmark,
    /// The size of the key space, and of most benchmarks.
    pub(crate) num: u32,
    /// The length of every value.
    pub(crate) value_bytes: usize,
    /// Threads.
    pub(crate) threads: u32,
    /// How many threads ran in the benchmarks before this one.
    pub(crate) threads_before: u32,
    /// Whether anybody looks at the progress.
    pub(crate) wants_progress: bool,
}

/// What the worker answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// The database is open.
    Ready {
        /// How long opening took.
        open_s: f64,
    },
    /// So far, of so much.
    Progress {
        /// Operations done.
        done: u64,
        /// Operations to do.
        total: u64,
    },
    /// A benchmark ran.
    Ran(Box<Figures>),
    /// Puts at full speed were done.
    Paused(PauseFigures),
    /// Random puts were done while merges ran.
    OffloadRan(Box<OffloadFigures>),
    /// Devices came, settled or left.
    IotRan(Box<IotFigures>),
    /// The device has departed.
    Departed(Box<DepartureFigures>),
    /// A phase of YCSB ran.
    YcsbRan(Box<YcsbFigures>),
    /// A scenario of deletions ran.
    Deleted(Vec<DeletionRow>),
    /// So many scattered keys were put.
    Filled {
        /// How many.
        entries: u32,
    },
    /// So many of the scattered keys are not there.
    Checked {
        /// How many.
        missing: u32,
    },
    /// It did not work.
    Failed {
        /// Why, as a sentence.
        message: String,
    },
}

/// The figures of one benchmark, as they stand in the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Operations done, by all threads.
    pub(crate) ops: u64,
    /// Of the reads, those that found their key; nothing for writes.
    pub(crate) found: Option<u64>,
    /// From the first operation's start to the last one's end.
    pub(crate) seconds: f64,
    /// Operations per second, of all threads together.
    pub(crate) ops_per_s: f64,
    /// Bytes of keys and values written, or read and found, per second, in units of 10^6.
    pub(crate) mb_per_s: f64,
    /// The latency that half of the operations do not exceed.
    pub(crate) p50_us: f64,
    /// The latency that 99 % of the operations do not exceed.
    pub(crate) p99_us: f64,
    /// The latency that 99.9 % of the operations do not exceed.
    pub(crate) p999_us: f64,
    /// The longest operation.
    pub(crate) max_us: f64,
    /// Bytes that reached storage, until idle, over bytes of keys and values; nothing for reads.
    pub(crate) write_amplification: Option<f64>,
    /// Bytes that reached storage, until idle, in units of 10^6.
    pub(crate) written_mb: f64,
    /// Processor seconds, user and system, of all threads, during the timed part.
    pub(crate) cpu_s: f64,
    /// The same, until the engine was idle.
    pub(crate) cpu_until_idle_s: f64,
    /// How long after the timed part the engine went on flushing and compacting.
    pub(crate) idle_after_s: f64,
    /// The peak of resident memory, until idle, in units of 10^6 bytes.
    pub(crate) peak_rss_mb: f64,
    /// What the database occupied once idle, in units of 10^6 bytes.
    pub(crate) disk_mb: f64,
}
