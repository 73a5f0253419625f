//! Hand-off: a device goes from one engine to another, and has one owner at every moment.
//!
//! ```text
//!      source                                                 destination
//!   1  export    freeze, logged (synced)
//!   2            the stream  ------------------------------>  admit     staged, checked, then one record
//!   3            (receipt)  <-------------------------------            publishes it  (synced)
//!   4  complete  departs and leaves a stub, one record
//!
//!   4' abort     takes writes again  <----------------------  refuse    never to admit it, logged  (synced)
//! ```
//!
//! - Between 1 and 4 the source answers reads and refuses writes ([`DeviceError::Moving`]). It never decides alone: what it
//!   does next takes the destination's word. If none comes it stays frozen; the export can be repeated at any time,
//!   after a restart as well, and the destination answers a ticket the same way again and again.
//! - Freeze and admission are durable before either side acts on them. The ends (4, 4') need no sync: if a power cut
//!   takes one back, the device is frozen again and the same word brings it about again.
//! - The destination must remember what it answered for as long as it may be asked again. Each stream says which earlier
//!   hand-offs from this source to this destination are not over for good: all others are forgotten, and never admitted.
//! - Two callers may ask for one step at once. The second one gets the first one's answer, once that holds: see
//!   [`events`](super::events). Each step looks for a decision, logs one if there is none, and looks again.
//! - A stream begins when the freeze is visible, and with it every write that was reserved before; later writes are
//!   refused. The stream's snapshot is taken before the hand-off ends. So the stream is the ticket's whole content, also
//!   if the device is written to or departs while it is read. A receipt for other content is not accepted.
//!
//! [`DeviceError::Unknown`] and [`DeviceError::Ticket`] promise as much as the answer in whose place they stand, and a caller
//! may act on them. [`DeviceError::AlreadyHere`], [`DeviceError::Moving`] and [`DeviceError::Moved`] promise that the call did nothing.
//!
//! A ticket that promises no more than [`Durability::ProcessCrash`] leaves the syncs out: all of this holds for the
//! death of either process, and a power loss may leave the device with two owners or, as its last writes, with none.

mod admit;
mod progress;
mod stream;
mod transitions;

pub(crate) use progress::{give_up_stalled, next_stall};
pub(crate) use stream::StreamReader;
pub(crate) use transitions::{Frozen, Occupied, Part};

use super::context::{Context, Events, Memtables};
use super::departures::add_departure;
use super::events::{Decided, unknown};
use super::ledger::Decision;
use super::record::DeviceEvent;
use super::table::{Barred, Departure};
use crate::background::Throttle;
use crate::error::{DeviceError, Error, Result};
use crate::log::Rejection;
use crate::options::Durability;
use crate::sync::Arc;
use waystation_format::batch::Operation;
use waystation_format::handoff::{Digest, Refusal, Ticket};

/// The longest name of a destination (bytes).
const DESTINATION_BYTES_MAX: usize = 4096;

/// What was written before there was an extractor.
pub(crate) trait Older {
    /// Whether the tree holds keys of the device of `prefix` that the table does not know of.
    fn has_older(&self, prefix: &[u8]) -> Result<bool>;
}

/// What an admission needs besides: a place in memory for what expires, and graves that stay while it is published.
pub(crate) trait Admission {
    /// A memtable with room.
    type Memory;

    /// Names the memtable for `room` bytes of a record at `lsn` or later that begins with `sequence`. Under the front's lock.
    fn admit_memory(&self, room: usize, lsn: u64, sequence: u64)
    -> Result<Self::Memory, Rejection>;

    /// Puts `operations`, with their sequence numbers, into `memory`.
    fn fill_memory<'o>(
        &self,
        memory: &Self::Memory,
        operations: impl Iterator<Item = (u64, Operation<'o>)>,
    );

    /// The bytes of memtable that `operation` needs at most.
    fn room_of(&self, operation: &Operation<'_>) -> usize;

    /// Waits until fewer memtables are full.
    fn wait_for_flush(&self) -> Result<()>;

    /// The most bytes that a part of an admission should have, so that it does not fill the ring.
    fn part_bytes(&self) -> usize;

    /// How writers are held back.
    fn throttle(&self) -> &Throttle;

    /// For versions that were written from `stage` on (0: none) and are about to be shown with a later sequence number: no
    /// grave of that time comes back or is retired while the caller keeps the guard.
    fn keep_graves(&self, stage: u64) -> Result<impl Drop + '_>;

    /// Whether anything with `prefix` was deleted since `stage`. Under the front's lock, which is at `sequence`.
    fn was_deleted_since(&self, prefix: &[u8], stage: u64, sequence: u64) -> bool;
}

/// The hand-offs of a database.
pub(crate) struct HandOff<'a, E> {
    pub(crate) context: Context<'a, E>,
}

