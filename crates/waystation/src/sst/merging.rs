//! A cursor over the union of several cursors.
//!
//! There are few of them (memtables, tables of level 0, one per level), so no heap: the cursor knows which child
//! is `current` and which other one, its `rival`, comes next. While the current child stays before its rival, a
//! step costs one comparison; when it does not, all children are looked at once. The first sixteen bytes of each
//! child's user key are kept beside it as a number, which settles most comparisons. With one child there is no
//! rival and nothing is compared.
//!
//! Children may hold the same internal key (a version that was replayed into a memtable and had reached a table,
//! too): each is shown, in the order of children.

use super::InternalIterator;
use crate::error::Result;
use std::cmp::Ordering;
use waystation_format::key::{self, TRAILER_BYTES, ValueKind};
use waystation_format::order::Order;

const NONE: usize = usize::MAX;
const HEAD_BYTES: usize = 16;

/// A cursor over the union of several cursors.
pub(crate) struct MergingIterator<I> {
    children: Vec<Child<I>>,
    /// The child whose entry is shown; [`NONE`] if not valid.
    current: usize,
    /// The child that comes next; [`NONE`] if no other child is valid.
    rival: usize,
    direction: Direction,
    order: Order,
}

struct Child<I> {
    iter: I,
    /// The beginning of its user key, if it is valid and keys are ordered by their bytes; else nothing.
    head: u128,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl<I: InternalIterator> MergingIterator<I> {
    /// A cursor over the union of `children`, whose user keys are in `order`.
    pub(crate) fn new(children: Vec<I>, order: &Order) -> Self {
        let children = children.into_iter();
        Self {
            children: children.map(|iter| Child { iter, head: 0 }).collect(),
            current: NONE,
            rival: NONE,
            direction: Direction::Forward,
            order: order.clone(),
        }
    }

    /// Positions every child, then shows the one that comes first in `direction`.
    fn position(
        &mut self,
        direction: Direction,
        mut to: impl FnMut(&mut I) -> Result<()>,
    ) -> Result<()> {
        self.direction = direction;
        self.current = NONE;
        for child in &mut self.children {
            to(&mut child.iter)?;
            child.note(&self.order);
        }
        self.elect();
        Ok(())
    }

    /// Finds the child that comes first, and the one after it.
    fn elect(&mut self) {
        (self.current, self.rival) = (NONE, NONE);
        for i in 0..self.children.len() {
            if !self.children[i].iter.valid() {
                continue;
            }
            if self.current == NONE || self.comes_before(i, self.current) {
                self.rival = self.current;
                self.current = i;
            } else if self.rival == NONE || self.comes_before(i, self.rival) {
                self.rival = i;
            }
        }
    }

    /// Whether child `a` comes before child `b` in the direction of the walk.
    #[inline]
    fn comes_before(&self, a: usize, b: usize) -> bool {
        let (first, second) = (&self.children[a], &self.children[b]);
        let order = first
            .head
            .cmp(&second.head)
            .then_with(|| {
                let (first, second) = (first.iter.key(), second.iter.key());
                self.order.compare_internal(first, second)
            })
            .then(a.cmp(&b));
        match self.direction {
            Direction::Forward => order == Ordering::Less,
            Direction::Backward => order == Ordering::Greater,
        }
    }

    /// Steps the current child by `step`, then shows the child that comes first.
    #[inline]
    fn advance(&mut self, step: impl FnOnce(&mut I) -> Result<()>) -> Result<()> {
        let Some(child) = self.children.get_mut(self.current) else {
            return Ok(());
        };
        if let Err(error) = step(&mut child.iter) {
            self.current = NONE;
            return Err(error);
        }
        if child.iter.valid() {
            if self.rival == NONE {
                return Ok(());
            }
            child.note(&self.order);
            if self.comes_before(self.current, self.rival) {
                return Ok(());
            }
        }
        self.elect();
        Ok(())
    }

    /// Versions below `covering` are of no use up to the user key `end` (excluded; `None`: to the last one): lets
    /// every child go past the ones that it can pass cheaply. Returns whether the current child moved.
    pub(crate) fn skip_forward(&mut self, end: Option<&[u8]>, covering: u64) -> Result<bool> {
        let end = end.map(first_version);
        let is_before = |order: &Order, key: &[u8]| {
            let end = end.as_deref();
            end.is_none_or(|end| order.compare_internal(key, end) == Ordering::Less)
        };
        self.skip(Direction::Forward, is_before, |iter| {
            iter.skip_forward(end.as_deref(), covering)
        })
    }

    /// Goes to the first entry at or after `internal_key`; but versions below `covering` up to the user key `end` are
    /// of no use, and every child goes past the ones that it can pass unread.
    pub(crate) fn seek_past(
        &mut self,
        internal_key: &[u8],
        end: Option<&[u8]>,
        covering: u64,
    ) -> Result<()> {
        let end = end.map(first_version);
        self.position(Direction::Forward, |iter| {
            iter.seek_past(internal_key, end.as_deref(), covering)
        })
    }

    /// The same as [`skip_forward`](Self::skip_forward) on the way back, to the user key `start` (included).
    pub(crate) fn skip_backward(&mut self, start: &[u8], covering: u64) -> Result<bool> {
        let start = first_version(start);
        let is_behind =
            |order: &Order, key: &[u8]| order.compare_internal(key, &start) != Ordering::Less;
        self.skip(Direction::Backward, is_behind, |iter| {
            iter.skip_backward(&start, covering)
        })
    }

    #[cold]
    fn skip(
        &mut self,
        direction: Direction,
        is_meant: impl Fn(&Order, &[u8]) -> bool,
        skip: impl Fn(&mut I) -> Result<()>,
    ) -> Result<bool> {
        if self.direction != direction {
            return Ok(false);
        }
        let current = std::mem::replace(&mut self.current, NONE);
        let key = self.children[current].iter.key().to_vec();
        for child in &mut self.children {
            if child.iter.valid() && is_meant(&self.order, child.iter.key()) {
                skip(&mut child.iter)?;
                child.note(&self.order);
            }
        }
        self.elect();
        let child = &self.children[current].iter;
        Ok(!child.valid() || child.key() != key)
    }

    /// Turns all children but the current one to the other side of its key.
    #[cold]
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let Some(child) = self.children.get(self.current) else {
            return Ok(());
        };
        let key = child.iter.key().to_vec();
        let current = std::mem::replace(&mut self.current, NONE);
        for (i, child) in self.children.iter_mut().enumerate() {
            if i == current {
                child.note(&self.order);
                continue;
            }
            let iter = &mut child.iter;
            match direction {
                Direction::Forward => {
                    iter.seek(&key)?;
                    if i < current && iter.valid() && iter.key() == key {
                        iter.next()?;
                    }
                }
                Direction::Backward => {
                    iter.seek_for_prev(&key)?;
                    if i > current && iter.valid() && iter.key() == key {
                        iter.prev()?;
                    }
                }
            }
            child.note(&self.order);
        }
        self.direction = direction;
        self.elect();
        // The current child holds the key that all others were turned away from.
        debug_assert_eq!(self.current, current);
        Ok(())
    }
}

