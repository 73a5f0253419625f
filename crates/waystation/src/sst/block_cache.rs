//! Blocks that were read lately, uncompressed, shared by all tables (and by all databases that share it).
//!
//! Every open table has its cached data blocks in groups of neighbours. So a lookup, which knows the block's position, finds it
//! without hashing and without a lock that others want, and a block that is not cached takes two or three bytes. What the
//! cache itself keeps is the order in which blocks came, to take the oldest when there are too many; one that was used
//! since is passed over once and counts as new (the clock algorithm).
//!
//! A block is kept only if it was missed before, lately: within the last one or two times as many misses as there is
//! room for blocks. So a block that is read once costs neither memory (which is slower to come by than the block, while the
//! cache grows: a page fault takes longer than reading 4 KiB from the page cache) nor an eviction, and does not wash out
//! what is read often. (`TinyLFU` and S3-FIFO do this with sketches and queues of ghosts; here the table remembers, in a
//! byte a block.) Of what a long scan reads only blocks are kept for which none has to go, from the second scan on.
//!
//! ```text
//! table:  groups [ B | B B |  | B |  |  | B ]    missed [ 0 7 7 0 0 6 .. ]
//!                  ^   ^                   ^
//! cache:  ring    oldest ----------------------------------------> newest      (several, one lock each)
//! ```

use crate::background::{Account, Elastic, Use};
use crate::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::sync::{Arc, Mutex, Weak, lock};
use std::collections::VecDeque;
use std::fmt;
use waystation_format::block::Block;

/// So many neighbouring blocks share a lock: a bit each.
const GROUP_BLOCKS: usize = u32::BITS as usize;
/// What a cached block costs beside its bytes, roughly: place in its table and in the ring, reference counts.
const ENTRY_BYTES: usize = 96;
/// How long blocks mostly are.
const USUAL_BYTES: u64 = 4 * 1024;
/// There is a ring for every so many bytes, up to a number that keeps threads out of each other's way.
const RING_BYTES: usize = 1 << 20;
const MAX_RINGS: usize = 16;

/// The cached ones of neighbouring blocks, whose bits are by their positions.
#[derive(Debug, Default)]
struct Group {
    /// Which blocks are cached.
    cached: u32,
    /// Which of these were used since the clock passed.
    used: u32,
    /// The cached blocks, in the order of their positions.
    blocks: Vec<Block>,
}

impl Group {
    /// The bit of the block at `position`, and how many cached ones of the group are before it.
    #[inline]
    fn place(&self, position: usize) -> (u32, usize) {
        let bit = 1 << (position % GROUP_BLOCKS);
        (bit, (self.cached & (bit - 1)).count_ones() as usize)
    }

    /// Whether there is a block for each bit of `cached`, and no other was used.
    fn is_sound(&self) -> bool {
        self.blocks.len() == self.cached.count_ones() as usize && self.used & !self.cached == 0
    }
}

/// Generations are counted up to here, and then anew.
const GENERATIONS: u8 = 255;

/// Places for the data blocks of one table.
pub(super) struct Slots {
    groups: Box<[Mutex<Group>]>,
    /// Of each block, when it was missed last: its ring's generation, from 1 on, modulo [`GENERATIONS`]; 0 if it never was.
    missed: Box<[AtomicU8]>,
    /// The first block's ring; the others follow.
    first_ring: usize,
    /// What cached blocks take, and the database that they are of.
    bytes: AtomicU64,
    account: Arc<Account>,
}

impl Slots {
    /// The block at `position`, if it is cached.
    #[inline]
    pub(super) fn get(&self, position: usize) -> Option<Block> {
        let mut group = lock(self.group(position));
        let (bit, at) = group.place(position);
        if group.cached & bit == 0 {
            return None;
        }
        group.used |= bit;
        Some(group.blocks[at].clone())
    }

    /// Puts `block` into its place, unless another thread read it, too, and was faster.
    fn fill(&self, position: usize, block: &Block) -> bool {
        let mut group = lock(self.group(position));
        let (bit, at) = group.place(position);
        if group.cached & bit > 0 {
            return false;
        }
        group.cached |= bit;
        group.blocks.insert(at, block.clone());
        debug_assert!(group.is_sound());
        true
    }

