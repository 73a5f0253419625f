//! A residency: one residency of a device in the upper level.
//!
//! ```text
//!   first write            switch X                 settled Z
//!   ---+----------------------+-------------------------+--------> sequence numbers
//!      |  writes: the index   |  writes: the memtable   |  the index goes, once no reader is below Z
//! ```
//!
//! or it ends with a departure, at any time. The sequence number of its first write names the residency (the
//! *incarnation*): a device that comes back has another one.
//!
//! A residency that came from another engine is *published* after it was written; until then no reader sees it.
//!
//! What moves a residency on (`begin`, `switch`, `depart`) runs under the front's lock, in the order of the log; so a
//! writer that holds a place in the log knows from its sequence number alone where it belongs.

use super::index::{Entry, Index, Leaves, Window};
use crate::storage::as_micros;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use crate::sync::{Mutex, lock, lower};
use std::time::Duration;
use waystation_format::checksum;

/// Not yet.
pub(crate) const NEVER: u64 = u64::MAX;

/// From where a reader reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadPoint {
    /// The highest sequence number that counts.
    pub(crate) snapshot: u64,
    /// The read state through which memtables and tree are looked at.
    pub(crate) generation: u64,
}

/// One residency of one device.
pub(crate) struct Residency {
    prefix: Box<[u8]>,
    index: Mutex<Index>,
    /// Bytes that `index` was last seen to take.
    bytes: AtomicU64,
    /// Bytes of keys and values in the log.
    log_bytes: AtomicU64,
    first_sequence: AtomicU64,
    first_lsn: AtomicU64,
    /// Readers below this sequence number do not see it.
    published: AtomicU64,
    /// When it came, by the residency clock (microseconds).
    arrival: AtomicU64,
    /// When it was written to last, by the residency clock (microseconds). While it is coming from another engine:
    /// since when its stream is waited for, the end of time if it is not.
    last_write: AtomicU64,
    switch: AtomicU64,
    /// The sequence number at which readers need the index no longer.
    gone: AtomicU64,
    departed: AtomicU64,
    /// The read state from which on its versions are in the tree.
    installed: AtomicU64,
    /// Whether it is on its way to the tree.
    held: AtomicBool,
    /// Whether the tree or a memtable holds something that it came with.
    mixed: AtomicBool,
    reaped: AtomicBool,
}

