//! Identical histories with the cemetery, with tombstones and in a map, operation by operation.
//!
//! Puts, deletions of keys, ranges and prefixes, batches, snapshots, cursors that were opened before, flushes,
//! compactions, reopenings and kills; every other seed has devices, which settle and depart. Tombstones are what a
//! database writes whose keys are in a program's order. There a range is deleted key by key, those keys that the map
//! knows, and so is a device that departs.
//!
//! `WAYSTATION_HISTORIES` is the number of seeds (default 50, of 10,000 operations each), `WAYSTATION_SEED` runs one.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use waystation::storage::SimStorage;
use waystation::storage::sim::Crash;
use waystation::{
    Comparator, Db, DbIterator, DeviceError, DeviceOptions, Durability, Error, Extractor,
    IterOptions, Options, Order, Snapshot, WriteBatch,
};

const OPERATIONS: usize = 10_000;
const DEVICES: u64 = 12;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// The order of bytes, as a program says it: deletions of keys are tombstones then.
struct AsBytes;

impl Comparator for AsBytes {
    fn name(&self) -> &'static str {
        "tombstones.AsBytes"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn key(&mut self) -> Vec<u8> {
        match self.below(20) {
            0 => Vec::new(),
            1 => vec![0xff; self.below(4) as usize],
            _ => format!("{:02}/{:03}", self.below(DEVICES), self.below(60)).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.below(50) {
            0 => self.below(20_000),
            _ => self.below(100),
        };
        vec![self.next() as u8; length as usize]
    }

    /// A range of keys: few, many, or all behind one.
    fn range(&mut self) -> (Vec<u8>, Option<Vec<u8>>) {
        loop {
            let start = self.key();
            let end = match self.below(8) {
                0 => None,
                1..5 => Some([&start[..], b"~"].concat()),
                _ => Some(self.key()),
            };
            if end.as_ref().is_none_or(|end| start < *end) {
                return (start, end);
            }
        }
    }
}

fn is_in(key: &[u8], start: &[u8], end: Option<&[u8]>) -> bool {
    key >= start && end.is_none_or(|end| key < end)
}

/// A cursor over each database, and where it ought to be.
struct Walk {
    cursors: [DbIterator; 2],
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    at: Option<usize>,
}

impl Walk {
    fn step(&mut self, random: &mut Random) {
        let (choice, key) = (random.below(8), random.key());
        let last = self.entries.len().checked_sub(1);
        let before = |key: &[u8]| self.entries.partition_point(|entry| *entry.0 < *key);
        let until = |key: &[u8]| self.entries.partition_point(|entry| *entry.0 <= *key);
        let inside = |at: usize| (at < self.entries.len()).then_some(at);
        let next = match (choice, self.at) {
            (0, _) => inside(0),
            (1, _) => last,
            (2, _) => inside(before(&key)),
            (3, _) => until(&key).checked_sub(1),
            (4 | 5, Some(at)) => inside(at + 1),
            (_, Some(at)) => at.checked_sub(1),
            (_, None) => return,
        };
        for cursor in &mut self.cursors {
            match choice {
                0 => cursor.seek_to_first(),
                1 => cursor.seek_to_last(),
                2 => cursor.seek(&key),
                3 => cursor.seek_for_prev(&key),
                4 | 5 => cursor.next(),
                _ => cursor.prev(),
            }
            .expect("works");
            let found = cursor.valid().then(|| (cursor.key(), cursor.value()));
            let expected = next.map(|at| (&*self.entries[at].0, &*self.entries[at].1));
            assert_eq!(found, expected);
        }
        self.at = next;
    }
}

/// The database with the cemetery, that with tombstones, and the map.
struct Histories {
    options: Options,
    machines: [Arc<SimStorage>; 2],
    dbs: Option<[Db; 2]>,
    state: State,
    snapshots: Vec<([Snapshot; 2], State)>,
    walks: Vec<Walk>,
    random: Random,
}

impl Histories {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let devices = DeviceOptions {
            residency: Duration::from_secs(1_000_000),
            replay_bytes: 16 << 10,
            ..DeviceOptions::new(Extractor::until(b'/'))
        };
        let mut histories = Self {
            options: Options {
                memtable_bytes: (64 << 10) << random.below(2),
                table_bytes: 64 << 10,
                block_bytes: 1024,
                ring_bytes: 256 << 10,
                log_segment_bytes: 256 << 10,
                cache_bytes: 256 << 10,
                background_jobs: 1,
                devices: seed.is_multiple_of(2).then_some(devices),
                ..Options::default()
            },
            machines: [SimStorage::new(seed), SimStorage::new(!seed)],
            dbs: None,
            state: State::new(),
            snapshots: Vec::new(),
            walks: Vec::new(),
            random,
        };
        histories.open();
        histories
    }

