//! Walks over a block in both directions.
//!
//! A key that shares nothing with the one before is not copied: it is shown where it lies in the block. Any other
//! key is put together in `scratch`, reusing what is there of the key before. Going back decodes the restart
//! interval once, remembers its entries (their keys one after the other in `scratch`) and then steps over them.
//!
//! Bytes may be hostile: every length is checked against the block before use, and what is remembered is
//! bounded, whatever lengths the entries claim.

use super::Block;
use super::entry::{Header, header};
use super::find::{Find, Place};
use crate::error::FormatError;
use crate::key;
use crate::order::Order;
use std::cmp::Ordering;
use std::ops::Range;

/// Going back, no more than this is remembered; an interval that needs more is decoded more than once.
const SCRATCH_LIMIT: usize = 256 * 1024;

/// A place in a block. Not valid at first, after an error, and past either end.
#[derive(Debug, Clone)]
pub struct BlockIter {
    block: Block,
    current: Entry,
    pub(super) scratch: Vec<u8>,
    /// Going back: the entries of the same restart interval before the current one.
    remembered: Vec<Entry>,
}

/// Where an entry and its parts lie. Offsets are below 4 GiB, as blocks are.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The offset of the entry; the end of all entries if there is none.
    at: u32,
    key_start: u32,
    key_end: u32,
    /// Whether the key lies in the block; else in `scratch`.
    key_in_block: bool,
    value_start: u32,
    /// Where the value ends and the next entry begins.
    end: u32,
}

impl BlockIter {
    /// An iterator over `block` that is nowhere yet.
    pub fn new(block: Block) -> Self {
        let current = nowhere(&block);
        Self {
            block,
            current,
            scratch: Vec::new(),
            remembered: Vec::new(),
        }
    }

    /// Goes to another block, nowhere yet, in the same memory; returns the one before.
    pub fn reset(&mut self, block: Block) -> Block {
        let before = std::mem::replace(&mut self.block, block);
        self.invalidate();
        before
    }

    /// The block, given back.
    pub fn into_block(self) -> Block {
        self.block
    }

    /// Whether there is an entry here.
    #[inline]
    pub fn valid(&self) -> bool {
        self.current.at < self.block.end()
    }

