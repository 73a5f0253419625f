//! A share of the time: long work that nobody waits for, done a little at a time.
//!
//! What takes a processor for a tenth of a second takes it from writers, and where those need most of it themselves, all of
//! them are late by as much. So whoever does such work comes by here often, and sleeps when it has worked for a moment.
//! It is the clock that is looked at: where others have the processor, more of the time counts as work, and the pause is
//! the longest all the sooner.

use super::Storage;
use std::cell::Cell;
use std::time::Duration;

/// For so long work goes on.
const WORK: Duration = Duration::from_micros(500);
/// Then it rests for so many times as long as it went on.
const REST: u32 = 2;
/// But no longer than this.
const REST_MAX: Duration = Duration::from_millis(2);

/// See the module.
pub(crate) struct Duty<'a> {
    storage: &'a dyn Storage,
    /// Whether somebody waits by now.
    is_urgent: &'a dyn Fn() -> bool,
    resumed: Cell<Duration>,
}

impl<'a> Duty<'a> {
    /// Work begins now. It goes on without a pause while `is_urgent` says so.
    pub(crate) fn new(storage: &'a dyn Storage, is_urgent: &'a dyn Fn() -> bool) -> Self {
        Self {
            storage,
            is_urgent,
            resumed: Cell::new(storage.now()),
        }
    }

    /// Sleeps if it is time to.
    pub(crate) fn rest(&self) {
        let now = self.storage.now();
        let worked = now.saturating_sub(self.resumed.get());
        if worked < WORK {
            return;
        }
        if !(self.is_urgent)() {
            self.storage.sleep((worked * REST).min(REST_MAX));
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
    fn passed(is_urgent: bool) -> Duration {
        let storage = SimStorage::new(1);
        let start = storage.now();
        let is_urgent = || is_urgent;
        let duty = Duty::new(&*storage, &is_urgent);
        for _ in 0..10_000 {
            storage.sleep(Duration::from_micros(100));
            duty.rest();
        }
        storage.now().saturating_sub(start)
    }

    #[test]
    fn a_third_of_the_time_is_worked_unless_it_is_urgent() {
        let (calm, urgent) = (passed(false), passed(true));
        assert!(
            calm > urgent * 5 / 2 && calm < urgent * 7 / 2,
            "{calm:?} instead of {urgent:?}"
        );
    }
}
