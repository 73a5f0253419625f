//! The front of the log: threads reserve place and sequence number together, copy in parallel, publish in
//! order.
//!
//! ```text
//!   reserve (short lock)      copy (no lock)            publish
//!   sequence, LSN, ticket --> record into the ring  --> acknowledged; in order: visible, may be written out
//!                             operations into memory
//! ```
//!
//! Invariants:
//! - a reservation is made only when the ring has room for all of it (or, if it is long, for its first part: then it
//!   goes on as the chunks before it leave), so copies never wait for each other;
//! - every reservation is finished: between reserve and publish nothing can fail;
//! - no write behind a long one is acknowledged before it is complete: segments may hold the beginning of
//!   such a record, and its writer stores headers of blocks later than they are closed, so recovery could not pass over it.

use super::growth::Halves;
use super::layout::{Layout, Place};
use super::ring::{RingBuffer, Span};
use super::turns::Turns;
use super::{Log, Suspension};
use crate::error::{Error, Result};
use crate::storage::long_from;
use crate::sync::atomic::Ordering::{Release, SeqCst};
use crate::sync::{MutexGuard, lock, lock_soon, may_be_held_up, thread, wait};
use waystation_format::log::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, RECORD_HEADER_BYTES, RecordHeader, RecordKind, Seal,
};

/// What the lock of the front guards.
pub(super) struct Front {
    pub(super) layout: Layout,
    pub(super) next_sequence: u64,
    next_ticket: u64,
    /// Where the records of the closed blocks end.
    closed_records_end: u64,
    /// The sequence number in which the last long record ends.
    last_long: u64,
    pub(super) turns: Turns,
    /// Nothing from before this position is in the ring.
    pub(super) ring_since: u64,
    /// How long writers take for halves of the ring.
    pub(super) halves: Halves,
}

impl Front {
    pub(super) fn new(layout: Layout, next_sequence: u64) -> Self {
        let closed_records_end = layout.block_start();
        Self {
            ring_since: layout.block_start(),
            halves: Halves::default(),
            layout,
            next_sequence,
            next_ticket: 0,
            closed_records_end,
            last_long: 0,
            turns: Turns::new(),
        }
    }

    /// A ring of `ring_bytes` still holds the log from here on: no thread writes beyond the open block.
    pub(super) fn ring_start(&self, ring_bytes: u64) -> u64 {
        let open_end = self.layout.block_start() + BLOCK_BYTES_MAX as u64;
        self.ring_since.max(open_end.saturating_sub(ring_bytes))
    }
}

/// A place in the log and the right to fill it. Must be passed to [`Log::copy`] and then [`Log::publish`].
#[must_use]
pub(crate) struct Reservation {
    ticket: u64,
    place: Place,
    /// The sequence number of the first operation.
    pub(crate) first_sequence: u64,
    operations: u32,
    kind: RecordKind,
    /// The sequence number in which the last long record before this one ends.
    long_before: u64,
    /// Blocks that a record longer than the ring's room closes ahead of that room, in order.
    ahead: Vec<Seal>,
    /// It goes into the ring chunk by chunk.
    is_long: bool,
    /// The thread lets others run after this write.
    pub(super) yields: bool,
}

impl Reservation {
    /// The sequence number of the last operation.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.first_sequence + u64::from(self.operations) - 1
    }

    /// The position of the record, by which it can be read.
    pub(crate) fn record_lsn(&self) -> u64 {
        self.place.record_lsn
    }

    /// Whether it goes into the ring chunk by chunk.
    pub(crate) fn is_long(&self) -> bool {
        self.is_long
    }

    /// Syncing the log up to here makes the record durable.
    pub(crate) fn end_lsn(&self) -> u64 {
        self.place.end_lsn
    }
}

