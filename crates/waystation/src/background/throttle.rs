//! Back-pressure: writers slow down early and smoothly instead of running into a wall.
//!
//! Four things can fall behind: flushing (full memtables wait, and the ring that keeps what they hold), compaction (level 0
//! grows), settling (the upper level passes a budget) and the relief of memory that databases share. Each has a range over
//! which the admitted rate falls from "as fast as you can" towards the drained rate; in a steady load it settles where both
//! are equal. The rate is kept by a shared schedule: each write books its bytes and, if the schedule is ahead of the clock,
//! sleeps the difference, a few milliseconds at most at a time.

use crate::storage::Storage;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Full memtables that may wait for their flush; a writer that would fill a further one has to wait.
pub(crate) const FULL_MEMTABLES_MAX: usize = 4;
/// The share of the memory for memtables from which on writers are slowed.
const MEMORY_SLOW: f64 = 0.5;
/// The same of the staging ring, where flushes give its room back.
const RING_SLOW: f64 = 0.7;
/// Level-0 tables from which on writers are slowed.
pub(crate) const LEVEL0_SLOW: usize = 14;
/// Level-0 tables at which writers are almost stopped.
pub(crate) const LEVEL0_STOP: usize = 36;
/// No single sleep is longer; the rest of the debt is left to the writes that follow.
const SLEEP_MAX: Duration = Duration::from_millis(4);
/// Debts below this are left to grow: a shorter sleep costs more than it delays.
const SLEEP_MIN: Duration = Duration::from_micros(300);
/// What was booked is at most so far ahead of the clock: it was booked at the rate of then, and that may be another soon.
const BOOKED_MAX: Duration = Duration::from_secs(1);
/// A rate below this would be a standstill (bytes per second).
const RATE_MIN: f64 = 1_000_000.0;
/// The share of a budget of the upper level from which on its writers are slowed.
const UPPER_SLOW: f64 = 0.9;
/// The share at which they are almost stopped.
const UPPER_STOP: f64 = 1.25;
/// The share of shared memory at which writers are almost stopped: a ceiling is not to be passed.
const SHARED_STOP: f64 = 1.0;
/// From where they are slowed on, writers are held to this (bytes per second): more than most write.
const UPPER_RATE_MAX: f64 = 1e9;

/// A rate or a duration as a whole number; negative ones do not occur.
#[expect(clippy::cast_sign_loss, reason = "see above")]
fn whole(value: f64) -> u64 {
    value.max(0.0) as u64
}

/// The factor, of the drained rate, at which writes are admitted; `None` for no limit.
pub(crate) fn admitted_share(memory_fill: f64, level0_tables: usize) -> Option<f64> {
    // Twice the drained rate at first, falling to a twentieth when the memory is used up.
    let memory = (memory_fill > MEMORY_SLOW).then(|| {
        let over = (memory_fill - MEMORY_SLOW) / (1.0 - MEMORY_SLOW);
        2.0 - 1.95 * over.min(1.0)
    });
    let level0 = (level0_tables > LEVEL0_SLOW).then(|| {
        let over = (level0_tables - LEVEL0_SLOW) as f64 / (LEVEL0_STOP - LEVEL0_SLOW) as f64;
        (1.0 - over.min(1.0)).powi(2)
    });
    match (memory, level0) {
        (Some(memory), Some(level0)) => Some(memory.min(level0)),
        (memory, level0) => memory.or(level0),
    }
}

/// The fill of the memory that holds writers back as much as this fill of the ring does. That is late: when the flush of half
/// a ring ends, the next memtable had better be full, so that the next flush can begin.
fn as_memory_fill(ring: f64) -> f64 {
    MEMORY_SLOW + (1.0 - MEMORY_SLOW) * (ring - RING_SLOW) / (1.0 - RING_SLOW)
}

/// The rate (bytes per second) at which writes are admitted while `fill` of a budget of the upper level is used; `None` for
/// no limit.
fn upper_rate(fill: f64) -> Option<f64> {
    falling_rate(fill, UPPER_STOP)
}

