//! How errors travel: what a caller decides by stays typed, the rest is the sentence of the node on which it happened.

use super::{Wire, wire_enum};
use crate::error::{Absence, Error, NodeFault};
use crate::views::ScriptError;
use std::borrow::Cow;
use waystation_format::FormatError;
use waystation_format::varint::Reader;

/// The protocol's words that a shard may answer with.
const WORDS: [&str; 10] = [
    "bad_arg",
    "compilation_error",
    "invalid_design_doc",
    "invalid_index",
    "missing_named_view",
    "not_found",
    "query_parse_error",
    "too_many_groups",
    "unknown_error",
    "unknown_query_language",
];

/// What travels of an error.
enum Told {
    Conflict,
    NotFound(Absence),
    BadRequest(String),
    IllegalId(String),
    DocumentValidation(String),
    MissingStub { id: String, name: String },
    DocumentTooLarge { id: String },
    NoDatabase,
    Query { word: String, reason: String },
    Forbidden(String),
    Unauthorized(String),
    Script(ScriptError),
    Damaged { what: String, reason: String },
    Node { fault: NodeFault, reason: String },
}

wire_enum! {
    Absence { 1 => Missing, 2 => Deleted }
    NodeFault { 1 => Down, 2 => Slow, 3 => Full, 4 => Refused, 5 => Lying, 6 => Failed, 7 => Broken }
    ScriptError { 1 => Compilation(reason), 2 => Time(limit), 3 => Memory(limit), 4 => Thrown { word, reason } }
    Told {
        1 => Conflict,
        2 => NotFound(absence),
        3 => BadRequest(reason),
        4 => IllegalId(reason),
        5 => DocumentValidation(reason),
        6 => MissingStub { id, name },
        7 => DocumentTooLarge { id },
        8 => NoDatabase,
        9 => Query { word, reason },
        10 => Forbidden(reason),
        11 => Unauthorized(reason),
        12 => Script(error),
        13 => Damaged { what, reason },
        14 => Node { fault, reason },
    }
}

impl From<&Error> for Told {
    fn from(error: &Error) -> Self {
        match error.clone() {
            Error::Conflict => Self::Conflict,
            Error::NotFound(absence) => Self::NotFound(absence),
            Error::BadRequest(reason) => Self::BadRequest(reason.into_owned()),
            Error::IllegalId(reason) => Self::IllegalId(reason.into_owned()),
            Error::DocumentValidation(reason) => Self::DocumentValidation(reason),
            Error::MissingStub { id, name } => Self::MissingStub { id, name },
            Error::DocumentTooLarge { id } => Self::DocumentTooLarge { id },
            Error::NoDatabase => Self::NoDatabase,
            Error::Query { word, reason } => Self::Query {
                word: word.to_owned(),
                reason,
            },
            Error::Forbidden(reason) => Self::Forbidden(reason),
            Error::Unauthorized(reason) => Self::Unauthorized(reason),
            Error::Script(error) => Self::Script(error),
            Error::Damaged { what, reason } => Self::Damaged { what, reason },
            Error::Node { fault, reason } => Self::Node { fault, reason },
            error @ (Error::Engine(_)
            | Error::File { .. }
            | Error::DatabaseExists
            | Error::IllegalDatabaseName(_)) => Self::Node {
                fault: match error.word() {
                    "insufficient_storage" => NodeFault::Full,
                    _ => NodeFault::Failed,
                },
                reason: error.to_string(),
            },
        }
    }
}

impl From<Told> for Error {
    fn from(told: Told) -> Self {
        match told {
            Told::Conflict => Self::Conflict,
            Told::NotFound(absence) => Self::NotFound(absence),
            Told::BadRequest(reason) => Self::BadRequest(Cow::Owned(reason)),
            Told::IllegalId(reason) => Self::IllegalId(Cow::Owned(reason)),
            Told::DocumentValidation(reason) => Self::DocumentValidation(reason),
            Told::MissingStub { id, name } => Self::MissingStub { id, name },
            Told::DocumentTooLarge { id } => Self::DocumentTooLarge { id },
            Told::NoDatabase => Self::NoDatabase,
            Told::Query { word, reason } => match WORDS.iter().find(|known| **known == word) {
                Some(word) => Self::Query { word, reason },
                None => Self::Node {
                    fault: NodeFault::Failed,
                    reason: format!("{word}: {reason}"),
                },
            },
            Told::Forbidden(reason) => Self::Forbidden(reason),
            Told::Unauthorized(reason) => Self::Unauthorized(reason),
            Told::Script(error) => Self::Script(error),
            Told::Damaged { what, reason } => Self::Damaged { what, reason },
            Told::Node { fault, reason } => Self::Node { fault, reason },
        }
    }
}

impl Wire for Error {
    fn put(&self, out: &mut Vec<u8>) {
        Told::from(self).put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        Told::take(reader).map(Self::from)
    }
}
