//! Events: what happens to devices, in the order of the log, and what callers are told of it.
//!
//! ```text
//!   reserve             copy, publish                  sync
//!   decided ----------> visible ---------------------> durable
//!   table and ledger    survives the process's death   survives a power loss
//! ```
//!
//! An event changes the device table and the ledger when its place in the log is reserved, under the front's lock.
//! Other threads find it *decided* from there on. A thread that told of it at once would tell what a crash takes back,
//! and would miss writes that were reserved before it and are not visible.
//!
//! **The rule.** An answer that rests on a decision is given when the decision is visible; and when the log is durable
//! through it, if the answer promises that ([`Core::keep_promise`]). Decisions are looked at in two places:
//! [`Core::look`], and a `happen` that refuses ([`Core::reserve_event`]). Both wait until all events that were decided so
//! far are visible. They wait for all of them, and not for one, because some decisions leave nothing to look at: a
//! device that departed, a stub that was lifted, a hand-off that was aborted.
//!
//! Writes do not follow the rule. Their `Moving` and `Moved` promise that nothing was written, and no more.

use super::Core;
use super::devices::Devices;
use super::pipeline::Refusal;
use crate::device::record::DeviceEvent;
use crate::device::table::DeviceTable;
use crate::error::{Error, Result};
use crate::log::Reservation;
use waystation_format::checksum;
use waystation_format::handoff::Ticket;
use waystation_format::log::RecordKind;

/// Where an event is in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Logged {
    pub(super) sequence: u64,
    /// Syncing the log up to here makes it durable.
    pub(super) end_lsn: u64,
}

impl Core {
    /// Looks at what is decided of devices, in the order of the log. All of it is visible when this returns. Also
    /// returns the last event that was decided.
    pub(super) fn look<T>(
        &self,
        devices: &Devices,
        look: impl FnOnce(&DeviceTable) -> T,
    ) -> (T, Logged) {
        let upper = &devices.upper;
        let (found, last) = self.log.at_front(|lsn, _| {
            let last = Logged {
                sequence: upper.decided(),
                end_lsn: lsn,
            };
            (look(&upper.table), last)
        });
        self.log.wait_visible(last.sequence);
        (found, last)
    }

    /// Makes what was decided up to `last` survive what `ticket` promises.
    pub(super) fn keep_promise(&self, ticket: &Ticket, last: Logged) -> Result<()> {
        let upper = &self.known_devices()?.upper;
        if ticket.survives_power_loss && !upper.is_durable(last.sequence) {
            self.log.sync(last.end_lsn)?;
            upper.note_durable(last.sequence);
        }
        Ok(())
    }

    /// Reserves a place for the record of an event and makes the event true: `happen` runs in the order of the log with a
    /// position at or before the event's and its sequence number. If `happen` refuses, nothing is reserved, and all that
    /// it found is visible when this returns: after a [`Refusal::Moved`] the caller looks again.
    pub(super) fn reserve_event<T>(
        &self,
        payload_bytes: usize,
        operations: u32,
        happen: impl FnOnce(u64, u64) -> Result<T, Refusal>,
    ) -> Result<(Reservation, T), Refusal> {
        let upper = &self.known_devices()?.upper;
        let mut found = 0;
        let reserved = self
            .log
            .reserve(payload_bytes, operations, |lsn, sequence| {
                let happened = happen(lsn, sequence);
                match &happened {
                    Ok(_) => upper.decide(sequence),
                    Err(_) => found = upper.decided(),
                }
                happened
            });
        match reserved {
            Ok((reservation, told)) => Ok((reservation.of_kind(RecordKind::Devices), told)),
            Err(refusal) => {
                self.log.wait_visible(found);
                Err(refusal)
            }
        }
    }

    /// Logs an event and makes it true, as [`Core::reserve_event`] does. It is visible then. Returns whether it was
    /// logged.
    pub(super) fn log_event(
        &self,
        event: &DeviceEvent<'_>,
        happen: impl FnOnce(u64, u64) -> Result<(), Refusal>,
    ) -> Result<bool, Error> {
        // The room of these was counted before.
        let is_counted = matches!(event, DeviceEvent::Switched(_) | DeviceEvent::Settled(_));
        let payload = event.encode();
        if !is_counted && self.is_short_of_room() {
            self.check_leaving(payload.len() as u64)?;
        }
        let checksum = checksum::crc32c(&payload);
        let reservation = match self.reserve_event(payload.len(), 1, happen) {
            Ok((reservation, ())) => reservation,
            Err(Refusal::Failed(error)) => return Err(error),
            Err(Refusal::NoRoom | Refusal::Moved) => return Ok(false),
        };
        self.log.copy(&reservation, &payload, checksum);
        self.log.publish(reservation);
        self.end_rest();
        self.keep_soon();
        Ok(true)
    }
}
