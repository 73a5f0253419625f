//! How much storage a shard takes.

use crate::error::{Error, Result};
use std::path::Path;

/// Bytes that the files below `directory` take; a file that goes meanwhile counts nothing.
pub(super) fn bytes_below(directory: &Path) -> Result<u64> {
    let refused = |error: &std::io::Error| Error::File {
        operation: "list",
        path: directory.to_owned(),
        reason: error.to_string(),
    };
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory).map_err(|error| refused(&error))? {
        let entry = entry.map_err(|error| refused(&error))?;
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        bytes += if metadata.is_dir() {
            bytes_below(&entry.path())?
        } else {
            metadata.len()
        };
    }
    Ok(bytes)
}
