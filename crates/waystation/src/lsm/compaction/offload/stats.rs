//! What was offloaded, what was not, and why.

use super::link::LinkError;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use waystation_format::compaction::Failure;

/// Why a merge ran in this process although there is a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LocalReason {
    /// Offloading is switched off.
    Off,
    /// The merge goes to a level above the least one that is offloaded.
    Level,
    /// The job cannot leave: graves in spill files, an order of keys that only the program knows, a limit on the rate of
    /// compactions, a table in a durable fast directory, or a job that is too long. Or the worker's engine does not take it.
    Unfit,
    /// The worker failed a moment ago.
    Pause,
    /// Writers wait for level 0, and the job waits at the worker or does not move.
    Pressure,
    /// No worker can be reached.
    Unreachable,
    /// Worker and engine do not take each other: another version, another token.
    Refused,
    /// The connection ended.
    Broken,
    /// No answer came within the lease.
    Silent,
    /// An answer was no message, or about another job or attempt.
    Confused,
    /// The job took far longer than a merge of its size may.
    Late,
    /// The worker failed or is stopping.
    Failed,
    /// The worker found other tables than the job lists, or damaged ones.
    Inputs,
    /// The worker cannot do what the job needs.
    Unsupported,
    /// The worker had no room.
    Space,
    /// The result cannot be that of the job.
    Contradiction,
    /// A table of the result is not there, is damaged, or is not what the report says.
    Damaged,
    /// The engine could not make the job's directory, or could not take the tables over.
    Storage,
}

impl LocalReason {
    /// Whether the worker was asked, or should have been, and the merge was not kept here by intent.
    pub fn is_fall_back(self) -> bool {
        !matches!(self, Self::Off | Self::Level | Self::Unfit)
    }

    /// Whether another attempt, at once, may do better.
    pub(super) fn may_pass(self) -> bool {
        matches!(self, Self::Broken | Self::Failed)
    }

    /// Whether the tables that the worker finished before are worth looking at: nothing that it said was wrong.
    pub(super) fn leaves_tables(self) -> bool {
        !matches!(
            self,
            Self::Off | Self::Confused | Self::Inputs | Self::Contradiction | Self::Damaged
        )
    }

    /// Whether the next jobs had better not ask the worker for a while.
    pub(super) fn is_of_worker(self) -> bool {
        self.is_fall_back() && !matches!(self, Self::Pause | Self::Pressure | Self::Storage)
    }
}

impl fmt::Display for LocalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Level => "level",
            Self::Unfit => "unfit",
            Self::Pause => "pause",
            Self::Pressure => "pressure",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Broken => "broken",
            Self::Silent => "silent",
            Self::Confused => "confused",
            Self::Late => "late",
            Self::Failed => "failed",
            Self::Inputs => "inputs",
            Self::Unsupported => "unsupported",
            Self::Space => "space",
            Self::Contradiction => "contradiction",
            Self::Damaged => "damaged",
            Self::Storage => "storage",
        })
    }
}

impl From<&LinkError> for LocalReason {
    fn from(error: &LinkError) -> Self {
        match error {
            LinkError::Unreachable(_) => Self::Unreachable,
            LinkError::Refused(_) => Self::Refused,
            LinkError::Broken(_) => Self::Broken,
            LinkError::Silent(_) => Self::Silent,
        }
    }
}

impl From<Failure> for LocalReason {
    fn from(failure: Failure) -> Self {
        match failure {
            // The engine cancels nothing whose report it then reads.
            Failure::Retryable | Failure::Cancelled => Self::Failed,
            Failure::Inputs => Self::Inputs,
            Failure::Unsupported | Failure::Unseen => Self::Unsupported,
            Failure::Unfit => Self::Unfit,
            Failure::Space => Self::Space,
        }
    }
}

