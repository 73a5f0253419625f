//! Two edges that hand devices to each other: streams and answers come late, twice, cut or never, calls are made twice at
//! once, and either edge dies or loses power at any moment, also right after one of two equal calls was answered.
//!
//! The oracle is a model of the protocol: what each edge holds is known after every event. After the death of the
//! process it holds what it held, after a power cut what it held after some event that is no earlier than its last
//! promise: a receipt, a refusal or the end of a stream that was given out, to whichever caller.

mod answers;
mod crash;
mod model;
mod moves;
mod steps;

use crate::faults::add_end;
use crate::support::{Random, options_with_devices};
use crate::tally::Tally;
use model::{Events, HandOff, Known};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use waystation::storage::fault::FaultRules;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, Error, Options};

const EDGES: usize = 2;
const DEVICES: usize = 3;
const STEPS: u64 = 70;

/// Runs one seed.
pub(crate) fn run(seed: u64, tally: &Tally) {
    let mut world = World::new(seed, tally);
    for _ in 0..STEPS {
        world.step();
        tally.steps.fetch_add(1, SeqCst);
    }
    for edge in 0..EDGES {
        world.end(edge, None);
    }
}

struct Edge {
    machine: Arc<SimStorage>,
    rules: FaultRules,
    /// Whether its storage ends by itself in this life.
    may_end: bool,
    /// The power was cut, and it was not found out yet what that left: its machine ended again before.
    lost_power: bool,
    /// `None` only while it is not running.
    db: Option<Db>,
    events: Events,
}

struct World<'a> {
    seed: u64,
    random: Random,
    edges: Vec<Edge>,
    hand_offs: Vec<HandOff>,
    /// Counts steps, and values.
    count: u64,
    tally: &'a Tally,
}

fn name(device: usize) -> Vec<u8> {
    format!("car-{device}").into_bytes()
}

fn destination(edge: usize) -> String {
    format!("edge-{edge}")
}

/// Whether the storage is to blame, which ends.
fn is_of_storage(error: &Error) -> bool {
    match error {
        Error::Suspended { .. } => true,
        Error::Io { source, .. } => source.get_ref().is_none_or(|it| !it.is::<Error>()),
        _ => false,
    }
}

impl<'a> World<'a> {
    fn new(seed: u64, tally: &'a Tally) -> Self {
        let mut world = Self {
            seed,
            random: Random(seed),
            edges: Vec::new(),
            hand_offs: Vec::new(),
            count: 0,
            tally,
        };
        for edge in 0..EDGES {
            let machine = SimStorage::new(seed.wrapping_mul(EDGES as u64) + edge as u64);
            let rules = FaultRules::new();
            let db = Some(world.open(&machine, &rules));
            world.edges.push(Edge {
                machine,
                rules,
                may_end: false,
                lost_power: false,
                db,
                events: Events::new(vec![Known::default(); DEVICES]),
            });
        }
        world
    }

    fn options(&mut self) -> Options {
        let residency = match self.random.below(3) {
            0 => Duration::from_millis(40),
            _ => Duration::from_secs(1_000_000),
        };
        options_with_devices(residency)
    }

    fn open(&mut self, machine: &Arc<SimStorage>, rules: &FaultRules) -> Db {
        let options = self.options();
        let storage: Arc<dyn Storage> = machine.with_faults(rules);
        let db = Db::open_with(storage, Path::new("/db"), options);
        db.unwrap_or_else(|error| self.fail(&format!("cannot open: {error}")))
    }

    /// Opens `edge`, whose machine is new or has no other engine on it any more.
    fn start(&mut self, edge: usize) {
        let (machine, rules) = (Arc::clone(&self.edges[edge].machine), FaultRules::new());
        let db = self.open(&machine, &rules);
        let may_end = self.random.one_in(4);
        if may_end {
            add_end(&rules, &mut self.random);
        }
        let here = &mut self.edges[edge];
        (here.db, here.rules, here.may_end) = (Some(db), rules, may_end);
    }

    fn db(&self, edge: usize) -> &Db {
        self.edges[edge].db.as_ref().expect("running")
    }

    fn known(&self, edge: usize, device: usize) -> &Known {
        &self.edges[edge].events.now()[device]
    }

    fn events(&mut self, edge: usize) -> &mut Events {
        &mut self.edges[edge].events
    }

    #[track_caller]
    fn fail(&self, told: &str) -> ! {
        panic!("seed {}, step {}: {told}", self.seed, self.count)
    }

    #[track_caller]
    fn expect(&self, is_so: bool, told: &str) {
        if !is_so {
            self.fail(told);
        }
    }
}
