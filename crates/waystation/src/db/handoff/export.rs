//! The source's side: a frozen device as a stream.

use super::super::devices::Logged;
use super::super::{Db, DbIterator, IterOptions};
use super::stream::StreamReader;
use super::{Digest, Ticket};
use crate::error::Result;
use std::io::{self, Read};
use waystation_format::handoff::{Opening, StreamEncoder};

/// A device on its way out, as the bytes of a stream (docs/formats/handoff.md). Nothing is lost if it is dropped: the
/// device stays frozen, and another export begins the stream anew.
pub struct Export<'a> {
    db: &'a Db,
    ticket: Ticket,
    /// Where the freeze is in the log, if it was logged for this export.
    frozen: Option<Logged>,
    prefix: Vec<u8>,
    entries: DbIterator,
    encoder: StreamEncoder,
    /// How much of what is encoded was read.
    read_bytes: usize,
    digest: Option<Digest>,
}

impl<'a> Export<'a> {
    pub(super) fn new(db: &'a Db, ticket: Ticket, frozen: Option<Logged>) -> Result<Self> {
        let (devices, prefix) = db.core.prefix_of(&ticket.device)?;
        let options = IterOptions {
            prefix: Some(prefix.clone()),
            ..IterOptions::default()
        };
        let mut entries = db.iter(options)?;
        entries.seek_to_first()?;
        let opening = Opening {
            ticket: ticket.clone(),
            extractor: devices.upper.table.extractor().to_string(),
            finished_below: devices.upper.finished_below(&ticket),
        };
        Ok(Self {
            db,
            ticket,
            frozen,
            prefix,
            entries,
            encoder: StreamEncoder::new(&opening),
            read_bytes: 0,
            digest: None,
        })
    }

    /// The hand-off that a stream belongs to, read from its beginning.
    ///
    /// # Errors
    /// [`Error::Stream`](crate::Error::Stream) if it is damaged, or none.
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

    /// Encodes until there is something to read. At the end the freeze is durable before anybody can read on.
    fn encode_more(&mut self) -> Result<()> {
        while self.encoder.bytes().is_empty() {
            if self.entries.valid() {
                let key = &self.entries.key()[self.prefix.len()..];
                self.encoder.push(key, self.entries.value());
                self.entries.next()?;
                continue;
            }
            let core = &self.db.core;
            let upper = &core.known_devices()?.upper;
            let ticket = &self.ticket;
            if ticket.survives_power_loss && !upper.is_durable(ticket.sequence) {
                core.keep_promise(ticket, self.frozen.as_ref())?;
                upper.note_durable(ticket.sequence);
            }
            let digest = self.encoder.finish();
            (upper.table).note_digest(&self.prefix, ticket.sequence, digest);
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
