//! The device table put back: from its checkpoint and the log behind it.
//!
//! The checkpoint may be younger than the records that are replayed, by any amount and for each device by another
//! one. So an event or a write that it covers already is recognised and left out; everything else happens again in
//! the order of the log. There are no snapshots yet: what departed or settled is dropped at once.

use super::checkpoint::{Directory, SavedDevice};
use super::record::DeviceEvent;
use super::resident::{NEVER, Resident};
use super::table::DeviceTable;
use crate::sync::Arc;
use std::collections::HashMap;
use std::time::Duration;
use waystation_format::FormatError;

/// Where a replayed write belongs.
pub(crate) enum Route {
    /// It is in the tree, or hidden from everybody.
    Nowhere,
    /// Into the memtable, unless it was flushed.
    Memtable,
    /// Into the index of this stay.
    Stay(Arc<Resident>),
}

/// A device table on its way back.
pub(crate) struct DeviceReplay {
    pub(crate) table: DeviceTable,
    pub(crate) directory: Directory,
    /// First sequence number and arrival of the stays that the checkpoint knows.
    arrivals: HashMap<Vec<u8>, (u64, Duration)>,
}

impl DeviceReplay {
    /// The table as the checkpoint has it.
    pub(crate) fn new(directory: Directory, devices: Vec<SavedDevice>) -> Self {
        let table = DeviceTable::new(directory.extractor, directory.is_complete);
        let mut arrivals = HashMap::new();
        for device in devices {
            let state = device.state();
            if !state.is_empty() {
                table.restore(&device.prefix, state);
            }
            if let Some(stay) = device.stay {
                arrivals.insert(device.prefix, stay);
            }
        }
        Self {
            table,
            directory,
            arrivals,
        }
    }

    /// Where the write of `key` at `sequence`, in the record at `lsn`, belongs.
    pub(crate) fn route(&self, key: &[u8], sequence: u64, lsn: u64) -> Route {
        let prefix = self.table.extractor().prefix(key);
        let Some(prefix) = prefix.filter(|_| sequence > self.directory.begun_after) else {
            return Route::Memtable;
        };
        if let Some(device) = self.table.get(prefix) {
            let (floor, lower) = device.with_state(|it| (it.floors.newest(), it.lower_since));
            match lower {
                _ if sequence < floor => return Route::Nowhere,
                Some(switch) if sequence < switch => return Route::Nowhere,
                Some(_) => return Route::Memtable,
                None => {}
            }
        }
        let saved = self.arrivals.get(prefix);
        let arrival = saved
            .filter(|(first, _)| *first == sequence)
            .map_or(self.directory.clock, |(_, arrival)| *arrival);
        match self.table.target(prefix, || arrival).resident {
            Some(stay) => {
                self.table.begin(&stay, lsn, sequence);
                Route::Stay(stay)
            }
            None => Route::Memtable,
        }
    }

    /// Lets the event of a record happen again.
    pub(crate) fn event(&self, payload: &[u8], sequence: u64) -> Result<(), FormatError> {
        match DeviceEvent::decode(payload)? {
            DeviceEvent::Departed(prefix) => {
                let is_known = self.table.get(prefix).is_some_and(|device| {
                    device.with_state(|state| {
                        state.floors.newest() >= sequence
                            || state.lower_since.is_some_and(|switch| sequence < switch)
                    })
                });
                if !is_known {
                    self.table.depart(prefix, sequence);
                }
            }
            DeviceEvent::Switched(prefixes) => {
                for prefix in prefixes {
                    if let Some(stay) = self.current(prefix) {
                        self.table.switch(&stay, sequence);
                    }
                }
            }
            DeviceEvent::Settled(prefixes) => {
                for prefix in prefixes {
                    if let Some(stay) = self.current(prefix).filter(|it| it.switch() != NEVER) {
                        self.table.settled(&stay, sequence);
                    }
                }
            }
        }
        let reaped = self.table.reap(sequence);
        self.table.forget(&reaped.empty);
        Ok(())
    }

    /// The stays that were about to settle.
    pub(crate) fn pending(&self) -> Vec<Arc<Resident>> {
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

    fn current(&self, prefix: &[u8]) -> Option<Arc<Resident>> {
        self.table
            .get(prefix)?
            .with_state(|state| state.current.clone())
    }
}
