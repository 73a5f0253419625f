//! Snapshots: sequence numbers that compaction must keep readable.

use crate::sync::{Arc, Mutex, lock};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

/// The sequence numbers in use by snapshots, and since when.
#[derive(Default)]
pub(crate) struct Snapshots {
    held: Mutex<BTreeMap<Point, usize>>,
    /// Called with the sequence number of the oldest snapshot when that is released. Another one may have the same number,
    /// and a later time.
    oldest_released: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
}

/// What a snapshot stands for: its sequence number, and when it was taken.
type Point = (u64, Duration);

impl Snapshots {
    /// Takes a snapshot of the visible writes.
    pub(crate) fn take(
        self: &Arc<Self>,
        visible: impl FnOnce() -> u64,
        now: impl FnOnce() -> Duration,
    ) -> Snapshot {
        let mut held = lock(&self.held);
        // Under the lock: who asks for the oldest after this cannot answer a later sequence, or time.
        let (sequence, now) = (visible(), now());
        *held.entry((sequence, now)).or_default() += 1;
        Snapshot {
            sequence,
            taken_at: now,
            registry: Arc::clone(self),
        }
    }

    /// Calls `act` whenever the oldest snapshot is released, with its sequence number. Only the first such wish counts.
    pub(crate) fn on_release(&self, act: impl Fn(u64) + Send + Sync + 'static) {
        let _ = self.oldest_released.set(Box::new(act));
    }

    /// The oldest sequence at which a reader may read from now on.
    pub(crate) fn oldest(&self, visible: impl FnOnce() -> u64) -> u64 {
        let held = lock(&self.held);
        let visible = visible();
        held.first_key_value()
            .map_or(visible, |(oldest, _)| oldest.0.min(visible))
    }

    /// The oldest time at which a reader may read from now on.
    pub(crate) fn oldest_time(&self, now: impl FnOnce() -> Duration) -> Duration {
        let held = lock(&self.held);
        let oldest = held.keys().map(|it| it.1).min();
        oldest.unwrap_or_else(now)
    }

    /// How many snapshots are held, and since when the oldest.
    pub(crate) fn summary(&self) -> (usize, Option<Duration>) {
        let held = lock(&self.held);
        (held.values().sum(), held.keys().map(|point| point.1).min())
    }
}

/// A point in the history of a database at which it can be read; released when dropped.
///
/// While it is held, space of what was overwritten or deleted since does not come back.
pub struct Snapshot {
    sequence: u64,
    taken_at: Duration,
    registry: Arc<Snapshots>,
}

impl Snapshot {
    /// The sequence number of the last write it sees.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    fn point(&self) -> Point {
        (self.sequence, self.taken_at)
    }

    /// When it was taken, by the clock that counts.
    pub(crate) fn taken_at(&self) -> Duration {
        self.taken_at
    }

    /// Whether it belongs to the database with these snapshots.
    pub(crate) fn is_of(&self, registry: &Arc<Snapshots>) -> bool {
        Arc::ptr_eq(&self.registry, registry)
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        if let Some(count) = lock(&self.registry.held).get_mut(&self.point()) {
            *count += 1;
        }
        Self {
            sequence: self.sequence,
            taken_at: self.taken_at,
            registry: Arc::clone(&self.registry),
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut held = lock(&self.registry.held);
        let is_oldest = held.keys().next() == Some(&self.point());
        let Some(count) = held.get_mut(&self.point()) else {
            return;
        };
        *count -= 1;
        if *count > 0 {
            return;
        }
        held.remove(&self.point());
        drop(held);
        if is_oldest && let Some(act) = self.registry.oldest_released.get() {
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
