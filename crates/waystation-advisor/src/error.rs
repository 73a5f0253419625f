//! What can go wrong, as the person at the terminal has to decide about it.

use std::io;
use std::path::{Path, PathBuf};

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the placement tool. `Display` is a sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call itself is wrong: fix the arguments.
    #[error("{0}")]
    Usage(String),
    /// The operating system refused an operation on a file or device.
    #[error("{operation} {} failed: {source}", .path.display())]
    Io {
        /// What was tried ("open", "read", ...).
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A file that the command needs is not there; the text says which, and where it comes from.
    #[error("{0}")]
    Missing(String),
    /// A file of ours does not hold what was written.
    #[error("{} is not a whole trace in the native format: {reason} (at byte {offset})", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where it was noticed.
        offset: u64,
        /// What does not hold.
        reason: String,
    },
    /// Rows of a foreign trace could not be understood; the text lists each reason with file, line and count.
    #[error("{0}")]
    Malformed(String),
    /// The trace cannot answer the question.
    #[error("{0}")]
    Unanswerable(String),
    /// The kernel or the machine does not permit what was asked.
    #[error("{0}")]
    Refused(String),
    /// A step of the laboratory failed; what had been set up was taken down again.
    #[error("the laboratory could not {step}: {reason}")]
    Rig {
        /// The step ("mount the file system").
        step: String,
        /// What was reported.
        reason: String,
    },
}

impl Error {
    /// An I/O failure with its operation and path.
    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            operation,
            path: path.to_path_buf(),
            source,
        }
    }
}