/// What has become of a hand-off from here.
pub(crate) enum Sent {
    /// The device waits for its end; with what a stream held, if one was read to its end.
    Frozen(Option<Digest>),
    /// It is completed.
    HandedOn,
    /// It was aborted, or completed so long ago that nothing is left of it; or there was none.
    Over,
}

impl<E> HandOff<'_, E> {
    /// The hand-off of the device of `prefix` that has not ended.
    pub(crate) fn open_ticket(&self, prefix: &[u8]) -> Option<Ticket> {
        let (frozen, tenure) = self.context.upper.table.frozen(prefix)?;
        Some(self.ticket(prefix, &frozen, tenure))
    }

    fn ticket(&self, prefix: &[u8], frozen: &Frozen, tenure: u64) -> Ticket {
        Ticket {
            source: self.context.directory.engine,
            destination: frozen.destination.to_string(),
            device: self.context.upper.table.extractor().device(prefix).to_vec(),
            sequence: frozen.ticket,
            tenure,
            survives_power_loss: frozen.survives_power_loss,
        }
    }
}

impl<E: Events + Memtables + Older> HandOff<'_, E> {
    /// Freezes a device for `destination`, unless it is frozen for that already. The freeze survives what its ticket does.
    pub(crate) fn freeze(
        &self,
        device: &[u8],
        destination: &str,
        durability: Durability,
    ) -> Result<Ticket> {
        check_destination(destination).map_err(Error::InvalidArgument)?;
        let prefix = self.context.prefix_of(device)?;
        let survives_power_loss = durability == Durability::PowerLoss;
        let event = DeviceEvent::Frozen {
            prefix: &prefix,
            survives_power_loss,
            destination,
        };
        let destination: Arc<str> = destination.into();
        loop {
            let (ticket, last) = self.context.look(|_| self.open_ticket(&prefix));
            if let Some(ticket) = ticket.filter(|ticket| *ticket.destination == *destination) {
                self.keep_ticket(&ticket, last)?;
                return Ok(ticket);
            }
            let has_older = self.context.engine.has_older(&prefix)?;
            self.context.log_event(&event, |_, sequence| {
                let table = &self.context.upper.table;
                match table.barred(&prefix) {
                    Some(Barred::Moving(other)) if other == destination => {
                        return Err(Rejection::Moved);
                    }
                    Some(barred) => {
                        return Err(Rejection::Failed(table.barred_error(&prefix, &barred)));
                    }
                    None => {}
                }
                if !has_older && !table.is_occupied(&prefix) {
                    return Err(unknown(device));
                }
                let frozen = Frozen {
                    ticket: sequence,
                    destination: Arc::clone(&destination),
                    survives_power_loss,
                    digest: None,
                };
                let was_there = table.freeze(&prefix, frozen);
                was_there.then_some(()).ok_or_else(|| unknown(device))
            })?;
        }
    }

    /// Makes the freeze that gave `ticket` survive what that promises, where `last` is an event that was decided since.
    pub(crate) fn keep_ticket(&self, ticket: &Ticket, last: Decided) -> Result<()> {
        let frozen = Decided {
            sequence: ticket.sequence,
            ..last
        };
        self.context.keep_promise(ticket, frozen)
    }

    /// What has become of the hand-off `ticket` from here.
    pub(crate) fn sent(&self, ticket: &Ticket) -> Result<Sent> {
        let prefix = self.own_ticket(ticket)?;
        let (sent, _) = self.context.look(|table| match table.frozen(&prefix) {
            Some((frozen, tenure)) if self.ticket(&prefix, &frozen, tenure) == *ticket => {
                Sent::Frozen(frozen.digest)
            }
            _ => match table.ledger.stub(&prefix) {
                Some(stub) if stub.ticket == ticket.sequence => Sent::HandedOn,
                _ => Sent::Over,
            },
        });
        Ok(sent)
    }

    /// Ends the hand-off `ticket`: the device departs. Returns whether it was frozen by that.
    pub(crate) fn hand_on(&self, ticket: &Ticket) -> Result<bool> {
        let prefix = self.own_ticket(ticket)?;
        let event = DeviceEvent::HandedOn {
            prefix: &prefix,
            ticket: ticket.sequence,
            destination: &ticket.destination,
        };
        self.context.log_event(&event, |lsn, sequence| {
            let table = &self.context.upper.table;
            let departure = table.hand_on(&prefix, ticket.sequence, sequence);
            add_departure(&self.context, departure, &prefix, lsn, sequence);
            match departure {
                Departure::Unknown => Err(Rejection::Moved),
                Departure::FromUpper | Departure::FromTree => Ok(()),
            }
        })
    }

    /// Ends a hand-off from here that its destination has refused.
    pub(crate) fn abort_export(&self, refusal: &Refusal) -> Result<()> {
        let ticket = &refusal.ticket;
        let prefix = self.own_ticket(ticket)?;
        let event = DeviceEvent::Thawed {
            prefix: &prefix,
            ticket: ticket.sequence,
        };
        loop {
            match self.sent(ticket)? {
                Sent::Frozen(_) => {}
                Sent::HandedOn => return Err(misfit("the hand-off is completed")),
                Sent::Over => return Ok(()),
            }
            let is_thawed = self.context.log_event(&event, |_, sequence| {
                let thawed = (self.context.upper.table).thaw(&prefix, ticket.sequence, sequence);
                thawed.then_some(()).ok_or(Rejection::Moved)
            })?;
            if is_thawed {
                return Ok(());
            }
        }
    }

    /// Promises never to admit `ticket`.
    pub(crate) fn refuse_device(&self, ticket: &Ticket) -> Result<Refusal> {
        check_ticket(ticket)?;
        let event = DeviceEvent::Refused(ticket.clone());
        loop {
            match self.decision(ticket)? {
                None => {}
                Some(Decision::Refused) => {
                    let ticket = ticket.clone();
                    return Ok(Refusal { ticket });
                }
                Some(Decision::Admitted(_)) => {
                    return Err(misfit("it was admitted, and is not refused any more"));
                }
                Some(other) => return Err(answered(other)),
            }
            self.context.log_event(&event, |_, _| {
                let ledger = &self.context.upper.table.ledger;
                if ledger.decision(ticket).is_some() {
                    return Err(Rejection::Moved);
                }
                ledger.refuse(ticket);
                Ok(())
            })?;
        }
    }

    /// Removes the stub of `device`.
    pub(crate) fn lift_stub(&self, device: &[u8]) -> Result<()> {
        let prefix = self.context.prefix_of(device)?;
        let lifted = self
            .context
            .log_event(&DeviceEvent::Lifted(&prefix), |_, _| {
                let was_there = self.context.upper.table.ledger.lift_stub(&prefix);
                was_there.then_some(()).ok_or_else(|| unknown(device))
            });
        lifted.map(|_| ())
    }

    /// What was answered to `ticket`, if anything was. It survives what the ticket promises.
    fn decision(&self, ticket: &Ticket) -> Result<Option<Decision>> {
        let (decision, last) = self.context.look(|table| table.ledger.decision(ticket));
        if decision.is_some() {
            self.context.keep_promise(ticket, last)?;
        }
        Ok(decision)
    }

    /// The prefix of the device of a ticket that was given out here.
    fn own_ticket(&self, ticket: &Ticket) -> Result<Vec<u8>> {
        let prefix = self.context.prefix_of(&ticket.device)?;
        if self.context.directory.engine == ticket.source {
            Ok(prefix)
        } else {
            let own = self.context.directory.engine;
            let source = ticket.source;
            Err(misfit(format!(
                "it is from engine {source}, and this is {own}"
            )))
        }
    }
}

