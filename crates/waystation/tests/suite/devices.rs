//! Histories with devices against a plain map: every read, at every snapshot, both ways, after every reopening.

use crate::support::{open_simulated, options_with_devices, options_with_resting_devices};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, DeviceError, Durability, Error, IterOptions, Snapshot, WriteBatch};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    Write(Vec<(u8, u8, Option<u16>)>),
    Depart(u8),
    Settle(u8),
    Snapshot,
    Release(u8),
    Flush,
    Compact,
    Reopen,
    Kill,
    Check,
}

fn step() -> impl Strategy<Value = Step> {
    let operation = (0u8..7, 0u8..12, prop::option::weighted(0.8, 0u16..3000));
    prop_oneof![
        12 => prop::collection::vec(operation, 1..8).prop_map(Step::Write),
        3 => (0u8..7).prop_map(Step::Depart),
        3 => (0u8..7).prop_map(Step::Settle),
        2 => Just(Step::Snapshot),
        2 => any::<u8>().prop_map(Step::Release),
        1 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
        1 => Just(Step::Kill),
        3 => Just(Step::Check),
    ]
}

/// The name of a device, or of none.
fn device(number: u8) -> Option<String> {
    (number < 6).then(|| format!("car-{number}"))
}

fn key(number: u8, key: u8) -> Vec<u8> {
    match device(number) {
        Some(name) => format!("{name}:k{key:02}").into_bytes(),
        None => format!("setting{key:02}").into_bytes(),
    }
}

fn walk(db: &Db, options: IterOptions, backwards: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut iterator = db.iter(options).expect("iter");
    let start = if backwards {
        iterator.seek_to_last()
    } else {
        iterator.seek_to_first()
    };
    start.expect("seek");
    while iterator.valid() {
        found.push((iterator.key().to_vec(), iterator.value().to_vec()));
        let moved = if backwards {
            iterator.prev()
        } else {
            iterator.next()
        };
        moved.expect("step");
    }
    if backwards {
        found.reverse();
    }
    found
}

