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
use crate::error::{Error, Result};
use crate::storage::{Area, File, OpenMode, Storage, Transfer};
use crate::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use crate::sync::{Arc, Mutex, RwLock, lock};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use waystation_format::checksum::crc32c;

/// The longest block that has a copy: a longer read is a merge's or a scan's, which come once.
pub(super) const BLOCK_BYTES_MAX: usize = SLAB_BYTES;
const SLAB_BYTES: usize = 64 << 10;
/// Sizes of places are multiples of this, and of an eighth of the next power of two.
const UNIT_BYTES: usize = 512;
/// The smallest place.
const PLACE_BYTES_MIN: usize = 1 << 10;
const NO_PANIC: &str = "no thread panics with this lock held";
/// The name of the file.
const SLABS_NAME: &str = "SLABS";

/// A place that nothing has, or is about to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    slab: u32,
    item: u8,
}

/// Where the copy of a block lies, and how many copies were made before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    room: Room,
    /// Of 24 bits, never 0.
    generation: u32,
}

impl Place {
    const GENERATIONS: u32 = (1 << 24) - 1;

    /// The number of its slab.
    pub(super) fn slab(self) -> usize {
        self.room.slab as usize
    }

    /// Never 0, which means no place.
    pub(super) fn pack(self) -> u64 {
        let Room { slab, item } = self.room;
        u64::from(slab) << 32 | u64::from(item) << 24 | u64::from(self.generation)
    }

    pub(super) fn unpack(word: u64) -> Option<Self> {
        let generation = (word as u32) & Self::GENERATIONS;
        let room = Room {
            slab: (word >> 32) as u32,
            item: (word >> 24) as u8,
        };
        (generation != 0).then_some(Self { room, generation })
    }
}

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
    file: Arc<dyn File>,
    place_bytes: usize,
    items: Box<[Item]>,
}

impl Slab {
    fn offset_of(&self, room: Room) -> u64 {
        u64::from(room.slab) * SLAB_BYTES as u64 + u64::from(room.item) * self.place_bytes as u64
    }
}

/// A slab as the background sees it.
struct Lot {
    place_bytes: usize,
    /// The block in each place.
    owners: Vec<Option<(Arc<Blocks>, usize)>>,
}

/// What is free, and what has which place.
#[derive(Default)]
struct State {
    /// While the tier works.
    file: Option<Arc<dyn File>>,
    /// The device has room for so many slabs.
    room: usize,
    /// The slabs that were begun, which are the first ones of the file.
    lots: Vec<Lot>,
    free: HashMap<usize, Vec<Room>>,
    placed: u64,
    placed_bytes: u64,
}

impl State {
    fn set_free(&mut self, room: Room) {
        if let Some(lot) = self.lots.get(room.slab as usize) {
            self.free.entry(lot.place_bytes).or_default().push(room);
        }
    }

    /// Takes its place from block `index`.
    fn take_from(&mut self, blocks: &Blocks, index: usize) -> Option<Room> {
        let room = blocks.take_place(index)?.room;
        if let Some(lot) = self.lots.get_mut(room.slab as usize) {
            lot.owners[usize::from(room.item)] = None;
            self.placed -= 1;
            self.placed_bytes -= lot.place_bytes as u64;
        }
        Some(room)
    }
}

/// See the module.
pub(super) struct Slabs {
    path: PathBuf,
    /// The most bytes that may lie in the file.
    capacity_bytes: u64,
    /// As `State::lots`. Held for no longer than a look.
    readable: RwLock<Vec<Arc<Slab>>>,
    state: Mutex<State>,
    /// How often a place was given away.
    generation: AtomicU32,
    /// What of the capacity something else has.
    reserved_bytes: AtomicU64,
}

/// The size of the place for a block of `length` bytes.
pub(super) fn place_bytes(length: usize) -> usize {
    let length = length.max(PLACE_BYTES_MIN);
    let step = (length.next_power_of_two() / 16).max(UNIT_BYTES);
    length.next_multiple_of(step)
}

