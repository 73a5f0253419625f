//! The residency clock: how long devices have been here.
//!
//! It runs while the database is open and stands still while it is closed, so that a night's standstill settles
//! no device; it follows the storage's monotonic clock and knows nothing of the time of day, so that a clock set
//! forth or back by a day changes nothing. Its reading is kept at checkpoints.

use std::time::Duration;

/// A clock that goes on where it stood.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResidencyClock {
    /// What it shows at `started`.
    base: Duration,
    started: Duration,
}

impl ResidencyClock {
    /// A clock that shows `reading` when the monotonic clock shows `now`.
    pub(crate) fn resume(reading: Duration, now: Duration) -> Self {
        Self {
            base: reading,
            started: now,
        }
    }

    /// What it shows when the monotonic clock shows `now`.
    pub(crate) fn read(&self, now: Duration) -> Duration {
        self.base + now.saturating_sub(self.started)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn it_stands_still_while_closed() {
        let seconds = Duration::from_secs;
        let clock = ResidencyClock::resume(Duration::ZERO, seconds(1000));
        let reading = clock.read(seconds(1030));
        assert_eq!(reading, seconds(30));
        // Opened again, on a machine that was started since.
        let clock = ResidencyClock::resume(reading, seconds(5));
        assert_eq!(clock.read(seconds(5)), seconds(30));
        assert_eq!(clock.read(seconds(15)), seconds(40));
        assert_eq!(
            clock.read(seconds(1)),
            seconds(30),
            "it never goes back behind its start"
        );
    }
}
