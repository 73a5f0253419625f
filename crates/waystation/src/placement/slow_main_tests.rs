//! A machine for tests, whose main directory is slow: its clock passes by as files are read and written, and else stands.

use crate::error::Result;
use crate::storage::forward::forward;
use crate::storage::{
    Area, AreaMeter, DirectoryLock, Entry, File, OpenMode, Ring, Storage, Transfer,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// See the module. A read of the main directory takes a millisecond.
pub(super) struct SlowMain {
    pub(super) inner: Arc<dyn Storage>,
    /// Below this path files are read within this time.
    pub(super) fast: (&'static str, Duration),
    /// How long a write in the main directory takes.
    pub(super) write: Duration,
}

struct SlowFile {
    inner: Arc<dyn File>,
    machine: Arc<dyn Storage>,
    read: Duration,
    write: Duration,
}

impl Storage for SlowMain {
    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        transfer: Transfer,
        area: Area,
    ) -> Result<Arc<dyn File>> {
        let (read, write) = if path.starts_with(self.fast.0) {
            (self.fast.1, Duration::ZERO)
        } else {
            (Duration::from_millis(1), self.write)
        };
        Ok(Arc::new(SlowFile {
            inner: self.inner.open(path, mode, transfer, area)?,
            machine: Arc::clone(&self.inner),
            read,
            write,
        }))
    }

    /// What waits does not lengthen what is measured beside it.
    fn sleep(&self, _duration: Duration) {
        std::thread::sleep(Duration::from_millis(1));
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
        fn sync_dir(path: &Path) -> Result<()>;
        fn lock(path: &Path) -> Result<Box<dyn DirectoryLock>>;
        fn free_bytes(path: &Path) -> Result<u64>;
        fn now() -> Duration;
        fn wall_clock() -> Duration;
        fn random() -> u64;
        fn meters() -> Vec<(Area, AreaMeter)>;
    }
}

impl SlowFile {
    /// Lets `duration` pass, if it is any.
    fn pass(&self, duration: Duration) {
        if !duration.is_zero() {
            self.machine.sleep(duration);
        }
    }
}

impl File for SlowFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.pass(self.read);
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.pass(self.write);
        self.inner.write_at(data, offset)
    }

    forward! { inner:
        // Merges read beside callers; their time would count as that of the callers, as there is one clock.
        fn read_window(buffer: &mut [u8], offset: u64) -> Result<usize>;
        fn sync() -> Result<()>;
        fn preallocate(bytes: u64) -> Result<()>;
        fn truncate(bytes: u64) -> Result<()>;
        fn size() -> Result<u64>;
        fn is_direct() -> bool;
        fn alignment() -> usize;
        fn prefetch(offset: u64, length: u64);
        fn write_back(offset: u64, length: u64);
        fn path() -> &Path;
    }
}
