//! Storage: the only door to files, the clock and randomness.
//!
//! Everything the engine does to the outside world goes through [`Storage`], so that the same engine runs on
//! the operating system ([`os`]), or in memory on a machine that crashes, tears and lies (`sim`, with the feature
//! `test-storage`, as `fault`). Files are
//! opened for an [`Area`] and every transfer is metered there: placement decisions and write amplification
//! are computed from what really moved.
//!
//! ```text
//! Storage, File        whole calls, typed errors, meters      what the engine sees
//!   metered, direct    retries, alignment, fall-back          one implementation for all below
//!     fault            rules that make raw calls fail or lie  (tests)
//!       raw            single attempts, bare errors           what has to be offered
//!         os, sim      the kernel, or a machine in memory
//! ```
//!
//! Invariants:
//! - a path is relative to nothing: the engine always passes paths below its database directory;
//! - `write_at` writes all bytes or fails; `read_at` returns fewer bytes than asked only at the end of file;
//! - nothing is durable against power loss before `sync` of the file *and*, for a new, renamed or removed
//!   name, `sync_dir` of its directory.

mod aligned;
mod capped;
mod copy;
mod direct;
mod duty;
#[cfg(any(test, feature = "test-storage"))]
pub mod fault;
#[doc(hidden)]
pub mod forward;
mod margins;
mod meter;
mod metered;
pub mod os;
mod output;
mod rate;
pub mod raw;
#[cfg(any(test, feature = "test-storage"))]
pub mod sim;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
mod transit;
mod whole;

pub use aligned::AlignedBuffer;
pub(crate) use capped::{Capped, DiskUse, Growth, at_low_priority};
pub(crate) use copy::copy_bytes;
pub(crate) use duty::{Duty, IoPriority};
pub(crate) use margins::{Margins, laid_out, long_from};
pub use metered::Metered;
pub use os::OsStorage;
pub(crate) use os::{memory_bytes, processors, stand_back, wake_soon};
pub(crate) use output::Output;
pub(crate) use rate::RateLimit;
#[cfg(any(test, feature = "test-storage"))]
pub use sim::SimStorage;
pub(crate) use transit::TransitBuffer;
pub(crate) use whole::{WHOLE_BYTES_MAX, check_whole, read_whole, resize};

use crate::error::Result;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A duration in whole microseconds, as counters and formats have it.
#[inline]
pub(crate) fn as_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What a file is for. All input and output is metered by area.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Area {
    /// Log segments and the staging ring.
    Journal,
    /// Tables and what describes them: MANIFEST, CURRENT, LOG.
    Tables,
    /// Whatever leaves memory for want of room.
    Spill,
    /// Copies of tables and spill in the fast directory.
    Copies,
}

/// How a file is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Existing file, reads only.
    Read,
    /// Existing file, reads and writes; not truncated.
    ReadWrite,
    /// New file for reads and writes; an existing one is truncated.
    Create,
}

/// How the file's bytes should travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// Through the page cache.
    Buffered,
    /// Around the page cache where the file system allows it; falls back to buffered, visibly (see
    /// [`File::is_direct`]), at open or at the first refused transfer. Addresses, offsets and lengths of
    /// writes must be multiples of [`File::alignment`], fallen back or not: others are an error. Unaligned
    /// reads are served through a copy and cost the whole units around them.
    Direct,
}

