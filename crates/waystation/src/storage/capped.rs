//! A disk that is never filled beyond a limit, and on which some room is left for what gives room back: storage that
//! counts the bytes of one directory's files and refuses what would pass the limit, with the error of a full disk.
//!
//! Counted are the lengths of files, which is what they take where nothing is sparse: the engine writes or reserves all
//! of a file. A file grows by a write behind its end, by a reservation, or by being made longer; growth is counted
//! before it happens, so that several threads together do not pass the limit either. A ring of another size is made
//! beside the old one, so both are counted meanwhile. Removed, replaced and cut bytes are given back. Names in other
//! directories (a checkpoint elsewhere, a job that a worker runs) are not counted until they are moved here.
//!
//! **What growth leaves.** How much a file's growth has to leave depends on what it is for ([`Growth`]), below the limit and on the
//! file system alike: what can wait ends first, then the log and tables, and the small files that are replaced as a whole
//! go on to the end. Else what takes room would take what is needed to give it back. ([`margins`](super::margins) has the
//! table, and says why each finds its room.)

use super::forward::forward;
use super::margins::Margins;
use super::{Area, AreaMeter, DirectoryLock, Entry, File, OpenMode, Ring, Storage, Transfer};
use crate::error::{Error, Result};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use waystation_format::log::ring_file_lengths;

/// What a file is for, as its growth sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Files that are of use and that nothing needs: they leave room for the log, for replaced files and for debts.
    Spare,
    /// Tables and the like: the same if it can wait; if not, they leave room for replaced files and for an opening.
    Bulk,
    /// Segments of the log: they leave room for another copy of replaced files, and for the missing part of the reserve.
    Log,
    /// What an opening or a healing begins: they leave the missing part of the reserve. To an opening nothing is missing.
    Fresh,
    /// Files that are replaced as a whole: it takes what there is.
    Replaced,
    /// Room for an opening in a file: it takes what there is, and is not missing then.
    Reserve,
    /// The staging ring: it takes what there is. The log looks before it lets the ring grow.
    Ring,
    /// What an opening makes, and others: it takes what there is.
    Vital,
}

/// Room for another copy of replaced files is this much at least (bytes).
const REPLACED_MIN: u64 = 64 << 10;

thread_local! {
    /// Whether this thread does what can wait: see [`at_low_priority`].
    static AT_LEISURE: Cell<bool> = const { Cell::new(false) };
}

/// Does what can wait, on this thread: tables that it writes leave what others are owed.
pub(crate) fn at_low_priority<T>(act: impl FnOnce() -> T) -> T {
    let before = AT_LEISURE.replace(true);
    let done = act();
    AT_LEISURE.set(before);
    done
}

/// How the files of a directory grow, by their names.
pub(crate) type GrowthOf = fn(&str) -> Growth;

/// How much room there is, and how much of it is used.
pub(crate) struct DiskUse {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    growth_of: GrowthOf,
    limit: u64,
    margins: Margins,
    used: AtomicU64,
    /// The part of it in files that are replaced as a whole.
    replaced: AtomicU64,
    /// The part of it in the staging ring.
    ring: AtomicU64,
    /// What the file system had free at the last look.
    file_system: AtomicU64,
    /// How much files that hold room for an opening should have, and have.
    reserve_target: AtomicU64,
    reserve: AtomicU64,
    /// What tables will take that have to be written.
    owed: AtomicU64,
}

