//! Deletions in the upper level: when their device settles they put nothing into the tree, and whoever needs them, at
//! whatever snapshot and after whatever crash, still sees what he should.

use crate::support::{
    Content as State, Random, content_by, options_with_devices, options_with_resting_devices,
    wait_until,
};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use waystation::inspect::{Inspection, Place};
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, DeviceError, Durability, Error, IterOptions, Options, Snapshot, WriteBatch};

const DIR: &str = "/db";

fn open(machine: &Arc<SimStorage>, options: Options) -> Db {
    Db::open_with(Arc::clone(machine) as Arc<dyn Storage>, DIR, options).unwrap()
}

/// What is left of the machine after a crash.
fn crash(db: Db, machine: &Arc<SimStorage>, kind: Crash) -> Arc<SimStorage> {
    let left = machine.crash(7, kind);
    // It belongs to a machine that is off.
    drop(db);
    left
}

fn key(device: u64, number: u64) -> Vec<u8> {
    format!("car{device}:{number:02}").into_bytes()
}

/// What the directory holds of a key in tables: how many values, how many deletions.
fn in_tables(machine: &Arc<SimStorage>, key: &[u8]) -> (usize, usize) {
    let files = Inspection::open(Arc::clone(machine) as Arc<dyn Storage>, DIR).unwrap();
    let found = files.find(key).unwrap();
    let in_tables = found
        .iter()
        .filter(|it| matches!(it.place, Place::Level(_)));
    let values = in_tables.clone().filter(|it| it.value.is_some()).count();
    (values, in_tables.count() - values)
}

/// Compares all that `db` shows, now or at a snapshot, with `state`.
fn compare(db: &Db, snapshot: Option<&Snapshot>, state: &State, told: &str) {
    let options = IterOptions {
        snapshot: snapshot.cloned(),
        ..IterOptions::default()
    };
    let found = content_by(db, options);
    let names = |state: &State| -> Vec<String> {
        let lossy = |key: &Vec<u8>| String::from_utf8_lossy(key).into_owned();
        state.keys().map(lossy).collect()
    };
    assert_eq!(names(&found), names(state), "{told}");
    assert!(found == *state, "{told}: other values");
    for (device, number) in (0..4).flat_map(|device| (0..10).map(move |it| (device, it))) {
        let key = key(device, number);
        let got = match snapshot {
            Some(snapshot) => db.get_at(&key, snapshot),
            None => db.get(&key),
        };
        assert_eq!(got.unwrap().as_ref(), state.get(&key), "{told}: {key:?}");
    }
}

/// Who looks for graves to retire comes by and by; and a merge that failed while something was to fail tries again.
fn wait_until_none_is_left(db: &Db) {
    wait_until("graves are left", || {
        db.wait_idle().is_ok() && db.stats().graves.points == 0
    });
}

#[test]
fn what_no_snapshot_sees_settles_as_nothing() {
    let machine = SimStorage::new(1);
    let db = open(&machine, options_with_resting_devices());
    // Another stay leaves data in the tree, which its departure hides.
    for number in 0..10 {
        db.put(&key(1, number), b"of the first stay").unwrap();
    }
    db.devices().settle(b"car1").unwrap();
    db.devices().depart(b"car1").unwrap();
    for number in 0..8 {
        db.put(&key(1, number), b"value").unwrap();
    }
    for number in 4..10 {
        db.delete(&key(1, number)).unwrap();
    }
    db.put(&key(1, 9), b"again").unwrap();
    db.devices().settle(b"car1").unwrap();
    assert_eq!(db.stats().graves.points, 0);
    let mut state: State = (0..4).map(|it| (key(1, it), b"value".to_vec())).collect();
    state.insert(key(1, 9), b"again".to_vec());
    compare(&db, None, &state, "settled");
    for number in 0..10 {
        assert_eq!(in_tables(&machine, &key(1, number)).1, 0);
    }
    let machine = crash(db, &machine, Crash::Process);
    let db = open(&machine, options_with_resting_devices());
    compare(&db, None, &state, "after a crash");
}

