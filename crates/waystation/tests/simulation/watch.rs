//! Which seeds run, and for how long: a seed that hangs would not be noticed beside others that go on.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often running seeds are counted.
const ROUND: Duration = Duration::from_secs(1);
/// A seed is told of whenever it has been counted so often. Rounds and not the clock count, so that a run that is stopped
/// for a while does not look like one that hangs.
const TOLD_EVERY: u64 = 120;

/// The seeds that run now, and how many rounds each has been counted in.
#[derive(Default)]
pub(crate) struct Watch(Mutex<BTreeMap<u64, u64>>);

impl Watch {
    fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<u64, u64>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs `seed`. One that panics has ended as well.
    pub(crate) fn during(&self, seed: u64, run: impl FnOnce()) {
        struct Running<'a>(&'a Watch, u64);
        impl Drop for Running<'_> {
            fn drop(&mut self) {
                self.0.with(|seeds| seeds.remove(&self.1));
            }
        }
        self.with(|seeds| seeds.insert(seed, 0));
        let _running = Running(self, seed);
        run();
    }

    /// Tells of seeds that run for long, on standard error, until the sender of `end` is dropped.
    pub(crate) fn tell_of_long_runs(&self, end: &Receiver<()>) {
        while end.recv_timeout(ROUND) == Err(RecvTimeoutError::Timeout) {
            self.with(|seeds| {
                for (seed, rounds) in seeds {
                    *rounds += 1;
                    if rounds.is_multiple_of(TOLD_EVERY) {
                        let seconds = *rounds * ROUND.as_secs();
                        eprintln!("simulation: seed {seed} has run for {seconds} s and goes on");
                    }
                }
            });
        }
    }
}