    /// The key here. Empty if not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        let Entry {
            key_start,
            key_end,
            key_in_block,
            ..
        } = self.current;
        let bytes = if key_in_block {
            self.block.bytes()
        } else {
            &self.scratch[..]
        };
        &bytes[key_start as usize..key_end as usize]
    }

    /// The value here. Empty if not valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        &self.block.bytes()[self.value_range()]
    }

    /// Where in [`Block::bytes`] the value here lies.
    #[inline]
    pub fn value_range(&self) -> Range<usize> {
        self.current.value_start as usize..self.current.end as usize
    }

    /// Goes to the first entry.
    pub fn seek_to_first(&mut self) -> Result<(), FormatError> {
        self.invalidate();
        self.step_to(0)
    }

    /// Goes to the last entry.
    pub fn seek_to_last(&mut self) -> Result<(), FormatError> {
        self.step_before(self.block.end())
    }

    /// Goes to the first entry whose internal key is not below `target`, which is one.
    pub fn seek(&mut self, target: &[u8]) -> Result<(), FormatError> {
        let Some((user_key, trailer)) = key::split(target) else {
            return self.seek_by(|key| key::compare_internal(key, target));
        };
        self.invalidate();
        match self.block.find(user_key, trailer)? {
            Find::End => Ok(()),
            Find::Unsure => self.seek_by(|key| key::compare_internal(key, target)),
            Find::Entry(place) => {
                self.go_to(&place, user_key);
                Ok(())
            }
        }
    }

    /// The same in a block whose keys are in `order`.
    #[inline]
    pub fn seek_in(&mut self, order: &Order, target: &[u8]) -> Result<(), FormatError> {
        match order {
            Order::Bytewise => self.seek(target),
            Order::Custom(_) => self.seek_by(|key| order.compare_internal(key, target)),
        }
    }

    /// Goes to a place found; what its key shares with the one before is put together from what was sought.
    #[inline]
    fn go_to(&mut self, place: &Place, user_key: &[u8]) {
        let header = &place.header;
        let (mut key_start, mut key_end) = (header.key_start, header.value_start);
        if header.shared != 0 {
            let shared = header.shared as usize;
            let beyond = shared.saturating_sub(user_key.len());
            self.scratch.extend_from_slice(&user_key[..shared - beyond]);
            self.scratch.extend_from_slice(&place.beyond[..beyond]);
            self.scratch.extend_from_slice(
                &self.block.bytes()[header.key_start as usize..header.value_start as usize],
            );
            (key_start, key_end) = (0, self.scratch.len() as u32);
        }
        self.current = Entry {
            at: place.at,
            key_start,
            key_end,
            key_in_block: header.shared == 0,
            value_start: header.value_start,
            end: header.end,
        };
    }

    /// Goes to the first entry that `order`, which compares a key to what is sought, does not call `Less`.
    #[inline]
    pub fn seek_by(&mut self, order: impl Fn(&[u8]) -> Ordering) -> Result<(), FormatError> {
        self.go_to_restart_before(&order)?;
        while self.valid() && order(self.key()) == Ordering::Less {
            self.next()?;
        }
        Ok(())
    }

    /// Goes to the last restart point whose key is below what is sought, or to the first one.
    #[inline]
    fn go_to_restart_before(
        &mut self,
        order: &impl Fn(&[u8]) -> Ordering,
    ) -> Result<(), FormatError> {
        let (mut low, mut high) = (0, self.block.restart_count());
        while high - low > 1 {
            let middle = low.midpoint(high);
            let Some(key) = self.block.restart_key(middle) else {
                return Err(self.damaged(self.block.restart(middle)));
            };
            if order(key) == Ordering::Less {
                low = middle;
            } else {
                high = middle;
            }
        }
        self.invalidate();
        if high == 0 {
            return Ok(());
        }
        self.step_to(self.block.restart(low))
    }

    /// Goes to the next entry. Only if valid.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a cursor goes both ways")]
    pub fn next(&mut self) -> Result<(), FormatError> {
        debug_assert!(self.valid());
        self.step_to(self.current.end)
    }

    /// Goes to the entry before. Only if valid.
    #[inline]
    pub fn prev(&mut self) -> Result<(), FormatError> {
        debug_assert!(self.valid());
        if let Some(entry) = self.remembered.pop() {
            self.current = entry;
            return Ok(());
        }
        self.step_before(self.current.at)
    }

    /// Goes to the entry at `at`, which follows the current one or shares nothing.
    #[inline]
    fn step_to(&mut self, at: u32) -> Result<(), FormatError> {
        self.remembered.clear();
        if at == self.block.end() {
            self.invalidate();
            return Ok(());
        }
        let Some(header) = header(self.block.entries(), at) else {
            return Err(self.damaged(at));
        };
        let (mut key_start, mut key_end) = (header.key_start, header.value_start);
        if header.shared != 0 {
            if header.shared > self.current.key_end - self.current.key_start {
                return Err(self.damaged(at));
            }
            self.build_key(&header);
            (key_start, key_end) = (0, self.scratch.len() as u32);
        }
        self.current = Entry {
            at,
            key_start,
            key_end,
            key_in_block: header.shared == 0,
            value_start: header.value_start,
            end: header.end,
        };
        Ok(())
    }

    /// Puts the key of the entry after the current one together, at the start of `scratch`.
    #[inline]
    fn build_key(&mut self, header: &Header) {
        let shared = header.shared as usize;
        let start = self.current.key_start as usize;
        let unshared = &self.block.bytes()[header.key_start as usize..header.value_start as usize];
        if self.current.key_in_block {
            self.scratch.clear();
            self.scratch
                .extend_from_slice(&self.block.bytes()[start..start + shared]);
        } else {
            if start != 0 {
                self.scratch.copy_within(start..start + shared, 0);
            }
            self.scratch.truncate(shared);
        }
        self.scratch.extend_from_slice(unshared);
    }

    /// Goes to the last entry before offset `end`, and remembers those before it.
    fn step_before(&mut self, end: u32) -> Result<(), FormatError> {
        self.invalidate();
        let mut index = partition(self.block.restart_count(), |i| self.block.restart(i) < end);
        if end == 0 || index == 0 {
            return Ok(());
        }
        index -= 1;
        let mut at = self.block.restart(index);
        let mut entry = nowhere(&self.block);
        while at < end {
            if at != self.block.restart(index) {
                self.remember(&mut entry);
            }
            let Some(header) = header(self.block.entries(), at) else {
                return Err(self.damaged(at));
            };
            if header.shared > entry.key_end - entry.key_start {
                return Err(self.damaged(at));
            }
            entry = self.append_key(at, &header, &entry);
            at = header.end;
        }
        if at != end {
            return Err(self.damaged(end));
        }
        self.current = entry;
        Ok(())
    }

    /// Remembers `entry`; forgets all before it if their keys have grown too long.
    fn remember(&mut self, entry: &mut Entry) {
        if self.scratch.len() > SCRATCH_LIMIT && !entry.key_in_block {
            self.remembered.clear();
            self.scratch.drain(..entry.key_start as usize);
            entry.key_end -= entry.key_start;
            entry.key_start = 0;
        }
        self.remembered.push(*entry);
    }

    /// The entry at `at`, which follows `before`; its key, unless it lies in the block, at the end of `scratch`.
    fn append_key(&mut self, at: u32, header: &Header, before: &Entry) -> Entry {
        let (mut key_start, mut key_end) = (header.key_start, header.value_start);
        if header.shared != 0 {
            let start = before.key_start as usize;
            let shared = start..start + header.shared as usize;
            key_start = self.scratch.len() as u32;
            if before.key_in_block {
                self.scratch.extend_from_slice(&self.block.bytes()[shared]);
            } else {
                self.scratch.extend_from_within(shared);
            }
            self.scratch.extend_from_slice(
                &self.block.bytes()[header.key_start as usize..header.value_start as usize],
            );
            key_end = self.scratch.len() as u32;
        }
        Entry {
            at,
            key_start,
            key_end,
            key_in_block: header.shared == 0,
            value_start: header.value_start,
            end: header.end,
        }
    }

    fn invalidate(&mut self) {
        self.current = nowhere(&self.block);
        self.remembered.clear();
        self.scratch.clear();
    }

    #[cold]
    fn damaged(&mut self, at: u32) -> FormatError {
        self.invalidate();
        FormatError::malformed(at as usize, "an entry of a block is not well formed")
    }
}

fn nowhere(block: &Block) -> Entry {
    Entry {
        at: block.end(),
        key_start: 0,
        key_end: 0,
        key_in_block: true,
        value_start: 0,
        end: 0,
    }
}

/// The first of `0..count` that `below` does not hold for; it holds for all before and none after.
#[inline]
fn partition(count: usize, below: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if below(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
