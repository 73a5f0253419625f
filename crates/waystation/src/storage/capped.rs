//! A disk that is never filled beyond a limit: storage that counts the bytes of one directory's files and refuses what
//! would pass it, with the error of a full disk.
//!
//! Counted are the lengths of files, which is what they take where nothing is sparse: the engine writes or reserves all
//! of a file. A file grows by a write behind its end, by a reservation, or by being made longer; growth is counted
//! before it happens, so that several threads together do not pass the limit either. What is removed, replaced or cut
//! is given back. Names in other directories (a checkpoint elsewhere) are not counted.

use super::forward::forward;
use super::{Area, AreaMeter, DirectoryLock, Entry, File, OpenMode, Ring, Storage, Transfer};
use crate::error::{Error, Result};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How much of a limit is used.
#[derive(Debug)]
pub(crate) struct DiskUse {
    limit: u64,
    used: AtomicU64,
}

impl DiskUse {
    /// The bytes of all files.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(SeqCst)
    }

    /// What they may be.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Counts `bytes` more, if they are within the limit.
    fn take(&self, bytes: u64) -> std::io::Result<()> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        let taken = self.used.fetch_update(SeqCst, SeqCst, fits);
        taken.map(|_| ()).map_err(|_| Errno::NOSPC.into())
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, SeqCst);
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
    /// `inner`, with at most `limit` bytes in the files of `dir`. What is there counts, even if it is more.
    pub(crate) fn new(inner: Arc<dyn Storage>, dir: &Path, limit: u64) -> Result<Self> {
        let entries = match inner.list(dir) {
            Err(error) if error.is_not_found() => Vec::new(),
            entries => entries?,
        };
        let files = entries.into_iter().filter(|entry| !entry.is_dir);
        let lengths: HashMap<_, _> = files
            .map(|entry| {
                let bytes = Mutex::new(entry.bytes);
                (dir.join(entry.name), Arc::new(Length { bytes }))
            })
            .collect();
        let used = lengths.values().map(|length| *lock(&length.bytes)).sum();
        Ok(Self {
            inner,
            dir: dir.to_owned(),
            disk: Arc::new(DiskUse {
                limit,
                used: AtomicU64::new(used),
            }),
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

    /// Takes the name `path` out, and its bytes.
    fn forget(&self, path: &Path) {
        if let Some(length) = lock(&self.lengths).remove(path) {
            self.disk.give_back(*lock(&length.bytes));
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
        if mode == OpenMode::Create {
            self.disk
                .give_back(std::mem::take(&mut *lock(&length.bytes)));
        }
        Ok(Arc::new(CappedFile {
            inner,
            length,
            disk: Arc::clone(&self.disk),
        }))
    }

    fn map_ring(&self, path: &Path, bytes: usize) -> Result<(Arc<dyn Ring>, bool)> {
        let length = Arc::clone(lock(&self.lengths).entry(path.to_owned()).or_default());
        let mut held = lock(&length.bytes);
        let growth = (bytes as u64).saturating_sub(*held);
        let taken = self.disk.take(growth);
        taken.map_err(|error| Error::io("map", path, error))?;
        let mapped = self.inner.map_ring(path, bytes);
        if mapped.is_ok() {
            self.disk.give_back((*held + growth) - bytes as u64);
            *held = bytes as u64;
        } else {
            self.disk.give_back(growth);
        }
        mapped
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        self.inner.rename(source, target)?;
        if self.counts(target) {
            self.forget(target);
        }
        let moved = lock(&self.lengths).remove(source);
        if let Some(length) = moved {
            if self.counts(target) {
                lock(&self.lengths).insert(target.to_owned(), length);
            } else {
                self.disk.give_back(*lock(&length.bytes));
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
        Ok(free.min(self.disk.limit.saturating_sub(self.disk.used())))
    }

    forward! { inner:
        fn link(source: &Path, target: &Path) -> Result<()>;
        fn create_dir(path: &Path) -> Result<()>;
        fn remove_dir(path: &Path) -> Result<()>;
        fn list(path: &Path) -> Result<Vec<Entry>>;
        fn sync_dir(path: &Path) -> Result<()>;
        fn lock(path: &Path) -> Result<Box<dyn DirectoryLock>>;
        fn now() -> Duration;
        fn wall_clock() -> Duration;
        fn random() -> u64;
        fn sleep(duration: Duration);
        fn meters() -> Vec<(Area, AreaMeter)>;
    }
}

/// An open file whose growth is counted.
struct CappedFile {
    inner: Arc<dyn File>,
    length: Arc<Length>,
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
        let taken = self.disk.take(end - *bytes);
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

    forward! { inner:
        fn read_at(buffer: &mut [u8], offset: u64) -> Result<usize>;
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
mod tests {
    use super::super::SimStorage;
    use super::*;

    const DIR: &str = "/db";

    fn capped(machine: &Arc<SimStorage>, limit: u64) -> Capped {
        let inner: Arc<dyn Storage> = machine.clone();
        Capped::new(inner, Path::new(DIR), limit).expect("list")
    }

    fn create(storage: &Capped, name: &str) -> Arc<dyn File> {
        let path = Path::new(DIR).join(name);
        let opened = storage.open(&path, OpenMode::Create, Transfer::Buffered, Area::Tables);
        opened.expect("open")
    }

    /// What is counted is what is there.
    #[track_caller]
    fn assert_counted(storage: &Capped, bytes: u64) {
        let entries = storage.list(Path::new(DIR)).expect("list");
        let there: u64 = entries.iter().map(|entry| entry.bytes).sum();
        assert_eq!((storage.disk.used(), there), (bytes, bytes));
    }

    #[test]
    fn growth_is_counted_and_refused() {
        let machine = SimStorage::new(1);
        machine.create_dir(Path::new(DIR)).expect("create");
        let storage = capped(&machine, 14_096);
        let ring = |name| storage.map_ring(&Path::new(DIR).join(name), 4096);
        ring("ring").expect("map");
        let (one, two) = (create(&storage, "one"), create(&storage, "two"));
        one.write_at(&[1; 3000], 0).expect("write");
        one.write_at(&[1; 3000], 1000).expect("overlapping");
        two.preallocate(5000).expect("reserve");
        two.write_at(&[2; 5000], 0).expect("within");
        assert_counted(&storage, 13_096);
        let refused = two.write_at(&[2; 1001], 5000).expect_err("full");
        assert!(refused.is_out_of_space(), "{refused}");
        assert!(create(&storage, "three").preallocate(2000).is_err());
        assert!(ring("another").is_err());
        assert_counted(&storage, 13_096);
        assert_eq!(storage.free_bytes(Path::new(DIR)).expect("free"), 1000);
        // One that comes later counts what it finds.
        assert_eq!(capped(&machine, 1).disk.used(), 13_096);
    }

    #[test]
    fn names_that_go_give_their_bytes_back() {
        let machine = SimStorage::new(1);
        machine.create_dir(Path::new(DIR)).expect("create");
        let storage = capped(&machine, 10_000);
        for (name, bytes) in [("one", 1000), ("two", 2000), ("three", 3000)] {
            create(&storage, name)
                .write_at(&vec![1; bytes], 0)
                .expect("write");
        }
        let path = |name: &str| Path::new(DIR).join(name);
        storage.rename(&path("one"), &path("two")).expect("rename");
        assert_counted(&storage, 4000);
        storage.remove(&path("three")).expect("remove");
        assert_counted(&storage, 1000);
        drop(create(&storage, "two"));
        assert_counted(&storage, 0);
    }
}
