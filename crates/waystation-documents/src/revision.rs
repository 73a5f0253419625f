//! Revisions: the names of a document's versions.
//!
//! A revision is a generation and an identifier, written `2-7051cbe5c8faecd085a3fa619e6e6337`. Replicas compare
//! revisions to choose a winner, so the order is part of CouchDB's contract: generation first, then the
//! identifier's bytes.

use crate::error::{Error, Result};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use waystation_format::FormatError;
use waystation_format::varint::{Reader, put_length_prefixed, put_u64};

/// Bytes of an identifier that this engine makes.
pub const DIGEST_BYTES: usize = 16;

/// The part of a revision behind the dash.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RevisionId {
    /// A digest, written as 32 hexadecimal digits.
    Digest([u8; DIGEST_BYTES]),
    /// A text that a replication partner chose.
    Text(Box<str>),
}

impl RevisionId {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Digest(digest) => digest,
            Self::Text(text) => text.as_bytes(),
        }
    }
}

impl Ord for RevisionId {
    fn cmp(&self, other: &Self) -> Ordering {
        let is_text = |id: &Self| matches!(id, Self::Text(_));
        let by_bytes = self.bytes().cmp(other.bytes());
        by_bytes.then_with(|| is_text(self).cmp(&is_text(other)))
    }
}

impl PartialOrd for RevisionId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for RevisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digest(digest) => digest.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl FromStr for RevisionId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.len() != 2 * DIGEST_BYTES {
            return Ok(Self::Text(text.into()));
        }
        let mut digest = [0; DIGEST_BYTES];
        for (byte, digits) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| invalid())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| invalid())?;
        }
        Ok(Self::Digest(digest))
    }
}

/// The name of one version of a document.
///
/// ```
/// use waystation_documents::Revision;
/// let older: Revision = "1-967a00dff5e02add41819138abb3284d".parse()?;
/// let newer: Revision = "2-7051cbe5c8faecd085a3fa619e6e6337".parse()?;
/// assert!(newer > older);
/// assert_eq!(newer.to_string(), "2-7051cbe5c8faecd085a3fa619e6e6337");
/// # Ok::<(), waystation_documents::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    /// How many updates led to this version, counted from 1; 0 for local documents, whose revisions have no history.
    pub generation: u64,
    /// Tells versions of one generation apart.
    pub id: RevisionId,
}

impl Revision {
    /// The revision of `generation` with the digest `digest`.
    pub fn digest(generation: u64, digest: [u8; DIGEST_BYTES]) -> Self {
        let id = RevisionId::Digest(digest);
        Self { generation, id }
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_u64(out, self.generation);
        match &self.id {
            RevisionId::Digest(digest) => {
                out.push(0);
                out.extend_from_slice(digest);
            }
            RevisionId::Text(text) => {
                out.push(1);
                put_length_prefixed(out, text.as_bytes());
            }
        }
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let generation = reader.var_u64("generation")?;
        let offset = reader.offset() as u64;
        let malformed = |reason| FormatError::Malformed { offset, reason };
        let id = match reader.u8("kind of a revision")? {
            0 => {
                let mut digest = [0; DIGEST_BYTES];
                digest.copy_from_slice(reader.take(DIGEST_BYTES, "revision")?);
                RevisionId::Digest(digest)
            }
            1 => {
                let text = std::str::from_utf8(reader.length_prefixed("revision")?)
                    .map_err(|_| malformed("a revision is no text"))?;
                RevisionId::Text(text.into())
            }
            _ => return Err(malformed("a revision is of an unknown kind")),
        };
        Ok(Self { generation, id })
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.generation, self.id)
    }
}

impl FromStr for Revision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (generation, id) = text.split_once('-').ok_or_else(invalid)?;
        let is_number = !generation.is_empty() && generation.bytes().all(|it| it.is_ascii_digit());
        let generation = generation.parse().ok().filter(|_| is_number);
        Ok(Self {
            generation: generation.ok_or_else(invalid)?,
            id: id.parse()?,
        })
    }
}

fn invalid() -> Error {
    Error::BadRequest("Invalid rev format".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_read_back() -> Result<()> {
        for text in [
            "1-967a00dff5e02add41819138abb3284d",
            "12-x",
            "3-a-b",
            "0-1",
            "1-",
        ] {
            let revision: Revision = text.parse()?;
            assert_eq!(revision.to_string(), text);
            let mut bytes = Vec::new();
            revision.put(&mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(Revision::take(&mut reader).ok(), Some(revision));
            for cut in 0..bytes.len() {
                assert!(Revision::take(&mut Reader::new(&bytes[..cut])).is_err());
            }
        }
        Ok(())
    }

    #[test]
    fn other_texts_are_refused() {
        let no_hex = "1-967a00dff5e02add41819138abb3284z";
        for text in [
            "",
            "1",
            "-a",
            "x-a",
            "+1-a",
            no_hex,
            "99999999999999999999-a",
        ] {
            assert!(text.parse::<Revision>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_order_is_generation_then_bytes() -> Result<()> {
        let ordered = ["1-b", "2-a", "2-b", "10-a"];
        for pair in ordered.windows(2) {
            assert!(pair[0].parse::<Revision>()? < pair[1].parse::<Revision>()?);
        }
        Ok(())
    }
}
