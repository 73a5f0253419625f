//! Deletions leave what settles: in the upper level they are versions, in the tree they are graves.
//!
//! What a residency holds comes by key, the newest version first. A deletion at `d` is needed by readers at `d` or
//! later, and who would see an older version of the key without it. Of this residency that is one that a snapshot from
//! before `d` keeps; of earlier residencies it is none, as the departure in between hides all they left in the tree. Only in
//! a directory that is older than its extractor the tree may hold what no departure hides, and of a residency that came from
//! such a one what expires. So mostly a deletion just
//! goes, with what it deletes; the others are told, each with the sequence number it always had: as a grave it then
//! says the same to the same readers.

use crate::error::Result;
use crate::sst::EntryStream;
use waystation_format::key::{self, ValueKind};

/// The deletions that were taken out of streams.
pub(crate) struct Deletions {
    oldest_snapshot: u64,
    /// Whether the tree may hold older versions that are not hidden.
    may_be_older: bool,
    graves: Vec<(Vec<u8>, u64)>,
    /// The key that is passed by, once there is one.
    key: Vec<u8>,
    has_key: bool,
    /// Whether no reader reaches past the last version of it.
    is_over: bool,
    /// The oldest deletion since the last value: it hides what the ones above it hide, and from more readers.
    open: Option<u64>,
}

impl Deletions {
    /// All readers read at `oldest_snapshot` or later.
    pub(crate) fn new(oldest_snapshot: u64, may_be_older: bool) -> Self {
        Self {
            oldest_snapshot,
            may_be_older,
            graves: Vec::new(),
            key: Vec::new(),
            has_key: false,
            is_over: false,
            open: None,
        }
    }

    /// `entries` without deletions, and without what they hide from every reader.
    pub(crate) fn leave<E: EntryStream>(&mut self, entries: E) -> Remaining<'_, E> {
        Remaining {
            entries,
            deletions: self,
        }
    }

    /// The graves that take their place, by key, of one key the latest first.
    pub(crate) fn into_graves(mut self) -> Vec<(Vec<u8>, u64)> {
        self.end_key();
        let by_key = |a: &(Vec<u8>, u64), b: &(Vec<u8>, u64)| a.0.cmp(&b.0).then(b.1.cmp(&a.1));
        self.graves.sort_unstable_by(by_key);
        self.graves
    }

    fn end_key(&mut self) {
        if self.may_be_older {
            self.dig();
        }
        self.open = None;
    }

    fn dig(&mut self) {
        if let Some(sequence) = self.open.take() {
            self.graves.push((self.key.clone(), sequence));
        }
    }

    /// Whether the next version stays.
    fn residencies(&mut self, internal_key: &[u8]) -> bool {
        let user_key = key::user_key(internal_key);
        if !self.has_key || user_key != self.key {
            self.end_key();
            self.key.clear();
            self.key.extend_from_slice(user_key);
            (self.has_key, self.is_over) = (true, false);
        }
        if self.is_over {
            return false;
        }
        let trailer = key::trailer(internal_key);
        let sequence = trailer >> 8;
        self.is_over = sequence <= self.oldest_snapshot;
        let is_deletion = trailer & 0xff == ValueKind::Deletion as u64;
        if is_deletion {
            self.open = Some(sequence);
        } else {
            self.dig();
        }
        !is_deletion
    }
}

/// The rest of a stream.
pub(crate) struct Remaining<'d, E> {
    entries: E,
    deletions: &'d mut Deletions,
}

impl<E: EntryStream> Remaining<'_, E> {
    fn skip(&mut self) -> Result<()> {
        while self.entries.has_entry() && !self.deletions.residencies(self.entries.entry().0) {
            self.entries.advance()?;
        }
        Ok(())
    }
}