#[test]
fn snapshots_turn_deletions_into_graves_until_they_are_gone() {
    let machine = SimStorage::new(2);
    let db = open(&machine, options_with_resting_devices());
    let mut state = State::new();
    let mut seen = Vec::new();
    for turn in 0..6_u8 {
        for number in 0..10 {
            if (number + u64::from(turn)).is_multiple_of(3) {
                db.delete(&key(2, number)).unwrap();
                state.remove(&key(2, number));
            } else if !number.is_multiple_of(2) || turn == 0 {
                db.put(&key(2, number), &[turn]).unwrap();
                state.insert(key(2, number), vec![turn]);
            }
        }
        seen.push((db.snapshot(), state.clone()));
    }
    db.devices().settle(b"car2").unwrap();
    let graves = db.stats().graves.points;
    assert!(graves > 0);
    let check = |db: &Db, told: &str| {
        for (snapshot, state) in &seen {
            compare(db, Some(snapshot), state, told);
        }
        compare(db, None, &state, told);
    };
    check(&db, "settled");
    for number in 0..10 {
        assert_eq!(in_tables(&machine, &key(2, number)).1, 0);
    }
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .unwrap();
    check(&db, "compacted");
    assert_eq!(db.stats().graves.points, graves);

    // The file tells of them, too; the log need not.
    db.sync().unwrap();
    drop(seen);
    let machine = crash(db, &machine, Crash::PowerCut);
    let db = open(&machine, options_with_resting_devices());
    compare(&db, None, &state, "after a power cut");
    // Nothing else is written: only devices are, or were.
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .unwrap();
    compare(&db, None, &state, "compacted without snapshots");
    db.flush().unwrap();
    db.put(b"setting", b"value").unwrap();
    db.delete(b"setting").unwrap();
    db.flush().unwrap();
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .unwrap();
    wait_until_none_is_left(&db);
    compare(&db, None, &state, "all retired");
}

/// Where only devices are written to, no memtable is ever flushed; graves go nevertheless.
#[test]
fn graves_are_purged_without_any_flush() {
    let machine = SimStorage::new(3);
    let db = open(&machine, options_with_resting_devices());
    for number in 0..10 {
        db.put(&key(3, number), &[7; 500]).unwrap();
    }
    let snapshot = db.snapshot();
    for number in 0..9 {
        db.delete(&key(3, number)).unwrap();
    }
    db.devices().settle(b"car3").unwrap();
    assert_eq!(db.stats().graves.points, 9);
    drop(snapshot);
    wait_until_none_is_left(&db);
    assert_eq!(in_tables(&machine, &key(3, 0)), (0, 0));
    assert_eq!(in_tables(&machine, &key(3, 9)), (1, 0));
}

/// Nor does it take another deletion, if a crash comes between a grave and the flush that it waited for; or if there is
/// nothing to be flushed after it.
#[test]
fn graves_are_purged_after_a_crash() {
    for is_memory_used in [false, true] {
        let machine = SimStorage::new(6);
        let db = open(&machine, options_with_resting_devices());
        for number in 0..10 {
            db.put(&key(3, number), &[7; 500]).unwrap();
        }
        if is_memory_used {
            db.put(b"setting", b"value").unwrap();
        }
        let snapshot = db.snapshot();
        for number in 0..9 {
            db.delete(&key(3, number)).unwrap();
        }
        db.devices().settle(b"car3").unwrap();
        assert_eq!(db.stats().graves.points, 9);
        drop(snapshot);
        let machine = crash(db, &machine, Crash::Process);
        let db = open(&machine, options_with_resting_devices());
        db.flush().unwrap();
        wait_until_none_is_left(&db);
        assert_eq!(in_tables(&machine, &key(3, 0)), (0, 0));
        assert_eq!(in_tables(&machine, &key(3, 9)), (1, 0));
    }
}

