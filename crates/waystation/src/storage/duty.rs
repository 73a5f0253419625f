//! A share of the time: long work that no thread waits for, done a little at a time.
//!
//! What takes a processor for a tenth of a second takes it from writers, and where those need most of it themselves, all of
//! them are late by as much. So a thread with such work comes by here often, and sleeps when it has worked for a moment.
//! It is the clock that is looked at: where others have the processor, more of the time counts as work, and the pause is
//! the longest all the sooner.

use super::Storage;
use std::cell::Cell;
use std::time::Duration;

/// For so long work goes on.
const WORK: Duration = Duration::from_micros(500);
/// A rest is no longer than this.
const REST_MAX: Duration = Duration::from_millis(2);

/// How long work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    /// A third of the time: no thread waits for it.
    None,
    /// Half of the time: there is more of it to do than there should be.
    Some,
    /// All the time: a thread waits.
    Much,
}

/// See the module.
pub(crate) struct Duty<'a> {
    storage: &'a dyn Storage,
    /// How long it is by now.
    haste: &'a dyn Fn() -> Haste,
    resumed: Cell<Duration>,
}

impl<'a> Duty<'a> {
    /// Work begins now, and goes on in such `haste` as is at the time.
    pub(crate) fn new(storage: &'a dyn Storage, haste: &'a dyn Fn() -> Haste) -> Self {
        Self {
            storage,
            haste,
            resumed: Cell::new(storage.now()),
        }
    }

    /// How long work is done, by now.
    pub(crate) fn haste(&self) -> Haste {
        (self.haste)()
    }

    /// Sleeps if it is time to.
    pub(crate) fn rest(&self) {
        let now = self.storage.now();
        let worked = now.saturating_sub(self.resumed.get());
        if worked < WORK {
            return;
        }
        let rest = match self.haste() {
            Haste::None => 2 * worked,
            Haste::Some => worked,
            Haste::Much => Duration::ZERO,
        };
        if !rest.is_zero() {
            self.storage.sleep(rest.min(REST_MAX));
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
    fn passed(haste: Haste) -> f64 {
        let storage = SimStorage::new(1);
        storage.stop_clock();
        let start = storage.now();
        let haste = || haste;
        let duty = Duty::new(&*storage, &haste);
        for _ in 0..10_000 {
            storage.sleep(Duration::from_micros(100));
            duty.rest();
        }
        storage.now().saturating_sub(start).as_secs_f64()
    }

    #[test]
    fn haste_says_which_part_of_the_time_is_worked() {
        let much = passed(Haste::Much);
        for (haste, times) in [(Haste::None, 3.0), (Haste::Some, 2.0), (Haste::Much, 1.0)] {
            let took = passed(haste) / much;
            assert!((took - times).abs() < 0.3, "{haste:?}: {took}");
        }
    }
}
