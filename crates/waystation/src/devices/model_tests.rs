//! The device table under shuttle: a device is written to, departs and comes again, while devices of which nothing is left
//! are forgotten; and one is read while it settles, and its index goes.
//!
//! Run with `make models`.

use super::index::Entry;
use super::ledger::Ledger;
use super::residency::ReadPoint;
use super::table::{Departure, DeviceTable};
use crate::options::Extractor;
use crate::sync::models::explore;
use crate::sync::{Arc, Mutex, lock, thread};
use std::time::Duration;

const PREFIX: &[u8] = b"car:";
const RESIDENCIES: usize = 3;
const WRITES: usize = 2;

struct Model {
    table: DeviceTable,
    /// The front of the log: the last sequence number.
    front: Mutex<u64>,
    /// How many views there were, and what the last one has in the tree.
    view: Mutex<(u64, Vec<u64>)>,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            table: DeviceTable::new(Extractor::until(b':'), true, Ledger::default()),
            front: Mutex::new(0),
            view: Mutex::default(),
        })
    }

    /// Settles the device as [`settle`](crate::db) does, what it has written being `written`.
    fn settle(&self, written: &[u64]) {
        let target = self.table.target(PREFIX, || Duration::ZERO).unwrap();
        let residency = target.residency.unwrap();
        let next = || {
            let mut front = lock(&self.front);
            *front += 1;
            front
        };
        let switch = next();
        assert!(self.table.switch(&residency, *switch));
        drop(switch);
        let generation = {
            let mut view = lock(&self.view);
            *view = (view.0 + 1, written.to_vec());
            view.0
        };
        residency.set_installed(generation);
        let settled = next();
        self.table.settled(&residency, *settled);
    }

    /// Reads without a snapshot.
    fn reads(&self, written: u64) -> bool {
        loop {
            let generation = self.table.generation();
            let view = lock(&self.view).clone();
            let point = ReadPoint {
                snapshot: *lock(&self.front),
                generation: view.0,
            };
            if view.0 != lock(&self.view).0 {
                continue;
            }
            let sight = self.table.sight(PREFIX, point).unwrap();
            let found = match sight.residency {
                Some(residency) => residency
                    .get(&written.to_le_bytes(), point.snapshot)
                    .is_some(),
                None => sight.in_tree && view.1.contains(&written),
            };
            if self.table.generation() == generation {
                return found;
            }
        }
    }

    /// Writes as the pipeline does: looks the device up, takes a place in the log if it is still there, fills the index.
    fn write(&self) -> u64 {
        loop {
            let target = self.table.target(PREFIX, || Duration::ZERO);
            let target = target.expect("nothing bars it");
            let mut front = lock(&self.front);
            if !target.holds() {
                continue;
            }
            *front += 1;
            let sequence = *front;
            let residency = target.residency.expect("it does not settle");
            self.table.begin(&residency, sequence, sequence);
            drop(front);
            let value = None;
            residency.insert(&sequence.to_le_bytes(), &Entry { sequence, value });
            return sequence;
        }
    }

    fn depart(&self) {
        let mut front = lock(&self.front);
        *front += 1;
        let departure = self.table.depart(PREFIX, *front);
        assert_eq!(departure, Departure::FromUpper);
    }

    /// What the maintenance does: indexes that no reader uses any more go, and devices with nothing else.
    fn tidy_up(&self) {
        let oldest = *lock(&self.front);
        let reaped = self.table.reap(oldest, RESIDENCIES);
        let _front = lock(&self.front);
        self.table.forget(&reaped.empty);
    }

    fn finds(&self, written: u64) -> bool {
        let point = ReadPoint {
            snapshot: *lock(&self.front),
            generation: 0,
        };
        let residency = self.table.sight(PREFIX, point).and_then(|it| it.residency);
        residency.is_some_and(|residency| {
            residency
                .get(&written.to_le_bytes(), point.snapshot)
                .is_some()
        })
    }
}

fn come_and_go() {
    let model = Model::new();
    let maintenance = {
        let model = Arc::clone(&model);
        thread::spawn(move || (0..2 * RESIDENCIES).for_each(|_| model.tidy_up()))
    };
    for residency in 0..RESIDENCIES {
        let written: Vec<u64> = (0..WRITES).map(|_| model.write()).collect();
        for sequence in written {
            assert!(
                model.finds(sequence),
                "an acknowledged write is not visible"
            );
        }
        if residency + 1 < RESIDENCIES {
            model.depart();
        }
    }
    maintenance.join().unwrap();
}

fn settle_and_read() {
    let model = Model::new();
    let written: Vec<u64> = (0..WRITES).map(|_| model.write()).collect();
    let spawn = |body: fn(&Model, &[u64])| {
        let (model, written) = (Arc::clone(&model), written.clone());
        thread::spawn(move || body(&model, &written))
    };
    let threads = [
        spawn(|model, _| (0..2 * RESIDENCIES).for_each(|_| model.tidy_up())),
        spawn(|model, written| {
            for sequence in written {
                assert!(model.reads(*sequence), "what settles is not visible");
            }
        }),
    ];
    model.settle(&written);
    for thread in threads {
        thread.join().unwrap();
    }
    model.tidy_up();
    assert!(written.iter().all(|sequence| model.reads(*sequence)));
}

#[test]
fn what_a_device_writes_that_comes_again_is_there() {
    explore(come_and_go, 4_000);
}

#[test]
fn what_settles_is_found_all_the_while() {
    explore(settle_and_read, 4_000);
}