    fn open(&mut self) {
        let open = |machine: &Arc<SimStorage>, options| {
            let storage = Arc::clone(machine);
            Db::open_with(storage, "/db", options).expect("works")
        };
        let with_tombstones = Options {
            order: Order::Custom(Arc::new(AsBytes)),
            devices: None,
            ..self.options.clone()
        };
        let [one, other] = &self.machines;
        self.dbs = Some([
            open(one, self.options.clone()),
            open(other, with_tombstones),
        ]);
    }

    /// Does the same to both.
    fn on_both<T>(&self, mut act: impl FnMut(&Db) -> T) -> [T; 2] {
        let [one, other] = self.dbs.as_ref().expect("works");
        [act(one), act(other)]
    }

    fn with_cemetery(&self) -> &Db {
        let [one, _] = self.dbs.as_ref().expect("works");
        one
    }

    fn release(&mut self) {
        self.snapshots.clear();
        self.walks.clear();
    }

    fn step(&mut self) {
        match self.random.below(1000) {
            0..420 => self.write(1),
            420..480 => self.write(30),
            480..640 => self.delete(),
            640..660 => self.delete_range(),
            780..850 => self.walk(),
            850..880 if self.snapshots.len() < 4 => {
                let taken = self.on_both(Db::snapshot);
                self.snapshots.push((taken, self.state.clone()));
            }
            880..910 => self.read_snapshot(),
            910..930 => drop(self.on_both(|db| db.flush().expect("works"))),
            930..936 => {
                let (a, b) = (self.random.key(), self.random.key());
                let range = (Bound::Included(&a[..]), Bound::Excluded(&b[..]));
                self.on_both(|db| db.compact_range(range.0, range.1).expect("works"));
            }
            936..966 if self.options.devices.is_some() => self.settle(),
            966..974 if self.options.devices.is_some() => self.depart(),
            974..977 => self.reopen(),
            977..979 => self.kill(),
            _ => self.get(),
        }
    }

    fn write(&mut self, most: u64) {
        let mut batches = [WriteBatch::new(), WriteBatch::new()];
        for _ in 0..=self.random.below(most) {
            let key = self.random.key();
            if most > 1 && self.random.below(40) == 0 {
                self.add_range(&mut batches);
            } else if most > 1 && self.random.below(3) == 0 {
                for batch in &mut batches {
                    batch.delete(&key);
                }
                self.state.remove(&key);
            } else {
                let value = self.random.value();
                for batch in &mut batches {
                    batch.put(&key, &value);
                }
                self.state.insert(key, value);
            }
        }
        self.commit(&batches);
    }

    fn commit(&self, batches: &[WriteBatch; 2]) {
        let mut batches = batches.iter();
        self.on_both(|db| {
            let batch = batches.next().expect("works");
            db.write(batch, Durability::ProcessCrash).expect("works");
        });
    }

    /// Deletes a range: as such, and key by key.
    fn add_range(&mut self, [cemetery, plain]: &mut [WriteBatch; 2]) {
        let (start, end) = self.random.range();
        cemetery.delete_range(&start, end.as_deref());
        self.state.retain(|key, _| {
            let is_in = is_in(key, &start, end.as_deref());
            if is_in {
                plain.delete(key);
            }
            !is_in
        });
    }

    fn delete(&mut self) {
        let key = self.random.key();
        self.on_both(|db| db.delete(&key).expect("works"));
        self.state.remove(&key);
    }

    fn delete_range(&mut self) {
        let mut batches = [WriteBatch::new(), WriteBatch::new()];
        self.add_range(&mut batches);
        self.commit(&batches);
    }

    fn get(&mut self) {
        let key = self.random.key();
        for found in self.on_both(|db| db.get(&key).expect("works")) {
            assert_eq!(found.as_ref(), self.state.get(&key), "{key:?}");
        }
    }

