//! The time that keys with a time to live go by.
//!
//! A put with a time to live is a put and a grave with a date, which is the time of the put and that span. The *time*
//! is the wall clock's when the database is opened, or the latest that the database remembers, if that is later; from
//! then on a clock counts that cannot be set. So a step of the wall clock does nothing to an open database, and no time
//! goes back at which a grave was promoted. A reader takes the time with the sequence number: a snapshot's stands
//! still.

use crate::error::{Error, Result};
use std::time::Duration;
use waystation_format::batch::TIME_MAX;

/// What time it is for keys that expire.
pub(crate) struct ExpiryClock {
    /// The time when the database was opened (microseconds since 1970).
    opened: u64,
    /// The same by the clock that counts from then on.
    opened_at: Duration,
}

/// Microseconds; so many as there are.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).map_or(TIME_MAX, |it| it.min(TIME_MAX))
}

impl ExpiryClock {
    /// The clock of a database that is opened when the wall clock shows `wall_clock` and the one that counts `now`, and
    /// remembers that `reached` was reached.
    pub(crate) fn new(wall_clock: Duration, now: Duration, reached: u64) -> Self {
        Self {
            opened: micros(wall_clock).max(reached),
            opened_at: now,
        }
    }

    /// The time when the clock that counts showed `now`.
    pub(crate) fn at(&self, now: Duration) -> u64 {
        let since = now.saturating_sub(self.opened_at);
        self.opened.saturating_add(micros(since)).min(TIME_MAX)
    }
}

/// The time at which `lifetime` ends that begins at `now`.
///
/// # Errors
/// [`Error::InvalidArgument`] if it ends where it begins, or behind the last time there is.
pub(crate) fn end_of(lifetime: u64, now: u64) -> Result<u64> {
    if lifetime == 0 {
        return Err(Error::InvalidArgument(
            "the time to live is zero; it must be longer".into(),
        ));
    }
    let expiry = now.checked_add(lifetime).filter(|it| *it <= TIME_MAX);
    expiry.ok_or_else(|| {
        Error::InvalidArgument(
            "the time to live ends after the end of time, in 140,000 years".into(),
        )
    })
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_the_later_of_two() {
        let second = Duration::from_secs(1);
        let clock = ExpiryClock::new(100 * second, 5 * second, 0);
        assert_eq!(clock.at(5 * second), 100_000_000);
        assert_eq!(clock.at(7 * second), 102_000_000);
        assert_eq!(clock.at(second), 100_000_000);
        let remembered = ExpiryClock::new(100 * second, 5 * second, 300_000_000);
        assert_eq!(remembered.at(6 * second), 301_000_000);
        assert_eq!(clock.at(Duration::MAX), TIME_MAX);
    }

    #[test]
    fn lifetimes_have_limits() {
        assert_eq!(end_of(1, 7).unwrap(), 8);
        assert!(end_of(0, 7).is_err());
        assert!(end_of(TIME_MAX, 1).is_err() && end_of(u64::MAX, 1).is_err());
        assert_eq!(end_of(TIME_MAX - 1, 1).unwrap(), TIME_MAX);
    }
}
