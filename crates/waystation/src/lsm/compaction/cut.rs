//! Where a merge ends one output table and begins the next.
//!
//! Always between two user keys, never between two versions of one, so that no two tables of a level share a
//! user key. A table ends when it is full; when it would overlap so much of the level below that merging it
//! down later would stall everything else; or, being nearly full, where a table of the level below ends too, as
//! then the later merge rewrites one table less.

use super::{Grandparent, Job, OutputLimits};
use waystation_format::order::Order;

/// Finds the cuts of one job's outputs.
pub(super) struct Cutter<'j> {
    order: &'j Order,
    limits: OutputLimits,
    grandparents: &'j [Grandparent],
    overlapped: u64,
}

impl<'j> Cutter<'j> {
    /// The cuts of `job`, whose user keys are in `order`.
    pub(super) fn new(job: &'j Job, order: &'j Order) -> Self {
        Self {
            order,
            limits: job.limits,
            grandparents: &job.grandparents,
            overlapped: 0,
        }
    }

    /// Whether the table, which has `table_bytes`, ends before `user_key`. Call with every user key, once, in
    /// order; it is told nothing back, so a caller that gets `true` must cut.
    pub(super) fn cuts_before(&mut self, user_key: &[u8], table_bytes: u64) -> bool {
        let mut crossed = false;
        while let Some((next, rest)) = self.grandparents.split_first()
            && self.order.is_before(&next.largest, user_key)
        {
            // Only what lies within a table counts, not what lies before its first key.
            self.overlapped += if table_bytes > 0 { next.bytes } else { 0 };
            self.grandparents = rest;
            crossed = true;
        }
        let nearly_full = table_bytes >= self.limits.table_bytes / 4 * 3;
        let cut = table_bytes > 0
            && (table_bytes >= self.limits.table_bytes
                || self.overlapped > self.limits.grandparent_bytes
                || (crossed && nearly_full));
        if cut {
            self.overlapped = 0;
        }
        cut
    }
}
