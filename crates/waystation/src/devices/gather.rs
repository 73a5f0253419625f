//! What residencies hold, in the order of keys, read in the order of the log.
//!
//! Neighbouring keys of a device lie far apart in the log. So some megabytes' worth of entries are taken at a
//! time, their records read from front to back, and then handed on by key.

use super::index::{Spot, Window};
use super::residency::Residency;
use super::upper::Upper;
use crate::background::TOGETHER_BYTES;
use crate::error::Result;
use crate::log::{Pass, ValueRef};
use crate::sst::EntryStream;
use crate::storage::Duty;
use crate::sync::Arc;
use std::ops::Range;
use waystation_format::key::{self, ValueKind};

/// Values of this many bytes are in memory at a time (one value at least): twice what settles together.
const GATHER_BYTES: usize = 2 * TOGETHER_BYTES as usize;

/// Memory for values is given back in chunks of this size.
const GIVEN_BACK_BYTES: usize = 2 << 20;

/// Values of this many bytes are handed on from one rest to the next.
const REST_BYTES: usize = 64 << 10;

/// A stream over residencies, ordered by prefix.
pub(crate) struct Gather<'a> {
    upper: &'a Upper,
    residencies: &'a [Arc<Residency>],
    duty: &'a Duty<'a>,
    /// The residency to go on with, and behind which entry of it.
    next_residency: usize,
    last: Option<(Vec<u8>, u64)>,
    keys: Vec<u8>,
    values: Vec<u8>,
    entries: Vec<Gathered>,
    at: usize,
    /// Where in the values the next rest is due.
    rest_at: usize,
}

struct Gathered {
    key: Range<usize>,
    value: Range<usize>,
    spot: Option<Spot>,
}

impl<'a> Gather<'a> {
    /// Everything in the indexes of `residencies`; their reader keeps to `duty`.
    pub(crate) fn new(
        upper: &'a Upper,
        residencies: &'a [Arc<Residency>],
        duty: &'a Duty<'a>,
    ) -> Self {
        Self {
            upper,
            residencies,
            duty,
            next_residency: 0,
            last: None,
            keys: Vec::new(),
            values: Vec::new(),
            entries: Vec::new(),
            at: 0,
            rest_at: 0,
        }
    }

    /// Takes the next entries.
    fn fill(&mut self) -> Result<()> {
        self.keys.clear();
        self.entries.clear();
        (self.at, self.rest_at) = (0, 0);
        let mut bytes = 0;
        let mut window = Window::default();
        while bytes < GATHER_BYTES {
            self.duty.pause();
            let Some(residency) = self.residencies.get(self.next_residency) else {
                break;
            };
            residency.load(&mut window, |index, window| match &self.last {
                Some((key, sequence)) => index.load_from(key, sequence - 1, window),
                None => index.load_from(b"", u64::MAX, window),
            });
            if window.len() == 0 {
                (self.next_residency, self.last) = (self.next_residency + 1, None);
            }
            for at in 0..window.len() {
                let Some((suffix, entry)) = window.get(at) else {
                    break;
                };
                let (start, kind) = match entry.value {
                    Some(_) => (self.keys.len(), ValueKind::Value),
                    None => (self.keys.len(), ValueKind::Deletion),
                };
                self.keys.extend_from_slice(residency.prefix());
                key::append(&mut self.keys, suffix, entry.sequence, kind);
                let length = entry.value.map_or(0, |spot| spot.length as usize);
                self.entries.push(Gathered {
                    key: start..self.keys.len(),
                    value: bytes..bytes + length,
                    spot: entry.value,
                });
                bytes += length;
            }
            if let Some((suffix, entry)) = window.len().checked_sub(1).and_then(|it| window.get(it))
            {
                self.last = Some((suffix.to_vec(), entry.sequence));
            }
        }
        if self.values.capacity() < bytes {
            // Fresh memory is zero, and its pages come one by one as they are read into.
            self.give_back();
            self.values = vec![0; bytes];
        }
        self.values.resize(bytes, 0);
        self.read_values()
    }

    fn read_values(&mut self) -> Result<()> {
        let mut value_refs: Vec<ValueRef> = self
            .entries
            .iter()
            .filter_map(|entry| Some(entry.spot?.value_ref(entry.value.clone())))
            .collect();
        let pass = Pass::Once(self.duty.priority());
        (self.upper).values(&mut value_refs, pass, &mut self.values)
    }

    /// Gives the memory of the values back chunk by chunk. To unmap all of it at once takes the system tens of milliseconds,
    /// in which every other thread that touches fresh memory waits.
    fn give_back(&mut self) {
        while self.values.capacity() > GIVEN_BACK_BYTES {
            let left = self.values.capacity() - GIVEN_BACK_BYTES;
            self.values.truncate(left);
            self.values.shrink_to(left);
            self.duty.pause();
        }
    }

    /// The entries that come next, up to the key `last` (included).
    pub(crate) fn up_to<'g>(&'g mut self, last: &'g [u8]) -> Part<'g, 'a> {
        Part { gather: self, last }
    }
}

impl Drop for Gather<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// A part of a stream that was started: the keys up to one.
pub(crate) struct Part<'g, 'a> {
    gather: &'g mut Gather<'a>,
    last: &'g [u8],
}

impl EntryStream for Part<'_, '_> {
    fn start(&mut self) -> Result<()> {
        Ok(())
    }

    fn has_entry(&self) -> bool {
        self.gather.has_entry() && key::user_key(self.gather.entry().0) <= self.last
    }

    fn advance(&mut self) -> Result<()> {
        self.gather.advance()
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        self.gather.entry()
    }
}

impl EntryStream for Gather<'_> {
    fn start(&mut self) -> Result<()> {
        (self.next_residency, self.last) = (0, None);
        self.fill()
    }

    fn has_entry(&self) -> bool {
        self.at < self.entries.len()
    }

    fn advance(&mut self) -> Result<()> {
        self.at += 1;
        let Some(next) = self.entries.get(self.at) else {
            return self.fill();
        };
        if next.value.start >= self.rest_at {
            self.rest_at = next.value.start + REST_BYTES;
            self.duty.pause();
        }
        Ok(())
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        let entry = &self.entries[self.at];
        (
            &self.keys[entry.key.clone()],
            &self.values[entry.value.clone()],
        )
    }
}
