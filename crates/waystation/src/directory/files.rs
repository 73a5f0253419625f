//! Small whole files: read at once, replaced at once.

use crate::error::Result;
use crate::storage::{Area, OpenMode, Storage, Transfer, check_whole};
use std::path::Path;

pub(crate) use crate::storage::read_whole as read_file;

/// Gives `name` in `dir` a new content, so that after a power cut it has the old or the new one, and from the
/// return on the new one. `temporary` is a name that may be overwritten.
pub(crate) fn replace_file(
    storage: &dyn Storage,
    dir: &Path,
    temporary: &str,
    name: &str,
    content: &[u8],
) -> Result<()> {
    // Nothing is written that could not be read again.
    check_whole(&dir.join(name), content.len() as u64)?;
    let source = dir.join(temporary);
    let file = storage.open(&source, OpenMode::Create, Transfer::Buffered, Area::Tables)?;
    file.write_at(content, 0)?;
    file.sync()?;
    drop(file);
    storage.rename(&source, &dir.join(name))?;
    storage.sync_dir(dir)
}
