//! Write batches: the operations that become visible together, as LevelDB's write-ahead log stores them.
//!
//! ```text
//! batch     = u64: sequence of the first operation | u32: count | operation*
//! operation = 0x01 key value | 0x00 key        key and value are length-prefixed
//!           | 0x02 start end                   so are the ends of a range; no end: to the last key
//!           | 0x03 key u64                     right behind the put of the key: when what was put expires
//!           | 0x04 u64                         the time that was reached
//! ```
//!
//! The n-th operation (from zero) has the sequence number `sequence + n`. All but the first two kinds are ours alone:
//! LevelDB's logs have neither ranges nor times. Times are microseconds since 1970. In a batch that was not written yet
//! an expiry may be a time to live instead, with the highest bit set: see [`WriteBatch::fix_times`].

use crate::error::FormatError;
use crate::key::ValueKind;
use crate::varint::{Reader, put_length_prefixed};
use std::time::Duration;

/// The length of sequence and count.
pub const HEADER_BYTES: usize = 12;
/// No batch becomes longer (bytes) by operations that are added to it. Engines refuse shorter ones already.
pub const BYTES_MAX: usize = 1 << 30;
/// What an operation takes beside its parts, at most: its kind, and the lengths of two parts.
const FRAMING_BYTES: usize = 1 + 2 * 5;

/// One operation of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The key written.
    pub key: &'a [u8],
    /// The value it gets; `None` deletes it.
    pub value: Option<&'a [u8]>,
    /// If a range of keys is deleted, of which `key` is the first: where it ends, excluded. Empty: nowhere.
    pub range_end: Option<&'a [u8]>,
    /// If it is about time: what it says of it.
    pub time: Option<Time>,
}

/// What an operation says of time; all in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// What was put under the key right before is hidden from this time on, counted from 1970.
    Expiry(u64),
    /// The same, counted from the time at which the batch is written.
    Lifetime(u64),
    /// This time was reached, counted from 1970.
    Reached(u64),
}

/// The operation that deletes a range of keys.
const RANGE_DELETION: u8 = 2;
/// The operation that says when what was put right before expires.
const EXPIRY: u8 = 3;
/// The operation that says which time was reached.
const REACHED: u8 = 4;
/// Set in an expiry that is a time to live.
const IS_LIFETIME: u64 = 1 << 63;
/// The latest time, and the longest time to live, that there is (microseconds): some 140,000 years.
pub const TIME_MAX: u64 = (1 << 62) - 1;

/// The first key after all keys that start with `prefix`; `None` if there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

impl<'a> Operation<'a> {
    /// If a range of keys is deleted: where it ends, excluded; `Some(None)` if nowhere.
    #[inline]
    pub fn range(&self) -> Option<Option<&'a [u8]>> {
        self.range_end.map(|end| (!end.is_empty()).then_some(end))
    }

    /// The kind of version this operation makes.
    #[inline]
    pub fn kind(&self) -> ValueKind {
        if self.value.is_some() {
            ValueKind::Value
        } else {
            ValueKind::Deletion
        }
    }
}

/// Operations that become visible together. Reusable: [`clear`](Self::clear) keeps the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    count: u32,
    /// How long it would have become by the first operation that was too long; 0 if none was.
    refused_bytes: usize,
}

/// A place in a batch: behind the operations that it had when [`WriteBatch::mark`] was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    length: usize,
    count: u32,
    refused_bytes: usize,
}

impl Mark {
    /// How many bytes the batch had.
    #[inline]
    pub fn byte_len(self) -> usize {
        self.length
    }
}

