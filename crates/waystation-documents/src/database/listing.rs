//! Listings: documents in the order of their identifiers, page by page.

use super::part::{Part, each};
use super::{Database, Shards};
use crate::error::Result;
use crate::partition::bounds_of;
use crate::revision::Revision;
use crate::shard::{ListedDocument, Opened, ScanOptions};
use std::collections::VecDeque;

/// Rows of a page, at most.
const PAGE_ROWS: usize = 1000;
/// A page ends when its documents have this many bytes.
const PAGE_BYTES: usize = 1 << 20;
/// Documents that are read of a shard at once.
const LANE_ROWS: u64 = 64;
/// Fewer are read once they have this many bytes.
const LANE_BYTES: u64 = 128 << 10;
/// More documents than this are not counted to say how many stand before the first one of a listing.
const OFFSET_MAX: u64 = 10_000;

/// What to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// Which documents, and in which direction.
    pub scan: ScanOptions,
    /// Documents to pass over.
    pub skip: u64,
    /// Documents to list at most; `None`: all.
    pub limit: Option<u64>,
    /// Whether whole documents are wanted.
    pub with_documents: bool,
    /// The partition in which all of it lies, so that no other shard is asked.
    pub partition: Option<String>,
}

/// A document in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its identifier.
    pub id: String,
    /// Its winning revision.
    pub revision: Revision,
    /// Whether that deletes it: only where the document was asked for by name.
    pub deleted: bool,
    /// The document, if it is wanted and is still there.
    pub opened: Option<Opened>,
}

/// A part of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage {
    /// The documents.
    pub rows: Vec<Listed>,
    /// What is still to be listed; `None` at the end.
    pub rest: Option<Listing>,
}

/// The next documents of a shard.
struct Lane<'a> {
    part: &'a Part,
    options: ScanOptions,
    with_documents: bool,
    ready: VecDeque<ListedDocument>,
    is_end: bool,
}

impl Lane<'_> {
    /// Reads more, if there is nothing left.
    fn fill(&mut self, rows: u64) -> Result<()> {
        if rows == 0 || self.is_end || !self.ready.is_empty() {
            return Ok(());
        }
        let rows = rows.clamp(1, LANE_ROWS);
        let (rows, is_end) =
            self.part
                .list(&self.options, rows, LANE_BYTES, self.with_documents)?;
        if let Some(last) = rows.last() {
            self.options.from = Some(last.id.clone());
            self.options.is_behind = true;
        }
        self.is_end = is_end;
        self.ready = rows.into();
        Ok(())
    }
}

impl Database {
    /// The next page of `listing`.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`], [`Error::Damaged`].
    pub fn list(&self, listing: &Listing) -> Result<ListPage> {
        let shards = self.shards()?;
        let mut rest = listing.clone();
        let mut lanes = lanes(&shards, &rest)?;
        let mut rows: Vec<Listed> = Vec::new();
        let mut bytes = 0;
        while rest.limit != Some(0) {
            let Some(at) = first(&lanes, listing.scan.descending) else {
                return Ok(ListPage { rows, rest: None });
            };
            if rows.len() >= PAGE_ROWS || bytes >= PAGE_BYTES {
                rest.scan.from = rows.last().map(|row| row.id.clone());
                rest.scan.is_behind = true;
                let rest = Some(rest);
                return Ok(ListPage { rows, rest });
            }
            let lane = &mut lanes[at];
            let Some(row) = lane.ready.pop_front() else {
                break;
            };
            if rest.skip > 0 {
                rest.skip -= 1;
                lane.with_documents = listing.with_documents && rest.skip < LANE_ROWS;
                lane.fill(LANE_ROWS)?;
                continue;
            }
            rest.limit = rest.limit.map(|limit| limit - 1);
            lane.with_documents = listing.with_documents;
            lane.fill(rest.limit.unwrap_or(LANE_ROWS))?;
            let opened = match row.opened {
                None if listing.with_documents => {
                    lane.part.find_revision(&row.id, &row.revision)?
                }
                opened => opened,
            };
            bytes += row.id.len() + opened.as_ref().map_or(0, |it| it.version.body.len());
            rows.push(Listed {
                id: row.id,
                revision: row.revision,
                deleted: false,
                opened,
            });
        }
        Ok(ListPage { rows, rest: None })
    }

    /// The document `id` as a listing has it, deleted or not; `None` if it never was.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`], [`Error::Damaged`].
    pub fn list_one(&self, id: &str, with_document: bool) -> Result<Option<Listed>> {
        let shards = self.shards()?;
        let Some((revision, deleted)) = shards.of(id).winner(id)? else {
            return Ok(None);
        };
        let opened = if with_document && !deleted {
            shards.of(id).find_revision(id, &revision)?
        } else {
            None
        };
        Ok(Some(Listed {
            id: id.to_owned(),
            revision,
            deleted,
            opened,
        }))
    }

    /// How many documents stand before the first one of `listing`; `None` if they are too many to be counted.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`], [`Error::Damaged`].
    pub fn offset(&self, listing: &Listing) -> Result<Option<u64>> {
        let Some(from) = &listing.scan.from else {
            return Ok(Some(listing.skip));
        };
        let partition = listing.partition.as_deref();
        let bounds = partition.map(bounds_of);
        let before = ScanOptions {
            from: bounds.map(|(begin, end)| if listing.scan.descending { end } else { begin }),
            to: Some(from.clone()),
            is_before: !listing.scan.is_behind,
            descending: listing.scan.descending,
            ..ScanOptions::default()
        };
        let mut count = listing.skip;
        let shards = self.shards()?;
        for part in shards.within(partition) {
            count += part.count_documents(&before, OFFSET_MAX)?;
            if count > OFFSET_MAX {
                return Ok(None);
            }
        }
        Ok(Some(count))
    }
}

fn lanes<'a>(shards: &'a Shards<'_>, listing: &Listing) -> Result<Vec<Lane<'a>>> {
    let wanted = listing
        .limit
        .map(|limit| limit.saturating_add(listing.skip));
    let shards = shards.within(listing.partition.as_deref());
    let wanted = wanted.unwrap_or(LANE_ROWS).div_ceil(shards.len() as u64) + 1;
    each(shards.iter().map(|part| (part, ())), |part, ()| {
        let mut lane = Lane {
            part,
            options: listing.scan.clone(),
            with_documents: listing.with_documents && listing.skip < LANE_ROWS,
            ready: VecDeque::new(),
            is_end: false,
        };
        lane.fill(wanted)?;
        Ok(lane)
    })
}

/// The lane whose document comes first.
fn first(lanes: &[Lane<'_>], descending: bool) -> Option<usize> {
    let id = |at: &usize| lanes[*at].ready.front().map(|row| &row.id);
    let there = (0..lanes.len()).filter(|at| id(at).is_some());
    if descending {
        there.max_by_key(id)
    } else {
        there.min_by_key(id)
    }
}