impl DiskUse {
    /// The bytes of all files.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        self.used.load(SeqCst)
    }

    /// What they may be.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// What is free, below the limit and on the file system as it was looked at last, without the missing part of the reserve.
    #[inline]
    pub(crate) fn free_bytes(&self) -> u64 {
        self.all_free_bytes().saturating_sub(self.missing_bytes())
    }

    /// The same with the missing part.
    #[inline]
    pub(crate) fn all_free_bytes(&self) -> u64 {
        let below_limit = self.limit.saturating_sub(self.used.load(Relaxed));
        below_limit.min(self.file_system.load(Relaxed))
    }

    /// What another copy of all files that are replaced needs, though they grow.
    #[inline]
    pub(crate) fn replaced_bytes(&self) -> u64 {
        2 * self.replaced.load(Relaxed) + REPLACED_MIN
    }

    /// How long the staging ring is.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.ring.load(Relaxed)
    }

    /// Says that `bytes` are to be kept for an opening: free, as far as no file has them.
    pub(crate) fn set_reserve(&self, bytes: u64) {
        self.reserve_target.store(bytes, Relaxed);
    }

    /// The part of that which a file has.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        self.reserve.load(Relaxed)
    }

    /// The part of it which no file has.
    #[inline]
    pub(crate) fn missing_bytes(&self) -> u64 {
        let target = self.reserve_target.load(Relaxed);
        target.saturating_sub(self.reserve_bytes())
    }

    /// Says what tables will take that have to be written.
    pub(crate) fn set_owed(&self, bytes: u64) {
        self.owed.store(bytes, Relaxed);
    }

    /// Looks how much is free on the file system.
    pub(crate) fn look(&self) -> Result<()> {
        let free_bytes = self.storage.free_bytes(&self.dir)?;
        self.file_system.store(free_bytes, Relaxed);
        Ok(())
    }

    fn left_by(&self, growth: Growth) -> u64 {
        let (missing, copy) = (self.missing_bytes(), self.replaced_bytes());
        let for_log = missing + copy;
        let at_low_priority = for_log + self.margins.for_log() + self.owed.load(Relaxed);
        match growth {
            Growth::Spare => at_low_priority,
            Growth::Bulk if AT_LEISURE.get() => at_low_priority,
            Growth::Bulk => missing.saturating_sub(self.margins.for_lives()) + copy,
            Growth::Log => for_log,
            Growth::Fresh => missing,
            Growth::Replaced | Growth::Reserve | Growth::Ring | Growth::Vital => 0,
        }
    }

    /// Counts `bytes` more, if they are within the limit and leave what they have to.
    fn take(&self, bytes: u64, growth: Growth) -> std::io::Result<()> {
        let left_least = self.left_by(growth);
        // What cannot be looked at, the growth itself will tell.
        if left_least > 0 && self.look().is_ok() {
            let left = self.file_system.load(Relaxed).checked_sub(bytes);
            left.filter(|left| *left >= left_least)
                .ok_or(Errno::NOSPC)?;
        }
        let most = self.limit.saturating_sub(left_least);
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= most);
        let taken = self.used.fetch_update(SeqCst, SeqCst, fits);
        taken.map_err(|_| Errno::NOSPC)?;
        self.note_taken(bytes, growth);
        Ok(())
    }

    /// Counts `bytes` with those of the same kind.
    fn note_taken(&self, bytes: u64, growth: Growth) {
        match growth {
            Growth::Replaced => self.replaced.fetch_add(bytes, SeqCst),
            Growth::Reserve => self.reserve.fetch_add(bytes, SeqCst),
            Growth::Ring => self.ring.fetch_add(bytes, SeqCst),
            _ => 0,
        };
    }

    fn give_back(&self, bytes: u64, growth: Growth) {
        match growth {
            Growth::Replaced => self.replaced.fetch_sub(bytes, SeqCst),
            Growth::Reserve => self.reserve.fetch_sub(bytes, SeqCst),
            Growth::Ring => self.ring.fetch_sub(bytes, SeqCst),
            _ => 0,
        };
        self.used.fetch_sub(bytes, SeqCst);
    }

    /// Counts the `bytes` of `source` as those of `target`, which it is called from now on.
    fn recount(&self, bytes: u64, source: &Path, target: &Path) {
        let is_replaced = |path| self.growth_of(path) == Growth::Replaced;
        match (is_replaced(source), is_replaced(target)) {
            (false, true) => self.replaced.fetch_add(bytes, SeqCst),
            (true, false) => self.replaced.fetch_sub(bytes, SeqCst),
            _ => 0,
        };
    }

    fn growth_of(&self, path: &Path) -> Growth {
        let name = path.file_name().and_then(|name| name.to_str());
        name.map_or(Growth::Bulk, self.growth_of)
    }
}

/// The lengths of a directory's files. A file that is removed while it is open keeps its length, uncounted.
type Lengths = Arc<Mutex<HashMap<PathBuf, Arc<Length>>>>;

