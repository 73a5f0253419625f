//! The scheduler under shuttle: events, deadlines, ends and stops in random schedules.
//!
//! What every schedule checks: after every event a job runs that sees it; no more jobs of a kind run at once than there may
//! be; a job that wants to run at a time does; nothing runs after the end; all threads end with the last database.

use super::Jobs;
use super::plan::{Id, Kind, Limits, Next};
use super::scheduler::{Scheduler, spawn};
use crate::log::model_storage::Watched;
use crate::storage::{SimStorage, Storage};
use crate::sync::models::explore;
use crate::sync::{Arc, thread};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const COMPACTIONS: usize = 2;
/// So often a job wants to run again, in time.
const ROUNDS: usize = 3;
const PAUSE: Duration = Duration::from_millis(50);

/// What happened, outside the view of the model's scheduler.
#[derive(Default)]
struct Database {
    events: AtomicUsize,
    seen: AtomicUsize,
    compacting: AtomicUsize,
    flushing: AtomicUsize,
    rounds: AtomicUsize,
    failures: AtomicUsize,
    has_ended: AtomicUsize,
    clock: Option<Arc<dyn Storage>>,
}

impl Database {
    fn on(clock: &Arc<dyn Storage>) -> Arc<Self> {
        Arc::new(Self {
            clock: Some(Arc::clone(clock)),
            ..Self::default()
        })
    }

    fn now(&self) -> Duration {
        self.clock.as_ref().map_or(Duration::ZERO, |it| it.now())
    }
}

impl Jobs for Database {
    fn run(&self, kind: Kind) -> Next {
        assert_eq!(self.has_ended.load(SeqCst), 0, "{kind:?} after the end");
        match kind {
            Kind::Flush => {
                assert_eq!(self.flushing.fetch_add(1, SeqCst), 0, "two flushes at once");
                let events = self.events.load(SeqCst);
                thread::yield_now();
                self.seen.fetch_max(events, SeqCst);
                self.flushing.fetch_sub(1, SeqCst);
                Next::Idle
            }
            Kind::Compact => {
                let running = self.compacting.fetch_add(1, SeqCst);
                assert!(running < COMPACTIONS, "too many compactions");
                thread::yield_now();
                self.compacting.fetch_sub(1, SeqCst);
                // Tried again after a pause.
                if self.failures.fetch_add(1, SeqCst) == 0 {
                    return Next::Failed;
                }
                Next::Idle
            }
            _ if self.rounds.fetch_add(1, SeqCst) + 1 < ROUNDS => Next::At(self.now() + PAUSE),
            _ => Next::Idle,
        }
    }

    fn panicked(&self, _: Kind) {
        unreachable!("a panic ends the model");
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}

#[test]
fn what_is_submitted_is_seen_and_nothing_runs_after_the_end() {
    let model = || {
        let clock: Arc<dyn Storage> = Watched::over(SimStorage::new(1));
        let scheduler = Scheduler::new(Arc::clone(&clock));
        let limits = Limits::default()
            .with(Kind::Flush, 1)
            .with(Kind::Keep, 1)
            .with(Kind::Compact, COMPACTIONS);
        let databases: [(Id, Arc<Database>); 2] = std::array::from_fn(|_| {
            let id = scheduler.join(&limits);
            let database = Database::on(&clock);
            let jobs = Arc::clone(&database);
            scheduler.start(id, jobs as _, &mut spawn).unwrap();
            (id, database)
        });
        let submitters = databases.each_ref().map(|(id, database)| {
            let (id, database) = (*id, Arc::clone(database));
            let scheduler = Arc::clone(&scheduler);
            thread::spawn(move || {
                for _ in 0..3 {
                    database.events.fetch_add(1, SeqCst);
                    scheduler.submit(id, Kind::Flush);
                    scheduler.submit(id, Kind::Compact);
                    scheduler.by(id, Kind::Keep, database.now() + PAUSE);
                }
                wait_until(|| database.seen.load(SeqCst) == database.events.load(SeqCst));
                wait_until(|| database.rounds.load(SeqCst) >= ROUNDS);
                wait_until(|| database.failures.load(SeqCst) > 1);
                scheduler.end(id, &Kind::ALL).unwrap();
                database.has_ended.store(1, SeqCst);
                scheduler.submit(id, Kind::Flush);
                scheduler.by(id, Kind::Keep, database.now());
                scheduler.leave(id)
            })
        });
        let mut ends = 0;
        for submitter in submitters {
            let (is_last, threads) = submitter.join().unwrap();
            ends += usize::from(is_last);
            for thread in threads {
                thread.join().unwrap();
            }
        }
        assert_eq!(ends, 1);
        assert_eq!(Arc::strong_count(&scheduler), 1, "a thread is left");
    };
    explore(model, 1_000);
}

/// One that stops while jobs are being submitted and are due does not wait for ever, and nothing of it is left.
#[test]
fn a_stop_meets_events_and_deadlines() {
    let model = || {
        let clock: Arc<dyn Storage> = Watched::over(SimStorage::new(1));
        let scheduler = Scheduler::new(Arc::clone(&clock));
        let limits = Limits::default().with(Kind::Flush, 1).with(Kind::Keep, 1);
        let id = scheduler.join(&limits);
        let database = Database::on(&clock);
        let jobs = Arc::clone(&database);
        scheduler.start(id, jobs as _, &mut spawn).unwrap();
        let submitter = thread::spawn({
            let (scheduler, database) = (Arc::clone(&scheduler), Arc::clone(&database));
            move || {
                for _ in 0..4 {
                    scheduler.submit(id, Kind::Flush);
                    scheduler.by(id, Kind::Keep, database.now());
                }
            }
        });
        scheduler.end(id, &Kind::ALL).unwrap();
        database.has_ended.store(1, SeqCst);
        let (is_last, threads) = scheduler.leave(id);
        assert!(is_last);
        for thread in threads {
            thread.join().unwrap();
        }
        submitter.join().unwrap();
        assert_eq!(Arc::strong_count(&database), 1);
    };
    explore(model, 2_000);
}
