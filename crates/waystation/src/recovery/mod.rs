//! Recovery: what the log holds back into memory, its records into memtables and into the indexes of devices, as they were
//! before. [`batches`] does it beside the reading.

mod batches;

use crate::devices::index::{Entry, Spot};
use crate::devices::index_snapshot::Spared;
use crate::devices::inserters::Versions;
use crate::devices::replay::{DeviceReplay, Route};
use crate::directory::CHECKPOINT_NAME;
use crate::error::{Error, Result};
use crate::log::{Inserters, Needs, Record};
use crate::lsm::memtable::Regions;
use crate::read_state::apply::{apply_one, room_of};
use crate::read_state::{LoggedMemTable, MemtablePair};
use crate::sync::Arc;
use batches::Batches;
use std::path::Path;
use waystation_format::FormatError;
use waystation_format::batch::{BatchIter, Operation, Time, prefix_end};
use waystation_format::log::RecordKind;
use waystation_format::order::Order;

/// Puts the log's records back into memtables.
pub(crate) struct Replay {
    memtable_bytes: usize,
    regions: Arc<Regions>,
    flushed_sequence: u64,
    /// Whether the log belongs to the tables.
    knows_log: bool,
    pub(crate) full: Vec<LoggedMemTable>,
    pub(crate) active: LoggedMemTable,
    pub(crate) reserved: usize,
    inserters: Inserters<Batches>,
    /// Fills the indexes of residencies.
    indexers: Inserters<Versions>,
    pub(crate) devices: Option<DeviceReplay>,
    /// What an index snapshot spares.
    pub(crate) spared: Spared,
    /// The latest time that the log says was reached.
    pub(crate) time: u64,
    order: Order,
}

impl Replay {
    pub(crate) fn new(
        (memtable_bytes, regions): (usize, &Arc<Regions>),
        flushed_sequence: u64,
        knows_log: bool,
        devices: Option<DeviceReplay>,
        spared: Spared,
        order: &Order,
    ) -> Self {
        Self {
            memtable_bytes,
            flushed_sequence,
            knows_log,
            full: Vec::new(),
            active: LoggedMemTable {
                memory: MemtablePair::new(memtable_bytes, regions, order),
                start_lsn: 0,
                start_sequence: flushed_sequence + 1,
            },
            regions: Arc::clone(regions),
            reserved: 0,
            inserters: Inserters::new(),
            indexers: Inserters::new(),
            devices,
            spared,
            time: 0,
            order: order.clone(),
        }
    }

    /// What of the log there has to be, and what of that has to be read.
    pub(crate) fn needs(&self) -> Needs {
        let released = self.devices.as_ref().map(|it| it.directory.released);
        let released = released.unwrap_or(self.flushed_sequence);
        Needs {
            read_after: released.max(self.spared.needless),
            through: self.spared.through,
            ..Needs::after(released)
        }
    }

    /// Takes one record, unless it is in tables already.
    pub(crate) fn record(&mut self, dir: &Path, record: &Record<'_>) -> Result<()> {
        let header = &record.header;
        if header.last_sequence() <= self.needs().read_after {
            return Ok(());
        }
        self.check_belongs(dir)?;
        if header.kind == RecordKind::Gap {
            return Ok(());
        }
        let damaged = |what: &str, error: &FormatError| {
            let reason = format!(
                "the log's record at position {} is no {what}: {error}",
                record.lsn
            );
            Error::corruption(dir, 0, reason)
        };
        if header.kind == RecordKind::Devices {
            if DeviceReplay::counts_records(record.payload) {
                self.indexers.catch_up();
            }
            let sequence = header.first_sequence;
            let expiring = DeviceReplay::expiring(record.payload)
                .map_err(|error| damaged("event of a device", &error))?;
            let expiring = expiring.into_iter().map(|(at, it)| (sequence + at, it));
            let expiring = expiring.filter(|(at, _)| *at > self.flushed_sequence);
            self.apply_lower(expiring.collect(), record.lsn, sequence);
            let graves = &self.active.memory.graves;
            let dig = |prefix: &[u8]| {
                graves.delete_range(prefix, prefix_end(prefix).as_deref(), sequence);
            };
            return match &mut self.devices {
                Some(devices) => devices
                    .event(record.payload, sequence, record.lsn, dig)
                    .map_err(|error| damaged("event of a device", &error)),
                None => Err(Error::corruption(
                    dir.join(CHECKPOINT_NAME),
                    0,
                    "it is missing, although the log tells of devices",
                )),
            };
        }
        let (first_sequence, count) = (header.first_sequence, header.operations);
        let operations = BatchIter::parse_headless(first_sequence, count, record.payload)
            .map_err(|error| damaged("batch", &error))?;
        for operation in operations.clone() {
            match operation.time {
                Some(Time::Reached(time)) => self.time = self.time.max(time),
                Some(Time::Lifetime(_)) => {
                    let reason = format!(
                        "the log's record at position {} puts a key with a time to live, but no date",
                        record.lsn
                    );
                    return Err(Error::corruption(dir, 0, reason));
                }
                Some(Time::Expiry(_)) | None => {}
            }
        }
        if self.devices.is_some() {
            return self.take_routed(record, operations);
        }
        let room = operations
            .map(|operation| room_of(&operation, &self.order))
            .sum();
        self.make_room(room, record.lsn, first_sequence);
        self.inserters.insert(&self.active.memory, record)
    }

