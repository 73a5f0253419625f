//! Histories: several lives of one database, in each of which clients write until the machine ends.

mod client;
mod looks;
mod oracle;
mod plan;
mod reader;
mod settings;
mod told;

use crate::faults::{add_end, add_faults};
use crate::support::Random;
use crate::tally::Tally;
use client::Client;
use oracle::{Oracle, Promised};
use plan::{Plan, Written};
use reader::Reader;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use told::{Counts, Told};
use waystation::storage::fault::FaultRules;
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, Options};

const LIVES: usize = 5;
const DIR: &str = "/db";
/// Well storage lets one of so many flushes succeed, with these pauses between them.
const FLUSHES_MAX: usize = 200;
const FLUSH_PAUSE: Duration = Duration::from_millis(50);

/// Runs all lives of one seed.
pub(crate) fn run(seed: u64, tally: &Tally) {
    let mut history = History {
        plan: &Plan::new(seed),
        random: Random(seed),
        machine: SimStorage::new(seed),
        tally,
    };
    let plan = history.plan;
    let mut oracle = Oracle {
        plan,
        written: vec![Written::default(); plan.clients],
    };
    let mut promised = Promised::nothing(plan.clients);
    for _ in 0..LIVES {
        promised = history.live(&mut oracle, &mut promised);
    }
    let options = settings::options(plan, &mut history.random);
    let storage: Arc<dyn Storage> = Arc::clone(&history.machine) as _;
    let db = Db::open_with(storage, Path::new(DIR), options).unwrap_or_else(|error| {
        let how = &promised.how;
        panic!("seed {seed}, after {how}: cannot open: {error}")
    });
    oracle.take(&db, &promised);
    let batches = oracle.written.iter().map(|it| it.count).sum();
    tally.batches.fetch_add(batches, SeqCst);
}

struct History<'a> {
    plan: &'a Plan,
    random: Random,
    machine: Arc<SimStorage>,
    tally: &'a Tally,
}

/// How a life is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Crash(Crash),
    Close,
}

