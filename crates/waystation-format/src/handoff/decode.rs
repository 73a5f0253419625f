//! Reading a stream.

use super::{
    BODY_BYTES_MAX, CHECKSUM_BYTES, Digest, END, EXPIRING, FRAME_HEAD_BYTES, OPENING, Opening,
    RECORDS,
};
use crate::FormatError;
use crate::batch::TIME_MAX;
use crate::checksum::{extend, unmask};
use crate::varint::{self, Reader};

/// Checks a stream and takes it apart: the head of a frame, its body, the next head, until the end.
///
/// Offsets in its errors count from the first byte of the head or the body at hand.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    chain: u32,
    /// Kind and payload length of the frame whose head was read.
    open: Option<(u8, usize)>,
    has_begun: bool,
    is_over: bool,
    digest: Digest,
    last_key: Option<Vec<u8>>,
}

/// What a frame says.
#[derive(Debug)]
pub enum Frame<'a> {
    /// The first frame.
    Opening(Opening),
    /// Records.
    Records(Records<'a>),
    /// The last frame: what the stream held, which was checked.
    End(Digest),
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The key, without the device's prefix.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// When it expires (microseconds since 1970), if it does. Then it does not count in the digest.
    pub expiry: Option<u64>,
}

/// The records of a frame.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    expire: bool,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (key_bytes, at) = varint::get_u64(self.rest)?;
        let (value_bytes, then) = varint::get_u64(&self.rest[at..])?;
        let mut rest = &self.rest[at + then..];
        let mut expiry = None;
        if self.expire {
            let (time, behind) = rest.split_first_chunk::<8>()?;
            (expiry, rest) = (Some(u64::from_le_bytes(*time)), behind);
        }
        let (key, rest) = rest.split_at_checked(key_bytes as usize)?;
        let (value, rest) = rest.split_at_checked(value_bytes as usize)?;
        self.rest = rest;
        Some(Record { key, value, expiry })
    }
}

impl StreamDecoder {
    /// A decoder that expects a stream's first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the head of the next frame. Returns the length of the body that follows.
    pub fn head(&mut self, head: &[u8; FRAME_HEAD_BYTES]) -> Result<usize, FormatError> {
        let ([fields @ .., _, _, _, _], checksum) = (head, &head[5..]);
        let mut reader = Reader::new(checksum);
        let chain = extend(self.chain, &fields[..]);
        if unmask(reader.fixed_u32("checksum")?) != chain {
            return Err(FormatError::checksum(5, "a frame's head"));
        }
        let mut reader = Reader::new(&fields[..]);
        let length = reader.fixed_u32("length")?;
        let kind = reader.u8("kind")?;
        if length > BODY_BYTES_MAX {
            return Err(FormatError::malformed(0, "a frame is too long"));
        }
        self.check_order(kind)?;
        self.chain = chain;
        self.open = Some((kind, length as usize));
        Ok(length as usize + CHECKSUM_BYTES)
    }

    fn check_order(&self, kind: u8) -> Result<(), FormatError> {
        let reason = match (kind, self.has_begun) {
            _ if self.is_over || self.open.is_some() => "a frame follows the last one",
            (OPENING, true) => "a second stream begins",
            (RECORDS | EXPIRING | END, false) => "the first frame is missing",
            (OPENING | RECORDS | EXPIRING | END, _) => return Ok(()),
            _ => return Err(FormatError::unsupported(4, "a frame's kind")),
        };
        Err(FormatError::malformed(4, reason))
    }

    /// Takes the body of the frame whose head came last.
    pub fn body<'a>(&mut self, body: &'a [u8]) -> Result<Frame<'a>, FormatError> {
        let Some((payload, checksum)) = body.split_last_chunk::<CHECKSUM_BYTES>() else {
            return Err(FormatError::truncated(body.len(), "a frame"));
        };
        let Some((kind, _)) = self.open.filter(|(_, length)| *length == payload.len()) else {
            return Err(FormatError::truncated(body.len(), "a frame"));
        };
        let chain = extend(self.chain, payload);
        if unmask(u32::from_le_bytes(*checksum)) != chain {
            return Err(FormatError::checksum(payload.len(), "a frame's body"));
        }
        self.chain = chain;
        self.open = None;
        match kind {
            OPENING => {
                self.has_begun = true;
                Opening::decode(payload).map(Frame::Opening)
            }
            RECORDS | EXPIRING => {
                let records = Records {
                    rest: payload,
                    expire: kind == EXPIRING,
                };
                self.check_records(records.clone())?;
                Ok(Frame::Records(records))
            }
            _ => self.end(payload),
        }
    }

    fn end<'a>(&mut self, payload: &[u8]) -> Result<Frame<'a>, FormatError> {
        let mut reader = Reader::new(payload);
        let digest = Digest::take(&mut reader)?;
        super::ticket::refuse_rest(&reader)?;
        if digest != self.digest {
            let reason = "the stream does not hold what its end says";
            return Err(FormatError::malformed(0, reason));
        }
        self.is_over = true;
        Ok(Frame::End(digest))
    }

    /// Checks that the payload is records and nothing else, with ascending keys.
    fn check_records(&mut self, mut records: Records<'_>) -> Result<(), FormatError> {
        let length = records.rest.len();
        let before = self.last_key.take();
        let mut last = before.as_deref();
        while let Some(Record { key, value, expiry }) = records.next() {
            let offset = length - records.rest.len();
            if last.is_some_and(|last| last >= key) {
                return Err(FormatError::malformed(offset, "keys do not ascend"));
            }
            match expiry {
                None => self.digest.add(key, value),
                Some(time) if time > TIME_MAX => {
                    return Err(FormatError::malformed(offset, "a time is out of range"));
                }
                Some(_) => {}
            }
            last = Some(key);
        }
        if !records.rest.is_empty() {
            let offset = length - records.rest.len();
            return Err(FormatError::malformed(offset, "a record does not end"));
        }
        self.last_key = last.map(<[u8]>::to_vec);
        Ok(())
    }
}
