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
//! - Freeze and admission are durable before anybody acts on them. The ends (4, 4') need no sync: if a power cut
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
mod export;
#[cfg(test)]
#[cfg(shuttle)]
mod model_tests;
mod progress;
mod stream;

pub use export::Export;
pub use waystation_format::handoff::{Digest, EngineId, Receipt, Refusal, Ticket};

use super::changes::Changes;
use super::commit::Rejection;
use super::devices::Devices;
use super::events::Decided;
use super::{Core, Db, Durability};
use crate::device::handoff::Frozen;
use crate::device::ledger::Decision;
use crate::device::record::DeviceEvent;
use crate::device::table::{Barred, Departure, Device};
use crate::error::{DeviceError, Error, Result};
use crate::sync::Arc;
use std::io::Read;

/// The longest name of a destination (bytes).
const DESTINATION_BYTES_MAX: usize = 4096;

/// # Hand-off
///
/// ```
/// use waystation::{Db, DeviceOptions, Durability, Extractor, Options};
/// # let dirs = (tempfile::tempdir()?, tempfile::tempdir()?);
/// let options = Options {
///     devices: Some(DeviceOptions::new(Extractor::until(b':'))),
///     ..Options::default()
/// };
/// let west = Db::open(dirs.0.path(), options.clone())?;
/// let east = Db::open(dirs.1.path(), options)?;
/// west.put(b"car-7:speed:1", b"52")?;
///
/// let stream = west.export_device(b"car-7", "east", Durability::PowerLoss)?;
/// let receipt = east.admit_device(stream)?;
/// west.complete_export(&receipt)?;
///
/// assert_eq!(east.get(b"car-7:speed:1")?.as_deref(), Some(&b"52"[..]));
/// assert_eq!(west.get(b"car-7:speed:1")?, None);
/// assert!(west.put(b"car-7:speed:2", b"50").is_err(), "it has moved");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Db {
    /// How other engines know this one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the database knows no devices.
    pub fn engine_id(&self) -> Result<EngineId> {
        Ok(self.core.known_devices()?.directory.engine)
    }

    /// Begins to hand `device` on to `destination`: freezes it and returns the stream of its newest values, to be
    /// read to its end by [`Db::admit_device`] there. Until the hand-off is completed or aborted the device answers
    /// reads and refuses writes. If it is frozen for this destination already, the stream is that of the same ticket,
    /// with the same content, and survives what that does.
    ///
    /// `destination` is what the caller calls the other engine: always the same for the same engine. `durability` is
    /// what every step on both sides survives; a power loss costs one sync on each side, which hand-offs on their way
    /// at the same time share.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`] if it has no data, [`DeviceError::Moving`] if it is on its way to another destination,
    /// [`DeviceError::Moved`] if it was handed on, [`Error::Suspended`]: then it may be frozen, as [`Db::exports`] tells. Reading
    /// the stream fails with an error that holds one of ours.
    pub fn export_device(
        &self,
        device: &[u8],
        destination: &str,
        durability: Durability,
    ) -> Result<Export<'_>> {
        loop {
            let ticket = self.core.freeze(device, destination, durability)?;
            if let Some(export) = Export::open(self, ticket)? {
                return Ok(export);
            }
        }
    }

    /// The hand-offs from here that are neither completed nor aborted, by device. They survive what their tickets do.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the database knows no devices, [`Error::Suspended`] if a ticket cannot be made durable.
    pub fn exports(&self) -> Result<Vec<Ticket>> {
        let devices = self.core.known_devices()?;
        let table = &devices.upper.table;
        let ticket = |device: &Arc<Device>| devices.open_ticket(device.prefix());
        let tickets: Vec<_> = table.moving().iter().filter_map(ticket).collect();
        let ((), last) = self.core.look(devices, |_| ());
        let durable = tickets.iter().filter(|ticket| ticket.survives_power_loss);
        if let Some(newest) = durable.max_by_key(|ticket| ticket.sequence) {
            self.core.keep_ticket(newest, last)?;
        }
        Ok(tickets)
    }

    /// Takes a device over from another engine: reads the stream to its end, checks it, and shows all of it at once.
    /// The same ticket again gets the same receipt, whatever else the stream holds. A stub of the device goes.
    ///
    /// # Errors
    /// [`DeviceError::Stream`] if it is cut or altered, or stalls for longer than a residency (and five minutes), or for two
    /// seconds where a budget of the upper level presses: nothing is admitted then, and it can be tried again. [`DeviceError::AlreadyHere`] if the device has
    /// data here, [`DeviceError::Ticket`] if the ticket was refused, or is over, or the source has another extractor.
    pub fn admit_device(&self, mut stream: impl Read) -> Result<Receipt> {
        self.core.admit_device(&mut stream)
    }

    /// Ends a hand-off from here: the device departs, in constant time, and leaves a stub that refuses writes with
    /// [`DeviceError::Moved`] until the device is admitted again or the stub is lifted. (Of more than 65,536 stubs the
    /// oldest go.) A receipt that was used already changes nothing.
    ///
    /// # Errors
    /// [`DeviceError::Ticket`] if the receipt is not for a hand-off from here, or not for what was sent.
    pub fn complete_export(&self, receipt: &Receipt) -> Result<()> {
        let ticket = &receipt.ticket;
        loop {
            let sent = match self.core.sent(ticket)? {
                Sent::Frozen(Some(digest)) => Some(digest),
                Sent::Frozen(None) => self.digest(ticket)?,
                Sent::HandedOn => return Ok(()),
                Sent::Over => return Err(misfit("the device is not frozen by this ticket")),
            };
            match sent {
                Some(digest) if digest != receipt.digest => {
                    return Err(misfit(
                        "the receipt is for other data than were sent; the device stays frozen",
                    ));
                }
                Some(_) if self.core.hand_on(ticket)? => return Ok(()),
                // It has ended meanwhile.
                _ => {}
            }
        }
    }

    /// What a stream for `ticket` holds; `None` if the hand-off has ended.
    fn digest(&self, ticket: &Ticket) -> Result<Option<Digest>> {
        let export = Export::open(self, ticket.clone())?;
        export.map(|mut export| export.read_through()).transpose()
    }

    /// Promises never to admit `ticket`, so that its source can take the device back.
    ///
    /// # Errors
    /// [`DeviceError::Ticket`] if it was admitted, or is over.
    pub fn refuse_device(&self, ticket: &Ticket) -> Result<Refusal> {
        self.core.refuse_device(ticket)
    }

    /// Ends a hand-off from here that its destination has refused: the device takes writes again. A refusal that was
    /// used already changes nothing.
    ///
    /// # Errors
    /// [`DeviceError::Ticket`] if the refusal is not for a hand-off from here.
    pub fn abort_export(&self, refusal: &Refusal) -> Result<()> {
        self.core.abort_export(refusal)
    }

    /// Where `device` was handed on to, if it left a stub. As lasting as [`Db::complete_export`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the database knows no devices.
    pub fn moved_to(&self, device: &[u8]) -> Result<Option<String>> {
        let (devices, prefix) = self.core.prefix_of(device)?;
        let (stub, _) = (self.core).look(devices, |table| table.ledger.stub(&prefix));
        Ok(stub.map(|stub| stub.destination.to_string()))
    }

    /// Removes the stub of `device`: if it writes here, it arrives anew. Survives the death of the process.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`] if it left none; that is as lasting.
    pub fn lift_stub(&self, device: &[u8]) -> Result<()> {
        let (devices, prefix) = self.core.prefix_of(device)?;
        let lifted = self.core.log_event(&DeviceEvent::Lifted(&prefix), |_, _| {
            let was_there = devices.upper.table.ledger.lift_stub(&prefix);
            was_there.then_some(()).ok_or_else(|| unknown(device))
        });
        lifted.map(|_| ())
    }
}

