//! The feed of a database's changes: every document once, at its latest sequence, in the order of the clock.

use super::{Database, FilterFunction, Sequence};
use crate::error::{Error, Result};
use crate::json::Json;
use crate::mango::Selector;
use crate::revision::Revision;
use crate::shard::{Change, Changes, Opened};
use crate::views::DesignFunctions;
use crate::{Rendering, render};
use std::collections::HashSet;

/// Changes that a page reads, at most.
const PAGE_CHANGES: usize = 1000;
/// A page ends when its documents have this many bytes.
const PAGE_BYTES: usize = 1 << 20;

/// Which changes are wanted.
#[derive(Debug, Clone, Default)]
pub enum Filter {
    /// All.
    #[default]
    All,
    /// Those of these documents.
    Ids(HashSet<String>),
    /// Those of design documents.
    Design,
    /// Those of documents whose winner the selector matches.
    Selector(Selector),
    /// Those of documents whose winner the function lets pass.
    Function(FilterFunction),
}

/// A reader's way through the changes.
#[derive(Debug, Clone)]
pub struct Feed {
    /// How far it has come, upwards.
    pub since: Sequence,
    /// Downwards: the changes before this one are still to come.
    pub until: Option<u64>,
    /// Which changes it wants.
    pub filter: Filter,
    /// Changes that it wants at most; `None`: all.
    pub limit: Option<u64>,
    /// Whether it wants whole documents.
    pub with_documents: bool,
}

/// A document that has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedRow {
    /// How far a reader has come that has read this.
    pub sequence: Sequence,
    /// The document.
    pub id: String,
    /// Its leaves, the winner first.
    pub leaves: Vec<Revision>,
    /// Whether the winner deletes it.
    pub deleted: bool,
    /// The winner, if it is wanted.
    pub opened: Option<Opened>,
}

/// A part of the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedPage {
    /// The changes that were wanted.
    pub rows: Vec<FeedRow>,
    /// Whether the reader has come to the end, or has all that it wanted.
    pub is_end: bool,
}

/// The next change of a shard.
struct Lane<'a> {
    changes: Changes<'a>,
    next: Option<Change>,
}

impl Database {
    /// Reads `text` as a place in the changes; `now` is their end.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if it is none; [`Error::NoDatabase`], [`Error::Engine`].
    pub fn sequence(&self, text: &str) -> Result<Sequence> {
        match text {
            "now" => self.update_sequence(),
            _ => Sequence::parse(text, self.instance(), self.shard_count),
        }
    }

    /// The next page of `feed`, which goes on behind it.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`], [`Error::Damaged`]; [`Error::Script`] if a function fails.
    pub fn changes(&self, feed: &mut Feed) -> Result<FeedPage> {
        let shards = self.shards()?;
        let mut lanes = Vec::new();
        for (at, shard) in shards.iter().enumerate() {
            let mut changes = match feed.until {
                Some(until) => shard.changes_before(until)?,
                None => shard.changes(feed.since.positions.get(at).copied().unwrap_or(0))?,
            };
            let next = changes.next().transpose()?;
            lanes.push(Lane { changes, next });
        }
        let (mut rows, mut bytes, mut sandbox) = (Vec::new(), 0, None);
        for _ in 0..PAGE_CHANGES {
            let at = first(&lanes, feed.until.is_some());
            let Some(at) = at.filter(|_| feed.limit != Some(0)) else {
                return Ok(FeedPage { rows, is_end: true });
            };
            let lane = &mut lanes[at];
            let change = lane.next.take().expect("the first lane has a change");
            lane.next = lane.changes.next().transpose()?;
            feed.pass(at, change.sequence);
            let wanted = feed.choose(&change, &mut sandbox, |id, revision| {
                match shards[at].open_revision(id, revision) {
                    Err(Error::NotFound(_)) => Ok(None),
                    opened => opened.map(Some),
                }
            })?;
            let Some(opened) = wanted else { continue };
            feed.limit = feed.limit.map(|limit| limit - 1);
            bytes += change.id.len() + opened.as_ref().map_or(0, |it| it.version.body.len());
            rows.push(FeedRow {
                sequence: feed.place(change.sequence),
                id: change.id,
                leaves: change.leaves,
                deleted: change.deleted,
                opened,
            });
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        let is_end = feed.limit == Some(0) || lanes.iter().all(|lane| lane.next.is_none());
        Ok(FeedPage { rows, is_end })
    }

    /// How many changes there are behind `feed`.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`].
    pub fn pending(&self, feed: &Feed) -> Result<u64> {
        let mut pending = 0;
        for (shard, since) in self.shards()?.iter().zip(&feed.since.positions) {
            pending += match feed.until {
                None => shard.count_changes(*since)?,
                Some(until) => {
                    shard.count_changes(0)? - shard.count_changes(until.saturating_sub(1))?
                }
            };
        }
        Ok(pending)
    }
}

impl Feed {
    /// Notes that the change at `sequence` of shard `at` was read.
    fn pass(&mut self, at: usize, sequence: u64) {
        match &mut self.until {
            Some(until) => *until = sequence,
            None => self.since.positions[at] = sequence,
        }
    }

    /// How far a reader has come that has read the change at `sequence`.
    fn place(&self, sequence: u64) -> Sequence {
        match self.until {
            None => self.since.clone(),
            Some(_) => Sequence {
                instance: self.since.instance,
                positions: vec![sequence; self.since.positions.len()],
            },
        }
    }

    /// `None` if `change` is not wanted; else the document, if that is.
    #[expect(
        clippy::option_option,
        reason = "a change may be wanted without its document"
    )]
    fn choose(
        &self,
        change: &Change,
        sandbox: &mut Option<DesignFunctions>,
        open: impl Fn(&str, &Revision) -> Result<Option<Opened>>,
    ) -> Result<Option<Option<Opened>>> {
        let is_wanted = match &self.filter {
            Filter::All | Filter::Selector(_) | Filter::Function(_) => true,
            Filter::Ids(ids) => ids.contains(&change.id),
            Filter::Design => change.id.starts_with("_design/"),
        };
        let winner = change.leaves.first().filter(|_| is_wanted);
        let Some(winner) = winner else {
            return Ok(None);
        };
        if !matches!(self.filter, Filter::Selector(_) | Filter::Function(_)) {
            let opened = self.with_documents.then(|| open(&change.id, winner));
            return Ok(Some(opened.transpose()?.flatten()));
        }
        let Some(opened) = open(&change.id, winner)? else {
            return Ok(None);
        };
        let rendering = Rendering {
            revisions: matches!(self.filter, Filter::Function(_)),
            ..Rendering::default()
        };
        let text = render(&change.id, &opened, &rendering);
        let is_match = match &self.filter {
            Filter::Selector(selector) => selector.matches(&Json::new(&text)),
            Filter::Function(function) => function.passes(sandbox, &text)?,
            Filter::All | Filter::Ids(_) | Filter::Design => true,
        };
        Ok(is_match.then(|| Some(opened).filter(|_| self.with_documents)))
    }
}

/// The lane whose change comes first.
fn first(lanes: &[Lane<'_>], descending: bool) -> Option<usize> {
    let sequence = |at: &usize| lanes[*at].next.as_ref().map(|change| change.sequence);
    let there = (0..lanes.len()).filter(|at| lanes[*at].next.is_some());
    if descending {
        there.max_by_key(sequence)
    } else {
        there.min_by_key(sequence)
    }
}
