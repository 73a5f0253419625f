//! Times to live: whose time it is, and when what has expired is flushed.
//!
//! A put with a time to live is a put and a grave with a date, which is the time of the put and that span. The *time*
//! is the wall clock's when the database is opened, or the latest that the database remembers, if that is later; from
//! then on a clock counts that nobody sets. So a step of the wall clock does nothing to an open database, and no time
//! goes back at which a grave was promoted. A reader takes the time with the sequence number: a snapshot's stands
//! still.
//!
//! ```text
//!   put --> version and dated grave          hidden from readers that are past the date
//!                 |  the oldest reader is past it too; nobody writes, or much time passes, or memory is full anyway
//!                 v
//!           the time is logged, memory is flushed, and all such graves go to the others: nothing but them is written
//! ```

use super::pipeline::{check_limits, checked_room, room_of};
use super::{Core, Durability, WriteBatch};
use crate::error::{Error, Result};
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{Mutex, lock};
use std::time::Duration;
use waystation_format::batch::{Operation, TIME_MAX};

/// At rest, expired keys are gathered for so long before they are flushed.
const GATHER_AT_REST: Duration = Duration::from_secs(1);
/// While somebody writes; memory is full sooner as a rule.
const GATHER_AT_WORK: Duration = Duration::from_secs(10);

/// What time it is.
pub(super) struct Times {
    /// The time when the database was opened (microseconds since 1970).
    opened: u64,
    /// The same by the clock that counts from then on.
    opened_at: Duration,
    /// Whether no time is logged any more.
    is_over: Mutex<bool>,
}

/// Microseconds; so many as there are.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).map_or(TIME_MAX, |it| it.min(TIME_MAX))
}

impl Times {
    /// The times of a database that is opened when the wall clock shows `wall_clock` and the one that counts `now`, and
    /// remembers that `reached` was reached.
    pub(super) fn new(wall_clock: Duration, now: Duration, reached: u64) -> Self {
        Self {
            opened: micros(wall_clock).max(reached),
            opened_at: now,
            is_over: Mutex::new(false),
        }
    }

    /// The time when the clock that counts showed `now`.
    pub(super) fn at(&self, now: Duration) -> u64 {
        let since = now.saturating_sub(self.opened_at);
        self.opened.saturating_add(micros(since)).min(TIME_MAX)
    }
}

/// The time at which `lifetime` ends that begins at `now`.
fn end_of(lifetime: u64, now: u64) -> Result<u64> {
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

impl Core {
    /// The time (microseconds since 1970).
    pub(super) fn time(&self) -> u64 {
        self.times.at(self.storage.now())
    }

    /// The time that all who read, or will, are past.
    pub(super) fn oldest_time(&self) -> u64 {
        self.times
            .at(self.snapshots.oldest_time(|| self.storage.now()))
    }

    /// Puts `value` under `key` for `lifetime`.
    pub(super) fn put_for(
        &self,
        key: &[u8],
        value: &[u8],
        lifetime: Duration,
        durability: Durability,
    ) -> Result<()> {
        let micros = lifetime.as_nanos().div_ceil(1000);
        let expiry = end_of(u64::try_from(micros).unwrap_or(u64::MAX), self.time())?;
        // Before anything is copied.
        let operation = Operation {
            key,
            value: Some(value),
            ..Operation::default()
        };
        checked_room(&operation, &self.options.order)?;
        let mut batch = WriteBatch::new();
        batch.put_until(key, value, expiry);
        let limits = check_limits(&batch, &self.options.order)?;
        self.commit(&batch, limits.room, durability)
    }

    /// `batch`, in which the longest time to live is `longest`, with times in their place.
    pub(super) fn with_times(&self, batch: &WriteBatch, longest: u64) -> Result<WriteBatch> {
        let now = self.time();
        end_of(longest, now)?;
        let mut fixed = batch.clone();
        fixed.fix_times(now);
        Ok(fixed)
    }

    /// Has what has expired flushed, once enough of it may have come together, or `at_once`.
    pub(super) fn flush_expired(&self, at_once: bool) {
        let is_over = lock(&self.times.is_over);
        let read_state = self.read_states.load();
        let due_from = read_state.due_from();
        if *is_over || due_from == u64::MAX || self.full_memtables.load(SeqCst) > 0 {
            return;
        }
        let gather = match self.options.deletion_deadline {
            _ if at_once => Duration::ZERO,
            None if !self.is_at_rest() => GATHER_AT_WORK,
            _ => self.gather_at_rest(),
        };
        if due_from.saturating_add(micros(gather)) > self.oldest_time() {
            return;
        }
        match self.log_time() {
            Ok(()) => self.rotate_now(),
            // What has expired is hidden in any case, and this is tried again.
            Err(error) => log::debug!("flushing what has expired failed: {error}"),
        }
    }

    /// For how long expired keys are gathered at rest.
    pub(super) fn gather_at_rest(&self) -> Duration {
        let deadline = self.options.deletion_deadline;
        deadline.map_or(GATHER_AT_REST, |it| GATHER_AT_REST.min(it / 4))
    }

    /// Logs the time if something has expired: wherever the log goes, it is over there, too, even if a snapshot still
    /// sees it here.
    pub(super) fn log_expired(&self) -> Result<()> {
        if self.read_states.load().earliest() > self.time() {
            return Ok(());
        }
        self.log_time()
    }

    fn log_time(&self) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.reach(self.time());
        let room = batch
            .iter()
            .map(|operation| room_of(&operation, &self.options.order))
            .sum();
        self.commit(&batch, room, Durability::ProcessCrash)
    }

    /// Has what has expired flushed for the last time: the database is being closed.
    pub(super) fn end_times(&self) {
        self.flush_expired(true);
        *lock(&self.times.is_over) = true;
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_the_later_of_two() {
        let second = Duration::from_secs(1);
        let times = Times::new(100 * second, 5 * second, 0);
        assert_eq!(times.at(5 * second), 100_000_000);
        assert_eq!(times.at(7 * second), 102_000_000);
        assert_eq!(times.at(second), 100_000_000);
        let remembered = Times::new(100 * second, 5 * second, 300_000_000);
        assert_eq!(remembered.at(6 * second), 301_000_000);
        assert_eq!(times.at(Duration::MAX), TIME_MAX);
    }

    #[test]
    fn lifetimes_have_limits() {
        assert_eq!(end_of(1, 7).unwrap(), 8);
        assert!(end_of(0, 7).is_err());
        assert!(end_of(TIME_MAX, 1).is_err() && end_of(u64::MAX, 1).is_err());
        assert_eq!(end_of(TIME_MAX - 1, 1).unwrap(), TIME_MAX);
    }
}
