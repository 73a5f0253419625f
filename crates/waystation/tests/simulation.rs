//! Simulated crashes and faults on the whole engine.
//!
//! Each seed runs several lives of one database on a simulated machine. In each life a writer thread commits
//! batches, some of them synced, while flushes and compactions run and, for some seeds, calls of the storage
//! fail. At a random moment the machine ends: the process dies, or the power is cut. The oracle: what is found
//! is the state after the first k batches of the commit order, and k covers everything acknowledged at its
//! durability before that moment. Reads meanwhile, and at snapshots, must agree with the order too.
//!
//! Every other seed has devices, which arrive, settle and depart meanwhile, by themselves and by call. Some keys have
//! a time to live, over before the next life or long after all.
//!
//! `WAYSTATION_SEEDS` sets the number of seeds (default 1000), `WAYSTATION_SEED` runs a single one.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use support::Random;
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule, RuleId};
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{
    Db, DeviceOptions, Durability, Error, Extractor, IterOptions, Options, WriteBatch,
};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// The key that counts the batches: each batch sets it to its own index.
const COUNTER: &[u8] = b"~count";
const LIVES: usize = 4;

/// One operation of a batch.
enum Change {
    Put(Vec<u8>, Vec<u8>),
    /// For so long; who looks after a crash finds it expired, or will never see it expire.
    PutFor(Vec<u8>, Vec<u8>, Duration),
    Delete(Vec<u8>),
    /// Where the range ends, if it does.
    DeleteRange(Vec<u8>, Option<Vec<u8>>),
}

