//! The index of one device's records in the upper level: ordered, multi-version, in memory.
//!
//! It maps (key, sequence number) to the place of the value in the log; keys are without the device's prefix.
//! Nothing is ever taken out: an overwritten version stays for readers at an older snapshot, and when the
//! device settles or departs the whole index goes. So it is made of few, packed chunks of memory:
//!
//! ```text
//!   insert --> buffer    the newest entries, as they came: 8 to 64 of them, at most half as many as are in leaves
//!                |  full, or a reader comes
//!                v
//!              leaves    the others, in the order of keys
//! ```
//!
//! An insert writes to one place, near the last. It would wait for memory several times on its way through the leaves,
//! since thousands of other devices were written to meanwhile; searches that go there together share most of that way. A
//! device that leaves before a reader asks for it is put in order a few times, not for each of its records.
//!
//! Neighbouring keys of a device mostly differ in their last bytes, so an entry takes about 20 bytes and, with the
//! unused ends of leaves and the buffer, 25 to 30 (more where a device has few records of many sensors).

mod buffer;
mod leaf;
mod leaves;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;

use crate::log::ValueRef;
use buffer::{Buffer, Unpacked};
pub(crate) use buffer::{unzigzag, zigzag};
pub(crate) use leaf::common;
pub(crate) use leaves::Leaves;
use std::cell::RefCell;
use std::ops::Range;
use waystation_format::log::RECORD_HEADER_BYTES;

/// A buffer takes no fewer entries, and no more.
const BUFFERED: Range<u64> = 8..64;

thread_local! {
    /// Memory to put a buffer's entries in order.
    static SORTED: RefCell<Vec<Unpacked>> = const { RefCell::new(Vec::new()) };
}

/// Where a value lies in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The position of the record.
    pub(crate) record_lsn: u64,
    /// Where in the record, header included, the value starts.
    pub(crate) offset: u32,
    /// The value's length.
    pub(crate) length: u32,
}

impl Spot {
    /// Where `value` lies in the record at `record_lsn`, whose `payload` it is a part of.
    pub(crate) fn of(value: &[u8], payload: &[u8], record_lsn: u64) -> Self {
        let offset = value.as_ptr().addr() - payload.as_ptr().addr();
        Self {
            record_lsn,
            offset: (RECORD_HEADER_BYTES + offset) as u32,
            length: value.len() as u32,
        }
    }

    /// The value, to be read to `target`.
    pub(crate) fn value_ref(&self, target: Range<usize>) -> ValueRef {
        ValueRef {
            record_lsn: self.record_lsn,
            offset: self.offset as usize,
            target,
        }
    }
}

/// One version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its sequence number.
    pub(crate) sequence: u64,
    /// Its value; `None` for a deletion.
    pub(crate) value: Option<Spot>,
}

/// The versions of one device's keys.
#[derive(Default)]
pub(crate) struct Index {
    buffer: Buffer,
    leaves: Leaves,
    /// By how many 1024ths its buffer is full sooner than others: up to a quarter.
    priority: u64,
}

impl Index {
    /// An index without versions; `kind` is any number that other devices' indexes do not all have. Devices that come
    /// together and write in turn would all fill their buffers in the same round, a thousand puts one after the other that
    /// each put a buffer in order: so some buffers are full sooner.
    pub(crate) fn new(kind: u32) -> Self {
        Self {
            priority: u64::from(kind % 256),
            ..Self::default()
        }
    }

    /// Adds a version, which must be new.
    pub(crate) fn insert(&mut self, key: &[u8], entry: &Entry) {
        self.buffer.push(key, entry);
        let most = (self.leaves.len() / 2).clamp(BUFFERED.start, BUFFERED.end);
        if self.buffer.is_full(most - most * self.priority / 1024) {
            self.empty_buffer();
        }
    }

    /// Adds versions, which must be new, and in order.
    pub(crate) fn add(&mut self, versions: &Window) {
        let entries = versions.iter().map(|(key, entry)| (key, *entry));
        self.leaves.add(entries, versions.len() as u64);
    }

    /// All versions, in order.
    pub(crate) fn ordered(&mut self) -> &Leaves {
        if self.buffer.len() > 0 {
            self.empty_buffer();
        }
        &self.leaves
    }

    fn empty_buffer(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        SORTED.with_borrow_mut(|sorted| {
            buffer.sort_to(sorted);
            let entries = sorted.iter();
            let entries = entries.map(|(place, entry)| (buffer.key(place), *entry));
            self.leaves.add(entries, sorted.len() as u64);
        });
    }

    /// Versions in it.
    pub(crate) fn len(&self) -> u64 {
        self.buffer.len() + self.leaves.len()
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.buffer.memory_bytes() + self.leaves.memory_bytes()
    }
}

/// Some neighbouring entries, copied out of an index.
#[derive(Debug, Default)]
pub(crate) struct Window {
    keys: Vec<u8>,
    /// Where each key ends in `keys`, and its entry.
    entries: Vec<(usize, Entry)>,
}

impl Window {
    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry at `at` and its key.
    pub(crate) fn get(&self, at: usize) -> Option<(&[u8], &Entry)> {
        let (end, entry) = self.entries.get(at)?;
        let start = at.checked_sub(1).map_or(0, |before| self.entries[before].0);
        Some((&self.keys[start..*end], entry))
    }

    /// All entries and their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        let mut start = 0;
        self.entries.iter().map(move |(end, entry)| {
            let key = &self.keys[start..*end];
            start = *end;
            (key, entry)
        })
    }

    /// Forgets all entries.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
    }

    /// The entries from the one at `at` on.
    fn entries_from(&self, at: usize) -> impl Iterator<Item = &Entry> {
        self.entries[at..].iter().map(|(_, entry)| entry)
    }

    /// Appends an entry.
    pub(crate) fn push(&mut self, key: &[u8], entry: Entry) {
        self.keys.extend_from_slice(key);
        self.entries.push((self.keys.len(), entry));
    }
}
