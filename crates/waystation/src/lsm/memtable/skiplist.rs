//! A sorted list with towers: inserted into by many threads at once, read by any number without waiting.
//!
//! A node is linked bottom-up, level by level, each with one compare-and-swap of its predecessor's link; it
//! is in the list from the moment level 0 holds it. Upper levels are shortcuts: to be late there costs
//! steps, not correctness. Nothing is ever removed. (After Pugh's skip lists, as LevelDB, RocksDB and Pebble
//! use them.)
//!
//! Three things of our own choice:
//! - **The finger.** For each level the list remembers the node last linked there. An insertion first tries
//!   whether that node and its successor enclose the new key; keys that arrive in order are placed in
//!   constant time, from one thread or several. A finger is any node of its level: it is never trusted,
//!   only checked, so plain stores keep it.
//! - **Back links are hints.** `back` of a node is some earlier node of the list, stored after linking without
//!   any race being settled; the true predecessor is found by walking `next` from there. So going back costs
//!   about one step too many per race ever lost at that place, and insertion one store.
//! - **Height from the entry.** A tower's height is drawn from a hash of sequence and key: no shared generator,
//!   no thread-local, and the same writes build the same list. (Heights counted out in turn would let writers
//!   that take turns put all tall towers into one key range.)
//!
//! Invariants:
//! - on each level, following links from [`HEAD`] meets keys in strictly ascending order;
//! - a node linked on a level is linked on all lower ones;
//! - `finger[level]` is [`HEAD`] or linked on `level`;
//! - `back` of a linked node is [`HEAD`] or a linked node before it;
//! - the bytes claimed never exceed the sum of [`SkipList::entry_bytes`] over the entries by more than the
//!   reserve for tall towers, which is part of the region. So a writer that adds up `entry_bytes` never overflows.

use super::arena::{
    Arena, Entry, FIRST_FREE, HEAD, HEADER_BYTES, LINK_BYTES, MAX_HEIGHT, NIL, NODE_ALIGNMENT, Node,
};
use super::region::Regions;
use super::target::{PlacedTarget, Sought, Target, place_of};
use crate::sync::atomic::AtomicU64;
#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use waystation_format::key::TRAILER_BYTES;
use waystation_format::order::Order;

/// A tower up to here is part of what every entry pays for; more is taken from the reserve.
const PAID_HEIGHT: usize = 2;

/// One part in so many of the capacity is added as the reserve for towers above [`PAID_HEIGHT`]. They take
/// 4 bytes * sum of (h - 2) * P(h) = 1/3 byte per entry, and an entry has at least 28 bytes: 1 in 84.
const RESERVE_DIVISOR: usize = 64;

/// How many levels the finger is tried on before the search starts from the head: with several threads
/// inserting in order, the neighbours of a key are a few places from where the last one went.
const FINGER_LEVELS: usize = if MAX_HEIGHT < 4 { MAX_HEIGHT } else { 4 };

/// Bits of [`Growth::claimed`] that count bytes; the rest counts entries. A region has less than 2^32 bytes and
/// an entry more than 16, so neither overflows before a claim that does not fit is refused.
const CLAIMED_BITS: u32 = 36;

/// What insertions share, apart from the links: in cache lines that readers never touch.
#[repr(align(128))]
struct Growth {
    /// Bytes cut from the region so far, and entries, in one word: see [`CLAIMED_BITS`].
    claimed: AtomicU64,
    /// Bytes taken from the reserve for tall towers.
    reserve_taken: AtomicU32,
    /// The finger of each level.
    finger: [AtomicU32; MAX_HEIGHT],
}

/// Where a node goes on one level: between these two.
#[derive(Clone, Copy)]
struct Gap {
    before: Node,
    after: Node,
}

/// Where a search begins that knows nothing: the whole of the top level.
const TOP: (usize, Gap) = (
    MAX_HEIGHT - 1,
    Gap {
        before: HEAD,
        after: NIL,
    },
);

/// The sorted list.
pub(super) struct SkipList {
    arena: Arena,
    capacity: usize,
    reserve: usize,
    order: Order,
    growth: Growth,
}

impl SkipList {
    /// An empty list in `order` that takes entries whose `entry_bytes` add up to `capacity`.
    pub(super) fn new(capacity: usize, regions: &Arc<Regions>, order: &Order) -> Self {
        let reserve = capacity / RESERVE_DIVISOR;
        Self {
            arena: Arena::new(FIRST_FREE + capacity + reserve, regions),
            capacity,
            reserve,
            order: order.clone(),
            growth: Growth {
                claimed: AtomicU64::new(0),
                reserve_taken: AtomicU32::new(0),
                finger: std::array::from_fn(|_| AtomicU32::new(HEAD.to_raw())),
            },
        }
    }