    /// Takes the block at `position` out, unless it was used since the clock passed.
    fn take_unused(&self, position: usize) -> Unused {
        let mut group = lock(self.group(position));
        let (bit, at) = group.place(position);
        if group.cached & bit == 0 {
            return Unused::Taken(None);
        }
        if group.used & bit > 0 {
            group.used &= !bit;
            return Unused::Used;
        }
        group.cached &= !bit;
        let block = group.blocks.remove(at);
        debug_assert!(group.is_sound());
        Unused::Taken(Some(block))
    }

    /// Notes a miss in `generation`; whether there was one in this generation or the one before.
    fn miss(&self, position: usize, generation: u8) -> bool {
        let before = self.missed[position].swap(generation + 1, Relaxed);
        let previous = generation.checked_sub(1).unwrap_or(GENERATIONS - 1);
        before == generation + 1 || before == previous + 1
    }

    fn group(&self, position: usize) -> &Mutex<Group> {
        &self.groups[position / GROUP_BLOCKS]
    }

    fn note_kept(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.account.add(Use::Cache, bytes);
    }

    fn note_gone(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
        self.account.subtract(Use::Cache, bytes);
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.account.subtract(Use::Cache, self.bytes.load(Relaxed));
    }
}

/// Blocks that were read lately.
pub(crate) struct BlockCache {
    rings: Box<[Mutex<Ring>]>,
    /// What each ring may keep.
    ring_capacity: AtomicU64,
    /// Tables begin with one ring after the other: few blocks of many tables are in all of them.
    next_ring: AtomicUsize,
}

/// Some of the cached blocks, the oldest first.
#[derive(Default)]
struct Ring {
    places: VecDeque<Place>,
    /// Bytes in use, those of tables that were closed since included until the clock finds them.
    bytes: u64,
    /// How often as many blocks were missed as there is room for, and how many since.
    generation: u8,
    misses: u64,
}

/// Where a block is cached.
struct Place {
    slots: Weak<Slots>,
    position: u32,
    bytes: u32,
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache")
            .field("bytes", &self.bytes())
            .field("ring_capacity", &self.ring_capacity())
            .finish_non_exhaustive()
    }
}

impl BlockCache {
    /// A cache of about `capacity_bytes`.
    pub(crate) fn new(capacity_bytes: usize) -> Self {
        let rings = (capacity_bytes / RING_BYTES).clamp(1, MAX_RINGS);
        Self {
            rings: (0..rings).map(|_| Mutex::default()).collect(),
            ring_capacity: AtomicU64::new((capacity_bytes / rings) as u64),
            next_ring: AtomicUsize::new(0),
        }
    }

    /// Places for the `count` blocks of a table of the database that `account` is of.
    pub(super) fn slots(&self, count: usize, account: &Arc<Account>) -> Slots {
        let groups = count.div_ceil(GROUP_BLOCKS);
        Slots {
            groups: (0..groups).map(|_| Mutex::default()).collect(),
            missed: (0..count).map(|_| AtomicU8::new(0)).collect(),
            first_ring: self.next_ring.fetch_add(1, Relaxed),
            bytes: AtomicU64::new(0),
            account: Arc::clone(account),
        }
    }

