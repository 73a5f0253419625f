//! Releasing the log. Its beginning is released up to the first record that a memtable or a residency still needs. Before that, a
//! checkpoint of the device table is durable that tells what the released part would have told; and before that, the log is
//! durable through everything the checkpoint tells.

use super::checkpoint::{self, Directory};
use super::contended::ContendedLock;
use super::context::{Context, Events, Memtables};
use super::departures::LEISURE_MAX;
use crate::directory::{CHECKPOINT_DRAFT, CHECKPOINT_NAME, replace_file};
use crate::error::Result;
use crate::storage::{Duty, IoPriority, Storage};
use std::path::Path;
use std::time::Duration;

/// A checkpoint is written at least this often while anything is written, so that ages are not lost to a crash.
pub(crate) const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(10);

/// Writes checkpoints, and frees the log behind them.
pub(crate) struct Checkpoints {
    last: ContendedLock<Last>,
}

/// What the last checkpoint said.
struct Last {
    /// Records up to here are not needed.
    released: u64,
    /// It tells of everything up to here ...
    sequence: u64,
    /// ... and was written then.
    at: Duration,
}

impl Checkpoints {
    /// After an opening at `now` that found the checkpoint `directory`.
    pub(crate) fn new(directory: &Directory, now: Duration) -> Self {
        Self {
            last: ContendedLock::new(Last {
                released: directory.released,
                sequence: 0,
                at: now,
            }),
        }
    }

    /// When another is due, if the last one does not tell of everything.
    pub(crate) fn next<E>(&self, context: &Context<'_, E>) -> Option<Duration> {
        let last = self.last.lock();
        let is_behind = last.sequence < context.upper.log.visible_sequence();
        is_behind.then(|| last.at + CHECKPOINT_INTERVAL)
    }

    /// Frees the part of the log that nothing needs, if that is a segment or more, or if `always`.
    pub(crate) fn free<E: Events + Memtables>(
        &self,
        context: &Context<'_, E>,
        always: bool,
    ) -> Result<()> {
        context.engine.move_empty_memtable();
        // In this order: what begins after the memtable's start lies behind it.
        let (mut lsn, mut sequence) = context.engine.memtables_start();
        if let Some(residency) = context.upper.table.oldest_need() {
            // One by one: a memtable that was replayed may begin before its first record.
            (lsn, sequence) = (lsn.min(residency.0), sequence.min(residency.1));
        }
        let frees = context.upper.log.would_free(lsn);
        let is_due = {
            let last = self.last.lock();
            let age = context.storage.now().saturating_sub(last.at);
            age >= CHECKPOINT_INTERVAL && last.sequence < context.upper.log.visible_sequence()
        };
        if !(always || frees || is_due) {
            return Ok(());
        }
        let priority = if always {
            IoPriority::High
        } else {
            IoPriority::Low
        };
        self.write(context, sequence.saturating_sub(1), priority)?;
        context.upper.log.release_below(lsn);
        Ok(())
    }

    /// Writes the device table's checkpoint, and returns it; records up to `released` are not needed from then on.
    pub(crate) fn write<E: Events>(
        &self,
        context: &Context<'_, E>,
        released: u64,
        priority: IoPriority,
    ) -> Result<Vec<u8>> {
        let mut last_one = self.last.lock();
        let released = released.max(last_one.released);
        let table = &context.upper.table;
        let directory = Directory {
            released,
            clock: context.now(),
            ..*context.directory
        };
        let until = context.storage.now() + LEISURE_MAX;
        let priority = || match priority {
            IoPriority::Low => {
                context.priority_by_now(context.low_priority_until(until), &self.last)
            }
            other => other,
        };
        let duty = Duty::new(context.storage, &priority);
        let saved = checkpoint::saved_devices(table, &duty);
        let saved = saved.iter().inspect(|_| duty.pause());
        let content = checkpoint::encode(&directory, saved, &table.ledger);
        let (mut end, mut last) = (0, 0);
        context
            .upper
            .log
            .at_front(|lsn, sequence| (end, last) = (lsn, sequence - 1));
        context.upper.log.wait_visible(last);
        context.upper.log.sync(end)?;
        context.upper.note_durable(last);
        save(context.storage, context.dir, &content)?;
        *last_one = Last {
            released,
            sequence: last,
            at: context.storage.now(),
        };
        Ok(content)
    }
}

/// Replaces the checkpoint in `dir`.
pub(crate) fn save(storage: &dyn Storage, dir: &Path, content: &[u8]) -> Result<()> {
    replace_file(storage, dir, CHECKPOINT_DRAFT, CHECKPOINT_NAME, content)
}
