//! The memory of a memtable: one fixed region from which nodes are cut and never given back one by one.
//!
//! The first content of the region is of no meaning, so making it touches no page: a node's bytes are all written
//! before a reader can find it. Regions of some size ask for huge pages, because a search jumps all over them and
//! would otherwise miss the address cache as often as the data cache.
//!
//! A node is named by the distance of its header from the start of the region, in 32 bits:
//!
//! ```text
//!             tower, only as high as the node                header                        payload
//! ... | next[2] u32 | next[1] u32 | next[0] u32 | back u32 | key u32 | value u32 | user key | trailer u64 | value
//!                                 ^ node (multiple of 4)     length    length
//! ```
//!
//! `next[level]` is the node that follows on that level, `back` one that stands before (see the list). The
//! words a comparison reads (lengths, the first key bytes) and the lowest links lie together, mostly in one
//! cache line. Keys are not decided by a separate prefix field: it would only repeat the bytes beside it.
//!
//! Invariants:
//! - an offset other than [`NIL`] in a link names a node of this region that was written in full before;
//! - payload and lengths of a node never change after that; links change atomically.

use super::region::{Loan, Regions};
#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU32;

/// The levels a tower can have. With one node in four rising a level, twelve serve 16 million entries well.
pub(super) const MAX_HEIGHT: usize = if cfg!(loom) { 2 } else { 12 };

/// The bytes of the trailer behind a user key.
pub(super) const TRAILER_BYTES: usize = 8;

/// What nodes are aligned to: their links.
pub(super) const NODE_ALIGNMENT: usize = LINK_BYTES;

/// The bytes of one link.
pub(super) const LINK_BYTES: usize = size_of::<u32>();

/// The bytes of a node's header, the link of level 0 included.
pub(super) const HEADER_BYTES: usize = 16;

/// The first byte behind the head node.
pub(super) const FIRST_FREE: usize = 64;

const BACK_AT: usize = 4;
const KEY_LENGTH_AT: usize = 8;
const VALUE_LENGTH_AT: usize = 12;

/// The name of a node in its arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node(u32);

/// No node: what follows the last.
pub(super) const NIL: Node = Node(0);

/// The node before the first: it has the full height and no payload.
pub(super) const HEAD: Node = Node((LINK_BYTES * (MAX_HEIGHT - 1)) as u32);

const _: () = assert!(HEAD.0 as usize + HEADER_BYTES <= FIRST_FREE);

impl Node {
    /// The offset, to be kept in an atomic.
    #[inline]
    pub(super) fn to_raw(self) -> u32 {
        self.0
    }

    /// The node whose offset was kept.
    #[inline]
    pub(super) fn from_raw(raw: u32) -> Self {
        Self(raw)
    }
}

/// What a node is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) user_key: &'a [u8],
    pub(super) trailer: u64,
    pub(super) value: &'a [u8],
}

impl Entry<'_> {
    /// The bytes of the node of this entry with `height` levels.
    pub(super) fn node_bytes(&self, height: usize) -> usize {
        let payload = self.user_key.len() + TRAILER_BYTES + self.value.len();
        (LINK_BYTES * (height - 1) + HEADER_BYTES + payload).next_multiple_of(NODE_ALIGNMENT)
    }
}

/// A fixed region of memory, cut into nodes.
pub(super) struct Arena {
    base: NonNull<u8>,
    loan: Loan,
    #[cfg(loom)]
    shadow: super::shadow::Shadow,
}

// SAFETY: the arena owns its region; all access goes through the methods below, whose contracts allow shared
// access only to finished nodes (immutable but for their atomic links).
#[expect(unsafe_code, reason = "the region is a raw pointer")]
unsafe impl Send for Arena {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "the region is a raw pointer")]
unsafe impl Sync for Arena {}

#[expect(
    unsafe_code,
    reason = "nodes of any size with inline towers are beyond what references can express"
)]
impl Arena {
    /// A region of `bytes`, of which the head node is written and nothing else touched.
    pub(super) fn new(bytes: usize, regions: &Arc<Regions>) -> Self {
        assert!(
            u32::try_from(bytes).is_ok(),
            "a memtable of {bytes} bytes is more than 32-bit offsets reach"
        );
        let bytes = bytes.max(FIRST_FREE);
        let loan = Loan::new(regions, bytes);
        let base = loan.region().base();
        // SAFETY: the region is at least FIRST_FREE bytes, and no other thread has it yet. Zero bytes are a head
        // without successors.
        unsafe { base.write_bytes(0, FIRST_FREE) };
        Self {
            base,
            loan,
            #[cfg(loom)]
            shadow: super::shadow::Shadow::new(bytes / LINK_BYTES),
        }
    }

    /// The bytes of the region.
    pub(super) fn bytes(&self) -> usize {
        self.loan.region().bytes()
    }

    /// How much of the region takes memory.
    #[cfg(all(test, target_os = "linux", not(any(miri, loom, shuttle))))]
    pub(super) fn resident_bytes(&self) -> usize {
        self.loan.region().resident_bytes()
    }

    /// Gives the memory from byte `start` on back to the system.
    ///
    /// # Safety
    /// No entry was written there, and no thread writes one meanwhile.
    pub(super) unsafe fn give_back_from(&self, start: usize) {
        // SAFETY: entries and links are all that is written or referred to.
        unsafe { self.loan.region().give_back_from(start) };
    }

