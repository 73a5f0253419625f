//! Databases in a program's own order: against a map with the same order, through everything that orders keys; what is
//! refused there; and what the tools say of them, which do not know the order.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::Random;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use waystation::backup::Backups;
use waystation::inspect::{Inspection, Place};
use waystation::repair::{Resurrection, repair};
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{
    Comparator, Compression, Db, DbIterator, DeviceOptions, Durability, Error, Extractor,
    IterOptions, Options, Order, PutOptions, Snapshot, WriteBatch,
};

/// The orders that are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Bytes, backwards: the empty key is the last.
    Reverse,
    /// Short keys first.
    Length,
    /// Bytes, but for the case of letters: keys compare equal whose bytes differ.
    Caseless,
}

impl By {
    fn order(self) -> Order {
        Order::Custom(Arc::new(self))
    }
}

impl Comparator for By {
    fn name(&self) -> &str {
        match self {
            Self::Reverse => "test.Reverse",
            Self::Length => "test.Length",
            Self::Caseless => "test.Caseless",
        }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Reverse => b.cmp(a),
            Self::Length => (a.len(), a).cmp(&(b.len(), b)),
            Self::Caseless => a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase()),
        }
    }
}

/// A key in its order.
#[derive(Clone)]
struct Placed(By, Vec<u8>);

impl Ord for Placed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.compare(&self.1, &other.1)
    }
}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Placed {}

/// Key and value as they were written last.
type Entry = (Vec<u8>, Vec<u8>);
type State = BTreeMap<Placed, Entry>;

fn options(by: By) -> Options {
    Options {
        memtable_bytes: 64 << 10,
        table_bytes: 64 << 10,
        block_bytes: 1024,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        cache_bytes: 1 << 20,
        compression: Compression::None,
        order: by.order(),
        ..Options::default()
    }
}

struct Harness {
    by: By,
    storage: Arc<SimStorage>,
    db: Option<Db>,
    model: State,
    snapshots: Vec<(Snapshot, State)>,
    random: Random,
}

impl Harness {
    fn new(by: By, seed: u64) -> Self {
        let mut harness = Self {
            by,
            storage: SimStorage::new(seed),
            db: None,
            model: State::new(),
            snapshots: Vec::new(),
            random: Random(seed),
        };
        harness.open();
        harness
    }

