//! Compaction: what to merge, and merging it.
//!
//! Two halves that never meet except through plain data:
//! - [`pick`] is a pure function from a version, the settings and the running jobs to a [`Choice`];
//! - [`Job`] describes a merge so fully that any [`CompactionExecutor`] that sees the files can run it;
//!   [`LocalExecutor`] is the one in this process, [`offload`] has the one that asks a worker. Its result is a list of finished tables, which the tree verifies and
//!   installs.
//!
//! Several jobs may run at once. What keeps them apart is the [`Running`] set: no table is an input twice, and
//! no two jobs write overlapping key ranges to one level.
//!
//! Why a merge may drop what it drops: every older version of a key lies in the same table, beside it or
//! deeper, never shallower. A job takes, at its input levels, *all* tables that hold versions of the keys in
//! its range which are older than those it moves (see `expand`), so within its key range it sees everything
//! down to its output level.

mod choice;
mod claim;
mod cut;
mod executor;
mod expand;
mod hidden;
mod job;
mod merge;
mod message;
pub(crate) mod offload;
mod pick;
mod retain;
mod run;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
mod verify;

pub(crate) use choice::Choice;
pub(crate) use claim::{Claim, Running};
pub(crate) use executor::{CompactionExecutor, LocalExecutor};
pub(crate) use hidden::Hidden;
pub(crate) use job::{Grandparent, Job, OutputLayout, OutputLimits};
pub(crate) use pick::{
    Context, Traffic, grandparents, pick, pick_burdened, pick_clean, pick_range, ranges_from,
};
pub(crate) use run::{JobResult, Workplace, remove_outputs, run};
pub(crate) use verify::contradiction;

use serde::{Deserialize, Serialize};

/// Level 0 is due with so many tables.
const LEVEL0_TRIGGER: usize = 12;

/// How the tree is shaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Level 0 is due for a merge from this many tables.
    pub level0_trigger: usize,
    /// Bytes that level 1 should hold at most.
    pub level_base_bytes: u64,
    /// How many times larger each level is than the one above.
    pub fan_out: u64,
    /// Where an output table is cut.
    pub table_bytes: u64,
}

impl Shape {
    /// The shape for memtables of `memtable_bytes` and tables of `table_bytes`.
    ///
    /// Level 0 is due late: readers that pay for its tables, and idleness, have it merged before. Level 1 is to hold as much as
    /// level 0 does when it is due, so that merging level 0 into it rewrites about one byte per byte; see
    /// docs/measurements/compaction.md for the alternatives.
    pub(crate) fn new(memtable_bytes: u64, table_bytes: u64) -> Self {
        Self {
            level0_trigger: LEVEL0_TRIGGER,
            level_base_bytes: (memtable_bytes.saturating_mul(LEVEL0_TRIGGER as u64))
                .max(table_bytes),
            fan_out: 10,
            table_bytes,
        }
    }

    /// Bytes that `level` (at least 1) should hold at most.
    pub(crate) fn target_bytes(&self, level: usize) -> u64 {
        let steps = u32::try_from(level.saturating_sub(1)).unwrap_or(u32::MAX);
        self.level_base_bytes
            .saturating_mul(self.fan_out.saturating_pow(steps))
    }

    /// How many bytes of the next but one level a table may overlap: what merging it down will cost.
    pub(crate) fn grandparent_bytes(&self) -> u64 {
        self.table_bytes.saturating_mul(self.fan_out)
    }

    /// Bytes up to which a job takes more tables along because they cost nothing in the output level.
    pub(crate) fn expanded_bytes(&self) -> u64 {
        self.table_bytes.saturating_mul(25)
    }
}

/// What a merge, or all merges so far, did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    /// Merges.
    pub jobs: u64,
    /// Bytes of all input tables.
    pub read_bytes: u64,
    /// Bytes of all output tables.
    pub written_bytes: u64,
    /// Entries read.
    pub entries_in: u64,
    /// Entries written.
    pub entries_out: u64,
    /// Entries dropped because a newer version hides them from every reader.
    pub shadowed: u64,
    /// Deletions dropped because nothing is left for them to delete.
    pub dead_deletions: u64,
    /// Entries dropped because a grave hides them from every reader.
    #[serde(default)]
    pub hidden: u64,
    /// Microseconds spent.
    pub elapsed_us: u64,
    /// Microseconds of processor time that this process spent on it, wherever it ran.
    #[serde(default)]
    pub cpu_us: u64,
}

impl Counters {
    /// Adds what another merge did.
    pub(crate) fn add(&mut self, other: &Self) {
        self.jobs += other.jobs;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.entries_in += other.entries_in;
        self.entries_out += other.entries_out;
        self.shadowed += other.shadowed;
        self.dead_deletions += other.dead_deletions;
        self.hidden += other.hidden;
        self.elapsed_us += other.elapsed_us;
        self.cpu_us += other.cpu_us;
    }
}