/// Merges of a database with a worker, since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OffloadStats {
    /// Merges that the worker ran and that passed verification.
    pub jobs: u64,
    /// Bytes of the tables that they read.
    pub read_bytes: u64,
    /// Bytes of the tables that they wrote.
    pub written_bytes: u64,
    /// The part of all bytes read by merges that the worker read (percent).
    pub share_percent: u64,
    /// Time that they waited at the worker for others (microseconds).
    pub wait_us: u64,
    /// Time that they ran, as the engine saw it (microseconds).
    pub run_us: u64,
    /// Time in which the engine verified their tables (microseconds).
    pub verify_us: u64,
    /// Time in which the engine took their tables over: directories, names, syncs (microseconds).
    pub install_us: u64,
    /// Bytes of tables that were sent to a worker that does not see the directory.
    pub sent_bytes: u64,
    /// Bytes of tables that were fetched from it.
    pub fetched_bytes: u64,
    /// Time in which tables travelled (microseconds).
    pub transfer_us: u64,
    /// Merges of the worker that this process ran as well, for comparison; the tables of this process were installed.
    pub shadowed: u64,
    /// Of these, merges in which the worker's entries were others.
    pub different: u64,
    /// Attempts that failed and were made anew at the worker.
    pub repeated: u64,
    /// Merges of which finished tables were kept when an attempt failed: the rest alone was merged anew.
    pub resumed: u64,
    /// Bytes of these tables.
    pub kept_bytes: u64,
    /// Merges that ran in this process.
    pub local_jobs: u64,
    /// Bytes of the tables that they read.
    pub local_read_bytes: u64,
    /// Of these, merges that the worker should have run.
    pub fall_backs: u64,
    /// How many ran here for each reason.
    pub local: BTreeMap<LocalReason, u64>,
}

/// Where the time of an offloaded merge went (microseconds), and what travelled for it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) wait: u64,
    pub(super) run: u64,
    pub(super) verify: u64,
    pub(super) install: u64,
    pub(super) transfer: u64,
    pub(super) sent_bytes: u64,
    pub(super) fetched_bytes: u64,
}

impl Times {
    /// Adds those of another attempt.
    pub(super) fn add(&mut self, other: &Self) {
        self.wait += other.wait;
        self.run += other.run;
        self.verify += other.verify;
        self.install += other.install;
        self.transfer += other.transfer;
        self.sent_bytes += other.sent_bytes;
        self.fetched_bytes += other.fetched_bytes;
    }

    /// All of it (microseconds).
    pub(super) fn elapsed(&self) -> u64 {
        self.wait + self.run + self.verify + self.install + self.transfer
    }
}

impl OffloadStats {
    /// Notes a merge that the worker ran to its end.
    pub(super) fn offloaded(&mut self, read_bytes: u64, written_bytes: u64, times: &Times) {
        self.jobs += 1;
        self.ran(read_bytes, written_bytes, times);
    }

    /// Notes a merge whose first tables, `written_bytes`, were kept when the worker failed.
    pub(super) fn resumed(&mut self, read_bytes: u64, written_bytes: u64, times: &Times) {
        self.resumed += 1;
        self.kept_bytes += written_bytes;
        self.ran(read_bytes, written_bytes, times);
    }

    fn ran(&mut self, read_bytes: u64, written_bytes: u64, times: &Times) {
        self.read_bytes += read_bytes;
        self.written_bytes += written_bytes;
        self.wait_us += times.wait;
        self.run_us += times.run;
        self.verify_us += times.verify;
        self.install_us += times.install;
        self.transfer_us += times.transfer;
        self.sent_bytes += times.sent_bytes;
        self.fetched_bytes += times.fetched_bytes;
    }

    /// Notes a merge that runs here.
    pub(super) fn kept(&mut self, reason: LocalReason, read_bytes: u64) {
        self.local_jobs += 1;
        self.local_read_bytes += read_bytes;
        self.fall_backs += u64::from(reason.is_fall_back());
        *self.local.entry(reason).or_default() += 1;
    }

    /// These figures, with the share that they make.
    pub(super) fn told(&self) -> Self {
        let all = u128::from(self.read_bytes) + u128::from(self.local_read_bytes);
        let share = u128::from(self.read_bytes) * 100 / all.max(1);
        Self {
            share_percent: share as u64,
            ..self.clone()
        }
    }
}