impl Default for WriteBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self {
            bytes: vec![0; HEADER_BYTES],
            count: 0,
            refused_bytes: 0,
        }
    }

    /// A batch of the bytes of one; refused unless every operation is well formed and the count is right.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, FormatError> {
        let count = BatchIter::parse(&bytes)?.remaining;
        Ok(Self {
            bytes,
            count,
            refused_bytes: 0,
        })
    }

    /// Sets `key` to `value`. What would make the batch longer than [`BYTES_MAX`] is not taken, and from then on the
    /// batch is one that is [refused](Self::refused_bytes).
    #[inline]
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        if !self.begin(ValueKind::Value as u8, &[key.len(), value.len()]) {
            return;
        }
        put_length_prefixed(&mut self.bytes, key);
        put_length_prefixed(&mut self.bytes, value);
    }

    /// Deletes `key`. Too long as for [`put`](Self::put).
    #[inline]
    pub fn delete(&mut self, key: &[u8]) {
        if self.begin(ValueKind::Deletion as u8, &[key.len()]) {
            put_length_prefixed(&mut self.bytes, key);
        }
    }

    /// Deletes all keys from `start` (included) to `end` (excluded; `None`: to the last key). Too long as for
    /// [`put`](Self::put). The database refuses a range that ends where it begins, or before.
    pub fn delete_range(&mut self, start: &[u8], end: Option<&[u8]>) {
        let end_bytes = end.unwrap_or_default();
        if !self.begin(RANGE_DELETION, &[start.len(), end_bytes.len()]) {
            return;
        }
        // An end at the first key of all would read as no end: such a range is made one that is refused as well.
        let is_void = end.is_some_and(<[u8]>::is_empty);
        let (start, end) = if is_void {
            (&[0][..], &[0][..])
        } else {
            (start, end_bytes)
        };
        put_length_prefixed(&mut self.bytes, start);
        put_length_prefixed(&mut self.bytes, end);
    }

    /// Sets `key` to `value` for `lifetime` (rounded up to a microsecond), from when the batch is written: two
    /// operations. Too long as for [`put`](Self::put). The database refuses a time to live of nothing, or of
    /// over [`TIME_MAX`].
    pub fn put_with_ttl(&mut self, key: &[u8], value: &[u8], lifetime: Duration) {
        self.put(key, value);
        let micros = lifetime.as_nanos().div_ceil(1000);
        let micros = u64::try_from(micros).map_or(TIME_MAX + 1, |it| it.min(TIME_MAX + 1));
        self.put_time(key, micros | IS_LIFETIME);
    }

    /// Sets `key` to `value` until `expiry` (microseconds since 1970): two operations. Too long as for
    /// [`put`](Self::put).
    pub fn put_until(&mut self, key: &[u8], value: &[u8], expiry: u64) {
        self.put(key, value);
        self.put_time(key, expiry.min(TIME_MAX));
    }

    fn put_time(&mut self, key: &[u8], time: u64) {
        if self.begin(EXPIRY, &[key.len(), 8]) {
            put_length_prefixed(&mut self.bytes, key);
            self.bytes.extend_from_slice(&time.to_le_bytes());
        }
    }

    /// Notes that `time` (microseconds since 1970) was reached.
    pub fn reach(&mut self, time: u64) {
        if self.begin(REACHED, &[8]) {
            self.bytes
                .extend_from_slice(&time.min(TIME_MAX).to_le_bytes());
        }
    }

    /// Turns every time to live into an expiry, at `now` (microseconds since 1970).
    pub fn fix_times(&mut self, now: u64) {
        let mut reader = Reader::new(&self.bytes);
        let mut spots = Vec::new();
        if reader.fixed_u64("sequence of a batch").is_err()
            || reader.fixed_u32("count of a batch").is_err()
        {
            return;
        }
        while let Ok(operation) = read_operation(&mut reader) {
            if let Some(Time::Lifetime(lifetime)) = operation.time {
                let expiry = now.saturating_add(lifetime).min(TIME_MAX);
                spots.push((reader.offset(), expiry));
            }
        }
        for (end, expiry) in spots {
            self.bytes[end - 8..end].copy_from_slice(&expiry.to_le_bytes());
        }
    }

    /// Deletes all keys that begin with `prefix`; all there are, if it is empty. In the batch this is a range of keys in the
    /// order of their bytes: not for a database in another order, where it is another range.
    pub fn delete_prefix(&mut self, prefix: &[u8]) {
        if self.has_room(&[prefix.len(), prefix.len()]) {
            self.delete_range(prefix, prefix_end(prefix).as_deref());
        }
    }

    /// Appends the operations of `other`. Too long as for [`put`](Self::put); so it is if `other` was.
    pub fn append(&mut self, other: &Self) {
        if other.refused_bytes > 0 {
            let bytes = other.refused_bytes.saturating_add(self.bytes.len());
            self.refused_bytes = self.refused_bytes.max(bytes);
        }
        let operations = &other.bytes[HEADER_BYTES..];
        if self.has_room(&[operations.len()]) {
            self.set_count(self.count + other.count);
            self.bytes.extend_from_slice(operations);
        }
    }

    /// The length that the batch would have had by an operation that was too long and was not taken, nor any after it:
    /// the database refuses it. `None` if all were taken.
    #[inline]
    pub fn refused_bytes(&self) -> Option<usize> {
        (self.refused_bytes > 0).then_some(self.refused_bytes)
    }

    /// Begins an operation with parts of these lengths, if there is room.
    #[inline]
    fn begin(&mut self, kind: u8, parts: &[usize]) -> bool {
        if !self.has_room(parts) {
            return false;
        }
        self.bytes
            .reserve(FRAMING_BYTES + parts.iter().sum::<usize>());
        self.bytes.push(kind);
        self.set_count(self.count + 1);
        true
    }

    /// Whether all was taken so far, and an operation with parts of these lengths can be.
    #[inline]
    fn has_room(&mut self, parts: &[usize]) -> bool {
        let before = self.bytes.len() + FRAMING_BYTES;
        let bytes = (parts.iter()).fold(before, |sum, part| sum.saturating_add(*part));
        if self.refused_bytes == 0 && bytes > BYTES_MAX {
            self.refused_bytes = bytes;
        }
        self.refused_bytes == 0
    }

    #[inline]
    fn set_count(&mut self, count: u32) {
        self.count = count;
        self.bytes[8..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
    }

    /// The place behind the last operation.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark {
            length: self.bytes.len(),
            count: self.count,
            refused_bytes: self.refused_bytes,
        }
    }

    /// Removes the operations behind `mark`, which is of this batch and was not removed since; keeps the memory.
    pub fn return_to(&mut self, mark: Mark) {
        self.bytes.truncate(mark.length);
        self.set_count(mark.count);
        self.refused_bytes = mark.refused_bytes;
    }

    /// Removes all operations; keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER_BYTES, 0);
        self.count = 0;
        self.refused_bytes = 0;
    }

    /// How many operations there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are no operations.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes, as stored.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bytes there are.
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// The sequence number of the first operation.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.iter().sequence
    }

    /// Sets the sequence number of the first operation.
    #[inline]
    pub fn set_sequence(&mut self, sequence: u64) {
        self.bytes[..8].copy_from_slice(&sequence.to_le_bytes());
    }

    /// The operations, in order.
    #[inline]
    pub fn iter(&self) -> BatchIter<'_> {
        BatchIter::unchecked(&self.bytes)
    }
}

