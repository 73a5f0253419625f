//! The staging ring as a file: the blocks of one life that it holds, and where the stream goes on behind them.

use waystation_format::log::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, BlockHeader, RECORD_HEADER_BYTES, RecordHeader, Seal,
    UNIT_BYTES, body_is_valid,
};

/// A ring that no thread writes to.
pub(super) struct RingCopy<'a> {
    bytes: &'a [u8],
    incarnation: u64,
    /// The closed blocks, in the order of the stream.
    blocks: Vec<BlockHeader>,
}

/// A block of a ring.
pub(super) struct RingBlock {
    pub(super) seal: Seal,
    pub(super) bytes: Vec<u8>,
    /// Whether it was never closed: then its end is not known.
    pub(super) is_open: bool,
}

impl RingBlock {
    /// Where the first record behind `offset` begins that checks.
    pub(super) fn record_behind(&self, offset: usize) -> Option<usize> {
        let (lsn, incarnation) = (self.seal.start_lsn, self.seal.incarnation);
        let used = (self.seal.used as usize).min(self.bytes.len());
        (offset + 1..used).find(|at| {
            let rest = &self.bytes[*at..used];
            let Some((head, behind)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() else {
                return false;
            };
            let header = RecordHeader::peek(head);
            let payload = header.and_then(|header| behind.get(..header.payload_bytes as usize));
            payload.is_some_and(|it| RecordHeader::matches(head, it, lsn + *at as u64, incarnation))
        })
    }
}

impl<'a> RingCopy<'a> {
    /// The blocks of life `incarnation`; of the latest, if that is not known.
    pub(super) fn new(bytes: &'a [u8], incarnation: Option<u64>) -> Self {
        let length = bytes.len() as u64;
        let units = (0..)
            .step_by(UNIT_BYTES)
            .zip(bytes.chunks_exact(UNIT_BYTES));
        let belongs = |(at, unit): (u64, &[u8])| {
            BlockHeader::decode(unit).filter(|block| block.seal.start_lsn % length == at)
        };
        let mut blocks: Vec<BlockHeader> = units.filter_map(belongs).collect();
        let latest = || blocks.iter().map(|block| block.seal.incarnation).max();
        let incarnation = incarnation.or_else(latest).unwrap_or(0);
        blocks.retain(|block| block.seal.incarnation == incarnation);
        blocks.sort_by_key(|block| block.seal.start_lsn);
        Self {
            bytes,
            incarnation,
            blocks,
        }
    }

    /// Where its first block begins; 0 if it has none.
    pub(super) fn first_lsn(&self) -> u64 {
        self.blocks.first().map_or(0, |block| block.seal.start_lsn)
    }

    /// Up to where the log was durable, as blocks that were written out say.
    pub(super) fn durable_lsn(&self) -> u64 {
        let written = self.blocks.iter().filter(|block| {
            let seal = &block.seal;
            body_is_valid(&self.copy(seal.start_lsn, seal.length as usize))
        });
        written.map(|block| block.durable_lsn).max().unwrap_or(0)
    }

    /// Where a position of the stream lies in the file.
    pub(super) fn offset(&self, lsn: u64) -> u64 {
        lsn % (self.bytes.len().max(1) as u64)
    }

    /// The first closed block at `lsn` or behind; the open one at `lsn`, if there is none. `None` if the ring is of no
    /// use.
    pub(super) fn block_from(&self, lsn: u64) -> Option<RingBlock> {
        if self.bytes.is_empty() || !self.bytes.len().is_multiple_of(UNIT_BYTES) {
            return None;
        }
        let closed = self.blocks.iter().map(|block| block.seal);
        if let Some(seal) = closed.into_iter().find(|seal| seal.start_lsn >= lsn) {
            return Some(RingBlock {
                seal,
                bytes: self.copy(seal.start_lsn, seal.length as usize),
                is_open: false,
            });
        }
        let length = self.bytes.len().min(BLOCK_BYTES_MAX);
        let seal = Seal {
            start_lsn: lsn,
            length: length as u32,
            used: length as u32,
            first_record: BLOCK_HEADER_BYTES as u32,
            first_sequence: 0,
            incarnation: self.incarnation,
        };
        Some(RingBlock {
            seal,
            bytes: self.copy(lsn, length),
            is_open: true,
        })
    }

    /// `length` bytes from `lsn` on; they may run over the ring's end.
    fn copy(&self, lsn: u64, length: usize) -> Vec<u8> {
        let at = self.offset(lsn) as usize;
        let length = length.min(self.bytes.len());
        let first = length.min(self.bytes.len() - at);
        [&self.bytes[at..at + first], &self.bytes[..length - first]].concat()
    }
}
