//! Storage for models under shuttle: it gives way to other threads inside every transfer, and watches that the
//! bytes being written are not changed meanwhile (they lie in the ring).

use crate::error::Result;
use crate::storage::{
    Area, AreaMeter, DirectoryLock, Entry, File, OpenMode, Ring, Storage, Transfer,
};
use crate::sync::{Arc, thread};
use std::path::Path;
use std::time::Duration;

/// A storage that gives way and watches.
pub(crate) struct Watched(pub(crate) Arc<dyn Storage>);

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
        let file = self.0.open(path, mode, transfer, area)?;
        Ok(Arc::new(WatchedFile {
            inner: file,
            reads_give_way: area == Area::Journal,
        }))
    }
    fn map_ring(&self, path: &Path, bytes: usize) -> Result<(Arc<dyn Ring>, bool)> {
        self.0.map_ring(path, bytes)
    }
    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        self.0.rename(source, target)
    }
    fn link(&self, source: &Path, target: &Path) -> Result<()> {
        self.0.link(source, target)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.0.remove(path)
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.0.create_dir(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.0.remove_dir(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        self.0.list(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        thread::yield_now();
        self.0.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn DirectoryLock>> {
        self.0.lock(path)
    }
    fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.0.free_bytes(path)
    }
    /// Stands still but for sleeps, so that a schedule can be replayed.
    fn now(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn wall_clock(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn random(&self) -> u64 {
        self.0.random()
    }
    fn sleep(&self, _: Duration) {
        thread::yield_now();
    }
    fn meters(&self) -> Vec<(Area, AreaMeter)> {
        self.0.meters()
    }
}

impl File for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if self.reads_give_way {
            thread::yield_now();
        }
        self.inner.read_at(buffer, offset)
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
    fn truncate(&self, bytes: u64) -> Result<()> {
        self.inner.truncate(bytes)
    }
    fn size(&self) -> Result<u64> {
        self.inner.size()
    }
    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
    fn alignment(&self) -> usize {
        self.inner.alignment()
    }
    fn prefetch(&self, offset: u64, length: u64) {
        self.inner.prefetch(offset, length);
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
}
