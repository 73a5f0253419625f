//! From blocks to records: a record may run over several blocks, and the first one met may have begun before.

use crate::error::Result;
use waystation_format::log::{
    BLOCK_HEADER_BYTES, BlockHeader, RECORD_HEADER_BYTES, RecordHeader, RecordKind,
};

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
            if RecordHeader::peek(bytes).is_none() {
                return Ok(None);
            }
            if whole_record(bytes).is_some() {
                return self.take_whole(bytes, lsn);
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

    /// Whether the end of a record is still to come.
    pub(super) fn is_amid_record(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Takes the record that begins `bytes`, which lie at `lsn`, if all of it is there. Returns its length.
    pub(super) fn take_whole(&mut self, bytes: &[u8], lsn: u64) -> Result<Option<usize>> {
        let Some((header, record)) = whole_record(bytes) else {
            return Ok(None);
        };
        let is_sound = self.hand_on(header, record, lsn)?;
        Ok(is_sound.then_some(record.len()))
    }

    /// Whether `bytes`, which lie at `lsn`, begin with a record of this life.
    pub(super) fn holds(&self, bytes: &[u8], lsn: u64) -> bool {
        whole_record(bytes).is_some_and(|(_, record)| {
            let (head, payload) = record.split_first_chunk().expect("a record has a header");
            RecordHeader::matches(head, payload, lsn, self.incarnation)
        })
    }

    /// How many sequence numbers a hole before the record of `header` took; `None` if it cannot stand behind one. Before the
    /// first record there may be the rest of one that tables hold, which took none.
    pub(super) fn gap_before(&self, header: &RecordHeader) -> Option<u64> {
        let gap = header.first_sequence.checked_sub(self.known_sequence() + 1);
        match self.last_sequence {
            None => Some(gap.unwrap_or(0)),
            Some(_) => gap.filter(|gap| *gap > 0),
        }
    }

    /// Passes over so many sequence numbers, which no record has.
    pub(super) fn add_gap(&mut self, sequences: u32) -> Result<()> {
        let header = RecordHeader {
            payload_bytes: 0,
            first_sequence: self.known_sequence() + 1,
            operations: sequences,
            kind: RecordKind::Gap,
        };
        self.deliver(header, &[], 0)
    }

    /// Up to here sequence numbers belong to records that were read, or to tables.
    fn known_sequence(&self) -> u64 {
        self.last_sequence.unwrap_or(0).max(self.flushed_sequence)
    }

    fn hand_on(&mut self, header: RecordHeader, record: &[u8], lsn: u64) -> Result<bool> {
        let Some((head, payload)) = record.split_first_chunk::<RECORD_HEADER_BYTES>() else {
            return Ok(false);
        };
        let first = header.first_sequence;
        let follows = first <= self.known_sequence() + 1
            && self
                .last_sequence
                .is_none_or(|last| first == last + 1 || (!self.contiguous && first > last));
        if !follows || !RecordHeader::matches(head, payload, lsn, self.incarnation) {
            return Ok(false);
        }
        self.deliver(header, payload, lsn)?;
        Ok(true)
    }

    fn deliver(&mut self, header: RecordHeader, payload: &[u8], lsn: u64) -> Result<()> {
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
        Ok(())
    }
}

/// The record that begins `bytes`, if all of it is there.
fn whole_record(bytes: &[u8]) -> Option<(RecordHeader, &[u8])> {
    let header = RecordHeader::peek(bytes)?;
    let whole = RECORD_HEADER_BYTES + header.payload_bytes as usize;
    Some((header, bytes.get(..whole)?))
}
