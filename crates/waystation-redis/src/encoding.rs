//! From the keys of clients to keys of the engine: docs/formats/redis.md, byte by byte.
//!
//! ```text
//! key of the engine = device part | rest of the key, escaped | 00 | tag | what lies under the key
//! ```
//!
//! - Zeros are escaped (`00 ff`) and no tag is `ff`. So all that lies under one key is one range, no other key's entries
//!   are in it, and keys have the order of their bytes.
//! - The device part comes first: what the extractor finds in a key of the engine is what it finds in the client's key. A
//!   key without a device has none in the engine either: with a delimiter, the delimiter is escaped in all of it.

use std::borrow::Cow;
use waystation::Extractor;

/// What lies under a key of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Tag {
    /// The key itself: its kind, its time to live, and a string's bytes.
    Head = 0x00,
    /// A field of a hash.
    Field = 0x02,
    /// A member of a set.
    Member = 0x03,
    /// A member of a sorted set, with its score.
    Scored = 0x04,
    /// A score and its member.
    Score = 0x05,
    /// A sample of a time series: a reading of a device's sensor. The tag is the first byte of its time.
    Sample = 0x80,
}

impl Tag {
    fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            0x00 => Self::Head,
            0x02 => Self::Field,
            0x03 => Self::Member,
            0x04 => Self::Scored,
            0x05 => Self::Score,
            0x80 => Self::Sample,
            _ => return None,
        })
    }
}

/// Follows the zero of an escaped zero.
const ESCAPED: u8 = 0xff;
/// Follows the zero of dates at which keys are over, which lie under the empty key.
const DATES: u8 = 0xf0;

/// How keys are encoded in one database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encoding {
    rule: Rule,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Plain,
    /// The extractor, and the length of its devices.
    Fixed(Extractor, usize),
    /// The extractor, and its delimiter.
    Until(Extractor, u8),
}

/// Why a database's keys, or one key, cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EncodingError {
    #[error(
        "the extractor {0} cannot serve the Redis protocol: use a delimiter that prints (20 to 7d), or a fixed length"
    )]
    Delimiter(String),
    #[error("the key is shorter than the {0} bytes that name its device")]
    Short(usize),
    #[error("keys that begin with {0} zero bytes are the database's own")]
    Reserved(usize),
}

/// A key of the engine, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decoded<'a> {
    pub(crate) key: Vec<u8>,
    pub(crate) tag: Tag,
    pub(crate) under: Cow<'a, [u8]>,
}

impl Encoding {
    pub(crate) fn new(extractor: Option<Extractor>) -> Result<Self, EncodingError> {
        let Some(extractor) = extractor else {
            return Ok(Self { rule: Rule::Plain });
        };
        // The name is the one description of an extractor that is never changed.
        let name = extractor.to_string();
        let rule = match name.split_once('/') {
            Some(("fixed", length)) => length
                .parse()
                .ok()
                .map(|length| Rule::Fixed(extractor, length)),
            Some(("until", code)) => u8::from_str_radix(code, 16)
                .ok()
                .filter(|delimiter| (0x20..=0x7d).contains(delimiter))
                .map(|delimiter| Rule::Until(extractor, delimiter)),
            _ => None,
        };
        let rule = rule.ok_or(EncodingError::Delimiter(name))?;
        Ok(Self { rule })
    }

    /// Writes what all keys of the engine that belong to `key` begin with, without the zero.
    pub(crate) fn base(&self, key: &[u8], base: &mut Vec<u8>) -> Result<(), EncodingError> {
        base.clear();
        match self.rule {
            Rule::Plain => escape_zeros(key, base),
            Rule::Fixed(_, length) => {
                let (device, rest) = key
                    .split_at_checked(length)
                    .ok_or(EncodingError::Short(length))?;
                if device.iter().all(|it| *it == 0) {
                    return Err(EncodingError::Reserved(length));
                }
                base.extend_from_slice(device);
                escape_zeros(rest, base);
            }
            Rule::Until(_, delimiter) => {
                escape_zeros(key, base);
                if !key.contains(&delimiter) {
                    hide(delimiter, base, 0);
                }
            }
        }
        Ok(())
    }

