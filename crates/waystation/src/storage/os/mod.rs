//! The operating system's files, clock and randomness.
//!
//! Files and directories that are made here are their owner's alone: files 0600, directories 0700, less what the umask takes. What was there
//! keeps its mode.

mod file;
mod lock;
mod memory;
mod priority;
mod ring;

use self::file::KernelFile;
pub(crate) use self::memory::{memory_bytes, processors};
pub(crate) use self::priority::{stand_back, wake_soon};
use super::raw::RawStorage;
use super::{DirectoryLock, Entry, Metered, OpenMode, Ring};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The operating system's storage.
pub type OsStorage = Metered<Kernel>;

impl OsStorage {
    /// The operating system's storage, all meters at zero.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::over(Kernel))
    }
}

/// The operating system's calls.
#[derive(Debug, Clone, Copy)]
pub struct Kernel;

impl RawStorage for Kernel {
    type File = KernelFile;

    fn open(&self, path: &Path, mode: OpenMode, direct: bool) -> io::Result<KernelFile> {
        KernelFile::open(path, mode, direct)
    }

    fn map_ring(&self, path: &Path, bytes: usize) -> io::Result<(Arc<dyn Ring>, bool)> {
        let (ring, survived) = ring::map(path, bytes)?;
        Ok((Arc::new(ring), survived))
    }

    fn resize_ring(&self, path: &Path, bytes: usize) -> io::Result<()> {
        ring::resize(path, bytes)
    }

    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        fs::rename(source, target)
    }

    fn link(&self, source: &Path, target: &Path) -> io::Result<()> {
        fs::hard_link(source, target)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match make_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create_dir(path.parent().ok_or(error)?)?;
                // Once more and not again: some places take no directories and say so by this error (`/proc`).
                make_dir(path)
            }
            made => made,
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for item in fs::read_dir(path)? {
            let item = item?;
            let meta = match item.metadata() {
                Ok(meta) => meta,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            entries.push(Entry {
                name: item.file_name().to_string_lossy().into_owned(),
                bytes: if meta.is_dir() { 0 } else { meta.len() },
                is_dir: meta.is_dir(),
            });
        }
        Ok(entries)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        Ok(rustix::fs::fsync(open(path, flags)?)?)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>> {
        Ok(Box::new(lock::acquire(path)?))
    }

    fn device_of(&self, path: &Path) -> Option<u64> {
        rustix::fs::stat(path).ok().map(|it| it.st_dev)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let numbers = rustix::fs::statvfs(path)?;
        Ok(numbers.f_bavail.saturating_mul(numbers.f_frsize))
    }

    fn now(&self) -> Duration {
        time(ClockId::Monotonic)
    }

    fn has_machine_clock(&self) -> bool {
        true
    }

    fn boot_id(&self) -> Option<[u8; 16]> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = text.trim().split('-').collect();
        u128::from_str_radix(&digits, 16)
            .ok()
            .map(u128::to_le_bytes)
    }

    fn thread_cpu(&self) -> Duration {
        time(ClockId::ThreadCPUTime)
    }

    fn wall_clock(&self) -> Duration {
        time(ClockId::Realtime)
    }

    /// The hash keys of the standard library are random numbers of the operating system, and no two are alike.
    fn random(&self) -> u64 {
        RandomState::new().hash_one(0_u64)
    }

    fn sleep(&self, duration: Duration) {
        thread::sleep(duration);
    }
}

/// The clock's time; one that was set to before the Unix epoch stands at the epoch.
fn time(clock: ClockId) -> Duration {
    clock_gettime(clock).try_into().unwrap_or_default()
}

/// The directory that holds `path`.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// Makes one directory, durable at once, for its owner alone unless it is there.
fn make_dir(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Kernel.sync_dir(parent(path)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Opens a file or a directory; one that is made is its owner's alone. Refuses a pipe or a terminal that has the name of a
/// file, and does not wait for its other end.
fn open(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let descriptor = rustix::fs::open(path, flags, mode)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&descriptor)?.st_mode);
    match kind {
        FileType::RegularFile | FileType::Directory | FileType::BlockDevice => Ok(descriptor),
        other => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("not a file ({other:?})"),
        )),
    }
}
