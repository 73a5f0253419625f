//! The cemetery: deletions, kept apart from the tree.
//!
//! A deletion is a *grave*: the key, or the range of keys, and the sequence number `d` of the deletion. A version of a
//! key with sequence number `s` is seen at snapshot `S` iff `s <= S` and no grave of the key has `s < d <= S`. So to a
//! reader at `S` all graves of a key are one number, its *covering sequence*: the largest `d <= S`; versions below are
//! hidden. A put after a deletion needs nothing from here, and a deletion puts nothing into the tree. (After the
//! FLSM-tree, which has neither snapshots nor a log; and after the scars of others, see docs/design/cemetery.md.)
//!
//! ```text
//!   delete --> log --> active graves     of one memtable; concurrent: a hash table of keys, and ranges
//!                        |  flush: with their memtable
//!                        v
//!                      flushed graves    immutable: sorted keys, disjoint ranges; in a file of their own, GRAVES
//!                        |               spilled graves: too much for memory, in files beside it
//!                        |  retire: once no table holds what they hide
//!                        v
//!                      (gone)
//! ```
//!
//! A put with a time to live is a put and, with the next sequence number, a deletion with a date: a grave that counts
//! for readers who are past that date. A reader's time never goes back, and a snapshot's stands still; so once all
//! readers are past it, the grave is *promoted*: it is one like the others.
//!
//! A reader pins its memtables, their active graves, the flushed graves and the version of the tree together, in one
//! read state. So a grave may be retired as soon as the newest version needs it no longer: a reader of an older version
//! reads older flushed graves.
//!
//! - [`points`] and [`arena`]: the hash table and its memory; [`fragments`]: ranges; [`active`]: both, of one memtable
//! - [`flushed`]: all graves of flushed memtables, in [`sorted`] arrays; [`checkpoint`]: their file
//! - [`settled`]: graves that come from the upper level
//! - [`spilled`]: graves that left memory
//! - [`dead_ranges`]: runs of dead keys that scans came through
//! - [`expiry`]: whose time dates are compared with

pub(crate) mod active;
pub(crate) mod arena;
pub(crate) mod checkpoint;
pub(crate) mod dead_ranges;
pub(crate) mod expiry;
pub(crate) mod flushed;
pub(crate) mod fragments;
pub(crate) mod points;
pub(crate) mod settled;
pub(crate) mod sorted;
pub(crate) mod spilled;

#[cfg(test)]
#[cfg(shuttle)]
mod model_tests;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;

/// The hidden versions of a key, and the readers that do not see them: versions below `below`, at snapshots from `from` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cut {
    /// Versions with lower sequence numbers are hidden.
    pub(crate) below: u64,
    /// The first snapshot they are hidden from.
    pub(crate) from: u64,
}

impl Cut {
    /// The deletion at `sequence`.
    pub(crate) fn deletion(sequence: u64) -> Self {
        Self {
            below: sequence,
            from: sequence,
        }
    }
}

/// The covering sequence that `cuts`, which ascend, make at `snapshot`; 0 if none counts there.
pub(crate) fn covering_of(cuts: &[Cut], snapshot: u64) -> u64 {
    let mut latest_first = cuts.iter().rev();
    let counting = latest_first.find(|cut| cut.from <= snapshot);
    counting.map_or(0, |cut| cut.below)
}

/// Leaves of `cuts` the ones that some reader at `oldest_snapshot` or later can tell from the others.
pub(crate) fn prune(cuts: &mut Vec<Cut>, oldest_snapshot: u64) {
    cuts.sort_unstable();
    cuts.dedup();
    let covering = covering_of(cuts, oldest_snapshot);
    cuts.retain(|cut| {
        cut.below > covering || (cut.below == covering && cut.from <= oldest_snapshot)
    });
    // Of several that make the same covering sequence for every reader, one is enough.
    let mut has_floor = false;
    cuts.retain(|cut| {
        let is_floor = cut.from <= oldest_snapshot;
        !(is_floor && std::mem::replace(&mut has_floor, true))
    });
}