    /// Appends a tag and what lies under it to a `base`.
    pub(crate) fn extend(&self, base: &mut Vec<u8>, tag: Tag, under: &[u8]) {
        let length = base.len();
        base.push(0);
        base.push(tag as u8);
        base.extend_from_slice(under);
        if let Rule::Until(_, delimiter) = self.rule
            && !under.is_empty()
            && !base[..length].contains(&delimiter)
        {
            hide(delimiter, base, length);
        }
    }

    /// Takes a key of the engine apart; `None` if it is none of ours, or a date.
    pub(crate) fn decode<'a>(&self, engine_key: &'a [u8]) -> Option<Decoded<'a>> {
        match self.rule {
            Rule::Plain => decode_after(engine_key, 0),
            Rule::Fixed(_, length) => {
                let device = engine_key.get(..length)?;
                let is_own = device.iter().all(|it| *it == 0);
                (!is_own)
                    .then(|| decode_after(engine_key, length))
                    .flatten()
            }
            Rule::Until(_, delimiter) if engine_key.contains(&delimiter) => {
                decode_after(engine_key, 0)
            }
            Rule::Until(_, delimiter) => {
                let shown = show(delimiter, engine_key)?;
                let Decoded { key, tag, under } = decode_after(&shown, 0)?;
                let under = Cow::Owned(under.into_owned());
                Some(Decoded { key, tag, under })
            }
        }
    }

    /// Whether the engine counts `engine_key` to a device, so that it can have no time to live.
    pub(crate) fn has_device(&self, engine_key: &[u8]) -> bool {
        match self.rule {
            Rule::Plain => false,
            Rule::Fixed(_, length) => engine_key.len() >= length,
            Rule::Until(_, delimiter) => engine_key.contains(&delimiter),
        }
    }

    /// The engine's name of the device that clients call `device`, and back.
    pub(crate) fn device(&self, device: &[u8]) -> Vec<u8> {
        let mut name = Vec::new();
        match self.rule {
            Rule::Until(..) => escape_zeros(device, &mut name),
            _ => name.extend_from_slice(device),
        }
        name
    }

    /// What clients call the engine's device `name`; `None`: it is the database's own, or none of ours.
    pub(crate) fn shown_device(&self, name: &[u8]) -> Option<Vec<u8>> {
        match self.rule {
            Rule::Plain => None,
            Rule::Fixed(..) => (!name.iter().all(|it| *it == 0)).then(|| name.to_vec()),
            Rule::Until(..) => {
                let mut shown = Vec::new();
                let mut bytes = name.iter();
                while let Some(byte) = bytes.next() {
                    if *byte == 0 && bytes.next() != Some(&ESCAPED) {
                        return None;
                    }
                    shown.push(*byte);
                }
                Some(shown)
            }
        }
    }

    /// What keys of the engine begin with whose keys begin with `prefix`; nothing if they do not lie together.
    pub(crate) fn shared_prefix(&self, prefix: &[u8]) -> Vec<u8> {
        let mut shared = Vec::new();
        match self.rule {
            Rule::Plain => escape_zeros(prefix, &mut shared),
            Rule::Fixed(_, length) => {
                let (device, rest) = prefix.split_at(length.min(prefix.len()));
                shared.extend_from_slice(device);
                escape_zeros(rest, &mut shared);
            }
            Rule::Until(_, delimiter) => {
                let is_alike = |it: &u8| *it != delimiter + 1 && *it != 0;
                let end = prefix.iter().position(|it| *it == delimiter);
                // With the delimiter all of them have devices, and nothing but zeros is escaped.
                if end.is_some() || prefix.iter().all(is_alike) {
                    escape_zeros(prefix, &mut shared);
                }
            }
        }
        shared
    }

    /// The range of dates: its first key, which all of them begin with.
    pub(crate) fn dates(&self) -> Vec<u8> {
        match self.rule {
            Rule::Fixed(_, length) => vec![0; length],
            _ => vec![0, DATES],
        }
    }

    /// The key of the engine that says when `key` is over (milliseconds since 1970).
    pub(crate) fn date(&self, key: &[u8], over_at: u64) -> Vec<u8> {
        let mut date = self.dates();
        let length = date.len();
        date.extend_from_slice(&in_order(over_at));
        date.extend_from_slice(key);
        if let Rule::Until(_, delimiter) = self.rule {
            hide(delimiter, &mut date, length);
        }
        date
    }

    /// What a date says: the time, and the key.
    pub(crate) fn decode_date(&self, date: &[u8]) -> Option<(u64, Vec<u8>)> {
        let rest = date.strip_prefix(&self.dates()[..])?;
        let rest = match self.rule {
            Rule::Until(_, delimiter) => show(delimiter, rest)?,
            _ => rest.to_vec(),
        };
        let (time, key) = rest.split_first_chunk::<8>()?;
        Some((of_order(*time), key.to_vec()))
    }
}

