//! A table's index in memory: which data block may hold a key.
//!
//! An index entry says that all keys of its block are at or before its separator, and those of the next block
//! after it. The search is for the first separator at or after a key. Separators are kept for all blocks but
//! the last, which is where every key behind all separators belongs.
//!
//! To search without visiting key after key in memory, eight bytes of every separator, those after the bytes
//! that all of them have in common, lie in an array of integers: a binary search over it leaves one separator,
//! or the few that agree in these bytes and are compared in full. Every sixteenth of these integers lies in an array of
//! its own, which is searched first: it stays in the processor's cache where a table's whole index does not.

use super::handles::Handles;
use crate::storage::WHOLE_BYTES_MAX;
use std::cmp::Ordering;
use std::ops::Range;
use waystation_format::FormatError;
use waystation_format::block::{Block, BlockIter};
use waystation_format::key::split;
use waystation_format::order::Order;
use waystation_format::table::BlockHandle;

/// One of so many heads is a top: between two of them lie two cache lines.
const HEADS_A_TOP: usize = 16;

/// Which data block of a table may hold a key.
#[derive(Debug)]
pub(super) struct Index {
    /// The bytes all separators begin with.
    common: Box<[u8]>,
    /// What follows those bytes in the user key of each separator.
    heads: Box<[u64]>,
    /// The first of every [`HEADS_A_TOP`] heads.
    tops: Box<[u64]>,
    /// The separators, internal keys without those bytes, one after the other.
    keys: Box<[u8]>,
    /// Where each separator ends in `keys`.
    ends: Box<[u32]>,
    handles: Handles,
    /// The order of user keys. The heads serve that of bytes alone.
    order: Order,
}

impl Index {
    /// Reads an index block, of user keys in `order`. Refused unless keys ascend and blocks end before `data_end`.
    pub(super) fn read(block: &Block, data_end: u64, order: &Order) -> Result<Self, FormatError> {
        let (mut keys, mut ends, mut handles) = (Vec::new(), Vec::new(), Vec::new());
        let mut before = 0..0;
        let mut iter = BlockIter::new(block.clone());
        iter.seek_to_first()?;
        while iter.valid() {
            let here = keys.len()..keys.len() + iter.key().len();
            keys.extend_from_slice(iter.key());
            let first = handles.is_empty();
            if split(iter.key()).is_none()
                || !first
                    && order
                        .compare_internal(&keys[before], &keys[here.clone()])
                        .is_ge()
            {
                return Err(malformed("the keys of an index do not ascend"));
            }
            let handle = BlockHandle::decode(iter.value())?;
            if handle.end().is_none_or(|end| end > data_end) {
                return Err(malformed(
                    "an index names a block past the end of its table",
                ));
            }
            if handle.length > WHOLE_BYTES_MAX {
                return Err(malformed("an index names a block that no table has"));
            }
            ends.push(u32::try_from(keys.len()).map_err(|_| malformed("an index is too long"))?);
            handles.push(handle);
            before = here;
            iter.next()?;
        }
        if ends.pop().is_some() {
            keys.truncate(ends.last().map_or(0, |&end| end as usize));
        }
        Ok(Self::new(keys, ends, handles, order))
    }

    fn new(
        mut keys: Vec<u8>,
        mut ends: Vec<u32>,
        handles: Vec<BlockHandle>,
        order: &Order,
    ) -> Self {
        let common = if order.is_bytewise() {
            leave_out_common(&mut keys, &mut ends)
        } else {
            Box::default()
        };
        let mut index = Self {
            common,
            heads: Box::default(),
            tops: Box::default(),
            keys: keys.into(),
            ends: ends.into(),
            handles: handles.into(),
            order: order.clone(),
        };
        if order.is_bytewise() {
            let separators = (0..index.ends.len()).map(|i| index.separator(i).0);
            index.heads = separators.map(head).collect();
            index.tops = index.heads.iter().step_by(HEADS_A_TOP).copied().collect();
        }
        index
    }

