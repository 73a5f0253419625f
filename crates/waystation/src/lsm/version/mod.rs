//! Versions: which tables make up the tree, at one moment, for good.
//!
//! A [`Version`] never changes. A reader holds one by `Arc` and with it the tables it lists, whatever is
//! installed meanwhile. A [`Change`] makes the next version from the one before.
//!
//! ```text
//!   level 0   [ newest ........ ]     memtables as they were flushed; ranges overlap;
//!             [ ... older ...   ]     the higher file number holds the newer data
//!   level 1   [..][...][..][....]     one sorted run: by key, disjoint
//!   level 2   [.][..][...][.][..][.]  ten times larger, and so on to level 6
//! ```
//!
//! Invariants, checked whenever a version is made:
//! - level 0 is ordered by file number, highest first;
//! - levels 1 to 6 are ordered by internal key and no two tables of a level share an internal key range (two
//!   neighbours may share one *user key*: LevelDB may cut a table between two versions of a key);
//! - for every key, a shallower level holds newer versions than a deeper one.

mod fence;
mod garbage;
mod manifest;
mod range;
mod recover;
mod set;
mod side;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;

pub(crate) use fence::{Fence, may_be_named, order_name};
pub(crate) use manifest::Manifest as ManifestFile;
pub(crate) use range::UserRange;
pub(crate) use set::{Progress, VersionSet};
pub(crate) use side::{SideFile, SideFileError, State};

use crate::sst::TableMeta;
use crate::sync::Arc;
use std::cmp::{Ordering, Reverse};
use waystation_format::key::trailer;
use waystation_format::order::Order;
pub(crate) use waystation_format::version_edit::LEVELS;

/// The tables of the tree at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    levels: [Vec<Arc<TableMeta>>; LEVELS],
    bytes: [u64; LEVELS],
    order: Order,
}

/// What makes the next version from the one before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Change {
    /// Tables that leave, by level and number.
    pub removed: Vec<(usize, u64)>,
    /// Tables that enter, by level. A table may be removed from one level and added to another.
    pub added: Vec<(usize, Arc<TableMeta>)>,
}

impl Change {
    /// The tables it adds that `base` does not list.
    fn new_tables(&self, base: &Version) -> Vec<u64> {
        let listed = |number| base.tables().any(|(_, table)| table.number == number);
        let numbers = self.added.iter().map(|(_, table)| table.number);
        numbers.filter(|&number| !listed(number)).collect()
    }

    /// The tables of `base` that it removes and does not add again.
    fn lost_tables(&self, base: &Version) -> impl Iterator<Item = Arc<TableMeta>> {
        let stays = |number| self.added.iter().any(|(_, table)| table.number == number);
        let lost = self
            .removed
            .iter()
            .filter(move |(_, number)| !stays(*number));
        lost.filter_map(|&(level, number)| {
            base.level(level)
                .iter()
                .find(|table| table.number == number)
                .cloned()
        })
    }
}

impl Version {
    /// A tree without tables, whose user keys are in `order`.
    pub(crate) fn empty(order: &Order) -> Self {
        Self {
            order: order.clone(),
            levels: std::array::from_fn(|_| Vec::new()),
            bytes: [0; LEVELS],
        }
    }

    /// The order of user keys.
    #[inline]
    pub(crate) fn order(&self) -> &Order {
        &self.order
    }

    /// The tables of `level`: newest first in level 0, by key below.
    pub(crate) fn level(&self, level: usize) -> &[Arc<TableMeta>] {
        &self.levels[level]
    }

