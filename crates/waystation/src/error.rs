//! What can go wrong, as the caller has to decide about it.
//!
//! The variants are the caller's decisions (fix the call, free space, restore, report, wait); the details
//! (operation, path, offset) are inside. `Display` is always a sentence that says what, where and what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of every fallible call of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine. Cheap to clone: one failure may be reported to many waiting writers.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call itself is wrong: fix the call.
    #[error("{0}")]
    InvalidArgument(String),
    /// Another process, or another handle of this process, owns the directory.
    #[error("{} is in use by another process or handle; close it first, or use the read-only commands", .path.display())]
    Locked {
        /// The database directory.
        path: PathBuf,
    },
    /// The directory is not ours, or was written by a newer version, or under another comparator.
    #[error("{} cannot be opened: {reason}", .path.display())]
    Incompatible {
        /// The file that told.
        path: PathBuf,
        /// What was found and what was expected.
        reason: String,
    },
    /// Bytes on storage are not what was written: restore from a copy, or salvage what checks.
    #[error("{} is damaged at byte {offset}: {reason}; run `waystation check` for the extent", .path.display())]
    Corruption {
        /// The damaged file.
        path: PathBuf,
        /// Where in the file the damage was noticed.
        offset: u64,
        /// What does not hold.
        reason: String,
    },
    /// A repair would bring back what was deleted or overwritten, or may: restore a backup, or accept it.
    #[error(
        "{} is not repaired, as what was deleted or overwritten may come back: {reasons}; restore a backup, or accept \
         that (`waystation repair --accept-resurrection`)", .path.display()
    )]
    Resurrection {
        /// The database directory.
        path: PathBuf,
        /// The loss, and where it is.
        reasons: String,
    },
    /// The operating system refused an operation on a file.
    #[error("{operation} {} failed: {source}", .path.display())]
    Io {
        /// The call that failed ("write", "sync", ...).
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
    /// The database accepts no writes because an earlier write to storage failed. Reads go on, and writes
    /// resume by themselves once the cause is gone.
    #[error(
        "writes are suspended because {cause}; reads go on, and writes resume when the cause is gone"
    )]
    Suspended {
        /// The first failure, as a sentence.
        cause: Arc<str>,
    },
    /// Only the room is left that is kept for what gives room back. Deletions, departures, settling and hand-offs to
    /// other engines go on.
    #[error(
        "the disk is full: {free_bytes} bytes are free, and {kept_bytes} are kept for what leaves; let devices depart, \
         delete and compact, or give the database more room"
    )]
    DiskFull {
        /// The free room, below the database's limit and on the file system.
        free_bytes: u64,
        /// The room that is kept free.
        kept_bytes: u64,
    },
    /// A device is not here, is on its way, or its hand-off does not hold.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The handle was closed, or opened read-only.
    #[error("the database was {0}")]
    Closed(&'static str),
}

/// Why a call about a device did not do what it asked for. [`Unknown`](Self::Unknown) and [`Ticket`](Self::Ticket) are as
/// lasting as the answer in whose place they stand; the other kinds say that the call did nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device has no data here: it never arrived, or it has departed.
    #[error("there is no device {device} here: it has not arrived, or it has departed")]
    Unknown {
        /// Its name.
        device: String,
    },
    /// The device is being handed on to another engine, and takes no writes until that is over.
    #[error(
        "device {device} is being handed on to {destination}: write there once it has arrived, or abort the hand-off"
    )]
    Moving {
        /// Its name.
        device: String,
        /// Where it is to go.
        destination: String,
    },
    /// The device was handed on to another engine.
    #[error(
        "device {device} was handed on to {destination}: write there; if it is to arrive here anew without a \
         hand-off, lift its stub"
    )]
    Moved {
        /// Its name.
        device: String,
        /// Where it went.
        destination: String,
    },
    /// A device that is to be admitted has data here.
    #[error(
        "device {device} has data here already, which a hand-off would mix with: let it depart, or refuse the hand-off"
    )]
    AlreadyHere {
        /// Its name.
        device: String,
    },
    /// A hand-off stream is cut, was altered, or is none.
    #[error("the hand-off stream is damaged at byte {offset}: {reason}; have it sent again")]
    Stream {
        /// Where in the stream.
        offset: u64,
        /// What does not hold.
        reason: String,
    },
    /// A hand-off, or what it was answered with, does not belong here.
    #[error("the hand-off does not fit: {reason}")]
    Ticket {
        /// Why not.
        reason: String,
    },
}

impl Error {
    /// An I/O failure of `operation` on `path`.
    pub fn io(operation: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        Self::Io {
            operation,
            path: path.as_ref().to_owned(),
            source: Arc::new(source),
        }
    }

    /// Damage found in `path` at `offset`.
    pub fn corruption(path: impl AsRef<Path>, offset: u64, reason: impl Into<String>) -> Self {
        Self::Corruption {
            path: path.as_ref().to_owned(),
            offset,
            reason: reason.into(),
        }
    }

    /// Whether the cause is a full disk or an exhausted quota.
    pub fn is_out_of_space(&self) -> bool {
        match self {
            Self::DiskFull { .. } => true,
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ),
            _ => false,
        }
    }

    /// Whether a file or directory named by the call does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