/// Why no engine can be called `destination`, if it is so.
fn check_destination(destination: &str) -> Result<(), String> {
    let bytes = destination.len();
    if bytes <= DESTINATION_BYTES_MAX {
        return Ok(());
    }
    Err(format!(
        "the destination's name has {bytes} bytes; at most {DESTINATION_BYTES_MAX} are accepted"
    ))
}

/// Refuses a ticket from elsewhere that no engine can have given out.
fn check_ticket(ticket: &Ticket) -> Result<()> {
    ticket.check().map_err(|error| misfit(error.reason()))?;
    check_destination(&ticket.destination).map_err(misfit)
}

/// The error of a ticket, or of an answer to it, that cannot be used.
pub(crate) fn misfit(reason: impl Into<String>) -> Error {
    Error::Device(DeviceError::Ticket {
        reason: reason.into(),
    })
}

/// Why a ticket is not answered otherwise, now that it was answered by `decision`.
fn answered(decision: Decision) -> Error {
    misfit(match decision {
        Decision::Admitted(_) => "the ticket was admitted",
        Decision::Refused => "the ticket was refused; export the device anew",
        Decision::Over => "its source has said that it is over",
        Decision::Mistaken => {
            "another hand-off has the same number: was the source restored from a copy?"
        }
    })
}
