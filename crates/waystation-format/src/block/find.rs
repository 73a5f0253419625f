//! Finds a version in a block without putting keys together.
//!
//! Walking over a restart interval, all that matters of a key is how many bytes it has in common with the user
//! key sought, `common`. That follows from the entry before: an entry which shares more than `common` bytes
//! with it differs from the key sought where that one did, so its key is below, too, and need not be looked at;
//! of any other entry, the bytes that decide are its unshared ones. Usually a walk looks at a few bytes per entry.
//!
//! The one case this leaves open is a key that is a proper prefix of the one sought, followed by an entry that
//! shares bytes of its trailer: [`Find::Unsure`].

use super::entry::{Header, header};
use super::{Block, common_prefix};
use crate::error::FormatError;
use crate::key::{TRAILER_BYTES, split};
use crate::order::Order;
use std::cmp::Ordering;
use std::ops::Range;

/// Where the first entry at or after the version sought is.
#[derive(Debug)]
pub(super) enum Find {
    /// Here.
    Entry(Place),
    /// Past the last entry.
    End,
    /// This must be found by comparing keys.
    Unsure,
}

/// An entry that was found.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) at: u32,
    pub(super) header: Header,
    /// Its trailer, if its user key is the one sought.
    trailer: Option<u64>,
    /// The bytes that follow the user key sought in the key *before* this one; meaningful as far as this one
    /// shares them.
    pub(super) beyond: [u8; TRAILER_BYTES],
}

impl Block {
    /// The newest version of `user_key` whose trailer is not above `trailer`: its trailer, and where in
    /// [`bytes`](Self::bytes) its value lies.
    pub fn get(
        &self,
        user_key: &[u8],
        trailer: u64,
    ) -> Result<Option<(u64, Range<usize>)>, FormatError> {
        match self.find(user_key, trailer)? {
            Find::End => Ok(None),
            Find::Entry(place) => Ok(place.trailer.map(|trailer| {
                let Header {
                    value_start, end, ..
                } = place.header;
                (trailer, value_start as usize..end as usize)
            })),
            Find::Unsure => self.get_by_comparing(&Order::Bytewise, user_key, trailer),
        }
    }

    /// The same in a block whose keys are in `order`.
    pub fn get_in(
        &self,
        order: &Order,
        user_key: &[u8],
        trailer: u64,
    ) -> Result<Option<(u64, Range<usize>)>, FormatError> {
        match order {
            Order::Bytewise => self.get(user_key, trailer),
            Order::Custom(_) => self.get_by_comparing(order, user_key, trailer),
        }
    }

    #[cold]
    fn get_by_comparing(
        &self,
        order: &Order,
        user_key: &[u8],
        trailer: u64,
    ) -> Result<Option<(u64, Range<usize>)>, FormatError> {
        let mut iter = super::BlockIter::new(self.clone());
        iter.seek_by(|key| compare(order, key, user_key, trailer))?;
        match split(iter.key()) {
            Some((found, trailer)) if order.is_same(found, user_key) => {
                Ok(Some((trailer, iter.value_range())))
            }
            _ => Ok(None),
        }
    }

    /// The first entry at or after the version of `user_key` with `trailer`.
    #[inline]
    pub(super) fn find(&self, user_key: &[u8], trailer: u64) -> Result<Find, FormatError> {
        let (mut low, mut high) = (0, self.restart_count());
        while high - low > 1 {
            let middle = low.midpoint(high);
            let key = self
                .restart_key(middle)
                .ok_or_else(|| damaged(self.restart(middle)))?;
            if compare(&Order::Bytewise, key, user_key, trailer).is_lt() {
                low = middle;
            } else {
                high = middle;
            }
        }
        if high == 0 {
            return Ok(Find::End);
        }
        self.walk(self.restart(low), user_key, trailer)
    }

