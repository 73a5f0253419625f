//! Recycling: files of segments that nothing needs are used again, and surplus files are removed, one after the other.
//!
//! Where the file system tells the device which room is free (`discard`), the device serves no other request while a file goes: 14 ms for
//! one of 64 MB, on one of them. Sixteen in a row, as when a device of a gigabyte departs, held up writes for a quarter of a
//! second; so there is a pause after each.

use super::Log;
use super::recovery::cut_off;
use super::segment::Start;
use super::writer_state::WriterState;
use crate::error::Result;
use crate::sync::{Arc, MutexGuard, lock, wait};
use std::path::PathBuf;
use std::time::Duration;

/// So many files are kept for use again.
const SPARES_MAX: usize = 2;
/// A rest waits for so many ends of the log's jobs: more of them come from writers.
const WAITS_MAX: usize = 16;
/// After a removal the next one waits for so many times as long.
const PAUSE_SHARE: u32 = 4;
/// But not while more than this are to be removed: they come faster than they go.
const MANY: usize = 32;

impl Log {
    /// Gives up all segments but the current one, or but a fresh one if that holds much, where tables hold all writes up to
    /// `flushed` and these are all that there are. The log is closed: nothing is written meanwhile.
    pub(crate) fn leave_flushed(&self, flushed: u64) -> Result<()> {
        let (lsn, first_sequence) = self.open_block();
        let mut state = lock(&self.writer);
        let used = lsn - state.current.file.header.start_lsn;
        if first_sequence != flushed + 1 || state.pins > 0 {
            return Ok(());
        }
        assert!((state.written_lsn, state.durable_lsn) == (lsn, lsn));
        if used > self.segment_lengths.short {
            let number = state.next_number;
            state.next_number += 1;
            let start = Start {
                lsn,
                first_sequence,
                durable_lsn: lsn,
                previous: state.holder_of_bytes_before(lsn),
            };
            drop(state);
            let segment = self.move_to_fresh_segment(number, &start, &[])?;
            state = lock(&self.writer);
            state.cut_sealed_at(lsn);
            state.restart(segment);
        }
        let state = &mut *state;
        let left = state.sealed.drain(..).map(|segment| segment.path);
        state.useless.extend(left);
        Ok(())
    }

    /// Gives back all room that only writers need: files for use again, the rest of the current segment, and the ring. The
    /// log is closed, and says so.
    pub(crate) fn give_room_back(&self) -> Result<()> {
        let (path, used) = {
            let state = lock(&self.writer);
            let file = &state.current.file;
            (file.path.clone(), file.offset_of(state.current.end_lsn))
        };
        cut_off(&*self.storage, &path, used, self.transfer);
        self.give_spare_room_back()
    }

    /// Gives back the room that only writers need, while no thread writes; one may begin to at any moment. The current segment
    /// keeps the room of a short one, so that deletions go on should others fill the disk. The log is durable on return.
    pub(crate) fn rest(&self) -> Result<()> {
        self.sync_all()?;
        // The last flush released no segment of which the end was not durable.
        let flushed = lock(&self.writer).flushed_lsn();
        if let Some(lsn) = flushed {
            self.release_below(lsn);
        }
        let cut = self.cut_current();
        self.give_spare_room_back()?;
        cut
    }

    /// Cuts the current segment, if all that is closed lies in it and no thread writes to it. No run is taken meanwhile.
    fn cut_current(&self) -> Result<()> {
        let mut state = self.writer_at_leisure();
        let length = state.current.length_with(self.segment_lengths.short);
        let Some(bytes) = length.filter(|_| state.is_still()) else {
            return Ok(());
        };
        assert_eq!(state.current.end_lsn, state.written_lsn);
        let file = Arc::clone(&state.current.file);
        state.held = true;
        state.transfers += 1;
        drop(state);
        let cut = file.file.truncate(bytes);
        let mut state = lock(&self.writer);
        state.held = false;
        state.transfers -= 1;
        if cut.is_ok() {
            state.current.note_cut(bytes);
        }
        drop(state);
        self.progress.notify_all();
        self.call_writers();
        cut
    }

    /// The writer's state once jobs have ended that were at work, unless others come again and again.
    fn writer_at_leisure(&self) -> MutexGuard<'_, WriterState> {
        let mut state = lock(&self.writer);
        for _ in 0..WAITS_MAX {
            if state.transfers == 0 && !state.preparing {
                break;
            }
            state = wait(&self.progress, state);
        }
        state
    }

    fn give_spare_room_back(&self) -> Result<()> {
        {
            let state = &mut *lock(&self.writer);
            state.useless.extend(state.blank.take().map(|it| it.path));
        }
        self.remove_surplus(true, true)?;
        self.shorten_ring()
    }

    /// Frees segments of which every record is below `lsn`; the last of them only once something behind it is
    /// durable, and with it the header of a segment that the next life can begin with.
    pub(crate) fn release_below(&self, lsn: u64) {
        let mut state = lock(&self.writer);
        if state.pins > 0 {
            return;
        }
        let durable = state.durable_lsn;
        let is_free = |end: u64| end <= lsn && end < durable;
        while state.sealed.front().is_some_and(|it| is_free(it.end_lsn)) {
            let Some(segment) = state.sealed.pop_front() else {
                break;
            };
            state.unsynced.retain(|it| it.file.path != segment.path);
            // A holder of the file may be about to write its footer.
            let unshared = segment
                .file
                .is_some_and(|file| Arc::strong_count(&file) == 1);
            if unshared {
                state.spares.push(segment.path);
                state.blank_refused = false;
            } else {
                state.useless.push(segment.path);
            }
        }
    }

    /// When there is something to be removed.
    pub(crate) fn next_removal(&self) -> Option<Duration> {
        let state = lock(&self.writer);
        let is_much = state.spares.len() > SPARES_MAX
            || !state.useless.is_empty()
            || self.spare_that_gives_way(&state).is_some();
        is_much.then_some(state.next_removal)
    }

    /// Which file that is kept for use again had better go.
    fn spare_that_gives_way(&self, state: &WriterState) -> Option<usize> {
        let gives_way = |path: &PathBuf| self.storage.gives_way(path);
        state.spares.iter().position(gives_way)
    }

    /// Removes surplus files, as far as it is time to; all of them if `at_once`. If it `is_short` of room,
    /// none is kept for use again.
    pub(crate) fn remove_surplus(&self, at_once: bool, is_short: bool) -> Result<()> {
        let kept = if is_short { 0 } else { SPARES_MAX };
        loop {
            let begun = self.storage.now();
            let mut state = lock(&self.writer);
            if let Some(at) = self.spare_that_gives_way(&state) {
                let path = state.spares.remove(at);
                state.useless.push(path);
            }
            let excess = state.spares.len().saturating_sub(kept);
            let pauses = begun < state.next_removal && excess + state.useless.len() <= MANY;
            if pauses && !at_once {
                return Ok(());
            }
            let spare = (excess > 0).then(|| state.spares.remove(0));
            let Some(path) = spare.or_else(|| state.useless.pop()) else {
                return Ok(());
            };
            drop(state);
            let removed = self.storage.remove(&path);
            let took = self.storage.now().saturating_sub(begun);
            let mut state = lock(&self.writer);
            state.next_removal = begun + took * (1 + PAUSE_SHARE);
            if let Err(error) = removed {
                // Behind the others, which are not to wait for one that cannot go.
                state.useless.insert(0, path);
                return Err(error);
            }
        }
    }
}
