//! Reaping: the device table gives things up when no reader needs it any more: indexes of residencies that are over, and devices of which
//! nothing is left.

use super::index::Index;
use super::table::{Device, DeviceTable, LOCKED};
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{Arc, lock};

/// What was taken out of the table.
#[derive(Default)]
pub(crate) struct Reaped {
    /// To be dropped at low priority.
    pub(crate) indexes: Vec<Index>,
    /// Devices that may be forgotten.
    pub(crate) empty: Vec<Arc<Device>>,
    /// Whether a residency was among them that left on its way to the tree.
    pub(crate) has_left: bool,
}

impl DeviceTable {
    /// How many residencies are over whose index is still there.
    pub(crate) fn count_over(&self) -> usize {
        lock(&self.over).len()
    }

    /// From which sequence numbers to which (both excluded) residencies were on their way to the tree that departed before they
    /// came there, and that a reader may still read. In order, and apart from each other: many residencies switch at once.
    pub(crate) fn left_on_the_way(&self) -> Vec<(u64, u64)> {
        let over = lock(&self.over);
        let mut spans: Vec<_> = over.iter().filter_map(|it| it.left_on_the_way()).collect();
        drop(over);
        spans.sort_unstable();
        spans.dedup_by(|next, last| {
            let meets = next.0 < last.1;
            if meets {
                last.1 = last.1.max(next.1);
            }
            meets
        });
        spans
    }

    /// Gives up the indexes of residencies that no reader at `oldest_snapshot` or later needs, `at_most` so many.
    pub(crate) fn reap(&self, oldest_snapshot: u64, at_most: usize) -> Reaped {
        let due: Vec<_> = lock(&self.over)
            .extract_if(.., |residency| residency.is_over(oldest_snapshot))
            .take(at_most)
            .collect();
        let mut reaped = Reaped::default();
        if due.is_empty() {
            return reaped;
        }
        // A reader that looked before, and misses something now, starts over. Before anything goes: between the two a reader might miss
        // it and not hear of it.
        self.generation.fetch_add(1, SeqCst);
        for residency in &due {
            if let Some(device) = self.get(residency.prefix()) {
                let is_empty = device.with_state(|state| {
                    state.past.retain(|past| !Arc::ptr_eq(past, residency));
                    state.is_empty()
                });
                self.residents.review(&device);
                reaped.empty.extend(is_empty.then_some(device));
            }
        }
        for residency in due {
            reaped.has_left |= residency.left_on_the_way().is_some();
            let (index, bytes) = residency.reap();
            self.note_shrinking(bytes);
            reaped.indexes.push(index);
        }
        reaped
    }

    /// Forgets those of `devices` of which nothing is left. Under the front's lock: a writer that has looked one
    /// up has no place in the log yet, and looks again.
    pub(crate) fn forget(&self, devices: &[Arc<Device>]) {
        for device in devices {
            let mut shard = self.shard(device.prefix()).write().expect(LOCKED);
            let mut order = self.order.write().expect(LOCKED);
            let is_forgotten = device.transition(|state| {
                state.is_forgotten = state.is_empty();
                state.is_forgotten
            });
            if is_forgotten {
                shard.remove(device.prefix());
                order.remove(device.prefix());
                self.residents.remove(device.prefix());
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use crate::devices::index::Entry;
    use crate::devices::ledger::Ledger;
    use crate::devices::table::DeviceTable;
    use crate::options::Extractor;
    use std::time::Duration;

    #[test]
    fn no_more_is_reaped_than_was_asked_for_and_nothing_that_is_read() {
        let table = DeviceTable::new(Extractor::until(b':'), true, Ledger::default());
        for sequence in 1..=5 {
            let prefix = format!("{sequence}:");
            let target = table.target(prefix.as_bytes(), || Duration::ZERO);
            let residency = target.expect("not barred").residency.expect("it arrives");
            table.begin(&residency, sequence * 100, sequence);
            let value = None;
            table.note_growth(residency.insert(b"key", &Entry { sequence, value }));
            table.depart(prefix.as_bytes(), sequence + 10);
        }
        assert_eq!(table.count_over(), 5);
        // A reader reads at 13: a later departure hides nothing from it.
        for (at_most, reaped, left) in [(2, 2, 3), (2, 1, 2), (2, 0, 2)] {
            let some = table.reap(13, at_most);
            assert_eq!((some.indexes.len(), some.empty.len()), (reaped, reaped));
            table.forget(&some.empty);
            assert_eq!((table.count_over(), table.len()), (left, left));
        }
        assert!(table.index_bytes() > 0);
        table.forget(&table.reap(99, usize::MAX).empty);
        assert_eq!((table.len(), table.index_bytes()), (0, 0));
    }
}
