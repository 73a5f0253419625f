//! The writer: full blocks leave the ring for their segment.
//!
//! A *run* is a contiguous sequence of closed, copied blocks, up to 256 KiB, within one segment: one direct
//! write. Background jobs ([`Log::write_out`]) take runs, so that one is being written while the next is
//! checksummed; a sync's leader takes runs itself. Runs complete in any order and are released in one.
//!
//! A job that finds nothing to do ends. The log calls for jobs when there is something: a run is complete, a thread waits
//! for room, a segment or healing is due.
//!
//! Invariants:
//! - `queue` starts where the last run taken ends; `written_lsn` is the end of the completed prefix of runs;
//! - ring space is released only up to `written_lsn`, hence only after its write returned success;
//! - after a failure nothing is taken, completed or made durable until the log has healed.

use super::ring::Settled;
use super::segment::{BlankSegment, Footer, Start};
use super::writer_state::{InFlight, Run, WriterState, end_of};
use super::{Log, LogStats, Suspension};
use crate::background::Next;
use crate::directory::segment_name;
use crate::error::{Error, Result};
use crate::sync::atomic::Ordering::{Acquire, SeqCst};
use crate::sync::{Arc, MutexGuard, lock, wait};
use waystation_format::log::{BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, IndexEntry, Seal, finish_block};

/// A run is no longer than this: past it a device's throughput hardly grows, and the writer that waits for the ring
/// waits longer.
const RUN_BYTES_MAX: u64 = 256 * 1024;
/// A synced run shorter than this is one of many: see [`Segment::zeros_due`].
const SMALL_RUN_BYTES: u64 = 64 * 1024;
/// The part of the ring that is prepared ahead of the writes.
const PREPARED_PART: u64 = 4;

impl Log {
    /// Calls `act` whenever [`Self::write_out`] may find something to do. Only the first such wish counts.
    pub(crate) fn on_call(&self, act: impl Fn() + Send + Sync + 'static) {
        let _ = self.call.set(Box::new(act));
    }

    /// Calls for jobs. Any lock may be held.
    pub(super) fn call_writers(&self) {
        if let Some(call) = self.call.get() {
            call();
        }
    }

    /// The work of one background job: one run is written, if one is due, and what was to be prepared before. Several jobs
    /// may be at it.
    pub(crate) fn write_out(&self) -> Next {
        let mut state = lock(&self.writer);
        loop {
            if state.suspension.is_some() {
                if state.stopping {
                    return Next::Idle;
                }
                match self.heal(state) {
                    Ok(healed) => state = healed,
                    Err(next) => return next,
                }
                continue;
            }
            if let Some((file, footer)) = state.footers_due.pop_front() {
                drop(state);
                let written = file.write_footer(&footer);
                state = lock(&self.writer);
                self.note(&mut state, written);
                continue;
            }
            self.fetch_closed(&mut state);
            if state.wants_blank(self.pass_target()) {
                state = self.prepare_blank(state);
                continue;
            }
            if let Some(run) = self.take_passed(&mut state) {
                drop(self.write_run(state, &run));
                return Next::Again;
            }
            let ready = self.ready_lsn(&state).saturating_sub(state.taken_lsn());
            let pressed = state.stopping || self.space_sleepers.load(SeqCst) > 0;
            let is_due = self.is_due(&mut state, ready) || (pressed && ready > 0);
            if is_due {
                if let Some(run) = self.take_run(&mut state, false) {
                    drop(self.write_run(state, &run));
                    return Next::Again;
                }
                // No room in the segment and no blank one: prepared above on the next turn.
                if !state.preparing && !state.held {
                    continue;
                }
            }
            if self.has_armed(&state, ready) {
                // What is due waits for another job, whose end calls.
                return if is_due {
                    Next::Idle
                } else {
                    state.next_look(ready)
                };
            }
        }
    }

    /// Writes out the closed blocks, beside the jobs, unless writes are suspended. Nothing may be reserved any more.
    pub(crate) fn stop(&self) {
        let mut state = lock(&self.writer);
        state.stopping = true;
        loop {
            drop(state);
            while self.write_out() == Next::Again {}
            state = lock(&self.writer);
            let is_written = state.queue.is_empty() && state.in_flight.is_empty();
            if state.suspension.is_some() || is_written {
                return;
            }
            state = wait(&self.progress, state);
        }
    }

