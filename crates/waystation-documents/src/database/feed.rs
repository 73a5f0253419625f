//! The feed of a database's changes: every document once, at its latest sequence, in the order of the clock.

use super::part::{Part, each};
use super::{Database, FilterFunction, Sequence};
use crate::error::Result;
use crate::json::Json;
use crate::mango::Selector;
use crate::revision::Revision;
use crate::shard::{Change, Opened, ReadChange, Revisions, WantedChanges};
use crate::views::DesignFunctions;
use crate::{Rendering, render};
use std::collections::{HashSet, VecDeque};

/// Changes that a page reads, at most.
const PAGE_CHANGES: usize = 1000;
/// A page ends when its documents have this many bytes.
const PAGE_BYTES: usize = 1 << 20;
/// Changes that are read of a shard at once.
const LANE_ROWS: u64 = 256;
/// Fewer are read once their documents have this many bytes.
const LANE_BYTES: u64 = 256 << 10;

/// A selector that chooses changes. The shards match it against the winners of documents without conflicts.
#[derive(Debug, Clone)]
pub struct SelectorFilter {
    text: String,
    selector: Selector,
    all_leaves: bool,
}

impl SelectorFilter {
    /// The selector whose canonical JSON is `json`.
    ///
    /// # Errors
    /// As [`Selector::parse`].
    pub fn parse(json: Json<'_>) -> Result<Self> {
        Ok(Self {
            selector: Selector::parse(json)?,
            text: json.text().to_owned(),
            all_leaves: false,
        })
    }
}

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
    Selector(SelectorFilter),
    /// Those of documents whose winner the function lets pass.
    Function(FilterFunction),
}

impl Filter {
    /// The same for a feed that tells of all leaves: selectors and functions judge each of them, and not the winner
    /// alone.
    #[must_use]
    pub fn of_all_leaves(mut self) -> Self {
        match &mut self {
            Self::Selector(filter) => filter.all_leaves = true,
            Self::Function(function) => function.all_leaves = true,
            Self::All | Self::Ids(_) | Self::Design => {}
        }
        self
    }

    fn judges_all_leaves(&self) -> bool {
        match self {
            Self::Selector(filter) => filter.all_leaves,
            Self::Function(function) => function.all_leaves,
            Self::All | Self::Ids(_) | Self::Design => false,
        }
    }
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

/// The next changes of a shard.
struct Lane<'a> {
    part: &'a Part,
    /// Where the next page begins.
    from: u64,
    descending: bool,
    wanted: WantedChanges,
    ready: VecDeque<ReadChange>,
    is_end: bool,
}

impl Lane<'_> {
    /// Reads more, if there is nothing left.
    fn fill(&mut self, rows: u64) -> Result<()> {
        if self.is_end || !self.ready.is_empty() {
            return Ok(());
        }
        let sizes = (rows.clamp(1, LANE_ROWS), LANE_BYTES);
        let (rows, is_end) = self
            .part
            .changes(self.from, self.descending, sizes, &self.wanted)?;
        self.from = rows.last().map_or(self.from, |last| last.sequence);
        self.is_end = is_end;
        self.ready = rows.into();
        Ok(())
    }
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
        let mut lanes = each(shards.iter().zip(0..), |part, at: usize| {
            feed.lane(part, at)
        })?;
        let (mut rows, mut bytes, mut sandbox) = (Vec::new(), 0, None);
        for _ in 0..PAGE_CHANGES {
            let at = first(&lanes, feed.until.is_some());
            let Some(at) = at.filter(|_| feed.limit != Some(0)) else {
                return Ok(FeedPage { rows, is_end: true });
            };
            let lane = &mut lanes[at];
            let Some(read) = lane.ready.pop_front() else {
                break;
            };
            lane.fill(feed.limit.unwrap_or(LANE_ROWS))?;
            feed.pass(at, read.sequence);
            let Some(mut change) = read.change else {
                continue;
            };
            let part = &shards[at];
            let Some(opened) = feed.choose(&mut change, read.opened, &mut sandbox, part)? else {
                continue;
            };
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
        let is_end = feed.limit == Some(0) || lanes.iter().all(|lane| lane.ready.is_empty());
        Ok(FeedPage { rows, is_end })
    }

    /// How many changes there are behind `feed`.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`].
    pub fn pending(&self, feed: &Feed) -> Result<u64> {
        let shards = self.shards()?;
        let parts = shards.iter().zip(&feed.since.positions);
        let counts = each(parts, |part, since| match feed.until {
            None => part.count_changes(*since),
            Some(until) => {
                Ok(part.count_changes(0)? - part.count_changes(until.saturating_sub(1))?)
            }
        })?;
        Ok(counts.into_iter().sum())
    }
}