/// A device departs on its way to the tree: what was deleted on that way is in its index alone, and a snapshot of between
/// does not see it, wherever the graves are.
#[test]
fn graves_of_a_device_that_left_on_its_way_outlast_its_snapshots() {
    for graves_bytes in [0, 64 << 20] {
        let machine = SimStorage::new(8);
        let rules = FaultRules::new();
        let options = Options {
            graves_bytes,
            ..options_with_resting_devices()
        };
        let db = Db::open_with(machine.with_faults(&rules), DIR, options).unwrap();
        for number in 0..10 {
            db.put(&key(3, number), &[7; 500]).unwrap();
        }
        let fault = Fault::Fail(Refusal::InputOutput);
        rules.add(Rule::new(Operation::Open, fault).on(".ldb"));
        assert!(db.devices().settle(b"car3").is_err());
        for number in 0..9 {
            db.delete(&key(3, number)).unwrap();
        }
        let snapshot = db.snapshot();
        let state = State::from([(key(3, 9), vec![7; 500])]);
        db.devices().depart(b"car3").unwrap();
        rules.clear();
        for number in 0..4_u8 {
            db.put(b"setting", &[number]).unwrap();
            db.flush().unwrap();
            // A while goes by in which nobody writes: whoever looks after graves does so.
            machine.sleep(Duration::from_secs(60));
            db.wait_idle().unwrap();
            let told = format!("flush {number}, {graves_bytes} bytes of graves");
            compare(&db, Some(&snapshot), &state, &told);
        }
        drop(snapshot);
        wait_until_none_is_left(&db);
        assert_eq!(db.stats().graves.spilled, 0);
    }
}

/// A directory that is older than its extractor holds keys of devices that never arrived.
#[test]
fn deletions_reach_what_is_older_than_the_extractor() {
    let machine = SimStorage::new(4);
    let plain = Options {
        devices: None,
        ..options_with_resting_devices()
    };
    let db = open(&machine, plain);
    let mut state = State::new();
    for number in 0..10 {
        db.put(&key(1, number), b"old").unwrap();
        state.insert(key(1, number), b"old".to_vec());
    }
    db.close().unwrap();
    let db = open(&machine, options_with_resting_devices());
    let snapshot = db.snapshot();
    let before = state.clone();
    for number in 0..5 {
        db.delete(&key(1, number)).unwrap();
        state.remove(&key(1, number));
    }
    db.put(&key(1, 4), b"new").unwrap();
    state.insert(key(1, 4), b"new".to_vec());
    compare(&db, None, &state, "in the upper level");
    db.devices().settle(b"car1").unwrap();
    assert_eq!(db.stats().graves.points, 5);
    compare(&db, None, &state, "settled");
    compare(&db, Some(&snapshot), &before, "settled");
    drop(snapshot);
    let machine = crash(db, &machine, Crash::Process);
    let db = open(&machine, options_with_resting_devices());
    compare(&db, None, &state, "after a crash");
    db.compact_range(Bound::Unbounded, Bound::Unbounded)
        .unwrap();
    compare(&db, None, &state, "compacted");
    for number in 0..4 {
        assert_eq!(in_tables(&machine, &key(1, number)), (0, 0));
    }
}

struct History {
    machine: Arc<SimStorage>,
    rules: FaultRules,
    options: Options,
    db: Option<Db>,
    state: State,
    snapshots: Vec<(Snapshot, State)>,
    random: Random,
}

impl History {
    fn new(seed: u64) -> Self {
        let residency = Duration::from_secs(if seed.is_multiple_of(3) { 1 } else { 1_000_000 });
        let mut history = Self {
            machine: SimStorage::new(seed),
            rules: FaultRules::new(),
            options: Options {
                devices: None,
                ..options_with_devices(residency)
            },
            db: None,
            state: State::new(),
            snapshots: Vec::new(),
            random: Random(seed),
        };
        if seed.is_multiple_of(2) {
            // The directory is older than its extractor.
            history.open();
            history.write(30);
            history.db.take().unwrap().close().unwrap();
        }
        history.options = options_with_devices(residency);
        history.open();
        history
    }

