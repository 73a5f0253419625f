//! For tests: a cell in memory, and one that does something wrong once.

use super::{Carried, Edge, Occupancy, Result, Visitor, range_of_name};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// A cell's entries. Those that share them are the same cell, closed and opened again.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryEdge(pub(crate) Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>);

impl Edge for MemoryEdge {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.lock().unwrap().insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn scan(&self, from: &[u8], to: &[u8], each: Visitor<'_>) -> Result<()> {
        let entries = self.0.lock().unwrap();
        entries
            .range(from.to_vec()..to.to_vec())
            .for_each(|(key, value)| each(key, value));
        Ok(())
    }

    fn last(&self, from: &[u8], to: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let entries = self.0.lock().unwrap();
        let last = entries.range(from.to_vec()..to.to_vec()).next_back();
        Ok(last.map(|(key, value)| (key.clone(), value.clone())))
    }

    fn welcome(&self, _name: &[u8]) -> Result<()> {
        Ok(())
    }

    fn hand_off(&self, name: &[u8], target: &Self) -> Result<Carried> {
        let (from, to) = range_of_name(name);
        let mut carried = Carried::default();
        let mut moved = Vec::new();
        self.scan(&from, &to, &mut |key, value| {
            moved.push((key.to_vec(), value.to_vec()));
        })?;
        for (key, value) in moved {
            carried.add(&key, &value);
            target.put(&key, &value)?;
        }
        self.depart(name)?;
        Ok(carried)
    }

    fn depart(&self, name: &[u8]) -> Result<()> {
        let (from, to) = range_of_name(name);
        let mut entries = self.0.lock().unwrap();
        entries.retain(|key, _| *key < from || *key >= to);
        Ok(())
    }

    fn settle(&self, _names: &[Vec<u8>]) -> Result<bool> {
        Ok(false)
    }

    fn occupancy(&self) -> Result<Occupancy> {
        Ok(Occupancy::default())
    }

    fn close(self) -> Result<()> {
        Ok(())
    }
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A put is acknowledged and not made.
    LosesAPut,
    /// A put stores another value.
    AltersAPut,
    /// A put stores a reading more, which nobody sent.
    InventsAPut,
    /// A scan shows an entry twice.
    ShowsTwice,
    /// A hand-off does not take the first entry along.
    LosesInAHandOff,
    /// A hand-off leaves an entry where it was, too.
    KeepsAfterAHandOff,
    /// A departure deletes nothing.
    IgnoresADeparture,
    /// The last answers with the entry before it.
    AnswersOld,
}

/// A cell that does something wrong, the `at`-th time that it could, counted over all cells.
pub(crate) struct Faulty<E> {
    pub(crate) inner: E,
    pub(crate) fault: Fault,
    pub(crate) at: u64,
    pub(crate) count: Arc<AtomicU64>,
}

impl<E: Edge> Faulty<E> {
    fn is_time_for(&self, fault: Fault) -> bool {
        self.fault == fault && self.count.fetch_add(1, SeqCst) + 1 == self.at
    }

    fn first(&self, name: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (from, to) = range_of_name(name);
        let mut first = None;
        let mut keep = |key: &[u8], value: &[u8]| {
            first.get_or_insert_with(|| (key.to_vec(), value.to_vec()));
        };
        self.inner.scan(&from, &to, &mut keep).unwrap();
        first
    }
}

impl<E: Edge> Edge for Faulty<E> {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.is_time_for(Fault::LosesAPut) {
            return Ok(());
        }
        if self.is_time_for(Fault::AltersAPut) {
            return self.inner.put(key, &value[1..]);
        }
        if self.is_time_for(Fault::InventsAPut) {
            self.inner.put(&[key, b"7"].concat(), value)?;
        }
        self.inner.put(key, value)
    }

    fn scan(&self, from: &[u8], to: &[u8], each: Visitor<'_>) -> Result<()> {
        let mut again = None;
        self.inner.scan(from, to, &mut |key, value| {
            each(key, value);
            again = Some((key.to_vec(), value.to_vec()));
        })?;
        if let Some((key, value)) = again
            && self.fault == Fault::ShowsTwice
            && self.count.fetch_add(1, SeqCst) >= self.at
        {
            each(&key, &value);
        }
        Ok(())
    }

    fn last(&self, from: &[u8], to: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let last = self.inner.last(from, to)?;
        match last {
            Some((key, _)) if self.is_time_for(Fault::AnswersOld) => self.inner.last(from, &key),
            last => Ok(last),
        }
    }

    fn welcome(&self, name: &[u8]) -> Result<()> {
        self.inner.welcome(name)
    }

    fn hand_off(&self, name: &[u8], target: &Self) -> Result<Carried> {
        let first = self.first(name);
        let carried = self.inner.hand_off(name, &target.inner)?;
        let Some((key, value)) = first else {
            return Ok(carried);
        };
        if self.is_time_for(Fault::LosesInAHandOff) {
            // Whatever else the vehicle has is taken along.
            let mut rest = Vec::new();
            let (from, to) = range_of_name(name);
            target.inner.scan(&from, &to, &mut |other, value| {
                if other != key {
                    rest.push((other.to_vec(), value.to_vec()));
                }
            })?;
            target.inner.depart(name)?;
            for (key, value) in rest {
                target.inner.put(&key, &value)?;
            }
        } else if self.is_time_for(Fault::KeepsAfterAHandOff) {
            self.inner.welcome(name)?;
            self.inner.put(&key, &value)?;
        }
        Ok(carried)
    }

    fn depart(&self, name: &[u8]) -> Result<()> {
        if self.first(name).is_some() && self.is_time_for(Fault::IgnoresADeparture) {
            return Ok(());
        }
        self.inner.depart(name)
    }

    fn settle(&self, names: &[Vec<u8>]) -> Result<bool> {
        self.inner.settle(names)
    }

    fn occupancy(&self) -> Result<Occupancy> {
        self.inner.occupancy()
    }

    fn close(self) -> Result<()> {
        self.inner.close()
    }
}
