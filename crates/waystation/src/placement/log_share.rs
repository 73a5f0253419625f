//! The log's share of a fast directory that may hold the only copy: which segments lie there, and how much they may take.
//!
//! The log and the copies compete for the same bytes. What the log would gain is reckoned from its writes: bytes a second,
//! times the seconds that a byte takes longer in the main directory. It gains in proportion to the part of its segments that
//! fits, and nothing before one fits. What copies would gain is the share of reads that the bytes left would serve.
//! [`divide`] weighs both.
//!
//! What a byte takes is an average of late writes. Where the log is written in the main directory alone, the fast one is taken to
//! be faster by and by, until it is tried again: a disturbance there must not keep the log away for good.
//!
//! Until both were measured the log may have all: a database is filled before it is read.
//!
//! Where no writer waits for a sync of the log, it is written in the background, and tables come first: a byte of them spares the
//! reads of a merge, too, and later reads. The log then has the room that all tables of the database would leave.

use super::meters::precise;
use super::report::LogPlacement;
use crate::storage::as_micros;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use crate::sync::{Mutex, lock};
use std::collections::HashMap;
use std::time::Duration;
use waystation_planner::division::{Division, LogGain, divide};

/// A division is weighed anew after so long at least.
const WEIGH_AFTER: Duration = Duration::from_secs(1);
const MIB: f64 = 1_048_576.0;
const MICROS: f64 = 1e6;
/// Writers wait for the log if it is synced so many times before it has written so many bytes: groups of small writes are far below
/// that, and a log that no writer waits for is synced at the end of a segment and each second.
const AWAITED_SYNCS: u32 = 64;
const AWAITED_BYTES: u64 = 4 << 20;
/// Of each rate the last interval makes this part, the ones before the rest.
const WEIGHT_OF_LAST: f64 = 0.75;
/// An interval leaves this part of the weight that earlier writes have in the average. One without writes in the fast directory
/// leaves this part of the time that a byte is taken to need there.
const KEPT: f64 = 0.9;

/// Writes of segments in one of the two directories.
#[derive(Debug, Default)]
pub(super) struct Writes {
    bytes: AtomicU64,
    micros: AtomicU64,
}

impl Writes {
    pub(super) fn note(&self, bytes: usize, elapsed: Duration) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.micros.fetch_add(as_micros(elapsed), Relaxed);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    fn micros(&self) -> u64 {
        self.micros.load(Relaxed)
    }

    /// The seconds that a byte took, on average.
    fn seconds_per_byte(&self) -> Option<f64> {
        seconds_per_byte(precise(self.micros()), precise(self.bytes()))
    }
}

fn seconds_per_byte(micros: f64, bytes: f64) -> Option<f64> {
    (bytes > 0.0).then(|| micros / MICROS / bytes)
}

/// Writes, the late ones more than the ones before.
#[derive(Debug, Default)]
struct Average {
    bytes_before: u64,
    micros_before: u64,
    bytes: f64,
    micros: f64,
}

impl Average {
    /// Takes in what was written since. Returns whether there was anything.
    fn take(&mut self, writes: &Writes) -> bool {
        let (bytes, micros) = (writes.bytes(), writes.micros());
        let is_new = bytes > self.bytes_before;
        if is_new {
            self.bytes = self.bytes * KEPT + precise(bytes - self.bytes_before);
            self.micros = self.micros * KEPT + precise(micros - self.micros_before);
            (self.bytes_before, self.micros_before) = (bytes, micros);
        }
        is_new
    }

    /// Takes a byte to need less time than it did.
    fn hope(&mut self) {
        self.micros *= KEPT;
    }

    fn seconds_per_byte(&self) -> Option<f64> {
        seconds_per_byte(self.micros, self.bytes)
    }
}

