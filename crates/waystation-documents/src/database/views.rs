//! Views of a database: what its shards keep, as one answer.
//!
//! The index of a view is in every shard. A query brings each of them up to date, one after the other, and then reads
//! all of them as they stand at that moment. Rows are read while their answer is sent: the iterators outlive the call,
//! hold what they read, and keep the database from being closed, but not from being deleted.

use super::part::each;
use super::{Database, Sequence};
use crate::error::Result;
use crate::shard::ViewRows;
use crate::views::{DesignDocument, Limits, MergedGroups, MergedRows, Signature, ViewQuery};
use std::sync::Arc;

/// More rows than this are not counted to say how many stand before the first one of an answer.
const OFFSET_MAX: u64 = 10_000;

/// What is read of a view: rows, or rows reduced.
pub enum ViewEntries {
    /// Rows as the map function emitted them.
    Rows(MergedRows),
    /// Groups of rows, each with its reduced value.
    Groups(MergedGroups),
}

/// The answer to a query of a view.
pub struct ViewAnswer {
    /// Rows that the view has.
    pub total_rows: u64,
    /// Rows before the first one of the answer; `None` if the query names no order, or there are more than 10,000.
    pub offset: Option<u64>,
    /// The end of the changes that the rows come from.
    pub update_sequence: Sequence,
    /// What was asked for.
    pub entries: ViewEntries,
    /// Keeps the database open.
    _reading: Arc<()>,
}

/// Figures about the indexes of a design document's views.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DesignInfo {
    /// The latest update that is in an index.
    pub update_sequence: u64,
    /// Changes that are not in the indexes yet.
    pub pending: u64,
    /// About how many bytes of storage the rows take; what is in memory still counts for nothing.
    pub bytes: u64,
}

impl Database {
    /// The design document `id`, which begins with `_design/`.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) if it is not there or deleted; as [`DesignDocument::parse`];
    /// [`Error::NoDatabase`](crate::Error::NoDatabase).
    pub fn design_document(&self, id: &str) -> Result<DesignDocument> {
        DesignDocument::parse(id, &self.open_winner(id)?.version.body)
    }

    /// The answer of the view `name` of `design` to `query`. Parameters that do not go together are found before
    /// anything is built.
    ///
    /// # Errors
    /// As [`Shard::view_rows`](crate::Shard::view_rows); [`Error::NoDatabase`](crate::Error::NoDatabase).
    pub fn view(
        &self,
        design: &DesignDocument,
        name: &str,
        query: &ViewQuery,
        limits: Limits,
    ) -> Result<ViewAnswer> {
        let view = design.view(name)?;
        let reduces = query.reduces(view);
        let shards = self.shards()?;
        let parts = shards.iter().map(|part| (part, ()));
        let mut rows = each(parts, |part, ()| {
            part.view_rows(design, name, query, limits)
        })?;
        let total_rows: u64 = rows.iter().map(ViewRows::total_rows).sum();
        let offset = if reduces || !query.sorted {
            None
        } else {
            offset(&mut rows)?.map(|offset| total_rows.min(offset.saturating_add(query.skip)))
        };
        let update_sequence = Sequence {
            instance: self.instance(),
            positions: rows.iter().map(ViewRows::update_sequence).collect(),
        };
        let entries = if reduces {
            ViewEntries::Groups(MergedGroups::new(rows, view, query, limits)?)
        } else {
            ViewEntries::Rows(MergedRows::new(rows, query))
        };
        Ok(ViewAnswer {
            total_rows,
            offset,
            update_sequence,
            entries,
            _reading: Arc::clone(&self.reading),
        })
    }

    /// Brings the indexes of the views of `design` up to date.
    ///
    /// # Errors
    /// As [`Shard::build_views`](crate::Shard::build_views); [`Error::NoDatabase`](crate::Error::NoDatabase).
    pub fn build_views(&self, design: &DesignDocument, limits: Limits) -> Result<()> {
        let shards = self.shards()?;
        let parts = shards.iter().map(|part| (part, ()));
        each(parts, |part, ()| part.build_views(design, limits)).map(drop)
    }

    /// Figures about the indexes of the views of `design`.
    ///
    /// # Errors
    /// [`Error::NoDatabase`](crate::Error::NoDatabase), [`Error::Engine`](crate::Error::Engine),
    /// [`Error::Damaged`](crate::Error::Damaged).
    pub fn views_info(&self, design: &DesignDocument) -> Result<DesignInfo> {
        let mut info = DesignInfo::default();
        for part in self.shards()?.iter() {
            let figures = part.views_info(design)?;
            info.update_sequence = info.update_sequence.max(figures.update_sequence);
            info.pending += part.count_changes(figures.update_sequence)?;
            info.bytes += figures.bytes;
        }
        Ok(info)
    }

    /// Removes the rows of views that no design document has any more.
    ///
    /// # Errors
    /// As [`DesignDocument::parse`]; [`Error::NoDatabase`](crate::Error::NoDatabase),
    /// [`Error::Engine`](crate::Error::Engine), [`Error::Damaged`](crate::Error::Damaged).
    pub fn clean_up_views(&self) -> Result<()> {
        let designs = self.designs()?;
        let parsed = designs
            .iter()
            .map(|design| DesignDocument::parse(&design.id, &design.body));
        let designs: Vec<DesignDocument> = parsed.collect::<Result<_>>()?;
        let kept: Vec<Signature> = designs.iter().map(DesignDocument::signature).collect();
        let shards = self.shards()?;
        shards
            .iter()
            .try_for_each(|part| part.clean_up_views(&kept))
    }
}

/// Rows before the first one, in all shards.
fn offset(rows: &mut [ViewRows]) -> Result<Option<u64>> {
    let mut offset = 0;
    for rows in rows {
        offset += rows.offset(OFFSET_MAX)?;
        if offset > OFFSET_MAX {
            return Ok(None);
        }
    }
    Ok(Some(offset))
}
