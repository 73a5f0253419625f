//! The device table put back: from its checkpoint and the log behind it.
//!
//! The checkpoint may be younger than the records that are replayed, by any amount and for each device by another
//! one. So an event or a write that it covers already is recognised and left out; everything else happens again in
//! the order of the log. There are no snapshots yet: what departed or settled is dropped at once. What is told of
//! hand-offs is told absolutely (frozen, or not; a stub, or none), so that whatever the checkpoint knew already ends as
//! the log's last word has it.
//!
//! Where an [index snapshot](super::index_snapshot) shows the upper level as it was at one sequence number, the checkpoint is younger than
//! that, and what the log tells of devices begins to count behind it.

use super::checkpoint::{Directory, Saved};
use super::handoff::{Frozen, Occupied, Part};
use super::ledger::Stub;
use super::record::{Admitted, DeviceEvent, expiring};
use super::residency::{NEVER, Residency};
use super::table::{Departure, Device, DeviceTable};
use crate::sync::Arc;
use std::collections::HashMap;
use std::time::Duration;
use waystation_format::FormatError;
use waystation_format::batch::{BatchIter, Operation};

/// Where a replayed write belongs.
pub(crate) enum Route {
    /// It is in the tree, or hidden from every reader.
    Nowhere,
    /// Into the memtable, unless it was flushed.
    Memtable,
    /// Into the index of this residency.
    Residency(Arc<Residency>),
}

/// A device table on its way back.
pub(crate) struct DeviceReplay {
    pub(crate) table: DeviceTable,
    pub(crate) directory: Directory,
    /// The residencies that the checkpoint knows, by their devices' prefixes.
    known: HashMap<Vec<u8>, KnownResidency>,
    /// Devices of which a part was staged, by their stages.
    staged: HashMap<u64, Arc<Residency>>,
    /// Up to this sequence number an index snapshot has shown what is in the upper level, and the checkpoint what happened.
    shown_through: u64,
}

/// What the checkpoint knows of a residency.
#[derive(Debug, Clone, Copy)]
struct KnownResidency {
    first_sequence: u64,
    arrival: Duration,
    /// Of the device.
    tenure: u64,
    is_mixed: bool,
}

/// A residency as an index snapshot shows it.
pub(crate) struct Shown {
    /// The residency, with its index.
    pub(crate) residency: Arc<Residency>,
    /// The sequence number of its first write.
    pub(crate) first_sequence: u64,
    /// Its first record lies here or behind.
    pub(crate) first_lsn: u64,
    /// The sequence number from which on its writes go to the memtable.
    pub(crate) switch: Option<u64>,
    /// How many versions its index ought to have.
    pub(crate) versions: u64,
}

impl DeviceReplay {
    /// The table as the checkpoint has it.
    pub(crate) fn new(saved: Saved) -> Self {
        let Saved {
            directory,
            devices,
            ledger,
        } = saved;
        let table = DeviceTable::new(directory.extractor, directory.is_complete, ledger);
        let mut known = HashMap::new();
        for device in devices {
            let state = device.state();
            if let Some(frozen) = &state.frozen {
                table.ledger.sent(&frozen.destination, frozen.ticket);
            }
            if !state.is_empty() {
                table.restore(&device.prefix, state);
            }
            if let Some((first_sequence, arrival)) = device.residency {
                let residency = KnownResidency {
                    first_sequence,
                    arrival,
                    tenure: device.tenure,
                    is_mixed: device.is_mixed,
                };
                known.insert(device.prefix, residency);
            }
        }
        Self {
            table,
            directory,
            known,
            staged: HashMap::new(),
            shown_through: 0,
        }
    }

    /// When the residency came that begins at `first_sequence`, if the checkpoint knows it.
    pub(crate) fn known_arrival(&self, prefix: &[u8], first_sequence: u64) -> Option<Duration> {
        let known = self.known.get(prefix);
        known
            .filter(|residency| residency.first_sequence == first_sequence)
            .map(|residency| residency.arrival)
    }

    /// How many residencies the checkpoint knows with writes up to `sequence`.
    pub(crate) fn residencies_through(&self, sequence: u64) -> usize {
        let known = self.known.values();
        known
            .filter(|residency| residency.first_sequence <= sequence)
            .count()
    }

