//! Rows of a view in the ranges of a query, as they stood when the query began.

use super::super::Shard;
use super::record::{self, Edge, edge};
use crate::collate::AFTER;
use crate::error::{Error, Result};
use crate::json::Json;
use crate::views::{DesignDocument, Limits, RowOrder, Update, ViewQuery, ViewRow};
use std::collections::VecDeque;
use waystation::{Db, DbIterator, IterOptions, Snapshot};

/// A range of rows, for one of the keys of the query.
#[derive(Debug, Clone)]
struct Range {
    place: usize,
    begin: Vec<u8>,
    end: Vec<u8>,
}

/// What rows of a shard are read from: its index, or the drive that has it.
pub trait RowSource: Send {
    /// As [`ViewRows::offset`].
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Node`].
    fn offset(&mut self, most: u64) -> Result<u64>;

    /// The next row; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`], [`Error::Node`].
    fn next_row(&mut self) -> Result<Option<ViewRow>>;
}

/// The rows of a shard for a query, in its order, without `skip` and `limit`: these are for
/// [`MergedRows`](crate::views::MergedRows).
pub struct ViewRows {
    source: Box<dyn RowSource>,
    order: RowOrder,
    total: u64,
    sequence: u64,
}

/// The rows in the index of a shard.
struct StoredRows {
    /// `None` if there is no index.
    entries: Option<DbIterator>,
    prefix: Vec<u8>,
    /// Ranges that are still to be read.
    ranges: VecDeque<Range>,
    range: Option<Range>,
    first: Option<Range>,
    descending: bool,
    order: RowOrder,
}

impl Shard {
    /// The rows of the view `name` of `design` for `query`, after the index was brought up to date if the query asks
    /// for it.
    ///
    /// # Errors
    /// [`Error::Query`] if there is no such view or the parameters do not go together; as [`Shard::build_views`].
    pub fn view_rows(
        &self,
        design: &DesignDocument,
        name: &str,
        query: &ViewQuery,
        limits: Limits,
    ) -> Result<ViewRows> {
        let view = design.view(name)?;
        query.check(design, view)?;
        if query.update == Update::Before {
            self.build_views(design, limits)?;
        }
        let snapshot = self.db.snapshot();
        let group = self.group_at(design.signature(), &snapshot)?;
        let prefix = group
            .as_ref()
            .map(|group| record::rows_of(group.number, view.place));
        let total = group
            .as_ref()
            .and_then(|group| group.counts.get(view.place));
        let mut prefix = prefix.unwrap_or_default();
        if let Some(partition) = &query.partition {
            record::put_partition(&mut prefix, partition);
        }
        let mut rows = StoredRows {
            entries: None,
            prefix,
            ranges: VecDeque::new(),
            range: None,
            first: None,
            descending: query.descending,
            order: design.order,
        };
        if group.is_some() {
            rows.entries = Some(entries_of(&self.db, &rows.prefix, snapshot)?);
            rows.ranges = rows.ranges_of(query, query.reduces(view));
            rows.first = rows.ranges.front().cloned();
        }
        Ok(ViewRows {
            source: Box::new(rows),
            order: design.order,
            total: total.copied().unwrap_or(0),
            sequence: group.as_ref().map_or(0, |group| group.sequence),
        })
    }
}

fn entries_of(db: &Db, prefix: &[u8], snapshot: Snapshot) -> Result<DbIterator> {
    let mut options = IterOptions::prefix(prefix);
    options.snapshot = Some(snapshot);
    Ok(db.iter(options)?)
}

impl ViewRows {
    /// Rows of the view of `design` that are read from `source`: `total` of them, up to the update sequence `sequence`.
    pub fn over(
        source: Box<dyn RowSource>,
        design: &DesignDocument,
        total: u64,
        sequence: u64,
    ) -> Self {
        Self {
            source,
            order: design.order,
            total,
            sequence,
        }
    }

    /// How many rows the view has in this shard.
    pub fn total_rows(&self) -> u64 {
        self.total
    }

    /// The update sequence of the shard up to which the rows are.
    pub fn update_sequence(&self) -> u64 {
        self.sequence
    }

    /// How many rows of the view stand before the first range of the query; the protocol's `offset` adds the rows that
    /// were skipped. It goes through them, up to one more than `most`: call it before the first row is read, and only if
    /// the answer names it.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Node`].
    pub fn offset(&mut self, most: u64) -> Result<u64> {
        self.source.offset(most)
    }

