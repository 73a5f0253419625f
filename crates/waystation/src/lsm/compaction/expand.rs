//! From the tables a job starts with to all tables it has to take.
//!
//! A job that moves a version of a key deeper must move all *older* versions of that key along, else an older
//! one is found first from then on; and a job that drops a deletion must see all older versions of its key.
//! Two places need care:
//! - level 0: tables overlap, so the set is closed under "overlaps a table of the set";
//! - sorted levels: LevelDB may cut a table between two versions of one user key, so that a table's last user
//!   key is its neighbour's first one. Such neighbours go together. (LevelDB itself had this wrong until 1.22.)

use super::{Running, Shape};
use crate::lsm::version::{LEVELS, UserRange, Version};
use crate::sst::TableMeta;
use crate::sync::Arc;
use std::ops::Range;
use waystation_format::order::Order;

/// The tables of a job, from one level or two.
#[derive(Debug, Clone)]
pub(super) struct Inputs<'v> {
    /// The order of user keys.
    pub order: &'v Order,
    /// The level the job starts from.
    pub level: usize,
    /// Its tables there: newest first in level 0, by key below.
    pub upper: Vec<&'v Arc<TableMeta>>,
    /// The level the job writes to.
    pub output_level: usize,
    /// The tables it takes there; empty if `output_level == level`.
    pub lower: Vec<&'v Arc<TableMeta>>,
}

impl<'v> Inputs<'v> {
    /// The least range that covers all tables.
    pub(super) fn range(&self) -> UserRange<'v> {
        let tables = self.upper.iter().chain(&self.lower);
        UserRange::hull(self.order, tables.map(|table| &***table)).unwrap_or_default()
    }

    /// Bytes of all tables.
    pub(super) fn bytes(&self) -> u64 {
        sum_bytes(&self.upper) + sum_bytes(&self.lower)
    }

    /// Whether a running job stands in the way.
    pub(super) fn conflicts(&self, running: &Running) -> bool {
        self.upper
            .iter()
            .chain(&self.lower)
            .any(|table| running.has_table(table.number))
            || running.writes(self.order, self.output_level, &self.range())
    }
}

/// Bytes of `tables`.
pub(super) fn sum_bytes(tables: &[&Arc<TableMeta>]) -> u64 {
    tables.iter().map(|table| table.file_bytes).sum()
}

/// The inputs of a job that merges `seed`, a table of `level`, into the next level.
pub(super) fn with_next_level<'v>(
    version: &'v Version,
    shape: &Shape,
    level: usize,
    seed: &'v Arc<TableMeta>,
) -> Inputs<'v> {
    debug_assert!(level + 1 < LEVELS, "the last level has no next one");
    let upper = same_level(version, level, UserRange::of(seed));
    let inputs = with_lower(version, level, upper);
    grow(version, shape, inputs)
}

/// All tables of `level` that have to go together with the tables that hold keys of `range`.
pub(super) fn same_level<'v>(
    version: &'v Version,
    level: usize,
    range: UserRange<'_>,
) -> Vec<&'v Arc<TableMeta>> {
    if level == 0 {
        close_level0(version, range)
    } else {
        close_sorted(version, level, &range)
    }
}

fn close_level0<'v>(version: &'v Version, range: UserRange<'_>) -> Vec<&'v Arc<TableMeta>> {
    let (tables, order) = (version.level(0), version.order());
    let mut taken = vec![false; tables.len()];
    let mut hull: Option<UserRange<'v>> = None;
    loop {
        let mut grew = false;
        for (table, taken) in tables.iter().zip(&mut taken) {
            let touches = range.overlaps_table(order, table)
                || hull.is_some_and(|hull| hull.overlaps_table(order, table));
            if !*taken && touches {
                *taken = true;
                grew = true;
                let own = UserRange::of(table);
                hull = Some(hull.map_or(own, |hull| hull.union(order, own)));
            }
        }
        if !grew {
            break;
        }
    }
    tables
        .iter()
        .zip(taken)
        .filter_map(|(table, taken)| taken.then_some(table))
        .collect()
}

fn close_sorted<'v>(
    version: &'v Version,
    level: usize,
    range: &UserRange<'_>,
) -> Vec<&'v Arc<TableMeta>> {
    let tables = version.level(level);
    let Range { mut start, mut end } = version.overlap(level, range);
    if start == end {
        return Vec::new();
    }
    let order = version.order();
    while start > 0 && share_user_key(order, &tables[start - 1], &tables[start]) {
        start -= 1;
    }
    while end < tables.len() && share_user_key(order, &tables[end - 1], &tables[end]) {
        end += 1;
    }
    tables[start..end].iter().collect()
}

fn share_user_key(order: &Order, left: &TableMeta, right: &TableMeta) -> bool {
    order.is_same(left.largest_user_key(), right.smallest_user_key())
}

fn with_lower<'v>(
    version: &'v Version,
    level: usize,
    upper: Vec<&'v Arc<TableMeta>>,
) -> Inputs<'v> {
    let order = version.order();
    let hull = UserRange::hull(order, upper.iter().map(|table| &***table)).unwrap_or_default();
    let lower = same_level(version, level + 1, hull);
    Inputs {
        order,
        level,
        upper,
        output_level: level + 1,
        lower,
    }
}

/// Takes more of the upper level along where that adds nothing to the lower one.
fn grow<'v>(version: &'v Version, shape: &Shape, inputs: Inputs<'v>) -> Inputs<'v> {
    if inputs.lower.is_empty() {
        return inputs;
    }
    let upper = same_level(version, inputs.level, inputs.range());
    if upper.len() == inputs.upper.len() {
        return inputs;
    }
    let grown = with_lower(version, inputs.level, upper);
    let fits = grown.lower.len() == inputs.lower.len() && grown.bytes() <= shape.expanded_bytes();
    if fits { grown } else { inputs }
}