/// What copies of blocks would gain.
pub(super) struct CopyGain<'a> {
    /// Slow reads so far, and reads of copies.
    pub(super) reads: u64,
    /// What a copy spares a read (seconds).
    pub(super) seconds: f64,
    /// The share of these reads that so many bytes of copies would serve.
    pub(super) share: &'a dyn Fn(u64) -> f64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct LogShare {
    capacity_bytes: u64,
    /// A new segment in the fast directory is no longer.
    segment_bytes: u64,
    segments: Mutex<Segments>,
    /// The bytes that the log may take, as weighed against copies.
    quota: AtomicU64,
    /// The bytes of all tables, in either directory.
    table_bytes: AtomicU64,
    /// Whether writers wait for syncs, lately.
    is_awaited: AtomicBool,
    lately: Mutex<Lately>,
    main: Writes,
    fast: Writes,
    rates: Mutex<Rates>,
}

/// Bytes and syncs of the log since it was told last whether writers wait for it.
#[derive(Debug, Default)]
struct Lately {
    bytes: u64,
    syncs: u32,
}

/// The segments in both directories, by name: their bytes, and whether they lie in the fast one.
#[derive(Debug, Default)]
struct Segments(HashMap<String, (u64, bool)>);

impl Segments {
    /// The bytes of segments in the fast directory, and how many these are.
    fn placed(&self) -> (u64, u64) {
        let placed = self.0.values().filter(|(_, is_fast)| *is_fast);
        placed.fold((0, 0), |sum, (bytes, _)| (sum.0 + bytes, sum.1 + 1))
    }

    /// The bytes of all segments, and of the longest.
    fn lengths(&self) -> (u64, u64) {
        let lengths = || self.0.values().map(|(bytes, _)| *bytes);
        (lengths().sum(), lengths().max().unwrap_or(0))
    }
}

/// Bytes of the log and reads a second, and what a byte takes, lately.
#[derive(Debug, Default)]
struct Rates {
    at: Duration,
    bytes_before: u64,
    reads_before: u64,
    bytes: f64,
    reads: f64,
    main: Average,
    fast: Average,
}

impl Rates {
    /// Takes an interval in that ends `now`, if it is long enough.
    fn note(&mut self, now: Duration, bytes: u64, reads: u64) -> bool {
        let interval = now.saturating_sub(self.at);
        if interval < WEIGH_AFTER {
            return false;
        }
        let rate = |count: u64| precise(count) / interval.as_secs_f64();
        let mix = |before: f64, last: f64| before + (last - before) * WEIGHT_OF_LAST;
        self.bytes = mix(self.bytes, rate(bytes - self.bytes_before));
        self.reads = mix(self.reads, rate(reads - self.reads_before));
        (self.at, self.bytes_before, self.reads_before) = (now, bytes, reads);
        true
    }
}

impl LogShare {
    /// Of `capacity_bytes`, for segments of at most `segment_bytes`; there are `segments` already: bytes, and whether they lie in
    /// the fast directory.
    pub(super) fn new(
        (capacity_bytes, segment_bytes): (u64, u64),
        segments: HashMap<String, (u64, bool)>,
        now: Duration,
    ) -> Self {
        Self {
            capacity_bytes,
            segment_bytes,
            segments: Mutex::new(Segments(segments)),
            quota: AtomicU64::new(capacity_bytes),
            table_bytes: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            lately: Mutex::default(),
            main: Writes::default(),
            fast: Writes::default(),
            rates: Mutex::new(Rates {
                at: now,
                ..Rates::default()
            }),
        }
    }

    /// The bytes of segments in the fast directory, and how many these are.
    pub(super) fn placed(&self) -> (u64, u64) {
        lock(&self.segments).placed()
    }

    /// The bytes of all `segments`, and of the next one if it is to lie in the fast directory.
    fn all_and_next(&self, segments: &Segments) -> (u64, u64) {
        let (all, longest) = segments.lengths();
        (all, longest.min(self.segment_bytes))
    }

    /// What copies leave to the log: what its segments take, and room for the next one if that may lie there.
    pub(super) fn reserved_bytes(&self) -> u64 {
        let segments = lock(&self.segments);
        let (placed, next) = (segments.placed().0, self.all_and_next(&segments).1);
        let with_next = placed.saturating_add(next);
        if with_next <= self.quota() {
            with_next
        } else {
            placed
        }
    }

