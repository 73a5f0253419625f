//! Deferral: a record that soon lies in a table is not written to a segment before.
//!
//! Without devices each record goes to a table with its memtable, and until then the ring keeps it for the next life, should the
//! process die. So the log *defers* its writes. It writes a block if a sync asks for it, if the block has waited for
//! [`DELAY`], or if the ring fills. While syncs come it writes at once, so that the next one finds little to write; and while the
//! ring is [short for others](super::growth). A flush tells up to where tables hold everything; the log then *passes over* the
//! closed blocks below, and goes on in a fresh segment:
//!
//! ```text
//!  segment 7  |=======|  written before
//!  ring               | passed over .................. | block | block | open
//!  segment 8                                           |=====  ^ flushed
//! ```
//!
//! Invariants:
//! - the header of the fresh segment is durable before room of the ring is released: an opening finds a segment that
//!   begins at or before the first record that is in no table;
//! - that segment begins with a block in which a record begins: a reader needs nothing from before;
//! - no block is passed over while a copy of the log is made: its tables may be older ones.

use super::Log;
use super::segment::{LONGER, Segment};
use super::writer_state::{InFlight, Run, WriterState};
use crate::background::Next;
use crate::error::Result;
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::{Arc, lock};
use std::time::Duration;
use waystation_format::log::Seal;

/// A block waits for its table so long at least, and no longer than twice that.
pub(super) const DELAY: Duration = Duration::from_millis(500);
/// From this part of the ring on (a numerator and a denominator) the log writes, so that writers need not wait for room.
const FULL: (u64, u64) = (15, 16);

/// What of the log need not be written, and what has to be by now.
#[derive(Default)]
pub(super) struct Deferral {
    /// Tables hold everything below this position.
    flushed_lsn: u64,
    /// Blocks below this position have waited for long enough.
    due_lsn: u64,
    /// Up to where blocks were ready at some time (of the storage's clock).
    seen: Option<(u64, Duration)>,
    /// When a sync had to write.
    synced_at: Option<Duration>,
    /// Nothing is deferred for now, as far as the last look tells.
    is_eager: bool,
}

impl Deferral {
    /// Notes that a sync writes `now`.
    pub(super) fn note_sync(&mut self, now: Duration) {
        self.synced_at = Some(now);
    }

    /// Looks whether anything behind `taken` has waited for long enough, if blocks up to `ready`, not none, wait `now`.
    fn is_due(&mut self, taken: u64, ready: u64, now: Duration) -> bool {
        match self.seen {
            Some((_, since)) if now < since + DELAY => {}
            seen => {
                if let Some((lsn, _)) = seen {
                    self.due_lsn = lsn;
                }
                self.seen = Some((ready, now));
            }
        }
        taken < self.due_lsn
    }

    /// When to look again.
    fn next_look(&self) -> Option<Duration> {
        self.seen.map(|(_, since)| since + DELAY)
    }
}

impl WriterState {
    /// When to look again at blocks, `ready` bytes of them, that wait for their table.
    pub(super) fn next_look(&self, ready: u64) -> Next {
        let deferral = self.deferral.as_ref().filter(|_| ready > 0);
        let next = deferral.and_then(Deferral::next_look);
        next.map_or(Next::Idle, Next::At)
    }

    /// Up to where tables hold everything, as the last flush told.
    pub(super) fn flushed_lsn(&self) -> Option<u64> {
        self.deferral.as_ref().map(|it| it.flushed_lsn)
    }

    /// How many of the first closed blocks can be passed over, if they are worth it: `least` bytes.
    pub(super) fn passable(&self, least: u64) -> Option<usize> {
        let flushed = self.deferral.as_ref()?.flushed_lsn;
        let first = self.queue.front()?;
        if self.pins > 0 || flushed < first.start_lsn + least {
            return None;
        }
        let below = self.queue.partition_point(|it| it.start_lsn <= flushed);
        let mut blocks = self.queue.iter().take(below);
        let next = blocks.rposition(|it| it.first_record != 0)?;
        (self.queue[next].start_lsn >= first.start_lsn + least).then_some(next)
    }
}

impl Log {
    /// Whether tables take every record, and the log defers its writes.
    pub(crate) fn defers(&self) -> bool {
        self.defers
    }

