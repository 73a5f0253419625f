//! The file of a table that lies in the fast directory, until it is moved to the main one.
//!
//! A table that grows beyond the room that it has there, or that cannot be written there, goes on in the main directory: nothing
//! knows of it before it is complete. One that is complete may be moved while it is read: readers go on with the other file.

use super::tier::Tier;
use crate::error::Result;
use crate::storage::{Area, File, OpenMode, Transfer, copy_bytes};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

/// See the module.
pub(super) struct PlacedTable {
    tier: Arc<Tier>,
    /// Its path in the main directory, and its name.
    path: PathBuf,
    name: String,
    /// How many bytes were written.
    written: AtomicU64,
    place: RwLock<FilePlace>,
}

/// The file, and whether it lies in the fast directory.
#[derive(Clone)]
struct FilePlace {
    file: Arc<dyn File>,
    is_fast: bool,
}

impl PlacedTable {
    /// The table `name`, `path` in the main directory, whose `file` lies in the fast one.
    pub(super) fn new(tier: &Arc<Tier>, path: &Path, name: &str, file: Arc<dyn File>) -> Self {
        let is_fast = true;
        Self {
            tier: Arc::clone(tier),
            path: path.to_owned(),
            name: name.to_owned(),
            written: AtomicU64::new(0),
            place: RwLock::new(FilePlace { file, is_fast }),
        }
    }

    /// Has everything read and written in `file`, which lies in the main directory, from now on.
    pub(super) fn switch_to(&self, file: Arc<dyn File>) {
        let mut place = self.place.write().unwrap_or_else(PoisonError::into_inner);
        let is_fast = false;
        *place = FilePlace { file, is_fast };
    }

    fn place(&self) -> FilePlace {
        let place = self.place.read().unwrap_or_else(PoisonError::into_inner);
        place.clone()
    }

    /// Calls `act` with the file, and notes if the fast directory fails.
    fn with<T>(&self, act: impl FnOnce(&dyn File) -> Result<T>) -> Result<T> {
        let place = self.place();
        act(&*place.file).inspect_err(|error| {
            if place.is_fast && !error.is_out_of_space() {
                self.tier.fail(&error.to_string());
            }
        })
    }

    /// Goes on in the main directory, with what was written so far.
    fn leave(&self) -> Result<()> {
        let tier = &self.tier;
        let (mode, transfer) = (OpenMode::Create, Transfer::Buffered);
        let main = tier
            .storage
            .open(&self.path, mode, transfer, Area::Tables)?;
        let before = self.place().file;
        copy_bytes(&*before, &*main, self.written.load(SeqCst))?;
        self.switch_to(main);
        tier.remove_table(&self.name);
        Ok(())
    }
}

impl File for PlacedTable {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.with(|file| file.read_at(buffer, offset))
    }

    fn read_window(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.with(|file| file.read_window(buffer, offset))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let end = offset + data.len() as u64;
        let has_room = !self.place().is_fast || self.tier.grow_table(&self.name, end);
        let written = has_room.then(|| self.with(|file| file.write_at(data, offset)));
        match written {
            Some(Err(error)) if !error.is_out_of_space() || !self.place().is_fast => {
                return Err(error);
            }
            Some(Ok(())) => {}
            _ => {
                self.leave()?;
                self.with(|file| file.write_at(data, offset))?;
            }
        }
        self.written.fetch_max(end, SeqCst);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.with(|file| file.sync())?;
        let written = self.written.load(SeqCst);
        self.tier.complete_table(&self.name, written);
        Ok(())
    }

    fn preallocate(&self, bytes: u64) -> Result<()> {
        self.with(|file| file.preallocate(bytes))
    }

    fn truncate(&self, bytes: u64) -> Result<()> {
        self.with(|file| file.truncate(bytes))
    }

    fn size(&self) -> Result<u64> {
        self.with(|file| file.size())
    }

    fn is_direct(&self) -> bool {
        self.place().file.is_direct()
    }

    fn alignment(&self) -> usize {
        self.place().file.alignment()
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.place().file.prefetch(offset, length);
    }

    fn write_back(&self, offset: u64, length: u64) {
        self.place().file.write_back(offset, length);
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