    /// Calls for a writer if the copied blocks make a run by now.
    pub(super) fn wake_writers_if_due(&self) {
        if self.publication.copied_lsn() >= self.wake_at_lsn.load(SeqCst) {
            self.wake_writers();
        }
    }

    /// Calls for a writer.
    pub(super) fn wake_writers(&self) {
        self.wake_at_lsn.store(u64::MAX, SeqCst);
        self.call_writers();
    }

    /// Suspends writes for good, because of `cause`: nothing is written out any more.
    pub(crate) fn give_up(&self, cause: &Arc<str>) {
        let mut state = lock(&self.writer);
        state.suspension = Some(Suspension {
            cause: Arc::clone(cause),
        });
        self.suspended.store(true, SeqCst);
        self.progress.notify_all();
        self.durability.notify_all();
        drop(state);
        self.notify_space();
    }

    /// Whether [`Log::release_below`] of `lsn` would free a segment.
    pub(crate) fn would_free(&self, lsn: u64) -> bool {
        let state = lock(&self.writer);
        let first = state.sealed.front();
        state.pins == 0 && first.is_some_and(|segment| segment.end_lsn < lsn)
    }

    /// The bytes that fit into the present segments beside the content of the ring.
    pub(crate) fn spare_bytes(&self) -> u64 {
        let reserved = self.reserved_lsn();
        let state = lock(&self.writer);
        let blank = state.blank.as_ref().map_or(0, |blank| blank.capacity);
        let end = state.current.room_until() + blank;
        end.saturating_sub(reserved + BLOCK_BYTES_MAX as u64)
    }

    /// Figures for `stats`.
    pub(crate) fn stats(&self) -> LogStats {
        let reserved_lsn = self.reserved_lsn();
        let state = lock(&self.writer);
        let start = state
            .sealed
            .front()
            .map_or(state.current.file.header.start_lsn, |s| s.start_lsn);
        LogStats {
            segments: state.sealed.len() + 1,
            live_bytes: reserved_lsn.saturating_sub(start),
            reserved_lsn,
            durable_lsn: state.durable_lsn,
            staged_bytes: reserved_lsn.saturating_sub(state.written_lsn),
            direct_io: state.current.file.file.is_direct(),
            suspended: state
                .suspension
                .as_ref()
                .map(|suspension| suspension.cause.to_string()),
            heals: state.heals,
        }
    }

