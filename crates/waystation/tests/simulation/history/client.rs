//! A client: writes its batches, one after the other, and looks at its own region, which nobody else changes, at the
//! moments at which a look may go wrong: right after and, at a snapshot, right before a deletion, a departure, a settle.

use super::looks::{Look, count_of};
use super::plan::{self, Plan, Written};
use super::told::Told;
use crate::support::{Content, Random};
use crate::twice::twice;
use std::ops::Bound;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use waystation::{Db, DeviceError, Durability, Error, Snapshot};

/// A call that the storage fails is made again at once so often, and after a pause of a millisecond from then on.
const AT_ONCE_MAX: u32 = 1_000;
/// After so many failures in a row the storage is made well. Until then a fault that lasts may refuse every write: memory is
/// full, and no table can be written.
const WELL_AFTER: u32 = 2_000;
/// Well storage fails no call for longer than the database takes to try again, which is a second or two.
const FAILURES_MAX: u32 = 30_000;

/// A pause between batches, in real time.
const REST: Duration = Duration::from_millis(8);

/// One client of one life.
pub(crate) struct Client<'a> {
    pub(crate) db: &'a Db,
    pub(crate) plan: &'a Plan,
    pub(crate) number: usize,
    pub(crate) told: &'a Told,
    pub(crate) rules: &'a FaultRules,
    pub(crate) random: Random,
    /// What it wrote, in this life and earlier ones.
    pub(crate) written: Written,
    /// Snapshots, and what they see.
    pub(crate) held: Vec<(Snapshot, Content)>,
    /// Calls in a row that the storage failed.
    pub(crate) failures: u32,
}

/// How a step ended.
enum Step {
    Done,
    Again,
    Over,
}

/// Whether the storage is to blame, which fails in some lives.
fn is_of_storage(error: &Error) -> bool {
    matches!(error, Error::Suspended { .. } | Error::Io { .. })
}

