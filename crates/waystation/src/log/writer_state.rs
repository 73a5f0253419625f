//! What the writer knows: blocks that wait, runs in flight, segments, and how far the log is written and durable.
//!
//! Everything here lies behind one lock; the rules by which it changes are those of `writer`.

use super::Suspension;
use super::deferral::Deferral;
use super::prepared::Prepared;
use super::segment::{BlankSegment, Footer, SealedSegment, Segment, SegmentFile};
use crate::sync::Arc;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;
use waystation_format::log::{BLOCK_BYTES_MAX, Seal};

/// What the writer's lock guards.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, not one state in disguise"
)]
pub(super) struct WriterState {
    /// Closed blocks that no run has taken yet.
    pub(super) queue: VecDeque<Seal>,
    /// Runs taken and not yet released, in order.
    pub(super) in_flight: VecDeque<InFlight>,
    /// Writes under way.
    pub(super) transfers: usize,
    pub(super) written_lsn: u64,
    pub(super) prepared: Prepared,
    pub(super) durable_lsn: u64,
    /// `None` if every block is written as soon as it makes a run.
    pub(super) deferral: Option<Deferral>,
    pub(super) current: Segment,
    pub(super) header_due: bool,
    /// A run is being written behind which zeros are, or the current segment is cut: nothing may be taken meanwhile.
    pub(super) held: bool,
    pub(super) sealed: VecDeque<SealedSegment>,
    /// Pins; while there are any, no sealed segment is recycled.
    pub(super) pins: usize,
    pub(super) footers_due: VecDeque<(Arc<SegmentFile>, Footer)>,
    /// Files of recycled segments, to be used again.
    pub(super) spares: Vec<PathBuf>,
    /// Files that cannot be used again.
    pub(super) useless: Vec<PathBuf>,
    /// Until then no file is removed (by the storage's clock).
    pub(super) next_removal: Duration,
    pub(super) blank: Option<BlankSegment>,
    pub(super) preparing: bool,
    /// There was no space for a blank segment when one was to be made ready early.
    pub(super) blank_refused: bool,
    pub(super) next_number: u64,
    /// Segments with writes that no sync has covered.
    pub(super) unsynced: Vec<Unsynced>,
    /// Writes completed, to number them.
    pub(super) writes: u64,
    /// Leaders of group commits, wherever they wait.
    pub(super) syncs_running: usize,
    /// Leaders that are syncing segments now.
    pub(super) syncing: usize,
    pub(super) suspension: Option<Suspension>,
    pub(super) healing: bool,
    /// Healing is not tried before (by the storage's clock).
    pub(super) heal_at: Duration,
    pub(super) heals: u64,
    pub(super) stopping: bool,
}

/// A segment with writes that no sync has covered.
#[derive(Clone)]
pub(super) struct Unsynced {
    pub(super) file: Arc<SegmentFile>,
    /// The number of the last of them: a sync that began before it has not covered it.
    pub(super) last_write: u64,
}

/// A run that was taken: its blocks and whether they are written.
pub(super) struct InFlight {
    pub(super) blocks: Arc<[Seal]>,
    pub(super) done: bool,
    /// Tables hold what they hold: they are in no segment.
    pub(super) is_passed: bool,
}

/// Blocks to be written by one call, or passed over.
pub(super) struct Run {
    pub(super) file: Arc<SegmentFile>,
    pub(super) blocks: Arc<[Seal]>,
    pub(super) header_due: bool,
    /// To be filled with zeros first: position and length.
    pub(super) zeros: Option<(u64, u64)>,
    pub(super) durable_lsn: u64,
    /// The blocks are not written, as tables hold what they hold: the log leaves this segment, and goes on behind them in
    /// `file`.
    pub(super) left: Option<(Arc<SegmentFile>, Footer)>,
}

impl Run {
    pub(super) fn is_passed(&self) -> bool {
        self.left.is_some()
    }

    pub(super) fn start_lsn(&self) -> u64 {
        self.blocks[0].start_lsn
    }

    pub(super) fn end_lsn(&self) -> u64 {
        end_of(&self.blocks)
    }
}

pub(super) fn end_of(blocks: &[Seal]) -> u64 {
    blocks[blocks.len() - 1].end_lsn()
}

