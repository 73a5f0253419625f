//! A database: documents over several shards, in this process and on drives.
//!
//! ```text
//!   catalogue    which databases there are; creates and deletes them
//!   ring         which shard holds a document
//!   nodes        the drives beside this process; meter: how fast their scans are; shares: how many shards each gets
//!   replicas     the copies of a shard: changed in one order, read where they are whole; relief: of slow ones
//!   book         how each copy stands, through crashes; fill: copies become whole; mend: what is still to be done
//!   layout       on which nodes copies lie; rebalance: which of them move
//!   open_shards  the shards while the database is open, and which of them holds a document
//!   part         what the database asks of a shard, wherever that is
//!   update       writes, sorted by shard
//!   listing      documents in the order of their identifiers, page by page
//!   feed         changes in the order of the database's clock, page by page
//!   filter       functions of design documents that choose changes
//!   find         Mango queries, page by page; lanes: their ways through the shards, gone at once
//!   design       indexes, as design documents define them
//!   validate     what design documents say about updates
//!   views        answers of views, from the rows that the shards keep
//!   partition    partitions of databases that have some
//!   sequence     how far a reader of changes has come
//! ```
//!
//! Long answers are read in pages: a page is of one moment, and between pages nothing is held. So a slow reader pins
//! neither files nor memory, and a database can be deleted at any time. Views are read at a snapshot instead.
//!
//! Invariants: whoever uses the shards holds the gate for reading; a database is closed or deleted under the gate for
//! writing. A deleted database answers [`Error::NoDatabase`] for ever; a new one of its name is another `Database`.

mod book;
mod catalogue;
mod definition;
mod design;
mod feed;
mod fill;
mod filter;
mod find;
mod lanes;
mod layout;
mod listing;
mod member;
mod mend;
mod meter;
mod nodes;
mod open_shards;
mod part;
mod partition;
mod quorum;
mod rebalance;
mod relief;
mod replicas;
mod request;
mod ring;
mod sequence;
mod shares;
mod update;
mod validate;
mod views;

pub use book::{ShardCopy, Standing};
pub use catalogue::{Catalogue, Settings};
pub use design::IndexInfo;
pub use feed::{Feed, FeedPage, FeedRow, Filter, SelectorFilter};
pub use filter::FilterFunction;
pub use find::{FindPage, FindStats, Finder};
pub use listing::{ListPage, Listed, Listing};
pub use mend::FillState;
pub use meter::Meter;
pub use nodes::{LOCAL_NODE, NodeState, Nodes, ShardPlace};
pub use partition::PartitionInfo;
pub use rebalance::{NodeShare, RebalanceRequest, ShardMove};
pub use request::{FindRequest, IndexRequest};
pub use sequence::Sequence;
pub use shares::shares;
pub use validate::Caller;
pub use views::{DesignInfo, ViewAnswer, ViewEntries};

use crate::attachment::AttachmentInfo;
use crate::error::{Error, Result};
use crate::revision::Revision;
use crate::shard::{Clock, LocalDocument, Opened, Replica, Revisions, Shard, ShardInfo};
use book::{Book, ShardKey};
use definition::Definition;
use member::Member;
use open_shards::Shards;
use part::{Part, Place, each};
use partition::placed_by;
use replicas::Replicas;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use validate::Validators;
use waystation::Options;

/// Where a database stands.
enum State {
    Closed,
    Open(Vec<Part>),
    Deleted,
}

/// Figures about a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseInfo {
    /// Documents that are there.
    pub documents: u64,
    /// Documents that were deleted, and are remembered for replicas.
    pub deleted: u64,
    /// The end of its changes.
    pub update_sequence: Sequence,
    /// How often something was purged.
    pub purge_sequence: u64,
    /// Bytes that its files take.
    pub file_bytes: u64,
    /// Bytes of tables that hold something of it.
    pub active_bytes: u64,
}

/// Documents over several shards. See the module.
pub struct Database {
    name: String,
    directory: PathBuf,
    uuid: String,
    shard_count: usize,
    is_partitioned: bool,
    /// The node of each shard, where the book does not name its copies.
    places: Vec<String>,
    book: Book,
    nodes: Option<Arc<dyn Nodes>>,
    security: Mutex<String>,
    options: Options,
    state: RwLock<State>,
    /// The database is being deleted: what comes now is refused, or it could keep the deletion waiting by coming again.
    is_retired: AtomicBool,
    /// Indexes may differ from what the design documents define.
    indexes_are_stale: AtomicBool,
    /// Held while indexes are made equal to the definitions.
    indexing: Mutex<()>,
    /// Compactions that have begun and not ended.
    compactions: AtomicUsize,
    /// Shared by answers of views that are still read.
    reading: Arc<()>,
    validators: Validators,
}