    /// Takes a record's operations to the levels they belong to.
    fn take_routed(&mut self, record: &Record<'_>, operations: BatchIter<'_>) -> Result<()> {
        let Some(devices) = &self.devices else {
            return Ok(());
        };
        let first_sequence = record.header.first_sequence;
        let mut lower = Vec::new();
        for (sequence, operation) in (first_sequence..).zip(operations) {
            if operation.range_end.is_some() || operation.time.is_some() {
                // It goes to no device, whatever its first key.
                lower.extend((sequence > self.flushed_sequence).then_some((sequence, operation)));
                continue;
            }
            match devices.route(operation.key, sequence, record.lsn) {
                Route::Residency(residency) => {
                    let value = operation.value;
                    let value = value.map(|it| Spot::of(it, record.payload, record.lsn));
                    let key = &operation.key[residency.prefix().len()..];
                    self.indexers
                        .insert(residency, key, Entry { sequence, value })?;
                }
                Route::Memtable if sequence > self.flushed_sequence => {
                    lower.push((sequence, operation));
                }
                Route::Memtable | Route::Nowhere => {}
            }
        }
        self.apply_lower(lower, record.lsn, first_sequence);
        Ok(())
    }

    /// Puts operations of the record at `lsn`, which begins with `sequence`, into the memtable.
    fn apply_lower(&mut self, lower: Vec<(u64, Operation<'_>)>, lsn: u64, sequence: u64) {
        if lower.is_empty() {
            return;
        }
        let room = lower
            .iter()
            .map(|(_, operation)| room_of(operation, &self.order))
            .sum();
        self.make_room(room, lsn, sequence);
        for (sequence, operation) in lower {
            apply_one(&self.active.memory, &operation, sequence);
        }
    }

    /// Refuses a log that is not that of the tables.
    fn check_belongs(&self, dir: &Path) -> Result<()> {
        if !self.knows_log {
            let reason = "its log holds writes that belong to other tables than those in it; remove the files \
                          named journal* and JOURNAL to open it without them";
            return Err(Error::Incompatible {
                path: dir.to_owned(),
                reason: reason.to_owned(),
            });
        }
        Ok(())
    }

    fn make_room(&mut self, room: usize, lsn: u64, sequence: u64) {
        if !self.active.memory.has_room(self.reserved, room) {
            let fresh = LoggedMemTable {
                memory: MemtablePair::new(
                    self.memtable_bytes.max(room),
                    &self.regions,
                    &self.order,
                ),
                start_lsn: lsn,
                start_sequence: sequence,
            };
            self.full.push(std::mem::replace(&mut self.active, fresh));
            self.reserved = 0;
        }
        self.reserved += room;
    }

    /// Waits until every record that was taken is in its memtable or index.
    pub(crate) fn finish(&mut self) {
        self.inserters.finish();
        self.indexers.finish();
        if let Some(devices) = &mut self.devices {
            devices.finish();
        }
    }
}
