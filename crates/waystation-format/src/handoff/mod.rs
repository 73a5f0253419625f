//! Handing a device from one engine to another: what names a hand-off, and the stream that carries the data.
//!
//! A hand-off is named by its [`Ticket`]; the engine that took the device answers with a [`Receipt`], one that never
//! will with a [`Refusal`]. The data travels as a stream of frames ([`StreamEncoder`], [`StreamDecoder`]) in which
//! nothing can be cut, altered, swapped or taken from another stream without being noticed: each frame's checksums
//! go on from those of the frame before, and the first frame holds the ticket. The bytes: docs/formats/handoff.md.

mod decode;
mod digest;
mod encode;
mod open;
#[cfg(test)]
mod tests;
mod ticket;

pub use decode::{Frame, Record, Records, StreamDecoder};
pub use digest::Digest;
pub use encode::StreamEncoder;
pub use open::{OPEN_MAX, put_open, take_open};
pub use ticket::{EngineId, Receipt, Refusal, Ticket};

use crate::FormatError;
use crate::varint::{Reader, put_length_prefixed};

/// The first bytes of a stream's first frame.
pub const STREAM_MAGIC: &[u8; 8] = b"WSHANDOF";
/// The format of streams; one whose opening lists open hand-offs has the second. Never reuse a number.
const STREAM_FORMAT: u32 = 1;
const STREAM_FORMAT_WITH_OPEN: u32 = 2;
/// The bytes before a frame's body: its length, its kind and their checksum.
pub const FRAME_HEAD_BYTES: usize = 9;
/// The bytes of checksum at the end of a frame's body.
const CHECKSUM_BYTES: usize = 4;
/// A frame of records is closed once it has this many bytes; only a single longer record makes it longer.
const FRAME_BYTES: usize = 64 << 10;
/// The longest body that a decoder accepts: a record with the longest key and value that the engine takes.
const BODY_BYTES_MAX: u32 = 258 << 20;

/// The kinds of frames. The numbers travel: never renumber.
const OPENING: u8 = 1;
const RECORDS: u8 = 2;
const END: u8 = 3;
const EXPIRING: u8 = 4;

/// What a stream begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// The hand-off it belongs to.
    pub ticket: Ticket,
    /// The name of the source's device extractor; keys travel without the prefix that it finds.
    pub extractor: String,
    /// Of the hand-offs from this source to this destination all with a lower sequence number than this are over
    /// at the source, for as long as the ticket promises, but for those in `open`.
    pub finished_below: u64,
    /// Lower sequence numbers of hand-offs that are not over, in ascending order; at most [`OPEN_MAX`].
    pub open: Vec<u64>,
}

impl Opening {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::from(STREAM_MAGIC);
        let format = if self.open.is_empty() {
            STREAM_FORMAT
        } else {
            STREAM_FORMAT_WITH_OPEN
        };
        out.extend_from_slice(&format.to_le_bytes());
        self.ticket.put(&mut out);
        put_length_prefixed(&mut out, self.extractor.as_bytes());
        out.extend_from_slice(&self.finished_below.to_le_bytes());
        if !self.open.is_empty() {
            put_open(&self.open, &mut out);
        }
        out
    }

    fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        let Some(fields) = payload.strip_prefix(STREAM_MAGIC) else {
            return Err(FormatError::malformed(0, "this is no hand-off stream"));
        };
        let mut reader = Reader::new(fields);
        let format = reader.fixed_u32("format")?;
        if !(STREAM_FORMAT..=STREAM_FORMAT_WITH_OPEN).contains(&format) {
            return Err(FormatError::unsupported(
                STREAM_MAGIC.len(),
                "the stream's format",
            ));
        }
        let mut opening = Self {
            ticket: Ticket::take(&mut reader)?,
            extractor: ticket::text(&mut reader, "the extractor's name")?,
            finished_below: reader.fixed_u64("the finished hand-offs")?,
            open: Vec::new(),
        };
        if format == STREAM_FORMAT_WITH_OPEN {
            opening.open = take_open(&mut reader, opening.finished_below)?;
        }
        ticket::refuse_rest(&reader)?;
        opening.ticket.check()?;
        if opening.finished_below > opening.ticket.sequence {
            let reason = "it says of hand-offs after it that they are over";
            return Err(FormatError::malformed(0, reason));
        }
        Ok(opening)
    }
}
