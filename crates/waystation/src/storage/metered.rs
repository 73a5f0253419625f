//! From raw calls to [`Storage`]: whole transfers, retries, the fall-back from direct to buffered, meters,
//! and errors that say which call failed on which file.
//!
//! **Fall-back.** A file that is refused direct transfers goes on buffered ([`direct`](super::direct)); the
//! area's meter counts it once per file.
//!
//! **Alignment.** A file opened for direct transfer takes only aligned writes, also after a fall-back, so that
//! a caller's mistake does not depend on the file system. Unaligned reads are served through an aligned copy.
//!
//! **A failed sync is final.** The kernel reports a lost page once and then forgets it, so a second sync would
//! lie; every later sync of the same open file fails as well. Syncs of one file wait for each other, since the
//! report reaches only one of two concurrent ones.

use super::direct::{DirectState, refuses_direct};
use super::meter::{Counters, Meters};
use super::raw::{RawFile, RawStorage};
use super::{
    AlignedBuffer, Area, AreaMeter, DirectoryLock, Entry, File, OpenMode, Ring, Storage, Transfer,
};
use crate::error::{Error, Result};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The smallest alignment used: the page of all file systems of note. A drive with 512-byte sectors is
/// treated like one with 4096-byte sectors, so that formats do not change with the drive.
const ALIGNMENT_MIN: usize = 4096;

/// The most that is fetched at once into the copy that serves an unaligned read.
const BOUNCE_BYTES: usize = 1 << 20;

/// [`Storage`] over raw calls.
#[derive(Debug)]
pub struct Metered<R> {
    raw: R,
    meters: Arc<Meters>,
}

/// For the simulated machine and its faults.
#[cfg(any(test, feature = "test-storage"))]
impl<R: RawStorage> Metered<R> {
    /// The raw calls.
    pub(super) const fn raw(&self) -> &R {
        &self.raw
    }

    /// Storage over other raw calls that counts into the same meters.
    pub(super) fn sharing_meters<S>(&self, raw: S) -> Metered<S> {
        Metered {
            raw,
            meters: Arc::clone(&self.meters),
        }
    }
}

impl<R: RawStorage> Metered<R> {
    /// Storage over `raw`, all meters at zero.
    pub(super) fn over(raw: R) -> Self {
        Self {
            raw,
            meters: Arc::default(),
        }
    }
}

