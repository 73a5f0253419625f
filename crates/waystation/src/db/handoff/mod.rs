//! Hand-off: a device goes from one engine to another, and has one owner at every moment.
//!
//! ```text
//!      source                                                 destination
//!   1  export    freeze, logged; the stream begins
//!   2            (synced; then the stream ends)  ---------->  admit     staged, checked, then one record
//!   3            (receipt)  <-------------------------------            publishes it  (synced)
//!   4  complete  departs and leaves a stub, one record
//!
//!   4' abort     takes writes again  <----------------------  refuse    never to admit it, logged  (synced)
//! ```
//!
//! - Between 1 and 4 the source answers reads and refuses writes ([`Error::Moving`]). It never decides alone: what it
//!   does next takes the destination's word. If none comes it stays frozen; the export can be repeated at any time,
//!   after a restart as well, and the destination answers a ticket the same way again and again.
//! - Freeze and admission are durable before anybody acts on them. The ends (4, 4') need no sync: if a power cut
//!   takes one back, the device is frozen again and the same word brings it about again.
//! - The destination must remember what it answered for as long as it may be asked again. Each stream says below which
//!   ticket everything from this source to this destination is over for good: what lies below is forgotten, and never
//!   admitted.
//!
//! A ticket that promises no more than [`Durability::ProcessCrash`] leaves the syncs out: all of this holds for the
//! death of either process, and a power loss may leave the device with two owners or, as its last writes, with none.

mod admit;
mod export;
mod stream;

pub use export::Export;
pub use waystation_format::handoff::{Digest, EngineId, Receipt, Refusal, Ticket};

use super::changes::Changes;
use super::devices::{Devices, Logged};
use super::pipeline::Refusal as Refused;
use super::{Core, Db, Durability};
use crate::device::handoff::Frozen;
use crate::device::ledger::Decision;
use crate::device::record::DeviceEvent;
use crate::device::table::{Barred, Departure, Device};
use crate::error::{Error, Result};
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
    /// reads and refuses writes. If it is frozen for this destination already, the stream is that of the same ticket.
    ///
    /// `destination` is what the caller calls the other engine: always the same for the same engine. `durability` is
    /// what every step on both sides survives; a power loss costs one sync on each side, which hand-offs on their way
    /// at the same time share.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] if it has no data, [`Error::Moving`] if it is on its way to another destination,
    /// [`Error::Moved`] if it was handed on, [`Error::Suspended`]. Reading the stream fails with an error that holds
    /// one of ours.
    pub fn export_device(
        &self,
        device: &[u8],
        destination: &str,
        durability: Durability,
    ) -> Result<Export<'_>> {
        let (ticket, frozen) = self.core.freeze(device, destination, durability)?;
        Export::new(self, ticket, frozen)
    }

    /// The hand-offs from here that are neither completed nor aborted, by device.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the database knows no devices.
    pub fn exports(&self) -> Result<Vec<Ticket>> {
        let devices = self.core.known_devices()?;
        let table = &devices.upper.table;
        let ticket = |device: &Arc<Device>| {
            let (frozen, tenure) = table.frozen(device.prefix())?;
            Some(devices.ticket(device.prefix(), &frozen, tenure))
        };
        Ok(table.moving().iter().filter_map(ticket).collect())
    }

    /// Takes a device over from another engine: reads the stream to its end, checks it, and shows all of it at once.
    /// The same ticket again gets the same receipt, whatever else the stream holds. A stub of the device goes.
    ///
    /// # Errors
    /// [`Error::Stream`] if it is cut or altered: nothing is admitted then. [`Error::AlreadyHere`] if the device has
    /// data here, [`Error::Ticket`] if the ticket was refused, or is over, or the source has another extractor.
    pub fn admit_device(&self, mut stream: impl Read) -> Result<Receipt> {
        self.core.admit_device(&mut stream)
    }

    /// Ends a hand-off from here: the device departs, in constant time, and leaves a stub that refuses writes with
    /// [`Error::Moved`] until the device is admitted again or the stub is lifted. (Of more than 65,536 stubs the
    /// oldest go.) A receipt that was used already changes nothing.
    ///
    /// # Errors
    /// [`Error::Ticket`] if the receipt is not for a hand-off from here, or not for what was sent.
    pub fn complete_export(&self, receipt: &Receipt) -> Result<()> {
        let expected = self
            .core
            .sent_digest(&receipt.ticket, || self.digest(receipt))?;
        match expected {
            Some(digest) if digest != receipt.digest => Err(misfit(
                "the receipt is for other data than were sent; the device stays frozen",
            )),
            Some(_) => self.core.complete_export(receipt),
            None => Ok(()),
        }
    }

    /// What a stream for the receipt's ticket holds.
    fn digest(&self, receipt: &Receipt) -> Result<Digest> {
        let mut export = Export::new(self, receipt.ticket.clone(), None)?;
        export.read_through()
    }

    /// Promises never to admit `ticket`, so that its source can take the device back.
    ///
    /// # Errors
    /// [`Error::Ticket`] if it was admitted, or is over.
    pub fn refuse_device(&self, ticket: &Ticket) -> Result<Refusal> {
        self.core.refuse_device(ticket)
    }

    /// Ends a hand-off from here that its destination has refused: the device takes writes again. A refusal that was
    /// used already changes nothing.
    ///
    /// # Errors
    /// [`Error::Ticket`] if the refusal is not for a hand-off from here.
    pub fn abort_export(&self, refusal: &Refusal) -> Result<()> {
        self.core.abort_export(refusal)
    }

    /// Where `device` was handed on to, if it left a stub.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the database knows no devices.
    pub fn moved_to(&self, device: &[u8]) -> Result<Option<String>> {
        let (devices, prefix) = self.core.prefix_of(device)?;
        let stub = devices.upper.table.ledger.stub(&prefix);
        Ok(stub.map(|stub| stub.destination.to_string()))
    }

    /// Removes the stub of `device`: if it writes here, it arrives anew.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] if it left none.
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
            Barred::Moving(destination) => Error::Moving {
                device,
                destination: destination.to_string(),
            },
            Barred::Moved(destination) => Error::Moved {
                device,
                destination: destination.to_string(),
            },
        }
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

