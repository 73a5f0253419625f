//! Device writes: which operations of a write go to the upper level, and which to the memtable.
//!
//! Devices are looked up before the write has its place in the log; the commit, whose place is given in the order of the
//! log, goes through only if none of them has moved since. From then on the sequence number decides: a residency that switches
//! later has a later switch. An operation of the upper level costs one entry in its residency's index; the record in the log is
//! the only copy of its value.

use super::index::{Entry, Spot};
use super::maintenance::Devices;
use super::residency::Residency;
use super::table::{Device, DeviceTable, Target};
use crate::error::{Error, Result};
use crate::log::Logged;
use crate::storage::Storage;
use crate::sync::Arc;
use waystation_format::batch::{Operation, Time};

/// Where the operations of one write go. To be used again, so that a single put allocates nothing.
#[derive(Default)]
pub(crate) struct DeviceWrites {
    runs: Vec<Run>,
}

/// Where some operations of a write, one after the other, go.
struct Run {
    operations: u64,
    /// The length of their device's prefix.
    prefix_bytes: usize,
    /// `None`: they belong to no device.
    target: Option<Target>,
    /// Whether one of them deletes a range.
    has_range: bool,
}

impl Run {
    fn residency(&self) -> Option<&Arc<Residency>> {
        self.target.as_ref()?.residency.as_ref()
    }
}

impl DeviceWrites {
    /// None.
    pub(crate) const fn new() -> Self {
        Self { runs: Vec::new() }
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
    }

    /// Looks the devices of all `operations` up. Returns the bytes of memtable they need, as `room_of` says.
    #[inline]
    pub(crate) fn find<'o>(
        &mut self,
        devices: &Devices,
        storage: &dyn Storage,
        operations: impl Iterator<Item = Operation<'o>>,
        room_of: impl Fn(&Operation<'_>) -> usize,
    ) -> Result<usize> {
        self.runs.clear();
        let table = &devices.upper.table;
        let mut room = 0;
        let mut last: Option<&[u8]> = None;
        for operation in operations {
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
            let is_same = !self.runs.is_empty() && prefix == last;
            if !is_same {
                let find = |prefix| {
                    let target = table.target(prefix, || devices.now(storage));
                    target.map_err(|barred| table.barred_error(prefix, &barred))
                };
                self.runs.push(Run {
                    operations: 0,
                    prefix_bytes: prefix.map_or(0, <[u8]>::len),
                    target: prefix.map(find).transpose()?,
                    has_range: false,
                });
                last = prefix;
            }
            if let Some(run) = self.runs.last_mut() {
                run.operations += 1;
                run.has_range |= operation.range_end.is_some();
                if run.residency().is_none() {
                    room += room_of(&operation);
                }
            }
        }
        if devices.notes_writes() {
            let now = devices.now(storage);
            for residency in self.runs.iter().filter_map(Run::residency) {
                residency.note_write(now);
            }
        }
        Ok(room)
    }

    /// Whether an operation deletes a range.
    #[inline]
    pub(crate) fn has_range(&self) -> bool {
        self.runs.iter().any(|run| run.has_range)
    }

    /// Whether the devices are where they were. Only the front's lock keeps the answer true.
    #[inline]
    pub(crate) fn hold(&self) -> bool {
        let targets = self.runs.iter().filter_map(|run| run.target.as_ref());
        targets.into_iter().all(Target::holds)
    }

    /// The write begins at `lsn` or later, with `sequence`. Under the front's lock.
    #[inline]
    pub(crate) fn begin(&self, table: &DeviceTable, lsn: u64, sequence: u64) {
        let mut first = sequence;
        for run in &self.runs {
            if let Some(residency) = run.residency() {
                table.begin(residency, lsn, first);
            }
            first += run.operations;
        }
    }

    /// Puts those of `operations`, which are part of `payload`, that go to the upper level into their indexes, and calls
    /// `lower` with the others and their sequence numbers.
    #[inline]
    pub(crate) fn apply<'o>(
        &self,
        table: &DeviceTable,
        payload: &[u8],
        mut operations: impl Iterator<Item = Operation<'o>>,
        logged: Logged,
        mut lower: impl FnMut(&Operation<'_>, u64),
    ) {
        let mut sequence = logged.first_sequence;
        for run in &self.runs {
            let some = operations.by_ref().take(run.operations as usize);
            for operation in some {
                match run.residency() {
                    Some(residency) => {
                        let value = operation.value;
                        let value = value.map(|it| Spot::of(it, payload, logged.record_lsn));
                        let key = &operation.key[run.prefix_bytes..];
                        table.note_growth(residency.insert(key, &Entry { sequence, value }));
                    }
                    None => lower(&operation, sequence),
                }
                sequence += 1;
            }
        }
    }

    /// Devices that would have arrived with the write and have not.
    pub(crate) fn unused(&self) -> Vec<Arc<Device>> {
        DeviceTable::unused(self.runs.iter().filter_map(|run| run.target.as_ref()))
    }
}