    fn open(&mut self) {
        let storage = Arc::clone(&self.storage) as Arc<dyn Storage>;
        self.db = Some(Db::open_with(storage, Path::new("/db"), options(self.by)).unwrap());
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn key(&mut self) -> Vec<u8> {
        match self.random.below(30) {
            0 => Vec::new(),
            1 => vec![0xff; self.random.below(4) as usize],
            2 => vec![0; self.random.below(4) as usize],
            _ => {
                let letter = [b'a', b'A', b'b', b'B', b'c'][self.random.below(5) as usize];
                let number = self.random.below(400).to_string();
                [&[letter][..], number.as_bytes()].concat()
            }
        }
    }

    fn placed(&self, key: &[u8]) -> Placed {
        Placed(self.by, key.to_vec())
    }

    fn put_in_model(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let placed = self.placed(&key);
        self.model.insert(placed, (key, value));
    }

    fn delete_range_in_model(&mut self, start: &[u8], end: Option<&[u8]>) {
        let (start, end) = (self.placed(start), end.map(|end| self.placed(end)));
        let is_inside = |key: &Placed| *key >= start && end.as_ref().is_none_or(|end| key < end);
        self.model.retain(|key, _| !is_inside(key));
    }

    /// A range that is one, and does not end at the empty key.
    fn range(&mut self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let (one, other) = (self.key(), self.key());
        if self.random.one_in(12) {
            return Some((one, None));
        }
        let (start, end) = match self.by.compare(&one, &other) {
            Ordering::Less => (one, other),
            Ordering::Equal => return None,
            Ordering::Greater => (other, one),
        };
        (!end.is_empty()).then_some((start, Some(end)))
    }

    fn step(&mut self) {
        match self.random.below(1000) {
            0..600 => {
                let key = self.key();
                let value = vec![self.random.next() as u8; self.random.below(700) as usize];
                self.db().put(&key, &value).unwrap();
                self.put_in_model(key, value);
            }
            600..760 => {
                let key = self.key();
                self.db().delete(&key).unwrap();
                let placed = self.placed(&key);
                self.model.remove(&placed);
            }
            760..800 => {
                if let Some((start, end)) = self.range() {
                    self.db().delete_range(&start, end.as_deref()).unwrap();
                    self.delete_range_in_model(&start, end.as_deref());
                }
            }
            800..840 => self.batch(),
            840..870 => {
                let taken = (self.db().snapshot(), self.model.clone());
                self.snapshots.push(taken);
                if self.snapshots.len() > 3 {
                    self.snapshots.remove(0);
                }
            }
            870..890 => self.db().flush().unwrap(),
            890..895 => {
                let range = self.range();
                let (start, end) = range.unwrap_or_default();
                let lower = Bound::Included(&start[..]);
                let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                self.db().compact_range(lower, upper).unwrap();
            }
            895..905 => self.end(),
            905..950 => self.check_bounded(),
            _ => self.check_key(),
        }
    }

    fn batch(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..self.random.below(6) {
            let key = self.key();
            if self.random.one_in(3) {
                batch.delete(&key);
                let placed = self.placed(&key);
                self.model.remove(&placed);
            } else {
                batch.put(&key, b"of a batch");
                self.put_in_model(key, b"of a batch".to_vec());
            }
        }
        self.db().write(&batch, Durability::ProcessCrash).unwrap();
    }

    /// Closes the database, or has the machine stop, and opens it again.
    fn end(&mut self) {
        self.snapshots.clear();
        let seed = self.random.next();
        let crash = match self.random.below(3) {
            0 => {
                self.db.take().unwrap().close().unwrap();
                Crash::Process
            }
            1 => Crash::Process,
            _ => {
                self.db().sync().unwrap();
                Crash::PowerCut
            }
        };
        let left = self.storage.crash(seed, crash);
        drop(self.db.take());
        self.storage = left;
        self.open();
        self.check_all();
    }

    fn check_key(&mut self) {
        let key = self.key();
        let placed = self.placed(&key);
        let value = |state: &State| state.get(&placed).map(|entry| entry.1.clone());
        assert_eq!(self.db().get(&key).unwrap(), value(&self.model), "{key:?}");
        for (snapshot, state) in &self.snapshots {
            assert_eq!(self.db().get_at(&key, snapshot).unwrap(), value(state));
        }
    }

    /// A cursor with bounds that is sent to and fro.
    fn check_bounded(&mut self) {
        let (lower, upper) = self.range().unwrap_or_default();
        let seen = match self.snapshots.last() {
            Some(last) if self.random.one_in(2) => Some(last.clone()),
            _ => None,
        };
        let (snapshot, state) = match seen {
            Some((snapshot, state)) => (Some(snapshot), state),
            None => (None, self.model.clone()),
        };
        let (first, last) = (
            self.placed(&lower),
            upper.as_ref().map(|it| self.placed(it)),
        );
        let inside: Vec<(Placed, Entry)> = state
            .into_iter()
            .filter(|(key, _)| *key >= first && last.as_ref().is_none_or(|last| key < last))
            .collect();
        let options = IterOptions {
            lower: Some(lower),
            upper,
            snapshot,
            ..IterOptions::default()
        };
        let mut cursor = self.db().iter(options).unwrap();
        let mut at: Option<usize> = None;
        for _ in 0..30 {
            let target = self.key();
            let placed = self.placed(&target);
            match self.random.below(6) {
                0 => {
                    cursor.seek_to_first().unwrap();
                    at = Some(0);
                }
                1 => {
                    cursor.seek_to_last().unwrap();
                    at = inside.len().checked_sub(1);
                }
                2 => {
                    cursor.seek(&target).unwrap();
                    at = Some(inside.partition_point(|(key, _)| *key < placed));
                }
                3 => {
                    cursor.seek_for_prev(&target).unwrap();
                    let behind = inside.partition_point(|(key, _)| *key <= placed);
                    at = behind.checked_sub(1);
                }
                4 if cursor.valid() => {
                    cursor.next().unwrap();
                    at = at.map(|at| at + 1);
                }
                5 if cursor.valid() => {
                    cursor.prev().unwrap();
                    at = at.and_then(|at| at.checked_sub(1));
                }
                _ => {}
            }
            let expected = at
                .and_then(|at| inside.get(at))
                .map(|(_, entry)| entry.clone());
            assert_eq!(here(&cursor), expected);
            at = at.filter(|_| expected.is_some());
        }
    }

    fn check_all(&self) {
        let states = [(None, &self.model)];
        let held = self
            .snapshots
            .iter()
            .map(|(it, state)| (Some(it.clone()), state));
        for (snapshot, state) in states.into_iter().chain(held) {
            let options = IterOptions {
                snapshot,
                ..IterOptions::default()
            };
            let mut cursor = self.db().iter(options).unwrap();
            let expected: Vec<Entry> = state.values().cloned().collect();
            cursor.seek_to_first().unwrap();
            let mut found = Vec::new();
            while let Some(entry) = here(&cursor) {
                found.push(entry);
                cursor.next().unwrap();
            }
            assert_eq!(found.len(), expected.len());
            assert!(found == expected, "forward");
            cursor.seek_to_last().unwrap();
            for entry in expected.iter().rev() {
                assert_eq!(here(&cursor).as_ref(), Some(entry));
                cursor.prev().unwrap();
            }
            assert!(!cursor.valid());
        }
        let report = self.db().check().unwrap();
        assert_eq!(report.problems, []);
    }
}

impl Harness {
    /// A checkpoint, a backup and an export have the same keys in the same order. Goes on in the last one.
    fn check_copies(&mut self) {
        let [checkpoint, backups, restored, export] =
            ["/checkpoint", "/backups", "/restored", "/export"].map(Path::new);
        let storage = Arc::clone(&self.storage) as Arc<dyn Storage>;
        self.db().checkpoint(checkpoint).unwrap();
        self.db().backup(backups, &mut |_| ()).unwrap();
        let stored = Backups::open(Arc::clone(&storage), backups).unwrap();
        stored.restore(None, restored, &mut |_| ()).unwrap();
        let exported = self
            .db()
            .export_leveldb(export, Compression::None, &mut |_| ());
        assert_eq!(exported.unwrap().entries, self.model.len() as u64);
        self.snapshots.clear();
        for copy in [checkpoint, restored, export] {
            self.db.take().unwrap().close().unwrap();
            let opened = Db::open_with(Arc::clone(&storage), copy, options(self.by));
            self.db = Some(opened.unwrap());
            self.check_all();
        }
    }
}

fn here(cursor: &DbIterator) -> Option<Entry> {
    cursor
        .valid()
        .then(|| (cursor.key().to_vec(), cursor.value().to_vec()))
}

fn histories(by: By) {
    for seed in 1..=4 {
        let mut harness = Harness::new(by, seed);
        for step in 0..3_000 {
            harness.step();
            if step % 500 == 499 {
                harness.check_all();
            }
        }
        harness
            .db()
            .compact_range(Bound::Unbounded, Bound::Unbounded)
            .unwrap();
        harness.check_all();
        harness.check_copies();
    }
}

#[test]
fn histories_backwards() {
    histories(By::Reverse);
}

#[test]
fn histories_by_length() {
    histories(By::Length);
}

#[test]
fn histories_without_case() {
    histories(By::Caseless);
}

#[test]
fn an_order_is_kept_and_no_other_is_taken() {
    let storage = SimStorage::new(1);
    let open = |order: Order| {
        let storage = Arc::clone(&storage) as Arc<dyn Storage>;
        let options = Options {
            order,
            ..options(By::Reverse)
        };
        Db::open_with(storage, "/db", options)
    };
    let db = open(By::Reverse.order()).unwrap();
    db.put(b"a", b"1").unwrap();
    db.close().unwrap();
    for order in [Order::Bytewise, By::Length.order()] {
        let name = order.name().to_owned();
        let error = open(order).map(|_| ()).unwrap_err();
        let told = error.to_string();
        assert!(matches!(error, Error::Incompatible { .. }), "{told}");
        assert!(
            told.contains("test.Reverse") && told.contains(&name),
            "{told}"
        );
    }
    let db = open(By::Reverse.order()).unwrap();
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn what_needs_the_order_of_bytes_is_refused() {
    let storage = SimStorage::new(1) as Arc<dyn Storage>;
    let is_refused = |outcome: waystation::Result<()>| {
        assert!(
            matches!(outcome, Err(Error::InvalidArgument(_))),
            "{outcome:?}"
        );
    };
    let with_devices = Options {
        devices: Some(DeviceOptions::new(Extractor::until(b':'))),
        ..options(By::Reverse)
    };
    is_refused(Db::open_with(Arc::clone(&storage), "/devices", with_devices).map(|_| ()));
    let with_deadline = Options {
        deletion_deadline: Some(Duration::from_secs(1)),
        ..options(By::Reverse)
    };
    is_refused(Db::open_with(Arc::clone(&storage), "/deadline", with_deadline).map(|_| ()));
    let db = Db::open_with(storage, "/db", options(By::Reverse)).unwrap();
    is_refused(db.put_with(
        b"key",
        b"value",
        PutOptions::expiring(Duration::from_secs(1)),
    ));
    is_refused(db.delete_prefix(b"key"));
    is_refused(db.iter(IterOptions::prefix(b"key")).map(|_| ()));
    is_refused(db.delete_range(b"a", Some(b"b")));
    is_refused(db.delete_range(b"a", Some(b"")));
    db.delete_range(b"b", Some(b"a")).unwrap();
}

/// The tools check what they can, and say what they cannot.
#[test]
fn tools_do_not_judge_an_order_that_they_do_not_know() {
    let storage = SimStorage::new(1);
    let shared = || Arc::clone(&storage) as Arc<dyn Storage>;
    let db = Db::open_with(shared(), "/db", options(By::Reverse)).unwrap();
    for number in 0..500_u32 {
        db.put(format!("{number:04}").as_bytes(), &[7; 200])
            .unwrap();
    }
    db.flush().unwrap();
    db.delete_range(b"0300", Some(b"0200")).unwrap();
    db.delete(b"0100").unwrap();
    let _held = db.snapshot();
    drop(db);
    let inspection = Inspection::open(shared(), "/db").unwrap();
    let summary = inspection.summary().unwrap();
    assert!(summary.has_own_order);
    assert_eq!(summary.key_order, "test.Reverse");
    let report = inspection.check(&mut |_| ()).unwrap();
    assert_eq!(report.problems, []);
    assert!(report.entries > 0);
    assert_eq!(report.order_not_judged.as_deref(), Some("test.Reverse"));
    let found = inspection.find(b"0400").unwrap();
    assert!(
        found.iter().any(|it| matches!(it.place, Place::Level(_))),
        "{found:?}"
    );
    let target = Path::new("/repaired");
    let plain = Options::default();
    let accepted = Resurrection::Possible;
    let error = repair(
        &shared(),
        Path::new("/db"),
        target,
        &plain,
        accepted,
        &mut |_| (),
    )
    .map(|_| ())
    .unwrap_err();
    assert!(error.to_string().contains("test.Reverse"), "{error}");
    let own = options(By::Reverse);
    let error = repair(
        &shared(),
        Path::new("/db"),
        target,
        &own,
        accepted,
        &mut |_| (),
    )
    .map(|_| ())
    .unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    // Damage is found nevertheless.
    let tables = storage.list(Path::new("/db")).unwrap();
    let table = tables
        .iter()
        .filter(|it| Path::new(&it.name).extension() == Some("ldb".as_ref()));
    let table = table.min_by_key(|it| Reverse(it.bytes)).unwrap();
    storage
        .flip_bit(&Path::new("/db").join(&table.name), 8 * 500)
        .unwrap();
    let report = Inspection::open(shared(), "/db")
        .unwrap()
        .check(&mut |_| ())
        .unwrap();
    assert!(!report.problems.is_empty());
}