impl<E: EntryStream> EntryStream for Remaining<'_, E> {
    fn start(&mut self) -> Result<()> {
        self.entries.start()?;
        self.skip()
    }

    fn has_entry(&self) -> bool {
        self.entries.has_entry()
    }

    fn advance(&mut self) -> Result<()> {
        self.entries.advance()?;
        self.skip()
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        self.entries.entry()
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    /// Versions with their numbers, by key, the newest first; `false` deletes.
    type Versions = Vec<(u8, u64, bool)>;

    struct Listed {
        keys: Vec<Vec<u8>>,
        at: usize,
    }

    impl Listed {
        fn new(versions: &Versions) -> Self {
            let internal = |&(key, sequence, is_put): &(u8, u64, bool)| {
                let kind = if is_put {
                    ValueKind::Value
                } else {
                    ValueKind::Deletion
                };
                let mut out = Vec::new();
                // The first one is the empty key.
                key::append(&mut out, &[b'k'; 3][..usize::from(key)], sequence, kind);
                out
            };
            let keys = versions.iter().map(internal).collect();
            Self { keys, at: 0 }
        }
    }

    impl EntryStream for Listed {
        fn start(&mut self) -> Result<()> {
            self.at = 0;
            Ok(())
        }

        fn has_entry(&self) -> bool {
            self.at < self.keys.len()
        }

        fn advance(&mut self) -> Result<()> {
            self.at += 1;
            Ok(())
        }

        fn entry(&self) -> (&[u8], &[u8]) {
            (&self.keys[self.at], b"")
        }
    }

    fn settle(versions: &Versions, oldest: u64, older: bool) -> (Versions, Vec<(u8, u64)>) {
        let mut deletions = Deletions::new(oldest, older);
        let mut left = deletions.leave(Listed::new(versions));
        let mut kept = Vec::new();
        left.start().unwrap();
        while left.has_entry() {
            let internal = left.entry().0;
            let sequence = key::trailer(internal) >> 8;
            kept.push((key::user_key(internal).len() as u8, sequence, true));
            left.advance().unwrap();
        }
        let graves = deletions.into_graves().into_iter();
        let graves = graves.map(|(key, sequence)| (key.len() as u8, sequence));
        (kept, graves.collect())
    }

    /// What a reader sees among values and graves.
    fn seen(kept: &Versions, graves: &[(u8, u64)], key: u8, snapshot: u64) -> Option<u64> {
        let dug = graves.iter().filter(|it| it.0 == key && it.1 <= snapshot);
        let least = dug.map(|it| it.1).max().unwrap_or(0);
        let newest = kept.iter().find(|it| it.0 == key && it.1 <= snapshot);
        newest.filter(|it| it.2 && it.1 >= least).map(|it| it.1)
    }

    proptest! {
        /// All who read from the oldest snapshot on see the same as before, of this residency and of what was there before
        /// it; and a reader that sees nothing older needs no grave.
        #[test]
        fn everybody_sees_the_same(
            keys in vec((btree_set(2u64..40, 0..6), any::<u8>()), 4),
            oldest in 2u64..42,
            may_be_older: bool,
        ) {
            let mut versions = Versions::new();
            for (key, (sequences, kinds)) in (0u8..).zip(&keys) {
                let puts = sequences.iter().rev().enumerate();
                versions.extend(puts.map(|(at, it)| (key, *it, kinds >> at & 1 == 1)));
            }
            let (mut kept, graves) = settle(&versions, oldest, may_be_older);
            if may_be_older {
                for key in 0..4 {
                    let behind = |it: &(u8, u64, bool)| it.0 > key;
                    let at = |list: &Versions| list.iter().position(behind).unwrap_or(list.len());
                    versions.insert(at(&versions), (key, 1, true));
                    kept.insert(at(&kept), (key, 1, true));
                }
            }
            for (key, snapshot) in (0..4).flat_map(|key| (oldest..45).map(move |it| (key, it))) {
                let expected = seen(&versions, &[], key, snapshot);
                prop_assert_eq!(seen(&kept, &graves, key, snapshot), expected, "{} at {}", key, snapshot);
            }
            for (key, deletion) in graves {
                prop_assert!(kept.iter().any(|it| it.0 == key && it.1 < deletion));
                prop_assert!(may_be_older || deletion > oldest);
            }
        }
    }
}
