//! The blocks of one file: how hot each is, and where its copy lies.
//!
//! A *block* is what one read asks for, mostly a block of a table. It is known by where it begins, to 2 KiB: of two blocks that
//! begin in the same 2 KiB of the file one at a time has a copy, and both heat it. Memory is taken only for the parts of the
//! file that were read.
//!
//! Readers load a place, read from it, and load it again: only if it is the same, the bytes were their block's. A place that
//! was given to another block meanwhile has another generation, so no place comes twice during a read. (That is a sequence
//! lock, whose sequence is the generation; it is counted to 16 million, more than there can be copies during one read.)

use super::slabs::Place;
use crate::storage::Area;
use crate::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::OnceLock;
use waystation_planner::heat::{HEAT_MAX, sum};

/// Blocks are told apart by where they begin, in units of this many bytes.
const BEGIN_BYTES: u64 = 2 << 10;
/// Memory for what is known comes for so many units at once.
const CHUNK: usize = 256;

/// What is known of blocks that begin in one part of the file.
struct Chunk {
    places: [AtomicU64; CHUNK],
    /// The heat when it was halved last, and the reads since.
    before: [AtomicU8; CHUNK],
    recent: [AtomicU8; CHUNK],
}

impl Chunk {
    fn cold() -> Box<Self> {
        Box::new(Self {
            places: std::array::from_fn(|_| AtomicU64::new(0)),
            before: std::array::from_fn(|_| AtomicU8::new(0)),
            recent: std::array::from_fn(|_| AtomicU8::new(0)),
        })
    }
}

/// See the module.
pub(super) struct Blocks {
    pub(super) area: Area,
    /// The length of the file.
    pub(super) bytes: u64,
    chunks: Box<[OnceLock<Box<Chunk>>]>,
    /// How many of its blocks have a place.
    placed: AtomicU64,
    /// The file was removed: nothing gets a place any more. Written under the lock of the slabs.
    is_gone: AtomicBool,
    /// All of the file lies in the fast directory: its blocks need no places.
    is_whole: AtomicBool,
}

impl Blocks {
    /// Those of a file of `bytes`, cold and without places.
    pub(super) fn of(area: Area, bytes: u64) -> Self {
        let count = bytes.div_ceil(BEGIN_BYTES * CHUNK as u64);
        Self {
            area,
            bytes,
            chunks: (0..count).map(|_| OnceLock::new()).collect(),
            placed: AtomicU64::new(0),
            is_gone: AtomicBool::new(false),
            is_whole: AtomicBool::new(false),
        }
    }

    /// The number of the block that begins at `offset`, if the file goes so far.
    pub(super) fn index(&self, offset: u64) -> Option<usize> {
        let index = usize::try_from(offset / BEGIN_BYTES).ok()?;
        (offset < self.bytes).then_some(index)
    }

    /// The numbers of all blocks of which anything is known.
    pub(super) fn known(&self) -> impl Iterator<Item = usize> + '_ {
        let chunks = self.chunks.iter().enumerate();
        let known = chunks.filter(|(_, chunk)| chunk.get().is_some());
        known.flat_map(|(number, _)| number * CHUNK..(number + 1) * CHUNK)
    }

    fn known_chunk(&self, index: usize) -> Option<&Chunk> {
        self.chunks.get(index / CHUNK)?.get().map(|it| &**it)
    }

    fn chunk(&self, index: usize) -> &Chunk {
        self.chunks[index / CHUNK].get_or_init(Chunk::cold)
    }

    pub(super) fn place(&self, index: usize) -> Option<Place> {
        let chunk = self.known_chunk(index)?;
        Place::unpack(chunk.places[index % CHUNK].load(SeqCst))
    }

    /// Shows the copy of a block to readers: it is complete.
    pub(super) fn set_place(&self, index: usize, place: Place) {
        self.chunk(index).places[index % CHUNK].store(place.pack(), SeqCst);
        self.placed.fetch_add(1, Relaxed);
    }

    /// Hides the copy of a block, if it has one, from readers that begin now; others see it when they are done.
    pub(super) fn take_place(&self, index: usize) -> Option<Place> {
        let chunk = self.known_chunk(index)?;
        let taken = Place::unpack(chunk.places[index % CHUNK].swap(0, SeqCst))?;
        self.placed.fetch_sub(1, Relaxed);
        Some(taken)
    }

    pub(super) fn placed(&self) -> u64 {
        self.placed.load(Relaxed)
    }

    /// Memory for what is known of its blocks (bytes, about).
    pub(super) fn memory_bytes(&self) -> u64 {
        let chunks = self.chunks.iter().filter(|chunk| chunk.get().is_some());
        (chunks.count() * size_of::<Chunk>() + size_of_val(&*self.chunks)) as u64
    }

    pub(super) fn heat(&self, index: usize) -> u8 {
        let (before, recent) = self.heats(index);
        sum(before, recent)
    }

    /// The heat when it was halved last, and the reads since.
    pub(super) fn heats(&self, index: usize) -> (u8, u8) {
        let Some(chunk) = self.known_chunk(index) else {
            return (0, 0);
        };
        let at = index % CHUNK;
        (
            chunk.before[at].load(Relaxed),
            chunk.recent[at].load(Relaxed),
        )
    }

    /// A read that was slow, or would have been without the copy. Two at once may count as one.
    pub(super) fn warm(&self, index: usize) {
        let recent = &self.chunk(index).recent[index % CHUNK];
        let reads = recent.load(Relaxed);
        if reads < HEAT_MAX {
            recent.store(reads + 1, Relaxed);
        }
    }

    /// Time has passed: the heat is halved.
    pub(super) fn cool(&self) {
        for chunk in self.chunks.iter().filter_map(OnceLock::get) {
            for (before, recent) in chunk.before.iter().zip(&chunk.recent) {
                let heat = sum(before.load(Relaxed), recent.load(Relaxed));
                if heat > 0 {
                    before.store(heat / 2, Relaxed);
                    recent.store(0, Relaxed);
                }
            }
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(SeqCst)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.is_whole.load(Relaxed)
    }

    pub(super) fn set_whole(&self, is_whole: bool) {
        self.is_whole.store(is_whole, Relaxed);
    }

    pub(super) fn set_gone(&self) {
        self.is_gone.store(true, SeqCst);
    }
}
