//! Records as YCSB makes them: a key out of a number, and ten fields of a hundred bytes.
//!
//! An engine here keeps the fields one after the other in one value, as YCSB's own binding for RocksDB does with a
//! little more around them: so a field is updated by reading the record and putting it.

use super::distribution::Uniform;

const FIELDS: usize = 10;
const FIELD_BYTES: usize = 100;
/// The length of every value.
pub(crate) const RECORD_BYTES: usize = FIELDS * FIELD_BYTES;
/// How much random text there is, from which fields are cut.
const TEXT_BYTES: usize = 1 << 20;
const TEXT_SEED: u64 = 301;

/// YCSB's hash of a number: FNV-1 with the bits of the number where a file's bytes would be, without its sign.
pub(crate) fn hash(number: u64) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 1_099_511_628_211;
    let bytes = number.to_le_bytes();
    let hash = bytes.iter().fold(OFFSET_BASIS, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    });
    hash.cast_signed().unsigned_abs()
}

/// The key of record `number`: records are inserted in no order of their keys.
pub(crate) fn push_key(number: u64, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(b"user");
    out.extend_from_slice(hash(number).to_string().as_bytes());
}

/// Text of 32 different characters, as YCSB's fields have.
#[derive(Debug)]
pub(crate) struct Text(Vec<u8>);

impl Text {
    /// The same text each time.
    pub(crate) fn new() -> Self {
        let mut random = Uniform::new(TEXT_SEED);
        Self(
            (0..TEXT_BYTES)
                .map(|_| b' ' + random.below(32) as u8)
                .collect(),
        )
    }

    /// All fields of a new record.
    pub(crate) fn record(&self, random: &mut Uniform) -> &[u8] {
        self.cut(RECORD_BYTES, random)
    }

    /// Replaces one field of a record.
    pub(crate) fn update(&self, record: &mut [u8], random: &mut Uniform) {
        let start = random.below(FIELDS as u64) as usize * FIELD_BYTES;
        record[start..start + FIELD_BYTES].copy_from_slice(self.cut(FIELD_BYTES, random));
    }

    fn cut(&self, length: usize, random: &mut Uniform) -> &[u8] {
        let start = random.below((TEXT_BYTES - length) as u64) as usize;
        &self.0[start..start + length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_ycsbs() {
        assert_eq!(hash(0), 6_284_781_860_667_377_211);
        assert_eq!(hash(1), 8_517_097_267_634_966_620);
        assert_eq!(hash(2), 1_820_151_046_732_198_393);
        let mut key = Vec::new();
        push_key(0, &mut key);
        assert_eq!(key, b"user6284781860667377211");
    }

    #[test]
    fn an_update_replaces_one_field() {
        let (text, mut random) = (Text::new(), Uniform::new(1));
        let record = text.record(&mut random).to_vec();
        assert_eq!(record.len(), 1000);
        let mut updated = record.clone();
        text.update(&mut updated, &mut random);
        let fields = record.chunks(FIELD_BYTES).zip(updated.chunks(FIELD_BYTES));
        assert_eq!(fields.filter(|(old, new)| old != new).count(), 1);
    }
}
