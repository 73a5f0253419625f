//! A resident: one stay of a device in the upper level.
//!
//! ```text
//!   first write            switch X                 settled Z
//!   ---+----------------------+-------------------------+--------> sequence numbers
//!      |  writes: the index   |  writes: the memtable   |  the index goes, once nobody reads below Z
//! ```
//!
//! or it ends with a departure, at any time. The sequence number of its first write names the stay (the
//! *incarnation*): a device that comes back has another one.
//!
//! What moves a stay on (`begin`, `switch`, `depart`) runs under the front's lock, in the order of the log; so a
//! writer that holds a place in the log knows from its sequence number alone where it belongs.

use super::index::{Entry, Index, Window};
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::sync::{Mutex, lock};
use std::time::Duration;

/// Not yet.
pub(crate) const NEVER: u64 = u64::MAX;

/// One stay of one device.
pub(crate) struct Resident {
    prefix: Box<[u8]>,
    index: Mutex<Index>,
    /// Bytes that `index` was last seen to take.
    bytes: AtomicU64,
    /// Bytes of keys and values in the log.
    log_bytes: AtomicU64,
    first_sequence: AtomicU64,
    first_lsn: AtomicU64,
    /// When it came, by the residency clock (microseconds).
    arrival: AtomicU64,
    /// When it was written to last, by the residency clock (microseconds).
    last_write: AtomicU64,
    switch: AtomicU64,
    /// The sequence number at which readers need the index no longer.
    gone: AtomicU64,
    departed: AtomicU64,
    reaped: AtomicU64,
}

impl Resident {
    pub(super) fn new(prefix: &[u8], arrival: Duration) -> Self {
        Self {
            prefix: prefix.into(),
            index: Mutex::new(Index::default()),
            bytes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            first_sequence: AtomicU64::new(NEVER),
            first_lsn: AtomicU64::new(NEVER),
            arrival: AtomicU64::new(micros(arrival)),
            last_write: AtomicU64::new(micros(arrival)),
            switch: AtomicU64::new(NEVER),
            gone: AtomicU64::new(NEVER),
            departed: AtomicU64::new(NEVER),
            reaped: AtomicU64::new(0),
        }
    }

    /// What its keys begin with.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Whether anything was written.
    pub(crate) fn has_begun(&self) -> bool {
        self.first_sequence() != NEVER
    }

    /// The sequence number of its first write, which names the stay.
    pub(crate) fn first_sequence(&self) -> u64 {
        self.first_sequence.load(SeqCst)
    }

    /// Its first record lies here or behind.
    pub(crate) fn first_lsn(&self) -> u64 {
        self.first_lsn.load(SeqCst)
    }

    /// When it came, by the residency clock.
    pub(crate) fn arrival(&self) -> Duration {
        Duration::from_micros(self.arrival.load(SeqCst))
    }

    /// When it was written to last, as far as anybody noted it.
    pub(crate) fn last_write(&self) -> Duration {
        Duration::from_micros(self.last_write.load(SeqCst))
    }

    pub(crate) fn note_write(&self, now: Duration) {
        self.last_write.store(micros(now), SeqCst);
    }

    /// Writes from this sequence number on are not in the index.
    pub(crate) fn switch(&self) -> u64 {
        self.switch.load(SeqCst)
    }

    pub(super) fn set_switch(&self, sequence: u64) {
        self.switch.store(sequence, SeqCst);
    }

    /// The sequence number of its departure.
    pub(crate) fn departed(&self) -> u64 {
        self.departed.load(SeqCst)
    }

    pub(super) fn set_departed(&self, sequence: u64) {
        self.departed.store(sequence, SeqCst);
        self.gone.fetch_min(sequence, SeqCst);
    }

    /// Notes that everything it wrote is in the tree for those who read at `sequence` or later.
    pub(super) fn set_settled(&self, sequence: u64) {
        self.gone.fetch_min(sequence, SeqCst);
    }

    /// Readers at this sequence number or later do not need the index.
    pub(crate) fn gone(&self) -> u64 {
        self.gone.load(SeqCst)
    }

    /// Notes the first write. Returns whether this was it.
    pub(super) fn begin(&self, lsn: u64, sequence: u64) -> bool {
        let begins = !self.has_begun();
        if begins {
            self.first_lsn.store(lsn, SeqCst);
            self.first_sequence.store(sequence, SeqCst);
        }
        begins
    }

    /// Whether a reader at `snapshot` has to look at its index. Of one that has settled by then everything is in the
    /// tree, and its records may be freed at any moment.
    pub(crate) fn is_seen_at(&self, snapshot: u64) -> bool {
        self.first_sequence() <= snapshot && snapshot < self.gone()
    }

    /// Puts a version into the index; the key is without the prefix. Returns by how much the index grew (bytes).
    pub(crate) fn insert(&self, key: &[u8], entry: &Entry) -> u64 {
        let length = entry.value.map_or(0, |spot| spot.length as usize);
        let in_log = (self.prefix.len() + key.len() + length) as u64;
        self.log_bytes.fetch_add(in_log, SeqCst);
        let mut index = lock(&self.index);
        index.insert(key, entry);
        let bytes = index.memory_bytes() as u64;
        bytes.saturating_sub(self.bytes.swap(bytes, SeqCst))
    }

    /// The newest version of a key up to `snapshot`.
    pub(crate) fn get(&self, key: &[u8], snapshot: u64) -> Option<Entry> {
        lock(&self.index).get(key, snapshot)
    }

    /// Shows `window` a part of the index, as `load` says.
    pub(crate) fn load(&self, window: &mut Window, load: impl FnOnce(&Index, &mut Window)) {
        load(&lock(&self.index), window);
    }

    /// Versions in the index.
    pub(crate) fn records(&self) -> u64 {
        lock(&self.index).len()
    }

    /// Bytes of keys and values in the log.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_bytes.load(SeqCst)
    }

    /// Bytes of memory that the index takes.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.bytes.load(SeqCst)
    }

    /// Gives the index up. Nobody may need it any more.
    pub(super) fn reap(&self) -> Index {
        self.reaped.store(1, SeqCst);
        self.bytes.store(0, SeqCst);
        std::mem::take(&mut lock(&self.index))
    }

    /// Whether its index was given up.
    pub(crate) fn is_reaped(&self) -> bool {
        self.reaped.load(SeqCst) != 0
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
