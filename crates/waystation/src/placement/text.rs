//! Small files of a fast tier: a line of JSON, and a line with its checksum.

use crate::directory::{read_file, replace_file};
use crate::error::{Error, Result};
use crate::storage::Storage;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use waystation_format::checksum::crc32c;

/// Gives the file `name` in `dir` this content, by way of the file `draft`: after a power cut it has the old content or the
/// new one.
pub(super) fn write<T: Serialize>(
    storage: &dyn Storage,
    dir: &Path,
    (draft, name): (&str, &str),
    content: &T,
) -> Result<()> {
    let json = serde_json::to_string(content).map_err(|error| {
        let path = dir.join(name);
        Error::InvalidArgument(format!("{} cannot be written: {error}", path.display()))
    })?;
    let text = format!("{json}\n{:08x}\n", crc32c(json.as_bytes()));
    replace_file(storage, dir, draft, name, text.as_bytes())
}

/// What [`write`] wrote to `path`. `None`: there is no such file.
///
/// # Errors
/// [`Error::Corruption`] if it is damaged, [`Error::Io`].
pub(super) fn read<T: DeserializeOwned>(storage: &dyn Storage, path: &Path) -> Result<Option<T>> {
    let content = match read_file(storage, path) {
        Err(error) if error.is_not_found() => return Ok(None),
        content => content?,
    };
    let damaged = |reason: &str| Error::corruption(path, 0, reason);
    let text = std::str::from_utf8(&content).map_err(|_| damaged("it is no text"))?;
    let mut lines = text.lines();
    let (Some(json), Some(sum)) = (lines.next(), lines.next()) else {
        return Err(damaged("it has no checksum"));
    };
    if u32::from_str_radix(sum, 16) != Ok(crc32c(json.as_bytes())) {
        return Err(damaged("its checksum is wrong"));
    }
    let value = serde_json::from_str(json);
    value.map(Some).map_err(|error| damaged(&error.to_string()))
}