#[derive(Debug, Default)]
struct Length {
    bytes: Mutex<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module.
pub(crate) struct Capped {
    inner: Arc<dyn Storage>,
    dir: PathBuf,
    disk: Arc<DiskUse>,
    lengths: Lengths,
}

impl Capped {
    /// `inner`, with at most `limit` bytes in the files of `dir`, of which `margins` are kept. Present files count, even if
    /// it is more.
    pub(crate) fn new(
        inner: Arc<dyn Storage>,
        dir: &Path,
        limit: u64,
        margins: Margins,
        growth_of: GrowthOf,
    ) -> Result<Self> {
        let entries = match inner.list(dir) {
            Err(error) if error.is_not_found() => Vec::new(),
            entries => entries?,
        };
        let disk = DiskUse {
            storage: Arc::clone(&inner),
            dir: dir.to_owned(),
            growth_of,
            limit,
            margins,
            used: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            ring: AtomicU64::new(0),
            file_system: AtomicU64::new(u64::MAX),
            reserve_target: AtomicU64::new(0),
            reserve: AtomicU64::new(0),
            owed: AtomicU64::new(0),
        };
        let mut lengths = HashMap::new();
        for entry in entries.into_iter().filter(|entry| !entry.is_dir) {
            disk.used.fetch_add(entry.bytes, SeqCst);
            disk.note_taken(entry.bytes, growth_of(&entry.name));
            let bytes = Mutex::new(entry.bytes);
            lengths.insert(dir.join(entry.name), Arc::new(Length { bytes }));
        }
        Ok(Self {
            inner,
            dir: dir.to_owned(),
            disk: Arc::new(disk),
            lengths: Arc::new(Mutex::new(lengths)),
        })
    }

    /// How much is used.
    pub(crate) fn disk(&self) -> Arc<DiskUse> {
        Arc::clone(&self.disk)
    }

    fn counts(&self, path: &Path) -> bool {
        path.parent() == Some(&self.dir)
    }

    /// Counts a file of another directory that is to be called `target`, as far as there is room.
    fn take_in(&self, source: &Path, target: &Path) -> Result<Arc<Length>> {
        let file = (self.inner).open(source, OpenMode::Read, Transfer::Buffered, Area::Tables)?;
        let bytes = file.size()?;
        let taken = self.disk.take(bytes, self.disk.growth_of(target));
        taken.map_err(|error| Error::io("rename", source, error))?;
        Ok(Arc::new(Length {
            bytes: Mutex::new(bytes),
        }))
    }

