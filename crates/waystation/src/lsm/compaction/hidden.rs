//! What no reader sees any more: graves, as compaction sees them.

use crate::cemetery::dead_ranges::DeadRangeCache;
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::spilled::{SpillCursors, SpillFile};
use crate::error::Result;
use crate::lsm::version::UserRange;
use crate::sst::{TableFacts, TableMeta};
use crate::sync::Arc;

/// Graves, as far as every reader is behind them, and the log durable. A job has a copy of the graves that concern
/// it, frozen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hidden {
    /// All graves up to `through` that anything in the tree may need, and later ones.
    pub graves: Arc<FlushedGraves>,
    /// What graves up to this number hide is left out.
    pub through: u64,
    /// No merge asks about versions with lower numbers.
    pub above: u64,
    /// What graves up to this number hide is to be gone soon.
    pub overdue: u64,
    /// What scans found to be dead.
    pub dead_ranges: Option<Arc<DeadRangeCache>>,
}

impl PartialEq for Hidden {
    fn eq(&self, other: &Self) -> bool {
        (&self.graves, self.through) == (&other.graves, other.through)
    }
}

impl Eq for Hidden {}

/// How much of a table graves hide that were not applied to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Burden {
    /// Graves of keys in its range.
    pub points: u64,
    /// Whether a deleted range overlaps it.
    pub ranges: bool,
    /// Whether any of that is overdue.
    pub is_overdue: bool,
}

impl Hidden {
    /// What of this lies in `range`.
    pub(crate) fn within(&self, range: &UserRange<'_>) -> Self {
        let graves = if self.graves.is_empty() {
            Arc::clone(&self.graves)
        } else {
            Arc::new(self.graves.within(range.smallest, range.largest))
        };
        Self {
            graves,
            dead_ranges: None,
            ..*self
        }
    }

    /// Whether everything in `table` is hidden, and may go before what lies deeper. What scans found to be dead is
    /// forgotten when the database is closed; so it does not count for a table with deletions, which may be all that
    /// hides an older version elsewhere.
    pub(crate) fn hides_all_of(&self, table: &TableMeta) -> bool {
        let Some(facts) = table.facts() else {
            return false;
        };
        let (first, last) = (table.smallest_user_key(), table.largest_user_key());
        let bound = facts.largest_sequence + 1;
        let ranges = self.graves.ranges();
        if !ranges.is_empty() && ranges.covers(first, last, bound, self.through) {
            return true;
        }
        let dead_ranges = self.dead_ranges.as_ref().filter(|_| facts.deletions == 0);
        dead_ranges.is_some_and(|dead_ranges| dead_ranges.covers(first, last, bound, self.through))
    }

    /// How many bytes of `table` are hidden, about.
    pub(crate) fn hidden_bytes(&self, table: &TableMeta) -> u64 {
        let burden = self.burden(table);
        if burden.ranges && self.hides_all_of(table) {
            return table.file_bytes;
        }
        let entries = table.facts().map_or(0, |facts| facts.entries).max(1);
        let share = u128::from(table.file_bytes) * u128::from(burden.points.min(entries));
        (share / u128::from(entries)) as u64
    }

    /// What of `table` is left to be purged.
    pub(crate) fn burden(&self, table: &TableMeta) -> Burden {
        let facts = table.facts().unwrap_or_default();
        let after = facts.purged_through.max(facts.smallest_sequence);
        let (first, last) = (table.smallest_user_key(), table.largest_user_key());
        let count = |overdue| {
            self.graves.count_between(first, last, |it| {
                it.sequence > facts.smallest_sequence
                    && it.purge_through() > facts.purged_through
                    // One that was promoted later is left out by a merge, too, but the table would not be purged
                    // through it.
                    && it.purge_through() <= self.through.min(overdue)
            })
        };
        let in_spilled = |overdue: u64| -> u64 {
            let limit = self.through.min(overdue);
            let counting = self.graves.spilled().counting();
            counting
                .map(|spill| about_in(spill, table, facts, limit))
                .sum()
        };
        let points = count(u64::MAX) as u64 + in_spilled(u64::MAX);
        let order = self.graves.ranges().order();
        let overlapping = self.graves.ranges().overlapping(Some(first), Some(last));
        let oldest_range = overlapping
            .filter(|(_, end, _)| end.is_none_or(|end| order.is_before(first, end)))
            .flat_map(|(_, _, cuts)| cuts)
            .map(|cut| cut.below)
            .filter(|below| (after + 1..=self.through).contains(below))
            .min();
        let is_overdue = self.overdue > 0
            && (oldest_range.is_some_and(|below| below <= self.overdue)
                || (points > 0 && (count(self.overdue) > 0 || in_spilled(self.overdue) > 0)));
        Burden {
            points,
            ranges: oldest_range.is_some(),
            is_overdue,
        }
    }
}

/// About how many graves of `spill` lie in the range of `table`, of which `facts` are known, and have a number up to
/// `limit` that it was not purged through. Once it was purged through that, none.
fn about_in(spill: &SpillFile, table: &TableMeta, facts: TableFacts, limit: u64) -> u64 {
    let label = spill.label();
    let (low, high) = label.demands();
    let (from, to) = (low.max(facts.purged_through + 1), high.min(limit));
    if label.sequences.1 <= facts.smallest_sequence || from > to {
        return 0;
    }
    let place = spill.place_of(table.smallest_user_key(), table.largest_user_key());
    let graves = spill.graves_in(place.end.saturating_sub(place.start));
    // As if its numbers were spread evenly.
    let share = u128::from(graves) * u128::from(to - from + 1) / u128::from(high - low + 1);
    (share as u64).max(graves.min(1))
}

/// Finds the covering sequence of key after key, in order.
pub(super) struct CoveringSequences<'j> {
    hidden: &'j Hidden,
    /// The first grave that is not of a key passed by.
    at: usize,
    walk: SpillCursors,
}

impl<'j> CoveringSequences<'j> {
    /// For versions from `above` on.
    pub(super) fn new(hidden: &'j Hidden, above: u64) -> Self {
        let above = hidden.above.max(above);
        let walk = SpillCursors::for_merge(hidden.graves.spilled(), above, hidden.through);
        Self {
            hidden,
            at: 0,
            walk,
        }
    }

    /// Whether nothing is hidden.
    pub(super) fn are_none(&self) -> bool {
        self.hidden.graves.is_empty()
    }

    /// The covering sequence of `key`, which is not before the last one asked for; 0 if there is none.
    pub(super) fn of(&mut self, key: &[u8]) -> Result<u64> {
        let graves = &self.hidden.graves;
        let through = self.hidden.through;
        while self.at < graves.len() && graves.points().key(self.at) < key {
            self.at += 1;
        }
        let in_memory = graves
            .covering_from(self.at, key, through)
            .max(graves.ranges().covering(key, through));
        if self.walk.is_empty() {
            return Ok(in_memory);
        }
        Ok(in_memory.max(self.walk.covering(key)?))
    }
}
