//! Whether storage keeps commands waiting.
//!
//! A command runs on the thread that serves its connection. While storage answers from memory, that is the fastest place:
//! a thread for each processor serves all connections, and none of them waits for another thread. A command that waits for
//! a drive, or that the engine holds back, would hold up the thread's other connections. The time that runs of commands
//! take beyond that of work in memory tells the two apart: while its average is long, the thread gives its connections to
//! another thread before it runs commands.

use crate::clock::Clock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::task::block_in_place;

/// What a command on data in memory takes at most, about (nanoseconds).
const COMMAND_NANOS: u64 = 10_000;
/// Runs that wait for longer on average wait for storage (nanoseconds).
const SLOW_NANOS: u64 = 50_000;
/// No run counts as a longer wait (nanoseconds): the scheduler may stop a thread for longer, and one such stop is no slow
/// storage for many runs.
const WAIT_NANOS_MAX: u64 = 2_000_000;
/// The latest run has this part of the average.
const RUNS: u64 = 32;

/// The average wait of runs of commands of one database.
#[derive(Default)]
pub(crate) struct Waits {
    /// Nanoseconds. Two threads that change it at once may lose one of their runs, which the next runs make up for.
    average: AtomicU64,
}

impl Waits {
    /// Carries out a run of commands where it holds up no other connection; `run` tells the number of its commands.
    /// Call it on a thread of a tokio runtime of several threads.
    pub(crate) fn carry_out<T>(&self, clock: Clock, run: impl FnOnce() -> (T, usize)) -> T {
        let begun = clock.since_epoch();
        let (result, commands) = if self.is_slow() {
            block_in_place(run)
        } else {
            run()
        };
        let took = clock.since_epoch().saturating_sub(begun).as_nanos();
        self.note(u64::try_from(took).unwrap_or(u64::MAX), commands);
        result
    }

    fn is_slow(&self) -> bool {
        self.average.load(Relaxed) > SLOW_NANOS
    }

    fn note(&self, nanos: u64, commands: usize) {
        let waited = nanos.saturating_sub(COMMAND_NANOS * commands as u64);
        let average = self.average.load(Relaxed);
        let next = average - average / RUNS + waited.min(WAIT_NANOS_MAX) / RUNS;
        self.average.store(next, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_stopped_once_is_no_slow_storage_for_long() {
        let waits = Waits::default();
        for _ in 0..100 {
            waits.note(5_000, 1);
        }
        waits.note(u64::MAX, 1);
        for _ in 0..20 {
            waits.note(5_000, 1);
        }
        assert!(!waits.is_slow());
    }

    #[test]
    fn a_long_run_of_fast_commands_is_not_slow() {
        let waits = Waits::default();
        for _ in 0..1000 {
            waits.note(400_000, 100);
        }
        assert!(!waits.is_slow());
    }

    #[test]
    fn a_long_run_that_is_held_back_is_slow_at_once() {
        let waits = Waits::default();
        waits.note(20_000_000, 1000);
        assert!(waits.is_slow());
    }

    #[test]
    fn reads_of_a_drive_are_slow_until_they_come_from_memory() {
        let waits = Waits::default();
        for _ in 0..50 {
            waits.note(100_000, 1);
        }
        assert!(waits.is_slow());
        for _ in 0..50 {
            waits.note(5_000, 1);
        }
        assert!(!waits.is_slow());
    }
}
