//! Simulated full disks: a limit of the database's own, or a file system without room, and kills and power cuts there.
//!
//! Each seed runs several lives of one database that writes until there is no room: values of all sizes, deletions,
//! departures, devices that settle all the time. At a random moment, mostly at the limit, the machine ends; some openings
//! are killed as well, and now and then many lives in a row that do no more than delete. What must hold, always:
//! - opening again with the same settings works;
//! - the limit is never passed;
//! - a departure and a deletion work at any time;
//! - once all has left, compaction works, and writes resume;
//! - what is found is a prefix of what was written, with everything acknowledged.
//!
//! `WAYSTATION_DISK_SEEDS` sets the number of seeds (default 100), `WAYSTATION_DISK_FIRST_SEED` the first, and
//! `WAYSTATION_DISK_SEED` runs a single one.

use crate::support::{Content, Random, content};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{
    Compression, Db, DeviceError, DeviceOptions, Durability, Error, Extractor, Options, WriteBatch,
};

const DIR: &str = "/db";
const LIVES: usize = 6;
/// So many lives at most follow each other that do no more than delete something.
const SHORT_LIVES: u64 = 50;
const DEVICES: u64 = 6;
const KEYS: u64 = 40;

/// What a write does to the content.
#[derive(Debug, Clone)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    /// All keys with this prefix: a departure, or the deletion of a range.
    Leave(Vec<u8>),
}

fn apply(content: &mut Content, step: Step) {
    match step {
        Step::Put(key, value) => drop(content.insert(key, value)),
        Step::Delete(key) => drop(content.remove(&key)),
        Step::Leave(prefix) => content.retain(|key, _| !key.starts_with(&prefix)),
    }
}

/// What a run did, over all seeds.
#[derive(Default)]
struct Tally {
    refused: AtomicU64,
    too_long: AtomicU64,
    crashes: AtomicU64,
    openings_killed: AtomicU64,
    emptied: AtomicU64,
}

/// One seed.
struct Run<'t> {
    seed: u64,
    random: Random,
    machine: Arc<SimStorage>,
    options: Options,
    limit: u64,
    /// What is there if only what is known to survive does; and what came after that.
    base: Content,
    later: Vec<Step>,
    /// So many of the latter were synced.
    synced: usize,
    tally: &'t Tally,
}

fn options(random: &mut Random) -> Options {
    let has_devices = !random.one_in(3);
    Options {
        memtable_bytes: (64 << 10) << random.below(2),
        table_bytes: 64 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: (256 << 10) << random.below(3),
        cache_bytes: 256 << 10,
        compression: Compression::None,
        background_jobs: 1,
        devices: has_devices.then(|| DeviceOptions {
            residency: Duration::from_millis(1 << random.below(12)),
            replay_bytes: (16 << 10) << random.below(6),
            ..DeviceOptions::new(Extractor::until(b':'))
        }),
        ..Options::default()
    }
}

fn used(machine: &SimStorage) -> u64 {
    let entries = machine.list(Path::new(DIR)).expect("list");
    entries.iter().map(|entry| entry.bytes).sum()
}

impl<'t> Run<'t> {
    fn new(seed: u64, tally: &'t Tally) -> Self {
        let mut random = Random(seed);
        let machine = SimStorage::new(seed);
        let mut options = options(&mut random);
        let mut limit = (5 << 20) + random.below(8 << 20);
        if random.one_in(3) {
            // So much is kept that less takes hardly anything.
            limit += 4 << 20;
            machine.set_capacity(Some(limit));
        } else {
            options.disk_bytes_max = Some(limit);
        }
        Self {
            seed,
            random,
            machine,
            options,
            limit,
            base: Content::new(),
            later: Vec::new(),
            synced: 0,
            tally,
        }
    }

    fn prefix(&mut self) -> Vec<u8> {
        format!("car{}:", self.random.below(DEVICES)).into_bytes()
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(KEYS);
        if self.random.one_in(5) {
            return format!("plain{number:03}").into_bytes();
        }
        [self.prefix(), format!("{number:03}").into_bytes()].concat()
    }