    /// Tells that tables hold every record below `lsn`. What was written meanwhile is made durable, unless it is left for a
    /// fresh segment: segments before it can go then.
    pub(crate) fn note_flushed(&self, lsn: u64) {
        let mut state = lock(&self.writer);
        let Some(deferral) = &mut state.deferral else {
            return;
        };
        deferral.flushed_lsn = deferral.flushed_lsn.max(lsn);
        self.fetch_closed(&mut state);
        if self.passes(&state) {
            drop(state);
            self.call_writers();
        } else if state.suspension.is_none() {
            let state = self.sync_segments(state);
            if state.suspension.is_some() {
                // Healing waited for the end of this sync.
                self.call_writers();
            }
        }
    }

    /// Whether blocks are about to be passed over. Without room for a fresh segment they are written.
    pub(super) fn passes(&self, state: &WriterState) -> bool {
        !state.blank_refused && state.passable(self.pass_target()).is_some()
    }

    /// So many bytes are worth a fresh segment.
    pub(super) fn pass_target(&self) -> u64 {
        self.run_target()
    }

    /// Takes the run that passes over blocks of which tables hold everything, if there are enough of them and a fresh segment
    /// is ready.
    pub(super) fn take_passed(&self, state: &mut WriterState) -> Option<Run> {
        let count = state.passable(self.pass_target())?;
        if state.suspension.is_some() || state.held || state.blank.is_none() {
            return None;
        }
        let blocks: Arc<[Seal]> = state.queue.drain(..count).collect();
        self.roll(state)?;
        let run = Run {
            file: Arc::clone(&state.current.file),
            zeros: None,
            blocks: Arc::clone(&blocks),
            header_due: std::mem::take(&mut state.header_due),
            durable_lsn: state.durable_lsn,
            // The one that has just been left.
            left: state.footers_due.pop_back(),
        };
        state.in_flight.push_back(InFlight {
            blocks,
            done: false,
            is_passed: true,
        });
        state.transfers += 1;
        Some(run)
    }

    /// Whether blocks, `ready` bytes of them, are to be written though no thread waits for that.
    pub(super) fn is_due(&self, state: &mut WriterState, ready: u64) -> bool {
        let is_run = ready >= self.run_target();
        let (written, taken) = (state.written_lsn, state.taken_lsn());
        let Some(deferral) = &mut state.deferral else {
            return is_run;
        };
        if ready == 0 {
            return false;
        }
        let now = self.storage.now();
        let syncs_come = deferral.synced_at.is_some_and(|at| now < at + 2 * DELAY);
        let spares_little = self.spares_little.load(Relaxed);
        deferral.is_eager = syncs_come || spares_little || !self.has_room_to_defer();
        let fills = taken + ready >= self.full_lsn(written);
        if is_run && (fills || deferral.is_eager) {
            return true;
        }
        deferral.is_due(taken, taken + ready, now)
    }

    /// The position from which on there is something to do, while `ready` bytes wait.
    pub(super) fn next_lsn(&self, state: &WriterState, ready: u64) -> u64 {
        let defers = |it: &Deferral| ready > 0 && !it.is_eager;
        if state.deferral.as_ref().is_some_and(defers) {
            self.full_lsn(state.written_lsn)
        } else {
            state.taken_lsn() + self.run_target()
        }
    }

    /// How much of the ring is used (0 to 1) where the log defers, and flushes give room back; else 0.
    pub(crate) fn deferred_fill(&self) -> f64 {
        if !self.defers {
            return 0.0;
        }
        let used = (self.publication.copied_lsn()).saturating_sub(self.released_lsn.load(SeqCst));
        used as f64 / self.ring.len_max() as f64
    }

    /// Where the ring counts as full, if the log is written up to `written`.
    fn full_lsn(&self, written: u64) -> u64 {
        written + self.ring.len_max() / FULL.1 * FULL.0
    }

    /// Whether the disk has room for all that the ring may hold, besides everything that is kept.
    fn has_room_to_defer(&self) -> bool {
        let needed = self.segment_lengths.kept_beside + self.ring.len_max();
        let free = self.storage.free_bytes(&self.dir);
        free.is_ok_and(|free| free >= needed)
    }
}

impl Run {
    /// Leaves a segment for one that begins where tables hold everything before.
    pub(super) fn pass_over(&self) -> Result<()> {
        // First, so that no reader of both misses what lies between them.
        if let Some((file, footer)) = &self.left {
            file.write_footer(footer)?;
        }
        self.file.write_header()?;
        self.file.file.sync()
    }
}

impl Segment {
    /// The length by which the next segment is chosen: one that is left early is not followed by a longer one, and one that
    /// was cut by a short one.
    pub(super) fn length_used(&self) -> u64 {
        let capacity = self.file.header.capacity;
        if self.is_cut() {
            0
        } else if self.is_half_full() {
            capacity
        } else {
            capacity / LONGER
        }
    }
}