/// Whether the databases of `seed` have devices.
fn has_devices(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

const DEVICES: u64 = 8;
const A_MOMENT: Duration = Duration::from_micros(1);
const CENTURIES: Duration = Duration::from_secs(10_000_000_000);

fn device(number: u64) -> Vec<u8> {
    format!("device{number}").into_bytes()
}

/// The device that departs before batch `index`.
fn departure(seed: u64, index: u64) -> Option<Vec<u8>> {
    let mut random = Random(!seed ^ index.wrapping_mul(0x2545_f491_4f6c_dd1d));
    (has_devices(seed) && random.one_in(12)).then(|| device(random.below(DEVICES)))
}

fn depart(state: &mut State, device: &[u8]) {
    let prefix = [device, b":"].concat();
    state.retain(|key, _| !key.starts_with(&prefix));
}

/// The changes of batch `index`, which follow from the seed alone.
fn changes(seed: u64, index: u64) -> Vec<Change> {
    let mut random = Random(seed ^ index.wrapping_mul(0x5851_f42d_4c95_7f2d));
    let count = if random.one_in(4) {
        1 + random.below(12)
    } else {
        1
    };
    let mut changes: Vec<Change> = (0..count)
        .map(|at| {
            let key = if has_devices(seed) && !random.one_in(5) {
                let number = random.below(DEVICES);
                format!("device{number}:key{:02}", random.below(20)).into_bytes()
            } else {
                format!("key{:03}", random.below(60)).into_bytes()
            };
            if random.one_in(30) {
                let end = [&key[..key.len() - 2], &[0xff]].concat();
                return Change::DeleteRange(key, (!random.one_in(8)).then_some(end));
            }
            let value = (!random.one_in(3)).then(|| {
                let len = match random.below(60) {
                    // No batch is longer than half a ring: such a one waits for the storage to come back, and a
                    // machine that was switched off never does.
                    0 if at == 0 => 20_000 + random.below(40_000),
                    1..6 => random.below(5_000),
                    _ => random.below(120),
                };
                vec![random.next() as u8; len as usize]
            });
            match value {
                Some(value) if random.one_in(12) && !key.starts_with(b"device") => {
                    let brief = random.one_in(2);
                    Change::PutFor(key, value, if brief { A_MOMENT } else { CENTURIES })
                }
                Some(value) => Change::Put(key, value),
                None => Change::Delete(key),
            }
        })
        .collect();
    changes.push(Change::Put(COUNTER.to_vec(), index.to_le_bytes().to_vec()));
    changes
}

fn batch(changes: &[Change]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for change in changes {
        match change {
            Change::Put(key, value) => batch.put(key, value),
            Change::PutFor(key, value, lifetime) => batch.put_with_ttl(key, value, *lifetime),
            Change::Delete(key) => batch.delete(key),
            Change::DeleteRange(start, end) => batch.delete_range(start, end.as_deref()),
        }
    }
    batch
}

fn apply(state: &mut State, changes: Vec<Change>) {
    for change in changes {
        match change {
            Change::Put(key, value) | Change::PutFor(key, value, CENTURIES) => {
                state.insert(key, value);
            }
            Change::PutFor(key, _, _) | Change::Delete(key) => {
                state.remove(&key);
            }
            Change::DeleteRange(start, end) => {
                let is_outside =
                    |key: &Vec<u8>| *key < start || end.as_ref().is_some_and(|end| key >= end);
                state.retain(|key, _| is_outside(key));
            }
        }
    }
}

fn options(seed: u64, random: &mut Random) -> Options {
    let residency = Duration::from_millis(10 << random.below(14));
    Options {
        devices: has_devices(seed).then(|| DeviceOptions {
            residency,
            upper_bytes: (128 << 10) << random.below(4),
            replay_bytes: [0, 1 << 10, 16 << 10, 64 << 10, 4 << 30][random.below(5) as usize],
            ..DeviceOptions::new(Extractor::until(b':'))
        }),
        memtable_bytes: (64 << 10) << random.below(3),
        table_bytes: (64 << 10) << random.below(3),
        block_bytes: 1024 << random.below(3),
        ring_bytes: (256 << 10) << random.below(2),
        log_segment_bytes: (256 << 10) << random.below(2),
        cache_bytes: 64 << 10,
        background_jobs: 1 + random.below(2) as usize,
        filter_bits_per_key: if random.one_in(4) { 0 } else { 10 },
        // Often none stay in memory, or few.
        graves_bytes: [0, 1 << 10, 64 << 20][random.below(3) as usize],
        ..Options::default()
    }
}

/// What a run did, over all seeds.
#[derive(Default)]
struct Tally {
    process_deaths: AtomicU64,
    power_cuts: AtomicU64,
    closes: AtomicU64,
    /// Calls of the storage that were made to fail.
    faults: AtomicU64,
    /// Batches, departures among them, that were found again and compared.
    batches: AtomicU64,
}

impl Tally {
    fn summary(&self) -> String {
        let of = |counter: &AtomicU64| counter.load(SeqCst);
        let (deaths, cuts) = (of(&self.process_deaths), of(&self.power_cuts));
        format!(
            "{} crashes ({deaths} of the process, {cuts} of the power), {} closes, {} failed calls, {} batches",
            deaths + cuts,
            of(&self.closes),
            of(&self.faults),
            of(&self.batches)
        )
    }
}

/// Faults for one life: something fails for a while, then heals.
fn add_faults(rules: &FaultRules, random: &mut Random) -> Vec<RuleId> {
    let faults = 1 + random.below(3);
    let fault = |_| {
        let operation = [
            Operation::Write,
            Operation::Sync,
            Operation::Preallocate,
            Operation::Open,
            Operation::Rename,
            Operation::SyncDir,
            Operation::Read,
        ][random.below(7) as usize];
        let refusal = if random.one_in(2) {
            Refusal::InputOutput
        } else {
            Refusal::NoSpace
        };
        let fault = match random.below(3) {
            0 => Fault::Torn(4096 * random.below(4) as usize, refusal),
            1 => Fault::FailAfter(refusal),
            _ => Fault::Fail(refusal),
        };
        let rule = Rule::new(operation, fault).after(random.below(60));
        rules.add(rule.times(1 + random.below(4)))
    };
    let mut added: Vec<_> = (0..faults).map(fault).collect();
    if random.one_in(3) {
        // What was made durable for a flush or a merge is there, and the version that it belongs to is not.
        let operation = [Operation::Write, Operation::Sync][random.below(2) as usize];
        let rule = Rule::new(operation, Fault::Fail(Refusal::InputOutput)).on("MANIFEST");
        added.push(rules.add(rule.after(random.below(4))));
    }
    added
}

/// What the writer tells the oracle.
#[derive(Default)]
struct Told {
    /// Batches below this index were acknowledged, whatever the durability.
    acknowledged: AtomicU64,
    /// Batches below this index were acknowledged as surviving a power loss.
    synced: AtomicU64,
    /// The machine has ended, and with it the writer's work.
    over: AtomicBool,
}

/// Commits batches from `first` on until the machine is off or `limit` is reached.
fn write_batches(db: &Db, seed: u64, first: u64, limit: u64, told: &Told, mut random: Random) {
    let mut state: Option<(waystation::Snapshot, u64)> = None;
    let mut index = first;
    while index < limit && !told.over.load(SeqCst) {
        let durability = if random.one_in(12) {
            Durability::PowerLoss
        } else {
            Durability::ProcessCrash
        };
        if let Some(device) = departure(seed, index) {
            match db.depart(&device) {
                Ok(()) | Err(Error::UnknownDevice { .. }) => {}
                Err(Error::Suspended { .. } | Error::Io { .. }) => {
                    std::thread::yield_now();
                    continue;
                }
                Err(error) => panic!("seed {seed}: departure {index}: {error}"),
            }
        }
        if has_devices(seed) && random.one_in(40) {
            // It may fail with the storage, and is tried again by itself.
            let _ = db.settle(&device(random.below(DEVICES)));
        }
        match db.write(&batch(&changes(seed, index)), durability) {
            Ok(()) => {
                told.acknowledged.fetch_max(index + 1, SeqCst);
                if durability == Durability::PowerLoss {
                    told.synced.fetch_max(index + 1, SeqCst);
                }
                index += 1;
            }
            // Whether it counts, the counter tells: a failed sync leaves the batch visible.
            Err(Error::Suspended { .. } | Error::Io { .. }) => match db.get(COUNTER) {
                Ok(count) if count_of(count.as_deref()) > index => index += 1,
                Ok(_) => std::thread::yield_now(),
                Err(_) => return,
            },
            Err(error) => panic!("seed {seed}: batch {index}: {error}"),
        }
        if random.one_in(20) {
            if let Some((snapshot, seen)) = state.take() {
                // A snapshot sees the counter that it saw.
                if let Ok(count) = db.get_at(COUNTER, &snapshot) {
                    let now = count_of(count.as_deref());
                    assert_eq!(now, seen, "seed {seed}: a snapshot moved");
                }
            } else {
                state = Some((db.snapshot(), index));
            }
        }
        if random.one_in(150) {
            let _ = db.flush();
        }
    }
}

/// How many batches a counter value stands for.
fn count_of(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |bytes| {
        u64::from_le_bytes(bytes.try_into().expect("eight bytes")) + 1
    })
}

