//! Why a city cannot be driven through.

use super::trace::TraceError;
use crate::failure::{self, Failure};
use std::io;
use std::path::{Path, PathBuf};

/// What went wrong, as a sentence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CityError {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A cell's engine.
    #[error("cell {cell}: {source}")]
    Engine {
        /// The cell's name in the trace.
        cell: String,
        /// What the engine said.
        source: EdgeError,
    },
    /// The call.
    #[error("{0}")]
    Usage(String),
    /// A file of the city's own.
    #[error("{operation} {} failed: {source}", .path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// With which file.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A thread ended before its time.
    #[error("a worker ended before its work was done")]
    Worker,
}

impl CityError {
    pub(crate) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            operation,
            path,
            source,
        }
    }
}

/// What an engine answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EdgeError {
    /// Waystation.
    #[error(transparent)]
    Waystation(#[from] waystation::Error),
    /// LevelDB.
    #[cfg(feature = "rivals")]
    #[error(transparent)]
    LevelDb(#[from] waystation_rivals::leveldb::Failure),
    /// RocksDB.
    #[cfg(feature = "rivals")]
    #[error("RocksDB failed: {0}")]
    RocksDb(#[from] waystation_rivals::rocksdb::Error),
}

impl From<CityError> for Failure {
    fn from(error: CityError) -> Self {
        let code = match &error {
            CityError::Usage(_) => failure::USAGE,
            CityError::Trace(TraceError::Malformed { .. }) => failure::DAMAGED,
            CityError::Trace(TraceError::Unreadable { .. }) => failure::CANNOT_OPEN,
            CityError::Engine { source, .. } => match source {
                EdgeError::Waystation(error) => Failure::from(error.clone()).code(),
                #[cfg(feature = "rivals")]
                _ => failure::IO,
            },
            CityError::File { .. } | CityError::Worker => failure::IO,
        };
        Self::new(code, error.to_string())
    }
}
