//! A simulated ring: memory that outlives its users, and what of it has reached the medium.
//!
//! Storing to a ring is no call of the storage, so it never fails. The medium's copy is brought up to date page by
//! page at random moments (when something else is written or synced), as write-back does; a power cut leaves
//! each page as it is or as the medium last got it, which may be several laps ago.

use super::random::Random;
use crate::storage::Ring;
use crate::storage::aligned::{PAGE_BYTES, Page, ZERO_PAGE};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A store is seen by the medium, and torn by the death of the process, in chunks of so many bytes.
const CHUNK_BYTES: usize = 64;

/// Page-aligned memory that several threads store to.
pub(super) struct RingMemory {
    /// As many as the file can have.
    pages: Box<[UnsafeCell<Page>]>,
    /// How long the file is, and was when it was mapped.
    file_bytes: AtomicUsize,
    mapped_bytes: AtomicUsize,
    /// Held while a chunk is stored and while pages are copied: the machine looks at memory that threads store to.
    access: Mutex<()>,
}

#[expect(unsafe_code, reason = "ring memory is shared by contract")]
// SAFETY: the pages are plain bytes. They are stored to in `Ring::store` and copied in `copy_page`, both of which hold
// `access`. Besides they are read through the pointer of `Ring::as_ptr`, and the contract of
// `store` excludes that another thread stores to the same part meanwhile.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// A ring of the given bytes, a positive multiple of the page size, which can grow to `bytes`.
    fn new(content: &[u8], bytes: usize) -> Self {
        let filled = content.chunks_exact(PAGE_BYTES).map(|chunk| {
            let mut page = ZERO_PAGE;
            page.0.copy_from_slice(chunk);
            UnsafeCell::new(page)
        });
        let zeros = (content.len()..bytes).step_by(PAGE_BYTES);
        let zeros = zeros.map(|_| UnsafeCell::new(ZERO_PAGE));
        Self {
            pages: filled.chain(zeros).collect(),
            file_bytes: AtomicUsize::new(content.len()),
            mapped_bytes: AtomicUsize::new(content.len()),
            access: Mutex::new(()),
        }
    }

    fn access(&self) -> MutexGuard<'_, ()> {
        self.access.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies a page as it is now.
    #[expect(unsafe_code, reason = "reads memory that others store to")]
    fn copy_page(&self, index: usize, target: &mut [u8], _access: &MutexGuard<'_, ()>) {
        let source = self.pages[index].get();
        // SAFETY: the page lives as long as `self`, and no thread stores to it while `access` is held.
        target.copy_from_slice(unsafe { &(*source).0 });
    }

    /// Fills whole pages with zeros.
    #[expect(unsafe_code, reason = "raw copies into the pages")]
    fn zero(&self, bytes: Range<usize>) {
        let _access = self.access();
        for page in bytes.step_by(PAGE_BYTES) {
            // SAFETY: the page lives as long as `self`, no thread stores to it or copies it while `access` is held, and
            // none reads what is cut off a ring.
            unsafe { *self.pages[page / PAGE_BYTES].get() = ZERO_PAGE };
        }
    }

    /// The content of one moment.
    fn copy(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.file_bytes.load(SeqCst)];
        let access = self.access();
        for (index, target) in bytes.chunks_exact_mut(PAGE_BYTES).enumerate() {
            self.copy_page(index, target, &access);
        }
        bytes
    }
}

impl Ring for RingMemory {
    fn as_ptr(&self) -> *const u8 {
        UnsafeCell::raw_get(self.pages.as_ptr()).cast::<u8>()
    }

    #[expect(unsafe_code, reason = "raw copies into the pages")]
    unsafe fn store(&self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        // The system ends the process.
        assert!(
            end <= self.file_bytes.load(SeqCst),
            "a store behind the ring's file"
        );
        let start = UnsafeCell::raw_get(self.pages.as_ptr()).cast::<u8>();
        for (index, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
            let _access = self.access();
            // SAFETY: within the pages, which lie side by side, not where `bytes` lie, and read by no thread through
            // `as_ptr` meanwhile, by the contract of this function; `copy_page` is kept out by `access`.
            unsafe {
                let target = start.add(offset + index * CHUNK_BYTES);
                ptr::copy_nonoverlapping(chunk.as_ptr(), target, chunk.len());
            }
        }
    }

    fn prepare(&self, _offset: usize, _len: usize) {}

    fn len(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    fn file_bytes(&self) -> usize {
        self.mapped_bytes.load(SeqCst)
    }
}

/// A ring file: the memory, and what the medium has of it.
pub(super) struct RingContent {
    memory: Arc<RingMemory>,
    durable: Vec<u8>,
}

impl RingContent {
    /// A file with `newest` in it, which can grow to `bytes`.
    pub(super) fn new(newest: &[u8], durable: Vec<u8>, bytes: usize) -> Self {
        Self {
            memory: Arc::new(RingMemory::new(newest, bytes)),
            durable,
        }
    }

    /// The memory, for a mapping of it.
    pub(super) fn map(&self) -> Arc<RingMemory> {
        self.memory.mapped_bytes.store(self.len(), SeqCst);
        Arc::clone(&self.memory)
    }

    /// The length of the file.
    pub(super) fn len(&self) -> usize {
        self.memory.file_bytes.load(SeqCst)
    }

    /// The length that it can grow to.
    pub(super) fn len_max(&self) -> usize {
        self.memory.len()
    }

    /// Gives the file another length. Nothing is left of bytes that go.
    pub(super) fn resize(&mut self, bytes: usize) {
        assert!(
            bytes <= self.len_max(),
            "a ring has a length that it can have"
        );
        self.memory.zero(bytes..self.len());
        self.memory.file_bytes.store(bytes, SeqCst);
    }

    /// What reads of the file see.
    pub(super) fn newest(&self) -> Vec<u8> {
        self.memory.copy()
    }

    /// What the medium holds, as far as the file goes.
    pub(super) fn durable(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        bytes.resize(self.len(), 0);
        bytes
    }

    /// Every page reaches the medium.
    pub(super) fn sync(&mut self) {
        self.durable = self.memory.copy();
    }

    /// Some pages reach the medium, and perhaps the length.
    pub(super) fn write_back(&mut self, random: &mut Random) {
        let share = random.share_of_eight();
        if random.chance(share, 8) {
            self.durable.resize(self.len(), 0);
        }
        for (index, target) in self.durable.chunks_exact_mut(PAGE_BYTES).enumerate() {
            if random.chance(share, 8) {
                let access = self.memory.access();
                self.memory.copy_page(index, target, &access);
            }
        }
    }

    /// The same ring in the next life of the process: its own memory, so that threads of the dead one no
    /// longer reach it.
    pub(super) fn after_process_crash(&self) -> Self {
        Self::new(&self.memory.copy(), self.durable.clone(), self.len_max())
    }

    /// What a power cut leaves.
    pub(super) fn after_power_cut(&self, random: &mut Random) -> Self {
        let mut left = Self {
            memory: Arc::clone(&self.memory),
            durable: self.durable.clone(),
        };
        left.write_back(random);
        Self::new(&left.durable, left.durable.clone(), self.len_max())
    }
}