    /// Bytes of all tables of `level`.
    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        self.bytes[level]
    }

    /// All tables with their levels, level by level.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &Arc<TableMeta>)> {
        (0..LEVELS).flat_map(|level| self.levels[level].iter().map(move |table| (level, table)))
    }

    /// The one table of a sorted `level` that can hold the newest version of `user_key` up to `snapshot`.
    pub(crate) fn seek_version(
        &self,
        level: usize,
        user_key: &[u8],
        snapshot: u64,
    ) -> Option<&Arc<TableMeta>> {
        let tables = &self.levels[level];
        let at = tables.partition_point(|table| {
            match self.order.compare(table.largest_user_key(), user_key) {
                Ordering::Less => true,
                // The table ends with newer versions only; older ones may begin the next.
                Ordering::Equal => trailer(&table.largest) >> 8 > snapshot,
                Ordering::Greater => false,
            }
        });
        tables
            .get(at)
            .filter(|table| !self.order.is_before(user_key, table.smallest_user_key()))
    }

    /// Where the tables of a sorted `level` that may hold a key of `range` stand: neighbours, in key order.
    pub(crate) fn overlap(&self, level: usize, range: &UserRange<'_>) -> std::ops::Range<usize> {
        debug_assert!(level > 0, "level 0 is not sorted by key");
        let tables = &self.levels[level];
        let order = &self.order;
        let start = tables.partition_point(|table| range.is_after(order, table.largest_user_key()));
        let length = tables[start..]
            .partition_point(|table| !range.is_before(order, table.smallest_user_key()));
        start..start + length
    }

    /// The tables of a sorted `level` that may hold a key of `range`.
    pub(crate) fn overlapping(&self, level: usize, range: &UserRange<'_>) -> &[Arc<TableMeta>] {
        &self.levels[level][self.overlap(level, range)]
    }

    /// The bytes of the tables of `level` (not 0) that may hold a key of `range`. Below the last level there are none.
    pub(crate) fn bytes_overlapping(&self, level: usize, range: &UserRange<'_>) -> u64 {
        if level >= LEVELS {
            return 0;
        }
        let tables = self.overlapping(level, range).iter();
        tables.map(|table| table.file_bytes).sum()
    }

    /// The tables of `level` (0 too) that may hold a key of `range`.
    pub(crate) fn reaching<'v>(
        &'v self,
        level: usize,
        range: &'v UserRange<'v>,
    ) -> impl Iterator<Item = &'v Arc<TableMeta>> {
        let tables = match level {
            0 => &self.levels[0][..],
            _ => self.overlapping(level, range),
        };
        (tables.iter()).filter(move |table| level > 0 || range.overlaps_table(&self.order, table))
    }

    /// Whether any table of `level` (0 too) may hold a key of `range`.
    pub(crate) fn overlaps(&self, level: usize, range: &UserRange<'_>) -> bool {
        self.reaching(level, range).next().is_some()
    }

    /// The version after `change`, or the fault of the change.
    pub(crate) fn with(&self, change: &Change) -> Result<Self, String> {
        let mut next = self.clone();
        for &(level, number) in &change.removed {
            let tables = &mut next.levels[level];
            let at = tables
                .iter()
                .position(|table| table.number == number)
                .ok_or_else(|| {
                    format!("table {number} is to leave level {level}, where it is not")
                })?;
            let table = tables.remove(at);
            next.bytes[level] -= table.file_bytes;
        }
        for (level, table) in &change.added {
            next.levels[*level].push(Arc::clone(table));
            next.bytes[*level] += table.file_bytes;
        }
        next.sort_and_check()?;
        Ok(next)
    }

    fn sort_and_check(&mut self) -> Result<(), String> {
        self.levels[0].sort_by_key(|table| Reverse(table.number));
        let order = &self.order;
        for tables in &mut self.levels[1..] {
            // Stable and nearly sorted already: one pass over the old tables, merges for the new ones.
            tables.sort_by(|a, b| order.compare_internal(&a.smallest, &b.smallest));
        }
        for (level, table) in self.tables() {
            if self.order.compare_internal(&table.smallest, &table.largest) == Ordering::Greater {
                return Err(format!(
                    "the bounds of table {} in level {level} are the wrong way round",
                    table.number
                ));
            }
        }
        for level in 1..LEVELS {
            for pair in self.levels[level].windows(2) {
                if self
                    .order
                    .compare_internal(&pair[0].largest, &pair[1].smallest)
                    != Ordering::Less
                {
                    return Err(format!(
                        "tables {} and {} overlap in level {level}",
                        pair[0].number, pair[1].number
                    ));
                }
            }
        }
        Ok(())
    }
}
