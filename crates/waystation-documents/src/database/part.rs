//! A part of a database: its documents of one range, wherever their shard is.
//!
//! Each call makes a request, and reads the reply that belongs to it. A reply of another kind is an error of the node,
//! and so is a page that does not keep to its order or its size: a drive is not believed what cannot be true.

use super::partition::placed_by;
use super::replicas::Replicas;
use super::{LOCAL_NODE, ring};
use crate::attachment::AttachmentInfo;
use crate::document::Document;
use crate::error::{Error, NodeFault, Result};
use crate::mango::Groups;
use crate::revision::Revision;
use crate::shard::{
    Edits, FindPart, FindStep, IndexDefinition, ListedDocument, LocalDocument, Opened, ReadChange,
    Reply, Request, Revisions, ScanOptions, Shard, ShardAccess, ShardInfo, Updated, ViewRows,
    ViewsInfo, WantedChanges,
};
use crate::views::{DesignDocument, Limits, Signature, ViewQuery};
use std::sync::Arc;
use waystation::Durability;

/// A part of a database. See the module.
#[derive(Clone)]
pub(super) struct Part {
    place: Place,
    /// The number of its range, and how many there are.
    range: (usize, usize),
    /// Whether documents are placed by their partitions.
    is_partitioned: bool,
}

/// Where a part is.
#[derive(Clone)]
pub(super) enum Place {
    /// In this process, and nowhere else.
    Here(Arc<Shard>),
    /// On nodes.
    Nodes(Arc<Replicas>),
}

/// The reply of one kind; others are an error.
macro_rules! reply {
    ($part:expr, $request:expr, $kind:pat => $value:expr) => {
        reply!($part, ask, $request, $kind => $value)
    };
    ($part:expr, $ask:ident, $request:expr, $kind:pat => $value:expr) => {
        match $part.$ask($request)? {
            $kind => Ok($value),
            _ => Err($part.lies("a reply that belongs to another request")),
        }
    };
}

impl Part {
    /// The part of the range that `range` tells: its number, and how many there are.
    pub(super) fn new(place: Place, range: (usize, usize), is_partitioned: bool) -> Self {
        Self {
            place,
            range,
            is_partitioned,
        }
    }

    fn access(&self) -> &dyn ShardAccess {
        match &self.place {
            Place::Here(shard) => &**shard,
            Place::Nodes(replicas) => &**replicas,
        }
    }

    /// The name of the node that answers.
    fn node(&self) -> String {
        match &self.place {
            Place::Here(_) => LOCAL_NODE.to_owned(),
            Place::Nodes(replicas) => replicas.node(),
        }
    }

    /// Its copies, if it may have some.
    pub(super) fn replicas(&self) -> Option<&Arc<Replicas>> {
        match &self.place {
            Place::Here(_) => None,
            Place::Nodes(replicas) => Some(replicas),
        }
    }

    /// Whether something beside the database holds it.
    pub(super) fn is_held(&self) -> bool {
        match &self.place {
            Place::Here(shard) => Arc::strong_count(shard) > 1,
            Place::Nodes(replicas) => Arc::strong_count(replicas) > 1,
        }
    }

    pub(super) fn is_remote(&self) -> bool {
        self.access().is_remote()
    }

    /// The error of a node that answered `what`.
    pub(super) fn lies(&self, what: &str) -> Error {
        Error::Node {
            fault: NodeFault::Lying,
            reason: format!(
                "node {} answered {what}; check its version and its memory, and restart it",
                self.node()
            ),
        }
    }

    fn check(&self, is_true: bool, what: &str) -> Result<()> {
        if is_true {
            return Ok(());
        }
        Err(self.lies(what))
    }

    pub(super) fn info(&self) -> Result<ShardInfo> {
        reply!(self, Request::Info, Reply::Info { info } => info)
    }

    /// Bytes of its files, and of tables that hold something.
    pub(super) fn sizes(&self) -> Result<(u64, u64)> {
        reply!(self, Request::Sizes, Reply::Sizes { file_bytes, active_bytes } => (file_bytes, active_bytes))
    }

    pub(super) fn set_revs_limit(&self, limit: u64) -> Result<()> {
        reply!(self, Request::SetRevsLimit { limit }, Reply::Done => ())
    }

