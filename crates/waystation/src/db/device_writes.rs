//! Writes in a directory with devices: [`crate::devices::writes`] says where their operations go.

use super::Core;
use super::disk::only_deletes;
use super::write_source::WriteSource;
use crate::devices::maintenance::Devices;
use crate::devices::writes::DeviceWrites;
use crate::error::Result;
use crate::log::{NewRecord, Rejection};
use crate::options::Durability;
use crate::read_state::apply::{apply_one, room_of};
use std::cell::RefCell;
use waystation_format::log::RecordKind;
use waystation_format::order::Order;

thread_local! {
    /// To be used again, so that a single put allocates nothing.
    static SCRATCH: RefCell<DeviceWrites> = const { RefCell::new(DeviceWrites::new()) };
}

impl Core {
    /// Writes a batch whose limits were checked, in a directory with devices.
    pub(super) fn write_to_devices(
        &self,
        devices: &Devices,
        changes: &impl WriteSource,
        durability: Durability,
    ) -> Result<()> {
        let mut writes = SCRATCH.take();
        let written = self.write_with(devices, changes, durability, &mut writes);
        if written.is_err() {
            // Devices that would have arrived with it have not.
            let unused = writes.unused();
            if !unused.is_empty() {
                self.log
                    .at_front(|_, _| devices.upper.table.forget(&unused));
            }
        }
        writes.clear();
        SCRATCH.set(writes);
        written
    }

    fn write_with(
        &self,
        devices: &Devices,
        changes: &impl WriteSource,
        durability: Durability,
        writes: &mut DeviceWrites,
    ) -> Result<()> {
        let payload = changes.payload();
        let record = NewRecord::new(RecordKind::Batch, payload, changes.count());
        let table = &devices.upper.table;
        self.throttle.admit_upper(payload.len(), &*self.storage);
        let logged = loop {
            let operations = changes.operations();
            let room = writes.find(devices, &*self.storage, operations, |operation| {
                room_of(operation, &Order::Bytewise)
            })?;
            if room > 0 {
                self.throttle
                    .admit(payload.len(), || self.fill(), &*self.storage);
            }
            let growth = self.growth(payload.len(), room);
            self.look_for_room(growth)?;
            let committed = self.commit_record(
                &record,
                |lsn, sequence| {
                    self.check_room(changes, growth)?;
                    if writes.has_range() {
                        table.check_ranges(changes.operations())?;
                    }
                    // Are the devices where they were? Then this is where the write begins.
                    if !writes.hold() {
                        return Err(Rejection::Moved);
                    }
                    let memtable = (room > 0)
                        .then(|| self.admit(room, lsn, sequence, || only_deletes(changes)))
                        .transpose()?;
                    writes.begin(table, lsn, sequence);
                    Ok(memtable)
                },
                |memtable, logged| {
                    let operations = changes.operations();
                    writes.apply(table, payload, operations, logged, |operation, sequence| {
                        let Some(memtable) = &memtable else {
                            unreachable!("room was asked for what goes to a memtable")
                        };
                        apply_one(&memtable.memory, operation, sequence);
                    });
                    if let Some(memtable) = &memtable {
                        self.note_deletions(&memtable.memory);
                    }
                },
            );
            match committed {
                Ok((logged, ())) => break logged,
                Err(rejection) => self.overcome(rejection)?,
            }
        };
        self.note_growth(devices, logged.end_lsn);
        self.make_durable(logged, durability)
    }
}