    /// The same, among the entries from the restart point at `at` on.
    #[inline]
    fn walk(&self, mut at: u32, user_key: &[u8], trailer: u64) -> Result<Find, FormatError> {
        let entries = self.entries();
        let mut walk = Walk::new(user_key, trailer);
        while at < self.end() {
            let header = header(entries, at).ok_or_else(|| damaged(at))?;
            let unshared = &entries[header.key_start as usize..header.value_start as usize];
            match walk.step(header.shared as usize, unshared) {
                Some(Step::Below) => at = header.end,
                Some(Step::Reached(trailer)) => {
                    return Ok(Find::Entry(Place {
                        at,
                        header,
                        trailer,
                        beyond: walk.beyond,
                    }));
                }
                Some(Step::Unsure) => return Ok(Find::Unsure),
                None => return Err(damaged(at)),
            }
        }
        Ok(Find::End)
    }
}

/// What is known of the last entry walked over, which is below the version sought.
struct Walk<'a> {
    user_key: &'a [u8],
    trailer: u64,
    /// How many bytes its internal key and the user key sought have in common at their beginnings.
    common: usize,
    /// The length of its internal key.
    key_length: usize,
    /// What follows those common bytes in its internal key, once they are all of the user key sought.
    beyond: [u8; TRAILER_BYTES],
}

enum Step {
    /// The entry is below, too.
    Below,
    /// The entry is the first that is not below. Its trailer, if its user key is the one sought.
    Reached(Option<u64>),
    /// See [`Find::Unsure`].
    Unsure,
}

impl<'a> Walk<'a> {
    #[inline]
    fn new(user_key: &'a [u8], trailer: u64) -> Self {
        Self {
            user_key,
            trailer,
            common: 0,
            key_length: 0,
            beyond: [0; TRAILER_BYTES],
        }
    }

    /// Looks at the next entry; `None` if it is not well formed.
    #[inline]
    fn step(&mut self, shared: usize, unshared: &[u8]) -> Option<Step> {
        if shared > self.key_length {
            return None;
        }
        let length = shared + unshared.len();
        let user_length = length.checked_sub(TRAILER_BYTES)?;
        let step = if shared > self.common && self.common < self.user_key.len() {
            self.step_alike()
        } else {
            if shared <= self.common {
                self.common = shared + common_prefix(unshared, &self.user_key[shared..]);
            }
            if self.common == self.user_key.len() {
                self.step_within(shared, unshared, user_length)
            } else if self.common < user_length
                && unshared[self.common - shared] > self.user_key[self.common]
            {
                Step::Reached(None)
            } else {
                Step::Below
            }
        };
        self.key_length = length;
        Some(step)
    }

    /// The entry differs from the key sought where the one before did.
    #[inline]
    fn step_alike(&self) -> Step {
        if self.key_length <= self.common + TRAILER_BYTES {
            Step::Unsure // the byte that decides was one of a trailer
        } else {
            Step::Below
        }
    }

    /// The entry's internal key begins with the user key sought, if perhaps not within its own user key.
    #[inline]
    fn step_within(&mut self, shared: usize, unshared: &[u8], user_length: usize) -> Step {
        let sought = self.user_key.len();
        let mut beyond = self.beyond;
        let known = shared.saturating_sub(sought).min(TRAILER_BYTES);
        let rest = &unshared[sought.saturating_sub(shared)..];
        let added = rest.len().min(TRAILER_BYTES - known);
        beyond[known..known + added].copy_from_slice(&rest[..added]);
        let found = u64::from_le_bytes(beyond);
        match user_length.cmp(&sought) {
            Ordering::Greater => return Step::Reached(None),
            Ordering::Equal if found <= self.trailer => return Step::Reached(Some(found)),
            Ordering::Equal | Ordering::Less => {}
        }
        self.beyond = beyond;
        Step::Below
    }
}

#[inline]
fn compare(order: &Order, key: &[u8], user_key: &[u8], trailer: u64) -> Ordering {
    match split(key) {
        Some((key, found)) => order.compare(key, user_key).then(trailer.cmp(&found)),
        None => Ordering::Less,
    }
}

#[cold]
fn damaged(at: u32) -> FormatError {
    FormatError::malformed(at as usize, "an entry of a block is not well formed")
}