    pub(crate) fn order(&self) -> RowOrder {
        self.order
    }
}

impl Iterator for ViewRows {
    type Item = Result<ViewRow>;

    fn next(&mut self) -> Option<Self::Item> {
        self.source.next_row().transpose()
    }
}

impl RowSource for StoredRows {
    fn offset(&mut self, most: u64) -> Result<u64> {
        let (Some(entries), Some(first)) = (&mut self.entries, &self.first) else {
            return Ok(0);
        };
        let mut offset = 0;
        if self.descending {
            entries.seek_to_last()?;
            while offset <= most && entries.valid() && entries.key() >= first.end.as_slice() {
                offset += 1;
                entries.prev()?;
            }
        } else {
            entries.seek_to_first()?;
            while offset <= most && entries.valid() && entries.key() < first.begin.as_slice() {
                offset += 1;
                entries.next()?;
            }
        }
        Ok(offset)
    }

    fn next_row(&mut self) -> Result<Option<ViewRow>> {
        self.read()
    }
}

impl StoredRows {
    /// The ranges in the order in which they are read.
    fn ranges_of(&self, query: &ViewQuery, reduces: bool) -> VecDeque<Range> {
        let Some(keys) = &query.keys else {
            return VecDeque::from([self.range(
                query,
                0,
                query.start_key.as_deref(),
                query.end_key.as_deref(),
            )]);
        };
        let range = |(place, key): (usize, &String)| self.range(query, place, Some(key), Some(key));
        // CouchDB turns the whole answer round, but not groups.
        if query.descending && !reduces {
            keys.iter().rev().enumerate().map(range).collect()
        } else {
            keys.iter().enumerate().map(range).collect()
        }
    }

    /// The range from the key `start` to the key `end`, in the direction of the query.
    fn range(
        &self,
        query: &ViewQuery,
        place: usize,
        start: Option<&str>,
        end: Option<&str>,
    ) -> Range {
        let at = |key: Option<&str>, id: Option<&str>, side: Edge| {
            let key = self.order.key_of(Json::new(key?));
            Some(edge(&self.prefix, &key, id, side))
        };
        let (start_id, end_id) = (query.start_id.as_deref(), query.end_id.as_deref());
        let (begin, end) = if query.descending {
            let side = if query.inclusive_end {
                Edge::Before
            } else {
                Edge::Behind
            };
            (at(end, end_id, side), at(start, start_id, Edge::Behind))
        } else {
            let side = if query.inclusive_end {
                Edge::Behind
            } else {
                Edge::Before
            };
            (at(start, start_id, Edge::Before), at(end, end_id, side))
        };
        Range {
            place,
            begin: begin.unwrap_or_else(|| self.prefix.clone()),
            end: end.unwrap_or_else(|| [self.prefix.as_slice(), &[AFTER]].concat()),
        }
    }

    fn read(&mut self) -> Result<Option<ViewRow>> {
        let Some(entries) = &mut self.entries else {
            return Ok(None);
        };
        if self.range.is_some() && entries.valid() {
            if self.descending {
                entries.prev()?;
            } else {
                entries.next()?;
            }
        }
        loop {
            if let Some(range) = &self.range
                && entries.valid()
                && (range.begin.as_slice()..range.end.as_slice()).contains(&entries.key())
            {
                let row = decode(entries, self.prefix.len(), range.place);
                return row
                    .ok_or_else(|| Error::damaged("a row of a view", "it cannot be read"))
                    .map(Some);
            }
            let Some(range) = self.ranges.pop_front() else {
                self.entries = None;
                return Ok(None);
            };
            if self.descending {
                entries.seek_for_prev(&range.end)?;
                if entries.valid() && entries.key() == range.end {
                    entries.prev()?;
                }
            } else {
                entries.seek(&range.begin)?;
            }
            self.range = Some(range);
        }
    }
}

fn decode(entries: &DbIterator, prefix: usize, place: usize) -> Option<ViewRow> {
    let (sort_key, id, number) = record::parts_of(entries.key(), prefix)?;
    let (key, value) = record::decode_row(entries.value())?;
    Some(ViewRow {
        key,
        id,
        value,
        sort_key: sort_key.to_vec(),
        place,
        number,
    })
}