impl Database {
    fn new(
        name: &str,
        directory: PathBuf,
        definition: &Definition,
        (options, nodes): (Options, Option<Arc<dyn Nodes>>),
        book: Book,
    ) -> Self {
        let here = || vec![LOCAL_NODE.to_owned(); definition.shards];
        let places = match definition.nodes.as_slice() {
            [] => here(),
            places => places.to_vec(),
        };
        Self {
            places,
            book,
            nodes,
            name: name.to_owned(),
            directory,
            uuid: definition.uuid.clone(),
            shard_count: definition.shards,
            is_partitioned: definition.is_partitioned,
            security: Mutex::new(definition.security.clone()),
            options,
            state: RwLock::new(State::Closed),
            is_retired: AtomicBool::new(false),
            indexes_are_stale: AtomicBool::new(true),
            indexing: Mutex::new(()),
            compactions: AtomicUsize::new(0),
            reading: Arc::new(()),
            validators: Validators::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names this database and no other one, also none of the same name.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The names of its shards' ranges.
    pub fn ranges(&self) -> Vec<String> {
        let range = |number| ring::range_name(number, self.shard_count);
        (0..self.shard_count).map(range).collect()
    }

    fn shard_key(&self, number: usize) -> ShardKey {
        ShardKey {
            database: self.uuid.clone(),
            range: ring::range_name(number, self.shard_count),
        }
    }

    /// The copies of shard `number`.
    fn copies(&self, number: usize) -> Result<Vec<ShardCopy>> {
        let noted = self.book.copies(&self.shard_key(number))?;
        let alone = || {
            vec![ShardCopy {
                node: self.places[number].clone(),
                standing: Standing::Whole,
            }]
        };
        Ok(noted.unwrap_or_else(alone))
    }

    /// The names of its shards' ranges, each with its copies.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn places(&self) -> Result<Vec<(String, Vec<ShardCopy>)>> {
        let place = |number| {
            let range = ring::range_name(number, self.shard_count);
            Ok((range, self.copies(number)?))
        };
        (0..self.shard_count).map(place).collect()
    }

    /// The most copies that a shard of it has.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn copies_max(&self) -> Result<usize> {
        let most = |most: usize, number| Ok(most.max(self.copies(number)?.len()));
        (0..self.shard_count).try_fold(1, most)
    }

