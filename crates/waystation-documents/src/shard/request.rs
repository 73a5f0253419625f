//! What a database asks of a shard, wherever the shard is.
//!
//! A request and its reply are plain values. A shard in this process answers at once; one on a drive gets the same
//! request as bytes, answers it with the same function, and sends the reply. So there is one path for both.
//!
//! A shard may have copies, each a [`Replica`]. A request's [`Scope`] says which of them it is for.
//!
//! Long answers are asked for in pages that are of one moment each. Rows of a view are the exception: they are read
//! from one snapshot ([`ShardAccess::view_rows`]).

use super::find::{FindPart, FindStep};
use super::{
    Change, CopySource, Edits, Entry, IndexDefinition, KeySpan, LocalDocument, Opened, Revisions,
    ScanOptions, ShardInfo, Told, Turn, Updated, ViewRows, ViewsInfo,
};
use crate::attachment::AttachmentInfo;
use crate::document::Document;
use crate::error::Result;
use crate::revision::Revision;
use crate::views::{DesignDocument, Limits, Signature, ViewQuery};
use crate::wire::{wire_enum, wire_struct};
use waystation::Durability;

/// What has the rows of a shard's views, here or on a drive.
pub trait ViewSource: Send + Sync {
    /// The rows of the view `name` of `design`, as [`Shard::view_rows`].
    ///
    /// # Errors
    /// As [`Shard::view_rows`]; [`Error::Node`](crate::Error::Node).
    fn view_rows(
        &self,
        design: &DesignDocument,
        name: &str,
        query: &ViewQuery,
        limits: Limits,
    ) -> Result<ViewRows>;

    /// Whether asking means waiting for another machine, so that several are better asked at once.
    fn is_remote(&self) -> bool;
}

/// What holds a shard, and answers for it.
pub trait ShardAccess: ViewSource {
    /// Answers `request`.
    ///
    /// # Errors
    /// What the request fails of; [`Error::Node`](crate::Error::Node) if a drive does not do its part.
    fn ask(&self, request: Request) -> Result<Reply>;
}

/// One copy of a shard, wherever it is.
pub trait Replica: ViewSource {
    /// Answers `request` when it is its turn.
    ///
    /// # Errors
    /// [`Error::Node`](crate::Error::Node) if no answer comes.
    fn follow(&self, turn: Turn, request: Request) -> Result<Told>;

    /// Begins to copy it as it stands now.
    ///
    /// # Errors
    /// What reading fails of; [`Error::Node`](crate::Error::Node).
    fn begin_copy(&self) -> Result<Box<dyn CopySource>>;
}

/// Which copies of a shard a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Any of them: it reads.
    Any,
    /// All, in one order with the other changes.
    Ordered,
    /// All, at any time: twice does no more than once.
    All,
}

/// What is asked of a shard. Each variant is the call of [`Shard`] of its name, unless it says otherwise.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "members are the parameters of the calls")]
pub enum Request {
    Info,
    /// Bytes of its files, and of tables that hold something.
    Sizes,
    SetRevsLimit {
        limit: u64,
    },
    Update {
        documents: Vec<Document>,
        edits: Edits,
        durability: Durability,
    },
    OpenWinner {
        id: String,
    },
    OpenRevision {
        id: String,
        revision: Revision,
    },
    OpenRevisions {
        id: String,
        revisions: Revisions,
        latest: bool,
    },
    MissingRevisions {
        id: String,
        revisions: Vec<Revision>,
    },
    Winner {
        id: String,
    },
    Attachment {
        info: AttachmentInfo,
    },
    OpenLocal {
        name: String,
    },
    PutLocal {
        name: String,
        version: Option<u64>,
        body: String,
        durability: Durability,
    },
    DeleteLocal {
        name: String,
        version: Option<u64>,
    },
    LocalDocuments,
    /// The next documents of a scan, up to `rows` of them, until they have `bytes`.
    List {
        options: ScanOptions,
        rows: u64,
        bytes: u64,
        with_documents: bool,
    },
    /// How many documents a scan has, up to one more than `most`.
    CountDocuments {
        options: ScanOptions,
        most: u64,
    },
    /// The next changes behind the sequence `from`, or before it (`descending`).
    Changes {
        from: u64,
        descending: bool,
        rows: u64,
        bytes: u64,
        wanted: WantedChanges,
    },
    CountChanges {
        since: u64,
    },
    Find {
        step: FindStep,
    },
    Split {
        shards: u64,
    },
    IndexDefinitions,
    CreateIndex {
        definition: IndexDefinition,
    },
    DropIndex {
        name: String,
    },
    /// Takes up to `steps` steps.
    BuildViews {
        design: DesignDocument,
        limits: Limits,
        steps: u64,
    },
    ViewsInfo {
        design: DesignDocument,
    },
    CleanUpViews {
        kept: Vec<Signature>,
    },
    Purge {
        id: String,
        revisions: Vec<Revision>,
    },
    /// Compacts documents, and then the tables of the engine.
    Compact,
    /// Has all that was written survive a power cut.
    Sync,
    /// The digest of what lies between two keys.
    Digest {
        span: KeySpan,
    },
    Fill {
        span: KeySpan,
        entries: Vec<Entry>,
    },
    Reload,
    SetTurn {
        number: u64,
    },
}

/// Which changes are wanted of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedChanges {
    /// All, without documents.
    Bare,
    /// All, with the winners.
    WithDocuments,
    /// Those whose winner matches the selector, which is canonical JSON, and those with several leaves.
    Matching {
        /// The selector.
        selector: String,
        /// Whether the winners are wanted, too.
        with_documents: bool,
    },
}

