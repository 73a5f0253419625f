//! A leaf: some neighbouring entries in one chunk of memory, the keys each encoded by how it differs from the one
//! before.
//!
//! ```text
//! leaf    lowest sequence | lowest position | entry | entry ...
//!         8 bytes           8 bytes
//! entry   length behind this | shared key bytes | further key bytes | the further bytes | fields
//!         varint               varint             varint              bytes
//! fields  value | sequence | position | value's place
//!         varints
//! ```
//!
//! Sequence and position (of the record in the log) are differences from the leaf's lowest, so that an entry can be
//! passed over by its length, and stays as it is when a neighbour comes. `value` is 0 for a deletion (then position and
//! place do not follow) and otherwise one more than the value's length. Entries are ordered by key, then from the
//! newest version to the oldest.
//!
//! A search never puts keys together: it knows how many bytes the key sought shares with the entry before it,
//! and what an entry shares with *its* predecessor decides most comparisons.

use super::{Entry, Spot, Window};
use std::cell::RefCell;
use std::cmp::Ordering;
use waystation_format::varint;

/// A leaf that is longer than this is split (bytes).
const LEAF_BYTES_MAX: usize = 512;
/// A leaf's memory grows by this much (bytes).
const GROWTH_BYTES: usize = 48;
/// A leaf made of many entries at once is this full, or a little more (bytes), or has so many.
const PACKED_BYTES: usize = 384;
const PACKED_ENTRIES: usize = 32;
/// Where the first entry is.
const FIRST_AT: usize = 16;
/// The fields of an entry are no longer than this (bytes).
const FIELDS_BYTES_MAX: usize = 4 * varint::MAX_U64_BYTES;

thread_local! {
    /// Memory for an encoded entry, so that inserting one allocates nothing.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Neighbouring entries. Never empty.
pub(super) struct Leaf {
    /// The [`head`] of the first key, which lies beside those of the other leaves: most comparisons of a search among
    /// leaves need nothing else, where each would have to wait for another chunk of memory.
    head: Head,
    bytes: Vec<u8>,
}

/// The first bytes of a key, and zeros if there are fewer. Keys with different heads are ordered as these.
type Head = [u8; 8];

fn head(key: &[u8]) -> Head {
    let mut head = Head::default();
    let length = key.len().min(head.len());
    head[..length].copy_from_slice(&key[..length]);
    head
}

/// What sequence numbers and positions are counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Base {
    sequence: u64,
    lsn: u64,
}

impl Base {
    /// A base for nothing.
    const NONE: Self = Self {
        sequence: u64::MAX,
        lsn: u64::MAX,
    };

    /// The base for `entry`, too.
    fn with(self, entry: &Entry) -> Self {
        Self {
            sequence: self.sequence.min(entry.sequence),
            lsn: entry
                .value
                .map_or(self.lsn, |spot| self.lsn.min(spot.record_lsn)),
        }
    }
}

/// What one entry is encoded as, but for its key.
struct Fields {
    bytes: [u8; FIELDS_BYTES_MAX],
    length: usize,
}

impl Fields {
    fn of(entry: &Entry, base: Base) -> Self {
        let mut fields = Self {
            bytes: [0; FIELDS_BYTES_MAX],
            length: 0,
        };
        let value = entry.value.map_or(0, |spot| u64::from(spot.length) + 1);
        fields.put(value);
        fields.put(entry.sequence - base.sequence);
        if let Some(spot) = &entry.value {
            fields.put(spot.record_lsn - base.lsn);
            fields.put(u64::from(spot.offset));
        }
        fields
    }

    fn put(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes[self.length] = value as u8 | 0x80;
            self.length += 1;
            value >>= 7;
        }
        self.bytes[self.length] = value as u8;
        self.length += 1;
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// An entry as it lies in a leaf.
struct Found<'a> {
    shared: usize,
    suffix: &'a [u8],
    /// Where its fields are.
    fields: usize,
    /// Where its encoding ends.
    end: usize,
}

/// Where a key belongs in a leaf.
struct Position {
    /// The offset at which its entry is, or would be put.
    at: usize,
    /// What it shares with the key before.
    shared: usize,
}

/// How many bytes `a` and `b` begin with together.
pub(crate) fn common(a: &[u8], b: &[u8]) -> usize {
    let eights = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let mut equal = 0;
    for (x, y) in eights {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return equal + difference.trailing_zeros() as usize / 8;
        }
        equal += 8;
    }
    let rest = a[equal..].iter().zip(&b[equal..]);
    equal + rest.take_while(|(x, y)| x == y).count()
}

