//! Random histories against a model: puts, deletions of keys, ranges and prefixes, batches, snapshots, cursors both ways
//! with bounds, flushes, compactions and reopening must agree with an ordered map, operation by operation; so must puts
//! with a time to live, on a simulated clock that jumps.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use waystation::storage::{SimStorage, Storage};
use waystation::{
    Compression, Db, DbIterator, Durability, IterOptions, Options, PutOptions, Snapshot, WriteBatch,
};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

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
            _ => format!("{:02}/{:03}", self.below(12), self.below(80)).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.below(50) {
            0 => self.below(30_000),
            _ => self.below(200),
        };
        vec![self.next() as u8; len as usize]
    }
}

/// The clock jumps by so much: far more than what passes by itself, while the threads in the background sleep.
const EPOCH: Duration = Duration::from_secs(1000 * 86_400);

struct Harness {
    storage: Arc<SimStorage>,
    options: Options,
    db: Option<Db>,
    model: State,
    /// Jumps of the clock so far.
    epoch: u32,
    /// After which of them a key is gone.
    ends: BTreeMap<Vec<u8>, u32>,
    snapshots: Vec<(Snapshot, State)>,
    random: Random,
}

impl Harness {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed | 1);
        let compression =
            [Compression::None, Compression::Snappy, Compression::Zstd][random.below(3) as usize];
        let options = Options {
            memtable_bytes: (64 << 10) << random.below(3),
            table_bytes: (64 << 10) << random.below(2),
            block_bytes: 1024,
            ring_bytes: 256 << 10,
            log_segment_bytes: 256 << 10,
            cache_bytes: (random.below(2) as usize) << 20,
            compression,
            // Often none stay in memory, or few.
            graves_bytes: [0, 4 << 10, 64 << 20][random.below(3) as usize],
            ..Options::default()
        };
        let storage = SimStorage::new(seed);
        let mut harness = Self {
            storage,
            options,
            db: None,
            model: State::new(),
            epoch: 0,
            ends: BTreeMap::new(),
            snapshots: Vec::new(),
            random,
        };
        harness.reopen();
        harness
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        if let Some(db) = self.db.take() {
            db.close().expect("close");
        }
        // By a day in the whole run, so that it is less than half a jump.
        self.storage.step_wall_clock(match self.random.below(400) {
            0 => 86_400,
            1 => -86_400,
            _ => 0,
        });
        let storage = Arc::clone(&self.storage) as Arc<dyn Storage>;
        self.db =
            Some(Db::open_with(storage, Path::new("/model"), self.options.clone()).expect("open"));
    }

    #[expect(clippy::too_many_lines, reason = "a table: an arm for each kind")]
    fn step(&mut self) {
        match self.random.below(1000) {
            0..440 => {
                let (key, value) = (self.random.key(), self.random.value());
                self.db().put(&key, &value).expect("put");
                self.ends.remove(&key);
                self.model.insert(key, value);
            }
            440..496 => {
                let (key, value) = (self.random.key(), self.random.value());
                let lifetime = self.lifetime(&key);
                self.db()
                    .put_with(&key, &value, PutOptions::expiring(lifetime))
                    .expect("put");
                self.model.insert(key, value);
            }
            496..500 => {
                self.storage.sleep(EPOCH);
                self.epoch += 1;
                let (ends, epoch) = (&self.ends, self.epoch);
                self.model
                    .retain(|key, _| ends.get(key).is_none_or(|end| *end > epoch));
            }
            500..680 => {
                let key = self.random.key();
                self.db().delete(&key).expect("delete");
                self.model.remove(&key);
            }
            680..690 => {
                let (start, end) = self.range();
                self.db()
                    .delete_range(&start, end.as_deref())
                    .expect("delete");
                remove_range(&mut self.model, &start, end.as_deref());
            }
            690..694 => {
                let mut prefix = self.random.key();
                prefix.truncate(3);
                self.db().delete_prefix(&prefix).expect("delete");
                self.model.retain(|key, _| !key.starts_with(&prefix));
            }
            694..700 => {
                // A run of keys, one by one.
                let (start, end) = self.range();
                let inside =
                    |key: &&Vec<u8>| **key >= start && end.as_ref().is_none_or(|end| *key < end);
                let keys: Vec<_> = self.model.keys().filter(inside).cloned().collect();
                for key in keys {
                    self.db().delete(&key).expect("delete");
                    self.model.remove(&key);
                }
            }
            700..760 => self.batch(),
            760..860 => self.get(),
            860..900 => {
                let options = self.iter_options();
                let expected = narrowed(&self.model, &options);
                walk(
                    self.db().iter(options).expect("iter"),
                    &expected,
                    &mut self.random,
                );
            }
            900..930 if self.snapshots.len() < 5 => {
                self.snapshots
                    .push((self.db().snapshot(), self.model.clone()));
            }
            930..960 => self.read_snapshot(),
            960..985 => self.db().flush().expect("flush"),
            985..994 => {
                let (a, b) = (self.random.key(), self.random.key());
                let range = (
                    std::ops::Bound::Included(&a[..]),
                    std::ops::Bound::Excluded(&b[..]),
                );
                self.db().compact_range(range.0, range.1).expect("compact");
            }
            994..997 => self.reopen(),
            _ => self.db().sync().expect("sync"),
        }
    }

    /// How long `key`, which is put now, is to live.
    fn lifetime(&mut self, key: &[u8]) -> Duration {
        let jumps = self.random.below(4) as u32;
        self.ends.insert(key.to_vec(), self.epoch + jumps + 1);
        EPOCH * jumps + EPOCH / 2
    }

    /// A range of keys: few, many, or all behind one.
    fn range(&mut self) -> (Vec<u8>, Option<Vec<u8>>) {
        loop {
            let start = self.random.key();
            let end = match self.random.below(8) {
                0 => None,
                1..4 => Some([&start[..], b"~"].concat()),
                _ => Some(self.random.key()),
            };
            if end.as_ref().is_none_or(|end| start < *end) {
                return (start, end);
            }
        }
    }

    fn batch(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..self.random.below(30) {
            let key = self.random.key();
            if self.random.below(40) == 0 {
                let (start, end) = self.range();
                batch.delete_range(&start, end.as_deref());
                remove_range(&mut self.model, &start, end.as_deref());
            } else if self.random.below(3) == 0 {
                batch.delete(&key);
                self.model.remove(&key);
            } else if self.random.below(6) == 0 {
                let value = self.random.value();
                batch.put_with_ttl(&key, &value, self.lifetime(&key));
                self.model.insert(key, value);
            } else {
                let value = self.random.value();
                batch.put(&key, &value);
                self.ends.remove(&key);
                self.model.insert(key, value);
            }
        }
        let durability = if self.random.below(4) == 0 {
            Durability::PowerLoss
        } else {
            Durability::ProcessCrash
        };
        self.db().write(&batch, durability).expect("write");
    }

    fn get(&mut self) {
        let key = self.random.key();
        assert_eq!(
            self.db().get(&key).expect("get").as_ref(),
            self.model.get(&key)
        );
    }

    fn read_snapshot(&mut self) {
        if self.snapshots.is_empty() {
            return;
        }
        let index = self.random.below(self.snapshots.len() as u64) as usize;
        let (snapshot, state) = self.snapshots.swap_remove(index);
        for _ in 0..10 {
            let key = self.random.key();
            assert_eq!(
                self.db().get_at(&key, &snapshot).expect("get").as_ref(),
                state.get(&key)
            );
        }
        let options = IterOptions {
            snapshot: Some(snapshot),
            ..self.iter_options()
        };
        let expected = narrowed(&state, &options);
        walk(
            self.db().iter(options).expect("iter"),
            &expected,
            &mut self.random,
        );
    }

    fn iter_options(&mut self) -> IterOptions {
        let mut bound = |one_in: u64| (self.random.below(one_in) == 0).then(|| self.random.key());
        IterOptions {
            lower: bound(3),
            upper: bound(3),
            prefix: bound(4).map(|key| key[..key.len().min(2)].to_vec()),
            snapshot: None,
        }
    }
}