impl<R: RawStorage> Storage for Metered<R> {
    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        transfer: Transfer,
        area: Area,
    ) -> Result<Arc<dyn File>> {
        let wants_direct = transfer == Transfer::Direct;
        let file = MeteredFile::open(self, path, mode, wants_direct, area)
            .map_err(|error| Error::io("open", path, error))?;
        Ok(Arc::new(file))
    }

    fn map_ring(&self, path: &Path, bytes: usize) -> Result<(Arc<dyn Ring>, bool)> {
        call("map", path, || self.raw.map_ring(path, bytes))
    }

    fn resize_ring(&self, path: &Path, bytes: usize) -> Result<()> {
        call("resize", path, || self.raw.resize_ring(path, bytes))
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        call("rename", source, || self.raw.rename(source, target))
    }

    fn link(&self, source: &Path, target: &Path) -> Result<()> {
        call("link", source, || self.raw.link(source, target))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        call("remove", path, || self.raw.remove(path))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        call("create directory", path, || self.raw.create_dir(path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        call("remove directory", path, || self.raw.remove_dir(path))
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        call("list", path, || self.raw.list(path))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        call("sync directory", path, || self.raw.sync_dir(path))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirectoryLock>> {
        match uninterrupted(|| self.raw.lock(path)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let directory = path.parent().unwrap_or(path).to_owned();
                Err(Error::Locked { path: directory })
            }
            outcome => outcome.map_err(|error| Error::io("lock", path, error)),
        }
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        call("ask for free space at", path, || self.raw.free_bytes(path))
    }

    fn device_of(&self, path: &Path) -> Option<u64> {
        self.raw.device_of(path)
    }

    fn now(&self) -> Duration {
        self.raw.now()
    }

    fn has_machine_clock(&self) -> bool {
        self.raw.has_machine_clock()
    }

    fn boot_id(&self) -> Option<[u8; 16]> {
        self.raw.boot_id()
    }

    fn thread_cpu(&self) -> Duration {
        self.raw.thread_cpu()
    }

    fn wall_clock(&self) -> Duration {
        self.raw.wall_clock()
    }

    fn random(&self) -> u64 {
        self.raw.random()
    }

    fn sleep(&self, duration: Duration) {
        self.raw.sleep(duration);
    }

    fn meters(&self) -> Vec<(Area, AreaMeter)> {
        self.meters.snapshot()
    }
}

/// An open file: a raw one with its name, its meter and its state.
struct MeteredFile<F> {
    raw: F,
    path: PathBuf,
    area: Area,
    meters: Arc<Meters>,
    alignment: usize,
    /// Whether the caller asked for direct transfers, and so promised alignment.
    wants_direct: bool,
    /// Whether transfers are direct now.
    direct: DirectState,
    /// Whether a sync failed. The lock is held during a sync.
    sync_failed: Mutex<bool>,
}

/// Whether a file of `area` is read a block here and a block there. Linux reads ahead of any read whose neighbour is in the page
/// cache, and the more of a table is there the more it reads that nothing asks for. Walks say themselves what they read next.
fn is_read_at_random(mode: OpenMode, area: Area) -> bool {
    match area {
        Area::Journal => false,
        Area::Tables | Area::Spill => mode == OpenMode::Read,
        Area::Copies => true,
    }
}

impl<F: RawFile> MeteredFile<F> {
    fn open<R: RawStorage<File = F>>(
        storage: &Metered<R>,
        path: &Path,
        mode: OpenMode,
        wants_direct: bool,
        area: Area,
    ) -> io::Result<Self> {
        let open = |direct| uninterrupted(|| storage.raw.open(path, mode, direct));
        let (raw, direct) = match open(wants_direct) {
            Err(error) if wants_direct && refuses_direct(&error) => (open(false)?, false),
            outcome => (outcome?, wants_direct),
        };
        if is_read_at_random(mode, area) {
            raw.expect_scattered_reads();
        }
        let file = Self {
            alignment: raw.direct_alignment().unwrap_or(0).max(ALIGNMENT_MIN),
            raw,
            path: path.to_owned(),
            area,
            meters: Arc::clone(&storage.meters),
            wants_direct,
            direct: DirectState::new(direct),
            sync_failed: Mutex::new(false),
        };
        if wants_direct && !direct {
            file.tell_fall_back();
        }
        Ok(file)
    }

    fn counters(&self) -> &Counters {
        self.meters.area(self.area)
    }

    fn error(&self, operation: &'static str, source: io::Error) -> Error {
        Error::io(operation, &self.path, source)
    }

    fn is_aligned(&self, buffer: &[u8], offset: u64) -> bool {
        buffer.as_ptr().addr().is_multiple_of(self.alignment)
            && buffer.len().is_multiple_of(self.alignment)
            && offset.is_multiple_of(self.alignment as u64)
    }

    fn tell_fall_back(&self) {
        self.counters().count_direct_fallback();
        log::info!(
            "{}: direct transfers are refused, going on buffered",
            self.path.display()
        );
    }

    /// One raw transfer; see [`DirectState::transfer`].
    fn transfer(&self, attempt: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        self.direct.transfer(
            attempt,
            || self.raw.leave_direct(),
            || self.tell_fall_back(),
        )
    }

    fn write_all(&self, data: &[u8], offset: u64, done: &mut usize) -> io::Result<()> {
        while *done < data.len() {
            let rest = &data[*done..];
            match self.transfer(|| self.raw.write_at(rest, offset + *done as u64))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => *done += count,
            }
        }
        Ok(())
    }

    /// Reads until `buffer` is full or the file ends; `moved` counts what had to be fetched for it.
    fn read_all(&self, buffer: &mut [u8], offset: u64, moved: &mut usize) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let (rest, at) = (&mut buffer[done..], offset + done as u64);
            let count = if self.is_direct() && !self.is_aligned(rest, at) {
                self.read_unaligned(rest, at, moved)?
            } else {
                let count = self.transfer(|| self.raw.read_at(rest, at))?;
                *moved += count;
                count
            };
            if count == 0 {
                break;
            }
            done += count;
        }
        Ok(done)
    }

    /// Reads whole units around the range into an aligned copy and hands out the part asked for.
    fn read_unaligned(
        &self,
        buffer: &mut [u8],
        offset: u64,
        moved: &mut usize,
    ) -> io::Result<usize> {
        let lead = (offset % self.alignment as u64) as usize;
        let length = (lead + buffer.len()).next_multiple_of(self.alignment);
        let mut copy = AlignedBuffer::zeroed(length.min(BOUNCE_BYTES.max(self.alignment)));
        let fetched = self.transfer(|| self.raw.read_at(&mut copy, offset - lead as u64))?;
        *moved += fetched;
        let count = fetched.saturating_sub(lead).min(buffer.len());
        buffer[..count].copy_from_slice(&copy[lead..lead + count]);
        Ok(count)
    }
}

