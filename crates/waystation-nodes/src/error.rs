//! What can go wrong with an agent, and with what a host is given to reach it.

use crate::compaction::Address;
use std::io;
use std::path::PathBuf;
use waystation_tls::TlsError;

/// The result of what an agent does.
pub type Result<T, E = AgentError> = std::result::Result<T, E>;

/// Why an agent does not start, or a host cannot use what it was given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; choose another address or stop what listens there"
    )]
    Listen {
        /// The address.
        address: Address,
        /// What the operating system said.
        source: io::Error,
    },
    /// The directory cannot be used.
    #[error(
        "cannot use the directory {path}: {source}; check its permissions and the space on its device"
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Another agent or worker has the directory.
    #[error("another process uses the directory {0}; stop it, or choose another directory")]
    Locked(PathBuf),
    /// A file with certificates or a key cannot be used.
    #[error("TLS: {0}; name PEM files with a certificate and its key, or with authorities")]
    Tls(#[from] TlsError),
    /// A compaction worker listens on a network without a token.
    #[error(
        "a worker that listens at {0} needs a token; only a Unix socket, which its directory protects, may go without"
    )]
    NoToken(Address),
    /// A compaction worker has neither a directory of databases to work in nor a spool.
    #[error(
        "a worker needs a directory in which it may work; name the directories that hold databases, or a spool for tables that are sent"
    )]
    NoDirectory,
    /// A token is too short to be a secret.
    #[error("the token has {0} bytes; take at least 16, such as 32 random hexadecimal digits")]
    Token(usize),
}