fn put_entry(out: &mut Vec<u8>, shared: usize, suffix: &[u8], fields: &[u8]) {
    let (shared, further) = (shared as u64, suffix.len() as u64);
    let lengths = varint::encoded_len(shared) + varint::encoded_len(further);
    varint::put_u64(out, (lengths + suffix.len() + fields.len()) as u64);
    varint::put_u64(out, shared);
    varint::put_u64(out, further);
    out.extend_from_slice(suffix);
    out.extend_from_slice(fields);
}

impl Leaf {
    pub(super) fn new(key: &[u8], entry: &Entry) -> Self {
        let base = Base::NONE.with(entry);
        let mut bytes = Vec::with_capacity(FIRST_AT + key.len() + 12 + GROWTH_BYTES);
        put_base(&mut bytes, base);
        put_entry(&mut bytes, 0, key, Fields::of(entry, base).bytes());
        let head = head(key);
        Self { head, bytes }
    }

    /// A leaf of entries of `window` from the one at `from` on, and where those end that had no place in it.
    pub(super) fn pack(window: &Window, from: usize) -> (Self, usize) {
        let near = window.entries_from(from).take(PACKED_ENTRIES);
        let base = near.fold(Base::NONE, Base::with);
        SCRATCH.with_borrow_mut(|packed| {
            packed.clear();
            put_base(packed, base);
            let (mut before, mut at): (&[u8], _) = (b"", from);
            while let Some((key, entry)) = window.get(at) {
                let is_full = packed.len() >= PACKED_BYTES || at - from == PACKED_ENTRIES;
                if is_full {
                    break;
                }
                let shared = common(before, key);
                let fields = Fields::of(entry, base);
                put_entry(packed, shared, &key[shared..], fields.bytes());
                (before, at) = (key, at + 1);
            }
            let first = window.get(from).map_or(b"" as &[u8], |(key, _)| key);
            let leaf = Self {
                head: head(first),
                bytes: packed.as_slice().into(),
            };
            (leaf, at)
        })
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether it begins behind (`key`, `sequence`).
    pub(super) fn begins_after(&self, key: &[u8], sequence: u64) -> bool {
        let head = head(key);
        if self.head != head {
            return self.head > head;
        }
        let first = self.entry_at(FIRST_AT);
        match first.suffix.cmp(key) {
            Ordering::Equal => self.sequence_of(&first) < sequence,
            order => order.is_gt(),
        }
    }

    /// Puts an entry in. Returns what had to be split off behind it.
    pub(super) fn insert(&mut self, key: &[u8], entry: &Entry) -> Option<Self> {
        let base = self.base().with(entry);
        if base != self.base() {
            // One that was overtaken on its way here.
            self.bytes = self.encoded_from(FIRST_AT, Vec::new(), base);
        }
        let position = self.find(key, entry.sequence);
        if position.at == FIRST_AT {
            self.head = head(key);
        }
        SCRATCH.with_borrow_mut(|new| {
            new.clear();
            self.insert_at(key, entry, &position, new)
        })
    }

    fn insert_at(
        &mut self,
        key: &[u8],
        entry: &Entry,
        position: &Position,
        new: &mut Vec<u8>,
    ) -> Option<Self> {
        let fields = Fields::of(entry, self.base());
        let rest = &key[position.shared..];
        put_entry(new, position.shared, rest, fields.bytes());
        let mut replaced = position.at;
        let is_last = position.at == self.bytes.len();
        if !is_last {
            let next = self.entry_at(position.at);
            let fields = &self.bytes[next.fields..next.end];
            replaced = next.end;
            if next.shared < position.shared {
                put_entry(new, next.shared, next.suffix, fields);
            } else {
                let more = common(next.suffix, rest);
                put_entry(new, position.shared + more, &next.suffix[more..], fields);
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
        let mut at = FIRST_AT;
        while at < self.bytes.len() {
            let found = self.entry_at(at);
            key.truncate(found.shared);
            key.extend_from_slice(found.suffix);
            if at > FIRST_AT && found.end > middle {
                let head = head(&key);
                let bytes = self.encoded_from(at, key, self.lowest_from(at));
                self.bytes.truncate(at);
                self.bytes.shrink_to(at + GROWTH_BYTES);
                return Some(Self { head, bytes });
            }
            at = found.end;
        }
        None
    }

    /// The lowest sequence number and position of the entries from `at` on.
    fn lowest_from(&self, mut at: usize) -> Base {
        let mut lowest = Base::NONE;
        while at < self.bytes.len() {
            let found = self.entry_at(at);
            lowest = lowest.with(&self.read(&found));
            at = found.end;
        }
        lowest
    }

    /// A leaf's bytes with the entries from `at` on, the first of which has `key` (its suffix, if nothing is shared).
    fn encoded_from(&self, mut at: usize, key: Vec<u8>, base: Base) -> Vec<u8> {
        let whole = self.bytes.len() - at + key.len();
        let mut bytes = Vec::with_capacity(FIRST_AT + whole + GROWTH_BYTES);
        put_base(&mut bytes, base);
        let mut first = (!key.is_empty()).then_some(key);
        while at < self.bytes.len() {
            let found = self.entry_at(at);
            let fields = Fields::of(&self.read(&found), base);
            match first.take() {
                Some(key) => put_entry(&mut bytes, 0, &key, fields.bytes()),
                None => put_entry(&mut bytes, found.shared, found.suffix, fields.bytes()),
            }
            at = found.end;
        }
        bytes
    }

    /// The first entry of `key` at or below `snapshot`.
    pub(super) fn get(&self, key: &[u8], snapshot: u64) -> Option<Entry> {
        let position = self.find(key, snapshot);
        if position.at == self.bytes.len() {
            return None;
        }
        let found = self.entry_at(position.at);
        let is_key = found.shared >= position.shared && *found.suffix == key[position.shared..];
        is_key.then(|| self.read(&found))
    }

    /// Shows all entries in order.
    pub(super) fn visit(&self, mut show: impl FnMut(&[u8], Entry)) {
        let mut key = Vec::new();
        let mut at = FIRST_AT;
        while at < self.bytes.len() {
            let found = self.entry_at(at);
            key.truncate(found.shared);
            key.extend_from_slice(found.suffix);
            show(&key, self.read(&found));
            at = found.end;
        }
    }

    /// The place of the first entry at or behind (`key`, `sequence`).
    fn find(&self, key: &[u8], sequence: u64) -> Position {
        let mut position = Position {
            at: FIRST_AT,
            shared: 0,
        };
        while position.at < self.bytes.len() {
            let mut at = position.at;
            let length = self.take(&mut at) as usize;
            let end = at + length;
            let shared = self.take(&mut at) as usize;
            match shared.cmp(&position.shared) {
                // As the entry before: it differs from the key where that one does.
                Ordering::Greater => position.at = end,
                Ordering::Less => break,
                Ordering::Equal => {
                    let found = self.entry_at(position.at);
                    let rest = &key[shared..];
                    let more = common(found.suffix, rest);
                    let order = match found.suffix[more..].first().cmp(&rest[more..].first()) {
                        Ordering::Equal => sequence.cmp(&self.sequence_of(&found)),
                        order => order,
                    };
                    if order.is_ge() {
                        break;
                    }
                    position.shared += more;
                    position.at = end;
                }
            }
        }
        position
    }

    /// The entry encoded at `at`. The bytes are this module's own: they decode.
    #[inline]
    fn entry_at(&self, at: usize) -> Found<'_> {
        let mut at = at;
        let length = self.take(&mut at) as usize;
        let end = at + length;
        let shared = self.take(&mut at) as usize;
        let length = self.take(&mut at) as usize;
        Found {
            shared,
            suffix: &self.bytes[at..at + length],
            fields: at + length,
            end,
        }
    }

    /// The version that an entry tells of.
    fn read(&self, found: &Found<'_>) -> Entry {
        let base = self.base();
        let mut at = found.fields;
        let value = self.take(&mut at);
        let sequence = base.sequence + self.take(&mut at);
        let value = value.checked_sub(1).map(|length| Spot {
            record_lsn: base.lsn + self.take(&mut at),
            offset: self.take(&mut at) as u32,
            length: length as u32,
        });
        Entry { sequence, value }
    }

    fn sequence_of(&self, found: &Found<'_>) -> u64 {
        let mut at = found.fields;
        self.take(&mut at);
        self.base().sequence + self.take(&mut at)
    }

    fn base(&self) -> Base {
        let number = |at: usize| {
            self.bytes[at..at + 8]
                .try_into()
                .map_or(0, u64::from_le_bytes)
        };
        Base {
            sequence: number(0),
            lsn: number(8),
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

fn put_base(out: &mut Vec<u8>, base: Base) {
    out.extend_from_slice(&base.sequence.to_le_bytes());
    out.extend_from_slice(&base.lsn.to_le_bytes());
}