impl WriterState {
    /// A log that goes on in `current`, everything before it durable; it is `now`.
    pub(super) fn new(
        current: Segment,
        sealed: VecDeque<SealedSegment>,
        deferral: Option<Deferral>,
        now: Duration,
    ) -> Self {
        let (end, number) = (current.end_lsn, current.file.header.number);
        Self {
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            transfers: 0,
            written_lsn: end,
            prepared: Prepared::new(end, now),
            durable_lsn: end,
            deferral,
            current,
            header_due: false,
            held: false,
            sealed,
            pins: 0,
            footers_due: VecDeque::new(),
            spares: Vec::new(),
            useless: Vec::new(),
            next_removal: now,
            blank: None,
            preparing: false,
            blank_refused: false,
            next_number: number + 1,
            unsynced: Vec::new(),
            writes: 0,
            syncs_running: 0,
            syncing: 0,
            suspension: None,
            healing: false,
            heal_at: now,
            heals: 0,
            stopping: false,
        }
    }

    /// The closed blocks that are not released yet and that the front has handed over.
    pub(super) fn staged_blocks(&self) -> impl Iterator<Item = &Seal> {
        let running = self.in_flight.iter().flat_map(|run| run.blocks.iter());
        running.chain(&self.queue)
    }

    /// Where the next run starts.
    pub(super) fn taken_lsn(&self) -> u64 {
        self.in_flight
            .back()
            .map_or(self.written_lsn, |run| end_of(&run.blocks))
    }

    /// The first block that is not written yet, if it is closed.
    pub(super) fn first_unwritten(&self) -> Option<&Seal> {
        let taken = self.in_flight.front().map(|run| &run.blocks[0]);
        taken.or_else(|| self.queue.front())
    }

    /// Whether the next segment should be made ready now.
    pub(super) fn wants_blank(&self, pass_target: u64) -> bool {
        self.blank.is_none()
            && !self.preparing
            && self.suspension.is_none()
            && (self.current.is_half_full() || self.passable(pass_target).is_some())
            && !(self.blank_refused && self.can_wait_for_blank())
    }

    /// Whether the segment has room for any block: so long nothing needs the next one.
    pub(super) fn can_wait_for_blank(&self) -> bool {
        self.current.fits(BLOCK_BYTES_MAX as u32)
    }

    /// Notes that a write to `file` has ended.
    pub(super) fn note_write(&mut self, file: &Arc<SegmentFile>) {
        self.writes += 1;
        let last_write = self.writes;
        match self
            .unsynced
            .iter_mut()
            .find(|it| Arc::ptr_eq(&it.file, file))
        {
            Some(unsynced) => unsynced.last_write = last_write,
            None => self.unsynced.push(Unsynced {
                file: Arc::clone(file),
                last_write,
            }),
        }
    }

    /// Whether no thread is busy with a segment. A leader that waits for copies or for room is not: the long
    /// record it waits for may itself wait for healing.
    pub(super) fn is_quiet(&self) -> bool {
        self.transfers == 0 && !self.preparing && self.syncing == 0
    }

    /// Whether the current segment holds all that is closed, and no thread writes to it.
    pub(super) fn is_still(&self) -> bool {
        let is_written = self.in_flight.is_empty() && self.queue.is_empty() && !self.header_due;
        is_written && self.transfers == 0 && self.suspension.is_none()
    }

    /// Starts over in `segment` after a failure: blocks below `written_lsn` are in it and durable, the runs
    /// that were in flight are queued again.
    pub(super) fn restart(&mut self, segment: Segment) {
        assert!(self.is_quiet() && segment.end_lsn == self.written_lsn);
        while let Some(run) = self.in_flight.pop_back() {
            for seal in run.blocks.iter().rev() {
                self.queue.push_front(*seal);
            }
        }
        self.durable_lsn = self.written_lsn;
        self.current = segment;
        // A file prepared before has a lower number: in the order of numbers it would come before this segment.
        self.spares
            .extend(self.blank.take().map(|blank| blank.path));
        self.header_due = false;
        self.footers_due.clear();
        self.unsynced.clear();
    }
}
