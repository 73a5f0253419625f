//! The devices that have residencies, by prefix: what a cursor over the upper level walks.
//!
//! Most of a table may be devices that have settled, or departed and left a grave: a cursor that is sent somewhere must
//! not look at all of them for the next one with data up here. A device is here from its first record, or its admission,
//! until none of its residencies has an index. Changes of this list look at the device's state under this lock.

use super::prefix::Prefix;
use super::table::Device;
use crate::sync::{Arc, RwLock};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Why the lock is never poisoned.
const LOCKED: &str = "no thread panics with the residents locked";

/// See the module.
#[derive(Default)]
pub(super) struct Residents(RwLock<BTreeMap<Prefix, Arc<Device>>>);

impl Residents {
    /// `device` has a residency.
    pub(super) fn add(&self, device: &Arc<Device>) {
        let mut all = self.0.write().expect(LOCKED);
        all.insert(device.prefix().into(), Arc::clone(device));
    }

    /// A residency of `device` is over; it may have been the last one.
    pub(super) fn review(&self, device: &Device) {
        let mut all = self.0.write().expect(LOCKED);
        if device.with_state(|state| state.current.is_none() && state.past.is_empty()) {
            all.remove(device.prefix());
        }
    }

    /// The device of `prefix` is forgotten.
    pub(super) fn remove(&self, prefix: &[u8]) {
        self.0.write().expect(LOCKED).remove(prefix);
    }

    /// The first device at or behind `bound`.
    pub(super) fn first_from(&self, bound: Bound<&[u8]>) -> Option<Arc<Device>> {
        let all = self.0.read().expect(LOCKED);
        let mut found = all.range::<[u8], _>((bound, Bound::Unbounded));
        found.next().map(|(_, device)| Arc::clone(device))
    }

    /// The last device before `bound`.
    pub(super) fn last_until(&self, bound: Bound<&[u8]>) -> Option<Arc<Device>> {
        let all = self.0.read().expect(LOCKED);
        let mut found = all.range::<[u8], _>((Bound::Unbounded, bound));
        found.next_back().map(|(_, device)| Arc::clone(device))
    }

    /// Whether `is_it` says yes to a device that may have keys from `start` (included) to `end` (excluded; `None`: no
    /// end).
    pub(super) fn any_within(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        is_it: impl Fn(&Device) -> bool,
    ) -> bool {
        let all = self.0.read().expect(LOCKED);
        let until = (Bound::Unbounded, Bound::Excluded(start));
        let around = all.range::<[u8], _>(until).next_back();
        let around = around.filter(|(prefix, _)| start.starts_with(prefix));
        let end = end.map_or(Bound::Unbounded, Bound::Excluded);
        let inside = all.range::<[u8], _>((Bound::Included(start), end));
        around
            .into_iter()
            .chain(inside)
            .any(|(_, device)| is_it(device))
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use crate::devices::index::Entry;
    use crate::devices::ledger::Ledger;
    use crate::devices::table::{Device, DeviceTable};
    use crate::options::Extractor;
    use crate::sync::Arc;
    use std::ops::Bound;
    use std::time::Duration;

    fn write(table: &DeviceTable, prefix: &[u8], sequence: u64) {
        let target = table.target(prefix, || Duration::ZERO).expect("not barred");
        let residency = target.residency.expect("in the upper level");
        table.begin(&residency, sequence * 100, sequence);
        let value = None;
        table.note_growth(residency.insert(b"key", &Entry { sequence, value }));
    }

    fn prefix(device: Option<Arc<Device>>) -> Option<Vec<u8>> {
        device.map(|device| device.prefix().to_vec())
    }

    #[test]
    fn a_cursor_meets_devices_with_residencies_alone() {
        let table = DeviceTable::new(Extractor::until(b':'), true, Ledger::default());
        for (name, sequence) in [(b"a:", 1), (b"b:", 2), (b"c:", 3)] {
            write(&table, name, sequence);
        }
        let first = || prefix(table.first_from(Bound::Unbounded));
        let last = || prefix(table.last_until(Bound::Unbounded));
        let residencies = table.residencies(|_| true);
        // One settles, one departs; both go once no reader is below that.
        assert!(table.switch(&residencies[0], 4));
        table.settled(&residencies[0], 5);
        table.depart(b"c:", 6);
        table.reap(4, usize::MAX);
        assert_eq!(
            (first(), last()),
            (Some(b"a:".to_vec()), Some(b"c:".to_vec()))
        );
        assert!(table.may_hold(b"a:", Some(b"b:"), 9));
        table.reap(6, usize::MAX);
        assert_eq!(
            (first(), last()),
            (Some(b"b:".to_vec()), Some(b"b:".to_vec()))
        );
        assert!(!table.may_hold(b"a:", Some(b"b:"), 9));
        assert_eq!(table.len(), 3);
        // They come back.
        table.depart(b"a:", 7);
        write(&table, b"a:", 8);
        write(&table, b"c:", 9);
        assert_eq!(
            (first(), last()),
            (Some(b"a:".to_vec()), Some(b"c:".to_vec()))
        );
    }
}