fn read_all(db: &Db, backwards: bool) -> waystation::Result<State> {
    let mut state = State::new();
    let mut iterator = db.iter(IterOptions::default())?;
    if backwards {
        iterator.seek_to_last()?;
    } else {
        iterator.seek_to_first()?;
    }
    while iterator.valid() {
        let old = state.insert(iterator.key().to_vec(), iterator.value().to_vec());
        assert!(old.is_none(), "a key came twice");
        if backwards {
            iterator.prev()?;
        } else {
            iterator.next()?;
        }
    }
    Ok(state)
}

/// The oracle over all lives of one seed.
struct Oracle {
    seed: u64,
    count: u64,
    state: State,
}

impl Oracle {
    /// Takes what a life left: between `least` and `most` batches, and exactly their state.
    fn take(&mut self, db: &Db, least: u64, most: u64, how: &str) {
        let seed = self.seed;
        let found = count_of(db.get(COUNTER).expect("get").as_deref());
        assert!(
            (least..=most).contains(&found),
            "seed {seed}, after {how}: {found} batches found, {least} to {most} expected"
        );
        assert!(found >= self.count, "seed {seed}: an older state came back");
        while self.count < found {
            if let Some(device) = departure(seed, self.count) {
                depart(&mut self.state, &device);
            }
            apply(&mut self.state, changes(seed, self.count));
            self.count += 1;
        }
        if let Some(device) = departure(seed, self.count) {
            // The next step may have been half done: its departure, and not its batch.
            let state = read_all(db, false).expect("iterate");
            let mut departed = self.state.clone();
            depart(&mut departed, &device);
            if state == departed {
                self.state = departed;
            }
        }
        for backwards in [false, true] {
            let state = read_all(db, backwards).expect("iterate");
            if state != self.state {
                let keys = |s: &State| {
                    s.keys()
                        .map(|k| String::from_utf8_lossy(k).into_owned())
                        .collect::<Vec<_>>()
                };
                panic!(
                    "seed {seed}, after {how} with {found} batches (backwards: {backwards}): wrong state\nfound    {:?}\nexpected {:?}",
                    keys(&state),
                    keys(&self.state)
                );
            }
        }
        for (key, value) in &self.state {
            assert!(
                db.get(key).expect("get").as_ref() == Some(value),
                "seed {seed}: get differs"
            );
        }
        let report = db.check().expect("check");
        assert!(
            report.problems.is_empty(),
            "seed {seed}, after {how}: {report:?}"
        );
    }
}

