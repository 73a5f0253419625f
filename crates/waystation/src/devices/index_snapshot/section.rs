//! The content of a section of an index snapshot: parts of residencies, and their versions.

use super::malformed;
use crate::devices::checkpoint::sequence;
use crate::devices::index::{Entry, Spot, Window, common, unzigzag, zigzag};
use std::cmp::Reverse;
use std::ops::Range;
use waystation_format::FormatError;
use waystation_format::key::MAX_SEQUENCE;
use waystation_format::varint::{Reader, put_length_prefixed, put_u64};

/// What a part says of its residency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    /// What the residency's keys begin with.
    pub(crate) prefix: &'a [u8],
    /// The sequence number of its first write, which names it.
    pub(crate) first_sequence: u64,
    /// Its first record lies here or behind.
    pub(crate) first_lsn: u64,
    /// The sequence number from which on its writes go to the memtable.
    pub(crate) switch: Option<u64>,
}

/// A part as it lies in a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    pub(crate) head: Head<'a>,
    /// How many versions it has.
    pub(crate) versions: u64,
    /// Where in the section they are.
    pub(crate) bytes: Range<usize>,
}

/// Versions as a part has them.
#[derive(Default)]
pub(super) struct Versions {
    bytes: Vec<u8>,
    count: u64,
    last_key: Vec<u8>,
    /// Sequence number and position of the last one.
    last: (u64, u64),
}

impl Versions {
    /// Appends a version, which must come behind the last one.
    pub(super) fn push(&mut self, key: &[u8], entry: &Entry) {
        let shared = common(&self.last_key, key);
        put_u64(&mut self.bytes, shared as u64);
        put_length_prefixed(&mut self.bytes, &key[shared..]);
        let value = entry.value.map_or(0, |spot| u64::from(spot.length) + 1);
        put_u64(&mut self.bytes, value);
        put_u64(&mut self.bytes, zigzag(entry.sequence, self.last.0));
        if let Some(spot) = &entry.value {
            put_u64(&mut self.bytes, zigzag(spot.record_lsn, self.last.1));
            put_u64(&mut self.bytes, u64::from(spot.offset));
            self.last.1 = spot.record_lsn;
        }
        self.last.0 = entry.sequence;
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.count += 1;
    }

    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.count
    }

    /// How many bytes they take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets them.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.last_key.clear();
        (self.count, self.last) = (0, (0, 0));
    }
}

/// Appends the part of `head`'s residency with `versions` to a section.
pub(super) fn put_part(section: &mut Vec<u8>, head: &Head<'_>, versions: &Versions) {
    put_length_prefixed(section, head.prefix);
    put_u64(section, head.first_sequence);
    put_u64(section, head.first_lsn);
    put_u64(section, head.switch.unwrap_or(0));
    put_u64(section, versions.count);
    put_length_prefixed(section, &versions.bytes);
}

/// The parts of a section in an index snapshot that shows versions up to `through`.
pub(crate) fn parts(section: &[u8], through: u64) -> Result<Vec<Part<'_>>, FormatError> {
    let mut reader = Reader::new(section);
    let mut parts = Vec::new();
    while !reader.is_empty() {
        let at = reader.offset() as u64;
        let part = take_part(&mut reader)?;
        if part.head.first_sequence > through || part.head.switch > Some(through) {
            return Err(malformed(
                at,
                "a residency does what came later than the index snapshot",
            ));
        }
        parts.push(part);
    }
    Ok(parts)
}

fn take_part<'a>(reader: &mut Reader<'a>) -> Result<Part<'a>, FormatError> {
    let prefix = reader.length_prefixed("prefix")?;
    let first_sequence = sequence(reader.var_u64("first sequence number")?)?;
    let first_lsn = reader.var_u64("position of the first record")?;
    let switch = sequence(reader.var_u64("switch")?)?;
    let versions = reader.var_u64("count of versions")?;
    let packed = reader.length_prefixed("versions")?;
    let end = reader.offset();
    Ok(Part {
        head: Head {
            prefix,
            first_sequence,
            first_lsn,
            switch: (switch > 0).then_some(switch),
        },
        versions,
        bytes: end - packed.len()..end,
    })
}

/// Puts the `count` versions that `packed` are into `window`, with nothing else.
pub(crate) fn unpack(packed: &[u8], count: u64, window: &mut Window) -> Result<(), FormatError> {
    window.clear();
    let mut reader = Reader::new(packed);
    let mut key: Vec<u8> = Vec::new();
    let (mut number, mut lsn) = (0, 0);
    for _ in 0..count {
        let at = reader.offset() as u64;
        let shared = reader.var_u64("shared bytes of a key")?;
        if shared > key.len() as u64 {
            return Err(malformed(
                at,
                "a key shares more than there is with the one before",
            ));
        }
        key.truncate(shared as usize);
        key.extend_from_slice(reader.length_prefixed("rest of a key")?);
        let value = reader.var_u64("length of a value")?;
        number = sequence(unzigzag(reader.var_u64("sequence number")?, number))?;
        let value = match value.checked_sub(1) {
            None => None,
            Some(length) => {
                lsn = unzigzag(reader.var_u64("position")?, lsn);
                Some(Spot {
                    record_lsn: lsn,
                    offset: reader.var_u32("offset of a value")?,
                    length: u32::try_from(length)
                        .map_err(|_| malformed(at, "a value is longer than one can be"))?,
                })
            }
        };
        let follows = |(before, entry): (&[u8], &Entry)| {
            (before, Reverse(entry.sequence)) < (key.as_slice(), Reverse(number))
        };
        let last = window
            .len()
            .checked_sub(1)
            .and_then(|last| window.get(last));
        if !last.is_none_or(follows) {
            return Err(malformed(at, "versions are not in order"));
        }
        let sequence = number;
        window.push(&key, Entry { sequence, value });
    }
    if !reader.is_empty() {
        return Err(malformed(
            reader.offset() as u64,
            "bytes follow the last version",
        ));
    }
    Ok(())
}

/// The section that `bytes` are, written anew; an error if they are not one.
pub(crate) fn rewritten(bytes: &[u8]) -> Result<Vec<u8>, FormatError> {
    let mut section = Vec::new();
    let (mut window, mut versions) = (Window::default(), Versions::default());
    for part in parts(bytes, MAX_SEQUENCE)? {
        unpack(&bytes[part.bytes], part.versions, &mut window)?;
        window
            .iter()
            .for_each(|(key, entry)| versions.push(key, entry));
        put_part(&mut section, &part.head, &versions);
        versions.clear();
    }
    Ok(section)
}
