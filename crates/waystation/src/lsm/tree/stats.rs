//! Figures about the tree.

use super::Tree;
use crate::background::Use;
use crate::lsm::compaction::Counters;
use crate::lsm::compaction::offload::OffloadStats;
use crate::lsm::version::LEVELS;
use crate::sync::lock;
use serde::Serialize;

/// What a tree holds, and what it has done since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TreeStats {
    /// The levels, from level 0 on.
    pub levels: Vec<LevelStats>,
    /// Every write up to this sequence number is in a table.
    pub flushed_through: u64,
    /// Memtables written to tables.
    pub flushes: WorkStats,
    /// Tables that sank a level without being rewritten, and their bytes.
    pub moved_tables: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Tables dropped unread.
    pub dropped_tables: u64,
    /// Compactions running now, flushes below level 0 included.
    pub running: usize,
    /// Bytes over the levels' targets: what compaction is behind.
    pub debt_bytes: u64,
    /// Tables kept only because a reader or a job holds an older version.
    pub held_tables: usize,
    /// Their bytes.
    pub held_bytes: u64,
    /// Memory that open tables' indexes and filters take (bytes).
    pub table_memory_bytes: u64,
    /// Memory that cached blocks take (bytes).
    pub cached_bytes: u64,
    /// What a worker ran, in a database that has one.
    pub offload: Option<OffloadStats>,
}

/// A level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LevelStats {
    /// Tables.
    pub tables: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes it should hold at most; 0 for level 0, which is measured in tables.
    pub target_bytes: u64,
    /// Merges that wrote to it.
    pub merges: WorkStats,
}

/// Flushes, or merges, all together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WorkStats {
    /// How many.
    pub jobs: u64,
    /// Bytes of the tables they read.
    pub read_bytes: u64,
    /// Bytes of the tables they wrote.
    pub written_bytes: u64,
    /// Entries they read.
    pub entries_in: u64,
    /// Entries they wrote.
    pub entries_out: u64,
    /// Deletions they dropped, as nothing was left to delete.
    pub dead_deletions: u64,
    /// Time they took, each one's counted in full (microseconds).
    pub elapsed_us: u64,
    /// Processor time that they took in this process, wherever they ran (microseconds).
    pub cpu_us: u64,
}

impl From<Counters> for WorkStats {
    fn from(counters: Counters) -> Self {
        Self {
            jobs: counters.jobs,
            read_bytes: counters.read_bytes,
            written_bytes: counters.written_bytes,
            entries_in: counters.entries_in,
            entries_out: counters.entries_out,
            dead_deletions: counters.dead_deletions,
            elapsed_us: counters.elapsed_us,
            cpu_us: counters.cpu_us,
        }
    }
}

/// What was done since open.
#[derive(Debug, Default)]
pub(super) struct Totals {
    flushes: Counters,
    merges: [Counters; LEVELS],
    moved_tables: u64,
    moved_bytes: u64,
    dropped_tables: u64,
}

impl Totals {
    pub(super) fn flushed(&mut self, counters: &Counters) {
        self.flushes.add(counters);
    }

    pub(super) fn merged(&mut self, level: usize, counters: &Counters) {
        self.merges[level].add(counters);
    }

    pub(super) fn moved(&mut self, tables: u64, bytes: u64) {
        self.moved_tables += tables;
        self.moved_bytes += bytes;
    }

    pub(super) fn dropped(&mut self, tables: u64) {
        self.dropped_tables += tables;
    }
}

/// How far compaction is behind writing: what back-pressure goes by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pressure {
    /// Tables in level 0.
    pub level0_tables: usize,
    /// Bytes over the levels' targets.
    pub debt_bytes: u64,
    /// Compactions running now.
    pub running: usize,
}

impl Tree {
    /// How far compaction is behind writing.
    pub(crate) fn pressure(&self) -> Pressure {
        let version = self.version();
        let over = |level| {
            version
                .level_bytes(level)
                .saturating_sub(self.settings.shape.target_bytes(level))
        };
        let waiting = version.level(0).len() >= self.settings.shape.level0_trigger;
        let level0 = if waiting { version.level_bytes(0) } else { 0 };
        Pressure {
            level0_tables: version.level(0).len(),
            debt_bytes: level0 + (1..LEVELS - 1).map(over).sum::<u64>(),
            running: lock(&self.running).len(),
        }
    }

    /// Figures about the tree.
    pub(crate) fn stats(&self) -> TreeStats {
        let (version, flushed_through) = self.versions.current_and_flushed_through();
        let pressure = self.pressure();
        let (held_tables, held_bytes) = self.versions.held_tables();
        let totals = lock(&self.totals);
        let levels = (0..LEVELS).map(|level| LevelStats {
            tables: version.level(level).len(),
            bytes: version.level_bytes(level),
            target_bytes: if level == 0 {
                0
            } else {
                self.settings.shape.target_bytes(level)
            },
            merges: totals.merges[level].into(),
        });
        let account = &self.tables.memory().account;
        TreeStats {
            levels: levels.collect(),
            flushed_through,
            flushes: totals.flushes.into(),
            moved_tables: totals.moved_tables,
            moved_bytes: totals.moved_bytes,
            dropped_tables: totals.dropped_tables,
            running: pressure.running,
            debt_bytes: pressure.debt_bytes,
            held_tables,
            held_bytes,
            table_memory_bytes: account.bytes(Use::Tables),
            cached_bytes: account.bytes(Use::Cache),
            offload: self.executor.offload_stats(),
        }
    }
}
