//! Ranges of user keys, both ends included, either end open.

use crate::lsm::table::TableMeta;

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

    /// The least range that covers all `tables`; `None` if there are none.
    pub(crate) fn hull(tables: impl IntoIterator<Item = &'a TableMeta>) -> Option<Self> {
        tables.into_iter().map(Self::of).reduce(Self::union)
    }

    /// The least range that covers both.
    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            // `None < Some(_)`, which is right for the lower end ...
            smallest: self.smallest.min(other.smallest),
            // ... and has to be turned for the upper one.
            largest: match (self.largest, other.largest) {
                (Some(one), Some(another)) => Some(one.max(another)),
                _ => None,
            },
        }
    }

    /// Whether the whole range comes after `key`.
    pub(crate) fn is_after(&self, key: &[u8]) -> bool {
        self.smallest.is_some_and(|smallest| key < smallest)
    }

    /// Whether the whole range comes before `key`.
    pub(crate) fn is_before(&self, key: &[u8]) -> bool {
        self.largest.is_some_and(|largest| key > largest)
    }

    /// Whether the two share a key.
    pub(crate) fn overlaps(&self, other: &UserRange<'_>) -> bool {
        let apart = other.largest.is_some_and(|key| self.is_after(key))
            || other.smallest.is_some_and(|key| self.is_before(key));
        !apart
    }

    /// Whether the table may hold a key of the range.
    pub(crate) fn overlaps_table(&self, table: &TableMeta) -> bool {
        self.overlaps(&UserRange::of(table))
    }
}