    /// The most bytes an entry takes, the reserve aside.
    pub(super) const fn entry_bytes(key_bytes: usize, value_bytes: usize) -> usize {
        let payload = key_bytes + TRAILER_BYTES + value_bytes;
        (LINK_BYTES * (PAID_HEIGHT - 1) + HEADER_BYTES + payload).next_multiple_of(NODE_ALIGNMENT)
    }

    /// The order of user keys.
    #[inline]
    pub(super) fn order(&self) -> &Order {
        &self.order
    }

    /// What the list was made for.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes taken by the entries inserted, or just being inserted.
    pub(super) fn claimed_bytes(&self) -> usize {
        (self.growth.claimed.load(Relaxed) & ((1 << CLAIMED_BITS) - 1)) as usize
    }

    /// Gives back the memory behind entries that reserved `reserved` bytes together: all that were or are being inserted. No
    /// thread may reserve more meanwhile.
    #[expect(unsafe_code, reason = "takes memory from the region")]
    pub(super) fn give_back_behind(&self, reserved: usize) {
        let reach = reserved + self.reserve;
        let claimed = self.claimed_bytes();
        assert!(
            claimed <= reach,
            "{claimed} bytes are taken, {reserved} were reserved"
        );
        // SAFETY: an entry claims what it reserved, and a part of the reserve if it is tall. Writers reserve before they
        // claim, and none reserves now: no claim passes `reach`.
        unsafe { self.arena.give_back_from(FIRST_FREE + reach) };
    }

    /// How much memory it takes.
    #[cfg(all(test, target_os = "linux", not(any(miri, loom, shuttle))))]
    pub(super) fn resident_bytes(&self) -> usize {
        self.arena.resident_bytes()
    }

    /// Entries inserted, or just being inserted.
    pub(super) fn len(&self) -> usize {
        (self.growth.claimed.load(Relaxed) >> CLAIMED_BITS) as usize
    }

    /// The first node, or [`NIL`]. Touches nothing that insertions share but the head.
    #[inline]
    pub(super) fn first(&self) -> Node {
        self.next_on(HEAD, 0)
    }

    /// Puts an entry into the list. No entry of the same key and trailer is in it.
    pub(super) fn insert(&self, entry: &Entry<'_>) -> Node {
        self.insert_with_height(entry, height_of(entry))
    }

    /// Puts an entry into the list, with a tower of `height` levels if the reserve allows.
    pub(super) fn insert_with_height(&self, entry: &Entry<'_>, height: usize) -> Node {
        let height = self.affordable(height);
        let node = self.write(entry, height);
        match &self.order {
            Order::Bytewise => {
                self.link_all(node, height, &Target::new(entry.user_key, entry.trailer));
            }
            Order::Custom(comparator) => {
                let target = PlacedTarget::new(&**comparator, entry.user_key, entry.trailer);
                self.link_all(node, height, &target);
            }
        }
        node
    }

    /// Links `node`, whose place is `target`, on all levels of its tower.
    #[inline]
    fn link_all(&self, node: Node, height: usize, target: &impl Sought) {
        let mut gaps = [TOP.1; MAX_HEIGHT];
        self.find_gaps(target, height, &mut gaps);
        for (level, gap) in gaps.iter_mut().enumerate().take(height) {
            self.link(node, level, target, gap);
            self.growth.finger[level].store(node.to_raw(), Release);
        }
    }

    /// Whether (`user_key`, `trailer`) is behind the place of `internal_key`.
    #[inline]
    pub(super) fn is_after(&self, user_key: &[u8], trailer: u64, internal_key: &[u8]) -> bool {
        match &self.order {
            Order::Bytewise => Target::new(user_key, trailer).is_after(internal_key),
            Order::Custom(comparator) => {
                PlacedTarget::new(&**comparator, user_key, trailer).is_after(internal_key)
            }
        }
    }

    /// Whether the internal key `one` is behind the place of `other`.
    #[inline]
    pub(super) fn is_behind(&self, one: &[u8], other: &[u8]) -> bool {
        let (user_key, trailer) = place_of(one);
        self.is_after(user_key, trailer, other)
    }

    /// The first node at or behind `target`. By itself it needs few registers; where it is made a part of a larger
    /// function, some of them go to and fro at each step.
    #[inline(never)]
    fn first_from(&self, target: &impl Sought) -> Node {
        self.descend(target, TOP.0, TOP.1, |_, _| ()).after
    }

    /// The first node at or behind the internal key.
    pub(super) fn first_at_or_after(&self, internal_key: &[u8]) -> Node {
        let (user_key, trailer) = place_of(internal_key);
        self.find(user_key, trailer)
    }

