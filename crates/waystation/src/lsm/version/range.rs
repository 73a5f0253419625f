//! Ranges of user keys, both ends included, either end open.

use crate::sst::TableMeta;
use std::cmp::Ordering;
use waystation_format::order::Order;

/// A range of user keys. `None` means no limit on that side; limits belong to the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct UserRange<'a> {
    /// The first key of the range.
    pub smallest: Option<&'a [u8]>,
    /// The last key of the range.
    pub largest: Option<&'a [u8]>,
}

impl<'a> UserRange<'a> {
    /// The range from `smallest` to `largest`, both included.
    pub(crate) fn new(smallest: &'a [u8], largest: &'a [u8]) -> Self {
        Self {
            smallest: Some(smallest),
            largest: Some(largest),
        }
    }

    /// The range of a table.
    pub(crate) fn of(table: &'a TableMeta) -> Self {
        Self::new(table.smallest_user_key(), table.largest_user_key())
    }

    /// The least range that covers all `tables`; `None` if there are none. Keys are in `order`.
    pub(crate) fn hull(
        order: &Order,
        tables: impl IntoIterator<Item = &'a TableMeta>,
    ) -> Option<Self> {
        let ranges = tables.into_iter().map(Self::of);
        ranges.reduce(|one, other| one.union(order, other))
    }

    /// The least range that covers both.
    pub(crate) fn union(self, order: &Order, other: Self) -> Self {
        let pick = |one: Option<&'a [u8]>, another: Option<&'a [u8]>, side| {
            let (one, another) = one.zip(another)?;
            let is_other = order.compare(another, one) == side;
            Some(if is_other { another } else { one })
        };
        Self {
            smallest: pick(self.smallest, other.smallest, Ordering::Less),
            largest: pick(self.largest, other.largest, Ordering::Greater),
        }
    }

    /// Whether the whole range comes after `key`.
    pub(crate) fn is_after(&self, order: &Order, key: &[u8]) -> bool {
        self.smallest
            .is_some_and(|smallest| order.is_before(key, smallest))
    }

    /// Whether the whole range comes before `key`.
    pub(crate) fn is_before(&self, order: &Order, key: &[u8]) -> bool {
        self.largest
            .is_some_and(|largest| order.is_before(largest, key))
    }

    /// Whether the two share a key.
    pub(crate) fn overlaps(&self, order: &Order, other: &UserRange<'_>) -> bool {
        let apart = other.largest.is_some_and(|key| self.is_after(order, key))
            || other.smallest.is_some_and(|key| self.is_before(order, key));
        !apart
    }

    /// Whether the table may hold a key of the range.
    pub(crate) fn overlaps_table(&self, order: &Order, table: &TableMeta) -> bool {
        self.overlaps(order, &UserRange::of(table))
    }
}