impl<'a> IntoIterator for &'a WriteBatch {
    type Item = Operation<'a>;
    type IntoIter = BatchIter<'a>;

    fn into_iter(self) -> BatchIter<'a> {
        self.iter()
    }
}

/// The operations of a batch, in order, borrowed from its bytes.
#[derive(Debug, Clone)]
pub struct BatchIter<'a> {
    reader: Reader<'a>,
    sequence: u64,
    remaining: u32,
}

impl<'a> BatchIter<'a> {
    /// Walks over `bytes`; refused unless every operation is well formed and the count is right.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        if bytes.len() < HEADER_BYTES {
            return Err(FormatError::truncated(
                bytes.len(),
                "a batch has a header of twelve bytes",
            ));
        }
        Self::unchecked(bytes).checked()
    }

    /// Walks over `operations`, a batch without its header, which says the rest; refused as by [`parse`](Self::parse).
    pub fn parse_headless(
        sequence: u64,
        count: u32,
        operations: &'a [u8],
    ) -> Result<Self, FormatError> {
        let batch = Self {
            reader: Reader::new(operations),
            sequence,
            remaining: count,
        };
        batch.checked()
    }

    fn checked(self) -> Result<Self, FormatError> {
        let mut walk = self.clone();
        let mut count = 0;
        while !walk.reader.is_empty() {
            read_operation(&mut walk.reader)?;
            count += 1;
        }
        if count != u64::from(self.remaining) {
            return Err(FormatError::malformed(
                8,
                "the count of a batch is not that of its operations",
            ));
        }
        Ok(self)
    }

    /// Walks over bytes that are known to be well formed; ends early where they are not.
    #[inline]
    fn unchecked(bytes: &'a [u8]) -> Self {
        let mut reader = Reader::new(bytes);
        let sequence = reader.fixed_u64("sequence of a batch").unwrap_or(0);
        let remaining = reader.fixed_u32("count of a batch").unwrap_or(0);
        Self {
            reader,
            sequence,
            remaining,
        }
    }

    /// The sequence number of the operation that comes next.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl<'a> Iterator for BatchIter<'a> {
    type Item = Operation<'a>;

    #[inline]
    fn next(&mut self) -> Option<Operation<'a>> {
        if self.remaining == 0 {
            return None;
        }
        let operation = read_operation(&mut self.reader).ok()?;
        self.remaining -= 1;
        self.sequence = self.sequence.wrapping_add(1);
        Some(operation)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining as usize, Some(self.remaining as usize))
    }
}

impl ExactSizeIterator for BatchIter<'_> {}

#[inline]
fn read_operation<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, FormatError> {
    let at = reader.offset();
    let kind = reader.u8("kind of an operation")?;
    if kind == RANGE_DELETION {
        return Ok(Operation {
            key: reader.length_prefixed("start of a range")?,
            range_end: Some(reader.length_prefixed("end of a range")?),
            ..Operation::default()
        });
    }
    if kind == EXPIRY || kind == REACHED {
        return read_time(reader, kind);
    }
    let kind = ValueKind::from_byte(kind).ok_or(FormatError::unsupported(
        at,
        "the operations of a batch are 0 to 4",
    ))?;
    let key = reader.length_prefixed("key of an operation")?;
    let value = match kind {
        ValueKind::Value => Some(reader.length_prefixed("value of an operation")?),
        ValueKind::Deletion => None,
    };
    Ok(Operation {
        key,
        value,
        ..Operation::default()
    })
}

#[cold]
fn read_time<'a>(reader: &mut Reader<'a>, kind: u8) -> Result<Operation<'a>, FormatError> {
    let key = if kind == EXPIRY {
        reader.length_prefixed("key that expires")?
    } else {
        &[]
    };
    let at = reader.offset();
    let time = reader.fixed_u64("time")?;
    let time = match time & IS_LIFETIME {
        0 if time > TIME_MAX => return Err(FormatError::malformed(at, "a time is out of range")),
        0 if kind == REACHED => Time::Reached(time),
        0 => Time::Expiry(time),
        _ if kind == REACHED => {
            return Err(FormatError::malformed(at, "a time is out of range"));
        }
        _ => Time::Lifetime(time & !IS_LIFETIME),
    };
    Ok(Operation {
        key,
        time: Some(time),
        ..Operation::default()
    })
}

#[cfg(test)]
mod tests;
