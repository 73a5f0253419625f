//! Simulated crashes and faults on whole engines.
//!
//! Most seeds are a *history*: several lives of one database on a simulated machine. In each life up to three clients
//! commit batches at the same time, some of them synced, while flushes and compactions run and, for some seeds, calls
//! of the storage fail. At a random moment, or at one call of the storage, the machine ends: the process dies, or the
//! power is cut. The oracle: what is found is of each client the state after its first so many batches, it is a prefix
//! of all clients' batches together, and it has everything acknowledged at its durability before that moment.
//! Meanwhile each client looks at all its keys, by cursor in both directions and one by one, now and at snapshots that it
//! took right before a deletion, a departure or a settle, and goes on to look at them after flushes and merges; a reader
//! looks at the others' keys.
//!
//! Every other one has devices, which arrive, settle and depart meanwhile, by themselves and by call. Some keys have
//! a time to live, over before the next life or long after all. Some batches are longer than half of the ring. Some
//! calls are made twice at once.
//!
//! Every fourth seed is another world: [two edges](edges) that hand devices to each other. Every sixteenth is a database
//! with [little room](narrow).
//!
//! `WAYSTATION_SEEDS` sets the number of seeds (default 300), `WAYSTATION_FIRST_SEED` the first; `WAYSTATION_SECONDS` lets
//! no seed begin after so many seconds; `WAYSTATION_SEED` runs a single one. With `WAYSTATION_RESTLESS=1` threads are held up at random. The first
//! violation ends the run. A seed that runs for long is told of, as it may never end.

mod edges;
mod faults;
mod history;
mod looks;
mod narrow;
#[path = "../suite/support/mod.rs"]
mod support;
mod tally;
mod twice;
mod watch;

use std::panic::{catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread::ScopedJoinHandle;
use std::time::Duration;
use tally::Tally;
use watch::Watch;
use waystation::storage::sim::hold_threads_up;
use waystation::storage::{OsStorage, Storage};

/// Seeds that run at the same time.
const AT_ONCE: usize = 4;
/// One in so many seeds is told of as it begins.
const TOLD_EVERY: u64 = 25;

fn run_seed(seed: u64, tally: &Tally) {
    match seed % 16 {
        1 | 5 | 9 | 13 => edges::run(seed, tally),
        7 => narrow::run(seed, tally),
        _ => history::run(seed, tally),
    }
}

/// The number in a variable of the environment.
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

#[test]
fn recovery_is_a_prefix_that_holds_everything_acknowledged() {
    if variable("WAYSTATION_RESTLESS").is_some() {
        hold_threads_up();
    }
    if let Some(seed) = variable("WAYSTATION_SEED") {
        return run_seed(seed, &Tally::default());
    }
    let seeds = variable("WAYSTATION_SEEDS").unwrap_or(300);
    let first = variable("WAYSTATION_FIRST_SEED").unwrap_or(1);
    let seconds = variable("WAYSTATION_SECONDS").map(Duration::from_secs);
    let clock = OsStorage::new();
    let begun = clock.now();
    let is_late = || seconds.is_some_and(|seconds| clock.now().saturating_sub(begun) >= seconds);
    let (next, tally) = (AtomicU64::new(first), Tally::default());
    let is_violated = AtomicBool::new(false);
    let watch = Watch::default();
    let run = || {
        while !is_violated.load(SeqCst) && !is_late() {
            let seed = next.fetch_add(1, SeqCst);
            if seed >= first + seeds {
                return;
            }
            // So that silence means a hang to those who listen.
            if seed.is_multiple_of(TOLD_EVERY) {
                println!("simulation: seed {seed} begins");
            }
            let run = catch_unwind(|| watch.during(seed, || run_seed(seed, &tally)));
            if let Err(panic) = run {
                is_violated.store(true, SeqCst);
                println!(
                    "replay with: WAYSTATION_SEED={seed} cargo test -p waystation --test simulation"
                );
                resume_unwind(panic);
            }
        }
    };
    std::thread::scope(|scope| {
        let (ended, end) = channel();
        let watch = &watch;
        scope.spawn(move || watch.tell_of_long_runs(&end));
        let runs: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(run)).collect();
        let outcomes: Vec<_> = runs.into_iter().map(ScopedJoinHandle::join).collect();
        drop(ended);
        for outcome in outcomes {
            outcome.unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    let seeds = seeds.min(next.into_inner() - first);
    println!(
        "simulation: {seeds} seeds from {first}, no violation; {}",
        tally.summary()
    );
}
