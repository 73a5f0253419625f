//! Views of a database: what its shards keep, as one answer.
//!
//! The index of a view is in every shard. A query brings all of them up to date, some steps at a time, and then reads
//! them as they stand at that moment. Rows are read while their answer is sent: the iterators outlive the call,
//! hold what they read, and keep the database from being closed, but not from being deleted.

use super::part::each;
use super::{Database, Sequence};
use crate::error::Result;
use crate::partition::bounds_of;
use crate::shard::ViewRows;
use crate::views::{
    DesignDocument, Limits, MergedGroups, MergedRows, Signature, Update, ViewQuery,
};
use std::sync::Arc;

/// More rows than this are not counted to say how many stand before the first one of an answer.
const OFFSET_MAX: u64 = 10_000;
/// Steps of a build for which the shards are held.
const STEPS: u64 = 16;

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
        self.read_design(id, &self.open_winner(id)?.version.body)
    }

    fn read_design(&self, id: &str, body: &str) -> Result<DesignDocument> {
        let design = DesignDocument::parse(id, body)?;
        Ok(if self.is_partitioned {
            design.of_partitions()
        } else {
            design
        })
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
        query.check(design, view)?;
        let reduces = query.reduces(view);
        let partition = query.partition.as_deref();
        if query.update == Update::Before {
            self.build_within(design, partition, limits)?;
        }
        let built = ViewQuery {
            update: Update::Never,
            ..query.clone()
        };
        let query = &built;
        let shards = self.shards()?;
        let asked = shards.within(partition);
        let parts = asked.iter().map(|part| (part, ()));
        let mut rows = each(parts, |part, ()| {
            part.view_rows(design, name, query, limits)
        })?;
        let total_rows: u64 = rows.iter().map(ViewRows::total_rows).sum();
        let offset = if reduces || !query.sorted {
            None
        } else {
            offset(&mut rows)?.map(|offset| total_rows.min(offset.saturating_add(query.skip)))
        };
        let mut positions = vec![0; shards.len()];
        let first = partition.map_or(0, |it| shards.number_of(&bounds_of(it).0));
        for (position, rows) in positions[first..].iter_mut().zip(&rows) {
            *position = rows.update_sequence();
        }
        let update_sequence = self.place_at(positions);
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
        self.build_within(design, None, limits)
    }

    /// The same for the shards of a partition, if one is named. The shards are let go of now and then, so that the
    /// database can be deleted meanwhile.
    fn build_within(
        &self,
        design: &DesignDocument,
        partition: Option<&str>,
        limits: Limits,
    ) -> Result<()> {
        let mut targets: Vec<u64> = Vec::new();
        loop {
            let shards = self.shards()?;
            let asked = shards.within(partition);
            if targets.is_empty() {
                let parts = asked.iter().map(|part| (part, ()));
                targets = each(parts, |part, ()| Ok(part.info()?.update_sequence))?;
            }
            let given = asked.iter().zip(targets.iter().copied());
            let is_whole = each(given, |part, target| {
                Ok(part.build_views(design, limits, STEPS)? >= target)
            })?;
            if is_whole.iter().all(|is_whole| *is_whole) {
                return Ok(());
            }
        }
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
            .map(|design| self.read_design(&design.id, &design.body));
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
