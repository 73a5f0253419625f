//! Keys and values as `db_bench` makes them.

use super::Random;

/// Every key is a number in decimal with leading zeros.
pub(crate) const KEY_BYTES: usize = 16;

/// How much random text there is before values repeat.
const BUFFER_BYTES: usize = 1 << 20;
/// The text consists of pieces of this length, each of them one random half and its repetition.
const PIECE_BYTES: usize = 100;
/// The share of a piece that is random: what a value compresses to.
pub(crate) const COMPRESSION_RATIO: f64 = 0.5;
const RANDOM_BYTES: usize = 50;
const TEXT_SEED: u32 = 301;

/// A key, formatted in place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key([u8; KEY_BYTES]);

impl Key {
    /// The key of number `number` (`%016d`).
    #[inline]
    pub(crate) fn new(number: u32) -> Self {
        let mut digits = [b'0'; KEY_BYTES];
        let mut rest = number;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        Self(digits)
    }

    /// All of it.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Without its last digit: between the keys there are, and never one of them.
    #[inline]
    pub(crate) fn missing(&self) -> &[u8] {
        &self.0[..KEY_BYTES - 1]
    }
}

/// Values: consecutive slices of text that compresses to half.
#[derive(Debug)]
pub(crate) struct Values {
    text: Vec<u8>,
    next: usize,
}

impl Values {
    /// Text long enough for values of `value_bytes`.
    pub(crate) fn new(value_bytes: usize) -> Self {
        let mut random = Random::new(TEXT_SEED);
        let length = BUFFER_BYTES.max(value_bytes);
        let mut text = Vec::with_capacity(length + PIECE_BYTES);
        while text.len() < length {
            let start = text.len();
            text.extend((0..RANDOM_BYTES).map(|_| b' ' + random.uniform(95) as u8));
            text.extend_from_within(start..start + PIECE_BYTES - RANDOM_BYTES);
        }
        Self { text, next: 0 }
    }

    /// The next value; `length` is at most what the text was made for.
    #[inline]
    pub(crate) fn next(&mut self, length: usize) -> &[u8] {
        if self.next + length > self.text.len() {
            self.next = 0;
        }
        let value = &self.text[self.next..self.next + length];
        self.next += length;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sixteen_decimal_digits() {
        for number in [0, 7, 10, 999_999, 1_000_000, u32::MAX] {
            let expected = format!("{number:016}");
            assert_eq!(Key::new(number).as_bytes(), expected.as_bytes());
            assert_eq!(Key::new(number).missing(), &expected.as_bytes()[..15]);
        }
    }

    #[test]
    fn values_are_printable_halves_and_their_repetitions() {
        let mut values = Values::new(100);
        for _ in 0..20_000 {
            let value = values.next(100);
            assert_eq!(value.len(), 100);
            assert_eq!(value[..50], value[50..]);
            assert!(value.iter().all(|byte| (b' '..=b'~').contains(byte)));
        }
    }

    #[test]
    fn values_are_consecutive_and_start_over_at_the_end() {
        let mut values = Values::new(1000);
        let first = values.next(1000).to_vec();
        let second = values.next(1000).to_vec();
        assert_ne!(first, second);
        let round = values.text.len() / 1000;
        let again = (2..=round).map(|_| values.next(1000).to_vec()).last();
        assert_eq!(again, Some(first));
    }

    #[test]
    fn a_value_may_be_longer_than_the_usual_text() {
        let mut values = Values::new(3_000_000);
        assert_eq!(values.next(3_000_000).len(), 3_000_000);
        assert_eq!(values.next(3_000_000).len(), 3_000_000);
    }

    #[test]
    fn the_ratio_is_that_of_the_pieces() {
        assert!(
            (RANDOM_BYTES as f64 / PIECE_BYTES as f64 - COMPRESSION_RATIO).abs() < f64::EPSILON
        );
    }
}