fn run_seed(seed: u64, tally: &Tally) {
    let mut random = Random(seed);
    let dir = Path::new("/db");
    let mut machine = SimStorage::new(seed);
    let mut oracle = Oracle {
        seed,
        count: 0,
        state: State::new(),
    };
    let (mut least, mut most) = (0, 0);
    let mut how = "creation".to_owned();
    for _ in 0..LIVES {
        let options = options(seed, &mut random);
        let rules = FaultRules::new();
        let storage: Arc<dyn Storage> = machine.with_faults(&rules);
        let db = Db::open_with(storage, dir, options)
            .unwrap_or_else(|error| panic!("seed {seed}, after {how}: cannot open: {error}"));
        oracle.take(&db, least, most, &how);
        how.clear();
        let mut faults = Vec::new();
        if random.one_in(3) {
            faults = add_faults(&rules, &mut random);
            how = format!("faults {rules:?}");
        }
        let told = Told::default();
        told.acknowledged.store(oracle.count, SeqCst);
        // What was found was made durable by the recovery that found it.
        told.synced.store(oracle.count, SeqCst);
        let length = 1 + random.below(250);
        let stop_at = oracle.count + random.below(length);
        let crash = if random.one_in(2) {
            Crash::Process
        } else {
            Crash::PowerCut
        };
        let clean = random.one_in(8);
        let writer_random = Random(random.next());
        let crash_seed = random.next();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                write_batches(
                    &db,
                    seed,
                    oracle.count,
                    oracle.count + length,
                    &told,
                    writer_random,
                );
            });
            while told.acknowledged.load(SeqCst) < stop_at && !writer.is_finished() {
                std::thread::yield_now();
            }
            if clean {
                writer.join().expect("writer");
                return;
            }
            least = match crash {
                Crash::Process => told.acknowledged.load(SeqCst),
                Crash::PowerCut => told.synced.load(SeqCst),
            };
            machine = machine.crash(crash_seed, crash);
            told.over.store(true, SeqCst);
            how = format!("{crash:?} {how}");
        });
        most = told.acknowledged.load(SeqCst) + 1;
        if clean {
            // Straight after (or amid) the faults closing may fail; the log keeps everything then.
            let straight = random.one_in(2);
            if !straight {
                rules.clear();
                // It heals by itself once the cause is gone, though not at once.
                while db.flush().is_err() {
                    std::thread::yield_now();
                }
            }
            how = format!("close (straight: {straight}) {how}");
            match db.close() {
                Err(error) if !straight => panic!("seed {seed}: close: {error}"),
                _ => least = told.acknowledged.load(SeqCst),
            }
        }
        let ends = match crash {
            _ if clean => &tally.closes,
            Crash::Process => &tally.process_deaths,
            Crash::PowerCut => &tally.power_cuts,
        };
        ends.fetch_add(1, SeqCst);
        let caught = faults.into_iter().map(|id| rules.count(id).caught);
        tally.faults.fetch_add(caught.sum(), SeqCst);
        most = most.max(oracle.count + length);
    }
    let db = Db::open_with(machine, dir, options(seed, &mut random))
        .unwrap_or_else(|error| panic!("seed {seed}, after {how}: cannot open: {error}"));
    oracle.take(&db, least, most, &how);
    tally.batches.fetch_add(oracle.count, SeqCst);
}

#[test]
fn recovery_is_a_prefix_that_holds_everything_acknowledged() {
    if let Ok(seed) = std::env::var("WAYSTATION_SEED") {
        return run_seed(seed.parse().expect("a number"), &Tally::default());
    }
    let seeds: u64 =
        std::env::var("WAYSTATION_SEEDS").map_or(1000, |n| n.parse().expect("a number"));
    let first: u64 =
        std::env::var("WAYSTATION_FIRST_SEED").map_or(1, |n| n.parse().expect("a number"));
    let (next, tally) = (AtomicU64::new(first), Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, SeqCst);
                    if seed >= first + seeds {
                        return;
                    }
                    if let Err(panic) = std::panic::catch_unwind(|| run_seed(seed, &tally)) {
                        println!("replay with: WAYSTATION_SEED={seed} cargo test -p waystation --test simulation");
                        std::panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
    println!(
        "simulation: {seeds} seeds from {first}, no violation; {}",
        tally.summary()
    );
}
