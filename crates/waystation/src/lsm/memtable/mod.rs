//! The memtable: the newest entries of the tree, sorted, in memory of a fixed size.
//!
//! Many threads insert at once and any number read meanwhile, none of them waiting. An entry is (user key,
//! sequence, kind, value) and is never changed or removed; a whole memtable is dropped once its entries are in
//! tables. Memory is claimed up front, touched only as it fills, and found by 32-bit offsets.
//!
//! An insert is reserved first: entries whose [`MemTable::entry_bytes`] add up to at most the capacity always
//! fit, and one that does not is a bug of the caller that stops the thread before anything is changed.
//!
//! - [`arena`]: the region and the bytes of a node
//! - [`region`]: memory that one memtable leaves for the next
//! - [`skiplist`]: the order, and how threads meet
//! - [`target`]: comparing keys
//! - [`watch`]: what was inserted of late

mod arena;
mod iter;
#[cfg(test)]
#[cfg(loom)]
mod model_tests;
mod region;
#[cfg(loom)]
mod shadow;
mod skiplist;
mod target;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
mod watch;

use self::arena::{Entry, NIL};
use self::skiplist::SkipList;
use self::watch::Watches;
use crate::sst::Lookup;
use crate::sync::Arc;
use waystation_format::key::{self, ValueKind};
use waystation_format::order::Order;

pub(crate) use self::iter::MemTableIterator;
pub(crate) use self::region::Regions;

/// A sorted table of versions in memory.
pub(crate) struct MemTable {
    list: SkipList,
    watches: Watches,
}

impl MemTable {
    /// The largest capacity: with the reserve for tall towers still within what 32-bit offsets reach.
    pub(crate) const MAX_CAPACITY_BYTES: usize = 3 << 30;

    /// An empty memtable for entries whose [`MemTable::entry_bytes`] add up to `capacity_bytes`, which is at
    /// most [`MemTable::MAX_CAPACITY_BYTES`].
    #[cfg(test)]
    pub(crate) fn new(capacity_bytes: usize) -> Self {
        Self::with_regions(capacity_bytes, &Arc::default(), &Order::Bytewise)
    }

    /// The same, of user keys in `order`, in memory that `regions` has or makes.
    pub(crate) fn with_regions(
        capacity_bytes: usize,
        regions: &Arc<Regions>,
        order: &Order,
    ) -> Self {
        assert!(
            capacity_bytes <= Self::MAX_CAPACITY_BYTES,
            "a memtable of {capacity_bytes} bytes is more than {}",
            Self::MAX_CAPACITY_BYTES
        );
        Self {
            list: SkipList::new(capacity_bytes, regions, order),
            watches: Watches::new(),
        }
    }

    /// What an entry takes at most, to be reserved before it is inserted.
    pub(crate) const fn entry_bytes(key_bytes: usize, value_bytes: usize) -> usize {
        SkipList::entry_bytes(key_bytes, value_bytes)
    }

    /// Inserts a version. No version of the same key and sequence is in the table, and room for it is reserved.
    #[inline]
    pub(crate) fn insert(&self, user_key: &[u8], sequence: u64, kind: ValueKind, value: &[u8]) {
        let node = self.list.insert(&Entry {
            user_key,
            trailer: key::pack_trailer(sequence, kind),
            value,
        });
        self.watches.note(&self.list, node);
    }

    /// Watches inserts from now on, so that cursors get past dead keys. `next_sequence` gives the number that
    /// the next version gets that gets one.
    pub(crate) fn watch(&self, next_sequence: impl FnOnce() -> u64) {
        self.watches.begin(next_sequence);
    }

    /// The newest version of `user_key` whose sequence is at most `snapshot`.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn get(&self, user_key: &[u8], snapshot: u64) -> Lookup<&[u8]> {
        self.get_above(user_key, snapshot, 0)
    }

    /// The newest version of `user_key` whose sequence is at most `snapshot`; as if versions below `covering` were not
    /// there.
    #[inline]
    pub(crate) fn get_above(&self, user_key: &[u8], snapshot: u64, covering: u64) -> Lookup<&[u8]> {
        // Where much is read and little written: all levels of the list lead nowhere.
        let first = self.list.first();
        if first == NIL {
            return Lookup::Missing;
        }
        let trailer = key::pack_trailer(snapshot, ValueKind::SEEK);
        // Where keys are written in order, most are before all that the newer memtables hold.
        let first_key = self.list.internal_key(first);
        let node = if self.list.is_after(user_key, trailer, first_key) {
            self.list.find(user_key, trailer)
        } else {
            first
        };
        if node == NIL {
            return Lookup::Missing;
        }
        match key::split(self.list.internal_key(node)) {
            Some((found, trailer)) if self.list.order().is_same(found, user_key) => {
                if trailer >> 8 < covering {
                    Lookup::Missing
                } else if ValueKind::from_byte(trailer as u8) == Some(ValueKind::Deletion) {
                    Lookup::Deleted
                } else {
                    Lookup::Found(self.list.value(node))
                }
            }
            _ => Lookup::Missing,
        }
    }

    /// Whether it is known that no version with sequence number `covering` or a later one, as far as the caller may see
    /// any, is before the internal key `end` (`None`: is here at all).
    fn is_clear(&self, end: Option<&[u8]>, covering: u64) -> bool {
        self.watches.is_clear(&self.list, end, covering)
    }

    /// A cursor over all versions, which keeps the table alive.
    pub(crate) fn iter(self: &Arc<Self>) -> MemTableIterator {
        MemTableIterator::new(Arc::clone(self))
    }

    /// The order of user keys.
    pub(crate) fn order(&self) -> &Order {
        self.list.order()
    }

    /// Bytes taken by entries inserted, or just being inserted. May exceed the capacity by the reserve for tall
    /// towers, 1 part in 64.
    pub(crate) fn used_bytes(&self) -> usize {
        self.list.claimed_bytes()
    }

    /// Gives the memory for entries to come back to the system, until they come. All that were or are being inserted reserved
    /// `reserved` bytes together, and no thread reserves more meanwhile.
    pub(crate) fn give_room_back(&self, reserved: usize) {
        self.list.give_back_behind(reserved);
    }

    /// How much memory it takes, whatever it holds.
    #[cfg(all(test, target_os = "linux", not(any(miri, loom, shuttle))))]
    pub(crate) fn resident_bytes(&self) -> usize {
        self.list.resident_bytes()
    }

    /// What it was made for.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.list.capacity()
    }

    /// Versions inserted, or just being inserted.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether nothing was inserted.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
