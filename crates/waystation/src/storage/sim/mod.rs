//! A machine in memory that crashes, fills up and keeps only what it must.
//!
//! [`SimStorage::crash`] switches the machine off and gives the storage that the next process, or the next
//! boot, finds:
//! - after a [`Crash::Process`]: every byte that was written, every name, the ring as the last store left it;
//!   what was not synced can still be lost to a later power cut;
//! - after a [`Crash::PowerCut`]: each unsynced sector (512 or 4096 bytes, by the seed) and each unsynced change of
//!   names independently old or new ([`content`], [`tree`]), each page of a ring as it is or as the
//!   medium last got it ([`ring`]).
//!
//! From the moment of a crash or of [`SimStorage::power_off`] every call of the old storage fails with "the
//! machine is off", all at once, so that threads of the dead engine change nothing any more. The same dead
//! machine can be crashed many times, with several seeds, to look at several outcomes of one moment.
//!
//! Faults that are not crashes (errors, torn writes, syncs that lie, writes gone astray) are injected over it:
//! [`Metered::with_faults`](super::Metered::with_faults). What happens follows from the seeds as long as one
//! thread makes the calls. Time is the real one plus every `sleep`, which returns at once.

#[cfg(feature = "test-storage")]
pub use crate::sync::restless::hold_threads_up;

mod content;
mod file;
mod random;
mod ring;
mod tree;

use self::content::Content;
use self::file::SimFile;
use self::random::Random;
use self::ring::RingContent;
use self::tree::{Body, Tree};
use super::aligned::PAGE_BYTES;
use super::raw::RawStorage;
use super::{DirectoryLock, Entry, Metered, OpenMode, Ring};
use crate::error::{Error, Result};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use waystation_format::log::ring_file_lengths;

/// What a disk without a limit says is free.
const FREE_WITHOUT_LIMIT: u64 = 1 << 40;

/// The wall clock when a machine starts: 1 January 2026.
const WALL_CLOCK_START: Duration = Duration::from_secs(1_767_225_600);

/// One write or sync in so many is followed by write-back of something.
const WRITE_BACK_ONE_IN: u64 = 8;

/// Storage of a simulated machine.
pub type SimStorage = Metered<Machine>;

/// How a machine ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The process dies, the machine goes on.
    Process,
    /// The machine loses power.
    PowerCut,
}

impl SimStorage {
    /// An empty machine, which is switched on.
    pub fn new(seed: u64) -> Arc<Self> {
        let mut random = Random::new(seed);
        let sector_bytes = if random.chance(1, 2) { 512 } else { 4096 };
        let disk = Disk {
            tree: Tree::new(),
            locked: BTreeSet::new(),
            capacity: None,
            sector_bytes,
            off: false,
            boots: 1,
            random,
        };
        Arc::new(Self::over(Machine::start(disk, seed, Duration::ZERO)))
    }

    /// Limits what all files together may hold; `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.raw().disk().capacity = bytes;
    }

    /// Sets the wall clock forth, or back, by so many seconds, as an operator may do at any time.
    pub fn step_wall_clock(&self, seconds: i64) {
        let step = &self.raw().0.wall_step;
        *step.lock().unwrap_or_else(PoisonError::into_inner) += seconds;
    }

    /// Lets time pass in sleeps only from now on: measured times do not depend on how busy the real machine is.
    pub fn stop_clock(&self) {
        let parts = &self.raw().0;
        let mut slept = parts.clock.lock().unwrap_or_else(PoisonError::into_inner);
        if !parts.stopped.swap(true, SeqCst) {
            *slept += parts.started.elapsed();
        }
    }

    /// Switches the machine off: every call fails from now on.
    pub fn power_off(&self) {
        self.raw().disk().off = true;
    }

    /// Switches the machine on again, for threads of an engine that was left on it to come to their end. A machine that
    /// [`SimStorage::crash`] gave shares nothing with it any more.
    pub fn power_on(&self) {
        self.raw().disk().off = false;
    }

    /// Switches the machine off and gives the machine that is found after it ended so; `seed` chooses among the outcomes.
    #[must_use]
    pub fn crash(&self, seed: u64, crash: Crash) -> Arc<Self> {
        let mut disk = self.raw().disk();
        disk.off = true;
        let mut random = Random::new(seed);
        let tree = match crash {
            Crash::Process => disk.tree.after_process_crash(),
            Crash::PowerCut => disk.tree.after_power_cut(&mut random),
        };
        let left = Disk {
            tree,
            locked: BTreeSet::new(),
            capacity: disk.capacity,
            sector_bytes: disk.sector_bytes,
            off: false,
            boots: disk.boots + u64::from(crash == Crash::PowerCut),
            random,
        };
        Arc::new(Self::over(Machine::start(left, seed, self.raw().now())))
    }

    /// Turns one bit of a file over on the medium, as ageing media do.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> Result<()> {
        let outcome = self.raw().on_disk(|disk| {
            let node = disk.tree.find_file(path)?;
            match &mut disk.tree.file_mut(node)?.body {
                Body::Bytes(content) => content.flip_bit(bit).then_some(()).ok_or(Errno::INVAL),
                Body::Ring(_) => Err(Errno::TXTBSY),
            }
        });
        outcome.map_err(|error| Error::io("damage", path, error))
    }
}

