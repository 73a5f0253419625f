//! A leaf: some neighbouring entries in one piece of memory, each encoded by how it differs from the one before.
//!
//! ```text
//! entry   shared key bytes | further key bytes | the further bytes | sequence | value | position | value's place
//!         varint             varint              bytes               zigzag     varint  zigzag     varint
//! ```
//!
//! Sequence and position (of the record in the log) are differences from the entry before; the first entry's
//! are from 0 and its key is whole. `value` is 0 for a deletion (then no place follows) and otherwise one more
//! than the value's length. Entries are ordered by key, then from the newest version to the oldest.
//!
//! A search never puts keys together: it knows how many bytes the key sought shares with the entry before it,
//! and what an entry shares with *its* predecessor decides most comparisons.

use super::{Entry, Spot};
use std::cell::RefCell;
use std::cmp::Ordering;
use waystation_format::varint;

/// A leaf that is longer than this is split (bytes).
const LEAF_BYTES_MAX: usize = 512;
/// A leaf's memory grows by this much (bytes).
const GROWTH_BYTES: usize = 48;

thread_local! {
    /// Memory for an encoded entry, so that inserting one allocates nothing.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Neighbouring entries. Never empty.
pub(super) struct Leaf {
    bytes: Vec<u8>,
}

/// What one entry is encoded as, but for its key.
#[derive(Debug, Clone, Copy, Default)]
struct Fields {
    sequence: u64,
    /// 0 for a deletion, else one more than the value's length.
    value: u64,
    lsn: u64,
    value_at: u64,
}

impl Fields {
    /// A deletion has no place; it gets that of the entry before, which costs least.
    fn of(entry: &Entry, before: &Self) -> Self {
        let (value, lsn, value_at) = match &entry.value {
            Some(spot) => (u64::from(spot.length) + 1, spot.record_lsn, spot.offset),
            None => (0, before.lsn, 0),
        };
        Self {
            sequence: entry.sequence,
            value,
            lsn,
            value_at: u64::from(value_at),
        }
    }

    fn entry(&self) -> Entry {
        let spot = self.value.checked_sub(1).map(|length| Spot {
            record_lsn: self.lsn,
            offset: self.value_at as u32,
            length: length as u32,
        });
        Entry {
            sequence: self.sequence,
            value: spot,
        }
    }

    /// Encodes these behind `before`.
    fn put(&self, out: &mut Vec<u8>, before: &Self) {
        varint::put_u64(out, zigzag(self.sequence, before.sequence));
        varint::put_u64(out, self.value);
        varint::put_u64(out, zigzag(self.lsn, before.lsn));
        if self.value > 0 {
            varint::put_u64(out, self.value_at);
        }
    }
}

/// An entry as it lies in a leaf.
struct Found<'a> {
    shared: usize,
    suffix: &'a [u8],
    fields: Fields,
    /// Where its encoding ends.
    end: usize,
}

/// Where a key belongs in a leaf.
struct Position {
    /// The offset at which its entry is, or would be put.
    at: usize,
    /// What it shares with the key before.
    shared: usize,
    before: Fields,
}

fn zigzag(value: u64, before: u64) -> u64 {
    let difference = value.wrapping_sub(before).cast_signed();
    ((difference << 1) ^ (difference >> 63)).cast_unsigned()
}