    /// The name of the range that holds document `id`, and its copies.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn place_of(&self, id: &str) -> Result<(String, Vec<ShardCopy>)> {
        let number = ring::shard_of(placed_by(id, self.is_partitioned), self.shard_count);
        let range = ring::range_name(number, self.shard_count);
        Ok((range, self.copies(number)?))
    }

    /// Who may do what, as canonical JSON; empty: the default.
    pub fn security(&self) -> String {
        let security = self.security.lock();
        security.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells sequences of this database from others'.
    fn instance(&self) -> u32 {
        crc32fast::hash(self.uuid.as_bytes())
    }

    /// The shards; they are opened if they are not.
    fn shards(&self) -> Result<Shards<'_>> {
        loop {
            // The gate lets a reader pass before the waiting deletion wakes.
            if self.is_retired.load(Ordering::SeqCst) {
                return Err(Error::NoDatabase);
            }
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            match &*state {
                State::Open(_) => {
                    let is_partitioned = self.is_partitioned;
                    return Ok(Shards {
                        state,
                        is_partitioned,
                    });
                }
                State::Deleted => return Err(Error::NoDatabase),
                State::Closed => drop(state),
            }
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            if matches!(*state, State::Closed) {
                *state = State::Open(self.open_shards()?);
                self.indexes_are_stale.store(true, Ordering::SeqCst);
            }
        }
    }

    fn open_shards(&self) -> Result<Vec<Part>> {
        let clock = Clock::default();
        let open = |number: usize| {
            let copies = self.copies(number)?;
            let is_here = matches!(copies.as_slice(), [only] if only.node == LOCAL_NODE);
            if is_here && (self.nodes.is_none() || self.name.starts_with('_')) {
                let shard = Shard::over(self.open_engine(number)?, clock.clone())?;
                let place = Place::Here(Arc::new(shard));
                return Ok(Part::new(
                    place,
                    (number, self.shard_count),
                    self.is_partitioned,
                ));
            }
            let member = |copy: ShardCopy| {
                let replica = self.open_replica(number, &copy.node)?;
                let meter = self.meter(&copy.node);
                Ok(Member::new(copy, replica, meter))
            };
            let members: Result<Vec<Member>> = copies.into_iter().map(member).collect();
            let (shard, book) = (self.shard_key(number), self.book.clone());
            let replicas = Replicas::new(shard, clock.clone(), book, members?);
            let place = Place::Nodes(Arc::new(replicas));
            Ok(Part::new(
                place,
                (number, self.shard_count),
                self.is_partitioned,
            ))
        };
        (0..self.shard_count).map(open).collect()
    }

    fn open_engine(&self, number: usize) -> Result<Arc<waystation::Db>> {
        let range = ring::range_name(number, self.shard_count);
        let db = waystation::Db::open(self.directory.join(range), self.options.clone())?;
        Ok(Arc::new(db))
    }

    /// The copy of shard `number` on `node`; on this one it is made if it is missing.
    fn open_replica(&self, number: usize, node: &str) -> Result<Arc<dyn Replica>> {
        if node == LOCAL_NODE {
            let shard = Shard::over(self.open_engine(number)?, Clock::default())?;
            return Ok(Arc::new(shard));
        }
        let shard = self.shard_key(number);
        let place = ShardPlace {
            node: node.to_owned(),
            database: shard.database,
            range: shard.range,
        };
        let reached = self.nodes.as_ref().map(|nodes| nodes.reach(&place));
        match reached {
            Some(Ok(replica)) => Ok(replica),
            Some(Err(_)) | None => Ok(Arc::new(nodes::Unknown(node.to_owned()))),
        }
    }

    fn meter(&self, node: &str) -> Option<Arc<Meter>> {
        self.nodes.as_ref().and_then(|nodes| nodes.meter(node))
    }

    /// The copies of shard `number`, and what keeps the database open while they are used.
    fn replicas(&self, number: usize) -> Result<(Arc<Replicas>, Arc<()>)> {
        let shards = self.shards()?;
        let replicas = shards.get(number).and_then(Part::replicas);
        let replicas = replicas.ok_or_else(|| {
            Error::BadRequest("The shards of this database stay in the server's process.".into())
        })?;
        Ok((Arc::clone(replicas), Arc::clone(&self.reading)))
    }

    /// Closes the shards, if nothing uses them. Returns whether they are closed.
    fn close(&self) -> bool {
        let Ok(mut state) = self.state.try_write() else {
            return false;
        };
        // An iterator keeps the directory: it could not be opened again.
        if Arc::strong_count(&self.reading) > 1 {
            return false;
        }
        if let State::Open(parts) = &*state {
            if parts.iter().any(Part::is_held) {
                return false;
            }
            *state = State::Closed;
            self.validators.clear();
        }
        true
    }

    fn is_open(&self) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        matches!(*state, State::Open(_))
    }

    /// Refuses all that comes, waits for what uses the shards, and closes them.
    fn retire(&self) {
        self.is_retired.store(true, Ordering::SeqCst);
        if let State::Open(parts) = &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            for replicas in parts.iter().filter_map(Part::replicas) {
                replicas.is_retired.store(true, Ordering::SeqCst);
            }
        }
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = State::Deleted;
    }

    /// Figures about it.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`], [`Error::File`].
    pub fn info(&self) -> Result<DatabaseInfo> {
        let shards = self.shards()?;
        let figures = each(shards.iter().map(|part| (part, ())), |part, ()| {
            Ok((part.info()?, part.sizes()?))
        })?;
        let position = |(info, _): &(ShardInfo, _)| info.update_sequence;
        let mut info = DatabaseInfo {
            documents: 0,
            deleted: 0,
            update_sequence: self.place_at(figures.iter().map(position).collect()),
            purge_sequence: 0,
            file_bytes: 0,
            active_bytes: 0,
        };
        for (part, (file_bytes, active_bytes)) in figures {
            info.documents += part.documents;
            info.deleted += part.deleted;
            info.purge_sequence += part.purge_sequence;
            info.file_bytes += file_bytes;
            info.active_bytes += active_bytes;
        }
        Ok(info)
    }

    /// The end of its changes.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`].
    pub fn update_sequence(&self) -> Result<Sequence> {
        let shards = self.shards()?;
        let positions = each(shards.iter().map(|part| (part, ())), |part, ()| {
            Ok(part.info()?.update_sequence)
        })?;
        Ok(self.place_at(positions))
    }

    fn place_at(&self, positions: Vec<u64>) -> Sequence {
        Sequence {
            instance: self.instance(),
            positions,
        }
    }

    /// The winner of document `id`.
    ///
    /// # Errors
    /// As [`Shard::open_winner`]; [`Error::NoDatabase`].
    pub fn open_winner(&self, id: &str) -> Result<Opened> {
        self.shards()?.of(id).open_winner(id)
    }

    /// The version `revision` of document `id`, deleted or not.
    ///
    /// # Errors
    /// As [`Shard::open_revision`]; [`Error::NoDatabase`].
    pub fn open_revision(&self, id: &str, revision: &Revision) -> Result<Opened> {
        self.shards()?.of(id).open_revision(id, revision)
    }

    /// Several versions of document `id`.
    ///
    /// # Errors
    /// As [`Shard::open_revisions`]; [`Error::NoDatabase`].
    pub fn open_revisions(
        &self,
        id: &str,
        revisions: &Revisions,
        latest: bool,
    ) -> Result<Vec<Result<Opened, Revision>>> {
        self.shards()?.of(id).open_revisions(id, revisions, latest)
    }

    /// Which of `revisions` of document `id` are not stored here, and stored ones from which they may descend.
    ///
    /// # Errors
    /// As [`Shard::missing_revisions`]; [`Error::NoDatabase`].
    pub fn missing_revisions(
        &self,
        id: &str,
        revisions: &[Revision],
    ) -> Result<(Vec<Revision>, Vec<Revision>)> {
        self.shards()?.of(id).missing_revisions(id, revisions)
    }

    /// The bytes of an attachment of document `id`.
    ///
    /// # Errors
    /// As [`Shard::attachment`]; [`Error::NoDatabase`].
    pub fn attachment(&self, id: &str, info: &AttachmentInfo) -> Result<Vec<u8>> {
        self.shards()?.of(id).attachment(info)
    }

    /// The local document `name`, which is without `_local/`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NoDatabase`].
    pub fn open_local(&self, name: &str) -> Result<LocalDocument> {
        self.shards()?.of(name).open_local(name)
    }

    /// All local documents, by name.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`], [`Error::Damaged`].
    pub fn local_documents(&self) -> Result<Vec<LocalDocument>> {
        let mut found = Vec::new();
        for part in self.shards()?.iter() {
            found.extend(part.local_documents()?);
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    /// Begins a compaction, which [`Compaction::run`] does.
    pub fn begin_compaction(self: &Arc<Self>) -> Compaction {
        self.compactions.fetch_add(1, Ordering::SeqCst);
        Compaction(Arc::clone(self))
    }

    /// Whether a compaction has begun and not ended.
    pub fn is_compacting(&self) -> bool {
        self.compactions.load(Ordering::SeqCst) > 0
    }

    /// Has all that was written survive a power cut when it returns.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`].
    pub fn sync(&self) -> Result<()> {
        let shards = self.shards()?;
        let parts = shards.iter().map(|part| (part, ()));
        each(parts, |part, ()| part.sync()).map(drop)
    }

    /// Ancestors of each leaf that are remembered.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`].
    pub fn revs_limit(&self) -> Result<u64> {
        let shards = self.shards()?;
        shards
            .first()
            .map_or(Ok(0), |part| Ok(part.info()?.revs_limit))
    }

    /// Has `limit` (at least one) ancestors of each leaf remembered from now on.
    ///
    /// # Errors
    /// As [`Shard::set_revs_limit`]; [`Error::NoDatabase`].
    pub fn set_revs_limit(&self, limit: u64) -> Result<()> {
        let shards = self.shards()?;
        shards
            .iter()
            .try_for_each(|part| part.set_revs_limit(limit))
    }

    /// Removes the leaves `revisions` of document `id` with all traces. Returns the ones that were leaves.
    ///
    /// # Errors
    /// As [`Shard::purge`]; [`Error::NoDatabase`].
    pub fn purge(&self, id: &str, revisions: &[Revision]) -> Result<Vec<Revision>> {
        let purged = self.shards()?.of(id).purge(id, revisions)?;
        self.note_design(id);
        Ok(purged)
    }
}

/// A compaction of a database, from its beginning until this is dropped.
#[derive(Debug)]
pub struct Compaction(Arc<Database>);

impl Compaction {
    /// Gives space back: bodies of superseded revisions, attachments that nothing names, and what tables hold of both.
    ///
    /// # Errors
    /// As [`Shard::compact`]; [`Error::NoDatabase`].
    pub fn run(self) -> Result<()> {
        let shards = self.0.shards()?;
        let parts = shards.iter().map(|part| (part, ()));
        each(parts, |part, ()| part.compact()).map(drop)
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        self.0.compactions.fetch_sub(1, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Database");
        shown
            .field("name", &self.name)
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
