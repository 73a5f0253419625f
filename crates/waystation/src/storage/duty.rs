//! A share of the time: long work that no thread waits for, done a little at a time.
//!
//! What takes a processor for a tenth of a second takes it from writers, and where those need most of it themselves, all of
//! them are late by as much. So a thread with such work comes by here often, and sleeps when it has worked for a moment. If
//! another thread waits for it, it only lets others run first.
//! It is the clock that is looked at: where others have the processor, more of the time counts as work, and the pause is
//! the longest all the sooner.

use super::Storage;
use crate::sync::thread;
use std::cell::Cell;
use std::time::Duration;

/// For so long work goes on.
const WORK: Duration = Duration::from_micros(200);
/// A pause is no longer than this.
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// The priority of long work: which part of the time it takes, and how large its reads are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IoPriority {
    /// A third of the time: no thread waits for it.
    Low,
    /// Half of the time: there is more of it to do than there should be.
    Medium,
    /// All the time: a thread waits.
    High,
}

/// See the module.
pub(crate) struct Duty<'a> {
    storage: &'a dyn Storage,
    /// The priority by now.
    priority: &'a dyn Fn() -> IoPriority,
    resumed: Cell<Duration>,
}

impl<'a> Duty<'a> {
    /// Work begins now, and goes on at such a `priority` as holds at the time.
    pub(crate) fn new(storage: &'a dyn Storage, priority: &'a dyn Fn() -> IoPriority) -> Self {
        Self {
            storage,
            priority,
            resumed: Cell::new(storage.now()),
        }
    }

    /// The priority by now.
    pub(crate) fn priority(&self) -> IoPriority {
        (self.priority)()
    }

    /// Sleeps, or lets other threads run, if it is time to.
    pub(crate) fn pause(&self) {
        let now = self.storage.now();
        let worked = now.saturating_sub(self.resumed.get());
        if worked < WORK {
            return;
        }
        let pause = match self.priority() {
            IoPriority::Low => 2 * worked,
            IoPriority::Medium => worked,
            IoPriority::High => Duration::ZERO,
        };
        if pause.is_zero() {
            thread::yield_now();
        } else {
            self.storage.sleep(pause.min(PAUSE_MAX));
        }
        self.resumed.set(self.storage.now());
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::storage::SimStorage;

    /// How much time passes in a second of work that comes by every tenth of a millisecond.
    fn passed(priority: IoPriority) -> f64 {
        let storage = SimStorage::new(1);
        storage.stop_clock();
        let start = storage.now();
        let priority = || priority;
        let duty = Duty::new(&*storage, &priority);
        for _ in 0..10_000 {
            storage.sleep(Duration::from_micros(100));
            duty.pause();
        }
        storage.now().saturating_sub(start).as_secs_f64()
    }

    #[test]
    fn the_priority_says_which_part_of_the_time_is_worked() {
        let much = passed(IoPriority::High);
        for (priority, times) in [
            (IoPriority::Low, 3.0),
            (IoPriority::Medium, 2.0),
            (IoPriority::High, 1.0),
        ] {
            let took = passed(priority) / much;
            assert!((took - times).abs() < 0.3, "{priority:?}: {took}");
        }
    }
}