impl<F: RawFile> File for MeteredFile<F> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut moved = 0;
        let outcome = self.read_all(buffer, offset, &mut moved);
        self.counters().count_read(moved);
        outcome.map_err(|error| self.error("read", error))
    }

    fn read_window(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read_at(buffer, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        if self.wants_direct && !self.is_aligned(data, offset) {
            return Err(Error::InvalidArgument(format!(
                "a direct write of {} bytes at {offset} to {} is not aligned to {} bytes",
                data.len(),
                self.path.display(),
                self.alignment
            )));
        }
        let mut done = 0;
        let outcome = self.write_all(data, offset, &mut done);
        self.counters().count_write(done);
        outcome.map_err(|error| self.error("write", error))
    }

    fn sync(&self) -> Result<()> {
        self.counters().count_sync();
        let mut failed = self
            .sync_failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *failed {
            let reason = io::Error::other("an earlier sync of this file failed");
            return Err(self.error("sync", reason));
        }
        let outcome = uninterrupted(|| self.raw.sync());
        *failed = outcome.is_err();
        outcome.map_err(|error| self.error("sync", error))
    }

    fn preallocate(&self, bytes: u64) -> Result<()> {
        let outcome = uninterrupted(|| match self.raw.allocate(bytes) {
            Err(error) if is_unsupported(&error) && self.raw.size()? < bytes => {
                self.raw.set_len(bytes)
            }
            Err(error) if is_unsupported(&error) => Ok(()),
            outcome => outcome,
        });
        outcome.map_err(|error| self.error("preallocate", error))
    }

    fn truncate(&self, bytes: u64) -> Result<()> {
        let outcome = uninterrupted(|| self.raw.set_len(bytes));
        outcome.map_err(|error| self.error("truncate", error))
    }

    fn size(&self) -> Result<u64> {
        uninterrupted(|| self.raw.size()).map_err(|error| self.error("measure", error))
    }

    fn is_direct(&self) -> bool {
        self.direct.is_direct()
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn prefetch(&self, offset: u64, length: u64) {
        if !self.is_direct() {
            self.raw.prefetch(offset, length);
        }
    }

    fn write_back(&self, offset: u64, length: u64) {
        if !self.is_direct() {
            self.raw.write_back(offset, length);
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

fn call<T>(
    operation: &'static str,
    path: &Path,
    attempt: impl FnMut() -> io::Result<T>,
) -> Result<T> {
    uninterrupted(attempt).map_err(|error| Error::io(operation, path, error))
}

fn uninterrupted<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}