/// How many slabs `bytes` have room for.
fn slabs_in(bytes: u64) -> usize {
    let slabs = u32::try_from(bytes / SLAB_BYTES as u64);
    slabs.unwrap_or(u32::MAX) as usize
}

/// Cuts `file` to so many slabs, if it is longer.
fn cut(file: &dyn File, slabs: usize) -> Result<()> {
    let bytes = (slabs * SLAB_BYTES) as u64;
    if file.size()? > bytes {
        file.truncate(bytes)?;
    }
    Ok(())
}

impl Slabs {
    /// Up to `capacity_bytes` in the directory `dir`; there is no file yet.
    pub(super) fn new(dir: &Path, capacity_bytes: u64) -> Self {
        Self {
            path: dir.join(SLABS_NAME),
            capacity_bytes,
            readable: RwLock::new(Vec::new()),
            state: Mutex::default(),
            generation: AtomicU32::new(0),
            reserved_bytes: AtomicU64::new(0),
        }
    }

    /// Begins with an empty file, in which `room` bytes may lie.
    pub(super) fn begin(&self, storage: &dyn Storage, room: u64) -> Result<()> {
        let (mode, transfer) = (OpenMode::Create, Transfer::Buffered);
        let file = storage.open(&self.path, mode, transfer, Area::Copies)?;
        let mut state = lock(&self.state);
        state.file = Some(file);
        state.room = slabs_in(room);
        Ok(())
    }

    /// Takes all places away, so that nothing is read from the file any more.
    pub(super) fn clear(&self) {
        let mut state = lock(&self.state);
        for (blocks, index) in state.lots.drain(..).flat_map(|lot| lot.owners).flatten() {
            blocks.take_place(index);
        }
        *state = State::default();
        self.readable.write().expect(NO_PANIC).clear();
    }

    /// The same, and removes the file if that works.
    pub(super) fn end(&self, storage: &dyn Storage) {
        let was_begun = lock(&self.state).file.is_some();
        self.clear();
        if was_begun && let Err(error) = storage.remove(&self.path) {
            log::info!("the file of the fast tier stays: {error}");
        }
    }

    /// Lets the file grow as far as it may, again.
    pub(super) fn grow_again(&self) {
        lock(&self.state).room = usize::MAX;
    }

    /// Lets nothing more lie in the file than the slabs that were begun.
    pub(super) fn stop_growing(&self) {
        let mut state = lock(&self.state);
        state.room = state.lots.len();
    }

    /// Leaves `bytes` of the capacity to something else. Returns whether no slab lies beyond the rest; none is begun there from
    /// now on, and [`shrink`](Self::shrink) takes the ones that do.
    pub(super) fn reserve(&self, bytes: u64) -> bool {
        let state = lock(&self.state);
        self.reserved_bytes.store(bytes, SeqCst);
        state.lots.len() <= self.limit(&state)
    }

    /// Gives up the slabs that lie beyond what is left to them: their blocks lose their places. Only the thread that fills places
    /// calls this, so no place goes while it is filled.
    pub(super) fn shrink(&self) {
        let mut state = lock(&self.state);
        let limit = self.limit(&state);
        if state.lots.len() <= limit {
            return;
        }
        let beyond: Vec<_> = state.lots[limit..]
            .iter()
            .flat_map(|lot| lot.owners.iter().flatten().cloned())
            .collect();
        for (blocks, index) in beyond {
            state.take_from(&blocks, index);
        }
        state.lots.truncate(limit);
        self.readable.write().expect(NO_PANIC).truncate(limit);
        for free in state.free.values_mut() {
            free.retain(|room| (room.slab as usize) < limit);
        }
        let file = state.file.clone();
        drop(state);
        // What stays of the file takes room, and nothing else.
        if let Some(file) = file
            && let Err(error) = cut(&*file, limit)
        {
            log::info!("the file of the fast tier stays as long as it is: {error}");
        }
    }