impl Log {
    /// Reserves a place for a record of `kind` and `payload_bytes` holding `operations`, once there is room for it. Events are few,
    /// and do not wait for the turns of other writers: their thread looks longer for the front, and does not yield.
    ///
    /// `admit` runs under the front's lock, in the order of the log, with the position at which the record
    /// will start or later and the first sequence number; it returns what the caller needs to know of that
    /// moment (the memtable to write to). If it fails nothing is reserved.
    pub(crate) fn reserve<T, E: From<Error>>(
        &self,
        kind: RecordKind,
        payload_bytes: usize,
        operations: u32,
        admit: impl FnOnce(u64, u64) -> Result<T, E>,
    ) -> Result<(Reservation, T), E> {
        assert!(operations > 0, "an empty batch has no place in the log");
        let record_bytes = RECORD_HEADER_BYTES + payload_bytes;
        let is_event = kind != RecordKind::Batch;
        let front = if is_event {
            lock_soon(&self.front)
        } else {
            lock(&self.front)
        };
        let mut front = self.with_room(front, record_bytes)?;
        let first_sequence = front.next_sequence;
        let admitted = admit(front.layout.boundary(), first_sequence)?;
        let ticket = front.next_ticket;
        front.next_ticket += 1;
        front.next_sequence += u64::from(operations);
        let sequences = first_sequence..front.next_sequence;
        let yields = front.turns.note(ticket, sequences) && !is_event;
        self.assigned_sequence
            .store(front.next_sequence - 1, Release);
        let room_end = self.released_lsn.load(SeqCst) + self.ring.len();
        let mut ahead = Vec::new();
        let mut records_end = front.closed_records_end;
        let place = front
            .layout
            .place(record_bytes, first_sequence, operations, |seal| {
                if seal.end_lsn() <= room_end {
                    write_seal(&self.ring, &seal);
                } else {
                    ahead.push(seal);
                }
                records_end = seal.start_lsn + u64::from(seal.used);
                lock(&self.closed).push_back(seal);
            });
        front.closed_records_end = records_end;
        let long_before = front.last_long;
        let is_long = self.is_long(record_bytes);
        if is_long {
            front.last_long = front.next_sequence - 1;
        }
        drop(front);
        Ok((
            Reservation {
                ticket,
                place,
                first_sequence,
                operations,
                kind,
                long_before,
                ahead,
                is_long,
                yields,
            },
            admitted,
        ))
    }

    /// Copies the record into its place. `payload` is the operations' bytes.
    pub(crate) fn copy(&self, reservation: &Reservation, payload: &[u8], payload_checksum: u32) {
        let header = RecordHeader {
            payload_bytes: payload.len() as u32,
            first_sequence: reservation.first_sequence,
            operations: reservation.operations,
            kind: reservation.kind,
        }
        .encode(
            reservation.place.record_lsn,
            self.incarnation,
            payload_checksum,
        );
        let long = reservation.is_long;
        if long {
            self.publication.wait_for_turn(reservation.ticket);
        }
        let mut rest = payload;
        let mut ahead = reservation.ahead.iter().peekable();
        for (index, (lsn, len)) in reservation.place.chunks().enumerate() {
            if long {
                self.wait_released(lsn + len as u64);
            }
            may_be_held_up();
            while let Some(seal) = ahead.next_if(|seal| seal.start_lsn < lsn) {
                write_seal(&self.ring, seal);
            }
            let mut span = Span { lsn, len };
            if index == 0 {
                self.ring.write(&mut span, &header);
            }
            let (now, later) = rest.split_at(span.len);
            self.ring.write(&mut span, now);
            rest = later;
            if long {
                self.publication
                    .copied_so_far(reservation.ticket, lsn + len as u64);
                self.wake_writers_if_due();
            }
        }
    }

    /// Publishes the record. It can be acknowledged when this returns: reads wait for it, and the ring gives it back after
    /// the death of the process.
    #[expect(clippy::needless_pass_by_value, reason = "a reservation is used up")]
    pub(crate) fn publish(&self, reservation: Reservation) {
        let last = reservation.last_sequence();
        (self.publication).finish(reservation.ticket, reservation.place.end_lsn, last);
        self.wake_writers_if_due();
        self.notify_space();
        if self.keeps_holes {
            self.publication.wait_visible(reservation.long_before);
            self.publication.acknowledge(last);
        } else {
            self.publication.wait_visible(last);
        }
        if reservation.yields {
            thread::yield_now();
        }
    }

    /// Closes the open block, so that everything reserved so far can be written out. Returns where the closed
    /// part of the stream ends and where its last record does.
    pub(super) fn close_block(&self) -> (u64, u64) {
        let mut front = self.front_within_ring();
        if let Some(seal) = front.layout.seal() {
            write_seal(&self.ring, &seal);
            front.closed_records_end = seal.start_lsn + u64::from(seal.used);
            lock(&self.closed).push_back(seal);
        }
        (front.layout.block_start(), front.closed_records_end)
    }

    /// Runs `act` in the order of the log, between two records, with the position and the sequence number of
    /// the next one.
    pub(crate) fn at_front<T>(&self, act: impl FnOnce(u64, u64) -> T) -> T {
        let front = lock(&self.front);
        act(front.layout.boundary(), front.next_sequence)
    }

    /// Where the open block starts, and the sequence number of the first record that starts in it or later.
    pub(super) fn open_block(&self) -> (u64, u64) {
        let front = lock(&self.front);
        (front.layout.block_start(), front.layout.first_sequence())
    }

    /// The highest sequence number of which it and all before it are visible.
    pub(crate) fn visible_sequence(&self) -> u64 {
        self.publication.visible_sequence()
    }

