//! Graves that are flushed without a memtable: of deletions in the upper level, when their device settles.
//!
//! Such a deletion is older than what tables may have been purged through already, without it. So its grave carries a
//! second number, as one that had a date: tables must be purged through that. It is the device's switch: from there on
//! no memtable is flushed until the device has settled, so no flushed graves have gone so far, and no table was purged
//! so far. (Or a later number, if the device switched before a restart: the first flushed graves then go as far as the
//! log did.)

use super::flushed::FlushedGraves;
use super::sorted::Grave;
use super::spilled::SpillLabel;
use waystation_format::batch::prefix_end;

impl FlushedGraves {
    /// These graves and `graves`, by key and of one key the latest first, for which tables must be purged through
    /// `number`. They have all others up to `through`.
    pub(crate) fn with_settled(
        &self,
        graves: &[(Vec<u8>, u64)],
        number: u64,
        through: u64,
    ) -> Self {
        let ranges = self.ranges().clone();
        let mut next = Self::new(self.through().max(through), ranges)
            .at_time(self.time())
            .with_spilled(self.spilled().clone());
        let mut fresh = graves.iter().peekable();
        let flush_graves = |next: &mut Self, (key, sequence): &(Vec<u8>, u64)| {
            next.push(Grave::counting(key, *sequence, number.max(*sequence)));
        };
        for old in self.points().iter() {
            let comes_before = |it: &&(Vec<u8>, u64)| (&it.0[..], old.sequence) < (old.key, it.1);
            while let Some(grave) = fresh.next_if(comes_before) {
                flush_graves(&mut next, grave);
            }
            // One that is there already, from a time that it was tried and failed, counts once.
            fresh.next_if(|it| (&it.0[..], it.1) == (old.key, old.sequence));
            next.push(old);
        }
        for grave in fresh {
            flush_graves(&mut next, grave);
        }
        for dated in self.dated().iter() {
            next.push_dated(dated);
        }
        next
    }

    /// Whether a grave of a key that begins with `prefix` has `sequence` or a later number; of spill files, whether
    /// there may be one, for all that their labels say.
    pub(crate) fn has_points_since(&self, prefix: &[u8], sequence: u64) -> bool {
        let last = prefix_end(prefix);
        let is_later = |label: &SpillLabel| {
            label.sequences.1 >= sequence && label.overlaps(Some(prefix), last.as_deref())
        };
        if self
            .spilled()
            .labels()
            .filter(|it| it.counts())
            .any(is_later)
        {
            return true;
        }
        let first = self.points().first_from(prefix);
        let behind = (first..self.len()).map(|at| self.points().get(at));
        let mut inside = behind.take_while(|grave| grave.key.starts_with(prefix));
        inside.any(|grave| grave.sequence >= sequence)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::cemetery::fragments::Fragments;

    fn listed(flushed: &FlushedGraves) -> Vec<(&[u8], u64, u64)> {
        let points = flushed.points().iter();
        points
            .map(|it| (it.key, it.sequence, it.purge_through()))
            .collect()
    }

    #[test]
    fn graves_of_what_settled_lie_in_order_and_count_once() {
        let graves = |list: &[(&str, u64)]| -> Vec<(Vec<u8>, u64)> {
            let owned = |it: &(&str, u64)| (it.0.as_bytes().to_vec(), it.1);
            list.iter().map(owned).collect()
        };
        let empty = FlushedGraves::new(10, Fragments::default()).at_time(7);
        let first = empty.with_settled(&graves(&[("b", 8), ("b", 3), ("d", 10)]), 11, 0);
        assert_eq!(
            listed(&first),
            [(&b"b"[..], 8, 11), (b"b", 3, 11), (b"d", 10, 11)]
        );
        assert_eq!((first.through(), first.time()), (10, 7));
        let second = graves(&[("a", 1), ("b", 9), ("b", 8), ("b", 5), ("d", 2), ("e", 30)]);
        let second = first.with_settled(&second, 31, 40);
        assert_eq!(
            listed(&second),
            [
                (&b"a"[..], 1, 31),
                (b"b", 9, 31),
                (b"b", 8, 11),
                (b"b", 5, 31),
                (b"b", 3, 11),
                (b"d", 10, 11),
                (b"d", 2, 31),
                (b"e", 30, 31),
            ]
        );
        assert_eq!(second.through(), 40);
        assert!(second.has_points_since(b"e", 30) && !second.has_points_since(b"e", 31));
        assert!(!second.has_points_since(b"c", 0) && second.has_points_since(b"", 30));
    }
}