impl Devices {
    /// Refuses to delete ranges in which a device is being handed on. Under the front's lock.
    pub(super) fn check_ranges(&self, changes: &impl Changes) -> Result<()> {
        let table = &self.upper.table;
        for operation in changes.operations() {
            let moving = operation
                .range()
                .and_then(|end| table.moving_within(operation.key, end));
            if let Some(device) = moving
                && let Some(barred) = table.barred(device.prefix())
            {
                return Err(self.barred_error(device.prefix(), &barred));
            }
        }
        Ok(())
    }

    /// The error of a write that `barred` stops.
    pub(super) fn barred_error(&self, prefix: &[u8], barred: &Barred) -> Error {
        let device = self.upper.table.extractor().device(prefix);
        let device = device.escape_ascii().to_string();
        match barred {
            Barred::Moving(destination) => Error::Device(DeviceError::Moving {
                device,
                destination: destination.to_string(),
            }),
            Barred::Moved(destination) => Error::Device(DeviceError::Moved {
                device,
                destination: destination.to_string(),
            }),
        }
    }

    /// The hand-off of the device of `prefix` that has not ended.
    fn open_ticket(&self, prefix: &[u8]) -> Option<Ticket> {
        let (frozen, tenure) = self.upper.table.frozen(prefix)?;
        Some(self.ticket(prefix, &frozen, tenure))
    }

    fn ticket(&self, prefix: &[u8], frozen: &Frozen, tenure: u64) -> Ticket {
        Ticket {
            source: self.directory.engine,
            destination: frozen.destination.to_string(),
            device: self.upper.table.extractor().device(prefix).to_vec(),
            sequence: frozen.ticket,
            tenure,
            survives_power_loss: frozen.survives_power_loss,
        }
    }
}

