//! The source's side: a frozen device as a stream.

use super::super::{Db, DbIterator, IterOptions};
use super::{Digest, Ticket};
use crate::devices::handoff::StreamReader;
use crate::error::Result;
use std::io::{self, Read};
use waystation_format::handoff::{Opening, StreamEncoder};

/// A device on its way out, as the bytes of a stream (docs/formats/handoff.md). Nothing is lost if it is dropped: the
/// device stays frozen, and another export begins the stream anew.
pub struct Export<'a> {
    db: &'a Db,
    ticket: Ticket,
    prefix: Vec<u8>,
    entries: DbIterator,
    encoder: StreamEncoder,
    /// How much of the encoded bytes was read.
    read_bytes: usize,
    digest: Option<Digest>,
}

impl<'a> Export<'a> {
    /// The stream of `ticket`, whose freeze was looked at; `None` if the hand-off has ended.
    pub(super) fn open(db: &'a Db, ticket: Ticket) -> Result<Option<Self>> {
        let handoff = db.core.handoff()?;
        let upper = handoff.context.upper;
        let prefix = handoff.context.prefix_of(&ticket.device)?;
        // With the freeze everything that was written before it is visible.
        db.core.log.wait_visible(ticket.sequence);
        let options = IterOptions {
            prefix: Some(prefix.clone()),
            ..IterOptions::default()
        };
        let mut entries = db.iter(options)?;
        entries.seek_to_first()?;
        // If the hand-off has not ended by now, the cursor was opened before its end, and sees nothing behind that.
        let (ours, _) = handoff.context.look(|_| handoff.open_ticket(&prefix));
        if ours.as_ref() != Some(&ticket) {
            return Ok(None);
        }
        let (finished_below, open) = upper.finished_below(&ticket);
        let opening = Opening {
            ticket: ticket.clone(),
            extractor: upper.table.extractor().to_string(),
            finished_below,
            open,
        };
        Ok(Some(Self {
            db,
            ticket,
            prefix,
            entries,
            encoder: StreamEncoder::new(&opening),
            read_bytes: 0,
            digest: None,
        }))
    }

    /// The hand-off that a stream belongs to, read from its beginning.
    ///
    /// # Errors
    /// [`DeviceError::Stream`](crate::DeviceError::Stream) if it is damaged, or none.
    pub fn ticket_of(mut stream: impl Read) -> Result<Ticket> {
        let opening = StreamReader::new(&mut stream).opening()?;
        Ok(opening.ticket)
    }

    /// The name of this hand-off.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// What the stream held, once it was read to its end.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Reads to the end.
    pub(super) fn read_through(&mut self) -> Result<Digest> {
        loop {
            if let Some(digest) = self.digest {
                return Ok(digest);
            }
            self.encoder.clear();
            self.encode_more()?;
        }
    }

    /// Encodes until there is something to read.
    fn encode_more(&mut self) -> Result<()> {
        while self.encoder.bytes().is_empty() {
            if self.entries.valid() {
                let key = &self.entries.key()[self.prefix.len()..];
                match self.entries.expiry()? {
                    None => self.encoder.push(key, self.entries.value()),
                    Some(expiry) => self.encoder.push_until(key, self.entries.value(), expiry),
                }
                self.entries.next()?;
                continue;
            }
            let digest = self.encoder.finish();
            let upper = &self.db.core.known_devices()?.upper;
            (upper.table).note_digest(&self.prefix, self.ticket.sequence, digest);
            self.digest = Some(digest);
        }
        Ok(())
    }
}

impl Read for Export<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.read_bytes == self.encoder.bytes().len() && self.digest.is_none() {
            self.encoder.clear();
            self.read_bytes = 0;
            self.encode_more().map_err(io::Error::other)?;
        }
        let length = (&self.encoder.bytes()[self.read_bytes..]).read(out)?;
        self.read_bytes += length;
        Ok(length)
    }
}

impl std::fmt::Debug for Export<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Export")
            .field("ticket", &self.ticket)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}
