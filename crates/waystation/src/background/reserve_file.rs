//! The file `RESERVE`: room that an opening finds on a full disk.
//!
//! An opening writes before it can give anything back: another MANIFEST, a segment with what only the ring held, another
//! `JOURNAL`. On a disk that others have filled, or this engine has up to the last byte, it would fail, for ever. So that much
//! is taken while there is room, in a file that holds nothing. An opening gives it back first, and takes it again at its end.
//! Where it cannot be taken, as there is no room, it is missing: as much is kept free for it, as far as that depends on this
//! engine, until it can be ([`DiskReserve`](super::disk_reserve::DiskReserve)).

use crate::directory::RESERVE_NAME;
use crate::error::Result;
use crate::storage::{Area, OpenMode, Storage, Transfer};
use std::path::Path;

/// Gives the room in `dir` back, if there is any.
pub(crate) fn give_back(storage: &dyn Storage, dir: &Path) -> Result<()> {
    match storage.remove(&dir.join(RESERVE_NAME)) {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Gives all but `bytes` back, of more.
pub(crate) fn shorten(storage: &dyn Storage, dir: &Path, bytes: u64) -> Result<()> {
    let path = dir.join(RESERVE_NAME);
    let file = storage.open(
        &path,
        OpenMode::ReadWrite,
        Transfer::Buffered,
        Area::Journal,
    )?;
    file.truncate(bytes)
}

/// Takes `bytes` in all, or no more than there are. What the file has is kept meanwhile.
pub(crate) fn take(storage: &dyn Storage, dir: &Path, bytes: u64) -> Result<()> {
    let path = dir.join(RESERVE_NAME);
    let open = |mode| storage.open(&path, mode, Transfer::Buffered, Area::Journal);
    let file = match open(OpenMode::ReadWrite) {
        Err(error) if error.is_not_found() => open(OpenMode::Create),
        opened => opened,
    }?;
    let held = file.size()?;
    let taken = file.preallocate(bytes).and_then(|()| file.sync());
    if taken.is_err() {
        if held > 0 {
            file.truncate(held)?;
        } else {
            drop(file);
            give_back(storage, dir)?;
        }
    }
    taken
}
