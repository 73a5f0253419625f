//! Routes: which operations of a write go to the upper level, and which to the memtable.
//!
//! Devices are looked up before the write has its place in the log; the reservation, which is made in the order of
//! the log, goes through only if none of them has moved since. From then on the sequence number decides: a stay
//! that switches later has a later switch. An operation of the upper level costs one entry in its stay's index; the
//! record in the log is the only copy of its value.

use super::Core;
use super::changes::Changes;
use super::commit::{Logged, NewRecord, Rejection};
use super::devices::Devices;
use super::options::Durability;
use super::pipeline::{apply_one, room_of};
use super::room::only_deletes;
use super::view::LoggedMemTable;
use crate::device::index::{Entry, Spot};
use crate::device::table::{DeviceTable, Target};
use crate::error::{Error, Result};
use crate::sync::Arc;
use std::cell::RefCell;
use waystation_format::batch::{Operation, Time};
use waystation_format::log::{RECORD_HEADER_BYTES, RecordKind};
use waystation_format::order::Order;

thread_local! {
    /// Routes to be used again, so that a single put allocates nothing.
    static SCRATCH: RefCell<Vec<Route>> = const { RefCell::new(Vec::new()) };
}

/// Where some operations of a batch, one after the other, go.
struct Route {
    operations: u64,
    /// The length of their device's prefix.
    prefix_bytes: usize,
    /// `None`: they belong to no device.
    target: Option<Target>,
    /// Whether one of them deletes a range.
    has_range: bool,
}

impl Route {
    fn stay(&self) -> Option<&Arc<crate::device::resident::Resident>> {
        self.target.as_ref()?.resident.as_ref()
    }
}

impl Core {
    /// Writes a batch whose limits were checked, in a directory with devices.
    pub(super) fn write_routed(
        &self,
        devices: &Devices,
        changes: &impl Changes,
        durability: Durability,
    ) -> Result<()> {
        let mut routes = SCRATCH.take();
        let written = self.write_on(devices, changes, durability, &mut routes);
        if written.is_err() {
            // Devices that would have arrived with it have not.
            let table = &devices.upper.table;
            let unused =
                DeviceTable::unused(routes.iter().filter_map(|route| route.target.as_ref()));
            if !unused.is_empty() {
                self.log.at_front(|_, _| table.forget(&unused));
            }
        }
        routes.clear();
        SCRATCH.set(routes);
        written
    }

    fn write_on(
        &self,
        devices: &Devices,
        changes: &impl Changes,
        durability: Durability,
        routes: &mut Vec<Route>,
    ) -> Result<()> {
        let payload = changes.payload();
        let record = NewRecord::new(RecordKind::Batch, payload, changes.count());
        let only_deletes = || only_deletes(changes);
        self.pace.admit_upper(payload.len(), &*self.storage);
        let logged = loop {
            let room = self.find_routes(devices, changes, routes)?;
            if room > 0 {
                self.pace
                    .admit(payload.len(), self.active_fill(), &*self.storage);
            }
            let growth = self.growth(payload.len(), room);
            self.look_for_room(growth)?;
            let committed = self.commit_record(
                &record,
                |lsn, sequence| {
                    self.check_room(changes, growth)?;
                    if routes.iter().any(|route| route.has_range) {
                        devices.check_ranges(changes)?;
                    }
                    self.admit_routed(devices, routes, (room, &only_deletes), lsn, sequence)
                },
                |memtable, logged| {
                    apply_routed(devices, changes, routes, memtable.as_deref(), logged);
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

    /// Looks all operations' devices up. Returns the bytes of memtable they need.
    fn find_routes(
        &self,
        devices: &Devices,
        changes: &impl Changes,
        routes: &mut Vec<Route>,
    ) -> Result<usize> {
        routes.clear();
        let table = &devices.upper.table;
        let mut room = 0;
        let mut last: Option<&[u8]> = None;
        for operation in changes.operations() {
            // A range belongs to no device, whatever its first key; nor does the time.
            let prefix = match (operation.range_end, operation.time) {
                (Some(_), _) | (None, Some(Time::Reached(_))) => None,
                (None, _) => table.extractor().prefix(operation.key),
            };
            if operation.time.is_some() && prefix.is_some() {
                return Err(Error::InvalidArgument(
                    "the key belongs to a device; its keys live as long as it stays, and have no time to live of their \
                     own"
                    .into(),
                ));
            }
            let is_same = !routes.is_empty() && prefix == last;
            if !is_same {
                let find = |prefix| {
                    let target = table.target(prefix, || devices.now(&*self.storage));
                    target.map_err(|barred| devices.barred_error(prefix, &barred))
                };
                routes.push(Route {
                    operations: 0,
                    prefix_bytes: prefix.map_or(0, <[u8]>::len),
                    target: prefix.map(find).transpose()?,
                    has_range: false,
                });
                last = prefix;
            }
            if let Some(route) = routes.last_mut() {
                route.operations += 1;
                route.has_range |= operation.range_end.is_some();
                if route.stay().is_none() {
                    room += room_of(&operation, &Order::Bytewise);
                }
            }
        }
        if devices.notes_writes() {
            let now = devices.now(&*self.storage);
            for stay in routes.iter().filter_map(Route::stay) {
                stay.note_write(now);
            }
        }
        Ok(room)
    }

    /// Under the front's lock: are the devices where they were? Then this is where the write begins.
    fn admit_routed(
        &self,
        devices: &Devices,
        routes: &[Route],
        (room, only_deletes): (usize, &impl Fn() -> bool),
        lsn: u64,
        sequence: u64,
    ) -> Result<Option<Arc<LoggedMemTable>>, Rejection> {
        let targets = routes.iter().filter_map(|route| route.target.as_ref());
        if !targets.into_iter().all(Target::holds) {
            return Err(Rejection::Moved);
        }
        let memtable = if room > 0 {
            Some(self.admit(room, lsn, sequence, only_deletes)?)
        } else {
            None
        };
        let mut first = sequence;
        for route in routes {
            if let Some(stay) = route.stay() {
                devices.upper.table.begin(stay, lsn, first);
            }
            first += route.operations;
        }
        Ok(memtable)
    }
}

/// Puts `changes` where their `routes` lead: to indexes of devices, and to `memtable`.
fn apply_routed(
    devices: &Devices,
    changes: &impl Changes,
    routes: &[Route],
    memtable: Option<&LoggedMemTable>,
    logged: Logged,
) {
    let payload = changes.payload();
    let mut sequence = logged.first_sequence;
    let mut operations = changes.operations();
    for route in routes {
        let some = operations.by_ref().take(route.operations as usize);
        for operation in some {
            match (route.stay(), memtable) {
                (Some(stay), _) => {
                    let entry = Entry {
                        sequence,
                        value: spot_of(&operation, payload, logged.record_lsn),
                    };
                    let key = &operation.key[route.prefix_bytes..];
                    devices.upper.table.note_growth(stay.insert(key, &entry));
                }
                (None, Some(memtable)) => apply_one(&memtable.memory, &operation, sequence),
                (None, None) => unreachable!("room was asked for what goes to a memtable"),
            }
            sequence += 1;
        }
    }
}

/// Where the value of `operation` lies in the record at `record_lsn`, whose payload it is a part of.
pub(super) fn spot_of(operation: &Operation<'_>, payload: &[u8], record_lsn: u64) -> Option<Spot> {
    let value = operation.value?;
    let offset = value.as_ptr().addr() - payload.as_ptr().addr();
    Some(Spot {
        record_lsn,
        offset: (RECORD_HEADER_BYTES + offset) as u32,
        length: value.len() as u32,
    })
}