    /// Takes all residencies that the checkpoint knows with writes up to `through` as an index snapshot shows them. What the log tells up to
    /// there counts for memtables alone from now on: the checkpoint, which is younger, has told the rest.
    pub(crate) fn begin_with(&mut self, mut residencies: Vec<Shown>, through: u64) {
        // In the order in which they came.
        residencies.sort_unstable_by_key(|shown| shown.first_sequence);
        for shown in residencies {
            let residency = &shown.residency;
            let known = self.known.get(residency.prefix());
            if known.is_some_and(|residency| residency.is_mixed) {
                residency.set_mixed();
            }
            self.table.with_past(residency.prefix(), |state| {
                state.current = Some(Arc::clone(residency));
                state.tenure = known.map_or(0, |residency| residency.tenure);
            });
            self.table
                .begin(residency, shown.first_lsn, shown.first_sequence);
            if let Some(switch) = shown.switch {
                self.table.switch(residency, switch);
            }
        }
        self.shown_through = through;
    }

    /// Where the write of `key` at `sequence`, in the record at `lsn`, belongs.
    pub(crate) fn route(&self, key: &[u8], sequence: u64, lsn: u64) -> Route {
        let prefix = self.table.extractor().prefix(key);
        let Some(prefix) = prefix.filter(|_| sequence > self.directory.begun_after) else {
            return Route::Memtable;
        };
        let arrival = || self.arrival(prefix, sequence);
        let route = self
            .table
            .with_past(prefix, |state| match state.lower_since {
                _ if sequence < state.covering.newest() => Route::Nowhere,
                Some(switch) if sequence < switch => Route::Nowhere,
                Some(_) => Route::Memtable,
                None if sequence <= self.shown_through => Route::Nowhere,
                None => Route::Residency(Arc::clone(state.residency(prefix, arrival))),
            });
        if let Route::Residency(residency) = &route {
            self.table.begin(residency, lsn, sequence);
        }
        route
    }

    /// When the residency came that begins at `sequence`.
    fn arrival(&self, prefix: &[u8], sequence: u64) -> Duration {
        self.known_arrival(prefix, sequence)
            .unwrap_or(self.directory.clock)
    }

    /// Whether the event counts entries of indexes, which have to be filled up to there before.
    pub(crate) fn counts_records(payload: &[u8]) -> bool {
        matches!(DeviceEvent::decode(payload), Ok(DeviceEvent::Settled(_)))
    }

