//! From blocks to records: a record may run over several blocks, and the first one met may have begun before.

use crate::error::Result;
use waystation_format::log::{BLOCK_HEADER_BYTES, BlockHeader, RECORD_HEADER_BYTES, RecordHeader};

/// A record of the log as it is read back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    /// Its header.
    pub(crate) header: RecordHeader,
    /// The operations' bytes.
    pub(crate) payload: &'a [u8],
    /// Where it starts in the stream.
    pub(crate) lsn: u64,
}

/// Puts records together from blocks and hands them on in order.
pub(super) struct Assembler<'a, F> {
    deliver: &'a mut F,
    /// The bytes of a record whose end has not come yet.
    partial: Vec<u8>,
    partial_lsn: u64,
    incarnation: u64,
    pub(super) started: bool,
    flushed_sequence: u64,
    pub(super) last_sequence: Option<u64>,
    /// Whether the next record must continue the last one's sequence numbers.
    contiguous: bool,
    /// Once the segments are read: what comes from then on.
    pub(super) tail: Option<Vec<TailRecord>>,
}

/// A record that is not in segments as a whole.
pub(super) struct TailRecord {
    pub(super) header: RecordHeader,
    pub(super) payload: Vec<u8>,
}

impl<'a, F: FnMut(Record<'_>) -> Result<()>> Assembler<'a, F> {
    pub(super) fn new(deliver: &'a mut F, flushed_sequence: u64) -> Self {
        Self {
            deliver,
            partial: Vec::new(),
            partial_lsn: 0,
            incarnation: 0,
            started: false,
            flushed_sequence,
            last_sequence: None,
            contiguous: false,
            tail: None,
        }
    }

    /// Takes the records of a block that has been verified as a whole. The error is the offset in the block
    /// at which it makes no sense.
    pub(super) fn block(&mut self, header: &BlockHeader, block: &[u8]) -> Result<Result<(), u32>> {
        let seal = &header.seal;
        let mut at = BLOCK_HEADER_BYTES;
        self.enter_life(seal.incarnation);
        if !self.started {
            if seal.first_record == 0 {
                return Ok(Ok(()));
            }
            at = seal.first_record as usize;
            self.started = true;
        }
        let used = seal.used as usize;
        while at < used {
            match self.take(&block[at..used], seal.start_lsn + at as u64)? {
                Some(taken) => at += taken,
                None => return Ok(Err(at as u32)),
            }
        }
        Ok(Ok(()))
    }

    /// An earlier life's unfinished record ends with that life; the next life may have skipped sequences.
    pub(super) fn enter_life(&mut self, incarnation: u64) {
        if self.incarnation != incarnation {
            self.partial.clear();
            self.contiguous = false;
            self.incarnation = incarnation;
        }
    }

    /// Takes the beginning of `bytes`, which lie at `lsn`: a record, or the rest of one, or the beginning of
    /// one. Returns how much was taken, or `None` if it is no record.
    pub(super) fn take(&mut self, bytes: &[u8], lsn: u64) -> Result<Option<usize>> {
        if self.partial.is_empty() {
            let Some(header) = RecordHeader::peek(bytes) else {
                return Ok(None);
            };
            let whole = RECORD_HEADER_BYTES + header.payload_bytes as usize;
            if let Some(record) = bytes.get(..whole) {
                let sound = self.hand_on(header, record, lsn)?;
                return Ok(sound.then_some(whole));
            }
            self.partial.extend_from_slice(bytes);
            self.partial_lsn = lsn;
            return Ok(Some(bytes.len()));
        }
        let Some(header) = RecordHeader::peek(&self.partial) else {
            return Ok(None);
        };
        let whole = RECORD_HEADER_BYTES + header.payload_bytes as usize;
        let taken = bytes.len().min(whole - self.partial.len());
        self.partial.extend_from_slice(&bytes[..taken]);
        if self.partial.len() < whole {
            return Ok(Some(taken));
        }
        let record = std::mem::take(&mut self.partial);
        let sound = self.hand_on(header, &record, self.partial_lsn)?;
        self.partial = record;
        self.partial.clear();
        Ok(sound.then_some(taken))
    }

    fn hand_on(&mut self, header: RecordHeader, record: &[u8], lsn: u64) -> Result<bool> {
        let Some((head, payload)) = record.split_first_chunk::<RECORD_HEADER_BYTES>() else {
            return Ok(false);
        };
        let first = header.first_sequence;
        let known = self.last_sequence.unwrap_or(0).max(self.flushed_sequence);
        let follows = first <= known + 1
            && self
                .last_sequence
                .is_none_or(|last| first == last + 1 || (!self.contiguous && first > last));
        if !follows || !RecordHeader::matches(head, payload, lsn, self.incarnation) {
            return Ok(false);
        }
        match &mut self.tail {
            // It gets another place, and is delivered with that.
            Some(tail) => tail.push(TailRecord {
                header,
                payload: payload.to_vec(),
            }),
            None => (self.deliver)(Record {
                header,
                payload,
                lsn,
            })?,
        }
        self.last_sequence = Some(header.last_sequence());
        self.contiguous = true;
        Ok(true)
    }
}
