//! Memory for the keys of graves: words that are claimed in one go, written once, and then only read.
//!
//! Words are atomic, so that threads may meet in them without any lock; a reader comes to a word only through a link
//! that was published after it was written. They lie in chunks, each twice the one before up to 2 MiB, made when the
//! first word in them is claimed: few graves take little memory, and a claim never lies in two chunks.

use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::OnceLock;

/// Words of the first chunk: 64 KiB. Models try smaller ones.
#[cfg(not(any(loom, shuttle)))]
const FIRST_WORDS: usize = 8 << 10;
#[cfg(any(loom, shuttle))]
const FIRST_WORDS: usize = 16;
/// How often chunks double.
const DOUBLINGS: usize = 5;
/// Words of the largest chunks: 2 MiB.
const LARGEST_WORDS: usize = FIRST_WORDS << DOUBLINGS;
/// What one claim may ask for.
pub(super) const CLAIM_WORDS_MAX: usize = LARGEST_WORDS;

type Chunk = Box<[AtomicU64]>;

/// Words in chunks.
pub(super) struct WordArena {
    chunks: Box<[OnceLock<Chunk>]>,
    claimed: AtomicU64,
}

/// The number of the chunk with word `at`, and the first word of that chunk.
#[inline]
fn chunk_of(at: usize) -> (usize, usize) {
    let unit = at / FIRST_WORDS + 1;
    if unit < 1 << DOUBLINGS {
        let chunk = unit.ilog2() as usize;
        (chunk, ((1 << chunk) - 1) * FIRST_WORDS)
    } else {
        let further = (unit >> DOUBLINGS) - 1;
        let start = (1 << DOUBLINGS) - 1 + (further << DOUBLINGS);
        (DOUBLINGS + further, start * FIRST_WORDS)
    }
}

fn chunk_words(chunk: usize) -> usize {
    FIRST_WORDS << chunk.min(DOUBLINGS)
}

impl WordArena {
    /// Words for claims that add up to `words`, whatever is lost at the ends of chunks.
    pub(super) fn new(words: usize) -> Self {
        let chunks = DOUBLINGS + 2 + 2 * words / LARGEST_WORDS;
        Self {
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            claimed: AtomicU64::new(0),
        }
    }

    /// Claims `words`, at most [`CLAIM_WORDS_MAX`], in a row; returns the first.
    pub(super) fn claim(&self, words: usize) -> usize {
        assert!(words <= CLAIM_WORDS_MAX, "a claim fits a chunk");
        let mut claimed = self.claimed.load(Relaxed);
        loop {
            let mut at = claimed as usize;
            loop {
                let (chunk, start) = chunk_of(at);
                let end = start + chunk_words(chunk);
                if at + words <= end {
                    break;
                }
                at = end;
            }
            let end = (at + words) as u64;
            match self
                .claimed
                .compare_exchange_weak(claimed, end, SeqCst, Relaxed)
            {
                Ok(_) => {
                    self.chunks[chunk_of(at).0].get_or_init(|| {
                        let words = chunk_words(chunk_of(at).0);
                        (0..words).map(|_| AtomicU64::new(0)).collect()
                    });
                    return at;
                }
                Err(other) => claimed = other,
            }
        }
    }

    /// The words from `at` on to the end of their chunk. A writer has claimed `at`.
    #[inline]
    pub(super) fn from(&self, at: usize) -> &[AtomicU64] {
        let (chunk, start) = chunk_of(at);
        let chunk = self.chunks.get(chunk).and_then(OnceLock::get);
        chunk.map_or(&[], |chunk| chunk.get(at - start..).unwrap_or_default())
    }

    /// Bytes of memory taken.
    pub(super) fn memory_bytes(&self) -> usize {
        let chunks = self.chunks.iter().filter_map(OnceLock::get);
        chunks.map(|chunk| size_of_val(&chunk[..])).sum()
    }
}