    /// The operations that the event of a record puts into the memtable: those of an admitted device that expire.
    pub(crate) fn expiring(payload: &[u8]) -> Result<Vec<(u64, Operation<'_>)>, FormatError> {
        match DeviceEvent::decode(payload)? {
            DeviceEvent::Admitted(admitted) if admitted.expires => {
                Ok(expiring(BatchIter::parse(admitted.operations)?).collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Lets the event of a record at `lsn` happen again. `dig` digs the grave of a device, as its keys begin, that departs
    /// and of which the tree may hold something.
    pub(crate) fn event(
        &mut self,
        payload: &[u8],
        sequence: u64,
        lsn: u64,
        mut dig: impl FnMut(&[u8]),
    ) -> Result<(), FormatError> {
        let event = DeviceEvent::decode(payload)?;
        if sequence <= self.shown_through {
            return Ok(());
        }
        match event {
            DeviceEvent::Departed(prefix) => self.depart(prefix, sequence, &mut dig),
            DeviceEvent::Switched(prefixes) => {
                for prefix in prefixes {
                    if let Some(residency) = self.current(prefix) {
                        self.table.switch(&residency, sequence);
                    }
                }
            }
            DeviceEvent::Settled(prefixes) => {
                for prefix in prefixes {
                    if let Some(residency) = self.current(prefix).filter(|it| it.switch() != NEVER)
                    {
                        self.table.settled(&residency, sequence);
                    }
                }
            }
            DeviceEvent::Frozen {
                prefix,
                survives_power_loss,
                destination,
            } => {
                let frozen = Frozen {
                    ticket: sequence,
                    destination: destination.into(),
                    survives_power_loss,
                    digest: None,
                };
                // One that is not there was handed on, as the checkpoint knows.
                self.table.freeze(prefix, frozen);
            }
            DeviceEvent::HandedOn {
                prefix,
                ticket,
                destination,
            } => {
                self.table.thaw(prefix, ticket, sequence);
                self.depart(prefix, sequence, &mut dig);
                let destination = destination.into();
                let stub = Stub {
                    ticket,
                    destination,
                };
                self.table.ledger.leave_stub(prefix, sequence, stub);
            }
            DeviceEvent::Thawed { prefix, ticket } => {
                self.table.thaw(prefix, ticket, sequence);
            }
            DeviceEvent::Staged {
                stage,
                prefix,
                operations,
            } => {
                let stage = if stage == 0 { sequence } else { stage };
                let part = Part::of(payload, operations, lsn);
                self.stage(stage, prefix, &part, lsn, sequence)?;
            }
            DeviceEvent::Admitted(admitted) => self.admit(&admitted, payload, sequence, lsn)?,
            DeviceEvent::Refused(ticket) => self.table.ledger.refuse(&ticket),
            DeviceEvent::Lifted(prefix) => {
                self.table.ledger.lift_stub(prefix);
            }
        }
        let reaped = self.table.reap(sequence, usize::MAX);
        self.table.forget(&reaped.empty);
        Ok(())
    }

    /// A part of a device arrived from another engine, which is not admitted yet.
    fn stage(
        &mut self,
        stage: u64,
        prefix: &[u8],
        part: &Part<'_>,
        lsn: u64,
        sequence: u64,
    ) -> Result<(), FormatError> {
        let arrival = self.arrival(prefix, sequence);
        let staged = self.staged.entry(stage);
        let residency = staged.or_insert_with(|| Arc::new(Residency::new(prefix, arrival)));
        self.table.begin_staged(residency, lsn, sequence);
        self.table.fill(residency, part, sequence)
    }

    /// Lets a device depart again, unless the checkpoint knows it.
    fn depart(&self, prefix: &[u8], sequence: u64, dig: &mut impl FnMut(&[u8])) {
        let device = self.table.get(prefix);
        match device.filter(|device| is_known(device, sequence)) {
            Some(device) => device.with_state(|state| (state.frozen, state.tenure) = (None, 0)),
            None => {
                if self.table.depart(prefix, sequence) == Departure::FromTree {
                    dig(prefix);
                }
            }
        }
    }

    /// Admits a device again. Its data is left out if it is in the tree, or hidden from every reader.
    fn admit(
        &mut self,
        admitted: &Admitted<'_>,
        payload: &[u8],
        sequence: u64,
        lsn: u64,
    ) -> Result<(), FormatError> {
        let prefix = admitted.prefix;
        let staged = self.staged.remove(&admitted.stage);
        let device = self.table.get(prefix);
        if let Some(device) = device.filter(|device| is_known(device, sequence)) {
            if let Some(residency) = staged {
                drop(self.table.abandon(&residency));
            }
            device.with_state(|state| state.tenure = admitted.ticket.next_tenure());
            self.table.note_admitted(admitted);
            return Ok(());
        }
        let begin = || Arc::new(Residency::new(prefix, self.arrival(prefix, sequence)));
        let residency = staged.unwrap_or_else(begin);
        self.table.begin_staged(&residency, lsn, sequence);
        let part = Part::of(payload, admitted.operations, lsn);
        self.table.fill(&residency, &part, sequence)?;
        let published = self.table.admit(admitted, &residency, sequence);
        published.map_err(|Occupied| FormatError::Malformed {
            offset: 0,
            reason: "a device was admitted where it was already",
        })
    }

    /// Gives up what was staged and never admitted. Every index is filled.
    pub(crate) fn finish(&mut self) {
        for (_, residency) in self.staged.drain() {
            drop(self.table.abandon(&residency));
        }
        self.table.count_index_bytes();
    }

    /// The residencies that were about to settle.
    pub(crate) fn pending(&self) -> Vec<Arc<Residency>> {
        let all = self.table.all();
        let pending = all.iter().filter_map(|device| {
            device.with_state(|state| {
                state
                    .current
                    .clone()
                    .filter(|_| state.lower_since.is_some())
            })
        });
        pending.collect()
    }

    fn current(&self, prefix: &[u8]) -> Option<Arc<Residency>> {
        self.table
            .get(prefix)?
            .with_state(|state| state.current.clone())
    }
}

/// Whether what happened to the device at `sequence` is in the checkpoint: it departed or settled later.
fn is_known(device: &Device, sequence: u64) -> bool {
    device.with_state(|state| {
        state.covering.newest() >= sequence
            || state.lower_since.is_some_and(|switch| sequence < switch)
    })
}
