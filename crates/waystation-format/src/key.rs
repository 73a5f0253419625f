//! Internal keys: a user key, and which write put it there.
//!
//! ```text
//! internal key = user key | trailer
//! trailer      = u64: sequence << 8 | kind     sequence < 2^56
//! ```
//!
//! Order: user keys bytewise ascending, then trailers *descending*, so that of one user key the newest
//! version comes first, and a search for (key, snapshot) finds the newest version that snapshot may see.

use crate::error::FormatError;
use std::cmp::Ordering;

/// The largest sequence number a trailer can hold.
pub const MAX_SEQUENCE: u64 = (1 << 56) - 1;

/// The length of the trailer.
pub const TRAILER_BYTES: usize = 8;

/// What a version says about its key. On disk: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ValueKind {
    /// The key was deleted.
    Deletion = 0,
    /// The key has the value stored with it.
    Value = 1,
}

impl ValueKind {
    /// The kind to search with: the largest, because trailers descend.
    pub const SEEK: Self = Self::Value;

    /// The kind whose number is `byte`.
    #[inline]
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Deletion),
            1 => Some(Self::Value),
            _ => None,
        }
    }
}

/// The trailer of a version.
#[inline]
pub fn pack_trailer(sequence: u64, kind: ValueKind) -> u64 {
    debug_assert!(sequence <= MAX_SEQUENCE);
    sequence << 8 | kind as u64
}

/// An internal key, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InternalKey<'a> {
    /// The key as the user wrote it.
    pub user_key: &'a [u8],
    /// The sequence number of the write.
    pub sequence: u64,
    /// What was written.
    pub kind: ValueKind,
}

impl<'a> InternalKey<'a> {
    /// Takes `bytes` apart.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let Some((user_key, trailer)) = split(bytes) else {
            return Err(FormatError::truncated(
                bytes.len(),
                "an internal key has at least eight bytes",
            ));
        };
        let Some(kind) = ValueKind::from_byte(trailer as u8) else {
            return Err(FormatError::unsupported(
                user_key.len(),
                "the kind of a version is 0 or 1",
            ));
        };
        Ok(Self {
            user_key,
            sequence: trailer >> 8,
            kind,
        })
    }

    /// Appends the bytes of this key.
    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        append(out, self.user_key, self.sequence, self.kind);
    }

    /// The bytes of this key.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.user_key.len() + TRAILER_BYTES);
        self.append_to(&mut out);
        out
    }
}

/// Appends the internal key of a version.
#[inline]
pub fn append(out: &mut Vec<u8>, user_key: &[u8], sequence: u64, kind: ValueKind) {
    out.extend_from_slice(user_key);
    out.extend_from_slice(&pack_trailer(sequence, kind).to_le_bytes());
}

/// The user key and the trailer of an internal key; `None` if it is shorter than a trailer.
#[inline]
pub fn split(internal_key: &[u8]) -> Option<(&[u8], u64)> {
    let (user_key, trailer) = internal_key.split_last_chunk::<TRAILER_BYTES>()?;
    Some((user_key, u64::from_le_bytes(*trailer)))
}

/// The user key of an internal key; empty if it is shorter than a trailer.
#[inline]
pub fn user_key(internal_key: &[u8]) -> &[u8] {
    split(internal_key).map_or(&[], |(user_key, _)| user_key)
}

/// The trailer of an internal key; zero if it is shorter than one.
#[inline]
pub fn trailer(internal_key: &[u8]) -> u64 {
    split(internal_key).map_or(0, |(_, trailer)| trailer)
}

