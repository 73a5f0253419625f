//! How a fast tier is divided between a log, which is written, and copies of blocks, which are read.
//!
//! Both want the same bytes. A log gains in proportion to the part of its files that fits, and nothing before one fits; copies
//! gain what the hottest blocks that fit are read. The best division is that of [`split`]; another one takes its place only if
//! it gains more by some part, so that a load which changes little moves nothing.

use crate::{Curve, Point, precise, split};
use serde::{Deserialize, Serialize};

/// A new division has to gain this part more than the present one.
const BETTER: f64 = 1.1;
/// Less than this (seconds for each second) is worth no change.
const WORTH: f64 = 0.001;
/// The curves have so many points.
const STEPS: u64 = 8;

/// How a capacity is divided between a log and copies, and why.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Division {
    /// The bytes that the log may take.
    pub log_bytes: u64,
    /// What its segments there spare, in seconds for each second.
    pub log_gain: f64,
    /// The same of the copies in the rest.
    pub copy_gain: f64,
}

/// What the log would gain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogGain {
    /// With all of it in the fast directory, for each second.
    pub seconds: f64,
    /// What all of it takes.
    pub need_bytes: u64,
    /// Nothing shorter is of use.
    pub segment_bytes: u64,
}

impl LogGain {
    fn of(&self, bytes: u64) -> f64 {
        if bytes < self.segment_bytes || self.need_bytes == 0 {
            return 0.0;
        }
        self.seconds * (precise(bytes) / precise(self.need_bytes)).min(1.0)
    }
}

/// The best division of `capacity`, where the log may have `present` so far; `None` if that is good enough.
pub fn divide(
    log: &LogGain,
    copies: &dyn Fn(u64) -> f64,
    capacity: u64,
    present: u64,
) -> Option<Division> {
    let sizes = (1..=STEPS).map(|step| capacity / STEPS * step);
    let curve = |gain: &dyn Fn(u64) -> f64| Curve {
        points: sizes
            .clone()
            .map(|bytes| Point {
                bytes,
                gain: gain(bytes),
            })
            .collect(),
    };
    let curves = [curve(&|bytes| log.of(bytes)), curve(copies)];
    let best = split(&curves, capacity).into_iter().next()?;
    let of_log = best.chosen.first().copied().flatten();
    // What copies do not need is the log's.
    let for_copies = best.chosen.get(1).copied().flatten();
    let log_bytes = match (of_log, for_copies) {
        (None, None) => return None,
        (_, None) => capacity,
        (None, Some(_)) => 0,
        (Some(step), Some(_)) => curves[0].points[step].bytes,
    };
    let gain = |log_bytes: u64| (log.of(log_bytes), copies(capacity - log_bytes));
    let ((log_gain, copy_gain), now) = (gain(log_bytes), gain(present.min(capacity)));
    if log_gain + copy_gain < WORTH {
        return None;
    }
    let is_better = log_gain + copy_gain > (now.0 + now.1) * BETTER;
    (log_bytes != present && is_better).then_some(Division {
        log_bytes,
        log_gain,
        copy_gain,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn log(seconds: f64) -> LogGain {
        LogGain {
            seconds,
            need_bytes: 8 * MB,
            segment_bytes: 2 * MB,
        }
    }

    /// Reads spread evenly over 64 MB, all of which would spare `seconds`.
    fn even(seconds: f64) -> impl Fn(u64) -> f64 {
        move |bytes| seconds * (precise(bytes) / precise(64 * MB)).min(1.0)
    }

    #[test]
    fn a_load_of_writes_gives_all_to_the_log() {
        let division = divide(&log(0.5), &even(0.0), 16 * MB, 0).unwrap();
        assert_eq!(division.log_bytes, 16 * MB);
        assert_eq!(divide(&log(0.5), &even(0.0), 16 * MB, 16 * MB), None);
    }

    #[test]
    fn a_load_of_reads_gives_all_to_the_copies() {
        let division = divide(&log(0.0), &even(0.5), 16 * MB, 16 * MB).unwrap();
        assert_eq!(division.log_bytes, 0);
        assert_eq!(divide(&log(0.0), &even(0.5), 16 * MB, 0), None);
    }

    #[test]
    fn a_log_that_pays_more_for_a_byte_takes_as_much_as_it_needs() {
        // A sixteenth of a second for a megabyte against a 128th.
        let division = divide(&log(0.5), &even(0.5), 16 * MB, 0).unwrap();
        assert_eq!(division.log_bytes, 8 * MB);
        assert!(division.copy_gain > 0.0);
    }

    #[test]
    fn what_is_shorter_than_a_segment_is_of_no_use_to_the_log() {
        assert_eq!(divide(&log(0.5), &even(0.001), MB, 0), None);
    }

    #[test]
    fn a_little_more_gain_changes_nothing() {
        // All of either: the log gains 1.05 times as much.
        let copies = |bytes: u64| if bytes == 2 * MB { 0.119 } else { 0.0 };
        assert_eq!(divide(&log(0.5), &copies, 2 * MB, 0), None);
        assert!(divide(&log(0.6), &copies, 2 * MB, 0).is_some());
    }

    #[test]
    fn nothing_is_decided_where_nothing_is_gained() {
        assert_eq!(divide(&log(0.0), &even(0.0), 16 * MB, 0), None);
    }
}
