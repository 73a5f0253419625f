//! The places of the fast tier: one file, `SLOTS`, in units of an extent, and the checksums of what lies there.
//!
//! The file is made anew at each opening and grows with what is placed. Checksums are in memory alone.

use super::extents::{EXTENT_BYTES, Place};
use crate::error::{Error, Result};
use crate::storage::{Area, File, OpenMode, Storage, Transfer};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use waystation_format::checksum::crc32c;

/// The name of the file.
const SLOTS_NAME: &str = "SLOTS";
/// Memory for what is known of slots comes for so many at once.
const CHUNK_SLOTS: usize = 1 << 12;

/// What is known of one slot.
#[derive(Debug, Default)]
struct Slot {
    generation: AtomicU32,
    /// The checksum of its content.
    sum: AtomicU32,
}

/// See the module.
pub(super) struct Slots {
    path: PathBuf,
    file: RwLock<Option<Arc<dyn File>>>,
    chunks: Box<[OnceLock<Box<[Slot]>>]>,
}

thread_local! {
    /// The extents that a reader has read.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Slots {
    /// Up to `count` slots in the directory `dir`; there is no file yet.
    pub(super) fn new(dir: &Path, count: u32) -> Self {
        let chunks = (count as usize).div_ceil(CHUNK_SLOTS);
        Self {
            path: dir.join(SLOTS_NAME),
            file: RwLock::new(None),
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Begins with an empty file.
    pub(super) fn begin(&self, storage: &dyn Storage) -> Result<()> {
        let file = storage.open(
            &self.path,
            OpenMode::Create,
            Transfer::Buffered,
            Area::Tables,
        )?;
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(())
    }

    /// Closes the file, and removes it if that works.
    pub(super) fn end(&self, storage: &dyn Storage) {
        let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
        if file.take().is_some()
            && let Err(error) = storage.remove(&self.path)
        {
            log::info!("the file of the fast tier stays: {error}");
        }
    }

    fn file(&self) -> Option<Arc<dyn File>> {
        let file = self.file.read();
        file.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn slot(&self, number: u32) -> &Slot {
        let chunk = self.chunks[number as usize / CHUNK_SLOTS]
            .get_or_init(|| (0..CHUNK_SLOTS).map(|_| Slot::default()).collect());
        &chunk[number as usize % CHUNK_SLOTS]
    }

    /// Puts `content` into a slot that no extent has, and gives it as a place.
    pub(super) fn fill(&self, number: u32, content: &[u8]) -> Result<Place> {
        let slot = self.slot(number);
        let generation = slot.generation.fetch_add(1, SeqCst).wrapping_add(1);
        slot.sum.store(crc32c(content), Relaxed);
        let file = self
            .file()
            .ok_or(Error::Closed("the fast tier is closed"))?;
        file.write_at(content, offset_of(number))?;
        Ok(Place {
            slot: number,
            generation,
        })
    }

    /// Reads extents whose places are side by side, `length` bytes in all, and hands out those from `at` on. `false`: what
    /// lies there is not what was put there.
    pub(super) fn read(
        &self,
        places: &[Place],
        (at, length): (usize, usize),
        buffer: &mut [u8],
    ) -> Result<bool> {
        let (Some(file), Some(first)) = (self.file(), places.first()) else {
            return Ok(false);
        };
        READ.with_borrow_mut(|bytes| {
            bytes.resize(length, 0);
            if file.read_at(bytes, offset_of(first.slot))? < length {
                return Ok(false);
            }
            let sums = places.iter().map(|it| self.slot(it.slot).sum.load(Relaxed));
            let mut checked = bytes.chunks(EXTENT_BYTES).zip(sums);
            if !checked.all(|(extent, sum)| crc32c(extent) == sum) {
                return Ok(false);
            }
            buffer.copy_from_slice(&bytes[at..at + buffer.len()]);
            Ok(true)
        })
    }
}

fn offset_of(slot: u32) -> u64 {
    u64::from(slot) * EXTENT_BYTES as u64
}
