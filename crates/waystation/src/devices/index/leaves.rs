//! The sorted entries of an index, in leaves.
//!
//! ```text
//! chunks   [ leaf leaf leaf .. ] [ leaf leaf .. ]     at most 128 leaves each
//! leaf     entry | entry | entry | ..                  at most half a kilobyte
//! ```
//!
//! A reader that walks them copies a leaf at a time ([`Window`]) and comes back with the last key it saw. What is
//! inserted meanwhile is newer than its snapshot.

use super::leaf::Leaf;
use super::{Entry, Window};
use std::cell::RefCell;
use std::cmp::Reverse;

/// A chunk with more leaves is split.
const CHUNK_LEAVES_MAX: usize = 128;
/// The memory of a chunk that is made anew grows by so many leaves.
const CHUNK_GROWTH: usize = 4;
/// Leaves are made anew for entries that come together if there are at most so many times as many: then most leaves get
/// some of them.
const REBUILT_FOR_ONE_MAX: u64 = 4;

thread_local! {
    /// Memory for the entries of leaves that are made anew.
    static MERGED: RefCell<Window> = RefCell::default();
}

/// Entries in the order of keys, the versions of a key from the newest to the oldest.
#[derive(Default)]
pub(crate) struct Leaves {
    chunks: Vec<Vec<Leaf>>,
    entries: u64,
    leaf_bytes: usize,
    /// Room for leaves in all chunks.
    slots: usize,
}

