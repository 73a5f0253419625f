//! The extents of one file: how hot each is, and where its copy lies.
//!
//! Readers load a place, read from it, and load it again: only if it is the same, the bytes were its extent's. A place that was
//! given to another extent meanwhile has another generation, so the same place never comes twice. (That is a sequence lock, whose sequence is the generation.)

use crate::storage::Area;
use std::ops::Range;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use waystation_planner::heat::{HEAT_MAX, sum};

/// The length of an extent: about a block of a table. Hot blocks lie scattered where keys are hashes, and a longer extent
/// takes the cold ones around them along; a shorter one needs more memory to know of.
pub(super) const EXTENT_BYTES: usize = 4 << 10;

/// Where the copy of an extent lies: a slot, and how often that was given away before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

impl Place {
    /// Never 0, which means no place.
    fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | (u64::from(self.slot) + 1)
    }

    fn unpack(word: u64) -> Option<Self> {
        let slot = (word as u32).checked_sub(1)?;
        Some(Self {
            slot,
            generation: (word >> 32) as u32,
        })
    }
}

/// See the module.
pub(super) struct Extents {
    pub(super) area: Area,
    /// The length of the file.
    pub(super) bytes: u64,
    places: Box<[AtomicU64]>,
    /// The heat when it was halved last, and the reads since.
    before: Box<[AtomicU8]>,
    recent: Box<[AtomicU8]>,
    /// The file was removed: nothing gets a place any more. Written under the lock of the tier's slots.
    is_gone: AtomicBool,
}

impl Extents {
    /// Those of a file of `bytes`, cold and without places.
    pub(super) fn of(area: Area, bytes: u64) -> Self {
        let count = bytes.div_ceil(EXTENT_BYTES as u64);
        Self {
            area,
            bytes,
            places: (0..count).map(|_| AtomicU64::new(0)).collect(),
            before: (0..count).map(|_| AtomicU8::new(0)).collect(),
            recent: (0..count).map(|_| AtomicU8::new(0)).collect(),
            is_gone: AtomicBool::new(false),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    /// The extents that `length` bytes at `offset` lie in, as far as the file goes.
    pub(super) fn around(&self, offset: u64, length: usize) -> Range<usize> {
        let end = offset.saturating_add(length as u64).min(self.bytes);
        if offset >= end {
            return 0..0;
        }
        let extent = EXTENT_BYTES as u64;
        (offset / extent) as usize..end.div_ceil(extent) as usize
    }

    /// How many bytes extent `index` has: all have as many, but for the last.
    pub(super) fn length_of(&self, index: usize) -> usize {
        let start = index as u64 * EXTENT_BYTES as u64;
        self.bytes.saturating_sub(start).min(EXTENT_BYTES as u64) as usize
    }

    pub(super) fn place(&self, index: usize) -> Option<Place> {
        Place::unpack(self.places[index].load(SeqCst))
    }

    /// Shows the copy of extent `index` to readers: it is complete.
    pub(super) fn set_place(&self, index: usize, place: Place) {
        self.places[index].store(place.pack(), SeqCst);
    }

    /// Hides the copy of extent `index`, if it has one, from readers that begin now; others see it when they are done.
    pub(super) fn take_place(&self, index: usize) -> Option<Place> {
        Place::unpack(self.places[index].swap(0, SeqCst))
    }

    pub(super) fn heat(&self, index: usize) -> u8 {
        let (before, recent) = self.heats(index);
        sum(before, recent)
    }

    /// The heat when it was halved last, and the reads since.
    pub(super) fn heats(&self, index: usize) -> (u8, u8) {
        (
            self.before[index].load(Relaxed),
            self.recent[index].load(Relaxed),
        )
    }

    /// A read that was slow, or would have been without the copy. Two at once may count as one.
    pub(super) fn warm(&self, index: usize) {
        let recent = self.recent[index].load(Relaxed);
        if recent < HEAT_MAX {
            self.recent[index].store(recent + 1, Relaxed);
        }
    }

    /// Time has passed: the heat is halved.
    pub(super) fn cool(&self) {
        for (before, recent) in self.before.iter().zip(&self.recent) {
            let heat = sum(before.load(Relaxed), recent.load(Relaxed));
            if heat > 0 {
                before.store(heat / 2, Relaxed);
                recent.store(0, Relaxed);
            }
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(SeqCst)
    }

    pub(super) fn set_gone(&self) {
        self.is_gone.store(true, SeqCst);
    }
}