/// A document of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedDocument {
    /// Its identifier.
    pub id: String,
    /// Its winning revision.
    pub revision: Revision,
    /// The winner, if it is wanted.
    pub opened: Option<Opened>,
}

/// A change of a shard's feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadChange {
    /// Its sequence.
    pub sequence: u64,
    /// The change; `None` if it is not wanted.
    pub change: Option<Change>,
    /// The winner, if it is wanted and still there.
    pub opened: Option<Opened>,
}

/// What a shard answers.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "members are the results of the calls")]
pub enum Reply {
    Done,
    Info {
        info: ShardInfo,
    },
    Sizes {
        file_bytes: u64,
        active_bytes: u64,
    },
    Updated {
        outcomes: Vec<Updated>,
    },
    Opened {
        opened: Opened,
    },
    OpenedRevisions {
        found: Vec<Result<Opened, Revision>>,
    },
    Missing {
        missing: Vec<Revision>,
        ancestors: Vec<Revision>,
    },
    Winner {
        winner: Option<(Revision, bool)>,
    },
    Bytes {
        bytes: Vec<u8>,
    },
    Local {
        document: LocalDocument,
    },
    Locals {
        documents: Vec<LocalDocument>,
    },
    Number {
        number: u64,
    },
    Listed {
        rows: Vec<ListedDocument>,
        is_end: bool,
    },
    Changes {
        rows: Vec<ReadChange>,
        is_end: bool,
    },
    Found {
        part: FindPart,
    },
    Indexes {
        definitions: Vec<IndexDefinition>,
    },
    Views {
        info: ViewsInfo,
    },
    Purged {
        revisions: Vec<Revision>,
    },
    Points {
        ids: Vec<String>,
    },
}

wire_struct! {
    ListedDocument { id, revision, opened }
    ReadChange { sequence, change, opened }
}

wire_enum! {
    WantedChanges { 1 => Bare, 2 => WithDocuments, 3 => Matching { selector, with_documents } }
    Request {
        1 => Info,
        2 => Sizes,
        3 => SetRevsLimit { limit },
        4 => Update { documents, edits, durability },
        5 => OpenWinner { id },
        6 => OpenRevision { id, revision },
        7 => OpenRevisions { id, revisions, latest },
        8 => MissingRevisions { id, revisions },
        9 => Winner { id },
        10 => Attachment { info },
        11 => OpenLocal { name },
        12 => PutLocal { name, version, body, durability },
        13 => DeleteLocal { name, version },
        14 => LocalDocuments,
        15 => List { options, rows, bytes, with_documents },
        16 => CountDocuments { options, most },
        17 => Changes { from, descending, rows, bytes, wanted },
        18 => CountChanges { since },
        19 => Find { step },
        20 => IndexDefinitions,
        21 => CreateIndex { definition },
        22 => DropIndex { name },
        23 => BuildViews { design, limits, steps },
        24 => ViewsInfo { design },
        25 => CleanUpViews { kept },
        26 => Purge { id, revisions },
        27 => Compact,
        28 => Sync,
        29 => Split { shards },
        30 => Digest { span },
        31 => Fill { span, entries },
        32 => Reload,
        33 => SetTurn { number },
    }
    Reply {
        1 => Done,
        2 => Info { info },
        3 => Sizes { file_bytes, active_bytes },
        4 => Updated { outcomes },
        5 => Opened { opened },
        6 => OpenedRevisions { found },
        7 => Missing { missing, ancestors },
        8 => Winner { winner },
        9 => Bytes { bytes },
        10 => Local { document },
        11 => Locals { documents },
        12 => Number { number },
        13 => Listed { rows, is_end },
        14 => Changes { rows, is_end },
        15 => Found { part },
        16 => Indexes { definitions },
        17 => Views { info },
        18 => Purged { revisions },
        19 => Points { ids },
    }
}

impl Request {
    /// How many update sequences it may take.
    pub fn sequences(&self) -> u64 {
        match self {
            Self::Update { documents, .. } => documents.len() as u64,
            Self::Purge { .. } => 1,
            _ => 0,
        }
    }

    /// Which copies it is for.
    pub fn scope(&self) -> Scope {
        match self {
            Self::Update { .. }
            | Self::PutLocal { .. }
            | Self::DeleteLocal { .. }
            | Self::Purge { .. }
            | Self::SetRevsLimit { .. } => Scope::Ordered,
            Self::CreateIndex { .. }
            | Self::DropIndex { .. }
            | Self::CleanUpViews { .. }
            | Self::Compact
            | Self::Sync
            | Self::Fill { .. }
            | Self::Reload
            | Self::SetTurn { .. } => Scope::All,
            _ => Scope::Any,
        }
    }

    /// The same request as one that survives the end of the process, and what it is to survive.
    pub(crate) fn without_durability(mut self) -> (Self, Durability) {
        let durability = match &mut self {
            Self::Update { durability, .. } | Self::PutLocal { durability, .. } => {
                std::mem::replace(durability, Durability::ProcessCrash)
            }
            _ => Durability::ProcessCrash,
        };
        (self, durability)
    }

    /// Whether it may be asked again if the answer was lost: it changes nothing, or the same a second time.
    pub fn is_repeatable(&self) -> bool {
        !matches!(
            self,
            Self::Update { .. }
                | Self::PutLocal { .. }
                | Self::DeleteLocal { .. }
                | Self::Purge { .. }
        )
    }
}
