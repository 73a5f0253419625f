//! The places of the fast tier: one file, `SLABS`, and what lies where in it.
//!
//! ```text
//!   slab 0 (4608 bytes a place)     slab 1 (1024)      slab 2 (4608)
//!   [block][block]...[block]        [b][b]...[b]       [block]...
//! ```
//!
//! A *slab* has 64 KiB and places of one size, so that a block takes about the bytes that it has, and no more (the slab
//! allocator of Bonwick, USENIX 1994). Slabs are begun as they are needed, and go from one size to another when the load does.
//!
//! The file is made anew at each opening. What lies where is in memory alone, with checksums.

use super::blocks::Blocks;
use super::tier::lock;
use crate::error::{Error, Result};
use crate::storage::{Area, File, OpenMode, Storage, Transfer};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use waystation_format::checksum::crc32c;

/// The longest block that has a copy: a longer read is a merge's or a scan's, which come once.
pub(super) const BLOCK_BYTES_MAX: usize = SLAB_BYTES;
const SLAB_BYTES: usize = 64 << 10;
/// Sizes of places are multiples of this, and of an eighth of the next power of two.
const UNIT_BYTES: usize = 512;
/// The smallest place.
const PLACE_BYTES_MIN: usize = 1 << 10;
/// The name of the file.
const SLABS_NAME: &str = "SLABS";

/// Where the copy of a block lies, and how many copies were made before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    slab: u32,
    item: u8,
    /// Of 24 bits, never 0.
    generation: u32,
}

impl Place {
    const GENERATIONS: u32 = (1 << 24) - 1;

    /// Never 0, which means no place.
    pub(super) fn pack(self) -> u64 {
        u64::from(self.slab) << 32 | u64::from(self.item) << 24 | u64::from(self.generation)
    }

    pub(super) fn unpack(word: u64) -> Option<Self> {
        let generation = (word as u32) & Self::GENERATIONS;
        (generation != 0).then_some(Self {
            slab: (word >> 32) as u32,
            item: (word >> 24) as u8,
            generation,
        })
    }
}

/// A place that nothing has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    slab: u32,
    item: u8,
}

/// A block that has a place.
type Owner = (Arc<Blocks>, usize);

/// What lies in one place.
#[derive(Debug, Default)]
struct Item {
    /// Where the block begins in its file, and its length.
    start: AtomicU64,
    length: AtomicU32,
    sum: AtomicU32,
}

/// A slab as readers see it.
struct Slab {
    place_bytes: usize,
    items: Box<[Item]>,
}

/// What is free, and what has which place.
#[derive(Default)]
struct State {
    /// Slabs that were begun: the first ones of the file.
    begun: u32,
    /// There may be so many.
    limit: u32,
    free: HashMap<usize, Vec<Room>>,
    /// By slab and item.
    owners: Vec<Vec<Option<Owner>>>,
    placed: u64,
    placed_bytes: u64,
}

/// See the module.
pub(super) struct Slabs {
    path: PathBuf,
    file: RwLock<Option<Arc<dyn File>>>,
    readable: Box<[RwLock<Option<Arc<Slab>>>]>,
    state: Mutex<State>,
    /// How often a place was given away.
    generation: AtomicU32,
}

/// The size of the place for a block of `length` bytes.
pub(super) fn place_bytes(length: usize) -> usize {
    let length = length.max(PLACE_BYTES_MIN);
    let step = (length.next_power_of_two() / 16).max(UNIT_BYTES);
    length.next_multiple_of(step)
}

/// How many slabs `bytes` have room for.
fn slabs_in(bytes: u64) -> u32 {
    u32::try_from(bytes / SLAB_BYTES as u64).unwrap_or(u32::MAX)
}

impl Slabs {
    /// Up to `capacity_bytes` in the directory `dir`; there is no file yet.
    pub(super) fn new(dir: &Path, capacity_bytes: u64) -> Self {
        let slabs = (0..slabs_in(capacity_bytes)).map(|_| RwLock::new(None));
        Self {
            path: dir.join(SLABS_NAME),
            file: RwLock::new(None),
            readable: slabs.collect(),
            state: Mutex::default(),
            generation: AtomicU32::new(0),
        }
    }

