//! A cursor over the upper level as one snapshot sees it: device after device, a leaf of an index at a time.
//!
//! The first value after a seek is read by itself. A cursor that goes on has the following ones read ahead, in the order of
//! the log: neighbouring keys lie far apart there, and what lies near together is read at once. Versions newer than the snapshot are not shown, and of what
//! is shown nothing changes while the snapshot is held: later writes are newer, and a residency that is over keeps its
//! index and its records for it.

use super::index::{Entry, Leaves, Spot, Window};
use super::residency::{ReadPoint, Residency};
use super::table::Device;
use super::upper::Upper;
use crate::error::Result;
use crate::log::Pass;
use crate::sst::InternalIterator;
use crate::sync::Arc;
use std::ops::{Bound, Range};
use waystation_format::key::{self, ValueKind};

/// Values of this many bytes are read ahead at most (one value at least): first so many, then so many.
const AHEAD_BYTES: [usize; 2] = [64 << 10, 256 << 10];
/// So many entries are copied out of an index to be read ahead.
const AHEAD_ENTRIES: usize = 512;

/// See the module.
pub(crate) struct UpperCursor {
    upper: Arc<Upper>,
    point: ReadPoint,
    bound: Option<Box<[u8]>>,
    residency: Option<Arc<Residency>>,
    window: Window,
    at: usize,
    valid: bool,
    key: Vec<u8>,
    ahead: Ahead,
    /// Where in `ahead` the value is.
    value: Range<usize>,
}

