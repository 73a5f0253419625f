//! Listings: documents in the order of their identifiers, page by page.

use super::{Database, Shards};
use crate::error::{Error, Result};
use crate::revision::Revision;
use crate::shard::{Opened, Scan, ScanOptions};

/// Rows of a page, at most.
const PAGE_ROWS: usize = 1000;
/// A page ends when its documents have this many bytes.
const PAGE_BYTES: usize = 1 << 20;
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

/// The next document of a shard.
struct Lane<'a> {
    scan: Scan<'a>,
    next: Option<(String, Revision)>,
}

impl Lane<'_> {
    fn advance(&mut self) -> Result<()> {
        let document = self.scan.next_document()?;
        self.next = document.map(|it| (it.id().to_owned(), it.revision().clone()));
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
        let mut lanes = lanes(&shards, &listing.scan)?;
        let mut rest = listing.clone();
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
            let (id, revision) = lanes[at]
                .next
                .take()
                .expect("the first lane has a document");
            lanes[at].advance()?;
            if rest.skip > 0 {
                rest.skip -= 1;
                continue;
            }
            rest.limit = rest.limit.map(|limit| limit - 1);
            let opened = if listing.with_documents {
                found(shards.of(&id).open_revision(&id, &revision))?
            } else {
                None
            };
            bytes += id.len() + opened.as_ref().map_or(0, |it| it.version.body.len());
            rows.push(Listed {
                id,
                revision,
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
            found(shards.of(id).open_revision(id, &revision))?
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
        let before = ScanOptions {
            to: Some(from.clone()),
            is_before: !listing.scan.is_behind,
            descending: listing.scan.descending,
            ..ScanOptions::default()
        };
        let mut count = listing.skip;
        for shard in self.shards()?.iter() {
            let mut scan = shard.scan(&before)?;
            while scan.next_document()?.is_some() {
                count += 1;
                if count > OFFSET_MAX {
                    return Ok(None);
                }
            }
        }
        Ok(Some(count))
    }
}

fn lanes<'a>(shards: &'a Shards<'_>, options: &ScanOptions) -> Result<Vec<Lane<'a>>> {
    let lane = |shard: &'a crate::shard::Shard| {
        let scan = shard.scan(options)?;
        let mut lane = Lane { scan, next: None };
        lane.advance()?;
        Ok(lane)
    };
    shards.iter().map(lane).collect()
}

/// The lane whose document comes first.
fn first(lanes: &[Lane<'_>], descending: bool) -> Option<usize> {
    let id = |at: &usize| lanes[*at].next.as_ref().map(|(id, _)| id);
    let there = (0..lanes.len()).filter(|at| lanes[*at].next.is_some());
    if descending {
        there.max_by_key(id)
    } else {
        there.min_by_key(id)
    }
}

/// A document that was purged since its row was read is left out.
fn found(opened: Result<Opened>) -> Result<Option<Opened>> {
    match opened {
        Err(Error::NotFound(_)) => Ok(None),
        opened => opened.map(Some),
    }
}
