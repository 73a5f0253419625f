//! Keys with a time to live: how they are put, and when what has expired is flushed.
//!
//! ```text
//!   put --> version and dated grave          hidden from readers that are past the date
//!                 |  the oldest reader is past it too; no thread writes, or much time passes, or memory is full anyway
//!                 v
//!           the time is logged, memory is flushed, and all such graves are promoted: nothing but them is written
//! ```
//!
//! Whose time it is: [`ExpiryClock`](crate::cemetery::expiry::ExpiryClock).

use super::pipeline::{check_limits, checked_room};
use super::{Core, Durability, WriteBatch};
use crate::cemetery::expiry::{end_of, micros};
use crate::error::Result;
use crate::read_state::apply::room_of;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::lock;
use std::time::Duration;
use waystation_format::batch::Operation;

/// In an idle database expired keys are gathered for so long before they are flushed.
const GATHER_WHEN_IDLE: Duration = Duration::from_secs(1);
/// In a busy one; memory is full sooner as a rule.
const GATHER_WHEN_BUSY: Duration = Duration::from_secs(10);

impl Core {
    /// The time (microseconds since 1970).
    pub(super) fn time(&self) -> u64 {
        self.clock.at(self.storage.now())
    }

    /// The time that all who read, or will, are past.
    pub(super) fn oldest_time(&self) -> u64 {
        self.clock
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
        let is_over = lock(&self.is_time_over);
        let read_state = self.read_states.load();
        let due_from = read_state.due_from();
        if *is_over || due_from == u64::MAX || self.full_memtables.load(SeqCst) > 0 {
            return;
        }
        let gather = match self.options.deletion_deadline {
            _ if at_once => Duration::ZERO,
            None if !self.is_idle() => GATHER_WHEN_BUSY,
            _ => self.gather_when_idle(),
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

    /// For how long expired keys are gathered in an idle database.
    pub(super) fn gather_when_idle(&self) -> Duration {
        let deadline = self.options.deletion_deadline;
        deadline.map_or(GATHER_WHEN_IDLE, |it| GATHER_WHEN_IDLE.min(it / 4))
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
        *lock(&self.is_time_over) = true;
    }
}