    /// Opens a cursor, or moves one that was opened before.
    fn walk(&mut self) {
        if self.walks.len() < 3 || self.random.below(8) == 0 {
            self.walks.truncate(2);
            let walk = Walk {
                cursors: self.on_both(|db| db.iter(IterOptions::default()).expect("works")),
                entries: self.state.clone().into_iter().collect(),
                at: None,
            };
            self.walks.insert(0, walk);
        }
        let at = self.random.below(self.walks.len() as u64) as usize;
        for _ in 0..10 {
            self.walks[at].step(&mut self.random);
        }
    }

    fn read_snapshot(&mut self) {
        if self.snapshots.is_empty() {
            return;
        }
        let at = self.random.below(self.snapshots.len() as u64) as usize;
        let (snapshots, state) = &self.snapshots[at];
        let key = self.random.key();
        let mut of_each = snapshots.iter();
        let found = self.on_both(|db| {
            db.get_at(&key, of_each.next().expect("works"))
                .expect("works")
        });
        for value in found {
            assert_eq!(value.as_ref(), state.get(&key), "{key:?}");
        }
        if self.random.below(3) == 0 {
            let mut of_each = snapshots.iter();
            let cursors = self.on_both(|db| {
                let snapshot = of_each.next().cloned();
                let options = IterOptions {
                    snapshot,
                    ..IterOptions::default()
                };
                db.iter(options).expect("works")
            });
            let mut walk = Walk {
                cursors,
                entries: state.clone().into_iter().collect(),
                at: None,
            };
            (0..30).for_each(|_| walk.step(&mut self.random));
            self.snapshots.swap_remove(at);
        }
    }

    fn device(&mut self) -> Vec<u8> {
        format!("{:02}", self.random.below(DEVICES)).into_bytes()
    }

    fn settle(&mut self) {
        let device = self.device();
        let settled = self.with_cemetery().devices().settle(&device);
        let is_known = !matches!(settled, Err(Error::Device(DeviceError::Unknown { .. })));
        assert!(settled.is_ok() || !is_known, "{settled:?}");
    }

    fn depart(&mut self) {
        let device = self.device();
        let prefix = [&device[..], b"/"].concat();
        let had_keys = self.state.keys().any(|key| key.starts_with(&prefix));
        let departed = self.with_cemetery().devices().depart(&device);
        // One whose keys were all deleted may be there or not.
        let is_unknown = matches!(departed, Err(Error::Device(DeviceError::Unknown { .. })));
        assert!(
            departed.is_ok() || (is_unknown && !had_keys),
            "{departed:?}"
        );
        let mut tombstones = WriteBatch::new();
        self.state.retain(|key, _| {
            let leaves = key.starts_with(&prefix);
            if leaves {
                tombstones.delete(key);
            }
            !leaves
        });
        let [_, other] = self.dbs.as_ref().expect("works");
        other
            .write(&tombstones, Durability::ProcessCrash)
            .expect("works");
    }

    fn reopen(&mut self) {
        self.look_for_graves();
        self.release();
        for db in self.dbs.take().expect("works") {
            db.close().expect("works");
        }
        self.open();
    }

    fn kill(&mut self) {
        self.look_for_graves();
        self.release();
        let seed = self.random.next();
        let left = [0, 1].map(|at| self.machines[at].crash(seed, Crash::Process));
        drop(self.dbs.take());
        self.machines = left;
        self.open();
    }

    /// There is none with tombstones.
    fn look_for_graves(&self) {
        let graves = self.on_both(|db| db.stats().graves.points);
        assert_eq!(graves[1], 0);
    }

    fn end(mut self) {
        self.reopen();
        let mut walk = Walk {
            cursors: self.on_both(|db| db.iter(IterOptions::default()).expect("works")),
            entries: self.state.clone().into_iter().collect(),
            at: None,
        };
        (0..200).for_each(|_| walk.step(&mut self.random));
        for report in self.on_both(|db| db.check().expect("works")) {
            assert!(report.problems.is_empty(), "{report:?}");
        }
    }
}

fn run(seed: u64) {
    println!("seed {seed} (WAYSTATION_SEED={seed} runs it alone)");
    let mut histories = Histories::new(seed);
    for _ in 0..OPERATIONS {
        histories.step();
    }
    histories.end();
}

#[test]
fn histories_agree_with_tombstones_and_with_a_map() {
    let number = |name: &str| std::env::var(name).map(|text| text.parse().expect("works"));
    match number("WAYSTATION_SEED") {
        Ok(seed) => run(seed),
        Err(_) => (1..=number("WAYSTATION_HISTORIES").unwrap_or(50)).for_each(run),
    }
}
