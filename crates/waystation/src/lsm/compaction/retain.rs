//! What a merge keeps: a decision per entry, in internal-key order.
//!
//! Let `S` be the smallest snapshot. An entry is dropped if
//! - a newer version of its key stands at or below `S`: no reader can reach past that one; or
//! - it is the version before, once more (a log that was replayed twice): same key, same sequence number; or
//! - it is a deletion at or below `S` and nothing deeper than the output can hold its key: there is nothing left
//!   to delete, and the older versions that the job holds itself fall to the first rule; or
//! - it is hidden by a grave, with all older versions of its key, wherever they are.
//!
//! Sequence numbers stay as they are, whatever the level: later deletions are compared with them.

use super::Job;
use super::hidden::CoveringSequences;
use crate::error::Result;
use waystation_format::key::{self, ValueKind};
use waystation_format::order::Order;

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is kept.
    Keep,
    /// A newer version hides it from every reader.
    Shadowed,
    /// It is a deletion of nothing.
    DeadDeletion,
    /// A grave hides it from every reader.
    Hidden,
}

/// The decision and what it has to remember.
pub(super) struct Retain<'j> {
    order: &'j Order,
    smallest_snapshot: u64,
    deeper: &'j [(Vec<u8>, Vec<u8>)],
    coverings: CoveringSequences<'j>,
    user_key: Vec<u8>,
    /// Versions of `user_key` below this are hidden.
    covering: u64,
    /// The sequence number of the version of `user_key` seen last; above all others if none was.
    newer: u64,
    starts_key: bool,
}

impl<'j> Retain<'j> {
    /// The decision for `job`, whose user keys are in `order`.
    pub(super) fn new(job: &'j Job, order: &'j Order) -> Self {
        Self {
            order,
            smallest_snapshot: job.smallest_snapshot,
            deeper: &job.deeper,
            coverings: CoveringSequences::new(&job.hidden, job.smallest_sequence()),
            user_key: Vec::new(),
            covering: 0,
            newer: u64::MAX,
            starts_key: true,
        }
    }

    /// Decides about the next entry. `internal_key` has at least its trailer.
    pub(super) fn judge(&mut self, internal_key: &[u8]) -> Result<Verdict> {
        let user_key = key::user_key(internal_key);
        let trailer = key::trailer(internal_key);
        let sequence = trailer >> 8;
        self.starts_key = self.newer == u64::MAX || !self.order.is_same(user_key, &self.user_key);
        if self.starts_key {
            self.user_key.clear();
            self.user_key.extend_from_slice(user_key);
            self.newer = u64::MAX - 1;
            if !self.coverings.are_none() {
                self.covering = self.coverings.of(user_key)?;
            }
        }
        let newer = std::mem::replace(&mut self.newer, sequence);
        if newer <= self.smallest_snapshot || newer == sequence {
            return Ok(Verdict::Shadowed);
        }
        if sequence < self.covering {
            return Ok(Verdict::Hidden);
        }
        let is_deletion = trailer & 0xff == ValueKind::Deletion as u64;
        if is_deletion && sequence <= self.smallest_snapshot && !self.may_be_deeper() {
            return Ok(Verdict::DeadDeletion);
        }
        Ok(Verdict::Keep)
    }

    /// Whether the entry judged last is the first seen of its user key.
    pub(super) fn starts_key(&self) -> bool {
        self.starts_key
    }

    /// Whether a deeper level may hold the current key. Keys ascend, so ranges passed by are never needed again.
    fn may_be_deeper(&mut self) -> bool {
        while let Some(((smallest, largest), rest)) = self.deeper.split_first() {
            if !self.order.is_before(largest, &self.user_key) {
                return !self.order.is_before(&self.user_key, smallest);
            }
            self.deeper = rest;
        }
        false
    }
}