fn list(state: &State) -> Vec<(Vec<u8>, Vec<u8>)> {
    state.iter().map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn names(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<String> {
    let name = |(key, value): &(Vec<u8>, Vec<u8>)| {
        format!("{} ({})", String::from_utf8_lossy(key), value.len())
    };
    entries.iter().map(name).collect()
}

/// Compares everything `db` shows, now or at `snapshot`, with `state`.
fn compare(db: &Db, snapshot: Option<&Snapshot>, state: &State) {
    let at = |prefix: Option<&str>| IterOptions {
        prefix: prefix.map(|prefix| prefix.as_bytes().to_vec()),
        snapshot: snapshot.cloned(),
        ..IterOptions::default()
    };
    let expected = list(state);
    for backwards in [false, true] {
        let found = walk(db, at(None), backwards);
        assert_eq!(names(&found), names(&expected), "backwards: {backwards}");
        assert!(found == expected);
        for prefix in ["car-2:", "car-", "set", "car-3:k05"] {
            let part: Vec<_> = expected
                .iter()
                .filter(|(key, _)| key.starts_with(prefix.as_bytes()))
                .cloned()
                .collect();
            assert_eq!(names(&walk(db, at(Some(prefix)), backwards)), names(&part));
        }
    }
    for number in 0..7 {
        for k in 0..12 {
            let key = key(number, k);
            let found = match snapshot {
                Some(snapshot) => db.get_at(&key, snapshot),
                None => db.get(&key),
            };
            let found = found.expect("get");
            assert!(
                found.as_ref() == state.get(&key),
                "{}: {:?} bytes found, {:?} expected",
                String::from_utf8_lossy(&key),
                found.map(|v| v.len()),
                state.get(&key).map(Vec::len)
            );
        }
    }
}

struct History {
    machine: Arc<SimStorage>,
    db: Option<Db>,
    state: State,
    snapshots: Vec<(Snapshot, State)>,
    residency: Duration,
    written: u64,
}

impl History {
    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn open(&mut self) {
        let storage: Arc<dyn Storage> = self.machine.clone();
        let db = Db::open_with(
            storage,
            Path::new("/db"),
            options_with_devices(self.residency),
        );
        self.db = Some(db.expect("open"));
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Write(operations) => self.write(&operations),
            Step::Depart(number) => self.depart(number),
            Step::Settle(number) => self.settle(number),
            Step::Snapshot => {
                let snapshot = self.db().snapshot();
                self.snapshots.push((snapshot, self.state.clone()));
            }
            Step::Release(which) => {
                if !self.snapshots.is_empty() {
                    let at = usize::from(which) % self.snapshots.len();
                    self.snapshots.remove(at);
                }
            }
            Step::Flush => self.db().flush().expect("flush"),
            Step::Compact => {
                let all = std::ops::Bound::Unbounded;
                self.db().compact_range(all, all).expect("compact");
            }
            Step::Reopen => {
                self.snapshots.clear();
                self.db.take().expect("open").close().expect("close");
                self.open();
                self.check();
            }
            Step::Kill => {
                self.snapshots.clear();
                self.machine = self.machine.crash(self.written, Crash::Process);
                // The old handle belongs to a machine that is off.
                drop(self.db.take());
                self.open();
                self.check();
            }
            Step::Check => self.check(),
        }
    }

    fn write(&mut self, operations: &[(u8, u8, Option<u16>)]) {
        let mut batch = WriteBatch::new();
        for (number, k, length) in operations {
            let key = key(*number, *k);
            self.written += 1;
            if let Some(length) = length {
                let mut value = self.written.to_le_bytes().to_vec();
                value.resize(8 + usize::from(*length), *k);
                batch.put(&key, &value);
                self.state.insert(key, value);
            } else {
                batch.delete(&key);
                self.state.remove(&key);
            }
        }
        self.db()
            .write(&batch, Durability::ProcessCrash)
            .expect("write");
    }

    fn settle(&self, number: u8) {
        let Some(name) = device(number) else {
            return;
        };
        match self.db().devices().settle(name.as_bytes()) {
            Ok(()) | Err(Error::Device(DeviceError::Unknown { .. })) => {}
            Err(error) => panic!("settle: {error}"),
        }
    }

    fn depart(&mut self, number: u8) {
        let Some(name) = device(number) else {
            return;
        };
        let prefix = format!("{name}:").into_bytes();
        let had_data = self.state.keys().any(|key| key.starts_with(&prefix));
        match self.db().devices().depart(name.as_bytes()) {
            Ok(()) => {}
            // A device whose keys were all deleted may be there or not.
            Err(Error::Device(DeviceError::Unknown { .. })) if !had_data => {}
            Err(error) => panic!("depart: {error}"),
        }
        self.state.retain(|key, _| !key.starts_with(&prefix));
    }

    fn check(&self) {
        compare(self.db(), None, &self.state);
        for (snapshot, state) in &self.snapshots {
            compare(self.db(), Some(snapshot), state);
        }
        let report = self.db().check().expect("check");
        assert!(report.problems.is_empty(), "{report:?}");
    }
}

fn run(steps: Vec<Step>, residency: Duration) {
    let mut history = History {
        machine: SimStorage::new(1),
        db: None,
        state: State::new(),
        snapshots: Vec::new(),
        residency,
        written: 0,
    };
    history.open();
    for step in steps {
        history.take(step);
    }
    history.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn histories_agree_with_a_plain_map(
        steps in prop::collection::vec(step(), 1..80),
        hurried in any::<bool>(),
    ) {
        // Simulated time passes fast: devices settle by themselves, or only when told.
        run(steps, Duration::from_secs(if hurried { 1 } else { 1_000_000 }));
    }
}

/// Departures alone fill memtables, too: else the log would be kept from the first of them on.
#[test]
fn departures_alone_do_not_outgrow_a_memtable() {
    let options = options_with_devices(Duration::from_secs(3600));
    let memtable_bytes = options.memtable_bytes;
    let db = Db::open_with(SimStorage::new(11), "/db", options).unwrap();
    let names: Vec<_> = (0..600).map(|number| format!("car-{number}")).collect();
    for name in &names {
        db.put(format!("{name}:k").as_bytes(), b"value").unwrap();
    }
    db.devices()
        .settle_together(names.iter().map(String::as_bytes))
        .unwrap();
    for name in &names {
        db.devices().depart(name.as_bytes()).unwrap();
        assert!(db.stats().memtable_bytes <= memtable_bytes, "{name}");
    }
    assert!(walk(&db, IterOptions::default(), false).is_empty());
}

/// Many are marked as settled by several records; what a power cut leaves of these is gone on with.
#[test]
fn devices_settle_again_whose_marks_were_lost() {
    let machine = SimStorage::new(12);
    let rules = FaultRules::new();
    let options = || options_with_devices(Duration::from_secs(3600));
    let db = Db::open_with(machine.with_faults(&rules), "/db", options()).unwrap();
    let names: Vec<_> = (0..300).map(|number| format!("car-{number}")).collect();
    let all = || names.iter().map(String::as_bytes);
    for name in &names {
        db.put(format!("{name}:k").as_bytes(), name.as_bytes())
            .unwrap();
    }
    db.sync().unwrap();
    let content = walk(&db, IterOptions::default(), false);
    // The log is synced before the load, and after the marks.
    let fault = Fault::Fail(Refusal::InputOutput);
    rules.add(Rule::new(Operation::Sync, fault).on("journal-").after(1));
    assert!(db.devices().settle_together(all()).is_err());
    let left = machine.crash(13, Crash::PowerCut);
    drop(db);
    let db = Db::open_with(left, "/db", options()).unwrap();
    assert_eq!(walk(&db, IterOptions::default(), false), content);
    db.devices().settle_together(all()).unwrap();
    assert_eq!(walk(&db, IterOptions::default(), false), content);
    assert!(db.check().unwrap().problems.is_empty());
}

/// What stays in the upper level is in no memtable; a flush makes it survive a power cut all the same.
#[test]
fn a_flush_keeps_what_stays_in_the_upper_level() {
    for seed in 0..20 {
        let machine = SimStorage::new(seed);
        let db = open_simulated(&machine, options_with_resting_devices()).expect("open");
        for number in 0..3_u64 {
            let key = format!("car:{number}");
            db.put(key.as_bytes(), &seed.to_le_bytes()).expect("put");
            if number == 1 {
                db.flush().expect("flush");
            }
        }
        let left = machine.crash(seed, Crash::PowerCut);
        drop(db);
        let db = open_simulated(&left, options_with_resting_devices()).expect("open");
        for number in 0..2_u64 {
            let found = db.get(format!("car:{number}").as_bytes()).expect("get");
            assert!(found.is_some(), "seed {seed}: car:{number} is lost");
        }
    }
}

/// A write that fails leaves no trace of the devices that it would have brought.
#[test]
fn failed_writes_leave_no_devices_behind() {
    let machine = SimStorage::new(1);
    let db = open_simulated(&machine, options_with_resting_devices()).expect("open");
    db.put(b"moving:1", b"").expect("put");
    drop(
        db.devices()
            .export(b"moving", "east", Durability::ProcessCrash),
    );
    let devices = |db: &Db| db.stats().devices.expect("devices").devices;
    let before = devices(&db);
    for number in 0..100 {
        let mut batch = WriteBatch::new();
        batch.put(format!("new-{number}:1").as_bytes(), b"");
        batch.put(b"moving:1", b"");
        let refused = db.write(&batch, Durability::ProcessCrash);
        assert!(
            matches!(refused, Err(Error::Device(DeviceError::Moving { .. }))),
            "{refused:?}"
        );
    }
    assert_eq!(devices(&db), before);
    db.put(b"new-7:1", b"").expect("put");
    assert_eq!(devices(&db), before + 1);
}
