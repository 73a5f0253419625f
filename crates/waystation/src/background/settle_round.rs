//! The round of settling: which residencies settle now, with which priority, and when the next round comes. Pure functions
//! of the sight and of the residencies in the order of their arrival; `testdata/settle.txt` holds their script.
//!
//! ```text
//!     arrival      over            over + half a residency
//!        |----------|-------------------------|
//!         stays       waits for others          settles alone
//! ```
//!
//! The records of a residency lie all over the part of the log that its time spans, and settling reads all of that part. So
//! residencies settle together: as soon as enough bytes are due, or when the oldest has waited for long enough. A budget
//! that runs short (memory, disk, log) settles the oldest ones *early*, however long they have stayed.

use super::agenda::{FULL_DISK_PAUSES, TICK};
use crate::storage::IoPriority;
use std::time::Duration;

/// So many times as much settles together early: hardly more of the log is read for it, and more of it is free then.
pub(crate) const MORE_TOGETHER: u64 = 2;
/// Residencies wait for others to settle with at most for this part of the residency, over it.
const WAIT_PART: u32 = 2;
/// Loads fall behind when this much is due (times what settles together).
const LATE: u64 = 2;
/// They do not catch up by themselves when this much is: the log grows, as the oldest residencies hold all that is behind them.
const VERY_LATE: u64 = 4;

/// What a round sees before it looks at residencies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SettleSight {
    /// The storage's clock.
    pub(crate) now: Duration,
    /// For how long a device stays in the upper level.
    pub(crate) residency: Duration,
    /// A budget runs short: the oldest settle in any case.
    pub(crate) early: bool,
    /// Bytes of the log that are worth a load.
    pub(crate) together_bytes: u64,
    /// [`MORE_TOGETHER`] times that fit onto the disk.
    pub(crate) has_room_for_more: bool,
    /// Bytes that the disk has room for as tables.
    pub(crate) room_bytes: u64,
}

/// A round that collects the residencies that are due.
#[derive(Debug)]
pub(crate) struct SettleRound {
    sight: SettleSight,
    due_bytes: u64,
    next_over: Option<Duration>,
}

/// What a round comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SettleChoice {
    /// So many of the residencies that are due and can settle do so now, and with this priority.
    pub(crate) settle: Option<(usize, IoPriority)>,
    /// The next round comes so long after the end of this one, if nothing happens before.
    pub(crate) pause: Option<Duration>,
}

impl SettleRound {
    /// Nothing collected yet.
    pub(crate) fn new(sight: SettleSight) -> Self {
        Self {
            sight,
            due_bytes: 0,
            next_over: None,
        }
    }

    /// Whether the next residency, which came at `arrival` and has `log_bytes` in the upper level, is due. The first one that
    /// is not ends the collection.
    pub(crate) fn collect(&mut self, arrival: Duration, log_bytes: u64) -> bool {
        let over_at = arrival + self.sight.residency;
        let is_over = over_at <= self.sight.now;
        let is_enough = self.due_bytes >= VERY_LATE * self.sight.together_bytes;
        let is_due = (is_over || self.sight.early) && !is_enough;
        if is_due {
            self.due_bytes += log_bytes;
        } else if !is_over {
            self.next_over = Some(over_at);
        }
        is_due
    }

    /// Chooses from the residencies that are due and that no snapshot holds: arrival and bytes of each.
    pub(crate) fn choose(self, free: impl IntoIterator<Item = (Duration, u64)>) -> SettleChoice {
        let SettleSight {
            now,
            residency,
            early,
            together_bytes,
            ..
        } = self.sight;
        let mut free = free.into_iter().peekable();
        let waited = free
            .peek()
            .map(|(arrival, _)| now.saturating_sub(*arrival + residency));
        let count = self.count(free.map(|(_, bytes)| bytes));
        let waits_for = residency / WAIT_PART;
        let is_worth = early || self.due_bytes >= together_bytes || waited >= Some(waits_for);
        let next = match waited {
            // The oldest has no room as a table.
            Some(_) if is_worth && count == 0 => Some(now + FULL_DISK_PAUSES.0),
            // There may be more.
            Some(_) if is_worth => Some(now),
            // They wait for others, until they have waited for long enough.
            Some(waited) => {
                let over = now + waits_for.saturating_sub(waited);
                Some(self.next_over.map_or(over, |next| over.min(next)))
            }
            None => self.next_over,
        };
        SettleChoice {
            settle: (is_worth && count > 0).then(|| (count, self.priority())),
            pause: next.map(|at| at.saturating_sub(now).max(TICK)),
        }
    }

    /// How many of the residencies with these `bytes` settle together.
    fn count(&self, bytes: impl Iterator<Item = u64>) -> usize {
        let sight = &self.sight;
        let is_more = sight.early && sight.has_room_for_more;
        let limit = sight.together_bytes * if is_more { MORE_TOGETHER } else { 1 };
        let mut together = 0;
        let chosen = bytes.take_while(|bytes| {
            let is_wanted = together < limit;
            together += bytes;
            is_wanted && together <= sight.room_bytes
        });
        chosen.count()
    }

    fn priority(&self) -> IoPriority {
        let together_bytes = self.sight.together_bytes;
        if self.sight.early || self.due_bytes >= VERY_LATE * together_bytes {
            IoPriority::High
        } else if self.due_bytes >= LATE * together_bytes {
            IoPriority::Medium
        } else {
            IoPriority::Low
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::background::tests::script;
    use std::fmt::Write as _;

    #[test]
    fn scripts_answer_as_written() {
        script::run("settle", answer);
    }

    /// `round` with its facts, and below it residencies as `arrival bytes` (and `held` by a snapshot); times in milliseconds.
    fn answer(question: &str) -> String {
        let mut lines = question.lines().filter(|line| !line.starts_with('#'));
        let facts: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
        let number = |name: &str| {
            let mut values = facts.iter().filter_map(|fact| fact.split_once('='));
            values
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.parse::<u64>().unwrap())
        };
        let mut round = SettleRound::new(SettleSight {
            now: Duration::from_millis(number("now").unwrap()),
            residency: Duration::from_millis(number("residency").unwrap()),
            early: facts.contains(&"early"),
            together_bytes: number("together").unwrap(),
            has_room_for_more: facts.contains(&"roomy"),
            room_bytes: number("room").unwrap_or(u64::MAX),
        });
        let mut free = Vec::new();
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            let arrival = Duration::from_millis(words[0].parse().unwrap());
            let bytes = words[1].parse().unwrap();
            if !round.collect(arrival, bytes) {
                break;
            }
            if words.get(2) != Some(&"held") {
                free.push((arrival, bytes));
            }
        }
        let choice = round.choose(free);
        let mut out = String::new();
        match choice.settle {
            Some((count, priority)) => {
                let _ = write!(out, "settle {count}, priority {priority:?}");
            }
            None => out.push_str("wait"),
        }
        match choice.pause {
            Some(pause) => out + &format!(", again after {}", pause.as_millis()),
            None => out + ", until something happens",
        }
    }
}