    /// Writes the node of `entry` with `height` levels into the region at `start`. Its links are [`NIL`];
    /// no reader can find it until it is linked.
    ///
    /// # Safety
    /// `entry.node_bytes(height)` bytes at `start`, a multiple of [`NODE_ALIGNMENT`] not below
    /// [`FIRST_FREE`], lie in the region and are this caller's alone. `height` is 1 to [`MAX_HEIGHT`].
    #[inline]
    pub(super) unsafe fn write(&self, start: usize, height: usize, entry: &Entry<'_>) -> Node {
        debug_assert!(start >= FIRST_FREE && start.is_multiple_of(NODE_ALIGNMENT));
        debug_assert!(start + entry.node_bytes(height) <= self.bytes());
        let node = Node((start + LINK_BYTES * (height - 1)) as u32);
        #[cfg(loom)]
        self.shadow.write_payload(node.0);
        let key_bytes = entry.user_key.len();
        // SAFETY: all writes are within the node's bytes, which are the caller's; a node is 4-aligned, so its
        // lengths are; the trailer is written as bytes.
        unsafe {
            let header = self.at(node);
            let tower = LINK_BYTES * (height - 1);
            header.sub(tower).write_bytes(0, tower + HEADER_BYTES);
            header
                .add(KEY_LENGTH_AT)
                .cast::<u32>()
                .write(key_bytes as u32);
            header
                .add(VALUE_LENGTH_AT)
                .cast::<u32>()
                .write(entry.value.len() as u32);
            let key = header.add(HEADER_BYTES);
            key.copy_from_nonoverlapping(NonNull::from(entry.user_key).cast(), key_bytes);
            let trailer = key.add(key_bytes);
            trailer
                .cast::<[u8; TRAILER_BYTES]>()
                .write(entry.trailer.to_le_bytes());
            trailer
                .add(TRAILER_BYTES)
                .copy_from_nonoverlapping(NonNull::from(entry.value).cast(), entry.value.len());
        }
        node
    }

    /// The link of `node` on `level`.
    ///
    /// # Safety
    /// `node` is [`HEAD`] or was made by `write` of this arena, and `level` is below its height.
    #[inline]
    pub(super) unsafe fn link(&self, node: Node, level: usize) -> &AtomicU32 {
        // SAFETY: the link of a level below the height lies within the node, before its header.
        unsafe { self.atomic(node.0 as usize - LINK_BYTES * level) }
    }

    /// The link of `node` to one before it.
    ///
    /// # Safety
    /// `node` is [`HEAD`] or was made by `write` of this arena.
    #[inline]
    pub(super) unsafe fn back(&self, node: Node) -> &AtomicU32 {
        // SAFETY: the word is part of the header.
        unsafe { self.atomic(node.0 as usize + BACK_AT) }
    }

    /// The internal key of `node`: user key and trailer.
    ///
    /// # Safety
    /// `node` was made by `write` of this arena, and that happened before (the caller got it from a link with
    /// acquire ordering, or made it).
    #[inline]
    pub(super) unsafe fn internal_key(&self, node: Node) -> &[u8] {
        #[cfg(loom)]
        self.shadow.read_payload(node.0);
        // SAFETY: `write` wrote the length and so many bytes, which do not change while the arena lives.
        unsafe {
            let header = self.at(node);
            let key_bytes = header.add(KEY_LENGTH_AT).cast::<u32>().read() as usize;
            let key = header.add(HEADER_BYTES);
            slice::from_raw_parts(key.as_ptr(), key_bytes + TRAILER_BYTES)
        }
    }

    /// The value of `node`.
    ///
    /// # Safety
    /// As for `internal_key`.
    #[inline]
    pub(super) unsafe fn value(&self, node: Node) -> &[u8] {
        // SAFETY: as for `internal_key`; the value follows it.
        unsafe {
            let internal_key = self.internal_key(node);
            let header = self.at(node);
            let value_bytes = header.add(VALUE_LENGTH_AT).cast::<u32>().read() as usize;
            let value = header.add(HEADER_BYTES + internal_key.len());
            slice::from_raw_parts(value.as_ptr(), value_bytes)
        }
    }

    /// Asks for the lines that a comparison with `node` reads; [`NIL`] is harmless.
    #[inline]
    pub(super) fn prefetch(&self, node: Node) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let header = self.base.as_ptr().wrapping_add(node.0 as usize);
            // SAFETY: a prefetch reads nothing that the program could see, whatever the address.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(header.cast());
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = node;
    }

    /// The header of `node`.
    ///
    /// # Safety
    /// `node` is [`NIL`], [`HEAD`] or has been claimed in this arena.
    #[inline]
    unsafe fn at(&self, node: Node) -> NonNull<u8> {
        // SAFETY: such an offset is within the region.
        unsafe { self.base.add(node.0 as usize) }
    }

    /// The atomic word at `offset`.
    ///
    /// # Safety
    /// `offset` is a multiple of four within the region, at a word that is only ever used as a link.
    #[inline]
    unsafe fn atomic(&self, offset: usize) -> &AtomicU32 {
        #[cfg(loom)]
        return self.shadow.link(offset);
        #[cfg(not(loom))]
        // SAFETY: the word is aligned, lives as long as the arena and was zeroed with its node; from then on all
        // access to it is atomic.
        unsafe {
            AtomicU32::from_ptr(self.base.add(offset).cast().as_ptr())
        }
    }
}
