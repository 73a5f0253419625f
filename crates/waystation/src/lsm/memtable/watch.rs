//! What was inserted of late, for cursors that jump over dead keys.
//!
//! Where a cursor knows that all versions below some sequence number are dead, it could jump, did it not have to see
//! the versions that came since. In tables and full memtables that is told by their sequence numbers; in the memtable
//! that is written to, all dead keys had to be walked for the sake of a few new ones. A watch tells where these are:
//! the least key inserted since it began. (The oldest of a queue is read so: what is appended lies far behind.)
//!
//! Watches follow each other, as cursors learn more; the last few are kept. A writer notes its key in the
//! latest.
//!
//! **Why nothing is missed.** A watch is first shown to the threads that insert, and then asks for the next sequence number
//! that will be given out, `from`. Numbers are given out under a lock that this takes, too: so who inserts with `from`
//! or a later number got it afterwards, sees this watch or a later one, and notes his key before a reader may see it.
//! The versions since some number are thus noted in the latest watch with `from` at or below it, or in those after. A
//! place is used again after [`KEPT`] watches; who still notes something there, having looked long ago, has a lower
//! number than any watch that is kept begins with, and only makes a cursor more careful.

use super::arena::{NIL, Node};
use super::skiplist::SkipList;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use crate::sync::atomic::{AtomicU32, AtomicUsize};
use crate::sync::{Mutex, lock};

/// So many watches are kept.
const KEPT: usize = 4;

/// The watches of a memtable.
#[derive(Debug)]
pub(super) struct Watches {
    /// Where keys are noted: 0 for nowhere, else one more than the place.
    current: AtomicUsize,
    /// The least key noted in each place, or [`NIL`].
    least: [AtomicU32; KEPT],
    /// The watches that are kept, the latest at the end.
    kept: Mutex<Vec<Watch>>,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
struct Watch {
    /// All that was inserted with this sequence number or a later one was noted in it, or after it.
    from: u64,
    place: usize,
}

impl Watches {
    /// Nothing is watched.
    pub(super) fn new() -> Self {
        Self {
            current: AtomicUsize::new(0),
            least: std::array::from_fn(|_| AtomicU32::new(NIL.to_raw())),
            kept: Mutex::new(Vec::new()),
        }
    }

    /// Notes `node`, which was just inserted and is seen by no reader yet.
    #[inline]
    pub(super) fn note(&self, list: &SkipList, node: Node) {
        let current = self.current.load(Acquire);
        if current > 0 {
            self.note_at(current - 1, list, node);
        }
    }

    fn note_at(&self, place: usize, list: &SkipList, node: Node) {
        let key = list.internal_key(node);
        let least = &self.least[place];
        let mut known = least.load(Acquire);
        while known == NIL.to_raw()
            || !list.is_behind(key, list.internal_key(Node::from_raw(known)))
        {
            match least.compare_exchange(known, node.to_raw(), AcqRel, Acquire) {
                Ok(_) => return,
                Err(other) => known = other,
            }
        }
    }

    /// Begins to watch. `next_sequence` gives the number that the next version gets that gets one.
    pub(super) fn begin(&self, next_sequence: impl FnOnce() -> u64) {
        let mut kept = lock(&self.kept);
        let place = kept.last().map_or(0, |latest| (latest.place + 1) % KEPT);
        if kept.len() == KEPT {
            let oldest = kept.remove(0);
            debug_assert_eq!(oldest.place, place, "places are used in turn");
        }
        self.least[place].store(NIL.to_raw(), Release);
        self.current.store(place + 1, Release);
        let from = next_sequence();
        kept.push(Watch { from, place });
    }

    /// Whether it is known that no version with sequence number `covering` or a later one, as far as the caller may see
    /// any, was inserted before the place of the internal key `end` (`None`: at all).
    pub(super) fn is_clear(&self, list: &SkipList, end: Option<&[u8]>, covering: u64) -> bool {
        let kept = lock(&self.kept);
        let Some(first) = kept.iter().rposition(|watch| watch.from <= covering) else {
            return false;
        };
        kept[first..].iter().all(|watch| {
            let least = Node::from_raw(self.least[watch.place].load(Acquire));
            least == NIL || end.is_some_and(|end| !list.is_behind(end, list.internal_key(least)))
        })
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use crate::lsm::memtable::MemTable;
    use crate::sst::InternalIterator;
    use crate::sync::Arc;
    use proptest::prelude::*;
    use waystation_format::key::{self, MAX_SEQUENCE, ValueKind};

    const KEYS: u8 = 12;

    fn place(user_key: &[u8]) -> Vec<u8> {
        let mut internal = Vec::new();
        key::append(&mut internal, user_key, MAX_SEQUENCE, ValueKind::SEEK);
        internal
    }

    proptest! {
        #[test]
        fn what_is_clear_holds_nothing_new(steps in prop::collection::vec(prop::option::weighted(0.8, 0..KEYS), 0..60)) {
            let table = Arc::new(MemTable::new(1 << 14));
            let mut inserted = Vec::new();
            let mut next = 1;
            // Where the last watches began.
            let mut watched = Vec::new();
            for step in steps {
                if let Some(user_key) = step {
                    table.insert(&[user_key], next, ValueKind::Value, b"");
                    inserted.push((user_key, next));
                    next += 1;
                } else {
                    table.watch(|| next);
                    watched.push(next);
                }
                let first_kept = watched.len().saturating_sub(super::KEPT);
                let kept = &watched[first_kept..];
                for (covering, end) in (0..=next).flat_map(|covering| (0..=KEYS).map(move |end| (covering, end))) {
                    // What a watch notes counts from where it began: for a number before the next one, too.
                    let from = kept.iter().rev().find(|from| **from <= covering);
                    let is_none = |from: u64| inserted.iter().all(|(it, at)| *at < from || *it >= end);
                    let expected = from.is_some_and(|from| is_none(*from));
                    prop_assert_eq!(table.is_clear(Some(&place(&[end])), covering), expected);
                    prop_assert!(!expected || is_none(covering));
                }
            }
        }
    }

    #[test]
    fn a_cursor_jumps_over_what_is_old_and_over_nothing_new() {
        let table = Arc::new(MemTable::new(1 << 16));
        for number in 0..100_u8 {
            table.insert(&[number], u64::from(number) + 1, ValueKind::Value, b"");
        }
        let jump = |covering: u64| {
            let mut cursor = table.iter();
            cursor.seek_to_first().unwrap();
            cursor.skip_forward(Some(&place(&[90])), covering).unwrap();
            key::user_key(cursor.key())[0]
        };
        assert_eq!(jump(101), 0, "no cursor watched");
        table.watch(|| 101);
        assert_eq!((jump(101), jump(100)), (90, 0));
        table.insert(&[95], 101, ValueKind::Value, b"");
        assert_eq!(jump(101), 90);
        table.insert(&[40], 102, ValueKind::Value, b"");
        assert_eq!(jump(101), 0, "one lies between");
        table.watch(|| 103);
        assert_eq!((jump(103), jump(102)), (90, 0));
    }
}