    /// Takes the name `path` out, and its bytes.
    fn forget(&self, path: &Path) {
        if let Some(length) = lock(&self.lengths).remove(path) {
            let bytes = *lock(&length.bytes);
            self.disk.give_back(bytes, self.disk.growth_of(path));
        }
    }
}

impl Storage for Capped {
    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        transfer: Transfer,
        area: Area,
    ) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(path, mode, transfer, area)?;
        if mode == OpenMode::Read || !self.counts(path) {
            return Ok(inner);
        }
        let length = Arc::clone(lock(&self.lengths).entry(path.to_owned()).or_default());
        let growth = self.disk.growth_of(path);
        if mode == OpenMode::Create {
            let bytes = std::mem::take(&mut *lock(&length.bytes));
            self.disk.give_back(bytes, growth);
        }
        Ok(Arc::new(CappedFile {
            inner,
            length,
            growth,
            disk: Arc::clone(&self.disk),
        }))
    }

    fn map_ring(&self, path: &Path, bytes: usize) -> Result<(Arc<dyn Ring>, bool)> {
        if !self.counts(path) {
            return self.inner.map_ring(path, bytes);
        }
        let length = Arc::clone(lock(&self.lengths).entry(path.to_owned()).or_default());
        let growth = self.disk.growth_of(path);
        let mut held = lock(&length.bytes);
        let mut lengths = ring_file_lengths(bytes as u64);
        // One of another size is made before the old one goes.
        let made = if lengths.any(|length| length == *held) {
            0
        } else {
            bytes as u64
        };
        let taken = self.disk.take(made, growth);
        taken.map_err(|error| Error::io("map", path, error))?;
        let mapped = self.inner.map_ring(path, bytes);
        match &mapped {
            Err(_) => self.disk.give_back(made, growth),
            Ok(_) if made == 0 => {}
            Ok((ring, _)) => {
                let file = ring.file_bytes() as u64;
                self.disk.give_back(made - file + *held, growth);
                *held = file;
            }
        }
        mapped
    }

    fn resize_ring(&self, path: &Path, bytes: usize) -> Result<()> {
        if !self.counts(path) {
            return self.inner.resize_ring(path, bytes);
        }
        let length = Arc::clone(lock(&self.lengths).entry(path.to_owned()).or_default());
        let growth = self.disk.growth_of(path);
        let mut held = lock(&length.bytes);
        let bytes_then = bytes as u64;
        let more = bytes_then.saturating_sub(*held);
        let taken = self.disk.take(more, growth);
        taken.map_err(|error| Error::io("resize", path, error))?;
        let resized = self.inner.resize_ring(path, bytes);
        if resized.is_ok() {
            self.disk.give_back(held.saturating_sub(bytes_then), growth);
            *held = bytes_then;
        } else {
            self.disk.give_back(more, growth);
        }
        resized
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        let moves_in = self.counts(target) && !self.counts(source);
        let moved_in = moves_in.then(|| self.take_in(source, target)).transpose()?;
        if let Err(error) = self.inner.rename(source, target) {
            let bytes = moved_in.map_or(0, |length| *lock(&length.bytes));
            self.disk.give_back(bytes, self.disk.growth_of(target));
            return Err(error);
        }
        if self.counts(target) {
            self.forget(target);
        }
        if let Some(length) = moved_in {
            lock(&self.lengths).insert(target.to_owned(), length);
            return Ok(());
        }
        let moved = lock(&self.lengths).remove(source);
        if let Some(length) = moved {
            let bytes = *lock(&length.bytes);
            if self.counts(target) {
                self.disk.recount(bytes, source, target);
                lock(&self.lengths).insert(target.to_owned(), length);
            } else {
                self.disk.give_back(bytes, self.disk.growth_of(source));
            }
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)?;
        self.forget(path);
        Ok(())
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        let free = self.inner.free_bytes(path)?;
        if path == self.dir {
            self.disk.file_system.store(free, Relaxed);
            return Ok(self.disk.free_bytes());
        }
        Ok(free)
    }

    forward! { inner:
        fn expect(path: &Path, bytes: u64, level: usize);
        fn link(source: &Path, target: &Path) -> Result<()>;
        fn create_dir(path: &Path) -> Result<()>;
        fn remove_dir(path: &Path) -> Result<()>;
        fn list(path: &Path) -> Result<Vec<Entry>>;
        fn sync_dir(path: &Path) -> Result<()>;
        fn lock(path: &Path) -> Result<Box<dyn DirectoryLock>>;
        fn device_of(path: &Path) -> Option<u64>;
        fn now() -> Duration;
        fn thread_cpu() -> Duration;
        fn wall_clock() -> Duration;
        fn random() -> u64;
        fn sleep(duration: Duration);
        fn has_machine_clock() -> bool;
        fn boot_id() -> Option<[u8; 16]>;
        fn meters() -> Vec<(Area, AreaMeter)>;
    }
}

/// An open file whose growth is counted.
struct CappedFile {
    inner: Arc<dyn File>,
    length: Arc<Length>,
    growth: Growth,
    disk: Arc<DiskUse>,
}

impl CappedFile {
    /// Counts the file's growth to `end`, and does what makes it grow.
    fn grow(
        &self,
        end: u64,
        operation: &'static str,
        act: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut bytes = lock(&self.length.bytes);
        if end <= *bytes {
            drop(bytes);
            return act();
        }
        let taken = self.disk.take(end - *bytes, self.growth);
        taken.map_err(|error| Error::io(operation, self.inner.path(), error))?;
        // What failed half way may have grown it nevertheless.
        *bytes = end;
        drop(bytes);
        act()
    }
}

impl File for CappedFile {
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let end = offset + data.len() as u64;
        self.grow(end, "write", || self.inner.write_at(data, offset))
    }

    fn preallocate(&self, bytes: u64) -> Result<()> {
        self.grow(bytes, "reserve", || self.inner.preallocate(bytes))
    }

    fn truncate(&self, bytes: u64) -> Result<()> {
        let mut held = lock(&self.length.bytes);
        self.inner.truncate(bytes)?;
        let cut = held.saturating_sub(bytes);
        self.disk.give_back(cut, self.growth);
        *held -= cut;
        Ok(())
    }

    forward! { inner:
        fn read_at(buffer: &mut [u8], offset: u64) -> Result<usize>;
        fn read_window(buffer: &mut [u8], offset: u64) -> Result<usize>;
        fn sync() -> Result<()>;
        fn size() -> Result<u64>;
        fn is_direct() -> bool;
        fn alignment() -> usize;
        fn prefetch(offset: u64, length: u64);
        fn write_back(offset: u64, length: u64);
        fn path() -> &Path;
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