/// The order of internal keys. Keys shorter than a trailer come first; no valid key is.
#[inline]
pub fn compare_internal(a: &[u8], b: &[u8]) -> Ordering {
    match (split(a), split(b)) {
        (Some((a_key, a_trailer)), Some((b_key, b_trailer))) => {
            a_key.cmp(b_key).then(b_trailer.cmp(&a_trailer))
        }
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Shortens `start`, an internal key, if there is a shorter one that is still >= `start` and < `limit`.
/// That is what an index stores between two blocks.
pub fn shorten_separator(start: &mut Vec<u8>, limit: &[u8]) {
    let user_start = user_key(start);
    let user_limit = user_key(limit);
    let common = user_start
        .iter()
        .zip(user_limit)
        .take_while(|(a, b)| a == b)
        .count();
    let (Some(&from), Some(&to)) = (user_start.get(common), user_limit.get(common)) else {
        return; // one is a prefix of the other
    };
    // Shorter than the user key by at least a byte, or it is not worth it.
    if from < 0xff && from + 1 < to && common + 1 < user_start.len() {
        shorten_to(start, common);
    }
}

/// Shortens `key`, an internal key, if there is a shorter one that is still >= `key`.
/// That is what an index stores after the last block.
pub fn shorten_successor(key: &mut Vec<u8>) {
    let user = user_key(key);
    if let Some(at) = user.iter().position(|&byte| byte != 0xff)
        && at + 1 < user.len()
    {
        shorten_to(key, at);
    }
}

/// Cuts the user key after the byte at `at`, counts that byte up, and gives it the first trailer of all.
fn shorten_to(key: &mut Vec<u8>, at: usize) {
    key.truncate(at + 1);
    key[at] += 1;
    key.extend_from_slice(&pack_trailer(MAX_SEQUENCE, ValueKind::SEEK).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(user_key: &[u8], sequence: u64, kind: ValueKind) -> Vec<u8> {
        InternalKey {
            user_key,
            sequence,
            kind,
        }
        .to_bytes()
    }

    fn separator(start: &[u8], limit: &[u8]) -> Vec<u8> {
        let mut out = start.to_vec();
        shorten_separator(&mut out, limit);
        out
    }

    fn successor(start: &[u8]) -> Vec<u8> {
        let mut out = start.to_vec();
        shorten_successor(&mut out);
        out
    }

    /// The cases of LevelDB's `db/dbformat_test.cc`.
    #[test]
    fn separators_and_successors() {
        use ValueKind::{Deletion, Value};
        let first = |user: &[u8]| key(user, MAX_SEQUENCE, Value);
        let foo = key(b"foo", 100, Value);
        for limit in [
            key(b"foo", 99, Value),
            key(b"foo", 101, Value),
            key(b"foo", 100, Value),
            key(b"foo", 100, Deletion),
            key(b"bar", 99, Value),
            key(b"foobar", 200, Value),
        ] {
            assert_eq!(separator(&foo, &limit), foo);
        }
        assert_eq!(separator(&foo, &key(b"hello", 200, Value)), first(b"g"));
        assert_eq!(
            separator(&key(b"foobar", 100, Value), &key(b"foo", 200, Value)),
            key(b"foobar", 100, Value)
        );
        assert_eq!(successor(&foo), first(b"g"));
        let all_ff = key(b"\xff\xff", 100, Value);
        assert_eq!(successor(&all_ff), all_ff);
    }

    #[test]
    fn short_and_unknown_keys_are_refused() {
        assert!(InternalKey::parse(b"1234567").is_err());
        let mut foreign = key(b"a", 5, ValueKind::Value);
        foreign[1] = 2;
        assert!(matches!(
            InternalKey::parse(&foreign),
            Err(FormatError::Unsupported { offset: 1, .. })
        ));
        assert_eq!(user_key(b"123"), b"");
        assert_eq!(compare_internal(b"123", &foreign), Ordering::Less);
    }

    fn any_key() -> impl Strategy<Value = Vec<u8>> {
        let user = proptest::collection::vec(
            prop_oneof![Just(0_u8), Just(b'a'), Just(b'b'), Just(0xff)],
            0..6,
        );
        (user, 0..5_u64, any::<bool>()).prop_map(|(user, sequence, value)| {
            let kind = if value {
                ValueKind::Value
            } else {
                ValueKind::Deletion
            };
            key(&user, sequence, kind)
        })
    }

    proptest! {
        #[test]
        fn keys_round_trip(user: Vec<u8>, sequence in 0..=MAX_SEQUENCE) {
            let bytes = key(&user, sequence, ValueKind::Value);
            let parsed = InternalKey::parse(&bytes).unwrap();
            prop_assert_eq!(parsed.user_key, &user[..]);
            prop_assert_eq!(parsed.sequence, sequence);
            prop_assert_eq!(parsed.to_bytes(), bytes);
        }

        #[test]
        fn the_order_is_user_key_then_newest_first(a in any_key(), b in any_key()) {
            let order = |k: &[u8]| (user_key(k).to_vec(), std::cmp::Reverse(trailer(k)));
            prop_assert_eq!(compare_internal(&a, &b), order(&a).cmp(&order(&b)));
        }

        #[test]
        fn shortened_keys_lie_between(a in any_key(), b in any_key()) {
            let after = successor(&a);
            prop_assert!(after.len() <= a.len());
            prop_assert!(compare_internal(&after, &a).is_ge());
            if compare_internal(&a, &b).is_lt() {
                let between = separator(&a, &b);
                prop_assert!(between.len() <= a.len());
                prop_assert!(compare_internal(&between, &a).is_ge());
                prop_assert!(compare_internal(&between, &b).is_lt());
            }
        }

        #[test]
        fn any_bytes_are_answered(a: Vec<u8>, b: Vec<u8>) {
            let _ = InternalKey::parse(&a);
            let _ = compare_internal(&a, &b);
            let _ = separator(&a, &b);
            let _ = successor(&a);
        }
    }
}