    /// Takes the next run if there is one, whatever its size; rolls to the next segment where needed.
    /// `None` if nothing is ready, or if a fresh segment is needed and not there yet.
    pub(super) fn take_any_run<'a>(
        &'a self,
        mut state: MutexGuard<'a, WriterState>,
    ) -> (MutexGuard<'a, WriterState>, bool) {
        self.fetch_closed(&mut state);
        let run = if self.passes(&state) {
            self.take_passed(&mut state)
        } else {
            self.take_run(&mut state, true)
        };
        match run {
            Some(run) => (self.write_run(state, &run), true),
            None if state.wants_blank(self.pass_target()) => (self.prepare_blank(state), true),
            None => (state, false),
        }
    }

    /// Suspends the log: nothing more is acknowledged until it has healed.
    pub(super) fn suspend(&self, state: &mut WriterState, error: &Error) {
        if state.suspension.is_none() {
            log::error!("writes are suspended: {error}");
            state.suspension = Some(Suspension::new(error));
        }
        self.suspended.store(true, SeqCst);
        self.progress.notify_all();
        self.durability.notify_all();
        self.call_writers();
    }

    /// Suspends the log if `result` failed.
    fn note(&self, state: &mut WriterState, result: Result<()>) {
        if let Err(error) = result {
            self.suspend(state, &error);
        }
        self.progress.notify_all();
    }

    /// Has the publication that completes the next run call for a writer. False if it was missed: then there is
    /// something to do now.
    fn has_armed(&self, state: &WriterState, ready: u64) -> bool {
        let wake_at = self.next_lsn(state, ready);
        self.wake_at_lsn.store(wake_at, SeqCst);
        // A publication that came before the store has been missed, one that comes after calls.
        self.publication.copied_lsn() < wake_at || lock(&self.closed).front().is_none()
    }

    /// How much is worth a write while no thread waits.
    pub(super) fn run_target(&self) -> u64 {
        RUN_BYTES_MAX.min(self.ring.len() / 4)
    }

    pub(super) fn fetch_closed(&self, state: &mut WriterState) {
        state.queue.append(&mut lock(&self.closed));
    }

    /// Blocks of the queue below this position can be written.
    fn ready_lsn(&self, state: &WriterState) -> u64 {
        let copied = self.publication.copied_lsn();
        let ready = state
            .queue
            .partition_point(|seal| records_end(seal) <= copied);
        match ready.checked_sub(1) {
            Some(last) => state.queue[last].end_lsn(),
            None => state.taken_lsn(),
        }
    }

    /// Takes the next run; `synced` if a sync waits for it.
    fn take_run(&self, state: &mut WriterState, synced: bool) -> Option<Run> {
        if state.suspension.is_some() || state.held {
            return None;
        }
        let ready = self.ready_lsn(state);
        let first = *state.queue.front().filter(|seal| seal.end_lsn() <= ready)?;
        if !state.current.fits(first.length) {
            self.roll(state)?;
        }
        let mut blocks = Vec::with_capacity(16);
        while let Some(seal) = state.queue.front() {
            let fits = seal.end_lsn() <= ready
                && seal.end_lsn() - first.start_lsn <= RUN_BYTES_MAX
                && state.current.fits(seal.length);
            if !fits {
                break;
            }
            state.current.blocks.push(IndexEntry::from(seal));
            state.current.end_lsn = seal.end_lsn();
            blocks.extend(state.queue.pop_front());
        }
        let blocks: Arc<[Seal]> = blocks.into();
        let is_small = end_of(&blocks) - first.start_lsn < SMALL_RUN_BYTES;
        let zeros = (synced && is_small)
            .then(|| state.current.zeros_due())
            .flatten();
        state.held = zeros.is_some();
        let run = Run {
            file: Arc::clone(&state.current.file),
            zeros,
            blocks: Arc::clone(&blocks),
            header_due: std::mem::take(&mut state.header_due),
            durable_lsn: state.durable_lsn,
            left: None,
        };
        assert_eq!(
            run.start_lsn(),
            state.taken_lsn(),
            "runs follow each other without a gap"
        );
        state.in_flight.push_back(InFlight {
            blocks,
            done: false,
            is_passed: false,
        });
        state.transfers += 1;
        Some(run)
    }

    /// Goes on in the prepared segment. `None` if none is prepared.
    pub(super) fn roll(&self, state: &mut WriterState) -> Option<()> {
        let first = *state.queue.front()?;
        let blank = state.blank.take()?;
        let start = Start {
            lsn: first.start_lsn,
            first_sequence: first.first_sequence,
            durable_lsn: state.durable_lsn,
            previous: state.current.file.header.number,
        };
        let next_number = blank.number;
        let next = blank.begin(&start, self.incarnation);
        let full = std::mem::replace(&mut state.current, next);
        state.header_due = true;
        let footer = Footer {
            file_bytes: full.file_bytes(),
            blocks: full.blocks.clone(),
            end_lsn: full.end_lsn,
            last_sequence: self.assigned_sequence.load(Acquire),
            durable_lsn: state.durable_lsn,
            next: next_number,
        };
        state
            .footers_due
            .push_back((Arc::clone(&full.file), footer));
        state.sealed.push_back(full.as_sealed());
        self.call_writers();
        Some(())
    }

    fn write_run<'a>(
        &'a self,
        state: MutexGuard<'a, WriterState>,
        run: &Run,
    ) -> MutexGuard<'a, WriterState> {
        drop(state);
        let written = self.transfer(run);
        let mut state = lock(&self.writer);
        state.transfers -= 1;
        if run.zeros.is_some() {
            state.held = false;
        }
        if !run.is_passed() {
            state.note_write(&run.file);
        }
        match written {
            Ok(()) => self.complete(&mut state, run.end_lsn()),
            // It stays in flight, undone, so that nothing behind it is released; healing queues it again.
            Err(error) => self.suspend(&mut state, &error),
        }
        // Other writers have something to do only if they had to wait for this run.
        let others_wait = run.zeros.is_some() || state.suspension.is_some() || state.stopping;
        self.progress.notify_all();
        if others_wait {
            self.call_writers();
        }
        let ahead = self.ring.len() / PREPARED_PART;
        let now = self.storage.now();
        // Where the log defers, writers are far ahead of it.
        let reached = run.end_lsn().max(self.publication.copied_lsn());
        let due = state.prepared.next(reached, ahead, now);
        drop(state);
        self.notify_space();
        if !due.is_empty() {
            self.ring.prepare(due.start, (due.end - due.start) as usize);
        }
        lock(&self.writer)
    }

    /// Marks the run that ends at `end` done and releases the completed prefix.
    fn complete(&self, state: &mut WriterState, end: u64) {
        if let Some(run) = state
            .in_flight
            .iter_mut()
            .find(|run| end_of(&run.blocks) == end)
        {
            run.done = true;
        }
        while state.in_flight.front().is_some_and(|run| run.done) {
            if let Some(run) = state.in_flight.pop_front() {
                state.written_lsn = end_of(&run.blocks);
                if run.is_passed {
                    state.durable_lsn = state.written_lsn;
                }
            }
        }
        self.released_lsn.store(state.written_lsn, SeqCst);
    }

    fn transfer(&self, run: &Run) -> Result<()> {
        if run.is_passed() {
            return run.pass_over();
        }
        if run.header_due {
            run.file.write_header()?;
        }
        if let Some((lsn, len)) = run.zeros {
            run.file.zero(lsn, len)?;
        }
        for seal in run.blocks.iter() {
            self.finish(seal, run);
        }
        let start = run.start_lsn();
        let range = Settled {
            lsn: start,
            len: (run.end_lsn() - start) as usize,
        };
        let [first, second] = self.ring.chunks(&range);
        let offset = run.file.offset_of(start);
        run.file.file.write_at(first, offset)?;
        if !second.is_empty() {
            run.file
                .file
                .write_at(second, offset + first.len() as u64)?;
        }
        Ok(())
    }

    /// Completes a block's header in the ring.
    fn finish(&self, seal: &Seal, run: &Run) {
        let mut range = Settled {
            lsn: seal.start_lsn,
            len: seal.length as usize,
        };
        let mut header = seal.encode();
        let [first, second] = self.ring.chunks(&range);
        let body = &first[BLOCK_HEADER_BYTES..];
        finish_block(
            &mut header,
            [body, second],
            run.file.header.number,
            run.durable_lsn,
        );
        self.ring.replace_header(&mut range, &header);
    }

    fn prepare_blank<'a>(
        &'a self,
        mut state: MutexGuard<'a, WriterState>,
    ) -> MutexGuard<'a, WriterState> {
        state.preparing = true;
        let number = state.next_number;
        state.next_number += 1;
        let recycled = state.spares.pop();
        let before = state.current.length_used();
        drop(state);
        let path = self.dir.join(segment_name(number));
        let place = (&*self.storage, &*self.dir);
        let lengths = &self.segment_lengths;
        let capacity = lengths.after(before, place, recycled.as_deref());
        let blank = BlankSegment::create(
            &*self.storage,
            path,
            number,
            capacity,
            recycled.as_deref(),
            self.transfer,
        );
        let mut state = lock(&self.writer);
        state.preparing = false;
        match blank {
            Ok(blank) => {
                state.blank = Some(blank);
                state.blank_refused = false;
            }
            // On a full disk there is the rest of the segment for what frees space: departures.
            Err(error) if error.is_out_of_space() && state.can_wait_for_blank() => {
                log::warn!("the log has no space for its next segment: {error}");
                state.blank_refused = true;
            }
            Err(error) => self.suspend(&mut state, &error),
        }
        self.call_writers();
        self.progress.notify_all();
        state
    }
}

/// Where the records of a closed block end: copied that far, the block can be written.
fn records_end(seal: &Seal) -> u64 {
    seal.start_lsn + u64::from(seal.used)
}