/// The simulated machine. Clones are the same machine.
#[derive(Clone)]
pub struct Machine(Arc<Parts>);

struct Parts {
    disk: Mutex<Disk>,
    random: Mutex<Random>,
    /// What passed in sleeps; all that passed, once the clock is stopped.
    clock: Mutex<Duration>,
    /// Whether time passes in sleeps only.
    stopped: AtomicBool,
    /// By how many seconds the wall clock was set.
    wall_step: Mutex<i64>,
    started: Instant,
}

/// Everything that survives a process.
struct Disk {
    tree: Tree,
    locked: BTreeSet<Vec<String>>,
    capacity: Option<u64>,
    sector_bytes: usize,
    off: bool,
    /// How often the machine has started.
    boots: u64,
    random: Random,
}

impl Disk {
    fn free_bytes(&self) -> u64 {
        let free = |capacity: u64| capacity.saturating_sub(self.tree.used_bytes());
        self.capacity.map_or(FREE_WITHOUT_LIMIT, free)
    }

    /// Refuses growth beyond the disk's capacity.
    fn reserve(&self, bytes: u64) -> Result<(), Errno> {
        if bytes > 0 && self.free_bytes() < bytes {
            Err(Errno::NOSPC)
        } else {
            Ok(())
        }
    }

    /// Sometimes, something reaches the medium before a sync asked.
    fn write_back(&mut self) {
        if self.random.chance(1, WRITE_BACK_ONE_IN) {
            for body in self.tree.bodies_mut() {
                match body {
                    Body::Bytes(content) => content.write_back(&mut self.random),
                    Body::Ring(ring) => ring.write_back(&mut self.random),
                }
            }
        }
    }

    fn map_ring(&mut self, path: &Path, bytes: usize) -> Result<(Arc<dyn Ring>, bool), Errno> {
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(Errno::INVAL);
        }
        let is_of_ring =
            |length: usize| ring_file_lengths(bytes as u64).any(|it| it == length as u64);
        let found = match self.tree.find_file(path) {
            Ok(node) => Some(node).filter(|node| {
                self.tree
                    .file(*node)
                    .is_ok_and(|file| is_of_ring(file.body.len()))
            }),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error),
        };
        let node = if let Some(node) = found {
            node
        } else {
            let shortest = ring_file_lengths(bytes as u64)
                .last()
                .unwrap_or(bytes as u64);
            self.reserve(shortest)?;
            let zeros = vec![0; shortest as usize];
            let ring = RingContent::new(&zeros, zeros.clone(), bytes);
            self.tree.create_file(path, Body::Ring(ring))?
        };
        let body = &mut self.tree.file_mut(node)?.body;
        let left = match body {
            Body::Bytes(content) => Some((content.newest().to_vec(), content.durable())),
            Body::Ring(ring) if ring.len_max() != bytes => Some((ring.newest(), ring.durable())),
            Body::Ring(_) => None,
        };
        if let Some((newest, durable)) = left {
            *body = Body::Ring(RingContent::new(&newest, durable, bytes));
        }
        match body {
            Body::Ring(ring) => Ok((ring.map(), found.is_some())),
            Body::Bytes(_) => Err(Errno::INVAL),
        }
    }

    fn resize_ring(&mut self, path: &Path, bytes: usize) -> Result<(), Errno> {
        let node = self.tree.find_file(path)?;
        let more = bytes.saturating_sub(self.tree.file(node)?.body.len());
        self.reserve(more as u64)?;
        match &mut self.tree.file_mut(node)?.body {
            Body::Ring(ring) if bytes <= ring.len_max() => {
                ring.resize(bytes);
                Ok(())
            }
            _ => Err(Errno::INVAL),
        }
    }
}

