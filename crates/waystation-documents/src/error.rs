//! What can go wrong, in the words that CouchDB's clients know.
//!
//! Each variant is one error word of the protocol; [`Error::word`] and the sentence of `Display` (the protocol's
//! *reason*) are what a server sends. Status codes are the server's.

use crate::views::ScriptError;
use std::borrow::Cow;
use std::path::Path;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a document is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// It never was, or this revision of it is not known.
    Missing,
    /// It was deleted.
    Deleted,
}

/// How a node failed to do its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeFault {
    /// It cannot be reached: nothing was sent to it.
    Down,
    /// The connection broke off before the answer: what it did is not known.
    Broken,
    /// It did not answer in time.
    Slow,
    /// Its storage is full.
    Full,
    /// It does not take this host: another version, another token, or a shard that it does not have.
    Refused,
    /// It answered what cannot be true.
    Lying,
    /// The request failed on it.
    Failed,
}

/// An error of the document database.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The update names another revision than a leaf of the document.
    #[error("Document update conflict.")]
    Conflict,
    /// There is no such document, or no such revision of it.
    #[error("{}", match .0 { Absence::Missing => "missing", Absence::Deleted => "deleted" })]
    NotFound(Absence),
    /// The request cannot be understood.
    #[error("{0}")]
    BadRequest(Cow<'static, str>),
    /// The identifier is none that a document can have.
    #[error("{0}")]
    IllegalId(Cow<'static, str>),
    /// A field of the document means something else than it holds.
    #[error("{0}")]
    DocumentValidation(String),
    /// A stub names an attachment that the revision before does not have.
    #[error("Invalid attachment stub in {id} for {name}")]
    MissingStub {
        /// The document.
        id: String,
        /// The attachment.
        name: String,
    },
    /// The document is larger than is allowed (bytes of JSON).
    #[error("{id}")]
    DocumentTooLarge {
        /// The document.
        id: String,
    },
    /// There is no such database.
    #[error("Database does not exist.")]
    NoDatabase,
    /// There is a database of this name.
    #[error("The database could not be created, the file already exists.")]
    DatabaseExists,
    /// No database can have this name.
    #[error(
        "Name: '{0}'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, and / are allowed. Must begin with a letter."
    )]
    IllegalDatabaseName(String),
    /// A file or directory beside the engine's refused.
    #[error(
        "cannot {operation} {path}: {reason}; check the permissions and the space on its device"
    )]
    File {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: std::path::PathBuf,
        /// What the operating system said.
        reason: String,
    },
    /// A selector, an index or another part of a query is wrong.
    #[error("{reason}")]
    Query {
        /// The protocol's word.
        word: &'static str,
        /// The sentence.
        reason: String,
    },
    /// A validation function forbids the update.
    #[error("{0}")]
    Forbidden(String),
    /// A validation function wants another user for the update.
    #[error("{0}")]
    Unauthorized(String),
    /// A function of a design document failed.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A node that holds a part of the database did not do its part.
    #[error("{reason}")]
    Node {
        /// How.
        fault: NodeFault,
        /// Which node, what it did, and what helps.
        reason: String,
    },
    /// Bytes in the engine are not what this crate wrote.
    #[error(
        "the record of {what} is damaged: {reason}; restore the database from a backup or a replica"
    )]
    Damaged {
        /// The record.
        what: String,
        /// What does not hold.
        reason: String,
    },
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] waystation::Error),
}

impl Error {
    /// The protocol's word for this error.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::NotFound(_) | Self::NoDatabase => "not_found",
            Self::DatabaseExists => "file_exists",
            Self::IllegalDatabaseName(_) => "illegal_database_name",
            Self::BadRequest(_) => "bad_request",
            Self::IllegalId(_) => "illegal_docid",
            Self::DocumentValidation(_) => "doc_validation",
            Self::MissingStub { .. } => "missing_stub",
            Self::DocumentTooLarge { .. } => "document_too_large",
            Self::Query { word, .. } => word,
            Self::Forbidden(_) => "forbidden",
            Self::Unauthorized(_) => "unauthorized",
            Self::Script(error) => error.word(),
            Self::Engine(error) if error.is_out_of_space() => "insufficient_storage",
            Self::Node { fault, .. } => match fault {
                NodeFault::Down | NodeFault::Broken => "nodedown",
                NodeFault::Slow => "timeout",
                NodeFault::Full => "insufficient_storage",
                NodeFault::Refused | NodeFault::Lying | NodeFault::Failed => {
                    "internal_server_error"
                }
            },
            Self::Damaged { .. } | Self::Engine(_) | Self::File { .. } => "internal_server_error",
        }
    }

    /// Whether a node failed, and not the request: another copy may do what this one did not.
    pub fn is_of_node(&self) -> bool {
        matches!(
            self,
            Self::Node { .. } | Self::Engine(_) | Self::File { .. } | Self::Damaged { .. }
        )
    }

    pub(crate) fn missing() -> Self {
        Self::NotFound(Absence::Missing)
    }

    /// An error of the file system outside of the engine.
    pub(crate) fn file(operation: &'static str, path: &Path, error: &std::io::Error) -> Self {
        Self::File {
            operation,
            path: path.to_owned(),
            reason: error.to_string(),
        }
    }

    pub(crate) fn damaged(what: impl Into<String>, reason: &(impl ToString + ?Sized)) -> Self {
        let (what, reason) = (what.into(), reason.to_string());
        Self::Damaged { what, reason }
    }

    pub(crate) fn query(word: &'static str, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Query { word, reason }
    }
}