/// Values that were read.
#[derive(Default)]
struct Ahead {
    /// How often values were read since the last seek.
    reads: usize,
    /// Of these entries of the window.
    entries: Range<usize>,
    /// Where each of their values is.
    places: Vec<Range<usize>>,
    bytes: Vec<u8>,
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
            residency: None,
            window: Window::default(),
            at: 0,
            valid: false,
            key: Vec::new(),
            ahead: Ahead::default(),
            value: 0..0,
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
        self.residency = None;
        Ok(())
    }

    /// Goes to the last entry of the last device before `bound` that has any.
    fn enter_until(&mut self, bound: Bound<&[u8]>) -> Result<()> {
        let mut next = self.upper.table.last_until(bound);
        while let Some(device) = next {
            if self.open(&device, Leaves::load_last) {
                self.at = self.window.len() - 1;
                return self.show(Way::Back);
            }
            next = self
                .upper
                .table
                .last_until(Bound::Excluded(device.prefix()));
        }
        self.residency = None;
        Ok(())
    }

    /// Makes the residency of `device` that the snapshot sees the current one and loads a window of it. Returns
    /// whether there is anything in the window.
    fn open(&mut self, device: &Device, load: impl FnOnce(&Leaves, &mut Window)) -> bool {
        self.residency = device.residency_at(self.point);
        self.window.clear();
        self.ahead.entries = 0..0;
        if let Some(residency) = &self.residency {
            residency.load(&mut self.window, load);
        }
        self.window.len() > 0
    }

    /// Shows the entry at the current place, or the next one that way that the snapshot sees.
    fn show(&mut self, way: Way) -> Result<()> {
        loop {
            while let Some((_, entry)) = self.window.get(self.at) {
                if entry.sequence <= self.point.snapshot {
                    let entry = *entry;
                    return self.fill(entry, way);
                }
                self.at = match way {
                    Way::On => self.at + 1,
                    Way::Back => self.at.wrapping_sub(1),
                };
            }
            let Some(residency) = self.residency.clone() else {
                return Ok(());
            };
            if !self.load_next(&residency, way) {
                let bound = Bound::Excluded(residency.prefix());
                return match way {
                    Way::On => self.enter_from(bound),
                    Way::Back => self.enter_until(bound),
                };
            }
        }
    }

    /// Loads the window behind, or before, the current one. Returns whether there is one.
    fn load_next(&mut self, residency: &Residency, way: Way) -> bool {
        let last = match way {
            Way::On => self.window.len().checked_sub(1),
            Way::Back => Some(0),
        };
        let Some((key, entry)) = last.and_then(|at| self.window.get(at)) else {
            return false;
        };
        let (key, sequence) = (key.to_vec(), entry.sequence);
        self.ahead.entries = 0..0;
        residency.load(&mut self.window, |index, window| match way {
            // No version has sequence number 0: what follows is the next lower version, or the next key.
            Way::On => index.load_many(&key, sequence - 1, AHEAD_ENTRIES, window),
            Way::Back => index.load_before(&key, sequence, window),
        });
        self.at = match way {
            Way::On => 0,
            Way::Back => self.window.len().wrapping_sub(1),
        };
        self.window.len() > 0
    }

    /// Lets the window begin with the current entry, and reach as far as values are read ahead.
    fn widen(&mut self) {
        let (Some(residency), Some((key, entry))) =
            (self.residency.clone(), self.window.get(self.at))
        else {
            return;
        };
        let (key, sequence) = (key.to_vec(), entry.sequence);
        self.ahead.entries = 0..0;
        residency.load(&mut self.window, |index, window| {
            index.load_many(&key, sequence, AHEAD_ENTRIES, window);
        });
        self.at = 0;
    }

    /// Goes to the last entry before (`user`, `sequence`).
    fn seek_before(&mut self, user: &[u8], sequence: u64) -> Result<()> {
        let Some(prefix) = self.upper.table.extractor().prefix(user) else {
            return self.enter_until(Bound::Excluded(user));
        };
        let suffix = &user[prefix.len()..];
        let device = self.upper.table.get(prefix);
        let load =
            |index: &Leaves, window: &mut Window| index.load_before(suffix, sequence, window);
        if device.is_some_and(|device| self.open(&device, load)) {
            self.at = self.window.len() - 1;
            return self.show(Way::Back);
        }
        self.enter_until(Bound::Excluded(prefix))
    }

    fn fill(&mut self, entry: Entry, way: Way) -> Result<()> {
        let (Some(residency), Some((suffix, _))) = (&self.residency, self.window.get(self.at))
        else {
            return Ok(());
        };
        self.key.clear();
        self.key.extend_from_slice(residency.prefix());
        self.key.extend_from_slice(suffix);
        self.value = 0..0;
        let kind = match entry.value {
            Some(_) => {
                if !self.ahead.entries.contains(&self.at) {
                    self.read_ahead(way)?;
                }
                self.value = self.ahead.places[self.at - self.ahead.entries.start].clone();
                ValueKind::Value
            }
            None => ValueKind::Deletion,
        };
        let trailer = key::pack_trailer(entry.sequence, kind);
        self.key.extend_from_slice(&trailer.to_le_bytes());
        self.valid = true;
        Ok(())
    }

    /// Reads the value of the current entry and, unless it is the first one, of some that follow that way.
    fn read_ahead(&mut self, way: Way) -> Result<()> {
        let budget = match self.ahead.reads {
            0 => 0,
            reads => AHEAD_BYTES[reads.min(AHEAD_BYTES.len()) - 1],
        };
        self.ahead.reads += 1;
        let mut entries = self.at..self.at + 1;
        let mut bytes = self.spot(self.at).map_or(0, |spot| spot.length as usize);
        loop {
            let next = match way {
                Way::On => Some(entries.end).filter(|at| *at < self.window.len()),
                Way::Back => entries.start.checked_sub(1),
            };
            let Some(next) = next.filter(|next| self.is_before_bound(*next)) else {
                break;
            };
            bytes += self.spot(next).map_or(0, |spot| spot.length as usize);
            if bytes > budget {
                break;
            }
            entries = entries.start.min(next)..entries.end.max(next + 1);
        }
        let is_alone = entries.len() == 1;
        match self.read_entries(entries) {
            // What lies ahead may be damaged, and not be asked for.
            Err(_) if !is_alone => self.read_entries(self.at..self.at + 1),
            read => read,
        }
    }

    fn read_entries(&mut self, entries: Range<usize>) -> Result<()> {
        let mut value_refs = Vec::with_capacity(entries.len());
        let mut end = 0;
        self.ahead.entries = 0..0;
        self.ahead.places.clear();
        for at in entries.clone() {
            let spot = self.spot(at);
            let target = end..end + spot.map_or(0, |spot| spot.length as usize);
            end = target.end;
            value_refs.extend(spot.map(|spot| spot.value_ref(target.clone())));
            self.ahead.places.push(target);
        }
        self.ahead.bytes.resize(end, 0);
        (self.upper).values(&mut value_refs, Pass::Often, &mut self.ahead.bytes)?;
        self.ahead.entries = entries;
        Ok(())
    }

    /// Where the value of the entry at `at` is, if the snapshot sees one.
    fn spot(&self, at: usize) -> Option<Spot> {
        let (_, entry) = self.window.get(at)?;
        entry
            .value
            .filter(|_| entry.sequence <= self.point.snapshot)
    }

    /// Whether the cursor may come to the entry at `at`.
    fn is_before_bound(&self, at: usize) -> bool {
        let (Some(residency), Some((suffix, _))) = (&self.residency, self.window.get(at)) else {
            return false;
        };
        let bound = self.bound.as_deref();
        // If it is of another device, all of this one lies before it.
        let rest = bound.and_then(|bound| bound.strip_prefix(residency.prefix()));
        rest.is_none_or(|rest| suffix < rest)
    }

    /// Begins anew.
    fn begin(&mut self) {
        self.valid = false;
        self.ahead.reads = 0;
    }
}

impl InternalIterator for UpperCursor {
    fn valid(&self) -> bool {
        self.valid
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.begin();
        self.enter_from(Bound::Unbounded)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.begin();
        match self.bound.clone() {
            Some(bound) => self.seek_before(&bound, u64::MAX),
            None => self.enter_until(Bound::Unbounded),
        }
    }

    fn seek(&mut self, internal_key: &[u8]) -> Result<()> {
        self.begin();
        let (user, sequence) = (key::user_key(internal_key), key::trailer(internal_key) >> 8);
        let Some(prefix) = self.upper.table.extractor().prefix(user) else {
            return self.enter_from(Bound::Included(user));
        };
        let suffix = &user[prefix.len()..];
        let device = self.upper.table.get(prefix);
        let load = |index: &Leaves, window: &mut Window| index.load_from(suffix, sequence, window);
        if device.is_some_and(|device| self.open(&device, load)) {
            self.at = 0;
            return self.show(Way::On);
        }
        self.enter_from(Bound::Excluded(prefix))
    }

    fn seek_for_prev(&mut self, internal_key: &[u8]) -> Result<()> {
        self.begin();
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
        if self.ahead.reads == 1 {
            self.widen();
        }
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
        &self.ahead.bytes[self.value.clone()]
    }
}
