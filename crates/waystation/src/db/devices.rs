//! Devices as the handle shows them: they depart, settle and are listed. What that does says [`crate::devices`].

use super::{Core, Db};
use crate::devices::DeviceInfo;
use crate::devices::checkpoint;
use crate::devices::context::Context;
use crate::devices::departures;
use crate::devices::describe;
use crate::devices::handoff::HandOff;
use crate::devices::maintenance::Devices;
use crate::devices::table::{Device, DeviceState};
use crate::error::{DeviceError, Error, Result};
use crate::options::Extractor;
use crate::storage::Haste;
use crate::sync::Arc;

impl Db {
    /// The device extractor that the database in `path` was made with; `None` if it, or the database, does not
    /// exist.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corruption`], or [`Error::Incompatible`] if it was written by a newer version.
    pub fn stored_extractor(path: impl AsRef<std::path::Path>) -> Result<Option<Extractor>> {
        let storage = crate::storage::OsStorage::new();
        let read = checkpoint::read(&*storage, path.as_ref())?;
        Ok(read.map(|saved| saved.directory.extractor))
    }

    /// Lets `device` depart: all it wrote is gone, for everybody but those who hold a snapshot or a cursor from
    /// before. Takes no longer for much data than for little, wherever that is. If the device writes again, it
    /// arrives anew. Survives the death of the process.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`] if it has no data; if another caller let it depart, that departure survives the death of
    /// the process, too. [`DeviceError::Moving`] and [`DeviceError::Moved`] if it is being handed on, or was;
    /// [`Error::InvalidArgument`] if the database knows no devices.
    pub fn depart(&self, device: &[u8]) -> Result<()> {
        let context = self.core.device_context()?;
        let prefix = context.prefix_of(device)?;
        let has_older = self.core.has_older(&context.upper.table, &prefix)?;
        departures::depart(&context, device, &prefix, has_older)
    }

    /// Lets `device` settle into the tree now, without waiting for its time. Nothing happens if it has.
    ///
    /// # Errors
    /// As [`Db::depart`]; [`Error::Io`] if the tables cannot be written: then it is tried again later.
    pub fn settle(&self, device: &[u8]) -> Result<()> {
        self.core.settle_device(device)
    }

    /// Lets several devices settle together, at little more cost than one of them alone. Those that have settled, or
    /// have no data here, are passed over.
    ///
    /// # Errors
    /// As [`Db::settle`], but for [`DeviceError::Unknown`].
    pub fn settle_together<'a>(&self, devices: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
        self.core.settle_those(devices.into_iter())
    }

    /// All devices that have data, by name. In a directory that is older than its extractor, those too that wrote before
    /// there was one: one key of each is looked for in the tree.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the database knows no devices; [`Error::Io`] and [`Error::Corruption`] if the tree of
    /// such a directory cannot be read.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let devices = self.core.known_devices()?;
        let now = devices.now(&*self.core.storage);
        let table = &devices.upper.table;
        let mut older = self.core.older_prefixes(table)?;
        let name = |prefix: &[u8]| table.extractor().device(prefix).to_vec();
        let info = |device: &Arc<Device>| {
            let has_older = older.remove(device.prefix());
            let name = name(device.prefix());
            device.with_state(|state| describe(name, state, has_older, now))
        };
        let mut all: Vec<_> = table.all().iter().filter_map(info).collect();
        let state = DeviceState::default();
        let unknown = |prefix: &Vec<u8>| describe(name(prefix), &state, true, now);
        all.extend(older.iter().filter_map(unknown));
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let _visible = self.core.context_of(devices).look(|_| ());
        Ok(all)
    }
}

impl Core {
    /// The devices, in a directory with an extractor.
    pub(super) fn known_devices(&self) -> Result<&Devices> {
        self.devices.as_ref().ok_or_else(|| {
            Error::InvalidArgument(
                "the database knows no devices; open it with a device extractor".into(),
            )
        })
    }

    /// What the maintenance of `devices` is given.
    pub(super) fn context_of<'a>(&'a self, devices: &'a Devices) -> Context<'a, Self> {
        devices.context(self, &*self.storage, &self.dir, &self.disk_reserve)
    }

    /// The same, in a directory with an extractor.
    pub(super) fn device_context(&self) -> Result<Context<'_, Self>> {
        self.known_devices().map(|devices| self.context_of(devices))
    }

    /// The hand-offs, in a directory with an extractor.
    pub(super) fn handoff(&self) -> Result<HandOff<'_, Self>> {
        let context = self.device_context()?;
        Ok(HandOff { context })
    }

    /// Lets one device settle.
    fn settle_device(&self, device: &[u8]) -> Result<()> {
        let devices = self.known_devices()?;
        let context = self.context_of(devices);
        let prefix = context.prefix_of(device)?;
        let (found, _) = context.look(|table| {
            let found = table.get(&prefix).and_then(|found| {
                found.with_state(|state| {
                    state
                        .current
                        .clone()
                        .filter(|residency| residency.has_begun())
                })
            });
            (found, table.is_occupied(&prefix))
        });
        match found {
            (Some(residency), _) => devices
                .settler
                .settle(&context, vec![residency], Haste::Much),
            (None, is_occupied)
                if is_occupied || self.has_older(&context.upper.table, &prefix)? =>
            {
                Ok(())
            }
            (None, _) => Err(Error::Device(DeviceError::Unknown {
                device: device.escape_ascii().to_string(),
            })),
        }
    }

    /// Lets those of some devices settle, together, that are in the upper level, and waits for those that are settling.
    fn settle_those<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        let devices = self.known_devices()?;
        let context = self.context_of(devices);
        let mut residencies = Vec::new();
        for name in names {
            let prefix = context.prefix_of(name)?;
            let found = context.upper.table.get(&prefix);
            residencies
                .extend(found.and_then(|found| found.with_state(|state| state.current.clone())));
        }
        residencies.retain(|residency| residency.has_begun());
        devices.settler.settle(&context, residencies, Haste::Much)
    }
}