    /// How many data blocks there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.handles.len()
    }

    /// The order of user keys.
    #[inline]
    pub(super) fn order(&self) -> &Order {
        &self.order
    }

    /// Where data block `position` lies.
    #[inline]
    pub(super) fn handle(&self, position: usize) -> BlockHandle {
        self.handles.get(position)
    }

    /// Bytes of memory in use.
    pub(super) fn memory_bytes(&self) -> usize {
        self.common.len()
            + self.keys.len()
            + size_of_val(&*self.heads)
            + size_of_val(&*self.tops)
            + size_of_val(&*self.ends)
            + self.handles.memory_bytes()
    }

    /// The data block that holds the first entry at or after the version of `user_key` with `trailer`, or
    /// after which there is none. Only if there are blocks.
    #[inline]
    pub(super) fn find(&self, user_key: &[u8], trailer: u64) -> usize {
        if !self.order.is_bytewise() {
            return self.search(0, self.ends.len(), user_key, trailer);
        }
        let compared = user_key.len().min(self.common.len());
        match user_key[..compared].cmp(&self.common) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.heads.len(),
            Ordering::Equal => {}
        }
        let rest = &user_key[compared..];
        let sought = head(rest);
        let low = self.first_head_from(sought);
        match self.heads.get(low) {
            Some(&head) if head == sought => self.find_among_alike(low, rest, trailer),
            _ => low,
        }
    }

    /// The first head that is `sought` or greater.
    #[inline]
    fn first_head_from(&self, sought: u64) -> usize {
        let tops = self.tops.partition_point(|&top| top < sought);
        // The last top that is less, and the rest up to the next one.
        let start = tops.saturating_sub(1) * HEADS_A_TOP;
        let end = (start + HEADS_A_TOP).min(self.heads.len());
        start + self.heads[start..end].partition_point(|&head| head < sought)
    }

    /// The same, where separator `low` is the first with the head of `rest`.
    fn find_among_alike(&self, low: usize, rest: &[u8], trailer: u64) -> usize {
        let head = self.heads[low];
        let high = low + self.heads[low..].partition_point(|&other| other == head);
        self.search(low, high, rest, trailer)
    }

    /// The first separator from `low` on that is at or behind the version with `trailer` of a user key, of which `rest` is
    /// behind the bytes in common; `high` if none before it is.
    fn search(&self, mut low: usize, mut high: usize, rest: &[u8], trailer: u64) -> usize {
        while low < high {
            let middle = low.midpoint(high);
            let (separator, its_trailer) = self.separator(middle);
            if self
                .order
                .compare(separator, rest)
                .then(trailer.cmp(&its_trailer))
                .is_lt()
            {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// What the user key of separator `i` has behind the bytes in common, and its trailer.
    #[inline]
    fn separator(&self, i: usize) -> (&[u8], u64) {
        split(&self.keys[self.range(i)]).unwrap_or((&[], 0))
    }

    #[inline]
    fn range(&self, i: usize) -> Range<usize> {
        let start = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        start as usize..self.ends[i] as usize
    }
}

/// Takes the bytes that the user keys of all separators begin with out of `keys`, which ascend and end at `ends`; returns them.
fn leave_out_common(keys: &mut Vec<u8>, ends: &mut [u32]) -> Box<[u8]> {
    let last_start = ends.iter().rev().nth(1).map_or(0, |&end| end as usize);
    let first = &keys[..ends.first().map_or(0, |&end| end as usize)];
    let [first, last] =
        [first, &keys[last_start..]].map(|key| split(key).map_or(&[][..], |it| it.0));
    let both = first.iter().zip(last).take_while(|(a, b)| a == b);
    let common: Box<[u8]> = first[..both.count()].into();
    let (mut start, mut kept) = (0, 0);
    for end in ends {
        let key = start + common.len()..*end as usize;
        start = key.end;
        keys.copy_within(key.clone(), kept);
        kept += key.len();
        *end = kept as u32;
    }
    keys.truncate(kept);
    common
}

/// The first eight of `bytes` as a number that orders as they do; as if zeros followed where there are fewer.
#[inline]
fn head(bytes: &[u8]) -> u64 {
    let mut head = [0; 8];
    let length = bytes.len().min(8);
    head[..length].copy_from_slice(&bytes[..length]);
    head.into_iter()
        .fold(0, |number, byte| number << 8 | u64::from(byte))
}

fn malformed(reason: &'static str) -> FormatError {
    FormatError::Malformed { offset: 0, reason }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use waystation_format::key::{self, ValueKind, pack_trailer};

    /// For numbers of blocks on both sides of a few tops, with heads that are alike and others.
    #[test]
    fn finds_the_first_separator_at_or_after_a_key() {
        let others = |number: usize| format!("common{number:08}");
        let alike = |number: usize| format!("common{}{number:019}", number / 30);
        for user_key in [others, alike] {
            for count in 0..70 {
                let (mut keys, mut ends) = (Vec::new(), Vec::new());
                for number in 0..count {
                    let user_key = user_key(2 * number + 1);
                    key::append(&mut keys, user_key.as_bytes(), 7, ValueKind::Value);
                    ends.push(keys.len() as u32);
                }
                let handle = BlockHandle {
                    offset: 0,
                    length: 0,
                };
                let index = Index::new(keys, ends, vec![handle; count + 1], &Order::Bytewise);
                for sought in 0..2 * count + 2 {
                    let key = user_key(sought);
                    let find = |snapshot| {
                        index.find(key.as_bytes(), pack_trailer(snapshot, ValueKind::SEEK))
                    };
                    assert_eq!(find(8), sought / 2, "{count} {sought}");
                    assert_eq!(find(6), sought.div_ceil(2).min(count), "{count} {sought}");
                }
            }
        }
    }
}
