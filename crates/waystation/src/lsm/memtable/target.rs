//! What a search looks for, prepared so that one comparison is mostly one pair of words.

use std::cmp::Ordering;
use waystation_format::key::{self, TRAILER_BYTES};
use waystation_format::order::Comparator;

/// The bytes that are compared at once.
const WORD_BYTES: usize = size_of::<u64>();

/// A place in the order of internal keys: user keys ascending, then trailers descending.
pub(super) trait Sought {
    /// Whether this place is behind that of `internal_key`, which has a trailer.
    fn is_after(&self, internal_key: &[u8]) -> bool;
}

/// A place where user keys ascend bytewise.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    user_key: &'a [u8],
    trailer: u64,
    /// The first word of the user key.
    word: u64,
}

impl<'a> Target<'a> {
    /// The place of (`user_key`, `trailer`).
    #[inline]
    pub(super) fn new(user_key: &'a [u8], trailer: u64) -> Self {
        let word = match user_key.first_chunk() {
            Some(bytes) => word_of(*bytes),
            None => short_word(user_key),
        };
        Self {
            user_key,
            trailer,
            word,
        }
    }

    /// As `is_after`, for a key that begins with the same word, or is padded to it.
    #[inline]
    fn is_after_equal_word(&self, internal_key: &[u8]) -> bool {
        let (theirs, trailer) = internal_key.split_at(internal_key.len() - TRAILER_BYTES);
        let ours = self.user_key;
        let common = theirs.len().min(ours.len());
        let mut at = WORD_BYTES;
        while at < common {
            // The last word overlaps the one before, whose bytes are equal.
            let from = at.min(common - WORD_BYTES);
            let (their_word, our_word) = (word_at(theirs, from), word_at(ours, from));
            if their_word != our_word {
                return their_word < our_word;
            }
            at += WORD_BYTES;
        }
        if theirs.len() != ours.len() {
            return theirs.len() < ours.len();
        }
        key::trailer(trailer) > self.trailer
    }
}

impl Sought for Target<'_> {
    #[inline]
    fn is_after(&self, internal_key: &[u8]) -> bool {
        let key_bytes = internal_key.len() - TRAILER_BYTES;
        let mut word = word_at(internal_key, 0);
        if key_bytes < WORD_BYTES {
            // The rest of the word is of the trailer: not of the key.
            word &= !(u64::MAX >> (8 * key_bytes));
        }
        if word != self.word {
            return word < self.word;
        }
        self.is_after_equal_word(internal_key)
    }
}

/// A place where user keys are in a program's order.
pub(super) struct PlacedTarget<'a> {
    comparator: &'a dyn Comparator,
    user_key: &'a [u8],
    trailer: u64,
}

impl<'a> PlacedTarget<'a> {
    /// The place of (`user_key`, `trailer`).
    pub(super) fn new(comparator: &'a dyn Comparator, user_key: &'a [u8], trailer: u64) -> Self {
        Self {
            comparator,
            user_key,
            trailer,
        }
    }
}

impl Sought for PlacedTarget<'_> {
    fn is_after(&self, internal_key: &[u8]) -> bool {
        let (theirs, trailer) = internal_key.split_at(internal_key.len() - TRAILER_BYTES);
        match self.comparator.compare(theirs, self.user_key) {
            Ordering::Less => true,
            Ordering::Equal => key::trailer(trailer) > self.trailer,
            Ordering::Greater => false,
        }
    }
}

/// The user key and the trailer of an internal key; one shorter than a trailer stands before all others.
#[inline]
pub(super) fn place_of(internal_key: &[u8]) -> (&[u8], u64) {
    key::split(internal_key).unwrap_or((&[], u64::MAX))
}

/// The word of `bytes` at `from`, such that words compare as the bytes do.
#[inline]
fn word_at(bytes: &[u8], from: usize) -> u64 {
    let mut word = [0; WORD_BYTES];
    word.copy_from_slice(&bytes[from..from + WORD_BYTES]);
    word_of(word)
}

#[inline]
fn word_of(bytes: [u8; WORD_BYTES]) -> u64 {
    u64::from_le_bytes(bytes).swap_bytes()
}

/// The first word of a key shorter than it, padded with zeros.
fn short_word(user_key: &[u8]) -> u64 {
    let mut word = [0; WORD_BYTES];
    word[..user_key.len()].copy_from_slice(user_key);
    word_of(word)
}
