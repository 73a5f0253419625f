//! What can go wrong with a benchmark, said in sentences.

use std::io;
use std::path::{Path, PathBuf};

/// The result of everything here that can fail.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The call cannot be answered as it stands: the arguments, or where the data would lie.
    #[error("{0}")]
    Refused(String),
    /// An engine failed.
    #[error("{engine} failed to {operation}: {message}")]
    Engine {
        /// Which engine.
        engine: &'static str,
        /// What it was asked for ("put", "open", ...).
        operation: &'static str,
        /// What it answered.
        message: String,
    },
    /// The operating system refused something.
    #[error("cannot {operation} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
    /// The process that runs an engine ended, or spoke nonsense.
    #[error("the worker process for {engine} {what}")]
    Worker {
        /// The engine it ran.
        engine: String,
        /// What it did.
        what: String,
    },
}

impl Error {
    /// A refusal of the operating system.
    pub(crate) fn io(operation: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        Self::Io {
            operation,
            path: path.as_ref().to_owned(),
            source,
        }
    }

    /// A failure of an engine.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "errors end here, whatever their type"
    )]
    pub(crate) fn engine(
        engine: &'static str,
        operation: &'static str,
        message: impl ToString,
    ) -> Self {
        Self::Engine {
            engine,
            operation,
            message: message.to_string(),
        }
    }
}
