//! The public calls about devices, apart from those about keys.

use super::Db;
use super::handoff::{self, EngineId, Export, Receipt, Refusal, Ticket};
use crate::devices::{DeviceInfo, checkpoint};
use crate::error::Result;
use crate::options::{Durability, Extractor};
use std::io::Read;

/// The devices of a database: see [`Db::devices`]. Any number of threads may use it at once.
///
/// A device arrives by itself, with its first write. It leaves when it departs or is handed on to another engine.
/// Departures, settling and stubs survive the death of the process; a hand-off survives what its caller asks for.
///
/// Every call returns [`InvalidArgument`](crate::Error::InvalidArgument) if the database has no device extractor
/// ([`Options::devices`](crate::Options::devices)) or no device can have the name.
///
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
/// let stream = west.devices().export(b"car-7", "east", Durability::PowerLoss)?;
/// let receipt = east.devices().admit(stream)?;
/// west.devices().complete(&receipt)?;
///
/// assert_eq!(east.get(b"car-7:speed:1")?.as_deref(), Some(&b"52"[..]));
/// assert_eq!(west.get(b"car-7:speed:1")?, None);
/// assert!(west.put(b"car-7:speed:2", b"50").is_err(), "it has moved");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct DeviceHandle<'db> {
    db: &'db Db,
}

impl Db {
    /// The devices of this database.
    pub fn devices(&self) -> DeviceHandle<'_> {
        DeviceHandle { db: self }
    }

    /// The device extractor that the database in `path` was made with; `None` if it, or the database, does not
    /// exist.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io), [`Corruption`](crate::Error::Corruption), or
    /// [`Incompatible`](crate::Error::Incompatible) if a newer version wrote it.
    pub fn stored_extractor(path: impl AsRef<std::path::Path>) -> Result<Option<Extractor>> {
        let storage = crate::storage::OsStorage::new();
        let read = checkpoint::read(&*storage, path.as_ref())?;
        Ok(read.map(|saved| saved.directory.extractor))
    }
}

impl<'db> DeviceHandle<'db> {
    /// All devices that have data, by name. In a directory that is older than its extractor the list includes devices
    /// that wrote before there was one; the call looks for one key of each in the tree.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io) and [`Corruption`](crate::Error::Corruption) if the tree of such a directory cannot be read.
    pub fn list(&self) -> Result<Vec<DeviceInfo>> {
        self.db.core.list_devices()
    }

    /// Lets `device` depart: all its data is gone, except for snapshots and cursors from before. Takes no longer for much
    /// data than for little. If the device writes again, it arrives anew. Survives the death of the process.
    ///
    /// # Errors
    /// [`Unknown`](crate::DeviceError::Unknown) if it has no data; a departure by another caller survives the death of the
    /// process then, too. [`Moving`](crate::DeviceError::Moving) and [`Moved`](crate::DeviceError::Moved) during and after
    /// a hand-off. [`DiskFull`](crate::Error::DiskFull) or [`Suspended`](crate::Error::Suspended) if the file system is
    /// full up to the last byte, and the log has no room either: the device stays.
    pub fn depart(&self, device: &[u8]) -> Result<()> {
        self.db.core.depart(device)
    }

    /// Lets `device` settle into the tree now, before its residency is over. Does nothing if it has settled.
    ///
    /// # Errors
    /// As [`depart`](Self::depart); [`Io`](crate::Error::Io) if the tables cannot be written: then the engine tries again
    /// later. [`DiskFull`](crate::Error::DiskFull) if the tables would take the room that departures need: a flush or a
    /// merge under way gives its room back at its end, so a later call may succeed.
    pub fn settle(&self, device: &[u8]) -> Result<()> {
        self.db.core.settle_device(device)
    }