impl Machine {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the seam that time comes from"
    )]
    fn start(disk: Disk, seed: u64, clock: Duration) -> Self {
        Self(Arc::new(Parts {
            disk: Mutex::new(disk),
            random: Mutex::new(Random::new(!seed)),
            clock: Mutex::new(clock),
            stopped: AtomicBool::new(false),
            wall_step: Mutex::new(0),
            started: Instant::now(),
        }))
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call, if the machine is on.
    fn on_disk<T>(&self, call: impl FnOnce(&mut Disk) -> Result<T, Errno>) -> io::Result<T> {
        let mut disk = self.disk();
        if disk.off {
            return Err(io::Error::other("the machine is off"));
        }
        Ok(call(&mut disk)?)
    }
}

impl RawStorage for Machine {
    type File = SimFile;

    fn open(&self, path: &Path, mode: OpenMode, direct: bool) -> io::Result<SimFile> {
        self.on_disk(|disk| {
            let node = match (disk.tree.find_file(path), mode) {
                (Err(Errno::NOENT), OpenMode::Create) => {
                    let content = Content::new(disk.sector_bytes);
                    disk.tree.create_file(path, Body::Bytes(content))?
                }
                (found, _) => found?,
            };
            let file = disk.tree.file_mut(node)?;
            if mode == OpenMode::Create {
                match &mut file.body {
                    Body::Bytes(content) => content.set_len(0),
                    Body::Ring(_) => return Err(Errno::TXTBSY),
                }
            }
            file.opens += 1;
            Ok(SimFile::new(self.clone(), node, mode, direct))
        })
    }

    fn map_ring(&self, path: &Path, bytes: usize) -> io::Result<(Arc<dyn Ring>, bool)> {
        self.on_disk(|disk| disk.map_ring(path, bytes))
    }

    fn resize_ring(&self, path: &Path, bytes: usize) -> io::Result<()> {
        self.on_disk(|disk| disk.resize_ring(path, bytes))
    }

    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        self.on_disk(|disk| disk.tree.rename(source, target))
    }

    fn link(&self, source: &Path, target: &Path) -> io::Result<()> {
        self.on_disk(|disk| disk.tree.link(source, target))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.on_disk(|disk| disk.tree.remove_file(path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.on_disk(|disk| disk.tree.create_dir(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.on_disk(|disk| disk.tree.remove_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.on_disk(|disk| disk.tree.list(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.on_disk(|disk| disk.tree.sync_dir(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>> {
        self.on_disk(|disk| {
            if let Err(Errno::NOENT) = disk.tree.find_file(path) {
                let content = Content::new(disk.sector_bytes);
                disk.tree.create_file(path, Body::Bytes(content))?;
            }
            let names = tree::components(path)?;
            if !disk.locked.insert(names.clone()) {
                return Err(Errno::AGAIN);
            }
            Ok(Box::new(SimLock {
                machine: self.clone(),
                names,
            }) as Box<dyn DirectoryLock>)
        })
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.on_disk(|disk| {
            disk.tree.list(path)?;
            Ok(disk.free_bytes())
        })
    }

    fn now(&self) -> Duration {
        let slept = self.0.clock.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.stopped.load(SeqCst) {
            return *slept;
        }
        self.0.started.elapsed() + *slept
    }

    fn boot_id(&self) -> Option<[u8; 16]> {
        Some(u128::from(self.disk().boots).to_le_bytes())
    }

    fn wall_clock(&self) -> Duration {
        let step = *self
            .0
            .wall_step
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let set = Duration::from_secs(step.unsigned_abs());
        let unset = WALL_CLOCK_START + self.now();
        if step < 0 {
            unset.saturating_sub(set)
        } else {
            unset + set
        }
    }

    fn random(&self) -> u64 {
        self.0
            .random
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next()
    }

    fn sleep(&self, duration: Duration) {
        *self.0.clock.lock().unwrap_or_else(PoisonError::into_inner) += duration;
        thread::yield_now();
    }
}

/// A held lock file.
struct SimLock {
    machine: Machine,
    names: Vec<String>,
}

impl DirectoryLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.machine.disk().locked.remove(&self.names);
    }
}
