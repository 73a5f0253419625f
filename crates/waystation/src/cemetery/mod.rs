//! The cemetery: what is deleted, kept apart from the tree.
//!
//! A deletion is a *grave*: the key, or the range of keys, and the sequence number `d` of the deletion. A version of a
//! key with sequence number `s` is seen at snapshot `S` iff `s <= S` and no grave of the key has `s < d <= S`. So to a
//! reader at `S` all graves of a key are one number, its *floor*: the largest `d <= S`; versions below are hidden.
//! A put after a deletion needs nothing from here, and a deletion puts nothing into the tree. (After the FLSM-tree,
//! which has neither snapshots nor a log; and after the scars of others, see docs/design/cemetery.md.)
//!
//! ```text
//!   delete --> log --> plot (of the active memtable)      concurrent: a hash table of keys, and ranges
//!                        |  flush: with its memtable
//!                        v
//!                      ground                             immutable: sorted keys, disjoint ranges; in a file of its own;
//!                        |                                what is too much for memory lies in vaults, files as well
//!                        |  retire: once no table holds what it hides
//!                        v
//!                      (gone)
//! ```
//!
//! A put with a time to live is a put and, with the next sequence number, a deletion with a date: a grave that counts
//! for readers who are past that date. Nobody's time goes back, and a snapshot's stands still; so once all readers are
//! past it, the grave is one like the others.
//!
//! A reader pins its memtables, their plots, the ground and the version of the tree together, in one view. So a grave
//! may be retired as soon as the newest version needs it no longer: who reads an older version reads an older ground.
//!
//! - [`points`] and [`words`]: the hash table and its memory; [`fragments`]: ranges; [`plot`]: both, of one memtable
//! - [`ground`]: all graves of flushed memtables, in [`row`]s; [`checkpoint`]: its file
//! - [`settled`]: graves that come from the upper level
//! - [`vault`]: graves that left memory
//! - [`learned`]: runs of dead keys that scans came through

pub(crate) mod checkpoint;
pub(crate) mod fragments;
pub(crate) mod ground;
pub(crate) mod learned;
#[cfg(test)]
pub(crate) mod plain;
pub(crate) mod plot;
pub(crate) mod points;
pub(crate) mod row;
pub(crate) mod settled;
pub(crate) mod vault;
pub(crate) mod words;

#[cfg(test)]
#[cfg(shuttle)]
mod model_tests;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;

/// What is hidden of a key, and from whom: versions below `below`, at snapshots from `from` on.
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

/// The floor that `cuts`, which ascend, make at `snapshot`; 0 if none counts there.
pub(crate) fn floor_of(cuts: &[Cut], snapshot: u64) -> u64 {
    let mut latest_first = cuts.iter().rev();
    let counting = latest_first.find(|cut| cut.from <= snapshot);
    counting.map_or(0, |cut| cut.below)
}

/// Leaves of `cuts` those that some reader at `oldest_snapshot` or later can tell from the others.
pub(crate) fn prune(cuts: &mut Vec<Cut>, oldest_snapshot: u64) {
    cuts.sort_unstable();
    cuts.dedup();
    let floor = floor_of(cuts, oldest_snapshot);
    cuts.retain(|cut| cut.below > floor || (cut.below == floor && cut.from <= oldest_snapshot));
    // Of several that make the same floor for everybody, one is enough.
    let mut has_floor = false;
    cuts.retain(|cut| {
        let is_floor = cut.from <= oldest_snapshot;
        !(is_floor && std::mem::replace(&mut has_floor, true))
    });
}