    /// Lets several devices settle together, at little more cost than one of them alone. Passes over devices that have
    /// settled or have no data.
    ///
    /// # Errors
    /// As [`settle`](Self::settle), except [`Unknown`](crate::DeviceError::Unknown).
    pub fn settle_together<'a>(&self, devices: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
        self.db.core.settle_those(devices.into_iter())
    }

    /// The name of this engine in tickets.
    pub fn engine_id(&self) -> Result<EngineId> {
        Ok(self.db.core.known_devices()?.directory.engine)
    }

    /// Begins to hand `device` on to `destination`: freezes it and returns the stream of its newest values, for
    /// [`admit`](Self::admit) there. Until the hand-off is completed or aborted the device answers reads and refuses
    /// writes. A device that is frozen for this destination already gives the stream of the same ticket, with the same
    /// content and the same durability.
    ///
    /// `destination` is the caller's name for the other engine, always the same for the same engine. `durability` says
    /// what the freeze, the receipt and the refusal survive; a power loss costs one sync on each side, which concurrent
    /// hand-offs share. The end of the hand-off survives the death of the process, see [`complete`](Self::complete).
    ///
    /// # Errors
    /// [`Unknown`](crate::DeviceError::Unknown) if the device has no data, [`Moving`](crate::DeviceError::Moving) if it is
    /// on its way to another destination, [`Moved`](crate::DeviceError::Moved) if it was handed on,
    /// [`Suspended`](crate::Error::Suspended): then it may be frozen, and [`exports`](Self::exports) tells. A read of
    /// the stream fails with an [`io::Error`](std::io::Error) that holds an [`Error`](crate::Error).
    pub fn export(
        &self,
        device: &[u8],
        destination: &str,
        durability: Durability,
    ) -> Result<Export<'db>> {
        handoff::export(self.db, device, destination, durability)
    }

    /// The hand-offs from here that are neither completed nor aborted, by device. They survive what their tickets do.
    ///
    /// # Errors
    /// [`Suspended`](crate::Error::Suspended) if a ticket cannot be made durable.
    pub fn exports(&self) -> Result<Vec<Ticket>> {
        self.db.core.exports()
    }

    /// Takes a device over from another engine: reads the stream to its end, verifies it, and shows all of it at once. The
    /// same ticket gets the same receipt, whatever else the stream holds. A stub of the device goes.
    ///
    /// # Errors
    /// [`Stream`](crate::DeviceError::Stream) if the stream is cut or altered, or stalls for longer than a residency (at
    /// least five minutes), or for two seconds while a budget of the upper level presses: nothing is admitted, and the
    /// hand-off can be tried again. [`AlreadyHere`](crate::DeviceError::AlreadyHere) if the device has data here,
    /// [`Ticket`](crate::DeviceError::Ticket) if the ticket was refused, or is over, or the source has another extractor.
    pub fn admit(&self, mut stream: impl Read) -> Result<Receipt> {
        self.db.core.handoff()?.admit_device(&mut stream)
    }

    /// Ends a hand-off from here: the device departs, in constant time, and leaves a stub that refuses writes with
    /// [`Moved`](crate::DeviceError::Moved) until the device is admitted again or the stub is lifted. (Of more than 65,536
    /// stubs the oldest go.) A receipt that was used already changes nothing.
    ///
    /// Survives the death of the process, and a power loss once the log is synced. A power loss before may take it back: the
    /// device is frozen again, [`exports`](Self::exports) lists it, and the same receipt ends it again.
    ///
    /// # Errors
    /// [`Ticket`](crate::DeviceError::Ticket) if the receipt is for another engine's hand-off, or for other data.
    pub fn complete(&self, receipt: &Receipt) -> Result<()> {
        handoff::complete(self.db, receipt)
    }

    /// Promises never to admit `ticket`, so that its source can take the device back.
    ///
    /// # Errors
    /// [`Ticket`](crate::DeviceError::Ticket) if it was admitted, or is over.
    pub fn refuse(&self, ticket: &Ticket) -> Result<Refusal> {
        self.db.core.handoff()?.refuse_device(ticket)
    }

    /// Ends a hand-off from here that its destination has refused: the device takes writes again. A refusal that was
    /// used already changes nothing. As lasting as [`complete`](Self::complete).
    ///
    /// # Errors
    /// [`Ticket`](crate::DeviceError::Ticket) if the refusal is for another engine's hand-off.
    pub fn abort(&self, refusal: &Refusal) -> Result<()> {
        self.db.core.handoff()?.abort_export(refusal)
    }

    /// The destination of `device`, if it was handed on and left a stub. As lasting as [`complete`](Self::complete).
    pub fn moved_to(&self, device: &[u8]) -> Result<Option<String>> {
        self.db.core.moved_to(device)
    }

    /// Removes the stub of `device`: its next write lets it arrive anew. Survives the death of the process.
    ///
    /// # Errors
    /// [`Unknown`](crate::DeviceError::Unknown) if it left none; that is as lasting.
    pub fn lift_stub(&self, device: &[u8]) -> Result<()> {
        self.db.core.handoff()?.lift_stub(device)
    }
}
