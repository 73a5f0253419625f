//! Storage for models under shuttle: it gives way to other threads inside every transfer, and watches that the
//! bytes being written are not changed meanwhile (they lie in the ring).

use crate::error::Result;
use crate::storage::forward::forward;
use crate::storage::{
    Area, AreaMeter, DirectoryLock, Entry, File, OpenMode, Ring, Storage, Transfer,
};
use crate::sync::{Arc, thread};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A storage that gives way and watches.
pub(crate) struct Watched {
    inner: Arc<dyn Storage>,
    /// The clock. Not seen by the scheduler of the model.
    nanos: AtomicU64,
}

impl Watched {
    pub(crate) fn over(inner: Arc<dyn Storage>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            nanos: AtomicU64::new(1_000_000_000),
        })
    }
}

struct WatchedFile {
    inner: Arc<dyn File>,
    /// Whether reads give way. Those of tables do not: one that opens a table holds a lock that shuttle does
    /// not know of (the table cache's), and a thread that waited for that would wait for ever.
    reads_give_way: bool,
}

impl Storage for Watched {
    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        transfer: Transfer,
        area: Area,
    ) -> Result<Arc<dyn File>> {
        let file = self.inner.open(path, mode, transfer, area)?;
        Ok(Arc::new(WatchedFile {
            inner: file,
            reads_give_way: area == Area::Journal,
        }))
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        thread::yield_now();
        self.inner.sync_dir(path)
    }
    /// Stands still but for sleeps, so that a schedule can be replayed.
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Relaxed))
    }
    fn wall_clock(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn sleep(&self, duration: Duration) {
        self.nanos.fetch_add(duration.as_nanos() as u64, Relaxed);
        thread::yield_now();
    }
    forward! { inner:
        fn map_ring(path: &Path, bytes: usize) -> Result<(Arc<dyn Ring>, bool)>;
        fn resize_ring(path: &Path, bytes: usize) -> Result<()>;
        fn rename(source: &Path, target: &Path) -> Result<()>;
        fn link(source: &Path, target: &Path) -> Result<()>;
        fn remove(path: &Path) -> Result<()>;
        fn create_dir(path: &Path) -> Result<()>;
        fn remove_dir(path: &Path) -> Result<()>;
        fn list(path: &Path) -> Result<Vec<Entry>>;
        fn lock(path: &Path) -> Result<Box<dyn DirectoryLock>>;
        fn free_bytes(path: &Path) -> Result<u64>;
        fn random() -> u64;
        fn boot_id() -> Option<[u8; 16]>;
        fn meters() -> Vec<(Area, AreaMeter)>;
    }
}

impl File for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if self.reads_give_way {
            thread::yield_now();
        }
        self.inner.read_at(buffer, offset)
    }
    fn read_window(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read_at(buffer, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let before = data.to_vec();
        thread::yield_now();
        let written = self.inner.write_at(data, offset);
        thread::yield_now();
        assert!(
            before == data,
            "bytes changed while they were being written"
        );
        written
    }
    fn sync(&self) -> Result<()> {
        thread::yield_now();
        let synced = self.inner.sync();
        thread::yield_now();
        synced
    }
    fn preallocate(&self, bytes: u64) -> Result<()> {
        thread::yield_now();
        self.inner.preallocate(bytes)
    }
    forward! { inner:
        fn truncate(bytes: u64) -> Result<()>;
        fn size() -> Result<u64>;
        fn is_direct() -> bool;
        fn alignment() -> usize;
        fn prefetch(offset: u64, length: u64);
        fn write_back(offset: u64, length: u64);
        fn path() -> &Path;
    }
}
