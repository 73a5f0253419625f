//! Sequences: how far a reader of a database's changes has come.
//!
//! ```text
//!   17-bVJwCg0      the latest position, for people and progress bars; then, for the database:
//!                   the database's instance u32, the position in each shard (varints), as base64url
//! ```
//!
//! The shards of a database share one clock, so positions are comparable; but an update that took its sequence first may
//! become visible last. So a reader remembers a position for each shard, and misses nothing.

use crate::error::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;
use waystation_format::varint::{Reader, put_u64};

/// A place in the changes of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Tells databases of one name apart.
    pub(super) instance: u32,
    /// The latest sequence that was read of each shard.
    pub(super) positions: Vec<u64>,
}

impl Sequence {
    /// The place before all changes.
    pub(super) fn zero(instance: u32, shards: usize) -> Self {
        let positions = vec![0; shards];
        Self {
            instance,
            positions,
        }
    }

    /// Reads `text` for a database of `shards` shards. A sequence of another instance is the place before all changes:
    /// the reader has seen none of these.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if it is no sequence.
    pub(super) fn parse(text: &str, instance: u32, shards: usize) -> Result<Self> {
        let malformed =
            || Error::BadRequest("Malformed sequence supplied in 'since' parameter.".into());
        let text = text.trim_matches('"');
        if let Ok(position) = text.parse::<u64>() {
            let positions = vec![position; shards];
            return Ok(Self {
                instance,
                positions,
            });
        }
        let (number, opaque) = text.split_once('-').ok_or_else(malformed)?;
        number.parse::<u64>().map_err(|_| malformed())?;
        let bytes = URL_SAFE_NO_PAD.decode(opaque).map_err(|_| malformed())?;
        let (name, rest) = bytes.split_first_chunk().ok_or_else(malformed)?;
        if u32::from_le_bytes(*name) != instance {
            return Ok(Self::zero(instance, shards));
        }
        let mut reader = Reader::new(rest);
        let mut positions = Vec::new();
        while !reader.is_empty() {
            positions.push(reader.var_u64("position").map_err(|_| malformed())?);
        }
        if positions.len() != shards {
            return Err(malformed());
        }
        Ok(Self {
            instance,
            positions,
        })
    }

    /// The latest of its positions.
    pub fn number(&self) -> u64 {
        self.positions.iter().copied().max().unwrap_or_default()
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.instance.to_le_bytes().to_vec();
        for position in &self.positions {
            put_u64(&mut bytes, *position);
        }
        write!(f, "{}-{}", self.number(), URL_SAFE_NO_PAD.encode(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_read_back() -> Result<()> {
        let sequence = Sequence {
            instance: 77,
            positions: vec![5, 300],
        };
        let text = sequence.to_string();
        assert!(text.starts_with("300-"), "{text}");
        assert_eq!(Sequence::parse(&text, 77, 2)?, sequence);
        assert_eq!(Sequence::parse(&format!("\"{text}\""), 77, 2)?, sequence);
        assert_eq!(Sequence::parse(&text, 78, 2)?, Sequence::zero(78, 2));
        assert_eq!(Sequence::parse("0", 77, 2)?, Sequence::zero(77, 2));
        assert_eq!(Sequence::parse("9", 77, 2)?.positions, [9, 9]);
        Ok(())
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "x", "1-", "-", "1-!!", "x-AAAA", "1-TQAAAAX_", "-1"] {
            let error = Sequence::parse(text, 77, 2).expect_err(text);
            assert_eq!(error.word(), "bad_request", "{text}");
        }
    }
}