    fn value(&mut self) -> Vec<u8> {
        let bytes = match self.random.below(100) {
            0 => self.random.below(2 * self.limit),
            1..4 => self.random.below(self.limit / 8),
            4..20 => self.random.below(60_000),
            _ => self.random.below(6_000),
        };
        vec![self.random.next() as u8; bytes as usize]
    }

    fn open(&self) -> waystation::Result<Db> {
        let storage: Arc<dyn Storage> = self.machine.clone();
        Db::open_with(storage, DIR, self.options.clone())
    }

    fn fail(&self, told: &str) -> ! {
        let entries = self.machine.list(Path::new(DIR)).expect("list");
        let files = entries.iter().map(|it| (&it.name, it.bytes));
        let files: Vec<_> = files.collect();
        panic!(
            "seed {}, limit {}: {told}; {:?}; {files:?}",
            self.seed, self.limit, self.options
        )
    }

    #[track_caller]
    fn assert_limit(&self) {
        let used = used(&self.machine);
        assert!(used <= self.limit, "{used} of {} bytes", self.limit);
    }

    /// Takes what is there: the least that has to be, or some more.
    #[track_caller]
    fn take(&mut self, db: &Db, least: usize) {
        let found = content(db);
        let steps = std::mem::take(&mut self.later);
        let mut expected = self.base.clone();
        let mut is_found = false;
        for (count, step) in steps.into_iter().enumerate() {
            if count >= least && expected == found {
                is_found = true;
                break;
            }
            apply(&mut expected, step);
        }
        assert!(
            is_found || expected == found,
            "what is found was never there"
        );
        self.base = found;
        self.synced = 0;
        assert_eq!(db.check().expect("check").problems, []);
    }

    fn note(&mut self, step: Step) {
        self.later.push(step);
    }

    fn delete(&mut self, db: &Db) {
        let key = self.key();
        if let Err(error) = db.delete(&key) {
            self.fail(&format!("no deletion: {error}"));
        }
        self.note(Step::Delete(key));
    }

    /// A device leaves, or what is called so.
    fn leave(&mut self, db: &Db, prefix: Vec<u8>) {
        if self.options.devices.is_none() {
            db.delete_prefix(&prefix).expect("so does this one");
        } else {
            match db.devices().depart(&prefix[..prefix.len() - 1]) {
                Ok(()) | Err(Error::Device(DeviceError::Unknown { .. })) => {}
                Err(error) => self.fail(&format!("no departure: {error}")),
            }
        }
        self.note(Step::Leave(prefix));
    }

    /// Whether the value was taken.
    fn put(&mut self, db: &Db) -> bool {
        let (key, value) = (self.key(), self.value());
        let is_synced = self.random.one_in(20);
        let mut batch = WriteBatch::new();
        batch.put(&key, &value);
        let durability = if is_synced {
            Durability::PowerLoss
        } else {
            Durability::ProcessCrash
        };
        match db.write(&batch, durability) {
            Ok(()) => {
                self.note(Step::Put(key, value));
                if is_synced {
                    self.synced = self.later.len();
                }
                return true;
            }
            Err(Error::DiskFull { .. }) => self.tally.refused.fetch_add(1, SeqCst),
            Err(Error::InvalidArgument(reason)) => {
                let is_long = value.len() as u64 > self.limit / 20;
                assert!(is_long, "{} bytes: {reason}", value.len());
                self.tally.too_long.fetch_add(1, SeqCst)
            }
            Err(error) => panic!("a put of {} bytes: {error}", value.len()),
        };
        false
    }

    /// Everything leaves, and there is room again.
    fn empty(&mut self, db: &Db) {
        for number in 0..DEVICES {
            self.leave(db, format!("car{number}:").into_bytes());
        }
        db.delete_range(b"", None).expect("a deletion works");
        self.note(Step::Leave(Vec::new()));
        // A flush may have to wait for what has just left.
        let all = || {
            std::thread::sleep(Duration::from_millis(1));
            db.compact_range(Bound::Unbounded, Bound::Unbounded).is_ok()
        };
        if !(0..5_000).any(|_| all()) {
            self.fail(&format!("no compaction: {:?}", db.stats().failure));
        }
        let value = vec![7; 50_000];
        let put = || {
            std::thread::sleep(Duration::from_millis(1));
            db.put(b"car1:again", &value).is_ok()
        };
        if !(0..5_000).any(|_| put()) {
            let told = db.put(b"car1:again", &value);
            self.fail(&format!("writes do not resume: {told:?}"));
        }
        self.note(Step::Put(b"car1:again".to_vec(), value));
        self.tally.emptied.fetch_add(1, SeqCst);
    }

