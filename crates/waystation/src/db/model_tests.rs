//! The whole database under shuttle: the commit pipeline, the switching of memtables, flushes and reads in random
//! schedules, over the real log and tree on the simulated machine.
//!
//! Run with `make models`; `MODEL_FACTOR=10` in the
//! environment tries ten times as many schedules.
//!
//! Each writer writes batches that put one number, counting up, under two keys, together with the numbers of all
//! writers that it read just before. So at every snapshot, and after every crash, the two are equal (batches are
//! whole), not below what was acknowledged before, never go back, and whatever a writer had read is there too
//! (the writes that are there are a prefix of one order).

use super::{Db, Durability, IterOptions, Options, WriteBatch};
use crate::error::Result;
use crate::log::model_storage::Watched;
use crate::storage::SimStorage;
use crate::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use crate::storage::sim::Crash;
use crate::sync::Arc;
use crate::sync::models::explore;
use crate::sync::thread::{self, JoinHandle};
use shuttle::rand::{Rng, thread_rng};
use std::sync::Mutex;

const WRITERS: usize = 3;
const TURNS: u64 = 4;

/// So long that a batch fills a memtable and a few a segment.
const VALUE_BYTES: usize = 30_000;

fn options() -> Options {
    Options {
        memtable_bytes: 64 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        background_jobs: 1,
        ..Options::default()
    }
}

struct Model {
    machine: Arc<SimStorage>,
    db: Db,
    /// Per writer, what was acknowledged for a process crash and for a power loss. Not seen by the scheduler.
    acknowledged: Mutex<[(u64, u64); WRITERS]>,
}

impl Model {
    fn start() -> Arc<Self> {
        Self::start_with(&FaultRules::new())
    }

    fn start_with(rules: &FaultRules) -> Arc<Self> {
        let machine = SimStorage::new(thread_rng().r#gen());
        let storage = Watched::over(machine.with_faults(rules));
        let db = Db::open_with(storage, "/db", options()).unwrap();
        Arc::new(Self {
            machine,
            db,
            acknowledged: Mutex::default(),
        })
    }

    fn acknowledged(&self) -> [(u64, u64); WRITERS] {
        *self.acknowledged.lock().unwrap()
    }

    /// Writes `TURNS` batches, or as many as the machine lets it.
    fn write(&self, writer: usize) {
        for turn in 1..=TURNS {
            if self.write_turn(writer, turn).is_err() {
                // What failed may be there or not; the next one would hide it.
                return;
            }
        }
    }

    fn write_turn(&self, writer: usize, turn: u64) -> Result<()> {
        let mut told = [0; WRITERS];
        for (other, told) in told.iter_mut().enumerate() {
            *told = number(self.db.get(&key(other, 'b'))?).turn;
        }
        told[writer] = turn;
        let value = Number { turn, told }.encode();
        let mut batch = WriteBatch::new();
        // What came before goes by a grave, or is written over.
        match turn % 3 {
            0 => batch.delete(&key(writer, 'a')),
            1 => batch.delete_range(&key(writer, 'a'), Some(&key(writer, 'c'))),
            _ => {}
        }
        batch.put(&key(writer, 'a'), &value);
        batch.put(&key(writer, 'b'), &value);
        let durability = if thread_rng().gen_range(0..3) == 0 {
            Durability::PowerLoss
        } else {
            Durability::ProcessCrash
        };
        self.db.write(&batch, durability)?;
        let mut acknowledged = self.acknowledged.lock().unwrap();
        acknowledged[writer].0 = turn;
        if durability == Durability::PowerLoss {
            acknowledged[writer].1 = turn;
        }
        drop(acknowledged);
        let seen = number(self.db.get(&key(writer, 'a'))?).turn;
        assert_eq!(seen, turn, "an acknowledged write is not visible");
        Ok(())
    }

    /// Takes a snapshot and reads it by key and by cursor.
    fn read(&self, last: &mut [u64; WRITERS]) {
        let before = self.acknowledged();
        let snapshot = self.db.snapshot();
        let found = check_state(|key| self.db.get_at(key, &snapshot).unwrap());
        for writer in 0..WRITERS {
            assert!(
                found[writer] >= before[writer].0,
                "an acknowledged write is not visible"
            );
            assert!(found[writer] >= last[writer], "a later snapshot sees less");
        }
        *last = found;
        let options = IterOptions {
            snapshot: Some(snapshot),
            ..IterOptions::default()
        };
        let mut cursor = self.db.iter(options).unwrap();
        let mut listed = Vec::new();
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            let turn = number(Some(cursor.value().to_vec())).turn;
            listed.push((cursor.key().to_vec(), turn));
            cursor.next().unwrap();
        }
        let expected: Vec<_> = (0..WRITERS)
            .filter(|writer| last[*writer] > 0)
            .flat_map(|writer| ['a', 'b'].map(|half| (key(writer, half), last[writer])))
            .collect();
        assert_eq!(
            listed, expected,
            "cursor and lookups differ at one snapshot"
        );
    }
}