    /// The first node at or behind (`user_key`, `trailer`).
    #[inline]
    pub(super) fn find(&self, user_key: &[u8], trailer: u64) -> Node {
        match &self.order {
            Order::Bytewise => self.first_from(&Target::new(user_key, trailer)),
            Order::Custom(comparator) => {
                self.first_from(&PlacedTarget::new(&**comparator, user_key, trailer))
            }
        }
    }

    /// The last node before the internal key; [`HEAD`] if there is none.
    pub(super) fn last_before(&self, internal_key: &[u8]) -> Node {
        let (user_key, trailer) = place_of(internal_key);
        match &self.order {
            Order::Bytewise => self.gap_of(&Target::new(user_key, trailer)),
            Order::Custom(comparator) => {
                self.gap_of(&PlacedTarget::new(&**comparator, user_key, trailer))
            }
        }
        .before
    }

    fn gap_of(&self, target: &impl Sought) -> Gap {
        self.descend(target, TOP.0, TOP.1, |_, _| ())
    }

    /// The last node; [`HEAD`] if there is none.
    pub(super) fn last(&self) -> Node {
        let mut node = HEAD;
        for level in (0..MAX_HEIGHT).rev() {
            loop {
                let next = self.next_on(node, level);
                if next == NIL {
                    break;
                }
                node = next;
            }
        }
        node
    }

    /// The node behind `node`, or [`NIL`].
    #[inline]
    pub(super) fn next(&self, node: Node) -> Node {
        let next = self.next_on(node, 0);
        self.arena.prefetch(next);
        next
    }

    /// The node before `node`, or [`HEAD`].
    pub(super) fn previous(&self, node: Node) -> Node {
        let mut before = Node::from_raw(self.back(node).load(Acquire));
        loop {
            let next = self.next_on(before, 0);
            if next == node {
                return before;
            }
            debug_assert!(next != NIL, "a back link led past its node");
            before = next;
        }
    }

    /// The internal key of `node`, which is neither [`HEAD`] nor [`NIL`].
    #[inline]
    #[expect(unsafe_code, reason = "reads what the arena wrote")]
    pub(super) fn internal_key(&self, node: Node) -> &[u8] {
        // SAFETY: the nodes that callers have come from links of this list, followed with acquire ordering, or
        // were just written by this thread; links hold only nodes that were written before.
        unsafe { self.arena.internal_key(node) }
    }

    /// The value of `node`, which is neither [`HEAD`] nor [`NIL`].
    #[inline]
    #[expect(unsafe_code, reason = "reads what the arena wrote")]
    pub(super) fn value(&self, node: Node) -> &[u8] {
        // SAFETY: as for `internal_key`.
        unsafe { self.arena.value(node) }
    }

    /// The tallest tower up to `height` that may be built now.
    fn affordable(&self, height: usize) -> usize {
        if height <= PAID_HEIGHT {
            return height;
        }
        let extra = LINK_BYTES * (height - PAID_HEIGHT);
        let taken = self.growth.reserve_taken.fetch_add(extra as u32, Relaxed) as usize;
        if taken + extra <= self.reserve {
            height
        } else {
            PAID_HEIGHT
        }
    }

    /// Cuts a node from the region and writes it.
    #[expect(unsafe_code, reason = "writes into the claimed part of the region")]
    fn write(&self, entry: &Entry<'_>, height: usize) -> Node {
        let bytes = entry.node_bytes(height);
        let claim = bytes as u64 | 1 << CLAIMED_BITS;
        let claimed = self.growth.claimed.fetch_add(claim, Relaxed);
        let start = FIRST_FREE + (claimed & ((1 << CLAIMED_BITS) - 1)) as usize;
        assert!(
            bytes <= self.arena.bytes() - start.min(self.arena.bytes()),
            "an entry of {bytes} bytes does not fit behind {start} of {}: writers must reserve entry_bytes first",
            self.arena.bytes()
        );
        // SAFETY: the claim makes these bytes ours alone, they were just checked to be in the region, and all
        // claims are multiples of the alignment.
        unsafe { self.arena.write(start, height, entry) }
    }

    /// Finds where `target` goes on all levels below `height`.
    #[inline]
    fn find_gaps(&self, target: &impl Sought, height: usize, gaps: &mut [Gap; MAX_HEIGHT]) {
        let (level, gap) = self.finger_for(target, height, gaps).unwrap_or(TOP);
        self.descend(target, level, gap, |level, gap| gaps[level] = gap);
    }