    /// What tables leave to the log: room for all its segments and the next one, as far as they may lie there.
    pub(super) fn claimed_bytes(&self) -> u64 {
        let segments = lock(&self.segments);
        let (all, next) = self.all_and_next(&segments);
        let placed = segments.placed().0;
        all.saturating_add(next).min(self.quota()).max(placed)
    }

    /// The bytes that the log may take.
    pub(super) fn quota(&self) -> u64 {
        let weighed = self.quota.load(Relaxed);
        if self.is_awaited.load(Relaxed) {
            return weighed;
        }
        let tables = self.table_bytes.load(Relaxed);
        weighed.min(self.capacity_bytes.saturating_sub(tables))
    }

    /// Notes that a table of `bytes` came, in either directory.
    pub(super) fn add_table(&self, bytes: u64) {
        self.table_bytes.fetch_add(bytes, Relaxed);
    }

    /// Notes that one went that had come.
    pub(super) fn take_table(&self, bytes: u64) {
        let before = self.table_bytes.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "a table that had not come");
    }

    /// Notes a write of `bytes` of a segment, in the fast directory or the main one. A sync has none.
    pub(super) fn note_write(&self, is_fast: bool, bytes: usize, elapsed: Duration) {
        let writes = if is_fast { &self.fast } else { &self.main };
        writes.note(bytes, elapsed);
        let mut lately = lock(&self.lately);
        lately.bytes += bytes as u64;
        lately.syncs += u32::from(bytes == 0);
        let is_awaited = lately.syncs >= AWAITED_SYNCS;
        if is_awaited || lately.bytes >= AWAITED_BYTES {
            self.is_awaited.store(is_awaited, Relaxed);
            *lately = Lately::default();
        }
    }

    /// Notes the new segment `name` of `bytes`. Returns whether it may lie in the fast directory.
    pub(super) fn admit(&self, name: &str, bytes: u64) -> bool {
        let mut segments = lock(&self.segments);
        let with_it = segments.placed().0.saturating_add(bytes);
        // One that was to be long may find room after all: other segments and tables go meanwhile.
        let fits = bytes <= self.segment_bytes && with_it <= self.quota();
        segments.0.insert(name.to_owned(), (bytes, fits));
        fits
    }

    /// Notes that the segment `name` of `bytes` lies in the main directory.
    pub(super) fn keep_out(&self, name: &str, bytes: u64) {
        let mut segments = lock(&self.segments);
        segments.0.insert(name.to_owned(), (bytes, false));
    }

    /// Lets no more segments lie in the fast directory than do now, until they are weighed again.
    pub(super) fn stop_growing(&self) {
        let placed = lock(&self.segments).placed().0;
        self.quota.store(placed, Relaxed);
    }

    /// Notes that there is no segment `name` any more.
    pub(super) fn forget(&self, name: &str) {
        lock(&self.segments).0.remove(name);
    }

    /// Notes that the segment `name` has `bytes`.
    pub(super) fn note_length(&self, name: &str, bytes: u64) {
        if let Some(found) = lock(&self.segments).0.get_mut(name) {
            found.0 = bytes;
        }
    }

    /// Notes a new name of a segment.
    pub(super) fn rename(&self, source: &str, target: &str) {
        let mut segments = lock(&self.segments);
        if let Some(found) = segments.0.remove(source) {
            segments.0.insert(target.to_owned(), found);
        }
    }

    /// Whether the file of the segment `name` had better go than be used again: its room in the fast directory is the copies', or
    /// it lies in the main one, and a new one would fit into the fast one.
    pub(super) fn gives_way(&self, name: &str) -> bool {
        let segments = lock(&self.segments);
        let (placed, quota) = (segments.placed().0, self.quota());
        match segments.0.get(name) {
            Some((_, true)) => placed > quota,
            Some((bytes, false)) => placed.saturating_add(self.segment_bytes.min(*bytes)) <= quota,
            None => false,
        }
    }

    /// The longest that the next segment had better be, in the file of the segment `spare` if there is one, where the directory has
    /// `room` for segments: a short one fits there, and of long ones that do not there are fewer.
    pub(super) fn next_bytes_max(&self, spare: Option<&str>, room: u64) -> u64 {
        let segments = lock(&self.segments);
        let with_next = segments.placed().0.saturating_add(self.segment_bytes);
        let is_fast = match spare.and_then(|name| segments.0.get(name)) {
            Some((_, is_fast)) => *is_fast,
            None => with_next <= self.quota().min(room),
        };
        if is_fast {
            self.segment_bytes
        } else {
            u64::MAX
        }
    }

    /// What users see of it, beside a ring of `ring_bytes` in the fast directory.
    pub(super) fn stats(&self, ring_bytes: u64) -> LogPlacement {
        let (segment_bytes, segments) = self.placed();
        let per_mib = |writes: &Writes| writes.seconds_per_byte().unwrap_or(0.0) * MIB;
        let (fast, main) = (per_mib(&self.fast), per_mib(&self.main));
        let fast_bytes = self.fast.bytes();
        LogPlacement {
            quota_bytes: self.quota(),
            ring_bytes,
            segments,
            segment_bytes,
            fast_bytes,
            main_bytes: self.main.bytes(),
            fast_seconds_per_mib: fast,
            main_seconds_per_mib: main,
            saved_seconds: precise(fast_bytes) / MIB * (main - fast).max(0.0),
        }
    }

    /// Weighs log and copies against each other. Returns the division if it changed.
    pub(super) fn weigh(&self, now: Duration, copies: &CopyGain<'_>) -> Option<Division> {
        let mut rates = lock(&self.rates);
        if !rates.note(now, self.main.bytes() + self.fast.bytes(), copies.reads) {
            return None;
        }
        let (in_main, in_fast) = (rates.main.take(&self.main), rates.fast.take(&self.fast));
        if in_main && !in_fast {
            rates.fast.hope();
        }
        let per_byte =
            rates.main.seconds_per_byte()? - rates.fast.seconds_per_byte().unwrap_or(0.0);
        let (need_bytes, segment_bytes) = self.all_and_next(&lock(&self.segments));
        let log = LogGain {
            // One thread writes the log: it spares no more than all of its time.
            seconds: (rates.bytes * per_byte.max(0.0)).min(1.0),
            need_bytes,
            segment_bytes,
        };
        let reads = rates.reads;
        drop(rates);
        let of_copies = |bytes: u64| (copies.share)(bytes) * reads * copies.seconds;
        let present = self.quota.load(Relaxed);
        let division = divide(&log, &of_copies, self.capacity_bytes, present)?;
        self.quota.store(division.log_bytes, Relaxed);
        Some(division)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn a_segment_lies_there_while_it_fits() {
        let share = LogShare::new((4 * MB, 2 * MB), HashMap::new(), Duration::ZERO);
        assert!(share.admit("a", 2 * MB) && share.admit("b", 2 * MB));
        assert_eq!(share.reserved_bytes(), 4 * MB);
        assert!(!share.admit("c", 1));
        share.rename("a", "d");
        share.forget("a");
        assert_eq!(share.placed(), (4 * MB, 2));
        share.forget("d");
        assert!(share.admit("e", 2 * MB));
        share.keep_out("e", 2 * MB);
        assert_eq!(share.placed(), (2 * MB, 1));
        assert_eq!(share.reserved_bytes(), 4 * MB, "room for the next one");
        share.note_length("b", MB / 2);
        share.note_length("f", MB);
        assert_eq!(share.placed(), (MB / 2, 1), "it was cut");
    }

    #[test]
    fn segments_are_long_where_no_short_one_fits() {
        let share = LogShare::new((4 * MB, MB), HashMap::new(), Duration::ZERO);
        let next = |spare| share.next_bytes_max(spare, 4 * MB);
        for name in ["a", "b", "c", "d"] {
            assert_eq!(next(None), MB);
            assert!(share.admit(name, MB));
        }
        assert_eq!(next(None), u64::MAX);
        share.keep_out("e", 8 * MB);
        assert_eq!((next(Some("a")), next(Some("e"))), (MB, u64::MAX));
        assert_eq!(
            (share.reserved_bytes(), share.claimed_bytes()),
            (4 * MB, 4 * MB)
        );
        assert!(!share.gives_way("e"));
        share.forget("a");
        assert_eq!(next(None), MB);
        assert!(!share.admit("a", MB + 1), "it is long");
        assert_eq!(
            share.next_bytes_max(None, 3 * MB),
            u64::MAX,
            "tables have its room"
        );
        assert_eq!(share.reserved_bytes(), 4 * MB);
        assert!(share.gives_way("e"), "a short one fits there");
    }

    #[test]
    fn tables_come_first_where_no_writer_waits_for_the_log() {
        let share = LogShare::new((16 * MB, 2 * MB), HashMap::new(), Duration::ZERO);
        let sync = || share.note_write(true, 0, Duration::ZERO);
        let write = |bytes| share.note_write(true, bytes, Duration::ZERO);
        share.add_table(6 * MB);
        assert_eq!(share.quota(), 10 * MB);
        share.add_table(12 * MB);
        assert_eq!(share.quota(), 0);
        for _ in 0..AWAITED_SYNCS {
            write(4 << 10);
            sync();
        }
        assert_eq!(share.quota(), 16 * MB, "writers wait for each write");
        for _ in 0..AWAITED_BYTES / MB {
            write(MB as usize);
            sync();
        }
        assert_eq!(share.quota(), 0, "a sync of each MiB");
        share.take_table(12 * MB);
        assert_eq!(share.quota(), 10 * MB);
    }

    #[test]
    fn the_share_follows_the_load() {
        let present = HashMap::from([("b".to_owned(), (6 * MB, false))]);
        let share = LogShare::new((16 * MB, 6 * MB), present, Duration::ZERO);
        assert!(share.admit("a", 2 * MB));
        let mut now = Duration::ZERO;
        let mut reads = 0;
        let mut weigh = |writes: bool| {
            now += WEIGH_AFTER;
            if writes {
                let bytes = 10 * MB as usize;
                share.note_write(false, bytes, Duration::from_millis(500));
                share.note_write(true, bytes, Duration::from_millis(10));
            } else {
                reads += 1_000;
            }
            let copies = CopyGain {
                reads,
                seconds: 0.001,
                share: &|bytes| precise(bytes) / precise(32 * MB),
            };
            share.weigh(now, &copies)
        };
        assert_eq!(weigh(true), None, "it has all already");
        let given = (0..10).find_map(|_| weigh(false)).unwrap();
        assert!(given.log_bytes <= 8 * MB, "{given:?}");
        while weigh(false).is_some() {}
        assert_eq!(share.quota(), 0);
        assert!(share.gives_way("a") && !share.gives_way("b"));
        let given = (0..10).find_map(|_| weigh(true)).unwrap();
        assert!(given.log_bytes >= 8 * MB, "{given:?}");
        assert!(
            share.gives_way("b") && !share.gives_way("a"),
            "a new one fits there"
        );
    }

    #[test]
    fn a_disturbance_keeps_the_log_away_for_a_while_only() {
        let share = LogShare::new((16 * MB, 2 * MB), HashMap::new(), Duration::ZERO);
        share.note_write(true, MB as usize, Duration::from_secs(1));
        let weigh = |second: u64| {
            share.note_write(false, 10 * MB as usize, Duration::from_millis(500));
            assert!(share.admit(&second.to_string(), 2 * MB) || share.quota() == 0);
            let copies = CopyGain {
                reads: second * 1_000,
                seconds: 0.0001,
                share: &|bytes| precise(bytes) / precise(32 * MB),
            };
            share.weigh(Duration::from_secs(second), &copies);
            share.quota()
        };
        assert_eq!(
            weigh(1),
            0,
            "it took twenty times as long as in the main directory"
        );
        let later = (2..100).find(|second| weigh(*second) > 0);
        assert!(later.is_some_and(|second| second > 20), "{later:?}");
    }
}
