//! kill -9 under mixed load: nothing acknowledged is lost, nothing wrong is returned.
//!
//! The writer is a process of its own (this test binary started again as the child). Each of its threads owns
//! a set of keys and overwrites, deletes (one by one and by prefix) and batches them in an order that follows from the seed alone; after
//! each acknowledgement it writes one line to a pipe. The oracle is this process: it knows what each thread
//! does from the seed, and how far each thread got from the pipe. It shares no memory with the writer.
//!
//! After each kill the database is opened again: every thread's state must be that after k of its operations
//! for some k at least as large as acknowledged (one more may have been under way), and the next child goes on
//! from there. Half of the kills are of a database with devices, which arrive, settle and depart all the time.
//! `WAYSTATION_KILLS` sets the number of cycles (default 100).

use crate::support::kills::{cycles_and_seed, one_life, options, tell, test_name};
use crate::support::{Random, add_changes, copy_files};
use std::collections::BTreeMap;
use std::path::Path;
use waystation::{Db, DeviceError, Durability, Error, IterOptions, WriteBatch};

const THREADS: u64 = 4;
const KEYS: u64 = 200;
const CHILD: &str = "WAYSTATION_KILL_CHILD";

/// The devices of each thread, in a database that has any.
const DEVICES: u64 = 6;

/// One write of one thread: puts (Some) and deletes (None), all or nothing, and whether it is synced. In a
/// database with devices one of the thread's may depart before.
struct Step {
    departs: Option<Vec<u8>>,
    /// All keys that begin so are deleted first.
    clears: Option<Vec<u8>>,
    changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    synced: bool,
}

/// The `index`th write of `thread`.
fn step(seed: u64, thread: u64, index: u64) -> Step {
    let mut random = Random(seed ^ (thread << 48) ^ index.wrapping_mul(0x5851_f42d_4c95_7f2d));
    let count = if random.below(10) == 0 {
        1 + random.below(20)
    } else {
        1
    };
    let changes = (0..count)
        .map(|_| {
            let device = random.below(DEVICES);
            let key = format!("thread{thread}-{device}/key{:04}", random.below(KEYS)).into_bytes();
            let value = (random.below(4) != 0).then(|| {
                let len = match random.below(100) {
                    // Longer than half the ring: staged piece by piece.
                    0 if random.below(4) == 0 => 400_000,
                    0 => 60_000,
                    1..10 => 5_000,
                    _ => random.below(300) as usize,
                };
                let mut value = index.to_le_bytes().to_vec();
                value.resize(8 + len, random.next() as u8);
                value
            });
            (key, value)
        })
        .collect();
    // Each write also counts itself, so that the state tells how many there were.
    let mut step = Step {
        departs: (random.below(60) == 0)
            .then(|| format!("thread{thread}-{}", random.below(DEVICES)).into_bytes()),
        clears: (random.below(20) == 0).then(|| {
            let (device, keys) = (random.below(DEVICES), random.below(20));
            format!("thread{thread}-{device}/key{keys:03}").into_bytes()
        }),
        changes,
        synced: random.below(50) == 0,
    };
    let counter = format!("count{thread}").into_bytes();
    step.changes
        .push((counter, Some((index + 1).to_le_bytes().to_vec())));
    step
}

/// Body of the child: writes until killed.
fn write_until_killed(dir: &Path, seed: u64, devices: bool) {
    let db = Db::open(dir, options(devices)).expect("child opens");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                let counter = format!("count{thread}").into_bytes();
                let mut index = count(db, &counter);
                loop {
                    let step = step(seed, thread, index);
                    if let Some(device) = step.departs.filter(|_| devices) {
                        match db.devices().depart(&device) {
                            Ok(()) | Err(Error::Device(DeviceError::Unknown { .. })) => {}
                            Err(error) => panic!("child departs: {error}"),
                        }
                    }
                    let mut batch = WriteBatch::new();
                    if let Some(prefix) = &step.clears {
                        batch.delete_prefix(prefix);
                    }
                    add_changes(&mut batch, &step.changes);
                    let durability = if step.synced {
                        Durability::PowerLoss
                    } else {
                        Durability::ProcessCrash
                    };
                    db.write(&batch, durability).expect("child writes");
                    index += 1;
                    tell(thread, index);
                }
            });
        }
    });
}

fn count(db: &Db, counter: &[u8]) -> u64 {
    let bytes = db.get(counter).expect("get");
    bytes.map_or(0, |bytes| {
        u64::from_le_bytes(bytes.try_into().expect("a counter has eight bytes"))
    })
}

