//! A segment of a log that may lie in either directory.
//!
//! A new segment has no place until its length is reserved, since the length decides where it fits. It is made in
//! the main directory if bytes come before that.

use super::spread::FastFiles;
use crate::error::Result;
use crate::storage::{Area, File, OpenMode, Transfer};
use crate::sync::{Arc, Mutex, lock};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// What a new segment is aligned to until it has a place: no file system needs more.
const ALIGNMENT_AT_FIRST: usize = 4 << 10;

/// See the module.
pub(super) struct SpreadFile {
    fast: Arc<FastFiles>,
    /// Its path in the main directory, and its name.
    path: PathBuf,
    name: String,
    transfer: Transfer,
    /// The file, and whether it lies in the fast directory.
    file: OnceLock<(Arc<dyn File>, bool)>,
    /// Held while the place is chosen.
    choosing: Mutex<()>,
}

impl SpreadFile {
    /// The segment `name` at `path`: the file that was `found`, or a new one.
    pub(super) fn new(
        fast: &Arc<FastFiles>,
        path: &Path,
        (name, transfer): (&str, Transfer),
        found: Option<(Arc<dyn File>, bool)>,
    ) -> Self {
        Self {
            fast: Arc::clone(fast),
            path: path.to_owned(),
            name: name.to_owned(),
            transfer,
            file: found.map_or_else(OnceLock::new, OnceLock::from),
            choosing: Mutex::default(),
        }
    }

    /// The file. A new one of `bytes` gets its place now.
    fn file(&self, bytes: Option<u64>) -> Result<&(Arc<dyn File>, bool)> {
        if let Some(found) = self.file.get() {
            return Ok(found);
        }
        let _choosing = lock(&self.choosing);
        if let Some(found) = self.file.get() {
            return Ok(found);
        }
        let placed = bytes.and_then(|bytes| self.fast.place(&self.name, bytes, self.transfer));
        let made = if let Some(file) = placed {
            (file, true)
        } else {
            let (storage, mode) = (&self.fast.storage, OpenMode::Create);
            let file = storage.open(&self.path, mode, self.transfer, Area::Journal)?;
            (file, false)
        };
        Ok(self.file.get_or_init(|| made))
    }

    fn chosen(&self) -> Option<&dyn File> {
        self.file.get().map(|(file, _)| &**file)
    }

    /// Calls `act`. The time that it takes counts as spent on `written` bytes of the log.
    fn write(&self, written: usize, act: impl FnOnce(&dyn File) -> Result<()>) -> Result<()> {
        let (file, is_fast) = self.file(None)?;
        let started = self.now();
        let done = self.noting(*is_fast, act(&**file));
        let elapsed = self.now().saturating_sub(started);
        self.fast.note_write(*is_fast, written, elapsed);
        done
    }

    /// Calls `act`, which makes the file as long as `bytes`. A new one gets its place for that length.
    fn give_length(&self, bytes: u64, act: impl FnOnce(&dyn File) -> Result<()>) -> Result<()> {
        let (file, is_fast) = self.file(Some(bytes))?;
        self.noting(*is_fast, act(&**file))?;
        self.fast.note_length(&self.name, bytes);
        Ok(())
    }

    fn read(&self, act: impl FnOnce(&dyn File) -> Result<usize>) -> Result<usize> {
        let (file, is_fast) = self.file(None)?;
        self.noting(*is_fast, act(&**file))
    }

    fn noting<T>(&self, is_fast: bool, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|error| {
            if is_fast {
                self.fast.note_failure(error);
            }
        })
    }

    fn now(&self) -> Duration {
        self.fast.storage.now()
    }
}

impl File for SpreadFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read(|file| file.read_at(buffer, offset))
    }

    fn read_window(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read(|file| file.read_window(buffer, offset))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write(data.len(), |file| file.write_at(data, offset))
    }

    fn sync(&self) -> Result<()> {
        self.write(0, |file| file.sync())
    }

    fn preallocate(&self, bytes: u64) -> Result<()> {
        self.give_length(bytes, |file| file.preallocate(bytes))
    }

    fn truncate(&self, bytes: u64) -> Result<()> {
        self.give_length(bytes, |file| file.truncate(bytes))
    }

    fn size(&self) -> Result<u64> {
        self.chosen().map_or(Ok(0), File::size)
    }

    fn is_direct(&self) -> bool {
        self.chosen().is_some_and(File::is_direct)
    }

    fn alignment(&self) -> usize {
        self.chosen().map_or(ALIGNMENT_AT_FIRST, File::alignment)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        if let Some(file) = self.chosen() {
            file.prefetch(offset, length);
        }
    }

    fn write_back(&self, offset: u64, length: u64) {
        if let Some(file) = self.chosen() {
            file.write_back(offset, length);
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
