//! How a replication fails, in the words of CouchDB's replicator.

use crate::failure::Failure;
use hyper::StatusCode;

/// Why a replication was not begun, or did not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// The order itself is wrong.
    #[error("{0}")]
    BadRequest(String),
    /// A side lets the replicator not in.
    #[error("unauthorized to access or create database {0}")]
    Unauthorized(String),
    /// A side has no such database.
    #[error("could not open {0}")]
    NoDatabase(String),
    /// The name of a host leads nowhere.
    #[error("could not resolve {0}")]
    Unresolved(String),
    /// No answer came.
    #[error("{request}: {reason}")]
    Unanswered {
        /// Method and URL.
        request: String,
        /// What the network or the operating system said.
        reason: String,
    },
    /// The answer is an error.
    #[error("{request} answered {status}: {reason}")]
    Refused {
        /// Method and URL.
        request: String,
        /// The status.
        status: u16,
        /// What the answer says.
        reason: String,
    },
    /// The answer is not what the protocol says.
    #[error("{request} answered against the protocol: {reason}")]
    Malformed {
        /// Method and URL.
        request: String,
        /// What does not hold.
        reason: String,
    },
    /// A checkpoint was not written.
    #[error("{0}")]
    Checkpoint(String),
    /// The server is stopping, or the replication was cancelled.
    #[error("the replication was stopped")]
    Stopped,
}

impl Fault {
    /// The protocol's word.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "bad_request",
            Self::Unauthorized(_) => "unauthorized",
            Self::NoDatabase(_) => "db_not_found",
            Self::Unresolved(_) => "nxdomain",
            Self::Unanswered { .. } => "http_request_failed",
            Self::Refused { .. } => "http_error_code",
            Self::Malformed { .. } => "invalid_response",
            Self::Checkpoint(_) => "checkpoint_commit_failure",
            Self::Stopped => "shutdown",
        }
    }

    /// Whether the same request may succeed a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unanswered { .. } | Self::Unresolved(_) => true,
            Self::Refused { status: 501, .. } => false,
            Self::Refused { status, .. } => *status >= 500 || matches!(status, 408 | 429),
            _ => false,
        }
    }

    /// The word and the sentence, as they stand in lists of jobs.
    pub(crate) fn in_lists(&self) -> String {
        match self {
            Self::Unauthorized(_) | Self::NoDatabase(_) | Self::Unresolved(_) => {
                format!("{}: {self}", self.word())
            }
            _ => self.to_string(),
        }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let status = match &fault {
            Fault::BadRequest(_) => StatusCode::BAD_REQUEST,
            Fault::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Fault::NoDatabase(_) => StatusCode::NOT_FOUND,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, fault.word(), fault.to_string())
    }
}