impl Feed {
    /// The way through shard `at`.
    fn lane<'a>(&self, part: &'a Part, at: usize) -> Result<Lane<'a>> {
        let wanted = match &self.filter {
            Filter::All if self.with_documents => WantedChanges::WithDocuments,
            Filter::Function(_) => WantedChanges::WithDocuments,
            Filter::All | Filter::Ids(_) | Filter::Design => WantedChanges::Bare,
            Filter::Selector(selector) => WantedChanges::Matching {
                selector: selector.text.clone(),
                with_documents: self.with_documents,
            },
        };
        let since = self.since.positions.get(at).copied().unwrap_or(0);
        let mut lane = Lane {
            part,
            from: self.until.unwrap_or(since),
            descending: self.until.is_some(),
            wanted,
            ready: VecDeque::new(),
            is_end: false,
        };
        lane.fill(self.limit.unwrap_or(LANE_ROWS))?;
        Ok(lane)
    }

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

    /// `None` if `change` is not wanted; else the document, if that is. Leaves that are not wanted leave the change.
    #[expect(
        clippy::option_option,
        reason = "a change may be wanted without its document"
    )]
    fn choose(
        &self,
        change: &mut Change,
        opened: Option<Opened>,
        sandbox: &mut Option<DesignFunctions>,
        part: &Part,
    ) -> Result<Option<Option<Opened>>> {
        let is_wanted = match &self.filter {
            Filter::All => return Ok(Some(opened)),
            // The shard has matched it.
            Filter::Selector(_) if change.leaves.len() < 2 => return Ok(Some(opened)),
            Filter::Selector(_) | Filter::Function(_) => {
                return self.choose_leaves(change, opened, sandbox, part);
            }
            Filter::Ids(ids) => ids.contains(&change.id),
            Filter::Design => change.id.starts_with("_design/"),
        };
        let winner = change.leaves.first().filter(|_| is_wanted);
        let Some(winner) = winner else {
            return Ok(None);
        };
        let opened = self
            .with_documents
            .then(|| part.find_revision(&change.id, winner));
        Ok(Some(opened.transpose()?.flatten()))
    }

    /// As [`Feed::choose`], by what the selector or the function says of the winner, or of each leaf.
    #[expect(
        clippy::option_option,
        reason = "a change may be wanted without its document"
    )]
    fn choose_leaves(
        &self,
        change: &mut Change,
        winner: Option<Opened>,
        sandbox: &mut Option<DesignFunctions>,
        part: &Part,
    ) -> Result<Option<Option<Opened>>> {
        let is_winner_enough = change.leaves.len() < 2 || !self.filter.judges_all_leaves();
        let opened: Vec<Opened> = match winner {
            Some(winner) if is_winner_enough => vec![winner],
            _ => {
                let asked = match change.leaves.first() {
                    Some(winner) if is_winner_enough => vec![winner.clone()],
                    _ => change.leaves.clone(),
                };
                let found = part.open_revisions(&change.id, &Revisions::Named(asked), false)?;
                found.into_iter().filter_map(Result::ok).collect()
            }
        };
        let mut chosen = Vec::new();
        for opened in opened {
            if self.passes(&change.id, &opened, sandbox)? {
                chosen.push(opened);
            }
        }
        if !is_winner_enough {
            let passed = |leaf: &Revision| chosen.iter().any(|it| it.version.revision == *leaf);
            change.leaves.retain(passed);
        }
        let first = chosen.into_iter().next();
        Ok(first.map(|first| Some(first).filter(|_| self.with_documents)))
    }

    /// Whether the selector or the function lets a version of the document `id` pass.
    fn passes(
        &self,
        id: &str,
        opened: &Opened,
        sandbox: &mut Option<DesignFunctions>,
    ) -> Result<bool> {
        match &self.filter {
            Filter::Selector(filter) => {
                let text = render(id, opened, &Rendering::default());
                Ok(filter.selector.matches(&Json::new(&text)))
            }
            Filter::Function(function) => {
                let rendering = Rendering {
                    revisions: true,
                    ..Rendering::default()
                };
                function.passes(sandbox, &render(id, opened, &rendering))
            }
            Filter::All | Filter::Ids(_) | Filter::Design => Ok(true),
        }
    }
}

/// The lane whose change comes first.
fn first(lanes: &[Lane<'_>], descending: bool) -> Option<usize> {
    let sequence = |at: &usize| lanes[*at].ready.front().map(|read| read.sequence);
    let there = (0..lanes.len()).filter(|at| sequence(at).is_some());
    if descending {
        there.max_by_key(sequence)
    } else {
        there.min_by_key(sequence)
    }
}