fn remove_range(state: &mut State, start: &[u8], end: Option<&[u8]>) {
    state.retain(|key, _| &key[..] < start || end.is_some_and(|end| &key[..] >= end));
}

fn narrowed(state: &State, options: &IterOptions) -> State {
    state
        .iter()
        .filter(|(key, _)| {
            options.lower.as_ref().is_none_or(|lower| *key >= lower)
                && options.upper.as_ref().is_none_or(|upper| *key < upper)
                && options
                    .prefix
                    .as_ref()
                    .is_none_or(|prefix| key.starts_with(prefix))
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Walks a cursor at random over `expected`.
fn walk(mut cursor: DbIterator, expected: &State, random: &mut Random) {
    let entries: Vec<_> = expected.iter().collect();
    let mut at: Option<usize> = None;
    for _ in 0..40 {
        let moved = match (random.below(8), at) {
            (0, _) => {
                at = (!entries.is_empty()).then_some(0);
                cursor.seek_to_first()
            }
            (1, _) => {
                at = entries.len().checked_sub(1);
                cursor.seek_to_last()
            }
            (2, _) => {
                let key = random.key();
                let index = entries.partition_point(|entry| *entry.0 < key);
                at = (index < entries.len()).then_some(index);
                cursor.seek(&key)
            }
            (3, _) => {
                let key = random.key();
                at = entries
                    .partition_point(|entry| *entry.0 <= key)
                    .checked_sub(1);
                cursor.seek_for_prev(&key)
            }
            (4 | 5, Some(index)) => {
                at = (index + 1 < entries.len()).then_some(index + 1);
                cursor.next()
            }
            (_, Some(index)) => {
                at = index.checked_sub(1);
                cursor.prev()
            }
            _ => Ok(()),
        };
        moved.expect("move");
        assert_eq!(cursor.valid(), at.is_some());
        if let Some(index) = at {
            assert_eq!(
                (cursor.key(), cursor.value()),
                (&entries[index].0[..], &entries[index].1[..])
            );
        }
    }
}

#[test]
fn random_histories_agree_with_a_model() {
    let seeds: u64 =
        std::env::var("WAYSTATION_MODEL_SEEDS").map_or(50, |n| n.parse().expect("a number"));
    let first: u64 = std::env::var("WAYSTATION_SEED").map_or(1, |n| n.parse().expect("a number"));
    for seed in first..first + seeds {
        println!("seed {seed} (WAYSTATION_SEED={seed} WAYSTATION_MODEL_SEEDS=1 replays it)");
        let mut harness = Harness::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for _ in 0..10_000 {
            harness.step();
        }
        harness.reopen();
        let everything = narrowed(&harness.model, &IterOptions::default());
        walk(
            harness.db().iter(IterOptions::default()).expect("iter"),
            &everything,
            &mut harness.random,
        );
        assert!(harness.db().check().expect("check").problems.is_empty());
    }
}
