//! Rows of several shards in one order.

use super::query::ViewQuery;
use super::row::{ViewRow, compare_rows};
use crate::error::Result;
use crate::shard::ViewRows;
use std::cmp::Ordering;
use std::iter::Peekable;

/// Several sources, each in order, as one. An error of a source comes before all that others have.
pub(super) struct Merge<I: Iterator> {
    sources: Vec<Peekable<I>>,
}

impl<T, I: Iterator<Item = Result<T>>> Merge<I> {
    pub(super) fn new(sources: Vec<I>) -> Self {
        let sources = sources.into_iter().map(Iterator::peekable).collect();
        Self { sources }
    }

    /// The first of what is left, by `compare`; of equals, that of the first source.
    pub(super) fn next_by(&mut self, compare: impl Fn(&T, &T) -> Ordering) -> Option<Result<T>> {
        let mut first: Option<usize> = None;
        for at in 0..self.sources.len() {
            let (before, rest) = self.sources.split_at_mut(at);
            let known = first.and_then(|first| before[first].peek());
            let is_first = match (rest[0].peek(), known) {
                (Some(Ok(one)), Some(Ok(other))) => compare(one, other).is_lt(),
                (Some(Err(_)), Some(Ok(_))) | (Some(_), None) => true,
                (None, _) | (_, Some(Err(_))) => false,
            };
            if is_first {
                first = Some(at);
            }
        }
        self.sources[first?].next()
    }
}

/// The rows of an answer: of all shards, in order, after `skip` and up to `limit`.
pub struct MergedRows {
    merge: Merge<ViewRows>,
    query: ViewQuery,
    skip: u64,
    limit: u64,
}

impl MergedRows {
    /// The rows of `shards`, all of which were asked the same `query`.
    pub fn new(shards: Vec<ViewRows>, query: &ViewQuery) -> Self {
        Self {
            merge: Merge::new(shards),
            skip: query.skip,
            limit: query.limit.unwrap_or(u64::MAX),
            query: query.clone(),
        }
    }

    fn read(&mut self) -> Option<Result<ViewRow>> {
        let query = &self.query;
        let compare = |one: &ViewRow, other: &ViewRow| {
            if query.sorted {
                compare_rows(one, other, query)
            } else {
                Ordering::Equal
            }
        };
        self.merge.next_by(compare)
    }
}

impl Iterator for MergedRows {
    type Item = Result<ViewRow>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.limit == 0 {
            return None;
        }
        while self.skip > 0 {
            self.skip -= 1;
            if let Err(error) = self.read()? {
                return Some(Err(error));
            }
        }
        self.limit -= 1;
        self.read()
    }
}
