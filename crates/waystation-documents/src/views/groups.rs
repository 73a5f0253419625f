//! Rows reduced: neighbours of one group become one value, within a shard and then over several.

use super::design::View;
use super::merge::Merge;
use super::order::RowOrder;
use super::query::{Grouping, ViewQuery};
use super::reduce::{Accumulator, Reducer, Reduction};
use super::row::ViewRow;
use super::script::Limits;
use crate::error::{Error, Result};
use crate::json::{Json, Kind};
use crate::shard::ViewRows;
use std::cmp::Ordering;
use std::iter::Peekable;

/// A group of rows that were reduced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewGroup {
    /// The key, as JSON: `null` if all rows are one group.
    pub key: String,
    /// The value, as JSON.
    pub value: String,
}

/// A group of a shard: its rows are reduced, and other shards may have more of them.
struct Part {
    key: String,
    sort_key: Vec<u8>,
    place: usize,
    accumulator: Accumulator,
}

impl Part {
    fn compare(&self, other: &Self, descending: bool) -> Ordering {
        let by_key = self.sort_key.cmp(&other.sort_key);
        let by_key = if descending { by_key.reverse() } else { by_key };
        self.place.cmp(&other.place).then(by_key)
    }
}

/// The groups of a shard's rows, in the order of the rows.
struct ShardGroups {
    rows: Peekable<ViewRows>,
    reduction: Reduction,
    grouping: Grouping,
    order: RowOrder,
}

impl ShardGroups {
    fn new(rows: ViewRows, reducer: &Reducer, query: &ViewQuery, limits: Limits) -> Result<Self> {
        Ok(Self {
            reduction: Reduction::new(reducer, limits)?,
            grouping: query.grouping(),
            order: rows.order(),
            rows: rows.peekable(),
        })
    }

    /// Reduces the rows of the next group.
    fn read(&mut self) -> Result<Option<Part>> {
        let Some(first) = self.rows.next().transpose()? else {
            return Ok(None);
        };
        let (grouping, order) = (self.grouping, self.order);
        let (key, sort_key) = group_of(&first, grouping, order);
        // All rows are one group, whatever was asked for them.
        let place = if grouping == Grouping::Whole {
            0
        } else {
            first.place
        };
        let mut accumulator = self.reduction.begin();
        self.reduction.add(&mut accumulator, &first)?;
        let mut last = first.sort_key;
        while let Some(Ok(row)) = self.rows.peek() {
            let is_apart = grouping != Grouping::Whole && row.place != place;
            if is_apart || (row.sort_key != last && group_of(row, grouping, order).1 != sort_key) {
                break;
            }
            let Some(row) = self.rows.next().transpose()? else {
                break;
            };
            self.reduction.add(&mut accumulator, &row)?;
            last = row.sort_key;
        }
        if let Some(Err(error)) = self.rows.next_if(Result::is_err) {
            return Err(error);
        }
        self.reduction.settle(&mut accumulator)?;
        Ok(Some(Part {
            key,
            sort_key,
            place,
            accumulator,
        }))
    }
}

impl Iterator for ShardGroups {
    type Item = Result<Part>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// The groups of an answer: of all shards, in order, after `skip` and up to `limit`.
pub struct MergedGroups {
    merge: Merge<ShardGroups>,
    /// The group that others may still join.
    waiting: Option<Part>,
    reduction: Reduction,
    descending: bool,
    skip: u64,
    limit: u64,
}

impl MergedGroups {
    /// Reduces the rows of `shards`, all of which were asked the same `query` of `view`.
    ///
    /// # Errors
    /// [`Error::Query`] if the view has no reduce function, [`Error::Script`] if that is none.
    pub fn new(
        shards: Vec<ViewRows>,
        view: &View,
        query: &ViewQuery,
        limits: Limits,
    ) -> Result<Self> {
        let missing = "Reduce is invalid for map-only views.";
        let reducer = view.reducer.as_ref();
        let reducer = reducer.ok_or_else(|| Error::query("query_parse_error", missing))?;
        let groups = |rows| ShardGroups::new(rows, reducer, query, limits);
        let shards: Result<_> = shards.into_iter().map(groups).collect();
        Ok(Self {
            merge: Merge::new(shards?),
            waiting: None,
            reduction: Reduction::new(reducer, limits)?,
            descending: query.descending,
            skip: query.skip,
            limit: query.limit.unwrap_or(u64::MAX),
        })
    }

    /// The next group with the parts of all shards.
    fn read(&mut self) -> Result<Option<Part>> {
        let descending = self.descending;
        loop {
            let next = self
                .merge
                .next_by(|one, other| one.compare(other, descending));
            let Some(next) = next.transpose()? else {
                return Ok(self.waiting.take());
            };
            match &mut self.waiting {
                Some(waiting) if waiting.compare(&next, descending).is_eq() => {
                    self.reduction
                        .merge(&mut waiting.accumulator, next.accumulator)?;
                }
                waiting => {
                    if let Some(whole) = waiting.replace(next) {
                        return Ok(Some(whole));
                    }
                }
            }
        }
    }

    fn next_group(&mut self) -> Result<Option<ViewGroup>> {
        while self.skip > 0 {
            self.skip -= 1;
            if self.read()?.is_none() {
                return Ok(None);
            }
        }
        let Some(part) = self.read()? else {
            return Ok(None);
        };
        let value = self.reduction.finish(part.accumulator)?;
        Ok(Some(ViewGroup {
            key: part.key,
            value,
        }))
    }
}

impl Iterator for MergedGroups {
    type Item = Result<ViewGroup>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.limit == 0 {
            return None;
        }
        self.limit -= 1;
        self.next_group().transpose()
    }
}

/// The group of a row: its key, and the key's sort key.
fn group_of(row: &ViewRow, grouping: Grouping, order: RowOrder) -> (String, Vec<u8>) {
    let key = Json::new(&row.key);
    match grouping {
        Grouping::Whole => ("null".to_owned(), Vec::new()),
        Grouping::Level(level) if key.kind() == Kind::Array => {
            let first: Vec<&str> = key.elements().take(level).map(Json::text).collect();
            let first = format!("[{}]", first.join(","));
            let sort_key = order.key_of(Json::new(&first));
            (first, sort_key)
        }
        Grouping::Level(_) | Grouping::Exact => (row.key.clone(), row.sort_key.clone()),
    }
}
