//! Reading a stream frame by frame from wherever it comes.

use super::progress::Watched;
use crate::error::{DeviceError, Error, Result};
use crate::options::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use std::io::{ErrorKind, Read};
use waystation_format::FormatError;
use waystation_format::handoff::{FRAME_HEAD_BYTES, Frame, Opening, StreamDecoder};

/// A stream that is being read. It is read no further than its end.
pub(crate) struct StreamReader<'a> {
    pub(super) source: Watched<'a>,
    decoder: StreamDecoder,
    body: Vec<u8>,
    /// Where in the stream the next frame begins.
    offset: u64,
}

impl<'a> StreamReader<'a> {
    pub(crate) fn new(source: &'a mut dyn Read) -> Self {
        Self {
            source: Watched::new(source),
            decoder: StreamDecoder::new(),
            body: Vec::new(),
            offset: 0,
        }
    }

    /// What the stream begins with.
    pub(crate) fn opening(&mut self) -> Result<Opening> {
        match self.frame()? {
            Frame::Opening(opening) => Ok(opening),
            _ => Err(damaged(0, "it does not begin with its first frame")),
        }
    }

    /// The next frame.
    pub(super) fn frame(&mut self) -> Result<Frame<'_>> {
        let start = self.offset;
        let within =
            |base: u64| move |error: FormatError| damaged(base + error.offset(), error.reason());
        let mut head = [0; FRAME_HEAD_BYTES];
        fill(&mut self.source, &mut head, start)?;
        let length = self.decoder.head(&head).map_err(within(start))?;
        let base = start + FRAME_HEAD_BYTES as u64;
        self.body.clear();
        // Memory is taken as the bytes come, not as the head promises them.
        let mut limited = (&mut self.source).take(length as u64);
        let read = limited.read_to_end(&mut self.body);
        read.map_err(|error| unreadable(error, base))?;
        if self.body.len() < length {
            return Err(damaged(base + self.body.len() as u64, "it ends early"));
        }
        self.offset = base + length as u64;
        let frame = self.decoder.body(&self.body).map_err(within(base))?;
        if let Frame::Records(records) = &frame
            && records.clone().any(|it| is_too_long(it.key, it.value))
        {
            return Err(damaged(base, "a key or a value in it is over its limit"));
        }
        Ok(frame)
    }
}

fn is_too_long(key: &[u8], value: &[u8]) -> bool {
    key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX
}

fn fill(source: &mut dyn Read, bytes: &mut [u8], offset: u64) -> Result<()> {
    source.read_exact(bytes).map_err(|error| {
        if error.kind() == ErrorKind::UnexpectedEof {
            damaged(offset, "it ends early")
        } else {
            unreadable(error, offset)
        }
    })
}

pub(super) fn damaged(offset: u64, reason: &str) -> Error {
    Error::Device(DeviceError::Stream {
        offset,
        reason: reason.to_owned(),
    })
}

/// The error of whatever the stream is read from: our own, if it is another engine of this process.
fn unreadable(error: std::io::Error, offset: u64) -> Error {
    match error.downcast::<Error>() {
        Ok(own) => own,
        Err(error) => damaged(offset, &error.to_string()),
    }
}