impl Leaves {
    /// Adds `count` versions, which must be new, and in order.
    pub(super) fn add<'e>(&mut self, new: impl Iterator<Item = (&'e [u8], Entry)>, count: u64) {
        if count == 0 {
            return;
        }
        if self.entries > REBUILT_FOR_ONE_MAX * count {
            new.for_each(|(key, entry)| self.insert(key, &entry));
            return;
        }
        MERGED.with_borrow_mut(|merged| {
            self.merge_to(new, merged);
            self.rebuild(merged);
        });
    }

    /// Puts all entries and those of `new` into `merged`, in order.
    fn merge_to<'e>(&self, new: impl Iterator<Item = (&'e [u8], Entry)>, merged: &mut Window) {
        merged.clear();
        let mut new = new.peekable();
        for leaf in self.chunks.iter().flatten() {
            leaf.visit(|key, entry| {
                let place = (key, Reverse(entry.sequence));
                while let Some((key, entry)) =
                    new.next_if(|(key, entry)| (*key, Reverse(entry.sequence)) < place)
                {
                    merged.push(key, entry);
                }
                merged.push(key, entry);
            });
        }
        new.for_each(|(key, entry)| merged.push(key, entry));
    }

    /// Makes leaves of `entries` instead of those there are.
    fn rebuild(&mut self, entries: &Window) {
        let mut leaves = self.chunks.pop().unwrap_or_default();
        leaves.clear();
        let mut from = 0;
        while from < entries.len() {
            let (leaf, end) = Leaf::pack(entries, from);
            if leaves.len() == leaves.capacity() {
                leaves.reserve_exact(CHUNK_GROWTH);
            }
            leaves.push(leaf);
            from = end;
        }
        self.entries = entries.len() as u64;
        self.leaf_bytes = leaves.iter().map(Leaf::memory_bytes).sum();
        self.slots = leaves.capacity();
        self.chunks.clear();
        self.chunks.push(leaves);
    }

    /// Adds a version, which must be new.
    fn insert(&mut self, key: &[u8], entry: &Entry) {
        self.entries += 1;
        let Some((chunk, leaf)) = self.leaf_of(key, entry.sequence) else {
            let first = Leaf::new(key, entry);
            self.leaf_bytes += first.memory_bytes();
            self.chunks.push(vec![first]);
            self.slots = self.chunks[0].capacity();
            return;
        };
        let leaves = &mut self.chunks[chunk];
        let before = leaves[leaf].memory_bytes();
        let split_off = leaves[leaf].insert(key, entry);
        self.leaf_bytes = self.leaf_bytes + leaves[leaf].memory_bytes() - before;
        if let Some(right) = split_off {
            self.leaf_bytes += right.memory_bytes();
            self.slots -= leaves.capacity();
            leaves.insert(leaf + 1, right);
            if leaves.len() > CHUNK_LEAVES_MAX {
                let rest = leaves.split_off(CHUNK_LEAVES_MAX / 2);
                leaves.shrink_to(CHUNK_LEAVES_MAX);
                self.slots += rest.capacity();
                self.slots += leaves.capacity();
                self.chunks.insert(chunk + 1, rest);
            } else {
                self.slots += leaves.capacity();
            }
        }
    }

    /// The newest version of `key` up to `snapshot`.
    pub(crate) fn get(&self, key: &[u8], snapshot: u64) -> Option<Entry> {
        let (chunk, leaf) = self.leaf_of(key, snapshot)?;
        let leaves = &self.chunks[chunk];
        // The leaf may end before the version sought, which then begins the next.
        leaves[leaf].get(key, snapshot).or_else(|| {
            let next = leaves.get(leaf + 1);
            let next = next.or_else(|| self.chunks.get(chunk + 1)?.first());
            next?.get(key, snapshot)
        })
    }

    /// How many versions there are.
    pub(super) fn len(&self) -> u64 {
        self.entries
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.leaf_bytes
            + self.slots * size_of::<Leaf>()
            + self.chunks.capacity() * size_of::<Vec<Leaf>>()
    }

    /// Shows `window` the entries from the first at or behind (`key`, `sequence`) to the end of its leaf.
    pub(crate) fn load_from(&self, key: &[u8], sequence: u64, window: &mut Window) {
        self.load_many(key, sequence, 1, window);
    }

    /// As [`load_from`](Self::load_from), and leaf after leaf until there are `least` entries, or no more.
    pub(crate) fn load_many(&self, key: &[u8], sequence: u64, least: usize, window: &mut Window) {
        window.clear();
        let Some((mut chunk, mut leaf)) = self.leaf_of(key, sequence) else {
            return;
        };
        while let Some(leaves) = self.chunks.get(chunk) {
            for from in &leaves[leaf..] {
                from.visit(|found, entry| {
                    if (found, Reverse(entry.sequence)) >= (key, Reverse(sequence)) {
                        window.push(found, entry);
                    }
                });
                if window.entries.len() >= least {
                    return;
                }
            }
            (chunk, leaf) = (chunk + 1, 0);
        }
    }

    /// Shows `window` the entries before (`key`, `sequence`), from the beginning of the leaf with the last of them.
    pub(crate) fn load_before(&self, key: &[u8], sequence: u64, window: &mut Window) {
        window.clear();
        let Some((mut chunk, leaf)) = self.leaf_of(key, sequence) else {
            return;
        };
        let mut leaves = &self.chunks[chunk][..=leaf];
        loop {
            for from in leaves.iter().rev() {
                from.visit(|found, entry| {
                    if (found, Reverse(entry.sequence)) < (key, Reverse(sequence)) {
                        window.push(found, entry);
                    }
                });
                if !window.entries.is_empty() {
                    return;
                }
            }
            let Some(previous) = chunk.checked_sub(1) else {
                return;
            };
            chunk = previous;
            leaves = &self.chunks[chunk];
        }
    }

    /// Shows `window` the last leaf.
    pub(crate) fn load_last(&self, window: &mut Window) {
        window.clear();
        if let Some(last) = self.chunks.last().and_then(|leaves| leaves.last()) {
            last.visit(|key, entry| window.push(key, entry));
        }
    }

    /// The last leaf that does not begin behind (`key`, `sequence`), or the first.
    fn leaf_of(&self, key: &[u8], sequence: u64) -> Option<(usize, usize)> {
        let behind = |leaf: &Leaf| leaf.begins_after(key, sequence);
        let chunks = self.chunks.partition_point(|leaves| !behind(&leaves[0]));
        let chunk = chunks.saturating_sub(1);
        let leaves = self
            .chunks
            .get(chunk)?
            .partition_point(|leaf| !behind(leaf));
        Some((chunk, leaves.saturating_sub(1)))
    }
}