impl Core {
    /// Freezes a device, unless it is frozen for `destination` already. Returns where that was logged, if it was now.
    fn freeze(
        &self,
        device: &[u8],
        destination: &str,
        durability: Durability,
    ) -> Result<(Ticket, Option<Logged>)> {
        if destination.len() > DESTINATION_BYTES_MAX {
            return Err(Error::InvalidArgument(format!(
                "the destination's name has {} bytes; at most {DESTINATION_BYTES_MAX} are accepted",
                destination.len()
            )));
        }
        let (devices, prefix) = self.prefix_of(device)?;
        let table = &devices.upper.table;
        let survives_power_loss = durability == Durability::PowerLoss;
        let event = DeviceEvent::Frozen {
            prefix: &prefix,
            survives_power_loss,
            destination,
        };
        let destination: Arc<str> = destination.into();
        let frozen = self.log_event(&event, |_, sequence| {
            if let Some(barred) = table.barred(&prefix) {
                return Err(Refused::Failed(devices.barred_error(&prefix, &barred)));
            }
            let frozen = Frozen {
                ticket: sequence,
                destination: Arc::clone(&destination),
                survives_power_loss,
                digest: None,
            };
            let was_there = table.freeze(&prefix, frozen);
            was_there.then_some(()).ok_or_else(|| unknown(device))
        });
        match (frozen, table.frozen(&prefix)) {
            (Ok(logged), Some((frozen, tenure))) => {
                Ok((devices.ticket(&prefix, &frozen, tenure), Some(logged)))
            }
            (Err(Error::Moving { .. }), Some((frozen, tenure)))
                if frozen.destination == destination =>
            {
                Ok((devices.ticket(&prefix, &frozen, tenure), None))
            }
            (Err(error), _) => Err(error),
            (Ok(_), None) => Err(misfit("the hand-off has ended meanwhile")),
        }
    }