/// A number as bytes that have its order.
#[expect(
    clippy::big_endian_bytes,
    reason = "keys sort by their bytes, so the highest byte of a number comes first"
)]
pub(crate) fn in_order(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The number that [`in_order`] was given.
#[expect(clippy::big_endian_bytes, reason = "as it was written")]
pub(crate) fn of_order(bytes: [u8; 8]) -> u64 {
    u64::from_be_bytes(bytes)
}

/// Appends `text` with every zero followed by `ff`.
fn escape_zeros(text: &[u8], escaped: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = memchr::memchr(0, rest) {
        escaped.extend_from_slice(&rest[..=at]);
        escaped.push(ESCAPED);
        rest = &rest[at + 1..];
    }
    escaped.extend_from_slice(rest);
}

/// Writes the bytes from `start` on without the delimiter: it and the byte behind it become two bytes each, and the order
/// stays.
fn hide(delimiter: u8, key: &mut Vec<u8>, start: usize) {
    let is_special = |it: &u8| *it == delimiter || *it == delimiter + 1;
    if !key[start..].iter().any(is_special) {
        return;
    }
    let plain = key.split_off(start);
    for byte in plain {
        if is_special(&byte) {
            key.extend_from_slice(&[delimiter + 1, 1 + byte - delimiter]);
        } else {
            key.push(byte);
        }
    }
}

/// What [`hide`] was given.
fn show(delimiter: u8, hidden: &[u8]) -> Option<Vec<u8>> {
    let mut shown = Vec::with_capacity(hidden.len());
    let mut bytes = hidden.iter();
    while let Some(byte) = bytes.next() {
        if *byte == delimiter + 1 {
            match bytes.next() {
                Some(1) => shown.push(delimiter),
                Some(2) => shown.push(delimiter + 1),
                _ => return None,
            }
        } else {
            shown.push(*byte);
        }
    }
    Some(shown)
}

/// Takes a key apart whose first `raw` bytes are not escaped.
fn decode_after(engine_key: &[u8], raw: usize) -> Option<Decoded<'_>> {
    let (device, mut rest) = engine_key.split_at_checked(raw)?;
    let mut key = device.to_vec();
    loop {
        let at = memchr::memchr(0, rest)?;
        key.extend_from_slice(&rest[..at]);
        match rest.get(at + 1)? {
            &ESCAPED => key.push(0),
            tag => {
                let tag = Tag::of(*tag)?;
                let under = Cow::Borrowed(&rest[at + 2..]);
                return Some(Decoded { key, tag, under });
            }
        }
        rest = &rest[at + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encodings() -> [Encoding; 4] {
        [
            None,
            Some(Extractor::fixed(2)),
            Some(Extractor::until(b':')),
            Some(Extractor::until(b'}')),
        ]
        .map(|it| Encoding::new(it).unwrap())
    }

    fn encoded(encoding: Encoding, key: &[u8], tag: Tag, under: &[u8]) -> Option<Vec<u8>> {
        let mut base = Vec::new();
        encoding.base(key, &mut base).ok()?;
        encoding.extend(&mut base, tag, under);
        Some(base)
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop::sample::select(&[0u8, 1, 2, 0x39, b':', b';', b'a', b'}', b'~', 0xff][..]);
        prop::collection::vec(byte, 0..7)
    }

    #[test]
    fn some_keys_are_refused() {
        assert!(Encoding::new(Some(Extractor::until(0))).is_err());
        assert!(Encoding::new(Some(Extractor::until(0x7e))).is_err());
        let fixed = Encoding::new(Some(Extractor::fixed(4))).unwrap();
        let mut base = Vec::new();
        assert_eq!(fixed.base(b"abc", &mut base), Err(EncodingError::Short(4)));
        assert_eq!(
            fixed.base(&[0; 5], &mut base),
            Err(EncodingError::Reserved(4))
        );
    }

    proptest! {
        #[test]
        fn keys_are_read_back_with_their_devices(key in bytes(), under in bytes()) {
            for encoding in encodings() {
                let Some(whole) = encoded(encoding, &key, Tag::Field, &under) else { continue };
                let decoded = encoding.decode(&whole).unwrap();
                prop_assert_eq!((&decoded.key, &*decoded.under), (&key, &under[..]));
                prop_assert_eq!(decoded.tag, Tag::Field);
                let date = encoding.date(&key, 77);
                prop_assert_eq!(encoding.decode_date(&date), Some((77, key.clone())));
                prop_assert_eq!(encoding.decode(&date), None);
                match encoding.rule {
                    Rule::Plain => {}
                    Rule::Fixed(extractor, _) => {
                        prop_assert_eq!(extractor.prefix(&key), extractor.prefix(&whole));
                    }
                    Rule::Until(extractor, _) => {
                        let device = extractor.prefix(&whole).map(|it| extractor.device(it));
                        let device = device.and_then(|it| encoding.shown_device(it));
                        let expected = extractor.prefix(&key).map(|it| extractor.device(it).to_vec());
                        prop_assert_eq!(&device, &expected);
                        prop_assert!(!encoding.has_device(&date));
                    }
                }
            }
        }

        /// What lies under one key is one range, apart from all other keys and dates.
        #[test]
        fn keys_lie_apart(one in bytes(), other in bytes(), first in bytes(), second in bytes()) {
            prop_assume!(one != other);
            for encoding in encodings() {
                let (Some(low), Some(high), Some(stranger)) = (
                    encoded(encoding, &one, Tag::Head, b""),
                    encoded(encoding, &one, Tag::Sample, &first),
                    encoded(encoding, &other, Tag::Field, &second),
                ) else { continue };
                prop_assert!(low < high);
                let is_outside = |it: &Vec<u8>| *it < low || *it > high;
                prop_assert!(is_outside(&stranger), "{low:x?} {stranger:x?} {high:x?}");
                prop_assert!(is_outside(&encoding.date(&other, 5)));
            }
        }

        #[test]
        fn what_lies_under_a_key_is_in_order(key in bytes(), first in bytes(), second in bytes()) {
            for encoding in encodings() {
                let (Some(low), Some(high)) = (
                    encoded(encoding, &key, Tag::Score, &first),
                    encoded(encoding, &key, Tag::Score, &second),
                ) else { continue };
                prop_assert_eq!(low.cmp(&high), first.cmp(&second));
            }
        }

        #[test]
        fn a_prefix_is_shared(prefix in bytes(), rest in bytes()) {
            let key = [&prefix[..], &rest].concat();
            for encoding in encodings() {
                let Some(whole) = encoded(encoding, &key, Tag::Head, b"") else { continue };
                prop_assert!(whole.starts_with(&encoding.shared_prefix(&prefix)));
            }
        }
    }
}
