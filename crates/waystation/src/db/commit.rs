//! The commit: the one way of a record into the log.
//!
//! ```text
//!  1 check     limits, health, disk, throttle           (may fail, may sleep)   the caller
//!  2 reserve   place in the log, sequence; `admit`      one short lock, in the order of the log
//!  3 copy      record into the ring                     in parallel
//!  4 apply     versions, graves, entries of indexes     in parallel
//!  5 publish   acknowledged; visible in order           in parallel
//!  6 sync      on demand                                one sync for many       the caller
//! ```
//!
//! A write, a write in a directory with devices, an event of a device and a part of a device that is admitted take this way.
//! They differ in what they admit and apply, which the caller gives as arguments.
//!
//! Invariants: after step 2 nothing fails until the record is complete; what `apply` fills, `admit` has found room for; a
//! write goes to the memtable that was active at its place in the log, so a memtable holds exactly the records between two
//! positions. Every commit wakes the watch of an idle database.

use super::Core;
use crate::error::Result;
use crate::log::{Logged, NewRecord, Rejection};
use crate::options::Durability;
use waystation_format::log::RECORD_HEADER_BYTES;

impl Core {
    /// Commits `record`: it can be acknowledged when this returns, and becomes visible once everything before it is complete.
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
        let (reservation, admitted) = self.log.reserve(
            record.kind,
            payload.len(),
            record.operations,
            |lsn, sequence| {
                self.disk_reserve.note_written(lsn);
                admit(lsn, sequence)
            },
        )?;
        self.log.copy(&reservation, payload, record.checksum);
        let logged = Logged {
            first_sequence: reservation.first_sequence,
            record_lsn: reservation.record_lsn(),
            end_lsn: reservation.end_lsn(),
        };
        let is_long = reservation.is_long();
        let applied = apply(admitted, logged);
        self.log.publish(reservation);
        self.idle.note_change();
        if is_long {
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

    /// Whether a record of so many bytes may go into the ring chunk by chunk. It is counted until it is in segments: nothing
    /// refuses it any more once it has begun, and an opening lays all of it out anew if its end is in the ring alone.
    #[inline]
    pub(super) fn may_be_long(&self, log_bytes: usize) -> bool {
        self.log.may_be_long(RECORD_HEADER_BYTES + log_bytes)
    }
}
