//! The index of one device's records in the upper level: ordered, multi-version, in memory.
//!
//! It maps (key, sequence number) to the place of the value in the log; keys are without the device's prefix.
//! Nothing is ever taken out: an overwritten version stays for whoever reads at an older snapshot, and when the
//! device settles or departs the whole index goes. So it is made of few, packed pieces of memory:
//!
//! ```text
//! chunks   [ leaf leaf leaf .. ] [ leaf leaf .. ]     at most 128 leaves each
//! leaf     entry | entry | entry | ..                  at most half a kilobyte
//! ```
//!
//! Neighbouring keys of a device mostly differ in their last bytes, so an entry takes about 20 bytes and, with the
//! unused ends of leaves, 25 to 28 (more where a device has few records of many sensors).
//!
//! A reader that walks the index copies a leaf at a time ([`Window`]) and comes back with the last key it saw.
//! What is inserted meanwhile is newer than its snapshot.

mod leaf;
#[cfg(test)]
mod tests;

use crate::log::Wanted;
use leaf::Leaf;
use std::ops::Range;

/// A chunk with more leaves is split.
const CHUNK_LEAVES_MAX: usize = 128;

/// Where a value lies in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The position of the record.
    pub(crate) record_lsn: u64,
    /// Where in the record, header included, the value starts.
    pub(crate) offset: u32,
    /// The value's length.
    pub(crate) length: u32,
}

impl Spot {
    /// The value, to be read to `target`.
    pub(crate) fn wanted(&self, target: Range<usize>) -> Wanted {
        Wanted {
            record_lsn: self.record_lsn,
            offset: self.offset as usize,
            target,
        }
    }
}

/// One version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its sequence number.
    pub(crate) sequence: u64,
    /// Its value; `None` for a deletion.
    pub(crate) value: Option<Spot>,
}

/// The versions of one device's keys.
#[derive(Default)]
pub(crate) struct Index {
    chunks: Vec<Vec<Leaf>>,
    entries: u64,
    leaf_bytes: usize,
    /// Room for leaves in all chunks.
    slots: usize,
}

impl Index {
    /// Adds a version, which must be new.
    pub(crate) fn insert(&mut self, key: &[u8], entry: &Entry) {
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

    /// Versions in it.
    pub(crate) fn len(&self) -> u64 {
        self.entries
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
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
                    if (found, std::cmp::Reverse(entry.sequence))
                        >= (key, std::cmp::Reverse(sequence))
                    {
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
                    if (found, std::cmp::Reverse(entry.sequence))
                        < (key, std::cmp::Reverse(sequence))
                    {
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

/// Some neighbouring entries, copied out of an index.
#[derive(Debug, Default)]
pub(crate) struct Window {
    keys: Vec<u8>,
    /// Where each key ends in `keys`, and its entry.
    entries: Vec<(usize, Entry)>,
}

impl Window {
    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry at `at` and its key.
    pub(crate) fn get(&self, at: usize) -> Option<(&[u8], &Entry)> {
        let (end, entry) = self.entries.get(at)?;
        let start = at.checked_sub(1).map_or(0, |before| self.entries[before].0);
        Some((&self.keys[start..*end], entry))
    }

    /// Forgets all entries.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
    }

    fn push(&mut self, key: &[u8], entry: Entry) {
        self.keys.extend_from_slice(key);
        self.entries.push((self.keys.len(), entry));
    }
}
