//! What stands in for an arena's memory under loom, which cannot see raw memory.
//!
//! Every word of the region has an atomic of loom's, used when the word is a link; and every node a cell whose
//! accesses loom checks for races: written when the node is, read with its payload. So a link published
//! without release, or followed without acquire, is found, though the bytes themselves lie in plain memory.

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;

/// The words of a region, as loom sees them.
pub(super) struct Shadow {
    links: Vec<AtomicU32>,
    payloads: Vec<UnsafeCell<()>>,
}

impl Shadow {
    /// The shadow of a region of `words` words, all links nil.
    pub(super) fn new(words: usize) -> Self {
        Self {
            links: (0..words).map(|_| AtomicU32::new(0)).collect(),
            payloads: (0..words).map(|_| UnsafeCell::new(())).collect(),
        }
    }

    /// The link at `offset`.
    pub(super) fn link(&self, offset: usize) -> &AtomicU32 {
        &self.links[offset / 4]
    }

    /// Notes that the payload of the node at `offset` is written.
    pub(super) fn write_payload(&self, offset: u32) {
        self.payloads[offset as usize / 4].with_mut(|_| ());
    }

    /// Notes that the payload of the node at `offset` is read.
    pub(super) fn read_payload(&self, offset: u32) {
        self.payloads[offset as usize / 4].with(|_| ());
    }
}