    /// The lowest level whose finger encloses `target`, if the fingers of the levels above it that a tower of
    /// `height` needs do so, too; those levels' gaps are filled in.
    #[inline]
    fn finger_for(
        &self,
        target: &impl Sought,
        height: usize,
        gaps: &mut [Gap; MAX_HEIGHT],
    ) -> Option<(usize, Gap)> {
        let (level, gap) = (0..FINGER_LEVELS)
            .find_map(|level| Some((level, self.gap_at_finger(target, level)?)))?;
        for (above, gap) in gaps.iter_mut().enumerate().take(height).skip(level + 1) {
            *gap = self.gap_at_finger(target, above)?;
        }
        Some((level, gap))
    }

    /// The gap behind the finger of `level`, if `target` is in it.
    #[inline]
    fn gap_at_finger(&self, target: &impl Sought, level: usize) -> Option<Gap> {
        let before = Node::from_raw(self.growth.finger[level].load(Acquire));
        if before != HEAD && !target.is_after(self.internal_key(before)) {
            return None;
        }
        let after = self.next_on(before, level);
        let encloses = after == NIL || !target.is_after(self.internal_key(after));
        encloses.then_some(Gap { before, after })
    }

    /// Narrows `gap`, a gap on `level` that encloses `target`, on every level down to 0, and shows each.
    /// Returns the lowest.
    #[inline]
    fn descend(
        &self,
        target: &impl Sought,
        mut level: usize,
        mut gap: Gap,
        mut show: impl FnMut(usize, Gap),
    ) -> Gap {
        loop {
            loop {
                let next = self.next_on(gap.before, level);
                // What stopped the level above stops this one, too: it is compared once.
                if next == gap.after || next == NIL {
                    gap.after = next;
                    break;
                }
                if level > 0 {
                    // If `next` is too far, this is the one after that: let both come at once.
                    self.arena
                        .prefetch(self.guess_next_on(gap.before, level - 1));
                }
                if !target.is_after(self.internal_key(next)) {
                    gap.after = next;
                    break;
                }
                gap.before = next;
            }
            show(level, gap);
            if level == 0 {
                return gap;
            }
            level -= 1;
        }
    }

    /// Links `node` into `gap` on `level`, or, as the gap narrows under our hands, into the rest of it.
    #[inline]
    fn link(&self, node: Node, level: usize, target: &impl Sought, gap: &mut Gap) {
        loop {
            self.link_of(node, level).store(gap.after.to_raw(), Relaxed);
            if level == 0 {
                self.back(node).store(gap.before.to_raw(), Relaxed);
            }
            let linked = self.link_of(gap.before, level).compare_exchange(
                gap.after.to_raw(),
                node.to_raw(),
                Release,
                Relaxed,
            );
            if linked.is_ok() {
                break;
            }
            self.narrow(level, target, gap);
        }
        if level == 0 && gap.after != NIL {
            debug_assert!(
                self.internal_key(gap.after) != self.internal_key(node),
                "a key and sequence were inserted twice"
            );
            self.back(gap.after).store(node.to_raw(), Release);
        }
    }

    /// Finds the gap of `target` on `level` again, from where it began before.
    #[cold]
    fn narrow(&self, level: usize, target: &impl Sought, gap: &mut Gap) {
        loop {
            gap.after = self.next_on(gap.before, level);
            if gap.after == NIL || !target.is_after(self.internal_key(gap.after)) {
                return;
            }
            gap.before = gap.after;
        }
    }

    #[inline]
    fn next_on(&self, node: Node, level: usize) -> Node {
        Node::from_raw(self.link_of(node, level).load(Acquire))
    }

    /// As `next_on`, for a guess: what the node says must not be read.
    #[inline]
    fn guess_next_on(&self, node: Node, level: usize) -> Node {
        Node::from_raw(self.link_of(node, level).load(Relaxed))
    }

    #[inline]
    #[expect(unsafe_code, reason = "finds a word in a node")]
    fn link_of(&self, node: Node, level: usize) -> &AtomicU32 {
        // SAFETY: nodes come from links or fingers of `level` or a higher one, and towers are whole: a node
        // linked on a level has that level and all below.
        unsafe { self.arena.link(node, level) }
    }

    #[inline]
    #[expect(unsafe_code, reason = "finds a word in a node")]
    fn back(&self, node: Node) -> &AtomicU32 {
        // SAFETY: nodes come from links of this list.
        unsafe { self.arena.back(node) }
    }
}

/// Draws a height: one tower in four reaches each next level.
#[inline]
fn height_of(entry: &Entry<'_>) -> usize {
    let key = entry
        .user_key
        .last_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let mut bits = entry.trailer ^ key.rotate_left(32);
    // The finaliser of MurmurHash3: every bit of the input changes every bit of the output.
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^= bits >> 33;
    (1 + bits.trailing_zeros() as usize / 2).min(MAX_HEIGHT)
}