    pub(super) fn update(
        &self,
        documents: Vec<Document>,
        edits: Edits,
        durability: Durability,
    ) -> Result<Vec<Updated>> {
        let count = documents.len();
        let request = Request::Update {
            documents,
            edits,
            durability,
        };
        let outcomes = reply!(self, request, Reply::Updated { outcomes } => outcomes)?;
        self.check(
            outcomes.len() == count,
            "another number of outcomes than of updates",
        )?;
        Ok(outcomes)
    }

    pub(super) fn open_winner(&self, id: &str) -> Result<Opened> {
        let id = id.to_owned();
        reply!(self, Request::OpenWinner { id }, Reply::Opened { opened } => opened)
    }

    pub(super) fn open_revision(&self, id: &str, revision: &Revision) -> Result<Opened> {
        let (id, revision) = (id.to_owned(), revision.clone());
        reply!(self, Request::OpenRevision { id, revision }, Reply::Opened { opened } => opened)
    }

    /// As [`Part::open_revision`]; `None` if it has gone meanwhile.
    pub(super) fn find_revision(&self, id: &str, revision: &Revision) -> Result<Option<Opened>> {
        match self.open_revision(id, revision) {
            Err(Error::NotFound(_)) => Ok(None),
            opened => opened.map(Some),
        }
    }

    pub(super) fn open_revisions(
        &self,
        id: &str,
        revisions: &Revisions,
        latest: bool,
    ) -> Result<Vec<Result<Opened, Revision>>> {
        let request = Request::OpenRevisions {
            id: id.to_owned(),
            revisions: revisions.clone(),
            latest,
        };
        reply!(self, request, Reply::OpenedRevisions { found } => found)
    }

    pub(super) fn missing_revisions(
        &self,
        id: &str,
        revisions: &[Revision],
    ) -> Result<(Vec<Revision>, Vec<Revision>)> {
        let (id, revisions) = (id.to_owned(), revisions.to_vec());
        reply!(self, Request::MissingRevisions { id, revisions }, Reply::Missing { missing, ancestors } => (missing, ancestors))
    }

    pub(super) fn winner(&self, id: &str) -> Result<Option<(Revision, bool)>> {
        let id = id.to_owned();
        reply!(self, Request::Winner { id }, Reply::Winner { winner } => winner)
    }

    pub(super) fn attachment(&self, info: &AttachmentInfo) -> Result<Vec<u8>> {
        let info = info.clone();
        reply!(self, Request::Attachment { info }, Reply::Bytes { bytes } => bytes)
    }

    pub(super) fn open_local(&self, name: &str) -> Result<LocalDocument> {
        let name = name.to_owned();
        reply!(self, Request::OpenLocal { name }, Reply::Local { document } => document)
    }

    pub(super) fn put_local(
        &self,
        name: &str,
        version: Option<u64>,
        body: &str,
        durability: Durability,
    ) -> Result<u64> {
        let request = Request::PutLocal {
            name: name.to_owned(),
            version,
            body: body.to_owned(),
            durability,
        };
        reply!(self, request, Reply::Number { number } => number)
    }

    pub(super) fn delete_local(&self, name: &str, version: Option<u64>) -> Result<()> {
        let name = name.to_owned();
        reply!(self, Request::DeleteLocal { name, version }, Reply::Done => ())
    }

    pub(super) fn local_documents(&self) -> Result<Vec<LocalDocument>> {
        reply!(self, Request::LocalDocuments, Reply::Locals { documents } => documents)
    }

    /// The next documents of a scan, and whether they are the last ones.
    pub(super) fn list(
        &self,
        options: &ScanOptions,
        rows_max: u64,
        bytes: u64,
        with_documents: bool,
    ) -> Result<(Vec<ListedDocument>, bool)> {
        let request = Request::List {
            options: options.clone(),
            rows: rows_max,
            bytes,
            with_documents,
        };
        let (rows, is_end) =
            reply!(self, ask_fastest, request, Reply::Listed { rows, is_end } => (rows, is_end))?;
        let before = options.from.as_deref().filter(|_| options.is_behind);
        let ids: Vec<&str> = before
            .into_iter()
            .chain(rows.iter().map(|row| row.id.as_str()))
            .collect();
        self.check_pages(&ids, options.descending, rows.len(), rows_max, is_end)?;
        self.check_ids(rows.iter().map(|row| row.id.as_bytes()))?;
        Ok((rows, is_end))
    }