/// What each thread has written so far, by the oracle's own reckoning.
struct Oracle {
    seed: u64,
    devices: bool,
    done: Vec<u64>,
    state: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Oracle {
    fn new(seed: u64, devices: bool) -> Self {
        Self {
            seed,
            devices,
            done: vec![0; THREADS as usize],
            state: BTreeMap::new(),
        }
    }

    /// Brings `thread` to `count` writes.
    fn advance(&mut self, thread: u64, count: u64) {
        for index in self.done[thread as usize]..count {
            let step = step(self.seed, thread, index);
            if let Some(device) = step.departs.filter(|_| self.devices) {
                self.depart(&device);
            }
            if let Some(prefix) = step.clears {
                self.state.retain(|key, _| !key.starts_with(&prefix));
            }
            for (key, value) in step.changes {
                match value {
                    Some(value) => self.state.insert(key, value),
                    None => self.state.remove(&key),
                };
            }
        }
        self.done[thread as usize] = count;
    }

    fn depart(&mut self, device: &[u8]) {
        let prefix = [device, b"/"].concat();
        self.state.retain(|key, _| !key.starts_with(&prefix));
    }

    /// The departure that a thread's next write begins with may have been done without the write: then nothing
    /// of that device is there.
    fn take_half_done(&mut self, db: &Db, thread: u64) {
        let next = step(self.seed, thread, self.done[thread as usize]);
        let Some(device) = next.departs.filter(|_| self.devices) else {
            return;
        };
        let prefix = [&device[..], b"/"].concat();
        let mut iterator = db.iter(IterOptions::prefix(prefix)).expect("iter");
        iterator.seek_to_first().expect("seek");
        if !iterator.valid() {
            self.depart(&device);
        }
    }

    /// Opens the database and compares; `acknowledged` is what the pipe told. Mostly a copy is opened, so that
    /// the next child recovers from the kill itself; sometimes the database, which a clean close ends.
    fn verify(&mut self, dir: &Path, acknowledged: &[u64], cycle: u64) {
        let copy = tempfile::tempdir().expect("tempdir");
        let closes = cycle.is_multiple_of(10);
        let dir = if closes {
            dir
        } else {
            copy_files(dir, copy.path());
            copy.path()
        };
        let db = Db::open(dir, options(self.devices))
            .unwrap_or_else(|error| panic!("cycle {cycle}, seed {}: {error}", self.seed));
        for thread in 0..THREADS {
            let found = count(&db, format!("count{thread}").as_bytes());
            let told = acknowledged[thread as usize];
            assert!(
                found >= told && found <= told + 1,
                "cycle {cycle}, seed {}: thread {thread} was told {told} writes, {found} are there",
                self.seed
            );
            self.advance(thread, found);
            self.take_half_done(&db, thread);
        }
        let mut iterator = db.iter(IterOptions::default()).expect("iter");
        iterator.seek_to_first().expect("seek");
        for (key, value) in &self.state {
            assert!(
                iterator.valid(),
                "cycle {cycle}, seed {}: keys end early",
                self.seed
            );
            assert_eq!(
                String::from_utf8_lossy(iterator.key()),
                String::from_utf8_lossy(key)
            );
            assert!(
                iterator.value() == value,
                "cycle {cycle}, seed {}: wrong value",
                self.seed
            );
            iterator.next().expect("next");
        }
        assert!(
            !iterator.valid(),
            "cycle {cycle}, seed {}: more keys than written",
            self.seed
        );
        drop(iterator);
        if closes {
            assert!(
                db.check().expect("check").problems.is_empty(),
                "tables are sound"
            );
        }
        db.close().expect("close");
    }
}

#[test]
fn nothing_acknowledged_is_lost_to_kill_9() {
    if let Ok(child) = std::env::var(CHILD) {
        let mut words = child.splitn(3, ' ');
        let mut word = || words.next().expect("seed, devices and directory");
        let (seed, devices, dir) = (word(), word(), word());
        let seed = seed.parse().expect("seed");
        write_until_killed(Path::new(dir), seed, devices == "true");
    }
    let (kills, seed) = cycles_and_seed();
    kill_again_and_again(kills.div_ceil(2), seed, false);
    kill_again_and_again(kills / 2, seed, true);
}

fn kill_again_and_again(kills: u64, seed: u64, devices: bool) {
    let dir = tempfile::tempdir().expect("tempdir");
    let mut oracle = Oracle::new(seed, devices);
    let mut random = Random(seed);
    for cycle in 1..=kills {
        let test = test_name(module_path!(), "nothing_acknowledged_is_lost_to_kill_9");
        let value = format!("{seed} {devices} {}", dir.path().display());
        let acknowledged = one_life(&test, (CHILD, &value), &oracle.done, &mut random);
        oracle.verify(dir.path(), &acknowledged, cycle);
    }
    println!(
        "kill test: {kills} kills (devices: {devices}), {} writes acknowledged, none lost",
        oracle.done.iter().sum::<u64>()
    );
}