fn unzigzag(coded: u64, before: u64) -> u64 {
    let difference = (coded >> 1).cast_signed() ^ -((coded & 1).cast_signed());
    before.wrapping_add(difference.cast_unsigned())
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

fn put_entry(out: &mut Vec<u8>, shared: usize, suffix: &[u8], fields: &Fields, before: &Fields) {
    varint::put_u64(out, shared as u64);
    varint::put_u64(out, suffix.len() as u64);
    out.extend_from_slice(suffix);
    fields.put(out, before);
}

impl Leaf {
    pub(super) fn new(key: &[u8], entry: &Entry) -> Self {
        let mut bytes = Vec::with_capacity(key.len() + 24 + GROWTH_BYTES);
        let before = Fields::default();
        put_entry(&mut bytes, 0, key, &Fields::of(entry, &before), &before);
        Self { bytes }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether it begins behind (`key`, `sequence`).
    pub(super) fn begins_after(&self, key: &[u8], sequence: u64) -> bool {
        let first = self.entry_at(0, &Fields::default());
        match first.suffix.cmp(key) {
            Ordering::Equal => first.fields.sequence < sequence,
            order => order.is_gt(),
        }
    }

    /// Puts an entry in. Returns what had to be split off behind it.
    pub(super) fn insert(&mut self, key: &[u8], entry: &Entry) -> Option<Self> {
        let position = self.find(key, entry.sequence);
        let fields = Fields::of(entry, &position.before);
        SCRATCH.with_borrow_mut(|new| {
            new.clear();
            self.insert_at(key, entry, &position, &fields, new)
        })
    }

    fn insert_at(
        &mut self,
        key: &[u8],
        entry: &Entry,
        position: &Position,
        fields: &Fields,
        new: &mut Vec<u8>,
    ) -> Option<Self> {
        put_entry(
            new,
            position.shared,
            &key[position.shared..],
            fields,
            &position.before,
        );
        let mut replaced = position.at;
        let is_last = position.at == self.bytes.len();
        if !is_last {
            let next = self.entry_at(position.at, &position.before);
            replaced = next.end;
            if next.shared < position.shared {
                put_entry(new, next.shared, next.suffix, &next.fields, fields);
            } else {
                let more = common(next.suffix, &key[position.shared..]);
                put_entry(
                    new,
                    position.shared + more,
                    &next.suffix[more..],
                    &next.fields,
                    fields,
                );
            }
        }
        let grown = self.bytes.len() + new.len() - (replaced - position.at);
        if is_last && grown > LEAF_BYTES_MAX {
            // What arrives in order fills its leaves.
            return Some(Self::new(key, entry));
        }
        if grown > self.bytes.capacity() {
            self.bytes
                .reserve_exact(grown + GROWTH_BYTES - self.bytes.len());
        }
        self.replace(position.at..replaced, new);
        (self.bytes.len() > LEAF_BYTES_MAX)
            .then(|| self.split())
            .flatten()
    }

    fn replace(&mut self, range: std::ops::Range<usize>, new: &[u8]) {
        let (old_len, behind) = (self.bytes.len(), range.start + new.len());
        let new_len = old_len - range.len() + new.len();
        self.bytes.resize(old_len.max(new_len), 0);
        self.bytes.copy_within(range.end..old_len, behind);
        self.bytes.truncate(new_len);
        self.bytes[range.start..behind].copy_from_slice(new);
    }

    /// Splits off the second half, if there are two entries.
    fn split(&mut self) -> Option<Self> {
        let middle = self.bytes.len() / 2;
        let mut key = Vec::new();
        let (mut at, mut before) = (0, Fields::default());
        while at < self.bytes.len() {
            let found = self.entry_at(at, &before);
            key.truncate(found.shared);
            key.extend_from_slice(found.suffix);
            if at > 0 && (found.end > middle) {
                let mut right =
                    Vec::with_capacity(self.bytes.len() - at + key.len() + GROWTH_BYTES);
                put_entry(&mut right, 0, &key, &found.fields, &Fields::default());
                right.extend_from_slice(&self.bytes[found.end..]);
                self.bytes.truncate(at);
                self.bytes.shrink_to(at + GROWTH_BYTES);
                return Some(Self { bytes: right });
            }
            (at, before) = (found.end, found.fields);
        }
        None
    }

    /// The first entry of `key` at or below `snapshot`.
    pub(super) fn get(&self, key: &[u8], snapshot: u64) -> Option<Entry> {
        let position = self.find(key, snapshot);
        if position.at == self.bytes.len() {
            return None;
        }
        let found = self.entry_at(position.at, &position.before);
        let is_key = if found.shared < position.shared {
            false
        } else {
            *found.suffix == key[position.shared..]
        };
        is_key.then(|| found.fields.entry())
    }

    /// Shows all entries in order.
    pub(super) fn visit(&self, mut show: impl FnMut(&[u8], Entry)) {
        let mut key = Vec::new();
        let (mut at, mut before) = (0, Fields::default());
        while at < self.bytes.len() {
            let found = self.entry_at(at, &before);
            key.truncate(found.shared);
            key.extend_from_slice(found.suffix);
            show(&key, found.fields.entry());
            (at, before) = (found.end, found.fields);
        }
    }

    /// The place of the first entry at or behind (`key`, `sequence`).
    fn find(&self, key: &[u8], sequence: u64) -> Position {
        let mut position = Position {
            at: 0,
            shared: 0,
            before: Fields::default(),
        };
        while position.at < self.bytes.len() {
            let found = self.entry_at(position.at, &position.before);
            let rest = &key[position.shared..];
            let order = match found.shared.cmp(&position.shared) {
                // As the entry before: it differs from the key where that one does.
                Ordering::Greater => Ordering::Less,
                Ordering::Less => Ordering::Greater,
                Ordering::Equal => match found.suffix.cmp(rest) {
                    Ordering::Equal => sequence.cmp(&found.fields.sequence),
                    order => order,
                },
            };
            if order.is_ge() {
                break;
            }
            if found.shared == position.shared {
                position.shared += common(found.suffix, rest);
            }
            position.at = found.end;
            position.before = found.fields;
        }
        position
    }

    /// The entry encoded at `at` behind `before`. The bytes are this module's own: they decode.
    #[inline]
    fn entry_at(&self, at: usize, before: &Fields) -> Found<'_> {
        let mut at = at;
        let shared = self.take(&mut at) as usize;
        let length = self.take(&mut at) as usize;
        let suffix = &self.bytes[at..at + length];
        at += length;
        let mut fields = Fields {
            sequence: unzigzag(self.take(&mut at), before.sequence),
            value: self.take(&mut at),
            lsn: unzigzag(self.take(&mut at), before.lsn),
            value_at: 0,
        };
        if fields.value > 0 {
            fields.value_at = self.take(&mut at);
        }
        Found {
            shared,
            suffix,
            fields,
            end: at,
        }
    }

    #[inline]
    fn take(&self, at: &mut usize) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.bytes[*at];
            *at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
            shift += 7;
        }
    }
}
