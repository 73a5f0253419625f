//! When which writes were reached: how long a deletion has waited.

use std::time::Duration;

/// The most marks of a timeline; when there are more, every second one goes.
const MARKS_MAX: usize = 1024;

/// When which sequence numbers were reached, roughly.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// Sequence numbers with the times at which they were seen to be reached; ascending.
    marks: Vec<(u64, Duration)>,
}

impl Timeline {
    /// Notes that `sequence` is reached.
    pub(super) fn note(&mut self, sequence: u64, now: Duration) {
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
    pub(super) fn time_of(&self, sequence: u64) -> Option<Duration> {
        let behind = self.marks.partition_point(|(mark, _)| *mark < sequence);
        self.marks.get(behind.saturating_sub(1)).map(|(_, at)| *at)
    }

    /// The highest sequence number that was reached by `time` for sure.
    pub(super) fn reached_by(&self, time: Duration) -> u64 {
        let behind = self.marks.partition_point(|(_, at)| *at <= time);
        behind.checked_sub(1).map_or(0, |last| self.marks[last].0)
    }
}
