//! Rest: what is done when no writes come for a while; and what is watched while they come.
//!
//! Data at the edge comes in bursts. Between two of them there is time to put what the last one left in memory
//! into a table and to merge level 0 down: reads then look into fewer places, the log is free, and the next
//! open is quick. Neither is done for a few bytes, which would be rewritten too often for what it brings.
//!
//! The *watcher*, a background job, looks every [`LOOK`] while writes come, until it has seen the same last write
//! for [`QUIET`]. At rest it looks when keys expire; the first write after a rest wakes it.

use super::Core;
use crate::background::{Kind, Next};
use crate::cemetery::expiry::micros;
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::lock;
use std::time::Duration;

/// The time between two looks while writes come.
const LOOK: Duration = Duration::from_millis(80);
/// With a deadline for deletions it is this part of that, if that is less, but not less than the shortest.
const DEADLINE_PART: u32 = 16;
const LOOK_MIN: Duration = Duration::from_millis(20);
/// When nothing was written for so long, it is a rest.
const QUIET: Duration = Duration::from_millis(240);
/// At rest, expired keys are looked at again so much later if something stands in the way of flushing them.
const LOOK_AT_REST: Duration = QUIET;
/// At rest a memtable is flushed that holds at least this part of what it could.
const WORTH_FLUSHING: usize = 4;
/// Or with so many graves: what they hide may be large.
const MANY_GRAVES: usize = 1_000;

/// What the watcher knows.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The last write that it saw, and when first.
    seen: Option<(u64, Duration)>,
    /// A snapshot holds back the flush of expired keys.
    waits_for_release: bool,
}

impl Core {
    /// One look of the watcher, as a background job.
    pub(super) fn watch_round(&self) -> Next {
        if self.is_stopping() {
            return Next::Idle;
        }
        if let Err(error) = self.search_dead_ranges() {
            // A reader that comes there is told.
            log::debug!("looking for dead ranges failed: {error}");
        }
        self.watch_deletions();
        self.keep_reserve();
        if self.is_at_rest() {
            return self.go_on_resting();
        }
        let (now, last) = (self.storage.now(), self.log.visible_sequence());
        let since = {
            let mut watch = lock(&self.watch);
            match watch.seen {
                Some((seen, since)) if seen == last => since,
                _ => {
                    watch.seen = Some((last, now));
                    now
                }
            }
        };
        self.expect_keeping();
        if now.saturating_sub(since) < QUIET {
            return Next::At(now + self.look_pause());
        }
        self.begin_rest(last);
        self.go_on_resting()
    }

    /// The time between two looks while writes come.
    fn look_pause(&self) -> Duration {
        let deadline = self.options.deletion_deadline;
        deadline.map_or(LOOK, |it| (it / DEADLINE_PART).clamp(LOOK_MIN, LOOK))
    }

    /// No thread has written for a while since write `sequence`.
    fn begin_rest(&self, sequence: u64) {
        let is_much =
            self.active_reserved.load(Relaxed) >= self.options.memtable_bytes / WORTH_FLUSHING;
        let graves = &self.read_states.load().active.memory.graves;
        let has_deadline = self.options.deletion_deadline.is_some();
        // A deleted range hides much, for all that is known, and nothing comes back before it is flushed.
        let is_worth_it = graves.has_ranges() || graves.points().len() >= MANY_GRAVES;
        let is_short = self.is_short_of_room();
        if is_much || is_worth_it || is_short || (has_deadline && !graves.is_empty()) {
            self.rotate_now();
        }
        self.regions.release();
        self.rested_at.store(sequence, SeqCst);
        self.look_again();
        self.keep_soon();
        self.tell_waiters();
    }

    /// No thread writes: the watcher sleeps until one does, or keys expire, unless there is more to look at.
    fn go_on_resting(&self) -> Next {
        self.sleeping.store(true, SeqCst);
        // A write that came before saw the watcher awake.
        if !self.is_at_rest() || !self.graves.has_looked() {
            self.sleeping.store(false, SeqCst);
            return Next::At(self.storage.now() + self.look_pause());
        }
        self.next_expiry().map_or(Next::Idle, Next::At)
    }

    /// When expired keys can be flushed, if there are keys that expire and no snapshot holds that back.
    fn next_expiry(&self) -> Option<Duration> {
        // Before the look: a release after it wakes the watcher.
        lock(&self.watch).waits_for_release = true;
        let read_state = self.read_states.load();
        let due_from = read_state.due_from();
        let (now, time) = (self.storage.now(), self.time());
        let flush = if due_from == u64::MAX {
            None
        } else if !read_state.flushed.spilled().is_empty() {
            // They are split as their dates pass.
            Some(now + LOOK_AT_REST)
        } else if due_from > time {
            Some(now + Duration::from_micros(due_from - time) + self.gather_at_rest())
        } else if self.oldest_time() < due_from.saturating_add(micros(self.gather_at_rest()))
            && self.snapshots.summary().0 > 0
        {
            return None;
        } else {
            Some(now + LOOK_AT_REST)
        };
        lock(&self.watch).waits_for_release = false;
        flush
    }

    /// A snapshot was released: what it held back can be flushed.
    pub(super) fn watch_after_release(&self) {
        if std::mem::take(&mut lock(&self.watch).waits_for_release) {
            self.jobs.submit(Kind::Watch);
        }
    }

    /// Whether no thread has written for a while.
    pub(super) fn is_at_rest(&self) -> bool {
        self.rested_at.load(SeqCst) == self.log.visible_sequence()
    }

    /// Tells the watcher that there is something new, if it sleeps.
    #[inline]
    pub(super) fn end_rest(&self) {
        if self.sleeping.load(Relaxed) {
            self.wake_watcher();
        }
    }

    #[cold]
    pub(super) fn wake_watcher(&self) {
        if self.sleeping.swap(false, SeqCst) {
            self.jobs.submit(Kind::Watch);
        }
    }
}
