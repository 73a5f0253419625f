//! What a database does for the calls about devices that [`device_handle`](super::device_handle) has. How devices depart and
//! settle says [`crate::devices`].

use super::Core;
use crate::devices::DeviceInfo;
use crate::devices::context::Context;
use crate::devices::departures;
use crate::devices::describe;
use crate::devices::handoff::HandOff;
use crate::devices::maintenance::Devices;
use crate::devices::table::{Device, DeviceState};
use crate::error::{DeviceError, Error, Result};
use crate::storage::IoPriority;
use crate::sync::Arc;

impl Core {
    /// Lets `device` depart.
    pub(super) fn depart(&self, device: &[u8]) -> Result<()> {
        let context = self.device_context()?;
        let prefix = context.prefix_of(device)?;
        let has_older = self.has_older(&context.upper.table, &prefix)?;
        departures::depart(&context, device, &prefix, has_older)
    }

    /// All devices that have data, by name.
    pub(super) fn list_devices(&self) -> Result<Vec<DeviceInfo>> {
        let devices = self.known_devices()?;
        let now = devices.now(&*self.storage);
        let table = &devices.upper.table;
        let mut older = self.older_prefixes(table)?;
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
        let _visible = self.context_of(devices).look(|_| ());
        Ok(all)
    }

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
    pub(super) fn settle_device(&self, device: &[u8]) -> Result<()> {
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
            (Some(residency), _) => {
                devices
                    .settler
                    .settle(&context, vec![residency], IoPriority::High)
            }
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

    /// Lets some devices settle together, as far as they are in the upper level, and waits for the ones that are settling.
    pub(super) fn settle_those<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> Result<()> {
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
        devices
            .settler
            .settle(&context, residencies, IoPriority::High)
    }
}
