//! The device table: which devices there are, and where their data is (the object mapping table of P1).
//!
//! ```text
//!              put                     switch                   settled
//!   (absent) --------> upper level -----------> settling ----------------> tree
//!       ^                   |  depart               |  depart                |  depart
//!       +-------------------+-----------------------+------------------------+
//!         the residency's index goes when no reader is below the departure; its data in the tree gets a covering sequence
//! ```
//!
//! Transitions run under the front's lock, in the order of the log; each counts the device's `epoch` up. A writer
//! looks the device up without that lock, and its reservation, which holds it, goes through only if the epoch is
//! still the same.
//!
//! Readers choose their sequence number first and look then, so they find every residency with writes up to it. What
//! is taken away from under them (an index, a device, a covering sequence) waits until no snapshot needs it, and `generation` is
//! counted up before: a read without a snapshot that sees it change starts over.
//!
//! A hand-off to another engine is told in [`handoff`](super::handoff).
//!
//! Lock order: front, shard, order, residents, device, then arrivals, the coming ones or the ledger.

use super::device::ByPrefix;
pub(crate) use super::device::{Device, DeviceState};
use super::ledger::{Ledger, Stub};
use super::prefix::Prefix;
use super::residency::{NEVER, ReadPoint, Residency};
use super::residents::Residents;
use crate::options::Extractor;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::sync::{Arc, Mutex, RwLock, lock};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;
use waystation_format::checksum;

const SHARDS: usize = 64;
/// Why locks on the table are never poisoned.
pub(super) const LOCKED: &str = "no thread panics with the device table locked";

/// Why a device takes no writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Barred {
    /// It is being handed on to this destination.
    Moving(Arc<str>),
    /// It was.
    Moved(Arc<str>),
}

impl Barred {
    pub(super) fn moved(stub: Stub) -> Self {
        Self::Moved(stub.destination)
    }
}

/// Where a write to a device goes, if nothing changes before it has its place in the log.
pub(crate) struct Target {
    device: Arc<Device>,
    epoch: u64,
    /// `None`: to the memtable.
    pub(crate) residency: Option<Arc<Residency>>,
}

impl Target {
    /// Whether the device is as it was looked up. Only the front's lock keeps the answer true.
    pub(crate) fn holds(&self) -> bool {
        self.device.epoch.load(SeqCst) == self.epoch
    }
}

/// What a reader at one snapshot has to look at for a device's key.
pub(crate) struct Sight {
    /// The residency it sees.
    pub(crate) residency: Option<Arc<Residency>>,
    /// Whether the memtables and the tree may hold anything it sees.
    pub(crate) in_tree: bool,
}

/// What a departure met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    /// No such device.
    Unknown,
    /// A device with nothing in the tree.
    FromUpper,
    /// A device of which the tree or a memtable may hold something.
    FromTree,
}

/// All devices.
pub(crate) struct DeviceTable {
    extractor: Extractor,
    /// Whether every device that has data is in this table.
    is_complete: bool,
    shards: Vec<RwLock<HashSet<ByPrefix>>>,
    pub(super) order: RwLock<BTreeMap<Prefix, Arc<Device>>>,
    pub(super) residents: Residents,
    /// Residencies in the order of their first records, from the oldest whose index is needed.
    pub(super) arrivals: Mutex<VecDeque<Arc<Residency>>>,
    /// Residencies that are coming from other engines, and some that have come or were given up since the last look at them.
    pub(super) coming: Mutex<Vec<Arc<Residency>>>,
    /// Residencies that are over and whose index is still there.
    pub(super) over: Mutex<Vec<Arc<Residency>>>,
    /// Devices with covering sequences.
    departed_from_tree: Mutex<BTreeMap<Prefix, Arc<Device>>>,
    /// Devices that are being handed on.
    pub(super) moving: Mutex<BTreeMap<Prefix, Arc<Device>>>,
    pub(super) generation: AtomicU64,
    index_bytes: AtomicU64,
    /// Records that settled since the table was made.
    settled_records: AtomicU64,
    pub(crate) ledger: Ledger,
}

impl DeviceTable {
    /// An empty table. It is complete if nothing was ever written to the directory without it.
    pub(crate) fn new(extractor: Extractor, is_complete: bool, ledger: Ledger) -> Self {
        Self {
            extractor,
            is_complete,
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            order: RwLock::default(),
            residents: Residents::default(),
            arrivals: Mutex::default(),
            coming: Mutex::default(),
            over: Mutex::default(),
            departed_from_tree: Mutex::default(),
            moving: Mutex::default(),
            generation: AtomicU64::new(0),
            index_bytes: AtomicU64::new(0),
            settled_records: AtomicU64::new(0),
            ledger,
        }
    }

