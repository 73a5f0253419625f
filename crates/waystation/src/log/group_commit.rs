//! Group commit: one sync serves all that wait for it.
//!
//! The first waiter becomes the leader: it closes the open block, writes out the copied blocks, syncs the
//! segments and tells the rest how far the log is durable. The threads that arrive while it syncs form the next
//! group. Two leaders may be under way, so that a group gathers, copies and writes while the one before it
//! waits for the device.
//!
//! Invariants: `durable_lsn` moves only after a successful sync of every segment with unsynced writes (their
//! names are durable before the first of them); padding is never written again, since a block once closed
//! stays closed.

use super::writer_state::WriterState;
use super::{Log, Suspension};
use crate::error::Result;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{Arc, MutexGuard, lock, thread, wait};

/// How many syncs may be under way.
const LEADERS_MAX: usize = 2;
/// How often a leader looks again for company before it goes.
const GATHER_ROUNDS_MAX: usize = 4;

impl Log {
    /// Makes every record that ends at or below `lsn` survive a power loss; waits for the records that are not published.
    pub(crate) fn sync(&self, lsn: u64) -> Result<()> {
        self.sync_callers.fetch_add(1, SeqCst);
        let outcome = self.lead_or_follow(lsn);
        self.sync_callers.fetch_sub(1, SeqCst);
        outcome
    }

    fn lead_or_follow(&self, lsn: u64) -> Result<()> {
        let mut state = lock(&self.writer);
        loop {
            if state.durable_lsn >= lsn {
                return Ok(());
            }
            if state.suspension.is_some() {
                return Err(Suspension::error(state.suspension.as_ref()));
            }
            if state.syncs_running < LEADERS_MAX {
                state = self.lead(state);
            } else {
                state = wait(&self.durability, state);
            }
        }
    }

    /// Lets threads that are about to ask for a sync do so: the threads that the last sync woke run now, write and
    /// come back, and one sync serves them all. Costs a lone caller one system call.
    fn gather(&self) {
        let mut callers = self.sync_callers.load(SeqCst);
        for _ in 0..GATHER_ROUNDS_MAX {
            thread::yield_now();
            let now = self.sync_callers.load(SeqCst);
            if now <= callers {
                return;
            }
            callers = now;
        }
    }

    /// Makes everything visible so far survive a power loss. Visible records may lie beyond [`Publication::copied_lsn`],
    /// which is raised a moment later; so everything that is reserved so far is synced.
    ///
    /// [`Publication::copied_lsn`]: super::publication::Publication::copied_lsn
    pub(crate) fn sync_all(&self) -> Result<()> {
        self.sync(self.reserved_lsn())
    }

    /// One sync on behalf of all that wait. The outcome is in the state: durable further, or suspended.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, WriterState>) -> MutexGuard<'a, WriterState> {
        state.syncs_running += 1;
        drop(state);
        self.gather();
        let (end, records_end) = self.close_block();
        self.publication.wait_copied(records_end);
        state = lock(&self.writer);
        if let Some(deferral) = &mut state.deferral {
            deferral.note_sync(self.storage.now());
        }
        state = self.write_through(state, end);
        if state.suspension.is_none() {
            state = self.sync_segments(state);
        }
        state.syncs_running -= 1;
        self.durability.notify_all();
        if state.suspension.is_some() {
            self.call_writers();
        }
        state
    }

    /// Writes the records published so far to segments, as far as writes are not suspended, and makes nothing durable.
    pub(crate) fn write_all(&self) {
        let (end, records_end) = self.close_block();
        self.publication.wait_copied(records_end);
        drop(self.write_through(lock(&self.writer), end));
    }

    /// Writes the closed blocks, which are copied, up to `end` to segments, unless writes are suspended.
    fn write_through<'a>(
        &'a self,
        mut state: MutexGuard<'a, WriterState>,
        end: u64,
    ) -> MutexGuard<'a, WriterState> {
        while state.written_lsn < end && state.suspension.is_none() {
            let (back, worked) = self.take_any_run(state);
            state = if worked {
                back
            } else {
                wait(&self.progress, back)
            };
        }
        state
    }

    /// Makes durable what is written.
    pub(super) fn sync_segments<'a>(
        &'a self,
        mut state: MutexGuard<'a, WriterState>,
    ) -> MutexGuard<'a, WriterState> {
        let written = state.written_lsn;
        let covered = state.unsynced.clone();
        state.syncing += 1;
        drop(state);
        let synced = covered
            .iter()
            .try_for_each(|segment| segment.file.file.sync());
        let mut state = lock(&self.writer);
        state.syncing -= 1;
        match synced {
            // Another failure may have come in between: then healing decides how far the log is durable.
            Ok(()) if state.suspension.is_none() => {
                state.durable_lsn = state.durable_lsn.max(written);
                // What was written since the sync began is for the next one.
                state.unsynced.retain(|it| {
                    !covered.iter().any(|synced| {
                        Arc::ptr_eq(&synced.file, &it.file) && synced.last_write == it.last_write
                    })
                });
                let durable = state.durable_lsn;
                debug_assert!(durable <= self.released_lsn.load(SeqCst));
            }
            Ok(()) => {}
            Err(error) => self.suspend(&mut state, &error),
        }
        state
    }
}
