//! The calls below the door: what an operating system, or a simulated machine, has to offer.
//!
//! [`Metered`](super::Metered) turns these into [`Storage`](super::Storage). Here nothing is retried, counted
//! or explained: a call is one attempt, transfers may be short, and errors are the bare ones of the system.
//! That makes this the place to inject faults ([`fault`](super::fault)): interrupted calls, short writes and
//! refused direct transfers then meet the same code that meets them in earnest.

use super::{DirectoryLock, Entry, OpenMode, Ring};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An open file of a [`RawStorage`].
pub trait RawFile: Send + Sync + 'static {
    /// One attempt to read; fewer bytes than asked are allowed, none means the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// One attempt to write; fewer bytes than asked are allowed.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes content and length durable.
    fn sync(&self) -> io::Result<()>;
    /// Reserves the first `bytes` bytes; `Unsupported` where that cannot be done.
    fn allocate(&self, bytes: u64) -> io::Result<()>;
    /// Sets the length.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// The length.
    fn size(&self) -> io::Result<u64>;
    /// What direct transfers have to be aligned to, as far as the system says.
    fn direct_alignment(&self) -> Option<usize>;
    /// Makes all later transfers buffered ones; may be called again.
    fn leave_direct(&self) -> io::Result<()>;
    /// Advice that a range will be read.
    fn prefetch(&self, offset: u64, length: u64);
    /// Advice that reads will come at any offset: nothing beside what is asked for is worth reading.
    fn expect_scattered_reads(&self) {}
    /// Advice that what was written to a range should start on its way to the device.
    fn write_back(&self, offset: u64, length: u64);
}

/// Files, names, clock and randomness as a system offers them. See [`Storage`](super::Storage) for what each
/// call is for; calls that are not described here differ only in their error.
#[expect(missing_docs, reason = "the calls of Storage, one attempt each")]
pub trait RawStorage: Send + Sync + 'static {
    /// What `open` gives.
    type File: RawFile;

    /// Opens a file; with `direct`, for transfers around the page cache or not at all.
    fn open(&self, path: &Path, mode: OpenMode, direct: bool) -> io::Result<Self::File>;
    fn map_ring(&self, path: &Path, bytes: usize) -> io::Result<(Arc<dyn Ring>, bool)>;
    fn resize_ring(&self, path: &Path, bytes: usize) -> io::Result<()>;
    fn rename(&self, source: &Path, target: &Path) -> io::Result<()>;
    fn link(&self, source: &Path, target: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// `WouldBlock` when another process holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>>;
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
    fn device_of(&self, path: &Path) -> Option<u64> {
        let _ = path;
        None
    }
    fn now(&self) -> Duration;
    fn has_machine_clock(&self) -> bool {
        false
    }
    fn boot_id(&self) -> Option<[u8; 16]> {
        None
    }
    fn thread_cpu(&self) -> Duration {
        Duration::ZERO
    }
    fn wall_clock(&self) -> Duration;
    fn random(&self) -> u64;
    fn sleep(&self, duration: Duration);
}
