//! A run of dead keys that a cursor walks over: once it is long enough, the dead-range cache takes it.

use crate::cemetery::dead_ranges::{DeadRangeCache, RUN_MIN};
use waystation_format::order::Order;

/// A run of dead keys that a cursor walks over.
#[derive(Default)]
pub(crate) struct DeadRun {
    /// The first dead key it came to.
    first: Vec<u8>,
    /// Dead versions walked over.
    length: usize,
    /// Whether one of them is hidden by its date alone.
    is_spoiled: bool,
    /// Whether nothing is to be remembered at all.
    is_vain: bool,
    /// Where the walk began, if a run ended there that is remembered. Then this one begins there, too, and is worth it however
    /// short it is, even if merges have left out all that it was made of: otherwise there would be a gap between the two.
    front: Option<Vec<u8>>,
}

impl DeadRun {
    /// For walks over keys in `order`. Where that is a program's own, nothing is remembered: what lies next to a key is only
    /// known of bytes.
    pub(crate) fn new(order: &Order) -> Self {
        Self {
            is_vain: !order.is_bytewise(),
            ..Self::default()
        }
    }

    /// A walk begins.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.length = 0;
        self.is_spoiled = false;
    }

    /// The next walk, forward, begins at `front`, where a run may have ended that is remembered.
    pub(crate) fn go_on_from(&mut self, front: Option<&[u8]>) {
        self.front = front.map(<[u8]>::to_vec);
    }

    /// Nothing before counts.
    #[inline]
    pub(crate) fn restart(&mut self) {
        self.length = 0;
        self.front = None;
    }

    /// A version was met that is hidden by its date alone: there is nothing to remember of this walk.
    #[inline]
    pub(crate) fn spoil(&mut self) {
        self.is_spoiled = true;
    }

    fn is_worth_it(&self) -> bool {
        let is_long = self.length >= RUN_MIN || self.front.is_some();
        is_long && !self.is_spoiled && !self.is_vain
    }

    /// A dead version of `key` was met.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8]) {
        if self.length == 0 {
            self.first.clear();
            self.first.extend_from_slice(key);
        }
        self.length += 1;
    }

    /// The walk forward, of a cursor at `snapshot`, ended before `end`, or at the last key.
    #[inline]
    pub(crate) fn end_forward(
        &self,
        dead_ranges: &DeadRangeCache,
        end: Option<&[u8]>,
        snapshot: u64,
    ) {
        let start = self.front.as_deref().unwrap_or(&self.first);
        if self.is_worth_it() && end != Some(start) {
            dead_ranges.add(start, end, snapshot);
        }
    }

    /// The walk backward, of a cursor at `snapshot`, ended behind `live`, or at `lower` or the first key.
    #[inline]
    pub(crate) fn end_backward(
        &mut self,
        dead_ranges: &DeadRangeCache,
        live: Option<&[u8]>,
        lower: Option<&[u8]>,
        snapshot: u64,
    ) {
        if self.is_worth_it() {
            self.first.push(0);
            let behind = live.map(|key| [key, &[0]].concat());
            let start = behind.as_deref().or(lower).unwrap_or_default();
            dead_ranges.add(start, Some(&self.first), snapshot);
        }
    }
}
