//! Which deletions have waited for too long: a quarter of the deadline in memory, half of it in tables.

use super::{GraveStore, PURGE_SHARE};
use crate::read_state::ReadState;
use crate::sync::lock;
use std::time::Duration;

/// The most marks of a timeline; when there are more, every second one goes.
const MARKS_MAX: usize = 1024;
/// The part of the deadline after which deletions leave memory, after which they are purged, and between two looks.
const IN_MEMORY_PART: u32 = 4;
const IN_TABLES_PART: u32 = 2;
const LOOK_PART: u32 = 8;

/// When which sequence numbers were reached, roughly.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// Sequence numbers with the times at which they were seen to be reached; ascending.
    marks: Vec<(u64, Duration)>,
}

impl Timeline {
    /// Notes that `sequence` is reached.
    fn note(&mut self, sequence: u64, now: Duration) {
        if self.marks.last().is_some_and(|(last, _)| *last >= sequence) {
            return;
        }
        if self.marks.len() >= MARKS_MAX {
            let mut at = 0;
            self.marks.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        self.marks.push((sequence, now));
    }

    /// The time at which `sequence` was reached, or shortly before.
    fn time_of(&self, sequence: u64) -> Option<Duration> {
        let behind = self.marks.partition_point(|(mark, _)| *mark < sequence);
        self.marks.get(behind.saturating_sub(1)).map(|(_, at)| *at)
    }

    /// The highest sequence number that was reached by `time` for sure.
    fn reached_by(&self, time: Duration) -> u64 {
        let behind = self.marks.partition_point(|(_, at)| *at <= time);
        behind.checked_sub(1).map_or(0, |last| self.marks[last].0)
    }
}

/// What a look at deletions that wait asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overdue {
    /// The memtable that takes writes is to be flushed, as it has deletions that have waited for long.
    pub(crate) in_memory: bool,
    /// Compactions are to look for tables that hold what was deleted.
    pub(crate) in_tables: bool,
}

impl GraveStore {
    /// Notes that the writes up to `visible` are there by now.
    pub(crate) fn note_time(&self, visible: u64) {
        lock(&self.seen).note(visible, self.now());
    }

    /// The work after which no deletion waits for longer than it may.
    pub(crate) fn overdue(&self) -> Overdue {
        let Some(deadline) = self.parts.deadline else {
            return Overdue {
                in_memory: false,
                in_tables: false,
            };
        };
        let read_state = self.read_state();
        let active = &read_state.active;
        let is_old = active.start_sequence <= self.reached_before(deadline / IN_MEMORY_PART);
        let now = self.now();
        let mut look_at = lock(&self.look_at);
        let in_tables = now >= *look_at && !read_state.flushed.is_empty();
        if in_tables {
            *look_at = now + deadline / LOOK_PART;
        }
        Overdue {
            in_memory: is_old && !active.memory.graves.is_empty(),
            in_tables,
        }
    }

    /// Deletions up to here have waited for half of their time; in an idle database, or when there are too many, all have.
    pub(super) fn overdue_through(&self, read_state: &ReadState, is_idle: bool) -> u64 {
        if read_state.flushed.counting_bytes() > self.parts.limit_bytes / PURGE_SHARE {
            return u64::MAX;
        }
        match self.parts.deadline {
            None => 0,
            Some(_) if is_idle => u64::MAX,
            Some(deadline) => self.reached_before(deadline / IN_TABLES_PART),
        }
    }

    /// The last write that was visible so long ago.
    fn reached_before(&self, ago: Duration) -> u64 {
        let then = self.now().checked_sub(ago);
        then.map_or(0, |then| lock(&self.seen).reached_by(then))
    }

    /// How long ago write `sequence` was reached, as far as it was seen.
    pub(crate) fn age_of(&self, sequence: u64) -> Option<Duration> {
        let seen = lock(&self.seen).time_of(sequence)?;
        Some(self.now().saturating_sub(seen))
    }
}