/// The rate at which writers are admitted while `fill` of a budget is used, if they are almost stopped at `stop` of it.
fn falling_rate(fill: f64, stop: f64) -> Option<f64> {
    let left = (stop - fill).max(0.0) / (stop - UPPER_SLOW);
    (fill > UPPER_SLOW).then(|| (UPPER_RATE_MAX * left.powi(2)).max(RATE_MIN))
}

/// The rate (bytes per second) at which the writers of each database are admitted while `fill` of the memory is used that it
/// shares with others.
pub(super) fn slowed_rate(fill: f64) -> Option<u64> {
    falling_rate(fill, SHARED_STOP).map(whole)
}

/// How much is used, from 0 to 1.
pub(crate) struct Fill {
    /// Of the active memtable.
    pub(crate) active: f64,
    /// Of the staging ring, if flushes give its room back; else 0.
    pub(crate) ring: f64,
}

/// The schedule that writers keep to.
pub(crate) struct Throttle {
    full_memtables: AtomicUsize,
    level0_tables: AtomicUsize,
    /// What flushes drain, in bytes per second.
    drained_rate: AtomicU64,
    /// What the upper level takes, in bytes per second; 0 for no limit.
    upper_rate: AtomicU64,
    /// Up to when (nanoseconds of the storage's clock) the bytes admitted so far are booked.
    booked_until: AtomicU64,
    slept_micros: AtomicU64,
}

impl Throttle {
    pub(crate) fn new() -> Self {
        Self {
            full_memtables: AtomicUsize::new(0),
            level0_tables: AtomicUsize::new(0),
            drained_rate: AtomicU64::new(200_000_000),
            upper_rate: AtomicU64::new(0),
            booked_until: AtomicU64::new(0),
            slept_micros: AtomicU64::new(0),
        }
    }

    /// Tells how much waits.
    pub(crate) fn observe(&self, full_memtables: usize, level0_tables: usize) {
        self.full_memtables.store(full_memtables, Relaxed);
        self.level0_tables.store(level0_tables, Relaxed);
    }

    /// Tells how much of the upper level's budgets is used.
    pub(crate) fn observe_upper(&self, fill: f64) {
        let rate = upper_rate(fill).map_or(0, whole);
        self.upper_rate.store(rate, Relaxed);
    }

    /// Tells that a flush of `bytes` took `elapsed`.
    pub(crate) fn drained(&self, bytes: u64, elapsed: Duration) {
        let rate = bytes as f64 / elapsed.as_secs_f64().max(1e-6);
        let old = self.drained_rate.load(Relaxed) as f64;
        self.drained_rate
            .store(whole(old * 0.7 + rate * 0.3), Relaxed);
    }

    /// How long writers were held back so far.
    pub(crate) fn slept(&self) -> Duration {
        Duration::from_micros(self.slept_micros.load(Relaxed))
    }

    /// Admits a write of `bytes` while the active memtable and the ring are so full (0 to 1), perhaps after a sleep. That is
    /// asked only where something waits.
    #[inline]
    pub(crate) fn admit(&self, bytes: usize, fill: impl FnOnce() -> Fill, storage: &dyn Storage) {
        let full = self.full_memtables.load(Relaxed);
        let level0 = self.level0_tables.load(Relaxed);
        if full > 0 || level0 > LEVEL0_SLOW {
            self.admit_behind(bytes, (full, &fill()), level0, storage);
        }
    }

    /// The same, where `full` memtables or `level0` tables wait.
    fn admit_behind(
        &self,
        bytes: usize,
        (full, fill): (usize, &Fill),
        level0: usize,
        storage: &dyn Storage,
    ) {
        let memory = (full as f64 + fill.active) / (FULL_MEMTABLES_MAX + 1) as f64;
        let ring = (full > 0).then(|| as_memory_fill(fill.ring));
        let Some(share) = admitted_share(memory.max(ring.unwrap_or(0.0)), level0) else {
            return;
        };
        let rate = (self.drained_rate.load(Relaxed) as f64 * share).max(RATE_MIN);
        self.book(bytes, rate, storage);
    }

