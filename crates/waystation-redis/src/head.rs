//! The head of a key: what it is, when it is over, and a string's bytes or a collection's count.
//!
//! ```text
//! head = kind (bits 0 to 3), 0x80: it has a time to live | [u64 big-endian: over at, milliseconds since 1970] | rest
//! rest = a string's bytes | u64 little-endian: entries | of a time series: `series.rs`
//! ```

use crate::encoding::{in_order, of_order};

/// What a key is. The numbers are stored: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    String = 0,
    Hash = 1,
    SortedSet = 2,
    Set = 3,
    Series = 4,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::String,
            1 => Self::Hash,
            2 => Self::SortedSet,
            3 => Self::Set,
            4 => Self::Series,
            _ => return None,
        })
    }

    /// As `TYPE` says it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::SortedSet => "zset",
            Self::Set => "set",
            Self::Series => "TSDB-TYPE",
        }
    }
}

const KIND_BITS: u8 = 0x0f;
const HAS_TIME: u8 = 0x80;

/// A head that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    /// When the key is over (milliseconds since 1970).
    pub(crate) over_at: Option<u64>,
    bytes: Vec<u8>,
    rest: usize,
}

impl Head {
    /// `None`: these bytes are no head.
    pub(crate) fn read(bytes: Vec<u8>) -> Option<Self> {
        let first = *bytes.first()?;
        let kind = Kind::of(first & KIND_BITS)?;
        let (over_at, rest) = match first & !KIND_BITS {
            0 => (None, 1),
            HAS_TIME => {
                let time = bytes.get(1..)?.first_chunk::<8>()?;
                (Some(of_order(*time)), 9)
            }
            _ => return None,
        };
        Some(Self {
            kind,
            over_at,
            bytes,
            rest,
        })
    }

    /// The head of a key that has none of its own.
    pub(crate) fn plain(kind: Kind) -> Self {
        Self {
            kind,
            over_at: None,
            bytes: vec![kind as u8],
            rest: 1,
        }
    }

    /// Whether it is over at `now`.
    pub(crate) fn is_over(&self, now: u64) -> bool {
        self.over_at.is_some_and(|over_at| over_at <= now)
    }

    /// A string's bytes.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.rest..]
    }

    /// The entries of a collection.
    pub(crate) fn count(&self) -> u64 {
        let count = self.rest().first_chunk::<8>();
        count.map_or(0, |it| u64::from_le_bytes(*it))
    }
}

/// Writes a head.
pub(crate) fn write(kind: Kind, over_at: Option<u64>, rest: &[u8], head: &mut Vec<u8>) {
    head.clear();
    match over_at {
        None => head.push(kind as u8),
        Some(over_at) => {
            head.push(kind as u8 | HAS_TIME);
            head.extend_from_slice(&in_order(over_at));
        }
    }
    head.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_back() {
        let mut bytes = Vec::new();
        for over_at in [None, Some(5)] {
            write(Kind::Hash, over_at, &7u64.to_le_bytes(), &mut bytes);
            let head = Head::read(bytes.clone()).unwrap();
            assert_eq!(
                (head.kind, head.over_at, head.count()),
                (Kind::Hash, over_at, 7)
            );
            assert_eq!(head.is_over(5), over_at.is_some());
            assert!(!head.is_over(4));
        }
        for wrong in [&b""[..], b"\x0f", b"\x40", b"\x80abc"] {
            assert_eq!(Head::read(wrong.to_vec()), None);
        }
    }
}
