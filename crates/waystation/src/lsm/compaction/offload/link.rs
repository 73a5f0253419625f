//! The way to a worker: whole messages there and back.

use std::time::Duration;

/// The way to a worker. Threads that merge at once have a session each.
pub trait Link: Send + Sync {
    /// Opens a session with the worker.
    ///
    /// # Errors
    /// [`LinkError`].
    fn connect(&self) -> Result<Box<dyn Session>, LinkError>;
}

/// A conversation about one run of one job. Dropped, it is over, and the worker gives the job up if it still runs.
pub trait Session: Send {
    /// Sends a request and waits for its answer, at most for `patience`. Answers are bounded: no session takes more than
    /// [`MESSAGE_BYTES_MAX`](waystation_format::compaction::MESSAGE_BYTES_MAX) of one.
    ///
    /// # Errors
    /// [`LinkError`]; then the session is of no use any more.
    fn ask(&mut self, request: &[u8], patience: Duration) -> Result<Vec<u8>, LinkError>;
}

/// Why a worker cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// No worker listens there.
    #[error("no worker can be reached: {0}")]
    Unreachable(String),
    /// Worker and engine do not take each other: another version, another token.
    #[error("worker and engine refuse each other: {0}")]
    Refused(String),
    /// The connection ended, or carried bytes that are no message.
    #[error("the connection to the worker ended: {0}")]
    Broken(String),
    /// No answer came in time.
    #[error("the worker gave no answer in {0:?}")]
    Silent(Duration),
}