/// The internal key before all versions of `user_key`.
pub(crate) fn first_version(user_key: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(user_key.len() + TRAILER_BYTES);
    key::append(&mut key, user_key, key::MAX_SEQUENCE, ValueKind::SEEK);
    key
}

impl<I: InternalIterator> Child<I> {
    #[inline]
    fn note(&mut self, order: &Order) {
        if order.is_bytewise() && self.iter.valid() {
            self.head = head(self.iter.key());
        }
    }
}

/// The first bytes of the user key of `internal_key` as a number that orders as they do; as if zeros followed
/// where there are fewer.
#[inline]
fn head(internal_key: &[u8]) -> u128 {
    let user_bytes = internal_key.len().saturating_sub(TRAILER_BYTES);
    let absent = HEAD_BYTES.saturating_sub(user_bytes);
    if let Some(first) = internal_key.first_chunk::<HEAD_BYTES>() {
        let number = u128::from_le_bytes(*first).swap_bytes();
        // At most eight bytes of this are not of the user key but of the trailer.
        return number >> (8 * absent) << (8 * absent);
    }
    let mut bytes = [0; HEAD_BYTES];
    bytes[..user_bytes].copy_from_slice(&internal_key[..user_bytes]);
    u128::from_le_bytes(bytes).swap_bytes()
}

impl<I: InternalIterator> InternalIterator for MergingIterator<I> {
    #[inline]
    fn valid(&self) -> bool {
        self.children
            .get(self.current)
            .is_some_and(|child| child.iter.valid())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.position(Direction::Forward, I::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.position(Direction::Backward, I::seek_to_last)
    }

    fn seek(&mut self, internal_key: &[u8]) -> Result<()> {
        self.position(Direction::Forward, |iter| iter.seek(internal_key))
    }

    fn seek_for_prev(&mut self, internal_key: &[u8]) -> Result<()> {
        self.position(Direction::Backward, |iter| iter.seek_for_prev(internal_key))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.direction != Direction::Forward {
            self.turn(Direction::Forward)?;
        }
        self.advance(I::next)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.direction != Direction::Backward {
            self.turn(Direction::Backward)?;
        }
        self.advance(I::prev)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.children
            .get(self.current)
            .map_or(&[], |child| child.iter.key())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.children
            .get(self.current)
            .map_or(&[], |child| child.iter.value())
    }
}
