//! Rest: what is done when nobody writes for a while.
//!
//! Data at the edge comes in bursts. Between two of them there is time to put what the last one left in memory
//! into a table and to merge level 0 down: reads then look into fewer places, the log is free, and the next
//! open is quick. Neither is done for a few bytes, which would be rewritten too often for what it brings.
//!
//! One thread watches. It sleeps while nothing is new, is woken by the first write after a rest, and then looks
//! every [`LOOK`] until it has seen the same last write [`LOOKS`] times.

use super::Core;
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::{lock, wait};
use std::time::Duration;

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// So many times from one look to the next dead keys are looked for: half a million a second may be deleted.
const LEARNING: u32 = 4;
/// As many looks that find nothing new make a rest.
const LOOKS: u32 = 12;
/// At rest a memtable is flushed that holds at least this part of what it could.
const WORTH_FLUSHING: usize = 4;
/// Or with so many graves: what they hide may be large.
const MANY_GRAVES: usize = 1_000;

impl Core {
    /// Watches for rests, until told to stop.
    pub(super) fn rest_loop(&self) {
        let (mut seen, mut looks) = (self.log.visible_sequence(), 0);
        loop {
            if self.is_at_rest() {
                let mut background = lock(&self.background);
                self.sleeping.store(true, SeqCst);
                while self.is_at_rest() && self.has_looked_for_needs() && !background.stopping {
                    if self.views.load().earliest() == u64::MAX {
                        background = wait(&self.wake, background);
                        continue;
                    }
                    // Keys expire while nobody writes.
                    drop(background);
                    self.storage.sleep(LOOK * LOOKS);
                    self.bury_expired(false);
                    self.tend_vaults();
                    background = lock(&self.background);
                }
                self.sleeping.store(false, SeqCst);
                looks = 0;
            }
            if self.is_stopping() {
                return;
            }
            for _ in 0..LEARNING {
                self.storage.sleep(LOOK / LEARNING);
                if let Err(error) = self.learn() {
                    // Whoever reads there will be told.
                    log::debug!("looking for dead keys failed: {error}");
                }
            }
            self.watch_deletions();
            let now = self.log.visible_sequence();
            looks = if now == seen { looks + 1 } else { 0 };
            seen = now;
            if looks >= LOOKS {
                self.begin_rest(seen);
            }
        }
    }

    /// Nobody has written for a while since write `sequence`.
    fn begin_rest(&self, sequence: u64) {
        let is_much =
            self.active_reserved.load(Relaxed) >= self.options.memtable_bytes / WORTH_FLUSHING;
        let graves = &self.views.load().active.memory.graves;
        let has_deadline = self.options.deletion_deadline.is_some();
        // A deleted range hides much, for all that is known, and nothing comes back before it is flushed.
        let is_worth_it = graves.has_ranges() || graves.points().len() >= MANY_GRAVES;
        if is_much || is_worth_it || (has_deadline && !graves.is_empty()) {
            self.rotate_now();
        }
        self.regions.release();
        self.rested_at.store(sequence, SeqCst);
        self.look_again();
        self.changed.notify_all();
    }

    /// Whether nobody has written for a while.
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
        // The watcher looks under this lock.
        drop(lock(&self.background));
        self.wake.notify_all();
    }
}