/// Each writer's turn in one state of the database, which must be one that the order of the writes went through.
fn check_state(get: impl Fn(&[u8]) -> Option<Vec<u8>>) -> [u64; WRITERS] {
    let halves = |half| std::array::from_fn(|writer| number(get(&key(writer, half))));
    let (a, b): ([Number; WRITERS], [Number; WRITERS]) = (halves('a'), halves('b'));
    assert_eq!(a, b, "half a batch");
    let turns = a.map(|number| number.turn);
    for (writer, number) in a.iter().enumerate() {
        for (other, (told, turn)) in number.told.iter().zip(turns).enumerate() {
            assert!(
                *told <= turn,
                "writer {writer} had read turn {told} of {other}, which is at {turn}: a hole"
            );
        }
    }
    turns
}

/// What a writer writes: its turn, and those of all that it knew of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Number {
    turn: u64,
    told: [u64; WRITERS],
}

impl Number {
    fn encode(&self) -> Vec<u8> {
        let mut value = self.turn.to_le_bytes().to_vec();
        value.extend(self.told.iter().flat_map(|told| told.to_le_bytes()));
        value.resize(VALUE_BYTES, self.turn as u8);
        value
    }
}

fn key(writer: usize, half: char) -> Vec<u8> {
    format!("{writer}{half}").into_bytes()
}

/// The content of a value; zeros if there is none.
fn number(value: Option<Vec<u8>>) -> Number {
    let Some(value) = value else {
        return Number::default();
    };
    let mut fields = value.as_chunks().0.iter().copied().map(u64::from_le_bytes);
    let mut field = || fields.next().unwrap();
    let number = Number {
        turn: field(),
        told: std::array::from_fn(|_| field()),
    };
    assert!(number.encode() == value, "a damaged value");
    number
}

fn spawn_writers(model: &Arc<Model>) -> Vec<JoinHandle<()>> {
    (0..WRITERS)
        .map(|writer| {
            let model = Arc::clone(model);
            thread::spawn(move || model.write(writer))
        })
        .collect()
}

fn join_all(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Opens what `left` holds and checks it against what was acknowledged.
fn check_left(left: Arc<SimStorage>, least: [u64; WRITERS]) {
    let storage = Watched::over(left);
    let db = Db::open_with(storage, "/db", options()).unwrap();
    let turns = check_state(|key| db.get(key).unwrap());
    for (writer, (turn, least)) in turns.into_iter().zip(least).enumerate() {
        assert!(
            turn >= least,
            "writer {writer}: {least} was acknowledged, {turn} found"
        );
    }
    db.close().unwrap();
}

#[test]
fn batches_are_whole_and_acknowledged_ones_visible_while_memtables_switch() {
    explore(
        || {
            let model = Model::start();
            let writers = spawn_writers(&model);
            let mut last = [0; WRITERS];
            let mut kept = Vec::new();
            for _ in 0..4 {
                let snapshot = model.db.snapshot();
                let found = check_state(|key| model.db.get_at(key, &snapshot).unwrap());
                kept.push((snapshot, found));
                model.read(&mut last);
            }
            join_all(writers);
            for (snapshot, then) in kept {
                let now = check_state(|key| model.db.get_at(key, &snapshot).unwrap());
                assert_eq!(now, then, "a snapshot moved");
            }
            model.read(&mut last);
            assert_eq!(last, [TURNS; WRITERS]);
            let model = Arc::into_inner(model).unwrap();
            model.db.close().unwrap();
            check_left(model.machine.crash(1, Crash::PowerCut), last);
        },
        500,
    );
}

#[test]
fn a_crash_at_any_moment_keeps_what_was_acknowledged() {
    explore(
        || {
            let model = Model::start();
            let writers = spawn_writers(&model);
            for _ in 0..thread_rng().gen_range(0..1500) {
                thread::yield_now();
            }
            // No other thread runs between these two lines.
            let acknowledged = model.acknowledged();
            let crash = if thread_rng().r#gen() {
                Crash::Process
            } else {
                Crash::PowerCut
            };
            let left = model.machine.crash(thread_rng().r#gen(), crash);
            let least = acknowledged.map(|(process, power)| match crash {
                Crash::Process => process,
                Crash::PowerCut => power,
            });
            check_left(left, least);
            join_all(writers);
            drop(Arc::into_inner(model).unwrap());
        },
        1500,
    );
}

#[test]
fn failing_storage_suspends_and_heals_without_losing_anything() {
    explore(
        || {
            let rules = FaultRules::new();
            let model = Model::start_with(&rules);
            let mut random = thread_rng();
            for _ in 0..random.gen_range(1..3) {
                let operation =
                    [Operation::Write, Operation::Sync, Operation::SyncDir][random.gen_range(0..3)];
                let fault = [Fault::Fail, Fault::FailAfter][random.gen_range(0..2)];
                rules.add(
                    Rule::new(operation, fault(Refusal::InputOutput))
                        .after(random.gen_range(0..20))
                        .times(random.gen_range(1..3)),
                );
            }
            let writers = spawn_writers(&model);
            let mut last = [0; WRITERS];
            for _ in 0..3 {
                model.read(&mut last);
            }
            join_all(writers);
            rules.clear();
            let acknowledged = model.acknowledged().map(|(process, _)| process);
            let model = Arc::into_inner(model).unwrap();
            if random.r#gen() {
                // Closing straight after the fault: it may fail, and then the log keeps everything.
                let _ = model.db.close();
            } else {
                drop(model.db);
            }
            check_left(model.machine.crash(1, Crash::Process), acknowledged);
        },
        700,
    );
}
