//! A growable byte buffer whose first byte lies on a page boundary.
//!
//! Direct transfers need aligned memory; `Vec<u8>` does not promise any. The buffer is a vector of whole pages
//! seen as bytes, so that allocation, growth and thread safety are the vector's, and the only unsafe step is
//! the view.
//!
//! Invariants: every byte of every page is initialised, and `length` never exceeds what the pages hold. Bytes
//! behind `length` are left-overs of earlier contents: growing zeroes them before it shows them.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;

/// The size and alignment of a page of the buffer: enough for every direct transfer known.
pub(super) const PAGE_BYTES: usize = 4096;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
pub(super) struct Page(pub(super) [u8; PAGE_BYTES]);

pub(super) const ZERO_PAGE: Page = Page([0; PAGE_BYTES]);

/// A growable byte buffer whose first byte lies on a page boundary.
#[derive(Default)]
pub struct AlignedBuffer {
    pages: Vec<Page>,
    length: usize,
}

impl AlignedBuffer {
    /// What the address of the first byte is a multiple of.
    pub const ALIGNMENT: usize = PAGE_BYTES;

    /// An empty buffer; allocates nothing.
    pub const fn new() -> Self {
        Self {
            pages: Vec::new(),
            length: 0,
        }
    }

    /// A buffer of `length` zero bytes.
    pub fn zeroed(length: usize) -> Self {
        Self {
            pages: vec![ZERO_PAGE; length.div_ceil(PAGE_BYTES)],
            length,
        }
    }

    /// The number of bytes in use.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether no byte is in use.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The number of bytes that fit before the buffer moves.
    pub const fn capacity(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    /// The bytes in use.
    pub fn as_slice(&self) -> &[u8] {
        &self.all_bytes()[..self.length]
    }

    /// The bytes in use, for change.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let length = self.length;
        &mut self.all_bytes_mut()[..length]
    }

    /// Makes the buffer `length` bytes long; new bytes are zero.
    pub fn resize(&mut self, length: usize) {
        let old_length = self.length;
        if length > old_length {
            self.reserve(length - old_length);
            self.all_bytes_mut()[old_length..length].fill(0);
        }
        self.length = length;
    }

    /// Adds `data` behind the bytes in use.
    pub fn extend_from_slice(&mut self, data: &[u8]) {
        let start = self.length;
        self.reserve(data.len());
        self.all_bytes_mut()[start..start + data.len()].copy_from_slice(data);
        self.length = start + data.len();
    }

    /// Makes room for `additional` more bytes. Grows at least by half, so that adding is linear in all.
    pub fn reserve(&mut self, additional: usize) {
        let needed = self.length + additional;
        if needed > self.capacity() {
            let grown = self.pages.len() + self.pages.len() / 2;
            self.pages
                .resize(needed.div_ceil(PAGE_BYTES).max(grown), ZERO_PAGE);
        }
    }

    #[expect(unsafe_code, reason = "a vector of pages is seen as bytes")]
    fn all_bytes(&self) -> &[u8] {
        // SAFETY: the vector's elements are contiguous, initialised and made of bytes only (repr(C), the size
        // of a page equals its alignment: no padding), so `capacity()` bytes can be read from its pointer; an
        // empty vector's pointer is dangling but aligned, as a slice of no bytes may be. The view borrows
        // `self`, so the vector can neither change nor move while it lives. `Vec` keeps it below isize::MAX.
        unsafe { slice::from_raw_parts(self.pages.as_ptr().cast::<u8>(), self.capacity()) }
    }

    #[expect(unsafe_code, reason = "a vector of pages is seen as bytes")]
    fn all_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `all_bytes`; every byte pattern is a valid page, and the exclusive borrow of `self`
        // makes this the only view.
        unsafe { slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast::<u8>(), self.capacity()) }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl Clone for AlignedBuffer {
    fn clone(&self) -> Self {
        let mut copy = Self::new();
        copy.extend_from_slice(self);
        copy
    }
}

impl From<&[u8]> for AlignedBuffer {
    fn from(data: &[u8]) -> Self {
        let mut buffer = Self::new();
        buffer.extend_from_slice(data);
        buffer
    }
}

impl PartialEq for AlignedBuffer {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for AlignedBuffer {}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AlignedBuffer")
            .field("length", &self.length)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::AlignedBuffer;

    fn is_aligned(buffer: &AlignedBuffer) -> bool {
        buffer
            .as_ptr()
            .addr()
            .is_multiple_of(AlignedBuffer::ALIGNMENT)
    }

    #[test]
    fn empty_buffer_is_usable() {
        let mut buffer = AlignedBuffer::new();
        assert!(
            buffer.is_empty() && buffer.as_slice().is_empty() && buffer.as_mut_slice().is_empty()
        );
        assert!(is_aligned(&buffer));
        buffer.resize(0);
        assert_eq!(buffer.len(), 0);
    }

    #[test]
    fn stays_aligned_and_keeps_bytes_while_growing() {
        let mut buffer = AlignedBuffer::new();
        let mut expected = Vec::new();
        for round in 0..40_u8 {
            let chunk = vec![round; usize::from(round) * 37];
            buffer.extend_from_slice(&chunk);
            expected.extend_from_slice(&chunk);
            assert!(is_aligned(&buffer));
            assert_eq!(buffer.as_slice(), expected);
        }
    }

    #[test]
    fn new_bytes_are_zero_even_over_left_overs() {
        let mut buffer = AlignedBuffer::zeroed(10_000);
        buffer.fill(7);
        buffer.resize(3);
        buffer.resize(9_000);
        assert_eq!(&buffer[..3], [7; 3]);
        assert!(buffer[3..].iter().all(|&byte| byte == 0));
        buffer.resize(0);
        buffer.extend_from_slice(b"ab");
        buffer.resize(512);
        assert_eq!(buffer.len(), 512);
        assert_eq!(&buffer[..3], b"ab\0");
        assert!(buffer[2..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn does_not_move_before_it_is_full() {
        let mut buffer = AlignedBuffer::zeroed(8192);
        buffer.resize(0);
        let first = buffer.as_ptr();
        buffer.extend_from_slice(&[1; 8192]);
        assert_eq!(buffer.as_ptr(), first);
        assert_eq!(buffer.clone(), buffer);
    }
}
