//! What was handed over, in three numbers.
//!
//! The hash takes in words of eight bytes; each step is one-to-one in the word and in the hash before, so a change
//! in one word always shows. It is no defence against somebody who means harm.

use crate::FormatError;
use crate::varint::Reader;

/// Spreads a word over the hash: the golden ratio in 64 bits, as Knuth's multiplicative hashing has it.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Count, size and hash of records in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Digest {
    /// How many records.
    pub records: u64,
    /// The bytes of their keys, without the device's prefix, and values.
    pub bytes: u64,
    /// A hash of keys and values.
    pub hash: u64,
}

impl Digest {
    /// Takes the next record in; the key is without the device's prefix.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        self.records += 1;
        self.bytes += (key.len() + value.len()) as u64;
        self.word(key.len() as u64);
        self.word(value.len() as u64);
        self.words(key);
        self.words(value);
    }

    fn words(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn word(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(25) ^ word).wrapping_mul(SPREAD);
    }

    /// Appends its fields, to be read by [`Digest::take`].
    pub fn put(&self, out: &mut Vec<u8>) {
        for number in [self.records, self.bytes, self.hash] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Reads the fields that [`Digest::put`] wrote.
    pub fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(Self {
            records: reader.fixed_u64("the count of records")?,
            bytes: reader.fixed_u64("the size of the records")?,
            hash: reader.fixed_u64("the hash of the records")?,
        })
    }
}
