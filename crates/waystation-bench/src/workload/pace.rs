//! When a client's inserts are due.
//!
//! *Closed*: each when the one before is acknowledged, so that an engine which stands still is asked nothing meanwhile,
//! and a pause is one slow insert. *Open*: a rate is offered, whatever the engine does; an insert's latency runs from
//! the moment it was due, so that a pause is paid for by every insert that had to wait for it (no coordinated omission).
//!
//! An offered rate comes in ticks: what is due within a millisecond is due at its beginning, and clients tick in
//! turn. Sleeping before each of 17,000 inserts a second, in each of 12 threads, would cost more than the inserts;
//! at half a millisecond twelve clients would still be woken 24,000 times a second, beside what is measured.

use crate::clock;
use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

/// Inserts are due at multiples of this.
const TICK: Duration = Duration::from_millis(1);
/// How late the system may wake a client (ns).
const TIMER_SLACK: NonZeroU64 = NonZeroU64::new(1000).expect("not zero");

/// One client's pace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// Each insert as soon as the one before is acknowledged.
    Closed,
    /// So many a second.
    Open {
        /// This client's share of what is offered.
        per_s: f64,
        /// What this client's ticks are late by, so that not all clients tick at once.
        offset: Duration,
    },
}

impl Pace {
    /// The pace of client `thread` of `threads`, if they offer so many inserts a second together.
    pub(crate) fn new(offered_per_s: Option<f64>, thread: u32, threads: u32) -> Self {
        match offered_per_s {
            None => Self::Closed,
            Some(per_s) => Self::Open {
                per_s: per_s / f64::from(threads),
                offset: TICK * thread / threads,
            },
        }
    }

    /// When insert `ordinal` is due, from the start; nothing if it is as soon as the one before is acknowledged.
    #[inline]
    #[expect(clippy::cast_sign_loss, reason = "time does not run back")]
    pub(crate) fn due(&self, ordinal: u64) -> Option<Duration> {
        let Self::Open { per_s, offset } = *self else {
            return None;
        };
        let at_s = ordinal as f64 / per_s;
        let ticks = (at_s / TICK.as_secs_f64()) as u64;
        // Ticks in nanoseconds: those of 58 years fit.
        Some(Duration::from_nanos(ticks * TICK.as_nanos() as u64) + offset)
    }

    /// Prepares the thread that keeps this pace.
    pub(crate) fn prepare(&self) {
        if matches!(self, Self::Open { .. }) {
            // Without it the system wakes threads up to 50 us late: worse figures, but none that are wrong.
            let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK));
        }
    }
}

/// Waits until `due`, if that is not past, and returns what time it is then.
#[inline]
pub(crate) fn wait_until(due: Instant) -> Instant {
    let now = clock::now();
    if now >= due {
        return now;
    }
    thread::sleep(due - now);
    clock::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_loop_waits_for_nothing() {
        assert_eq!(Pace::new(None, 3, 12).due(1_000_000), None);
    }

    #[test]
    fn the_offered_rate_is_kept_to_a_tick() {
        let rate = 200_000.0;
        for thread in [0, 5, 11] {
            let pace = Pace::new(Some(rate), thread, 12);
            let mut before = Duration::ZERO;
            for ordinal in 0..100_000 {
                let due = pace.due(ordinal).expect("the loop is open");
                let exact = Duration::from_secs_f64(ordinal as f64 * 12.0 / rate);
                assert!(due >= before);
                assert!(due <= exact + TICK, "{ordinal}: {due:?} {exact:?}");
                assert!(due + TICK >= exact, "{ordinal}: {due:?} {exact:?}");
                before = due;
            }
        }
    }

    #[test]
    fn clients_tick_in_turn() {
        let first = |thread| Pace::new(Some(1e5), thread, 4).due(0);
        let offsets: Vec<_> = (0..4).filter_map(first).collect();
        assert_eq!(offsets, [0, 250, 500, 750].map(Duration::from_micros));
    }

    #[test]
    fn a_time_that_is_past_is_not_waited_for() {
        let start = clock::now();
        assert!(wait_until(start) >= start);
        let due = start + Duration::from_millis(2);
        assert!(wait_until(due) >= due);
    }
}
