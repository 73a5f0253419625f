//! Snapshots: sequence numbers that compaction must keep readable.

use crate::sync::{Arc, Mutex, lock};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

/// The sequence numbers in use by snapshots, and since when.
#[derive(Default)]
pub(crate) struct Snapshots {
    held: Mutex<BTreeMap<u64, Held>>,
    /// Called with the sequence number of the oldest snapshot when that is released.
    oldest_released: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
}

struct Held {
    count: usize,
    since: Duration,
}

impl Snapshots {
    /// Takes a snapshot of what is visible now.
    pub(crate) fn take(self: &Arc<Self>, visible: impl FnOnce() -> u64, now: Duration) -> Snapshot {
        let mut held = lock(&self.held);
        // Under the lock: a compaction that asks for the oldest after this cannot answer a later sequence.
        let sequence = visible();
        held.entry(sequence)
            .or_insert(Held {
                count: 0,
                since: now,
            })
            .count += 1;
        Snapshot {
            sequence,
            registry: Arc::clone(self),
        }
    }

    /// Calls `act` whenever the oldest snapshot is released, with its sequence number. Only the first such wish counts.
    pub(crate) fn on_release(&self, act: impl Fn(u64) + Send + Sync + 'static) {
        let _ = self.oldest_released.set(Box::new(act));
    }

    /// The oldest sequence at which anybody may read from now on.
    pub(crate) fn oldest(&self, visible: impl FnOnce() -> u64) -> u64 {
        let held = lock(&self.held);
        let visible = visible();
        held.first_key_value()
            .map_or(visible, |(oldest, _)| (*oldest).min(visible))
    }

    /// How many snapshots are held, and since when the oldest.
    pub(crate) fn summary(&self) -> (usize, Option<Duration>) {
        let held = lock(&self.held);
        (
            held.values().map(|h| h.count).sum(),
            held.values().map(|h| h.since).min(),
        )
    }
}

/// A point in the history of a database at which it can be read; released when dropped.
///
/// While it is held, space of what was overwritten or deleted since does not come back.
pub struct Snapshot {
    sequence: u64,
    registry: Arc<Snapshots>,
}

impl Snapshot {
    /// The sequence number of the last write it sees.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether it belongs to the database with these snapshots.
    pub(crate) fn is_of(&self, registry: &Arc<Snapshots>) -> bool {
        Arc::ptr_eq(&self.registry, registry)
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        if let Some(held) = lock(&self.registry.held).get_mut(&self.sequence) {
            held.count += 1;
        }
        Self {
            sequence: self.sequence,
            registry: Arc::clone(&self.registry),
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut held = lock(&self.registry.held);
        let oldest = held.first_key_value().map(|(sequence, _)| *sequence);
        let Some(entry) = held.get_mut(&self.sequence) else {
            return;
        };
        entry.count -= 1;
        if entry.count > 0 {
            return;
        }
        held.remove(&self.sequence);
        drop(held);
        if oldest == Some(self.sequence)
            && let Some(act) = self.registry.oldest_released.get()
        {
            act(self.sequence);
        }
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}
