//! A simulated ring: memory that outlives its users, and what of it has reached the medium.
//!
//! Storing to a ring is no call, so nobody sees it happen. The medium's image is brought up to date page by
//! page at random moments (when something else is written or synced), as write-back does; a power cut leaves
//! each page as it is or as the medium last got it, which may be several laps ago.

use super::random::Random;
use crate::storage::Ring;
use crate::storage::aligned::{PAGE_BYTES, Page, ZERO_PAGE};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// How often the whole ring is read again in search of a moment at which nobody stored.
const SNAPSHOT_TRIES: usize = 10_000;

/// Page-aligned memory that several threads store to.
pub(super) struct RingMemory {
    pages: Box<[UnsafeCell<Page>]>,
}

#[expect(unsafe_code, reason = "ring memory is shared by contract")]
// SAFETY: the pages are plain bytes. Users reach them through the raw pointer of `Ring::as_ptr` and order their
// accesses among themselves, as that contract says; this module reads them with relaxed atomic loads of whole
// words and uses what it gets as bytes only. A plain store at the same moment is a race by the letter; on the
// machines supported it makes the copy a mixture of old and new words, as write-back of a shared page does, and
// that is what is simulated. The operating system's ring never reads, and has no such race.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// A ring of the given bytes, a positive multiple of the page size.
    fn new(content: &[u8]) -> Self {
        let pages = content.chunks_exact(PAGE_BYTES).map(|chunk| {
            let mut page = ZERO_PAGE;
            page.0.copy_from_slice(chunk);
            UnsafeCell::new(page)
        });
        Self {
            pages: pages.collect(),
        }
    }

    /// Copies a page as it is now, word by word.
    #[expect(unsafe_code, reason = "reads memory that others may store to")]
    #[expect(clippy::host_endian_bytes, reason = "words become the bytes they were")]
    fn copy_page(&self, index: usize, target: &mut [u8]) {
        let source = self.pages[index].get().cast::<u64>();
        let (words, _) = target.as_chunks_mut::<8>();
        for (place, word) in words.iter_mut().enumerate().take(PAGE_BYTES / 8) {
            // SAFETY: `place` is below the number of words of a page, which is aligned to more than a word and
            // lives as long as `self`; see `Sync` for stores at the same moment.
            let source = unsafe { AtomicU64::from_ptr(source.add(place)) };
            *word = source.load(Ordering::Relaxed).to_ne_bytes();
        }
    }

    fn copy(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        for (index, target) in bytes.chunks_exact_mut(PAGE_BYTES).enumerate() {
            self.copy_page(index, target);
        }
        bytes
    }

    /// The content of one moment: read until two readings agree. Whoever stores without end and without a
    /// successful call gets the last reading.
    fn snapshot(&self) -> Vec<u8> {
        let mut bytes = self.copy();
        for _ in 0..SNAPSHOT_TRIES {
            let again = self.copy();
            if again == bytes {
                break;
            }
            bytes = again;
            thread::yield_now();
        }
        bytes
    }
}

impl Ring for RingMemory {
    fn as_ptr(&self) -> *mut u8 {
        UnsafeCell::raw_get(self.pages.as_ptr()).cast::<u8>()
    }

    fn len(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }
}

/// A ring file: the memory, and what the medium has of it.
pub(super) struct RingContent {
    memory: Arc<RingMemory>,
    durable: Vec<u8>,
}

impl RingContent {
    pub(super) fn new(newest: &[u8], durable: Vec<u8>) -> Self {
        Self {
            memory: Arc::new(RingMemory::new(newest)),
            durable,
        }
    }

    pub(super) fn memory(&self) -> Arc<RingMemory> {
        Arc::clone(&self.memory)
    }

    pub(super) fn len(&self) -> usize {
        self.durable.len()
    }

    /// What reads of the file see.
    pub(super) fn newest(&self) -> Vec<u8> {
        self.memory.copy()
    }

    /// Every page reaches the medium.
    pub(super) fn sync(&mut self) {
        self.durable = self.memory.copy();
    }

    /// Some pages reach the medium.
    pub(super) fn write_back(&mut self, random: &mut Random) {
        let share = random.share_of_eight();
        for (index, target) in self.durable.chunks_exact_mut(PAGE_BYTES).enumerate() {
            if random.chance(share, 8) {
                self.memory.copy_page(index, target);
            }
        }
    }

    /// The same ring in the next life of the process: its own memory, so that threads of the dead one no
    /// longer reach it.
    pub(super) fn after_process_crash(&self) -> Self {
        Self::new(&self.memory.snapshot(), self.durable.clone())
    }

    /// What a power cut leaves.
    pub(super) fn after_power_cut(&self, random: &mut Random) -> Self {
        let mut left = Self {
            memory: self.memory(),
            durable: self.durable.clone(),
        };
        left.write_back(random);
        Self::new(&left.durable, left.durable.clone())
    }
}