    fn ring_capacity(&self) -> u64 {
        self.ring_capacity.load(Relaxed)
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> u64 {
        self.rings.iter().map(|ring| lock(ring).bytes).sum()
    }

    /// Whether a block that was missed just now, at `position` of a table, should be kept.
    pub(super) fn admits(&self, slots: &Slots, position: usize) -> bool {
        let generation = {
            let mut ring = lock(self.ring(slots, position));
            ring.misses += 1;
            if ring.misses > (self.ring_capacity() / USUAL_BYTES).max(ring.places.len() as u64) {
                ring.misses = 0;
                ring.generation = (ring.generation + 1) % GENERATIONS;
            }
            ring.generation
        };
        slots.miss(position, generation)
    }

    /// Whether a block that a long scan has read, at `position` of a table, should be kept: there is room for it, and it was
    /// missed before. Scans do not count as misses, so that they do not make the cache forget those of others.
    pub(super) fn admits_from_scan(&self, slots: &Slots, position: usize, block: &Block) -> bool {
        let generation = {
            let ring = lock(self.ring(slots, position));
            if ring.bytes + (block.byte_len() + ENTRY_BYTES) as u64 > self.ring_capacity() {
                return false;
            }
            ring.generation
        };
        slots.miss(position, generation)
    }

    fn ring(&self, slots: &Slots, position: usize) -> &Mutex<Ring> {
        &self.rings[slots.first_ring.wrapping_add(position) % self.rings.len()]
    }

    /// Keeps `block`, which is at `position` of a table, unless it is longer than all that may be kept. Returns
    /// the memory of a block that had to go for it, if any did and no reader uses it.
    pub(super) fn insert(
        &self,
        slots: &Arc<Slots>,
        position: usize,
        block: &Block,
    ) -> Option<Vec<u8>> {
        let bytes = u32::try_from(block.byte_len() + ENTRY_BYTES).ok()?;
        let place = Place {
            slots: Arc::downgrade(slots),
            position: u32::try_from(position).ok()?,
            bytes,
        };
        if u64::from(bytes) > self.ring_capacity() || !slots.fill(position, block) {
            return None;
        }
        slots.note_kept(u64::from(bytes));
        let ring = self.ring(slots, position);
        let memory = self.make_room(ring, u64::from(bytes));
        lock(ring).push(place);
        memory
    }

    /// Takes blocks out of `ring` until there is room for `bytes` more. Returns the memory of the last of them, if no reader
    /// uses it.
    fn make_room(&self, ring: &Mutex<Ring>, bytes: u64) -> Option<Vec<u8>> {
        let (mut memory, mut passed) = (None, None);
        while let Some(oldest) = self.oldest(ring, passed.take(), bytes) {
            match oldest.take_unused() {
                Unused::Used => passed = Some(oldest),
                Unused::Taken(block) => memory = block.and_then(Block::into_bytes),
            }
        }
        memory
    }

    /// Puts the place that was passed over back as the newest; takes the oldest out, unless there is room for
    /// `bytes` more.
    fn oldest(&self, ring: &Mutex<Ring>, passed: Option<Place>, bytes: u64) -> Option<Place> {
        let mut ring = lock(ring);
        if let Some(place) = passed {
            ring.push(place);
        }
        if ring.bytes + bytes <= self.ring_capacity() {
            return None;
        }
        let oldest = ring.places.pop_front()?;
        ring.bytes -= u64::from(oldest.bytes);
        Some(oldest)
    }
}

impl Elastic for BlockCache {
    fn resize(&self, bytes: u64) {
        let ring_bytes = bytes / self.rings.len() as u64;
        if self.ring_capacity.swap(ring_bytes, Relaxed) > ring_bytes {
            for ring in &self.rings {
                self.make_room(ring, 0);
            }
        }
    }
}

impl Ring {
    fn push(&mut self, place: Place) {
        self.bytes += u64::from(place.bytes);
        self.places.push_back(place);
    }
}

enum Unused {
    /// The block was used since the clock passed.
    Used,
    /// It was not, and is gone now (or was, with its table).
    Taken(Option<Block>),
}

impl Place {
    fn take_unused(&self) -> Unused {
        let Some(slots) = self.slots.upgrade() else {
            return Unused::Taken(None);
        };
        let unused = slots.take_unused(self.position as usize);
        if let Unused::Taken(Some(_)) = &unused {
            slots.note_gone(u64::from(self.bytes));
        }
        unused
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use std::path::Path;

    fn account() -> Arc<Account> {
        Account::own(Path::new("/db"))
    }

    fn block(bytes: usize) -> Block {
        Block::new(vec![0; bytes]).unwrap()
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_used_stays() {
        let cache = BlockCache::new(100 * (1000 + ENTRY_BYTES));
        let account = account();
        let slots = Arc::new(cache.slots(10_000, &account));
        for position in 0..10_000 {
            cache.insert(&slots, position, &block(1000));
            assert!(cache.bytes() <= 100 * (1000 + ENTRY_BYTES) as u64);
            assert!(
                slots.get(0).is_some(),
                "used all the time, lost at {position}"
            );
        }
        let kept = (0..10_000).filter(|&i| slots.get(i).is_some()).count();
        assert_eq!(kept, 100);
        assert_eq!(account.bytes(Use::Cache), cache.bytes());
        assert!(slots.get(1).is_none());
        assert_eq!(cache.insert(&slots, 1, &block(1000)).unwrap().len(), 1000);
        cache.resize(cache.bytes() / 2);
        assert_eq!(cache.bytes(), 50 * (1000 + ENTRY_BYTES) as u64);
        assert_eq!(account.bytes(Use::Cache), cache.bytes());
        drop(slots);
        assert_eq!(account.bytes(Use::Cache), 0);
    }

    #[test]
    fn what_was_missed_twice_within_one_or_two_generations_is_kept() {
        let cache = BlockCache::new(100 * USUAL_BYTES as usize);
        let slots = cache.slots(1_000, &account());
        assert!(!cache.admits(&slots, 0) && cache.admits(&slots, 0));
        // For many times as long as generations are counted.
        for turn in 0..300 {
            let others = (1..1_000).filter(|&position| cache.admits(&slots, position));
            assert_eq!(others.count(), 0, "{turn}");
            assert!(
                !cache.admits(&slots, 0) && cache.admits(&slots, 0),
                "{turn}"
            );
        }
    }

    #[test]
    fn a_scan_keeps_what_it_missed_before_where_there_is_room() {
        let cache = BlockCache::new(100 * (1000 + ENTRY_BYTES));
        let slots = Arc::new(cache.slots(10_000, &account()));
        let scan = |first: usize| {
            for position in first..first + 50 {
                if cache.admits_from_scan(&slots, position, &block(1000)) {
                    cache.insert(&slots, position, &block(1000));
                }
            }
            (first..first + 50)
                .filter(|&i| slots.get(i).is_some())
                .count()
        };
        assert_eq!((scan(0), scan(0)), (0, 50));
        assert_eq!((scan(100), scan(100)), (0, 50));
        // It is full: nothing goes for a scan.
        assert_eq!((scan(200), scan(200), scan(200)), (0, 0, 0));
        assert_eq!((scan(0), scan(100)), (50, 50));
    }

    #[test]
    fn blocks_of_closed_tables_make_room() {
        let cache = BlockCache::new(100_000);
        for _ in 0..100 {
            let slots = Arc::new(cache.slots(50, &account()));
            for position in 0..50 {
                cache.insert(&slots, position, &block(1000));
            }
            assert!(slots.get(49).is_some());
        }
        assert!(cache.bytes() <= 100_000);
    }

    #[test]
    fn a_block_is_kept_once_and_never_one_too_long() {
        let cache = BlockCache::new(10_000);
        let slots = Arc::new(cache.slots(2, &account()));
        cache.insert(&slots, 0, &block(1000));
        cache.insert(&slots, 0, &block(1000));
        assert_eq!(cache.bytes(), (1000 + ENTRY_BYTES) as u64);
        cache.insert(&slots, 1, &block(10_000));
        assert!(slots.get(1).is_none());
        BlockCache::new(0).insert(&slots, 1, &block(4));
        assert!(slots.get(1).is_none());
    }

    #[test]
    fn threads_share_it() {
        let cache = BlockCache::new(50_000);
        let slots = Arc::new(cache.slots(200, &account()));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (cache, slots) = (&cache, &slots);
                scope.spawn(move || {
                    for i in 0..5_000 {
                        let position = (i * 7 + thread * 13) % 200;
                        match slots.get(position) {
                            Some(block) => assert_eq!(block.byte_len(), 1000 + position),
                            None => drop(cache.insert(slots, position, &block(1000 + position))),
                        }
                    }
                });
            }
        });
        let kept: usize = (0..200)
            .filter_map(|i| slots.get(i))
            .map(|block| block.byte_len() + ENTRY_BYTES)
            .sum();
        assert_eq!(cache.bytes(), kept as u64);
        assert!(kept <= 50_000);
    }
}
