//! The buffer of an index: its newest entries, as they came.
//!
//! ```text
//! entry    key length | key | value | sequence | position | value's place
//!          varint       bytes varint  varint     varint     varint
//! ```
//!
//! Sequence and position are differences to those of the entry before, of either sign (zigzag). `value` is 0 for a
//! deletion, and then position and place do not follow.

use super::{Entry, Spot};
use std::cmp::Reverse;
use std::ops::Range;
use waystation_format::varint;

/// The buffer's memory grows by this much, or by one entry (bytes).
const GROWTH_BYTES: usize = 256;
/// An entry seldom takes more than this and its key (bytes).
const FIELDS_BYTES: usize = 24;
/// A buffer with keys as long as this together is full, however few there are (bytes).
const BYTES_MAX: usize = 4096;

/// Entries in no order.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    entries: u64,
    /// Sequence number and position of the newest entry.
    newest: (u64, u64),
}

/// Where an entry of a buffer has its key, and what it says.
pub(super) type Unpacked = (Range<usize>, Entry);

impl Buffer {
    /// Adds a version.
    pub(super) fn push(&mut self, key: &[u8], entry: &Entry) {
        let room = self.bytes.capacity() - self.bytes.len();
        let needed = key.len() + FIELDS_BYTES;
        if room < needed {
            self.bytes.reserve_exact(needed.max(GROWTH_BYTES));
        }
        varint::put_length_prefixed(&mut self.bytes, key);
        let value = entry.value.map_or(0, |spot| u64::from(spot.length) + 1);
        varint::put_u64(&mut self.bytes, value);
        let (sequence, lsn) = self.newest;
        varint::put_u64(&mut self.bytes, zigzag(entry.sequence, sequence));
        self.newest.0 = entry.sequence;
        if let Some(spot) = &entry.value {
            varint::put_u64(&mut self.bytes, zigzag(spot.record_lsn, lsn));
            varint::put_u64(&mut self.bytes, u64::from(spot.offset));
            self.newest.1 = spot.record_lsn;
        }
        self.entries += 1;
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> u64 {
        self.entries
    }

    /// Whether it takes no more, or `most` entries.
    pub(super) fn is_full(&self, most: u64) -> bool {
        self.entries >= most || self.bytes.len() >= BYTES_MAX
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Puts the entries into `sorted`, ordered by key, then from the newest version to the oldest.
    pub(super) fn sort_to(&self, sorted: &mut Vec<Unpacked>) {
        sorted.clear();
        let (mut at, mut sequence, mut lsn) = (0, 0, 0);
        while at < self.bytes.len() {
            let length = self.take(&mut at) as usize;
            let key = at..at + length;
            at = key.end;
            let value = self.take(&mut at);
            sequence = unzigzag(self.take(&mut at), sequence);
            let value = value.checked_sub(1).map(|length| {
                lsn = unzigzag(self.take(&mut at), lsn);
                Spot {
                    record_lsn: lsn,
                    offset: self.take(&mut at) as u32,
                    length: length as u32,
                }
            });
            sorted.push((key, Entry { sequence, value }));
        }
        sorted.sort_unstable_by(|(a, one), (b, other)| {
            let order = |key: &Range<usize>, entry: &Entry| {
                (&self.bytes[key.clone()], Reverse(entry.sequence))
            };
            order(a, one).cmp(&order(b, other))
        });
    }

    /// The key at `place`.
    pub(super) fn key(&self, place: &Range<usize>) -> &[u8] {
        &self.bytes[place.clone()]
    }

    fn take(&self, at: &mut usize) -> u64 {
        let decoded = varint::get_u64(&self.bytes[*at..]);
        let (value, length) = decoded.expect("the bytes are this module's own: they decode");
        *at += length;
        value
    }
}

/// `value` as its difference to `base`, small if they are near each other.
pub(crate) fn zigzag(value: u64, base: u64) -> u64 {
    let difference = value.wrapping_sub(base).cast_signed();
    ((difference << 1) ^ (difference >> 63)).cast_unsigned()
}

/// The value whose difference to `base` is so encoded.
pub(crate) fn unzigzag(encoded: u64, base: u64) -> u64 {
    base.wrapping_add((encoded >> 1) ^ (encoded & 1).wrapping_neg())
}
