//! Small whole files: read at once, replaced at once.

use crate::error::Result;
use crate::storage::{Area, OpenMode, Storage, Transfer};
use std::path::Path;

/// The whole content of a small file.
pub(crate) fn read_file(storage: &dyn Storage, path: &Path) -> Result<Vec<u8>> {
    let file = storage.open(path, OpenMode::Read, Transfer::Buffered, Area::Tables)?;
    let mut content = vec![0; usize::try_from(file.size()?).unwrap_or(usize::MAX)];
    let length = file.read_at(&mut content, 0)?;
    content.truncate(length);
    Ok(content)
}

/// Gives `name` in `dir` a new content, so that after a power cut it has the old or the new one, and from the
/// return on the new one. `temporary` is a name that may be overwritten.
pub(crate) fn replace_file(
    storage: &dyn Storage,
    dir: &Path,
    temporary: &str,
    name: &str,
    content: &[u8],
) -> Result<()> {
    let source = dir.join(temporary);
    let file = storage.open(&source, OpenMode::Create, Transfer::Buffered, Area::Tables)?;
    file.write_at(content, 0)?;
    file.sync()?;
    drop(file);
    storage.rename(&source, &dir.join(name))?;
    storage.sync_dir(dir)
}
