//! Records, put back together from the blocks of the log's stream.
//!
//! Blocks are given in stream order. A record that runs over the end of a block goes on behind the next
//! block's header. Where the stream was entered in the middle, or has a gap, the rest of a record whose start
//! was not seen is passed over: the block says where the first record starts that begins in it.

use waystation_format::log::{BLOCK_HEADER_BYTES, RECORD_HEADER_BYTES, RecordHeader, Seal};

/// A record as it stands in the log.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    /// Where it starts in the stream.
    pub(crate) lsn: u64,
    pub(crate) header: RecordHeader,
    /// The operations of a batch.
    pub(crate) payload: &'a [u8],
    /// Whether its checksum holds for this place and this life of the database.
    pub(crate) is_sound: bool,
}

/// What the stream holds next.
#[derive(Debug)]
pub(crate) enum StreamItem<'a> {
    Record(Record<'a>),
    /// Bytes that cannot be a record's header; the rest of the block is passed over.
    Nonsense {
        lsn: u64,
    },
}

/// Puts records together.
#[derive(Debug, Default)]
pub(crate) struct StreamReader {
    /// The bytes so far of a record that runs over the end of a block.
    partial: Vec<u8>,
    partial_lsn: u64,
    /// Where the next block starts, if nothing is missing.
    next_lsn: u64,
    incarnation: u64,
}

impl StreamReader {
    /// Whether the last block given ended within a record.
    pub(crate) fn is_within_record(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Takes the next whole block, header included, and hands out what ends in it.
    pub(crate) fn block(
        &mut self,
        seal: &Seal,
        block: &[u8],
        sink: &mut dyn FnMut(StreamItem<'_>),
    ) {
        let used = (seal.used as usize).min(block.len());
        let follows = self.next_lsn == seal.start_lsn && self.incarnation == seal.incarnation;
        let mut position = BLOCK_HEADER_BYTES;
        if !follows || self.partial.is_empty() {
            self.partial.clear();
            position = match seal.first_record {
                0 => used,
                offset => offset as usize,
            };
        }
        self.next_lsn = seal.end_lsn();
        self.incarnation = seal.incarnation;

        if !self.partial.is_empty() {
            position += self.extend_partial(block.get(position..used).unwrap_or_default(), sink);
        }
        while let Some(rest) = block.get(position..used)
            && rest.len() >= RECORD_HEADER_BYTES
        {
            let lsn = seal.start_lsn + position as u64;
            let Some(header) = RecordHeader::peek(&rest[..RECORD_HEADER_BYTES]) else {
                sink(StreamItem::Nonsense { lsn });
                return;
            };
            let length = RECORD_HEADER_BYTES + header.payload_bytes as usize;
            if length > rest.len() {
                rest.clone_into(&mut self.partial);
                self.partial_lsn = lsn;
                return;
            }
            emit(&rest[..length], header, lsn, self.incarnation, sink);
            position += length;
        }
    }

    /// Continues the partial record with `bytes`; how many of them were its own.
    fn extend_partial(&mut self, bytes: &[u8], sink: &mut dyn FnMut(StreamItem<'_>)) -> usize {
        let Some(header) = RecordHeader::peek(&self.partial) else {
            self.partial.clear();
            return bytes.len();
        };
        let missing = RECORD_HEADER_BYTES + header.payload_bytes as usize - self.partial.len();
        let taken = missing.min(bytes.len());
        self.partial.extend_from_slice(&bytes[..taken]);
        if taken == missing {
            emit(
                &self.partial,
                header,
                self.partial_lsn,
                self.incarnation,
                sink,
            );
            self.partial.clear();
        }
        taken
    }
}

fn emit(
    bytes: &[u8],
    header: RecordHeader,
    lsn: u64,
    incarnation: u64,
    sink: &mut dyn FnMut(StreamItem<'_>),
) {
    if let Some((head, payload)) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>() {
        let is_sound = RecordHeader::matches(head, payload, lsn, incarnation);
        sink(StreamItem::Record(Record {
            lsn,
            header,
            payload,
            is_sound,
        }));
    }
}