    /// Begins with an empty file, in which `room` bytes may lie.
    pub(super) fn begin(&self, storage: &dyn Storage, room: u64) -> Result<()> {
        let file = storage.open(
            &self.path,
            OpenMode::Create,
            Transfer::Buffered,
            Area::Tables,
        )?;
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = Some(file);
        self.set_limit(room);
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

    /// Lets `room` bytes lie in the file, or as many as do now.
    pub(super) fn set_limit(&self, room: u64) {
        let most = u32::try_from(self.readable.len()).unwrap_or(u32::MAX);
        let mut state = lock(&self.state);
        state.limit = slabs_in(room).clamp(state.begun, most.max(state.begun));
    }

    /// Lets nothing more lie in the file than the slabs that were begun.
    pub(super) fn stop_growing(&self) {
        let mut state = lock(&self.state);
        state.limit = state.begun;
    }

    /// How many bytes may lie in the file.
    pub(super) fn limit_bytes(&self) -> u64 {
        u64::from(lock(&self.state).limit) * SLAB_BYTES as u64
    }

    /// How many blocks have a place, and the bytes of these places.
    pub(super) fn placed(&self) -> (u64, u64) {
        let state = lock(&self.state);
        (state.placed, state.placed_bytes)
    }

    /// Whether slabs can be begun.
    pub(super) fn has_free(&self) -> bool {
        let state = lock(&self.state);
        state.begun < state.limit
    }

    fn file(&self) -> Option<Arc<dyn File>> {
        let file = self.file.read();
        file.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn slab(&self, number: u32) -> Option<Arc<Slab>> {
        let slab = self.readable.get(number as usize)?.read();
        slab.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A place of `place_bytes` that nothing has, if there is one.
    pub(super) fn take_room(&self, place_bytes: usize) -> Option<Room> {
        let mut state = lock(&self.state);
        if let Some(room) = state.free.get_mut(&place_bytes).and_then(Vec::pop) {
            return Some(room);
        }
        if state.begun == state.limit {
            return None;
        }
        let slab = state.begun;
        state.begun += 1;
        self.divide(&mut state, slab, place_bytes);
        state.free.get_mut(&place_bytes).and_then(Vec::pop)
    }

    /// Makes places of `place_bytes` of a slab in which nothing lies.
    fn divide(&self, state: &mut State, slab: u32, place_bytes: usize) {
        let count = SLAB_BYTES / place_bytes;
        let items = (0..count).map(|_| Item::default());
        let made = Arc::new(Slab {
            place_bytes,
            items: items.collect(),
        });
        if let Some(known) = self.readable.get(slab as usize) {
            *known.write().unwrap_or_else(PoisonError::into_inner) = Some(made);
        }
        let number = slab as usize;
        if state.owners.len() <= number {
            state.owners.resize_with(number + 1, Vec::new);
        }
        state.owners[number] = vec![None; count];
        // The first place is taken first.
        let items = (0..u8::try_from(count).unwrap_or(u8::MAX)).rev();
        let rooms = items.map(|item| Room { slab, item });
        state.free.entry(place_bytes).or_default().extend(rooms);
    }

    /// Gives a place back that was taken, and in which nothing is shown to readers.
    pub(super) fn give_back(&self, room: Room) {
        let place_bytes = self.slab(room.slab).map(|it| it.place_bytes);
        let mut state = lock(&self.state);
        if let Some(place_bytes) = place_bytes {
            state.free.entry(place_bytes).or_default().push(room);
        }
    }

    /// Writes `content`, which begins at `start` of its file, to `room`, and shows it to readers as the copy of block `index`.
    /// On a failure no block has the place.
    pub(super) fn fill(
        &self,
        room: Room,
        (start, content): (u64, &[u8]),
        (blocks, index): (&Arc<Blocks>, usize),
    ) -> Result<()> {
        let closed = Error::Closed("the fast tier is closed");
        let (Some(file), Some(slab)) = (self.file(), self.slab(room.slab)) else {
            return Err(closed);
        };
        let item = &slab.items[usize::from(room.item)];
        let generation = self.generation.fetch_add(1, Relaxed) % Place::GENERATIONS + 1;
        item.start.store(start, Relaxed);
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        item.length.store(length, Relaxed);
        item.sum.store(crc32c(content), SeqCst);
        file.write_at(content, offset_of(room, slab.place_bytes))?;
        let mut state = lock(&self.state);
        if blocks.is_gone() || blocks.place(index).is_some() {
            state.free.entry(slab.place_bytes).or_default().push(room);
            return Ok(());
        }
        let owner = Some((Arc::clone(blocks), index));
        state.owners[room.slab as usize][usize::from(room.item)] = owner;
        state.placed += 1;
        state.placed_bytes += slab.place_bytes as u64;
        blocks.set_place(
            index,
            Place {
                slab: room.slab,
                item: room.item,
                generation,
            },
        );
        Ok(())
    }

    /// Reads a part of a block into `buffer`: what lies at `offset` of the file. `None`: that part does not lie there.
    /// `false`: what lies there is not what was put there.
    pub(super) fn read(
        &self,
        place: Place,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<Option<bool>> {
        let (Some(file), Some(slab)) = (self.file(), self.slab(place.slab)) else {
            return Ok(None);
        };
        let Some(item) = slab.items.get(usize::from(place.item)) else {
            return Ok(None);
        };
        // Only a block that was put there as it is read now: the checksum is of all of it.
        let length = item.length.load(Relaxed) as usize;
        if item.start.load(Relaxed) != offset || length != buffer.len() {
            return Ok(None);
        }
        let sum = item.sum.load(SeqCst);
        let room = Room {
            slab: place.slab,
            item: place.item,
        };
        let read = file.read_at(buffer, offset_of(room, slab.place_bytes))?;
        Ok(Some(read == buffer.len() && crc32c(buffer) == sum))
    }

    /// The size of the place.
    pub(super) fn bytes_of(&self, place: Place) -> usize {
        self.slab(place.slab).map_or(0, |it| it.place_bytes)
    }

    /// Takes its place from block `index`, to be given to another one: nothing has it then.
    pub(super) fn evict(&self, blocks: &Blocks, index: usize) -> Option<Room> {
        let mut state = lock(&self.state);
        self.take_from(&mut state, blocks, index)
    }

    fn take_from(&self, state: &mut State, blocks: &Blocks, index: usize) -> Option<Room> {
        let place = blocks.take_place(index)?;
        let owners = state.owners.get_mut(place.slab as usize);
        if let Some(owner) = owners.and_then(|it| it.get_mut(usize::from(place.item))) {
            *owner = None;
        }
        state.placed -= 1;
        state.placed_bytes -= self.bytes_of(place) as u64;
        Some(Room {
            slab: place.slab,
            item: place.item,
        })
    }

    /// Takes all places of a file that goes.
    pub(super) fn release(&self, blocks: &Blocks) {
        let mut state = lock(&self.state);
        blocks.set_gone();
        for index in blocks.known() {
            if let Some(place) = blocks.place(index)
                && let Some(room) = self.take_from(&mut state, blocks, index)
            {
                let place_bytes = self.bytes_of(place);
                state.free.entry(place_bytes).or_default().push(room);
            }
        }
    }

    /// Makes places of `place_bytes` of the slab in which block `index` lies: all blocks there lose their places.
    pub(super) fn convert(&self, (blocks, index): (&Blocks, usize), place_bytes: usize) {
        let mut state = lock(&self.state);
        let Some(place) = blocks.place(index) else {
            return;
        };
        let owners = state.owners.get_mut(place.slab as usize);
        let owners = owners.map(std::mem::take).unwrap_or_default();
        for (blocks, index) in owners.into_iter().flatten() {
            self.take_from(&mut state, &blocks, index);
        }
        let old_bytes = self.bytes_of(place);
        if let Some(free) = state.free.get_mut(&old_bytes) {
            free.retain(|room| room.slab != place.slab);
        }
        self.divide(&mut state, place.slab, place_bytes);
    }

    /// Takes all places away, so that nothing is read from the file any more.
    pub(super) fn clear(&self) {
        let mut state = lock(&self.state);
        for (blocks, index) in state.owners.drain(..).flatten().flatten() {
            blocks.take_place(index);
        }
        *state = State::default();
    }
}

fn offset_of(room: Room, place_bytes: usize) -> u64 {
    u64::from(room.slab) * SLAB_BYTES as u64 + u64::from(room.item) * place_bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_little_longer_than_blocks() {
        for length in 1..=BLOCK_BYTES_MAX {
            let place = place_bytes(length);
            assert!(place >= length && place <= SLAB_BYTES, "{length}: {place}");
            let waste = place - length;
            assert!(
                waste < UNIT_BYTES || waste * 8 <= length || length < PLACE_BYTES_MIN,
                "{length}"
            );
        }
        assert_eq!(place_bytes(4_101), 4_608);
        assert!(u8::try_from(SLAB_BYTES / PLACE_BYTES_MIN).is_ok());
    }

    #[test]
    fn a_place_is_a_word_that_is_not_nothing() {
        let place = Place {
            slab: u32::MAX,
            item: 255,
            generation: Place::GENERATIONS,
        };
        assert_eq!(Place::unpack(place.pack()), Some(place));
        assert_eq!(Place::unpack(0), None);
    }
}
