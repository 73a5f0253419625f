//! Writing a stream.

use super::{Digest, END, EXPIRING, FRAME_BYTES, OPENING, Opening, RECORDS};
use crate::checksum::{extend, mask};
use crate::varint::put_u64;

/// Makes a stream of a device's records, frame by frame.
///
/// ```
/// use waystation_format::handoff::{EngineId, Opening, StreamEncoder, Ticket};
/// let ticket = Ticket {
///     source: EngineId([7; 16]),
///     destination: "edge-2".into(),
///     device: b"car-7".to_vec(),
///     sequence: 1000,
///     tenure: 0,
///     survives_power_loss: true,
/// };
/// let opening = Opening { ticket, extractor: "until/3a".into(), finished_below: 0, open: Vec::new() };
/// let mut encoder = StreamEncoder::new(&opening);
/// encoder.push(b"speed:1", b"52");
/// encoder.push(b"speed:2", b"53");
/// let digest = encoder.finish();
/// assert_eq!((digest.records, digest.bytes), (2, 18));
/// assert!(encoder.bytes().len() > 18);
/// ```
#[derive(Debug)]
pub struct StreamEncoder {
    /// The checksum of all frames so far, from which the next goes on.
    chain: u32,
    digest: Digest,
    /// The records of the frame that is being filled, and its kind.
    records: Vec<u8>,
    kind: u8,
    out: Vec<u8>,
}

impl StreamEncoder {
    /// Begins a stream.
    pub fn new(opening: &Opening) -> Self {
        let mut encoder = Self {
            chain: 0,
            digest: Digest::default(),
            records: Vec::new(),
            kind: RECORDS,
            out: Vec::new(),
        };
        encoder.frame(OPENING, &opening.encode());
        encoder
    }

    /// Adds a record. Keys, without the device's prefix, come in ascending order.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.digest.add(key, value);
        self.begin(RECORDS, key, value);
        self.record(key, value);
    }

    /// Adds a record that expires at `expiry` (microseconds since 1970). It does not count in the digest, as it may be
    /// gone when the stream is made once more.
    pub fn push_until(&mut self, key: &[u8], value: &[u8], expiry: u64) {
        self.begin(EXPIRING, key, value);
        self.records.extend_from_slice(&expiry.to_le_bytes());
        self.record(key, value);
    }

    fn begin(&mut self, kind: u8, key: &[u8], value: &[u8]) {
        if kind != self.kind {
            self.close_records();
            self.kind = kind;
        }
        put_u64(&mut self.records, key.len() as u64);
        put_u64(&mut self.records, value.len() as u64);
    }

    fn record(&mut self, key: &[u8], value: &[u8]) {
        self.records.extend_from_slice(key);
        self.records.extend_from_slice(value);
        if self.records.len() >= FRAME_BYTES {
            self.close_records();
        }
    }

    /// Ends the stream. What was handed over is returned.
    pub fn finish(&mut self) -> Digest {
        self.close_records();
        let mut payload = Vec::new();
        self.digest.put(&mut payload);
        self.frame(END, &payload);
        self.digest
    }

    /// What is made by now and was not taken.
    pub fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// Takes all of [`StreamEncoder::bytes`] away.
    pub fn clear(&mut self) {
        self.out.clear();
    }

    fn close_records(&mut self) {
        if !self.records.is_empty() {
            let records = std::mem::take(&mut self.records);
            self.frame(self.kind, &records);
            self.records = records;
            self.records.clear();
        }
    }

    fn frame(&mut self, kind: u8, payload: &[u8]) {
        let start = self.out.len();
        let length = payload.len() as u32;
        self.out.extend_from_slice(&length.to_le_bytes());
        self.out.push(kind);
        self.chain = extend(self.chain, &self.out[start..]);
        self.out.extend_from_slice(&mask(self.chain).to_le_bytes());
        self.out.extend_from_slice(payload);
        self.chain = extend(self.chain, payload);
        self.out.extend_from_slice(&mask(self.chain).to_le_bytes());
    }
}