/// An open file. Positional, so that several threads can read and write it at once.
pub trait File: Send + Sync {
    /// Reads into `buffer` from `offset`; returns fewer bytes than asked only at the end of file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// As [`Self::read_at`], for bytes that are read once, as by walks, merges and checks: no copy of them is looked for, and
    /// none is kept.
    fn read_window(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes all of `data` at `offset`, extending the file as needed. On a failure any part of it, torn
    /// anywhere, may have been written.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()>;
    /// Makes everything written so far (and the file's length) survive a power cut. After a failure nothing
    /// written to this open file is known to be durable, and every later sync of it fails too: systems report
    /// a lost page once and then forget it.
    fn sync(&self) -> Result<()>;
    /// Reserves space for the first `bytes` bytes and makes the file at least that long (only the latter
    /// where a file system cannot reserve).
    fn preallocate(&self, bytes: u64) -> Result<()>;
    /// Cuts the file to its first `bytes` bytes, which are no more than it has. Durable after [`Self::sync`].
    fn truncate(&self, bytes: u64) -> Result<()>;
    /// The file's length in bytes.
    fn size(&self) -> Result<u64>;
    /// Whether transfers go around the page cache now (false after a fall-back).
    fn is_direct(&self) -> bool;
    /// The unit, in bytes, that direct buffers, offsets and lengths must be multiples of (at least 512;
    /// a power of two; the same for buffered files of the same storage, so that formats do not change with it).
    fn alignment(&self) -> usize;
    /// Asks for `length` bytes at `offset` to be brought near (page cache), without waiting for them.
    fn prefetch(&self, offset: u64, length: u64);
    /// Asks for what was written of `length` bytes at `offset` to start on its way to the device, without waiting for it: a
    /// later [`Self::sync`] then has less to do at once. Promises nothing.
    fn write_back(&self, offset: u64, length: u64);
    /// The path it was opened by.
    fn path(&self) -> &Path;
}

/// Memory shared with a file, which survives the death of the process: the staging ring of the log.
///
/// Several threads store to disjoint parts of it and read others at once; who may do what where is the log's business.
pub trait Ring: Send + Sync {
    /// The first byte, to read from; aligned to a page, valid as far as the file goes for as long as the ring lives.
    fn as_ptr(&self) -> *const u8;
    /// Stores `bytes` at `offset`.
    ///
    /// # Safety
    /// They end within the file's length and are not part of the ring themselves, and no other thread stores to that part
    /// or reads it by [`Self::as_ptr`] meanwhile.
    #[expect(unsafe_code, reason = "no lock says whose turn it is: the log knows")]
    unsafe fn store(&self, offset: usize, bytes: &[u8]);
    /// Asks for the `len` bytes at `offset` to be made ready for stores: the first store to a page after a while, or ever,
    /// may have to wait for the file system otherwise. Changes nothing there, and promises nothing.
    fn prepare(&self, offset: usize, len: usize);
    /// The length in bytes that it can grow to, a multiple of the page size. Only the part that the file has is memory.
    fn len(&self) -> usize;
    /// How long the file was when the ring was mapped (bytes).
    fn file_bytes(&self) -> usize;
    /// Never true: a ring has at least one page.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Held while the directory is owned; dropping it gives the directory back.
pub trait DirectoryLock: Send + Sync {}

/// What a directory entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name within its directory.
    pub name: String,
    /// The length in bytes (0 for a directory).
    pub bytes: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// The only door to files, the clock and randomness.
pub trait Storage: Send + Sync {
    /// Opens a file for `area`.
    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        transfer: Transfer,
        area: Area,
    ) -> Result<Arc<dyn File>>;
    /// Tells that the table that is created next at `path` gets about so many bytes, and its level, for a storage that chooses its
    /// place.
    fn expect(&self, _path: &Path, _bytes: u64, _level: usize) {}
    /// Maps the ring file `path`, which can grow to `bytes` bytes. It is made anew if it is missing or has none of the
    /// [`ring_file_lengths`]: in the shortest of them, or in full where a file system cannot reserve room. It is
    /// never sparse: a full disk fails here and not at a store. Returns the ring and whether its content is that of an
    /// earlier life. The name is durable after `sync_dir`.
    ///
    /// [`ring_file_lengths`]: waystation_format::log::ring_file_lengths
    fn map_ring(&self, path: &Path, bytes: usize) -> Result<(Arc<dyn Ring>, bool)>;
    /// Gives the file of the mapped ring `path` another of its lengths, all of it or nothing. New bytes are zeros, for which
    /// there is room. Bytes that go are no memory any more: no thread may touch them.
    fn resize_ring(&self, path: &Path, bytes: usize) -> Result<()>;
    /// Renames a file over whatever has the target name.
    fn rename(&self, source: &Path, target: &Path) -> Result<()>;
    /// Gives a file a second name (checkpoints); an existing target is an error.
    fn link(&self, source: &Path, target: &Path) -> Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Creates a directory and its missing parents, if they are not there; new ones are durable at once.
    fn create_dir(&self, path: &Path) -> Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// The entries of a directory, in no order.
    fn list(&self, path: &Path) -> Result<Vec<Entry>>;
    /// Makes the names in a directory survive a power cut.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// Takes the lock file `path`, created if missing, for the directory it is in (`fcntl`, as `LevelDB` does, and a set of names within the process).
    fn lock(&self, path: &Path) -> Result<Box<dyn DirectoryLock>>;
    /// Bytes free for this user on the file system that holds `path`.
    fn free_bytes(&self, path: &Path) -> Result<u64>;
    /// The device that `path` lies on. `None`, the default: it is not known.
    fn device_of(&self, path: &Path) -> Option<u64> {
        let _ = path;
        None
    }
    /// Time since some fixed point, never going back.
    fn now(&self) -> Duration;
    /// Whether [`Self::now`] is the machine's own clock, which goes on by itself and which other storages share. Default:
    /// no; then time is let pass by [`Self::sleep`].
    fn has_machine_clock(&self) -> bool {
        false
    }
    /// The machine's present start: what lies in a [`Ring`] is all that was stored there as long as this stays the same.
    /// `None`, the default: it is not known.
    fn boot_id(&self) -> Option<[u8; 16]> {
        None
    }
    /// Whether the file `path`, a ring or one which is kept to be used again, had better be removed: its room serves something else
    /// better, or a new one would get a better place. Default: no.
    fn gives_way(&self, path: &Path) -> bool {
        let _ = path;
        false
    }
    /// The longest (bytes) that the next segment of the log had better be, which is to use the file `spare` again if there is one:
    /// then it gets a better place. Default: no limit.
    fn segment_bytes_max(&self, spare: Option<&Path>) -> u64 {
        let _ = spare;
        u64::MAX
    }
    /// Whether another process finds the file `path` there too. Default: yes.
    fn is_found_by_others(&self, path: &Path) -> bool {
        let _ = path;
        true
    }
    /// Processor time, user and system, that the calling thread has taken so far. Default: none, as on a machine that is
    /// simulated.
    fn thread_cpu(&self) -> Duration {
        Duration::ZERO
    }
    /// Time since the Unix epoch, as the wall clock has it.
    fn wall_clock(&self) -> Duration;
    /// A random number.
    fn random(&self) -> u64;
    /// Lets `duration` pass for this thread.
    fn sleep(&self, duration: Duration);
    /// Everything transferred so far.
    fn meters(&self) -> Vec<(Area, AreaMeter)>;
}

/// What moved to and from one area since the storage was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct AreaMeter {
    /// Bytes read from files.
    pub read_bytes: u64,
    /// Read calls.
    pub reads: u64,
    /// Bytes written to files.
    pub written_bytes: u64,
    /// Write calls.
    pub writes: u64,
    /// Sync calls.
    pub syncs: u64,
    /// Files that asked for direct transfer and fell back to buffered.
    pub direct_fallbacks: u64,
}