    /// Admits a write of `bytes` to a directory with devices, perhaps after a sleep.
    #[inline]
    pub(crate) fn admit_upper(&self, bytes: usize, storage: &dyn Storage) {
        let rate = self.upper_rate.load(Relaxed);
        if rate > 0 {
            self.book(bytes, rate as f64, storage);
        }
    }

    /// Admits a write of `bytes` at `rate` (bytes per second), perhaps after a sleep.
    pub(crate) fn admit_at(&self, bytes: usize, rate: u64, storage: &dyn Storage) {
        self.book(bytes, rate as f64, storage);
    }

    fn book(&self, bytes: usize, rate: f64, storage: &dyn Storage) {
        let now = storage.now().as_nanos() as u64;
        let cost = whole(bytes as f64 / rate * 1e9);
        // Time in which nothing was written is not saved up.
        let booked = self.booked_until.load(Relaxed).max(now) + cost;
        let booked = booked.min(now + BOOKED_MAX.as_nanos() as u64);
        self.booked_until.store(booked, Relaxed);
        let ahead = Duration::from_nanos(booked - now);
        if ahead >= SLEEP_MIN {
            let pause = ahead.min(SLEEP_MAX);
            self.slept_micros
                .fetch_add(pause.as_micros() as u64, Relaxed);
            storage.sleep(pause);
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::storage::SimStorage;

    #[test]
    fn the_admitted_share_falls_without_a_step() {
        assert_eq!(admitted_share(0.4, 3), None);
        let mut last = f64::INFINITY;
        for percent in 51..=100 {
            let share = admitted_share(f64::from(percent) / 100.0, 0).expect("limited");
            assert!(share < last && last - share < 0.05 || last.is_infinite());
            last = share;
        }
        assert!(last > 0.0, "never a standstill");
        let mut last = 1.0;
        for tables in LEVEL0_SLOW + 1..LEVEL0_STOP {
            let share = admitted_share(0.0, tables).expect("limited");
            assert!(share < last && last - share < 0.1);
            last = share;
        }
    }

    #[test]
    fn the_upper_levels_rate_falls_without_a_step() {
        assert_eq!(upper_rate(UPPER_SLOW), None);
        let mut last = UPPER_RATE_MAX;
        for percent in 91..=130 {
            let rate = upper_rate(f64::from(percent) / 100.0).expect("limited");
            assert!(rate <= last && last - rate < 0.06 * UPPER_RATE_MAX);
            last = rate;
        }
        assert!((last - RATE_MIN).abs() < 1.0, "never a standstill");
    }

    #[test]
    fn writers_keep_to_the_upper_levels_rate_however_short_their_writes() {
        let storage = SimStorage::new(1);
        storage.stop_clock();
        let throttle = Throttle::new();
        let passed = |fill| {
            throttle.observe_upper(fill);
            let start = storage.now();
            for _ in 0..10_000 {
                throttle.admit_upper(100, &*storage);
            }
            storage.now().saturating_sub(start)
        };
        assert!(passed(0.9) < SLEEP_MIN, "no limit");
        let slowed = passed(1.2).as_secs_f64();
        let expected = 1e6 / upper_rate(1.2).expect("limited");
        assert!((slowed / expected - 1.0).abs() < 0.1, "{slowed} s");
        assert!(passed(0.5) < SLEEP_MIN, "nothing is left of it");
    }

    #[test]
    fn what_was_booked_at_a_low_rate_is_soon_forgotten() {
        let storage = SimStorage::new(1);
        storage.stop_clock();
        let throttle = Throttle::new();
        throttle.observe_upper(2.0);
        throttle.admit_upper(1 << 30, &*storage);
        throttle.observe_upper(1.0);
        let start = storage.now();
        for _ in 0..10_000 {
            throttle.admit_upper(1000, &*storage);
        }
        let passed = storage.now().saturating_sub(start);
        assert!(
            passed < BOOKED_MAX + Duration::from_millis(100),
            "{passed:?}"
        );
    }
}
