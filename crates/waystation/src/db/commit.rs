//! The commit: the one way of a record into the log.
//!
//! ```text
//!  1 check     limits, health, disk, throttle           (may fail, may sleep)   the caller
//!  2 reserve   place in the log, sequence; `admit`      one short lock, in the order of the log
//!  3 copy      record into the ring                     in parallel
//!  4 apply     versions, graves, entries of indexes     in parallel
//!  5 publish   visible with everything before it        in order
//!  6 sync      on demand                                one sync for many       the caller
//! ```
//!
//! A write, a write in a directory with devices, an event of a device and a part of a device that is admitted take this way.
//! They differ in what they admit and apply, which the caller gives as arguments.
//!
//! Invariants: after step 2 nothing fails until the record is visible; what `apply` fills, `admit` has found room for; a
//! write goes to the memtable that was active at its place in the log, so a memtable holds exactly the records between two
//! positions. Whatever is committed ends a rest.

use super::Core;
use super::options::Durability;
use crate::error::{Error, Result};
use waystation_format::checksum;
use waystation_format::log::RecordKind;

/// Why a record was not committed. Nothing was reserved for it.
pub(super) enum Rejection {
    /// Too many full memtables: wait for a flush.
    NoRoom,
    /// A device is not where it was when it was looked up: look again.
    Moved,
    Failed(Error),
}

impl From<Error> for Rejection {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What is to be committed, with its checksum: a commit that is tried again computes none.
pub(super) struct NewRecord<'a> {
    kind: RecordKind,
    payload: &'a [u8],
    checksum: u32,
    operations: u32,
}

impl<'a> NewRecord<'a> {
    /// A record of `kind` that takes as many sequence numbers as it has `operations`.
    pub(super) fn new(kind: RecordKind, payload: &'a [u8], operations: u32) -> Self {
        Self {
            kind,
            payload,
            checksum: checksum::crc32c(payload),
            operations,
        }
    }
}

/// Where a record is in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Logged {
    /// The sequence number of its first operation.
    pub(super) first_sequence: u64,
    /// Its position, by which it can be read.
    pub(super) record_lsn: u64,
    /// Syncing the log up to here makes it durable.
    pub(super) end_lsn: u64,
}

impl Core {
    /// Commits `record`: it is visible, with everything before it, when this returns.
    ///
    /// `admit` runs under the front's lock, in the order of the log, with a position at or before the record's and its first
    /// sequence number. If it rejects the record nothing is reserved. What it returns, mostly the memtable to write to,
    /// goes to `apply`, which runs beside others' and cannot fail.
    #[inline]
    pub(super) fn commit_record<T, R>(
        &self,
        record: &NewRecord<'_>,
        admit: impl FnOnce(u64, u64) -> Result<T, Rejection>,
        apply: impl FnOnce(T, Logged) -> R,
    ) -> Result<(Logged, R), Rejection> {
        let payload = record.payload;
        let (reservation, admitted) =
            self.log
                .reserve(payload.len(), record.operations, |lsn, sequence| {
                    self.room.note_written(lsn);
                    admit(lsn, sequence)
                })?;
        let reservation = reservation.of_kind(record.kind);
        self.log.copy(&reservation, payload, record.checksum);
        let logged = Logged {
            first_sequence: reservation.first_sequence,
            record_lsn: reservation.record_lsn(),
            end_lsn: reservation.end_lsn(),
        };
        let applied = apply(admitted, logged);
        self.log.publish(reservation);
        self.end_rest();
        if self.is_long(payload.len()) {
            self.log.write_all();
        }
        Ok((logged, applied))
    }

    /// Waits until what `rejection` names may be over, so that the write can be tried again.
    pub(super) fn overcome(&self, rejection: Rejection) -> Result<()> {
        match rejection {
            Rejection::Failed(error) => Err(error),
            Rejection::NoRoom => self.wait_for_flush(),
            Rejection::Moved => Ok(()),
        }
    }

    /// Makes what was committed survive what `durability` names.
    pub(super) fn make_durable(&self, logged: Logged, durability: Durability) -> Result<()> {
        match durability {
            Durability::ProcessCrash => Ok(()),
            Durability::PowerLoss => self.log.sync(logged.end_lsn),
        }
    }

    /// Whether a record of so many bytes goes into the ring piece by piece. It is counted until it is in segments: nothing
    /// refuses it any more once it has begun, and an opening lays all of it out anew if its end is in the ring alone.
    #[inline]
    pub(super) fn is_long(&self, log_bytes: usize) -> bool {
        log_bytes > self.options.ring_bytes / 2
    }
}