    /// There may be so many slabs.
    fn limit(&self, state: &State) -> usize {
        let own = self
            .capacity_bytes
            .saturating_sub(self.reserved_bytes.load(SeqCst));
        state.room.min(slabs_in(own))
    }

    /// How many bytes may lie in the file.
    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit(&lock(&self.state)) as u64 * SLAB_BYTES as u64
    }

    /// What of the capacity the device has room for, with what something else has of it.
    pub(super) fn usable_bytes(&self) -> u64 {
        let room = lock(&self.state).room as u64;
        let others = self.reserved_bytes.load(SeqCst);
        let bytes = room.saturating_mul(SLAB_BYTES as u64);
        bytes.saturating_add(others).min(self.capacity_bytes)
    }

    /// How many blocks have a place, and the bytes of these places.
    pub(super) fn placed(&self) -> (u64, u64) {
        let state = lock(&self.state);
        (state.placed, state.placed_bytes)
    }

    /// Whether slabs can be begun.
    pub(super) fn has_free(&self) -> bool {
        let state = lock(&self.state);
        state.lots.len() < self.limit(&state)
    }

    /// The sizes of the places of each slab.
    pub(super) fn sizes(&self) -> Vec<usize> {
        let state = lock(&self.state);
        state.lots.iter().map(|lot| lot.place_bytes).collect()
    }

    /// Memory for what is known of places (bytes, about).
    pub(super) fn memory_bytes(&self) -> u64 {
        let of_item = size_of::<Item>() + size_of::<Option<(Arc<Blocks>, usize)>>();
        let state = lock(&self.state);
        let items: usize = state.lots.iter().map(|lot| lot.owners.len()).sum();
        (items * of_item) as u64
    }

    fn slab(&self, number: u32) -> Option<Arc<Slab>> {
        let slabs = self.readable.read().expect(NO_PANIC);
        slabs.get(number as usize).cloned()
    }

    /// A place of `place_bytes` that nothing has, if there is one.
    pub(super) fn take_room(&self, place_bytes: usize) -> Option<Room> {
        let mut state = lock(&self.state);
        if let Some(room) = state.free.get_mut(&place_bytes).and_then(Vec::pop) {
            return Some(room);
        }
        if state.lots.len() >= self.limit(&state) {
            return None;
        }
        let number = state.lots.len();
        self.divide(&mut state, number, place_bytes)?;
        state.free.get_mut(&place_bytes).and_then(Vec::pop)
    }

    /// Makes places of `place_bytes` of slab `number`, in which nothing lies: the next one, or one that was begun.
    fn divide(&self, state: &mut State, number: usize, place_bytes: usize) -> Option<()> {
        let file = Arc::clone(state.file.as_ref()?);
        let count = SLAB_BYTES / place_bytes;
        let slab = Arc::new(Slab {
            file,
            place_bytes,
            items: (0..count).map(|_| Item::default()).collect(),
        });
        let lot = Lot {
            place_bytes,
            owners: vec![None; count],
        };
        let mut readable = self.readable.write().expect(NO_PANIC);
        if number == state.lots.len() {
            state.lots.push(lot);
            readable.push(slab);
        } else {
            state.lots[number] = lot;
            readable[number] = slab;
        }
        drop(readable);
        let slab = u32::try_from(number).ok()?;
        // The first place is taken first.
        let items = (0..u8::try_from(count).ok()?).rev();
        let rooms = items.map(|item| Room { slab, item });
        state.free.entry(place_bytes).or_default().extend(rooms);
        Some(())
    }

    /// Gives a place back that was taken, and in which nothing is shown to readers.
    pub(super) fn give_back(&self, room: Room) {
        lock(&self.state).set_free(room);
    }

    /// Writes `content`, which begins at `start` of its file, to `room`, and shows it to readers as the copy of block `index`.
    /// On a failure no block has the place.
    pub(super) fn fill(
        &self,
        room: Room,
        (start, content): (u64, &[u8]),
        (blocks, index): (&Arc<Blocks>, usize),
    ) -> Result<()> {
        let slab = self.slab(room.slab);
        let slab = slab.ok_or(Error::Closed("the fast tier is closed"))?;
        let item = &slab.items[usize::from(room.item)];
        let generation = self.generation.fetch_add(1, Relaxed) % Place::GENERATIONS + 1;
        item.start.store(start, Relaxed);
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        item.length.store(length, Relaxed);
        item.sum.store(crc32c(content), SeqCst);
        slab.file.write_at(content, slab.offset_of(room))?;
        let mut state = lock(&self.state);
        if blocks.is_gone() || blocks.place(index).is_some() {
            state.set_free(room);
            return Ok(());
        }
        let owner = Some((Arc::clone(blocks), index));
        state.lots[room.slab as usize].owners[usize::from(room.item)] = owner;
        state.placed += 1;
        state.placed_bytes += slab.place_bytes as u64;
        blocks.set_place(index, Place { room, generation });
        Ok(())
    }

    /// Reads the block that begins at `offset` of its file into `buffer`. `None`: what lies there begins elsewhere or has
    /// another length. `false`: it is not what was put there.
    pub(super) fn read(
        &self,
        place: Place,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<Option<bool>> {
        let room = place.room;
        let Some(slab) = self.slab(room.slab) else {
            return Ok(None);
        };
        let Some(item) = slab.items.get(usize::from(room.item)) else {
            return Ok(None);
        };
        let length = item.length.load(Relaxed) as usize;
        if item.start.load(Relaxed) != offset || length != buffer.len() {
            return Ok(None);
        }
        let sum = item.sum.load(SeqCst);
        let read = slab.file.read_at(buffer, slab.offset_of(room))?;
        Ok(Some(read == buffer.len() && crc32c(buffer) == sum))
    }

    /// Takes its place from block `index`, to be given to another one: nothing has it then.
    pub(super) fn evict(&self, blocks: &Blocks, index: usize) -> Option<Room> {
        lock(&self.state).take_from(blocks, index)
    }

    /// Takes `place` from block `index`, if it has that one still, and uses it no more. Returns whether it did.
    pub(super) fn discard(&self, blocks: &Blocks, index: usize, place: Place) -> bool {
        let mut state = lock(&self.state);
        blocks.place(index) == Some(place) && state.take_from(blocks, index).is_some()
    }

    /// Takes all places of a file that goes.
    pub(super) fn release(&self, blocks: &Blocks) {
        let mut state = lock(&self.state);
        blocks.set_gone();
        for index in blocks.known() {
            if let Some(room) = state.take_from(blocks, index) {
                state.set_free(room);
            }
        }
    }

    /// Makes places of `place_bytes` of the slab in which block `index` lies: all blocks there lose their places.
    pub(super) fn convert(&self, (blocks, index): (&Blocks, usize), place_bytes: usize) {
        let mut state = lock(&self.state);
        let Some(Place { room, .. }) = blocks.place(index) else {
            return;
        };
        let lot = &mut state.lots[room.slab as usize];
        let (old_bytes, owners) = (lot.place_bytes, lot.owners.clone());
        for (blocks, index) in owners.into_iter().flatten() {
            state.take_from(&blocks, index);
        }
        if let Some(free) = state.free.get_mut(&old_bytes) {
            free.retain(|free| free.slab != room.slab);
        }
        let number = room.slab as usize;
        self.divide(&mut state, number, place_bytes);
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
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
            room: Room {
                slab: u32::MAX,
                item: 255,
            },
            generation: Place::GENERATIONS,
        };
        assert_eq!(Place::unpack(place.pack()), Some(place));
        assert_eq!(Place::unpack(0), None);
    }
}