/// What has become of a hand-off from here.
enum Sent {
    /// The device waits for its end; with what a stream held, if one was read to its end.
    Frozen(Option<Digest>),
    /// It is completed.
    HandedOn,
    /// It was aborted, or completed so long ago that nothing is left of it; or there was none.
    Over,
}

impl Core {
    /// Freezes a device for `destination`, unless it is frozen for that already. The freeze survives what its ticket does.
    fn freeze(&self, device: &[u8], destination: &str, durability: Durability) -> Result<Ticket> {
        check_destination(destination).map_err(Error::InvalidArgument)?;
        let (devices, prefix) = self.prefix_of(device)?;
        let survives_power_loss = durability == Durability::PowerLoss;
        let event = DeviceEvent::Frozen {
            prefix: &prefix,
            survives_power_loss,
            destination,
        };
        let destination: Arc<str> = destination.into();
        loop {
            let (ticket, last) = self.look(devices, |_| devices.open_ticket(&prefix));
            if let Some(ticket) = ticket.filter(|ticket| *ticket.destination == *destination) {
                self.keep_ticket(&ticket, last)?;
                return Ok(ticket);
            }
            let has_older = self.has_older(devices, &prefix)?;
            self.log_event(&event, |_, sequence| {
                let table = &devices.upper.table;
                match table.barred(&prefix) {
                    Some(Barred::Moving(other)) if other == destination => {
                        return Err(Rejection::Moved);
                    }
                    Some(barred) => {
                        return Err(Rejection::Failed(devices.barred_error(&prefix, &barred)));
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
    fn keep_ticket(&self, ticket: &Ticket, last: Decided) -> Result<()> {
        let frozen = Decided {
            sequence: ticket.sequence,
            ..last
        };
        self.keep_promise(ticket, frozen)
    }

    /// What has become of the hand-off `ticket` from here.
    fn sent(&self, ticket: &Ticket) -> Result<Sent> {
        let (devices, prefix) = self.own_ticket(ticket)?;
        let (sent, _) = self.look(devices, |table| match table.frozen(&prefix) {
            Some((frozen, tenure)) if devices.ticket(&prefix, &frozen, tenure) == *ticket => {
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
    fn hand_on(&self, ticket: &Ticket) -> Result<bool> {
        let (devices, prefix) = self.own_ticket(ticket)?;
        let event = DeviceEvent::HandedOn {
            prefix: &prefix,
            ticket: ticket.sequence,
            destination: &ticket.destination,
        };
        self.log_event(&event, |lsn, sequence| {
            let table = &devices.upper.table;
            let departure = table.hand_on(&prefix, ticket.sequence, sequence);
            self.bury_device(departure, &prefix, lsn, sequence);
            match departure {
                Departure::Unknown => Err(Rejection::Moved),
                Departure::FromUpper | Departure::FromTree => Ok(()),
            }
        })
    }

    fn abort_export(&self, refusal: &Refusal) -> Result<()> {
        let ticket = &refusal.ticket;
        let (devices, prefix) = self.own_ticket(ticket)?;
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
            let is_thawed = self.log_event(&event, |_, sequence| {
                let thawed = (devices.upper.table).thaw(&prefix, ticket.sequence, sequence);
                thawed.then_some(()).ok_or(Rejection::Moved)
            })?;
            if is_thawed {
                return Ok(());
            }
        }
    }

    fn refuse_device(&self, ticket: &Ticket) -> Result<Refusal> {
        let devices = self.known_devices()?;
        check_ticket(ticket)?;
        let event = DeviceEvent::Refused(ticket.clone());
        loop {
            match self.decision(devices, ticket)? {
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
            self.log_event(&event, |_, _| {
                let ledger = &devices.upper.table.ledger;
                if ledger.decision(ticket).is_some() {
                    return Err(Rejection::Moved);
                }
                ledger.refuse(ticket);
                Ok(())
            })?;
        }
    }

    /// What was answered to `ticket`, if anything was. It survives what the ticket promises.
    fn decision(&self, devices: &Devices, ticket: &Ticket) -> Result<Option<Decision>> {
        let (decision, last) = self.look(devices, |table| table.ledger.decision(ticket));
        if decision.is_some() {
            self.keep_promise(ticket, last)?;
        }
        Ok(decision)
    }

    /// The prefix of the device of a ticket that was given out here.
    fn own_ticket(&self, ticket: &Ticket) -> Result<(&Devices, Vec<u8>)> {
        let (devices, prefix) = self.prefix_of(&ticket.device)?;
        if devices.directory.engine == ticket.source {
            Ok((devices, prefix))
        } else {
            let own = devices.directory.engine;
            let source = ticket.source;
            Err(misfit(format!(
                "it is from engine {source}, and this is {own}"
            )))
        }
    }
}

fn unknown(device: &[u8]) -> Rejection {
    Rejection::Failed(Error::Device(DeviceError::Unknown {
        device: device.escape_ascii().to_string(),
    }))
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

fn misfit(reason: impl Into<String>) -> Error {
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
