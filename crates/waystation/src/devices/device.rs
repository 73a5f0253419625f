//! One device: where its data is, as the [table](super::table) knows it.

use super::covering::CoveringSequences;
use super::handoff::Frozen;
use super::prefix::Prefix;
use super::residency::{ReadPoint, Residency};
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::sync::{Arc, Mutex, lock};
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// One device.
pub(crate) struct Device {
    prefix: Prefix,
    /// Counted up by every transition.
    pub(super) epoch: AtomicU64,
    pub(super) state: Mutex<DeviceState>,
}

/// Where a device's data is.
#[derive(Default)]
pub(crate) struct DeviceState {
    /// The residency that takes its writes or is about to settle.
    pub(crate) current: Option<Arc<Residency>>,
    /// Residencies that are over and that a reader may still read.
    pub(crate) past: Vec<Arc<Residency>>,
    /// Writes from this sequence number on go to the memtable.
    pub(crate) lower_since: Option<u64>,
    /// Whether the tree or a memtable may hold anything of it.
    pub(crate) in_tree: bool,
    /// Departures whose graves are not retired.
    pub(crate) covering: CoveringSequences,
    /// What settled so far, for the curious.
    pub(crate) settled_records: u64,
    pub(crate) settled_bytes: u64,
    /// Its hand-off to another engine, as long as that is not over.
    pub(crate) frozen: Option<Frozen>,
    /// How many engines have handed it on.
    pub(crate) tenure: u64,
    /// Whether it is in no table any more: who looked it up before looks again.
    pub(crate) is_forgotten: bool,
}

/// A device, found by its prefix.
pub(super) struct ByPrefix(pub(super) Arc<Device>);

impl Borrow<[u8]> for ByPrefix {
    fn borrow(&self) -> &[u8] {
        self.0.prefix()
    }
}

impl Hash for ByPrefix {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.prefix().hash(state);
    }
}

impl PartialEq for ByPrefix {
    fn eq(&self, other: &Self) -> bool {
        self.0.prefix() == other.0.prefix()
    }
}

impl Eq for ByPrefix {}

impl Device {
    pub(super) fn new(prefix: &[u8], in_tree: bool) -> Self {
        Self {
            prefix: prefix.into(),
            epoch: AtomicU64::new(0),
            state: Mutex::new(DeviceState {
                in_tree,
                ..DeviceState::default()
            }),
        }
    }

    /// What its keys begin with.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Looks at the state.
    pub(crate) fn with_state<T>(&self, look: impl FnOnce(&mut DeviceState) -> T) -> T {
        look(&mut lock(&self.state))
    }

    /// The residency whose index a reader at `point` has to look at.
    pub(crate) fn residency_at(&self, point: ReadPoint) -> Option<Arc<Residency>> {
        lock(&self.state).residency_at(point)
    }

    pub(super) fn transition<T>(&self, change: impl FnOnce(&mut DeviceState) -> T) -> T {
        let mut state = lock(&self.state);
        self.epoch.fetch_add(1, SeqCst);
        change(&mut state)
    }
}

impl DeviceState {
    /// The residency that takes the writes of the device of `prefix`; if there is none, one arrives at `now`.
    pub(super) fn residency(
        &mut self,
        prefix: &[u8],
        now: impl FnOnce() -> Duration,
    ) -> &Arc<Residency> {
        self.current
            .get_or_insert_with(|| Arc::new(Residency::new(prefix, now())))
    }

    pub(super) fn residency_at(&self, point: ReadPoint) -> Option<Arc<Residency>> {
        let mut residencies = self.current.iter().chain(&self.past);
        residencies
            .find(|residency| residency.is_seen_at(point))
            .cloned()
    }

    /// Whether anything is known of the device that a table must remember.
    pub(crate) fn is_empty(&self) -> bool {
        self.current
            .as_ref()
            .is_none_or(|residency| !residency.has_begun())
            && self.past.is_empty()
            && self.lower_since.is_none()
            && self.covering.is_empty()
            && self.frozen.is_none()
    }

    /// Whether a reader of now may see anything of it.
    pub(crate) fn is_present(&self) -> bool {
        self.current
            .as_ref()
            .is_some_and(|residency| residency.has_begun())
            || self.lower_since.is_some()
            || (self.in_tree && self.covering.is_empty())
    }
}