    /// Waits until every write that was acknowledged before the call is visible.
    pub(crate) fn wait_acknowledged(&self) {
        if let Some(acknowledged) = self.publication.acknowledged_ahead() {
            self.publication.wait_visible(acknowledged);
        }
    }

    /// The highest sequence number that was acknowledged, if it is not visible.
    pub(crate) fn acknowledged_ahead(&self) -> Option<u64> {
        self.publication.acknowledged_ahead()
    }

    /// Every record below this position is visible.
    pub(crate) fn copied_lsn(&self) -> u64 {
        self.publication.copied_lsn()
    }

    /// Waits until `sequence` is visible.
    pub(crate) fn wait_visible(&self, sequence: u64) {
        self.publication.wait_visible(sequence);
    }

    /// The position after the last record reserved so far.
    pub(crate) fn reserved_lsn(&self) -> u64 {
        lock(&self.front).layout.boundary()
    }

    /// The front, once there is room in the ring.
    fn with_room<'l>(
        &'l self,
        mut front: MutexGuard<'l, Front>,
        record_bytes: usize,
    ) -> Result<MutexGuard<'l, Front>> {
        loop {
            if self.suspended.load(SeqCst) {
                drop(front);
                return Err(self.suspension_error());
            }
            let end = self.needed_end(&front, record_bytes);
            self.fit_ring(&mut front, end);
            let end = self.needed_end(&front, record_bytes);
            let has_room = end <= self.released_lsn.load(SeqCst) + self.ring.len();
            if has_room && !self.publication.is_full(front.next_ticket) {
                return Ok(front);
            }
            self.space_sleepers.fetch_add(1, SeqCst);
            self.wake_writers();
            // The writers release under no lock but notify under this one, and look for sleepers after
            // releasing: a thread that changes the answer from here on notifies.
            let still = end > self.released_lsn.load(SeqCst) + self.ring.len()
                || self.publication.is_full(front.next_ticket);
            if still && !self.suspended.load(SeqCst) {
                front = wait(&self.space, front);
            }
            self.space_sleepers.fetch_sub(1, SeqCst);
        }
    }

    /// Where a record of `record_bytes` ends at most, or what has to have room of it: of a long record, the beginning.
    fn needed_end(&self, front: &Front, record_bytes: usize) -> u64 {
        let needed = record_bytes.min(long_from(self.ring.len()) as usize);
        front.layout.end_at_most(needed)
    }

    /// Wakes the threads that wait for room or for the end of a suspension.
    pub(super) fn notify_space(&self) {
        if self.space_sleepers.load(SeqCst) > 0 {
            drop(lock(&self.front));
            self.space.notify_all();
        }
    }

    /// Whether a record of so many bytes, with its header, goes into the ring chunk by chunk, as it is now.
    fn is_long(&self, record_bytes: usize) -> bool {
        record_bytes as u64 > long_from(self.ring.len())
    }

    /// Whether such a record may be long when it has its place: the ring may become shorter until then.
    pub(crate) fn may_be_long(&self, record_bytes: usize) -> bool {
        record_bytes as u64 > long_from(self.ring.len_min())
    }

    /// Waits until the ring's window reaches `lsn`. Only for the one long record at the head.
    fn wait_released(&self, lsn: u64) {
        drop(self.front_when(|_| lsn));
    }

    /// The front, once no record lies beyond the ring's window (a long one reserves ahead of it).
    fn front_within_ring(&self) -> MutexGuard<'_, Front> {
        self.front_when(|front| front.layout.boundary())
    }

    /// The front, once the ring's window reaches `needed(front)`.
    fn front_when(&self, needed: impl Fn(&Front) -> u64) -> MutexGuard<'_, Front> {
        let mut front = lock(&self.front);
        self.space_sleepers.fetch_add(1, SeqCst);
        while self.released_lsn.load(SeqCst) + self.ring.len() < needed(&front) {
            self.wake_writers();
            front = wait(&self.space, front);
        }
        self.space_sleepers.fetch_sub(1, SeqCst);
        front
    }

    fn suspension_error(&self) -> Error {
        Suspension::error(lock(&self.writer).suspension.as_ref())
    }
}

/// Puts the header of a closed block, and the zeros behind its records, into the ring.
fn write_seal(ring: &RingBuffer, seal: &Seal) {
    let mut header = Span {
        lsn: seal.start_lsn,
        len: BLOCK_HEADER_BYTES,
    };
    ring.write(&mut header, &seal.encode());
    let padding = (seal.length - seal.used) as usize;
    ring.zero(Span {
        lsn: seal.start_lsn + u64::from(seal.used),
        len: padding,
    });
}
