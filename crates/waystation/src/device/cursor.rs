//! A cursor over the upper level as one snapshot sees it: device after device, a leaf of an index at a time.
//!
//! Values are read when the cursor comes to an entry. Versions newer than the snapshot are not shown, and of what
//! is shown nothing changes while the snapshot is held: later writes are newer, and a stay that is over keeps its
//! index and its records for it.

use super::index::{Entry, Index, Window};
use super::resident::{ReadPoint, Resident};
use super::table::Device;
use super::upper::Upper;
use crate::error::Result;
use crate::lsm::iter::InternalIterator;
use crate::sync::Arc;
use std::ops::Bound;
use waystation_format::key::{self, ValueKind};

/// See the module.
pub(crate) struct UpperCursor {
    upper: Arc<Upper>,
    point: ReadPoint,
    bound: Option<Box<[u8]>>,
    stay: Option<Arc<Resident>>,
    window: Window,
    at: usize,
    valid: bool,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Which way to look for the next entry to show.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    On,
    Back,
}

impl UpperCursor {
    pub(super) fn new(upper: Arc<Upper>, point: ReadPoint, bound: Option<&[u8]>) -> Self {
        Self {
            upper,
            point,
            bound: bound.map(Into::into),
            stay: None,
            window: Window::default(),
            at: 0,
            valid: false,
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Goes to the first entry of the first device from `bound` on that has any.
    fn enter_from(&mut self, bound: Bound<&[u8]>) -> Result<()> {
        let mut next = self.upper.table.first_from(bound);
        while let Some(device) = next {
            if self
                .bound
                .as_deref()
                .is_some_and(|end| device.prefix() >= end)
            {
                break;
            }
            if self.open(&device, |index, window| {
                index.load_from(b"", u64::MAX, window);
            }) {
                self.at = 0;
                return self.show(Way::On);
            }
            next = self
                .upper
                .table
                .first_from(Bound::Excluded(device.prefix()));
        }
        self.stay = None;
        Ok(())
    }

    /// Goes to the last entry of the last device before `bound` that has any.
    fn enter_until(&mut self, bound: Bound<&[u8]>) -> Result<()> {
        let mut next = self.upper.table.last_until(bound);
        while let Some(device) = next {
            if self.open(&device, Index::load_last) {
                self.at = self.window.len() - 1;
                return self.show(Way::Back);
            }
            next = self
                .upper
                .table
                .last_until(Bound::Excluded(device.prefix()));
        }
        self.stay = None;
        Ok(())
    }

    /// Makes the stay of `device` that the snapshot sees the current one and loads a window of it. Returns
    /// whether there is anything in the window.
    fn open(&mut self, device: &Device, load: impl FnOnce(&Index, &mut Window)) -> bool {
        self.stay = device.resident_at(self.point);
        self.window.clear();
        if let Some(stay) = &self.stay {
            stay.load(&mut self.window, load);
        }
        self.window.len() > 0
    }

    /// Shows the entry at the current place, or the next one that way that the snapshot sees.
    fn show(&mut self, way: Way) -> Result<()> {
        loop {
            while let Some((_, entry)) = self.window.get(self.at) {
                if entry.sequence <= self.point.snapshot {
                    let entry = *entry;
                    return self.fill(entry);
                }
                self.at = match way {
                    Way::On => self.at + 1,
                    Way::Back => self.at.wrapping_sub(1),
                };
            }
            let Some(stay) = self.stay.clone() else {
                return Ok(());
            };
            if !self.load_next(&stay, way) {
                let bound = Bound::Excluded(stay.prefix());
                return match way {
                    Way::On => self.enter_from(bound),
                    Way::Back => self.enter_until(bound),
                };
            }
        }
    }

    /// Loads the window behind, or before, the current one. Returns whether there is one.
    fn load_next(&mut self, stay: &Resident, way: Way) -> bool {
        let last = match way {
            Way::On => self.window.len().checked_sub(1),
            Way::Back => Some(0),
        };
        let Some((key, entry)) = last.and_then(|at| self.window.get(at)) else {
            return false;
        };
        let (key, sequence) = (key.to_vec(), entry.sequence);
        stay.load(&mut self.window, |index, window| match way {
            // No version has sequence number 0: what follows is the next lower version, or the next key.
            Way::On => index.load_from(&key, sequence - 1, window),
            Way::Back => index.load_before(&key, sequence, window),
        });
        self.at = match way {
            Way::On => 0,
            Way::Back => self.window.len().wrapping_sub(1),
        };
        self.window.len() > 0
    }

    /// Goes to the last entry before (`user`, `sequence`).
    fn seek_before(&mut self, user: &[u8], sequence: u64) -> Result<()> {
        let Some(prefix) = self.upper.table.extractor().prefix(user) else {
            return self.enter_until(Bound::Excluded(user));
        };
        let suffix = &user[prefix.len()..];
        let device = self.upper.table.get(prefix);
        let load = |index: &Index, window: &mut Window| index.load_before(suffix, sequence, window);
        if device.is_some_and(|device| self.open(&device, load)) {
            self.at = self.window.len() - 1;
            return self.show(Way::Back);
        }
        self.enter_until(Bound::Excluded(prefix))
    }

    fn fill(&mut self, entry: Entry) -> Result<()> {
        let (Some(stay), Some((suffix, _))) = (&self.stay, self.window.get(self.at)) else {
            return Ok(());
        };
        self.key.clear();
        self.key.extend_from_slice(stay.prefix());
        self.key.extend_from_slice(suffix);
        self.value.clear();
        let kind = match entry.value {
            Some(spot) => {
                self.value.resize(spot.length as usize, 0);
                let offset = spot.offset as usize;
                let log = &self.upper.log;
                log.read_back(spot.record_lsn, offset, &mut self.value)?;
                ValueKind::Value
            }
            None => ValueKind::Deletion,
        };
        let trailer = key::pack_trailer(entry.sequence, kind);
        self.key.extend_from_slice(&trailer.to_le_bytes());
        self.valid = true;
        Ok(())
    }
}

impl InternalIterator for UpperCursor {
    fn valid(&self) -> bool {
        self.valid
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.valid = false;
        self.enter_from(Bound::Unbounded)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.valid = false;
        match self.bound.clone() {
            Some(bound) => self.seek_before(&bound, u64::MAX),
            None => self.enter_until(Bound::Unbounded),
        }
    }

    fn seek(&mut self, internal_key: &[u8]) -> Result<()> {
        self.valid = false;
        let (user, sequence) = (key::user_key(internal_key), key::trailer(internal_key) >> 8);
        let Some(prefix) = self.upper.table.extractor().prefix(user) else {
            return self.enter_from(Bound::Included(user));
        };
        let suffix = &user[prefix.len()..];
        let device = self.upper.table.get(prefix);
        let load = |index: &Index, window: &mut Window| index.load_from(suffix, sequence, window);
        if device.is_some_and(|device| self.open(&device, load)) {
            self.at = 0;
            return self.show(Way::On);
        }
        self.enter_from(Bound::Excluded(prefix))
    }

    fn seek_for_prev(&mut self, internal_key: &[u8]) -> Result<()> {
        self.valid = false;
        let (user, sequence) = (key::user_key(internal_key), key::trailer(internal_key) >> 8);
        if let Some(bound) = self.bound.clone().filter(|bound| **bound <= *user) {
            return self.seek_before(&bound, u64::MAX);
        }
        // The last entry at or before this one is the last before the one that would follow it.
        match sequence.checked_sub(1) {
            Some(next) => self.seek_before(user, next),
            None => self.seek_before(&[user, &[0]].concat(), u64::MAX),
        }
    }

    fn next(&mut self) -> Result<()> {
        self.valid = false;
        self.at += 1;
        self.show(Way::On)
    }

    fn prev(&mut self) -> Result<()> {
        self.valid = false;
        self.at = self.at.wrapping_sub(1);
        self.show(Way::Back)
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn value(&self) -> &[u8] {
        &self.value
    }
}
