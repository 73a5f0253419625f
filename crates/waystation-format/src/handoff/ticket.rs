//! The names of a hand-off, of its success and of its end.
//!
//! ```text
//! ticket    source 16 bytes | sequence u64 | tenure u64 | promise u8 | destination | device
//! alone     magic 8 bytes | ticket | for a receipt: records u64, bytes u64, hash u64 | checksum u32
//! ```

use super::Digest;
use crate::FormatError;
use crate::checksum::{crc32c, mask};
use crate::key::MAX_SEQUENCE;
use crate::varint::{Reader, put_length_prefixed};
use std::fmt;

/// No device is handed on more often: each time takes a sequence number.
const TENURE_MAX: u64 = MAX_SEQUENCE;

const TICKET_MAGIC: [u8; 8] = *b"WSTICKT1";
const RECEIPT_MAGIC: [u8; 8] = *b"WSRECPT1";
const REFUSAL_MAGIC: [u8; 8] = *b"WSREFUS1";

/// Names an engine: made once for a directory, the same for as long as it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineId(pub [u8; 16]);

impl EngineId {
    /// The first 16 of `bytes`, padded with zeros if there are fewer.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut id = [0; 16];
        for (to, from) in id.iter_mut().zip(bytes) {
            *to = *from;
        }
        Self(id)
    }
}

/// In hexadecimal digits.
impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Names one hand-off, among those of all engines and for all time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The engine that has the device.
    pub source: EngineId,
    /// The engine that is to have it, as the source's user calls it.
    pub destination: String,
    /// The device's name.
    pub device: Vec<u8>,
    /// The sequence number, at the source, at which the device was frozen.
    pub sequence: u64,
    /// How many engines the device has been handed on by, the source not included.
    pub tenure: u64,
    /// Whether every step survives a power loss, or else the death of the process.
    pub survives_power_loss: bool,
}

/// The destination's word that it has the device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The hand-off.
    pub ticket: Ticket,
    /// What it took.
    pub digest: Digest,
}

/// The destination's word that it will never admit a ticket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// The hand-off.
    pub ticket: Ticket,
}

impl Ticket {
    /// Refuses numbers that no engine gives out.
    pub fn check(&self) -> Result<(), FormatError> {
        let reason = if self.sequence > MAX_SEQUENCE {
            "the ticket's sequence number is past the last there can be"
        } else if self.tenure > TENURE_MAX {
            "the ticket's tenure is higher than it can be"
        } else {
            return Ok(());
        };
        Err(FormatError::malformed(0, reason))
    }

    /// The tenure of the device once it is with the destination.
    pub fn next_tenure(&self) -> u64 {
        self.tenure.saturating_add(1).min(TENURE_MAX)
    }

    /// Appends its fields, to be read by [`Ticket::take`].
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.source.0);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.tenure.to_le_bytes());
        out.push(u8::from(self.survives_power_loss));
        put_length_prefixed(out, self.destination.as_bytes());
        put_length_prefixed(out, &self.device);
    }

    /// Reads the fields that [`Ticket::put`] wrote.
    pub fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let source = EngineId::from_bytes(reader.take(16, "the source's identity")?);
        let sequence = reader.fixed_u64("the ticket's sequence number")?;
        let tenure = reader.fixed_u64("the ticket's tenure")?;
        let survives_power_loss = match reader.u8("the ticket's promise")? {
            0 => false,
            1 => true,
            _ => {
                let at = reader.offset();
                return Err(FormatError::unsupported(at, "the ticket's promise"));
            }
        };
        Ok(Self {
            source,
            destination: text(reader, "the ticket's destination")?,
            device: reader.length_prefixed("the ticket's device")?.to_vec(),
            sequence,
            tenure,
            survives_power_loss,
        })
    }

    /// The ticket as bytes that check themselves.
    pub fn to_bytes(&self) -> Vec<u8> {
        sealed(TICKET_MAGIC, |out| self.put(out))
    }

    /// Reads [`Ticket::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        opened(TICKET_MAGIC, bytes, Self::take)
    }
}

impl Receipt {
    /// The receipt as bytes that check themselves.
    pub fn to_bytes(&self) -> Vec<u8> {
        sealed(RECEIPT_MAGIC, |out| {
            self.ticket.put(out);
            self.digest.put(out);
        })
    }

    /// Reads [`Receipt::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        opened(RECEIPT_MAGIC, bytes, |reader| {
            Ok(Self {
                ticket: Ticket::take(reader)?,
                digest: Digest::take(reader)?,
            })
        })
    }
}

impl Refusal {
    /// The refusal as bytes that check themselves.
    pub fn to_bytes(&self) -> Vec<u8> {
        sealed(REFUSAL_MAGIC, |out| self.ticket.put(out))
    }

    /// Reads [`Refusal::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        opened(REFUSAL_MAGIC, bytes, |reader| {
            Ticket::take(reader).map(|ticket| Self { ticket })
        })
    }
}

fn sealed(magic: [u8; 8], fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::from(magic);
    fill(&mut out);
    let checksum = mask(crc32c(&out));
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

fn opened<T>(
    magic: [u8; 8],
    bytes: &[u8],
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, FormatError>,
) -> Result<T, FormatError> {
    let Some((covered, checksum)) = bytes.split_last_chunk::<4>() else {
        return Err(FormatError::truncated(bytes.len(), "the checksum"));
    };
    let Some(fields) = covered.strip_prefix(&magic) else {
        return Err(FormatError::malformed(0, "the magic number is another one"));
    };
    if mask(crc32c(covered)) != u32::from_le_bytes(*checksum) {
        return Err(FormatError::checksum(covered.len(), "all before it"));
    }
    let mut reader = Reader::new(fields);
    let value = read(&mut reader)?;
    refuse_rest(&reader)?;
    Ok(value)
}

/// Refuses bytes behind the last field.
pub(super) fn refuse_rest(reader: &Reader<'_>) -> Result<(), FormatError> {
    if reader.is_empty() {
        Ok(())
    } else {
        let reason = "bytes follow the last field";
        Err(FormatError::malformed(reader.offset(), reason))
    }
}

/// A string with its length before it.
pub(super) fn text(reader: &mut Reader<'_>, what: &'static str) -> Result<String, FormatError> {
    let at = reader.offset();
    let bytes = reader.length_prefixed(what)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| FormatError::malformed(at, what))
}