impl Residency {
    /// A residency without records, which comes now.
    pub(crate) fn new(prefix: &[u8], arrival: Duration) -> Self {
        Self {
            prefix: prefix.into(),
            index: Mutex::new(Index::new(checksum::crc32c(prefix))),
            bytes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            first_sequence: AtomicU64::new(NEVER),
            first_lsn: AtomicU64::new(NEVER),
            published: AtomicU64::new(NEVER),
            arrival: AtomicU64::new(as_micros(arrival)),
            last_write: AtomicU64::new(as_micros(arrival)),
            switch: AtomicU64::new(NEVER),
            gone: AtomicU64::new(NEVER),
            departed: AtomicU64::new(NEVER),
            installed: AtomicU64::new(NEVER),
            held: AtomicBool::new(false),
            mixed: AtomicBool::new(false),
            reaped: AtomicBool::new(false),
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

    /// The sequence number of its first write, which names the residency.
    pub(crate) fn first_sequence(&self) -> u64 {
        self.first_sequence.load(SeqCst)
    }

    /// Its first record lies here or behind.
    pub(crate) fn first_lsn(&self) -> u64 {
        self.first_lsn.load(SeqCst)
    }

    /// Readers below this sequence number do not see it.
    pub(crate) fn published(&self) -> u64 {
        self.published.load(SeqCst)
    }

    /// Shows it to readers at `sequence` or later.
    pub(super) fn publish(&self, sequence: u64) {
        self.published.store(sequence, SeqCst);
    }

    /// Whether no reader is at a sequence number at which it was written but not published. Its versions may be
    /// where that is not looked at: in the tree.
    pub(crate) fn is_whole_since(&self, oldest_snapshot: u64) -> bool {
        self.published() == self.first_sequence() || self.published() <= oldest_snapshot
    }

    /// When it came, by the residency clock.
    pub(crate) fn arrival(&self) -> Duration {
        Duration::from_micros(self.arrival.load(SeqCst))
    }

    /// When it was written to last, as far as it was noted.
    pub(crate) fn last_write(&self) -> Duration {
        Duration::from_micros(self.last_write.load(SeqCst))
    }

    pub(crate) fn note_write(&self, now: Duration) {
        self.last_write.store(as_micros(now), SeqCst);
    }

    /// Whether a part of it has come from another engine, and the rest is awaited.
    pub(crate) fn is_coming(&self) -> bool {
        self.has_begun() && self.published() == NEVER && !self.is_reaped()
    }

    /// Notes that the stream is waited for with which it comes, or not.
    pub(crate) fn note_waiting(&self, since: Option<Duration>) {
        self.last_write
            .store(since.map_or(NEVER, as_micros), SeqCst);
    }

    /// Since when its stream is waited for, if it is coming and that is so.
    pub(crate) fn waiting_since(&self) -> Option<Duration> {
        let since = self.last_write.load(SeqCst);
        (since != NEVER).then(|| Duration::from_micros(since))
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
        lower(&self.gone, sequence);
    }

    /// Notes that everything it wrote is in the tree for readers at `sequence` or later.
    pub(super) fn set_settled(&self, sequence: u64) {
        lower(&self.gone, sequence);
    }

    /// Readers at this sequence number or later do not need the index.
    pub(crate) fn gone(&self) -> u64 {
        self.gone.load(SeqCst)
    }

    /// Keeps the index, and the log it needs, until [`Residency::let_go`], even if the device departs meanwhile.
    pub(crate) fn hold(&self) {
        self.held.store(true, SeqCst);
    }

    /// Ends [`Residency::hold`].
    pub(crate) fn let_go(&self) {
        self.held.store(false, SeqCst);
    }

    /// Whether no reader at `oldest_snapshot` or later needs the index, and none holds it.
    pub(crate) fn is_over(&self, oldest_snapshot: u64) -> bool {
        self.gone() <= oldest_snapshot && !self.held.load(SeqCst)
    }

    /// Notes that it came with keys that expire: those are in the memtable.
    pub(super) fn set_mixed(&self) {
        self.mixed.store(true, SeqCst);
    }

    /// Whether the tree or a memtable holds something that it came with, and that is not hidden by a departure.
    pub(crate) fn is_mixed(&self) -> bool {
        self.mixed.load(SeqCst)
    }

    /// Notes the first write. Returns whether this was it. It is not published.
    pub(super) fn begin(&self, lsn: u64, sequence: u64) -> bool {
        let begins = !self.has_begun();
        if begins {
            self.first_lsn.store(lsn, SeqCst);
            self.first_sequence.store(sequence, SeqCst);
        }
        begins
    }

    /// Notes that its versions are in the tree, for readers through read state `generation` or a later one.
    pub(crate) fn set_installed(&self, generation: u64) {
        self.installed.store(generation, SeqCst);
    }

    /// Whether a reader at `point` has to look at its index. Not if its read state has everything in the tree: there a merge
    /// may have dropped a later deletion together with what it deletes, and the index would show that again. And not
    /// if the residency was over by then: its records may go at any moment.
    pub(crate) fn is_seen_at(&self, point: ReadPoint) -> bool {
        self.published() <= point.snapshot
            && point.snapshot < self.gone()
            && point.generation < self.installed.load(SeqCst)
    }

    /// The sequence numbers of its switch and of its departure, if it departed before it was in the tree. Deletions of
    /// between the two are graves, and what they hide is in the index alone.
    pub(super) fn left_on_the_way(&self) -> Option<(u64, u64)> {
        let (switch, departed) = (self.switch(), self.departed());
        let has_left = switch != NEVER && departed != NEVER;
        (has_left && self.installed.load(SeqCst) == NEVER).then_some((switch, departed))
    }

    /// Puts a version into the index; the key is without the prefix. Returns by how much the index grew (bytes; it may
    /// have shrunk). Of an index that was given up nothing is left: replayed records may come after that.
    pub(crate) fn insert(&self, key: &[u8], entry: &Entry) -> i64 {
        let length = entry.value.map_or(0, |spot| spot.length as usize);
        let in_log = (self.prefix.len() + key.len() + length) as u64;
        self.log_bytes.fetch_add(in_log, SeqCst);
        let mut index = lock(&self.index);
        if self.is_reaped() {
            return 0;
        }
        index.insert(key, entry);
        let bytes = index.memory_bytes() as u64;
        bytes.cast_signed() - self.bytes.swap(bytes, SeqCst).cast_signed()
    }

    /// Puts versions into the index, which must be new and in order, before any other thread knows of the residency.
    pub(crate) fn restore(&self, versions: &Window) {
        let in_log = |(key, entry): (&[u8], &Entry)| {
            let length = entry.value.map_or(0, |spot| spot.length as usize);
            (self.prefix.len() + key.len() + length) as u64
        };
        let in_log: u64 = versions.iter().map(in_log).sum();
        self.log_bytes.fetch_add(in_log, SeqCst);
        let mut index = lock(&self.index);
        index.add(versions);
        self.bytes.store(index.memory_bytes() as u64, SeqCst);
    }

    /// The newest version of a key up to `snapshot`.
    pub(crate) fn get(&self, key: &[u8], snapshot: u64) -> Option<Entry> {
        lock(&self.index).ordered().get(key, snapshot)
    }

    /// Shows `window` a part of the index, as `load` says.
    pub(crate) fn load(&self, window: &mut Window, load: impl FnOnce(&Leaves, &mut Window)) {
        load(lock(&self.index).ordered(), window);
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

    /// Gives the index up, and tells how many bytes it took. No reader may need it any more.
    pub(super) fn reap(&self) -> (Index, u64) {
        let mut index = lock(&self.index);
        self.reaped.store(true, SeqCst);
        let bytes = self.bytes.swap(0, SeqCst);
        (std::mem::take(&mut *index), bytes)
    }

    /// Whether its index was given up.
    pub(crate) fn is_reaped(&self) -> bool {
        self.reaped.load(SeqCst)
    }
}