impl Client<'_> {
    /// Writes `batches` batches, or until the machine ends.
    pub(crate) fn run(mut self, batches: u64) {
        let end = self.written.count + batches;
        while self.written.count < end && !self.told.is_over() {
            let before = self.random.one_in(6).then(|| self.moment());
            if matches!(self.depart(), Step::Again) {
                continue;
            }
            if matches!(self.write(), Step::Over) {
                return;
            }
            if let Some((snapshot, state)) = &before {
                self.look(Some(snapshot), state, "from before");
            }
            if before.is_some() || self.random.one_in(8) {
                self.look(None, &self.written.state, "now");
            }
            self.held.extend(before.filter(|_| self.held.len() < 3));
            self.tend();
        }
    }

    /// A snapshot and what it sees.
    fn moment(&self) -> (Snapshot, Content) {
        (self.db.snapshot(), self.written.state.clone())
    }

    fn fail(&self, told: &str) -> ! {
        panic!(
            "seed {}, client {} at {}: {told}",
            self.plan.seed, self.number, self.written.count
        )
    }

    /// Compares the region with `expected`, unless reads fail.
    fn look(&self, snapshot: Option<&Snapshot>, expected: &Content, when: &str) {
        let look = Look {
            db: self.db,
            plan: self.plan,
            client: self.number,
            snapshot,
            expected,
        };
        let mut random = Random(self.random.0 ^ self.written.count);
        if let Ok(Err(difference)) = look.compare(&mut random) {
            self.fail(&format!("{when}: {difference}"));
        }
    }

    /// Lets the device depart that is to do so before the next batch.
    fn depart(&mut self) -> Step {
        let Some(device) = self.plan.departure(self.number, self.written.count) else {
            return Step::Done;
        };
        let depart = || self.db.devices().depart(&device);
        let answers: Vec<_> = if self.random.one_in(3) {
            let (one, other) = twice(depart);
            vec![one, other]
        } else {
            vec![depart()]
        };
        // Of two callers one may be told that it is gone, and the other one that the storage failed.
        let is_gone = |answer: &Result<(), Error>| {
            matches!(
                answer,
                Ok(()) | Err(Error::Device(DeviceError::Unknown { .. }))
            )
        };
        let is_any_gone = answers.iter().any(is_gone);
        for error in answers.into_iter().filter_map(Result::err) {
            match error {
                Error::Device(DeviceError::Unknown { .. }) => {}
                error if !is_of_storage(&error) => self.fail(&format!("departure: {error}")),
                _ if is_any_gone => {}
                error => {
                    self.wait_for_storage(&error);
                    return Step::Again;
                }
            }
        }
        self.failures = 0;
        plan::depart(&mut self.written.state, &device);
        if self.random.one_in(4) {
            self.look(None, &self.written.state, "departed");
        }
        Step::Done
    }

    /// Writes the next batch.
    fn write(&mut self) -> Step {
        let durability = if self.random.one_in(12) {
            Durability::PowerLoss
        } else {
            Durability::ProcessCrash
        };
        let changes = self.plan.changes(self.number, self.written.count);
        let batch = plan::batch(&changes);
        let is_long = plan::is_long(&batch);
        let begun = self.told.begin(self.number);
        self.told.long.fetch_add(u64::from(is_long), SeqCst);
        let step = loop {
            match self.db.write(&batch, durability) {
                Ok(()) => {
                    self.told.acknowledge(self.number);
                    if durability == Durability::PowerLoss {
                        self.told.note_synced(self.number, begun);
                    }
                    break Step::Done;
                }
                // Whether it counts, the counter tells: a failed sync leaves the batch visible.
                Err(error) if is_of_storage(&error) => {
                    match self.db.get(&Plan::counter(self.number)) {
                        Ok(count) if count_of(count.as_deref()) > self.written.count => {
                            self.told.acknowledge(self.number);
                            break Step::Done;
                        }
                        Ok(_) if !self.told.is_over() => self.wait_for_storage(&error),
                        _ => break Step::Over,
                    }
                }
                Err(error) => self.fail(&format!("batch: {error}")),
            }
        };
        self.told.long.fetch_sub(u64::from(is_long), SeqCst);
        self.failures = 0;
        if matches!(step, Step::Done) {
            plan::apply(&mut self.written.state, changes);
            self.written.count += 1;
        }
        step
    }

    /// A call was failed with `error` and is to be made again: waits, has the storage be well after a while, and ends the run
    /// if that does not help.
    fn wait_for_storage(&mut self, error: &Error) {
        self.failures += 1;
        if self.failures == WELL_AFTER && !self.rules.is_halted() {
            self.rules.clear();
        }
        if self.failures > FAILURES_MAX {
            self.fail(&format!("still refused by well storage: {error}"));
        }
        if self.failures > AT_ONCE_MAX {
            std::thread::sleep(Duration::from_millis(1));
        } else {
            std::thread::yield_now();
        }
    }

    /// Sometimes, between batches: what moves data, and looks at what was held.
    fn tend(&mut self) {
        if self.plan.devices > 0 && self.random.one_in(10) {
            self.settle();
        }
        if self.random.one_in(self.plan.flush_one_in) {
            self.flush();
        }
        match self.random.below(300) {
            6 => {
                let all = Bound::Unbounded;
                let _ = self.db.compact_range(all, all);
                self.look(None, &self.written.state, "compacted");
            }
            7..9 => {
                let begun = self.told.tick();
                if self.db.sync().is_ok() {
                    self.told.note_all_synced(begun);
                }
            }
            9..25 => {
                for (snapshot, state) in &self.held {
                    self.look(Some(snapshot), state, "at a snapshot");
                }
            }
            25..35 => self.held.clear(),
            35..40 => drop(self.held.pop()),
            // Simulated time passes meanwhile: if no other client writes, the database comes to rest.
            40..44 => std::thread::sleep(REST),
            _ => {}
        }
    }

    fn flush(&self) {
        let begun = self.told.tick();
        if self.db.flush().is_ok() {
            self.told.note_all_synced(begun);
            self.look(None, &self.written.state, "flushed");
        }
    }

    /// Lets a device settle: alone, twice at once, beside writes and a flush, or so that it fails on the way.
    fn settle(&mut self) {
        let device = Plan::device(self.number, self.random.below(self.plan.devices));
        // It may fail with the storage, and is tried again by itself.
        let settle = || self.db.devices().settle(&device);
        match self.random.below(8) {
            0 => drop(twice(settle)),
            1 | 2 => {
                let db = self.db;
                std::thread::scope(|scope| {
                    let settling = scope.spawn(|| db.devices().settle(&device));
                    self.write_and_flush();
                    let _ = settling.join().expect("settle");
                });
            }
            3 | 4 => {
                let operation = [Operation::Write, Operation::Sync, Operation::Open];
                let operation = operation[self.random.below(3) as usize];
                let rule = Rule::new(operation, Fault::Fail(Refusal::InputOutput)).on(".ldb");
                let rule = self.rules.add(rule.times(1 + self.random.below(6)));
                let _ = self.db.devices().settle(&device);
                self.write_and_flush();
                self.rules.remove(rule);
            }
            _ => drop(settle()),
        }
        if self.random.one_in(2) {
            self.look(None, &self.written.state, "settled");
        }
    }

    /// Writes the next batch, unless a device is to depart before it, and flushes it.
    fn write_and_flush(&mut self) {
        let is_next = self
            .plan
            .departure(self.number, self.written.count)
            .is_none();
        if is_next && matches!(self.write(), Step::Done) {
            self.flush();
        }
    }
}