    /// What names the device of a key.
    pub(crate) fn extractor(&self) -> Extractor {
        self.extractor
    }

    /// Whether a device that is not in it has no data.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Counts what was taken away from readers.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(SeqCst)
    }

    /// Bytes that all indexes take.
    pub(crate) fn index_bytes(&self) -> u64 {
        // That one has shrunk may be noted before that it had grown.
        let bytes = self.index_bytes.load(SeqCst).cast_signed();
        bytes.max(0).cast_unsigned()
    }

    /// How many records settled.
    pub(crate) fn settled_records(&self) -> u64 {
        self.settled_records.load(SeqCst)
    }

    /// Notes that indexes grew by so much, or shrank.
    pub(crate) fn note_growth(&self, bytes: i64) {
        if bytes != 0 {
            self.index_bytes.fetch_add(bytes.cast_unsigned(), SeqCst);
        }
    }

    /// Notes that an index was given up.
    pub(super) fn note_shrinking(&self, bytes: u64) {
        self.index_bytes.fetch_sub(bytes, SeqCst);
    }

    /// How many devices there are.
    pub(crate) fn len(&self) -> usize {
        self.order.read().expect(LOCKED).len()
    }

    /// The device whose keys begin with `prefix`.
    pub(crate) fn get(&self, prefix: &[u8]) -> Option<Arc<Device>> {
        self.shard(prefix)
            .read()
            .expect(LOCKED)
            .get(prefix)
            .map(|ByPrefix(device)| Arc::clone(device))
    }

    /// The first device with residencies at or behind `bound`, and so on with the last one's prefix excluded.
    pub(crate) fn first_from(&self, bound: Bound<&[u8]>) -> Option<Arc<Device>> {
        self.residents.first_from(bound)
    }

    /// The last device with residencies before `bound`.
    pub(crate) fn last_until(&self, bound: Bound<&[u8]>) -> Option<Arc<Device>> {
        self.residents.last_until(bound)
    }

    /// All devices by prefix.
    pub(crate) fn all(&self) -> Vec<Arc<Device>> {
        self.order.read().expect(LOCKED).values().cloned().collect()
    }

    /// The devices with covering sequences, by prefix.
    pub(crate) fn departed_from_tree(&self) -> Vec<Arc<Device>> {
        lock(&self.departed_from_tree).values().cloned().collect()
    }

    /// Where a write to the device of `prefix` goes. A device that is not there arrives, unless it was handed on.
    pub(crate) fn target(
        &self,
        prefix: &[u8],
        now: impl FnOnce() -> Duration,
    ) -> Result<Target, Barred> {
        let arrives = || match self.ledger.stub(prefix) {
            Some(stub) => Err(Barred::moved(stub)),
            None => Ok(self.add(prefix)),
        };
        loop {
            let device = self.get(prefix).map_or_else(arrives, Ok)?;
            let mut state = lock(&device.state);
            if state.is_forgotten {
                continue;
            }
            if let Some(barred) = state.barred() {
                return Err(barred);
            }
            // While it was looked up it may have been handed on, or be a device that has left and is not forgotten.
            if state.current.is_none()
                && state.lower_since.is_none()
                && let Some(stub) = self.ledger.stub(prefix)
            {
                return Err(Barred::moved(stub));
            }
            let goes_up = state.lower_since.is_none();
            return Ok(Target {
                epoch: device.epoch.load(SeqCst),
                residency: goes_up.then(|| Arc::clone(state.residency(prefix, now))),
                device: Arc::clone(&device),
            });
        }
    }

    /// The devices of `targets` that have nothing, to be forgotten.
    pub(crate) fn unused<'t>(targets: impl Iterator<Item = &'t Target>) -> Vec<Arc<Device>> {
        let devices = targets.map(|target| &target.device);
        let unused = devices.filter(|it| it.with_state(|state| state.is_empty()));
        unused.cloned().collect()
    }

    /// Looks at the device of `prefix` for a write of the past: if it is not there it arrives, and nothing bars it.
    pub(super) fn with_past<T>(
        &self,
        prefix: &[u8],
        look: impl FnOnce(&mut DeviceState) -> T,
    ) -> T {
        let shard = self.shard(prefix).read().expect(LOCKED);
        if let Some(ByPrefix(device)) = shard.get(prefix) {
            return device.with_state(look);
        }
        drop(shard);
        self.add(prefix).with_state(look)
    }

    /// Counts anew what indexes take that were filled by others.
    pub(super) fn count_index_bytes(&self) {
        let of_device = |device: Arc<Device>| {
            device.with_state(|state| {
                let residencies = state.current.iter().chain(&state.past);
                residencies
                    .map(|residency| residency.index_bytes())
                    .sum::<u64>()
            })
        };
        let bytes = self.all().into_iter().map(of_device).sum();
        self.index_bytes.store(bytes, SeqCst);
    }

    /// Notes that `residency` gets a record. Under the front's lock.
    pub(crate) fn begin(&self, residency: &Arc<Residency>, lsn: u64, sequence: u64) {
        if residency.begin(lsn, sequence) {
            residency.publish(sequence);
            lock(&self.arrivals).push_back(Arc::clone(residency));
            if let Some(device) = self.get(residency.prefix()) {
                self.residents.add(&device);
            }
        }
    }

    /// What a reader at `point` looks at; `None` if the device has no data.
    pub(crate) fn sight(&self, prefix: &[u8], point: ReadPoint) -> Option<Sight> {
        let Some(device) = self.get(prefix) else {
            return (!self.is_complete).then_some(Sight {
                residency: None,
                in_tree: true,
            });
        };
        let state = lock(&device.state);
        Some(Sight {
            residency: state.residency_at(point),
            in_tree: state.in_tree,
        })
    }

    /// Makes the device of `prefix` depart at `sequence`. Under the front's lock. Returns whether it was there, and
    /// whether the tree or a memtable may hold anything of it: then that is to be hidden by a grave.
    pub(crate) fn depart(&self, prefix: &[u8], sequence: u64) -> Departure {
        let device = match self.get(prefix) {
            Some(device) => device,
            None if self.is_complete => return Departure::Unknown,
            None => self.add(prefix),
        };
        if !device.with_state(|state| state.is_present()) {
            return Departure::Unknown;
        }
        let in_tree = device.transition(|state| {
            (state.lower_since, state.frozen, state.tenure) = (None, None, 0);
            state.past.extend(
                state
                    .current
                    .take()
                    .filter(|residency| residency.has_begun()),
            );
            for residency in state
                .past
                .iter()
                .filter(|residency| residency.departed() == NEVER)
            {
                if residency.gone() == NEVER {
                    lock(&self.over).push(Arc::clone(residency));
                }
                residency.set_departed(sequence);
            }
            if state.in_tree {
                state.covering.add(sequence);
                state.settled_records = 0;
                state.settled_bytes = 0;
            }
            state.in_tree
        });
        if device.with_state(|state| !state.covering.is_empty()) {
            lock(&self.departed_from_tree).insert(device.prefix().into(), Arc::clone(&device));
        }
        if in_tree {
            Departure::FromTree
        } else {
            Departure::FromUpper
        }
    }

    /// Whether the index of a residency that is needed still may hold a version below `sequence` of a key from `start`
    /// (included) to `end` (excluded; `None`: no end).
    pub(crate) fn may_hold(&self, start: &[u8], end: Option<&[u8]>, sequence: u64) -> bool {
        let is_older = |residency: &Arc<Residency>| {
            residency.has_begun() && residency.first_sequence() < sequence && !residency.is_reaped()
        };
        self.residents.any_within(start, end, |device| {
            device.with_state(|it| it.current.iter().chain(&it.past).any(is_older))
        })
    }

    /// Sends the writes of `residency` to the memtable from `sequence` on. Under the front's lock. Returns whether
    /// it was in the upper level.
    pub(crate) fn switch(&self, residency: &Arc<Residency>, sequence: u64) -> bool {
        let Some(device) = self.get(residency.prefix()) else {
            return false;
        };
        let is_current = |state: &DeviceState| {
            let current = state.current.as_ref();
            current.is_some_and(|current| Arc::ptr_eq(current, residency))
                && state.lower_since.is_none()
        };
        if !device.with_state(|state| is_current(state)) {
            return false;
        }
        device.transition(|state| {
            state.lower_since = Some(sequence);
            state.in_tree = true;
            residency.set_switch(sequence);
        });
        true
    }

    /// Notes that all of `residency` is in the tree for readers at `sequence` or later.
    pub(crate) fn settled(&self, residency: &Arc<Residency>, sequence: u64) {
        let Some(device) = self.get(residency.prefix()) else {
            return;
        };
        let (records, bytes) = (residency.records(), residency.log_bytes());
        self.settled_records.fetch_add(records, SeqCst);
        device.with_state(|state| {
            if residency.gone() == NEVER {
                lock(&self.over).push(Arc::clone(residency));
            }
            residency.set_settled(sequence);
            // It may have departed meanwhile.
            let is_this = |current: &mut Arc<Residency>| Arc::ptr_eq(current, residency);
            if let Some(current) = state.current.take_if(is_this) {
                state.past.push(current);
                state.settled_records += records;
                state.settled_bytes += bytes;
            }
        });
    }

    /// The residencies that can be seen and whose index is there, the oldest first, for as long as `takes` says so.
    pub(crate) fn residencies(
        &self,
        mut takes: impl FnMut(&Residency) -> bool,
    ) -> Vec<Arc<Residency>> {
        let arrivals = lock(&self.arrivals);
        let is_there =
            |residency: &&Arc<Residency>| !residency.is_reaped() && residency.published() != NEVER;
        let there = arrivals.iter().filter(is_there);
        there
            .take_while(|residency| takes(residency))
            .cloned()
            .collect()
    }

    /// The last sequence number up to `sequence` at which each residency that has begun is visible: one that came from another
    /// engine, or is coming, is invisible from its first write until it is published. Leaving one of them out may reach
    /// back to before another was published, which is left out then, too.
    pub(crate) fn whole_through(&self, mut sequence: u64) -> u64 {
        let arrivals = lock(&self.arrivals);
        loop {
            let is_unseen = |residency: &&Arc<Residency>| {
                !residency.is_reaped()
                    && residency.first_sequence() <= sequence
                    && sequence < residency.published()
            };
            let unseen = arrivals.iter().filter(is_unseen);
            match unseen.map(|residency| residency.first_sequence()).min() {
                Some(first) => sequence = first - 1,
                None => return sequence,
            }
        }
    }

    /// The first residency that needs the log: position and sequence number of its first record.
    pub(crate) fn oldest_need(&self) -> Option<(u64, u64)> {
        let mut arrivals = lock(&self.arrivals);
        while arrivals
            .front()
            .is_some_and(|residency| residency.is_reaped())
        {
            arrivals.pop_front();
        }
        let oldest = arrivals.front();
        oldest.map(|residency| (residency.first_lsn(), residency.first_sequence()))
    }

    /// Retires the covering sequences of `device` up to `sequence`.
    pub(crate) fn retire(&self, device: &Device, sequence: u64) {
        // First, as when residencies go.
        self.generation.fetch_add(1, SeqCst);
        let none_left = device.with_state(|state| {
            state.covering.retire(sequence);
            if state.covering.is_empty() && state.lower_since.is_none() {
                let current = state.current.as_ref();
                state.in_tree = !self.is_complete || current.is_some_and(|it| it.is_mixed());
            }
            state.covering.is_empty()
        });
        if none_left {
            lock(&self.departed_from_tree).remove(device.prefix());
        }
    }

    pub(super) fn add(&self, prefix: &[u8]) -> Arc<Device> {
        let mut shard = self.shard(prefix).write().expect(LOCKED);
        if let Some(ByPrefix(device)) = shard.get(prefix) {
            return Arc::clone(device);
        }
        let device = Arc::new(Device::new(prefix, !self.is_complete));
        shard.insert(ByPrefix(Arc::clone(&device)));
        let mut order = self.order.write().expect(LOCKED);
        order.insert(prefix.into(), Arc::clone(&device));
        device
    }

    /// Puts back what a checkpoint says of the device of `prefix`.
    pub(crate) fn restore(&self, prefix: &[u8], state: DeviceState) {
        let device = self.get(prefix).unwrap_or_else(|| self.add(prefix));
        if !state.covering.is_empty() {
            lock(&self.departed_from_tree).insert(prefix.into(), Arc::clone(&device));
        }
        if state.frozen.is_some() {
            lock(&self.moving).insert(prefix.into(), Arc::clone(&device));
        }
        device.with_state(|old| *old = state);
        debug_assert!(device.with_state(|state| state.current.is_none() && state.past.is_empty()));
    }

    pub(super) fn shard(&self, prefix: &[u8]) -> &RwLock<HashSet<ByPrefix>> {
        &self.shards[checksum::crc32c(prefix) as usize % SHARDS]
    }
}
