//! A limit on how many bytes leave per second, all takers together.
//!
//! A token bucket, kept as a schedule: the time up to which the bytes let through so far are booked. Who takes bytes
//! books them behind the others and sleeps until its turn. Time without takers is saved up, a tenth of a
//! second at most.

use super::Storage;
use crate::sync::{Mutex, lock};
use std::time::Duration;

/// Unused time that is saved up.
const SAVED_MAX: Duration = Duration::from_millis(100);

/// A limit on how many bytes leave per second.
#[derive(Debug)]
pub(crate) struct RateLimit {
    bytes_per_second: usize,
    /// Up to when, by the storage's clock, the bytes let through are booked.
    booked_until: Mutex<Duration>,
}

impl RateLimit {
    /// Lets `bytes_per_second` through, which is not 0.
    pub(crate) fn new(bytes_per_second: usize) -> Self {
        Self {
            bytes_per_second,
            booked_until: Mutex::new(Duration::ZERO),
        }
    }

    /// Lets `bytes` through, after a sleep if need be.
    pub(crate) fn take(&self, bytes: usize, storage: &dyn Storage) {
        let now = storage.now();
        let turn = {
            let mut booked = lock(&self.booked_until);
            let turn = (*booked).max(now.saturating_sub(SAVED_MAX));
            *booked = turn + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
            *booked
        };
        let pause = turn.saturating_sub(now);
        if !pause.is_zero() {
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
    fn takers_share_the_rate_and_idle_time_is_saved_up_to_a_limit() {
        let storage = SimStorage::new(1);
        storage.stop_clock();
        let rate = RateLimit::new(1_000_000);
        let start = storage.now();
        for _ in 0..50 {
            rate.take(100_000, &*storage);
        }
        let took = storage.now().saturating_sub(start);
        assert!(
            took >= Duration::from_millis(4_850) && took < Duration::from_secs(7),
            "{took:?}"
        );
        storage.sleep(Duration::from_secs(1000));
        let start = storage.now();
        for _ in 0..10 {
            rate.take(100_000, &*storage);
        }
        let took = storage.now().saturating_sub(start);
        assert!(took >= Duration::from_millis(850), "{took:?}");
    }
}