    fn write(&mut self, db: &Db) {
        let mut left = 20 + self.random.below(300);
        let mut refusals_left = self.random.below(40);
        while left > 0 && refusals_left > 0 {
            left -= 1;
            match self.random.below(100) {
                0..2 => {
                    let prefix = self.prefix();
                    self.leave(db, prefix);
                }
                2..12 => self.delete(db),
                12 => drop(db.flush()),
                13 => drop(db.devices().settle(b"car1")),
                _ => refusals_left -= u64::from(!self.put(db)),
            }
            self.assert_limit();
        }
    }

    fn crash(&mut self) -> usize {
        self.tally.crashes.fetch_add(1, SeqCst);
        let seed = self.random.next();
        if self.random.one_in(3) {
            self.machine = self.machine.crash(seed, Crash::PowerCut);
            return self.synced;
        }
        self.machine = self.machine.crash(seed, Crash::Process);
        self.later.len()
    }

    /// Opens the database and kills that, somewhere on the way.
    fn kill_an_opening(&mut self) {
        let magnitude = self.random.below(16);
        let spins = self.random.below(1 << magnitude);
        let machine = Arc::clone(&self.machine);
        let seed = self.random.next();
        let next = std::thread::scope(|scope| {
            let opening = scope.spawn(|| self.open());
            for _ in 0..spins {
                std::hint::spin_loop();
            }
            let next = machine.crash(seed, Crash::Process);
            drop(opening.join().expect("no panic"));
            next
        });
        self.machine = next;
        self.tally.openings_killed.fetch_add(1, SeqCst);
    }

    /// A life begins with what is known to survive, and something leaves.
    #[track_caller]
    fn begin_life(&mut self, least: usize) -> Db {
        let opened = self.open();
        let db = opened.unwrap_or_else(|error| self.fail(&format!("cannot open: {error}")));
        self.assert_limit();
        self.take(&db, least);
        let prefix = self.prefix();
        self.leave(&db, prefix);
        self.delete(&db);
        db
    }

    fn run(&mut self) {
        let mut least = 0;
        for life in 0..LIVES {
            while life > 0 && self.random.one_in(3) {
                self.kill_an_opening();
            }
            if life > 0 && self.random.one_in(8) {
                for _ in 0..self.random.below(SHORT_LIVES) {
                    self.begin_life(least);
                    least = self.crash();
                }
            }
            let db = self.begin_life(least);
            if self.random.one_in(2) {
                self.empty(&db);
            }
            self.write(&db);
            least = self.crash();
        }
        let db = self.begin_life(least);
        self.empty(&db);
        db.close().expect("close");
    }
}

#[test]
fn a_full_disk_is_opened_again_and_left() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse().expect("a number"))
    };
    let tally = Tally::default();
    if let Some(seed) = number("WAYSTATION_DISK_SEED") {
        return Run::new(seed, &tally).run();
    }
    let first = number("WAYSTATION_DISK_FIRST_SEED").unwrap_or(1);
    let seeds = number("WAYSTATION_DISK_SEEDS").unwrap_or(100);
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, SeqCst);
                    if seed >= first + seeds {
                        return;
                    }
                    let run = || Run::new(seed, &tally).run();
                    if let Err(panic) = std::panic::catch_unwind(run) {
                        println!(
                            "replay with: WAYSTATION_DISK_SEED={seed} cargo test -p waystation --test suite disk_limit::"
                        );
                        std::panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
    let of = |counter: &AtomicU64| counter.load(SeqCst);
    println!(
        "disk_limit: {seeds} seeds from {first}: {} crashes, {} openings killed, {} puts refused, {} too long, emptied {} times",
        of(&tally.crashes),
        of(&tally.openings_killed),
        of(&tally.refused),
        of(&tally.too_long),
        of(&tally.emptied)
    );
}