    /// What the stream of `ticket`, a hand-off from here, held; `None` if that is completed. `read` finds it out.
    fn sent_digest(
        &self,
        ticket: &Ticket,
        read: impl FnOnce() -> Result<Digest>,
    ) -> Result<Option<Digest>> {
        let (devices, prefix) = self.own_ticket(ticket)?;
        let table = &devices.upper.table;
        match table.frozen(&prefix) {
            Some((frozen, tenure)) if devices.ticket(&prefix, &frozen, tenure) == *ticket => {
                frozen.digest.map_or_else(read, Ok).map(Some)
            }
            _ => match table.ledger.stub(&prefix) {
                Some(stub) if stub.ticket == ticket.sequence => Ok(None),
                _ => Err(misfit("the device is not frozen by this ticket")),
            },
        }
    }

    fn complete_export(&self, receipt: &Receipt) -> Result<()> {
        let ticket = &receipt.ticket;
        let (devices, prefix) = self.own_ticket(ticket)?;
        let table = &devices.upper.table;
        let event = DeviceEvent::HandedOn {
            prefix: &prefix,
            ticket: ticket.sequence,
            destination: &ticket.destination,
        };
        let ended = self.log_event(&event, |lsn, sequence| {
            let departure = table.hand_on(&prefix, ticket.sequence, sequence);
            self.bury_device(departure, &prefix, lsn, sequence);
            match departure {
                Departure::Unknown => Err(Refused::Moved),
                Departure::FromUpper | Departure::FromTree => Ok(()),
            }
        });
        match ended {
            // Somebody else may have done it since we looked.
            Err(Error::Suspended { .. })
                if (table.ledger.stub(&prefix)).is_some_and(|it| it.ticket == ticket.sequence) =>
            {
                Ok(())
            }
            ended => ended.map(|_| ()),
        }
    }

    fn abort_export(&self, refusal: &Refusal) -> Result<()> {
        let ticket = &refusal.ticket;
        let (devices, prefix) = self.own_ticket(ticket)?;
        let table = &devices.upper.table;
        let is_frozen = || {
            let frozen = table.frozen(&prefix);
            frozen.is_some_and(|(frozen, _)| frozen.ticket == ticket.sequence)
        };
        if !is_frozen() {
            let stub = table.ledger.stub(&prefix);
            return match stub.filter(|stub| stub.ticket == ticket.sequence) {
                Some(_) => Err(misfit("the hand-off is completed")),
                None => Ok(()),
            };
        }
        let event = DeviceEvent::Thawed {
            prefix: &prefix,
            ticket: ticket.sequence,
        };
        let ended = self.log_event(&event, |_, sequence| {
            if table.thaw(&prefix, ticket.sequence, sequence) {
                Ok(())
            } else {
                Err(Refused::Moved)
            }
        });
        match ended {
            Err(_) if !is_frozen() => Ok(()),
            ended => ended.map(|_| ()),
        }
    }

    fn refuse_device(&self, ticket: &Ticket) -> Result<Refusal> {
        let devices = self.known_devices()?;
        let ledger = &devices.upper.table.ledger;
        let refusal = Refusal {
            ticket: ticket.clone(),
        };
        let event = DeviceEvent::Refused(ticket.clone());
        let logged = self.log_event(&event, |_, _| match ledger.decision(ticket) {
            None => {
                ledger.refuse(ticket);
                Ok(())
            }
            Some(_) => Err(Refused::Moved),
        });
        match (logged, ledger.decision(ticket)) {
            (Ok(logged), _) => self.keep_promise(ticket, Some(&logged))?,
            (Err(_), Some(Decision::Refused)) => self.keep_promise(ticket, None)?,
            (Err(_), Some(Decision::Admitted(_))) => {
                return Err(misfit("it was admitted, and is not refused any more"));
            }
            (Err(_), Some(other)) => return Err(answered(other)),
            (Err(error), None) => return Err(error),
        }
        Ok(refusal)
    }

    /// Makes what was logged for `ticket` (somewhere, if it is not known where) survive what the ticket promises.
    fn keep_promise(&self, ticket: &Ticket, logged: Option<&Logged>) -> Result<()> {
        match logged {
            _ if !ticket.survives_power_loss => Ok(()),
            Some(logged) => self.log.sync(logged.end_lsn),
            None => self.log.sync_all(),
        }
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

fn unknown(device: &[u8]) -> Refused {
    Refused::Failed(Error::UnknownDevice {
        device: device.escape_ascii().to_string(),
    })
}

fn misfit(reason: impl Into<String>) -> Error {
    Error::Ticket {
        reason: reason.into(),
    }
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