    /// Checks that documents belong to this part.
    fn check_ids<'a>(&self, mut ids: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        let (number, ranges) = self.range;
        let is_here = matches!(self.place, Place::Here(_));
        let placed = |id: &'a [u8]| match std::str::from_utf8(id) {
            Ok(text) => placed_by(text, self.is_partitioned).as_bytes(),
            Err(_) => id,
        };
        let is_own = |id: &'a [u8]| is_here || ring::shard_of(placed(id), ranges) == number;
        self.check(ids.all(is_own), "documents that belong to another range")
    }

    /// Checks what every page keeps to: its order, behind the one before, its size, and that it goes on.
    fn check_pages<T: Ord>(
        &self,
        places: &[T],
        descending: bool,
        rows: usize,
        rows_max: u64,
        is_end: bool,
    ) -> Result<()> {
        let in_order = |pair: &[T]| {
            if descending {
                pair[0] > pair[1]
            } else {
                pair[0] < pair[1]
            }
        };
        self.check(places.windows(2).all(in_order), "rows out of their order")?;
        self.check(rows as u64 <= rows_max, "more rows than were asked for")?;
        self.check(
            rows > 0 || is_end || rows_max == 0,
            "a page without an end or rows",
        )
    }

    pub(super) fn count_documents(&self, options: &ScanOptions, most: u64) -> Result<u64> {
        let options = options.clone();
        reply!(self, Request::CountDocuments { options, most }, Reply::Number { number } => number)
    }

    /// The next changes behind `from`, or before it (`descending`), and whether they are the last ones.
    pub(super) fn changes(
        &self,
        from: u64,
        descending: bool,
        (rows_max, bytes): (u64, u64),
        wanted: &WantedChanges,
    ) -> Result<(Vec<ReadChange>, bool)> {
        let request = Request::Changes {
            from,
            descending,
            rows: rows_max,
            bytes,
            wanted: wanted.clone(),
        };
        let (rows, is_end) =
            reply!(self, request, Reply::Changes { rows, is_end } => (rows, is_end))?;
        let read = rows.iter().map(|row| row.sequence);
        let places: Vec<u64> = [from].into_iter().chain(read).collect();
        self.check_pages(&places, descending, rows.len(), rows_max, is_end)?;
        let changes = rows.iter().filter_map(|row| row.change.as_ref());
        self.check_ids(changes.map(|change| change.id.as_bytes()))?;
        Ok((rows, is_end))
    }

    pub(super) fn count_changes(&self, since: u64) -> Result<u64> {
        reply!(self, Request::CountChanges { since }, Reply::Number { number } => number)
    }

    pub(super) fn find(&self, step: FindStep) -> Result<FindPart> {
        let (query, found_max) = (Arc::clone(&step.query), step.found_max);
        let descending = query.descending;
        let after = step.after.clone();
        let part = match &self.place {
            Place::Nodes(replicas) => replicas.find(step)?,
            Place::Here(shard) => return shard.find(&step),
        };
        let found = part.found.iter().map(|(place, _)| place);
        let places: Vec<&Vec<u8>> = after.iter().chain(found).collect();
        let rows = part.found.len();
        // A step without a document that was found still has to go on.
        let is_over = part.is_end || part.reached.is_some();
        self.check_pages(&places, descending, rows, found_max, is_over)?;
        let last = places.last().copied();
        let is_behind = match (&part.reached, last) {
            (Some(reached), Some(last)) if descending => reached <= last,
            (Some(reached), Some(last)) => reached >= last,
            _ => rows == 0,
        };
        self.check(is_behind, "a place before what it found")?;
        let goes_on = part.is_end || part.reached != after;
        self.check(goes_on, "a step that came to where it began")?;
        if query.index.is_none() {
            let ids = part.found.iter().map(|(place, _)| place.as_slice());
            self.check_ids(ids)?;
        }
        let is_of_query = match &query.aggregate {
            Some(aggregate) => part.groups.is_of(aggregate) && rows == 0,
            None => part.groups == Groups::default(),
        };
        self.check(is_of_query, "figures that were not asked for")?;
        Ok(part)
    }

    /// Identifiers at which pieces of it begin that are better scanned at once, but for the first one.
    pub(super) fn split(&self, shards: u64) -> Result<Vec<String>> {
        let request = Request::Split { shards };
        let points = reply!(self, ask_fastest, request, Reply::Points { ids } => ids)?;
        self.check(points.is_sorted(), "points out of their order")?;
        Ok(points)
    }

    fn ask(&self, request: Request) -> Result<Reply> {
        self.access().ask(request)
    }

    /// Asks the copy that is likely to answer first, and another one if that takes long.
    fn ask_fastest(&self, request: Request) -> Result<Reply> {
        match &self.place {
            Place::Here(shard) => shard.ask(request),
            Place::Nodes(replicas) => replicas.ask_fastest(request),
        }
    }

    pub(super) fn is_on_node_of(&self, other: &Self) -> bool {
        self.node() == other.node()
    }

    pub(super) fn index_definitions(&self) -> Result<Vec<IndexDefinition>> {
        reply!(self, Request::IndexDefinitions, Reply::Indexes { definitions } => definitions)
    }

    pub(super) fn create_index(&self, definition: IndexDefinition) -> Result<()> {
        reply!(self, Request::CreateIndex { definition }, Reply::Done => ())
    }

    pub(super) fn drop_index(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        reply!(self, Request::DropIndex { name }, Reply::Done => ())
    }

    pub(super) fn view_rows(
        &self,
        design: &DesignDocument,
        name: &str,
        query: &ViewQuery,
        limits: Limits,
    ) -> Result<ViewRows> {
        self.access().view_rows(design, name, query, limits)
    }

    /// Takes up to `steps` steps; the sequence that is reached.
    pub(super) fn build_views(
        &self,
        design: &DesignDocument,
        limits: Limits,
        steps: u64,
    ) -> Result<u64> {
        let design = design.clone();
        let request = Request::BuildViews {
            design,
            limits,
            steps,
        };
        reply!(self, request, Reply::Number { number } => number)
    }

    pub(super) fn views_info(&self, design: &DesignDocument) -> Result<ViewsInfo> {
        let design = design.clone();
        reply!(self, Request::ViewsInfo { design }, Reply::Views { info } => info)
    }

    pub(super) fn clean_up_views(&self, kept: &[Signature]) -> Result<()> {
        let kept = kept.to_vec();
        reply!(self, Request::CleanUpViews { kept }, Reply::Done => ())
    }

    pub(super) fn purge(&self, id: &str, revisions: &[Revision]) -> Result<Vec<Revision>> {
        let (id, revisions) = (id.to_owned(), revisions.to_vec());
        reply!(self, Request::Purge { id, revisions }, Reply::Purged { revisions } => revisions)
    }

    pub(super) fn compact(&self) -> Result<()> {
        reply!(self, Request::Compact, Reply::Done => ())
    }

    pub(super) fn sync(&self) -> Result<()> {
        reply!(self, Request::Sync, Reply::Done => ())
    }
}

/// Does `work` with each of `parts`, with those on other machines at once, and answers in their order.
pub(super) fn each<'a, T: Send, R: Send>(
    parts: impl Iterator<Item = (&'a Part, T)>,
    work: impl Fn(&'a Part, T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    std::thread::scope(|scope| {
        let work = &work;
        let mut begun = Vec::new();
        for (part, given) in parts {
            if part.is_remote() {
                begun.push(Begun::There(scope.spawn(move || work(part, given))));
            } else {
                begun.push(Begun::Here(part, given));
            }
        }
        let done = begun.into_iter().map(|begun| match begun {
            Begun::Here(part, given) => work(part, given),
            Begun::There(thread) => match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            },
        });
        done.collect()
    })
}

/// Work with a part.
enum Begun<'scope, 'a, T, R> {
    /// Still to be done, on the caller's thread.
    Here(&'a Part, T),
    /// Under way.
    There(std::thread::ScopedJoinHandle<'scope, Result<R>>),
}