    fn open(&mut self) {
        let storage: Arc<dyn Storage> = self.machine.with_faults(&self.rules);
        self.db = Some(Db::open_with(storage, DIR, self.options.clone()).unwrap());
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn write(&mut self, most: u64) {
        let mut batch = WriteBatch::new();
        for _ in 0..=self.random.below(most) {
            let key = key(self.random.below(4), self.random.below(10));
            if self.random.below(2) == 0 {
                batch.delete(&key);
                self.state.remove(&key);
            } else {
                let value = vec![self.random.next() as u8; self.random.below(200) as usize];
                batch.put(&key, &value);
                self.state.insert(key, value);
            }
        }
        self.db().write(&batch, Durability::PowerLoss).unwrap();
    }

    fn settle(&mut self) -> Result<(), Error> {
        let device = self.random.below(4);
        match self
            .db()
            .devices()
            .settle(format!("car{device}").as_bytes())
        {
            Err(Error::Device(DeviceError::Unknown { .. })) => Ok(()),
            result => result,
        }
    }

    /// A device settles, and something fails on the way; or the machine ends after it.
    fn settle_and_fail(&mut self) {
        let file = ["GRAVES", "MANIFEST", ".ldb", "WAYSTATION"];
        let file = file[self.random.below(4) as usize];
        let operation = [Operation::Write, Operation::Sync, Operation::Rename];
        let operation = operation[self.random.below(3) as usize];
        let fault = match self.random.below(2) {
            0 => Fault::Fail(Refusal::InputOutput),
            _ => Fault::FailAfter(Refusal::InputOutput),
        };
        let rule = Rule::new(operation, fault).on(file);
        self.rules.add(rule.after(self.random.below(2)));
        let settled = self.settle();
        let goes_on = settled.is_err() && self.random.below(3) == 0;
        if goes_on {
            self.check("after a failure");
            self.rules.clear();
        } else {
            let kind = [Crash::Process, Crash::PowerCut][self.random.below(2) as usize];
            self.snapshots.clear();
            let left = self.machine.crash(self.random.next(), kind);
            self.rules.clear();
            drop(self.db.take());
            self.machine = left;
            self.open();
        }
    }

    fn depart(&mut self) {
        let device = format!("car{}", self.random.below(4));
        let prefix = format!("{device}:").into_bytes();
        let had_keys = self.state.keys().any(|key| key.starts_with(&prefix));
        match self.db().devices().depart(device.as_bytes()) {
            Ok(()) => {}
            Err(Error::Device(DeviceError::Unknown { .. })) if !had_keys => {}
            Err(error) => panic!("{error}"),
        }
        // As all writes here, it is to survive a power cut.
        self.db().sync().unwrap();
        self.state.retain(|key, _| !key.starts_with(&prefix));
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..8 => self.write(8),
            8..11 => self.settle().unwrap(),
            11 => self.settle_and_fail(),
            12 => self.depart(),
            13 | 14 => self
                .snapshots
                .push((self.db().snapshot(), self.state.clone())),
            15 if !self.snapshots.is_empty() => {
                let at = self.random.below(self.snapshots.len() as u64);
                self.snapshots.swap_remove(at as usize);
            }
            16 => self.db().flush().unwrap(),
            17 => {
                let all = Bound::Unbounded;
                self.db().compact_range(all, all).unwrap();
            }
            18 if self.random.below(4) == 0 => {
                self.snapshots.clear();
                self.db.take().unwrap().close().unwrap();
                self.open();
            }
            _ => self.check("on the way"),
        }
    }

    fn check(&self, told: &str) {
        compare(self.db(), None, &self.state, told);
        for (snapshot, state) in &self.snapshots {
            compare(self.db(), Some(snapshot), state, told);
        }
    }

    /// Deletions are nowhere in tables, and once nobody holds anything back no grave is left.
    fn end(mut self) {
        self.check("at the end");
        for (device, number) in (0..4).flat_map(|device| (0..10).map(move |it| (device, it))) {
            assert_eq!(in_tables(&self.machine, &key(device, number)).1, 0);
        }
        self.snapshots.clear();
        let names: Vec<_> = (0..4).map(|device| format!("car{device}")).collect();
        let names = names.iter().map(String::as_bytes);
        self.db().devices().settle_together(names).unwrap();
        self.db().delete(b"setting").unwrap();
        self.db().flush().unwrap();
        let all = Bound::Unbounded;
        self.db().compact_range(all, all).unwrap();
        wait_until_none_is_left(self.db());
        self.check("all retired");
        assert!(self.db().check().unwrap().problems.is_empty());
    }
}

#[test]
fn histories_with_crashes_agree_with_a_map() {
    let run = |seed: u64| {
        println!("seed {seed} (WAYSTATION_SEED={seed} runs it alone)");
        let mut history = History::new(seed);
        for _ in 0..150 {
            history.step();
        }
        history.end();
    };
    let number = |name: &str| std::env::var(name).map(|text| text.parse().unwrap());
    match number("WAYSTATION_SEED") {
        Ok(seed) => run(seed),
        Err(_) => (0..number("WAYSTATION_SEEDS").unwrap_or(60)).for_each(run),
    }
}
