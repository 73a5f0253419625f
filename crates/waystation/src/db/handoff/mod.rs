//! Hand-off as the handle shows it. What it does, and why it leaves a device with one owner, says
//! [`crate::devices::handoff`].

mod export;
#[cfg(test)]
#[cfg(shuttle)]
mod model_tests;

pub use export::Export;
pub use waystation_format::handoff::{Digest, EngineId, Receipt, Refusal, Ticket};

use super::Db;
use crate::devices::handoff::{Sent, misfit};
use crate::devices::table::Device;
use crate::error::Result;
use crate::options::Durability;
use crate::sync::Arc;
use std::io::Read;

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
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the database knows no devices.
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
    /// [`DeviceError::Unknown`](crate::DeviceError::Unknown) if it has no data, [`DeviceError::Moving`](crate::DeviceError::Moving) if it is on its way to another destination,
    /// [`DeviceError::Moved`](crate::DeviceError::Moved) if it was handed on, [`Error::Suspended`](crate::Error::Suspended): then it may be frozen, as [`Db::exports`] tells. Reading
    /// the stream fails with an error that holds one of ours.
    pub fn export_device(
        &self,
        device: &[u8],
        destination: &str,
        durability: Durability,
    ) -> Result<Export<'_>> {
        loop {
            let ticket = self
                .core
                .handoff()?
                .freeze(device, destination, durability)?;
            if let Some(export) = Export::open(self, ticket)? {
                return Ok(export);
            }
        }
    }

    /// The hand-offs from here that are neither completed nor aborted, by device. They survive what their tickets do.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the database knows no devices, [`Error::Suspended`](crate::Error::Suspended) if a ticket cannot be made durable.
    pub fn exports(&self) -> Result<Vec<Ticket>> {
        let devices = self.core.known_devices()?;
        let table = &devices.upper.table;
        let handoff = self.core.handoff()?;
        let ticket = |device: &Arc<Device>| handoff.open_ticket(device.prefix());
        let tickets: Vec<_> = table.moving().iter().filter_map(ticket).collect();
        let ((), last) = handoff.context.look(|_| ());
        let durable = tickets.iter().filter(|ticket| ticket.survives_power_loss);
        if let Some(newest) = durable.max_by_key(|ticket| ticket.sequence) {
            handoff.keep_ticket(newest, last)?;
        }
        Ok(tickets)
    }

    /// Takes a device over from another engine: reads the stream to its end, checks it, and shows all of it at once.
    /// The same ticket again gets the same receipt, whatever else the stream holds. A stub of the device goes.
    ///
    /// # Errors
    /// [`DeviceError::Stream`](crate::DeviceError::Stream) if it is cut or altered, or stalls for longer than a residency (and five minutes), or for two
    /// seconds where a budget of the upper level presses: nothing is admitted then, and it can be tried again. [`DeviceError::AlreadyHere`](crate::DeviceError::AlreadyHere) if the device has
    /// data here, [`DeviceError::Ticket`](crate::DeviceError::Ticket) if the ticket was refused, or is over, or the source has another extractor.
    pub fn admit_device(&self, mut stream: impl Read) -> Result<Receipt> {
        self.core.handoff()?.admit_device(&mut stream)
    }

    /// Ends a hand-off from here: the device departs, in constant time, and leaves a stub that refuses writes with
    /// [`DeviceError::Moved`](crate::DeviceError::Moved) until the device is admitted again or the stub is lifted. (Of more than 65,536 stubs the
    /// oldest go.) A receipt that was used already changes nothing.
    ///
    /// # Errors
    /// [`DeviceError::Ticket`](crate::DeviceError::Ticket) if the receipt is not for a hand-off from here, or not for what was sent.
    pub fn complete_export(&self, receipt: &Receipt) -> Result<()> {
        let ticket = &receipt.ticket;
        let handoff = self.core.handoff()?;
        loop {
            let sent = match handoff.sent(ticket)? {
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
                Some(_) if handoff.hand_on(ticket)? => return Ok(()),
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
    /// [`DeviceError::Ticket`](crate::DeviceError::Ticket) if it was admitted, or is over.
    pub fn refuse_device(&self, ticket: &Ticket) -> Result<Refusal> {
        self.core.handoff()?.refuse_device(ticket)
    }

    /// Ends a hand-off from here that its destination has refused: the device takes writes again. A refusal that was
    /// used already changes nothing.
    ///
    /// # Errors
    /// [`DeviceError::Ticket`](crate::DeviceError::Ticket) if the refusal is not for a hand-off from here.
    pub fn abort_export(&self, refusal: &Refusal) -> Result<()> {
        self.core.handoff()?.abort_export(refusal)
    }

    /// Where `device` was handed on to, if it left a stub. As lasting as [`Db::complete_export`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the database knows no devices.
    pub fn moved_to(&self, device: &[u8]) -> Result<Option<String>> {
        let context = self.core.device_context()?;
        let prefix = context.prefix_of(device)?;
        let (stub, _) = context.look(|table| table.ledger.stub(&prefix));
        Ok(stub.map(|stub| stub.destination.to_string()))
    }

    /// Removes the stub of `device`: if it writes here, it arrives anew. Survives the death of the process.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`](crate::DeviceError::Unknown) if it left none; that is as lasting.
    pub fn lift_stub(&self, device: &[u8]) -> Result<()> {
        self.core.handoff()?.lift_stub(device)
    }
}