impl History<'_> {
    /// Opens the database. Sometimes the machine ends once more before that is done.
    fn open(&mut self, rules: &FaultRules, options: &Options, promised: &mut Promised) -> Db {
        loop {
            let is_cut = self.random.one_in(5);
            if is_cut {
                add_end(rules, &mut self.random);
            }
            let storage: Arc<dyn Storage> = self.machine.with_faults(rules);
            match Db::open_with(storage, Path::new(DIR), options.clone()) {
                Ok(db) => return db,
                Err(_) if rules.is_halted() => {
                    let crash = [Crash::Process, Crash::PowerCut][self.random.below(2) as usize];
                    self.machine = self.machine.crash(self.random.next(), crash);
                    rules.clear();
                    if crash == Crash::PowerCut {
                        promised.least.clone_from(&promised.least_of_power_cut);
                    }
                    promised.how = format!("{}, {crash:?} while it was opened", promised.how);
                }
                Err(error) => {
                    let (seed, how) = (self.plan.seed, &promised.how);
                    panic!("seed {seed}, after {how}: cannot open: {error}")
                }
            }
        }
    }

    /// Opens the database, has `oracle` judge what was `promised`, and lets clients write until the end.
    fn live(&mut self, oracle: &mut Oracle<'_>, promised: &mut Promised) -> Promised {
        let rules = FaultRules::new();
        let options = settings::options(self.plan, &mut self.random);
        let db = self.open(&rules, &options, promised);
        // It looks undisturbed; what was to end while the database was opened may have been waiting.
        if rules.is_halted() {
            let (crash, kept) = (Crash::PowerCut, &promised.least_of_power_cut);
            promised.least.clone_from(kept);
            self.machine = self.machine.crash(self.random.next(), crash);
            drop(db);
            return self.live(oracle, promised);
        }
        rules.clear();
        oracle.take(&db, promised);
        let told = Told::new(self.plan.clients);
        // What was found was made durable by the recovery that found it.
        let batches = self.batches();
        let end = match self.random.below(8) {
            0 => End::Close,
            1..4 => End::Crash(Crash::Process),
            _ => End::Crash(Crash::PowerCut),
        };
        let mut faults = Vec::new();
        if self.random.one_in(3) {
            faults = add_faults(&rules, &mut self.random);
        } else if end != End::Close && self.random.one_in(2) {
            add_end(&rules, &mut self.random);
        }
        let (least, of_power_cut) = self.write(&db, &rules, oracle, &told, batches, end);
        let how = format!("{end:?} {rules:?}");
        let caught = faults.into_iter().map(|id| rules.count(id).caught);
        self.tally.faults.fetch_add(caught.sum(), SeqCst);
        let (least, least_of_power_cut) = if end == End::Close {
            self.close(db, &rules, &told)
        } else {
            (least, of_power_cut)
        };
        Promised {
            told,
            least,
            least_of_power_cut,
            how,
        }
    }

    /// How many batches a client writes in a life at most: often so few that nothing but recovery has synced the log.
    fn batches(&mut self) -> u64 {
        let most = match self.random.below(4) {
            0 => 6,
            1 => 30,
            _ => 150,
        };
        1 + self.random.below(most) / self.plan.clients as u64
    }

    /// Lets the clients write, and ends the machine if it is to crash. Returns what has to be there then, and what a power
    /// cut would leave.
    fn write(
        &mut self,
        db: &Db,
        rules: &FaultRules,
        oracle: &Oracle<'_>,
        told: &Told,
        batches: u64,
        end: End,
    ) -> (Counts, Counts) {
        let plan = self.plan;
        let stop_at = self.random.below(batches * plan.clients as u64 + 1);
        let has_reader = self.random.one_in(2);
        std::thread::scope(|scope| {
            let random = &mut self.random;
            let client = |number: usize| Client {
                db,
                plan,
                number,
                told,
                rules,
                random: Random(random.next()),
                written: oracle.written[number].clone(),
                held: Vec::new(),
                failures: 0,
            };
            let clients: Vec<_> = (0..plan.clients).map(client).collect();
            let clients: Vec<_> = clients
                .into_iter()
                .map(|client| scope.spawn(move || client.run(batches)))
                .collect();
            if has_reader {
                let reader = Reader {
                    db,
                    plan,
                    told,
                    random: Random(self.random.next()),
                    seen: oracle.written.clone(),
                };
                scope.spawn(move || reader.run());
            }
            let is_running = || clients.iter().any(|client| !client.is_finished());
            let is_early = || end == End::Close || told.acknowledged() < stop_at;
            while is_early() && !rules.is_halted() && is_running() {
                std::thread::yield_now();
            }
            let before = Arc::clone(&self.machine);
            let least = match end {
                End::Close => (Counts::new(), Counts::new()),
                End::Crash(crash) => self.crash(crash, told),
            };
            told.over.store(true, SeqCst);
            while is_running() {
                if told.long.load(SeqCst) > 0 && end != End::Close {
                    // It waits for the storage to be well again.
                    rules.clear();
                    before.power_on();
                }
                std::thread::yield_now();
            }
            if end != End::Close {
                before.power_off();
            }
            least
        })
    }

    /// Ends the machine. Returns what has to be there, and what a power cut would leave.
    fn crash(&mut self, crash: Crash, told: &Told) -> (Counts, Counts) {
        let of_power_cut = told.kept_by_power_cut();
        let (least, ends) = match crash {
            Crash::Process => (told.kept_by_process_crash(), &self.tally.process_deaths),
            Crash::PowerCut => (of_power_cut.clone(), &self.tally.power_cuts),
        };
        ends.fetch_add(1, SeqCst);
        self.machine = self.machine.crash(self.random.next(), crash);
        (least, of_power_cut)
    }

    /// Closes the database, whose clients are done. Returns as much.
    fn close(&mut self, db: Db, rules: &FaultRules, told: &Told) -> (Counts, Counts) {
        self.tally.closes.fetch_add(1, SeqCst);
        // Straight after (or amid) the faults closing may fail; the log keeps everything then.
        let straight = self.random.one_in(2);
        if !straight {
            rules.clear();
            // It heals by itself once the cause is gone, though not at once.
            let mut flushes = (0..FLUSHES_MAX).map(|_| {
                let flushed = db.flush();
                if flushed.is_err() {
                    std::thread::sleep(FLUSH_PAUSE);
                }
                flushed
            });
            let seed = self.plan.seed;
            let is_flushed = flushes.any(|flushed| flushed.is_ok());
            assert!(is_flushed, "seed {seed}: no flush, on well storage");
        }
        let least = told.kept_by_process_crash();
        if let Err(error) = db.close() {
            let seed = self.plan.seed;
            assert!(straight, "seed {seed}: close: {error}");
            return (least, told.kept_by_power_cut());
        }
        (least.clone(), least)
    }
}
