//! Runs the schedule on an open engine: the threads, their loops, and what they saw.
//!
//! The load is closed: a thread inserts when its last insert is acknowledged. Between inserts it deletes the devices
//! whose time is over, and now and then it asks. Inserts are timed from the end of the operation before; deletions
//! and queries apart. When time is over, every thread looks for a few devices that must be there, and for a few that must not.

use super::reading::{self, Noise, SENSORS, VALUE_BYTES};
use super::schedule::{Schedule, Share, Stay, Turn};
use super::{DEVICES, IotFigures, IotLevels, IotLoad, IotValues};
use crate::clock;
use crate::engines::{Cursor, Engine};
use crate::error::{Error, Result};
use crate::measure::{Latencies, Meter};
use crate::protocol::Figures;
use crate::workload::{Outcome, Random};
use std::collections::VecDeque;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// A pair of queries comes with this many inserts, by chance.
const INSERTS_PER_QUERY_PAIR: u32 = 20_000;
/// What a query spans, in the timestamps of the keys.
const WINDOW_MS: u64 = 5000;
/// How many devices of each kind a thread looks for at the end.
const CHECKED: usize = 64;
const SCHEDULE_SEED: u32 = 1000;
const VALUE_SEED: u32 = 500_000;

/// What the threads saw, all together.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The inserts.
    pub(crate) outcome: Outcome,
    departures: Latencies,
    departed: u64,
    departed_records: u64,
    behind: Duration,
    residency: Duration,
    queries: Latencies,
    queried: u64,
    query_rows: u64,
}

impl Seen {
    fn new(residency: Duration) -> Self {
        Self {
            outcome: Outcome {
                ops: 0,
                found: 0,
                bytes: 0,
                elapsed: Duration::ZERO,
                latencies: Latencies::new(),
            },
            departures: Latencies::new(),
            departed: 0,
            departed_records: 0,
            behind: Duration::ZERO,
            residency,
            queries: Latencies::new(),
            queried: 0,
            query_rows: 0,
        }
    }

    fn add(&mut self, other: &Self) {
        let (sum, more) = (&mut self.outcome, &other.outcome);
        sum.ops += more.ops;
        sum.bytes += more.bytes;
        sum.elapsed = sum.elapsed.max(more.elapsed);
        sum.latencies.add(&more.latencies);
        self.departures.add(&other.departures);
        self.departed += other.departed;
        self.departed_records += other.departed_records;
        self.behind = self.behind.max(other.behind);
        self.queries.add(&other.queries);
        self.queried += other.queried;
        self.query_rows += other.query_rows;
    }

    /// The figures of the report, given those that every benchmark has.
    pub(crate) fn figures(&self, common: Figures, levels: IotLevels) -> IotFigures {
        IotFigures {
            levels,
            longest_stall_ms: common.max_us / 1e3,
            common,
            departures: self.departed,
            departed_records: self.departed_records,
            departure_p99_us: self.departures.quantile_us(0.99),
            departure_max_us: self.departures.max_us(),
            behind_residencies: self.behind.div_duration_f64(self.residency),
            queries: self.queried,
            query_rows: self.query_rows,
            query_p99_us: self.queries.quantile_us(0.99),
        }
    }
}

/// Runs the load. The meter was started with the clock.
pub(crate) fn run_iot<E: Engine>(engine: &E, load: IotLoad) -> Result<(Seen, Meter)> {
    let noise = Noise::new();
    let start = Barrier::new(load.threads as usize + 1);
    thread::scope(|scope| {
        let (noise, start) = (&noise, &start);
        let spawn =
            |thread| scope.spawn(move || Client::new(engine, load, thread, noise).run(start));
        let threads: Vec<_> = (0..load.threads).map(spawn).collect();
        let meter = Meter::start();
        start.wait();
        let mut seen = Seen::new(load.residency());
        for thread in threads {
            let panicked = || Error::engine(E::NAME, "run devices", "a thread panicked");
            seen.add(&thread.join().map_err(|_| panicked())??);
        }
        Ok((seen, meter?))
    })
}

/// One client thread.
struct Client<'a, E> {
    engine: &'a E,
    load: IotLoad,
    schedule: Schedule,
    noise: &'a Noise,
    random: Random,
    seen: Seen,
    /// The devices that were deleted last.
    gone: VecDeque<Stay>,
    /// The end of the operation before.
    last: Instant,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a, E: Engine> Client<'a, E> {
    fn new(engine: &'a E, load: IotLoad, thread: u32, noise: &'a Noise) -> Self {
        let share = Share {
            thread,
            threads: load.threads,
            devices: DEVICES,
        };
        let random = Random::new(SCHEDULE_SEED + 1 + thread);
        Self {
            engine,
            load,
            schedule: Schedule::new(share, load.residency(), load.departing, random),
            noise,
            random: Random::new(VALUE_SEED + 1 + thread),
            seen: Seen::new(load.residency()),
            gone: VecDeque::new(),
            last: clock::now(),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    fn run(mut self, start: &Barrier) -> Result<Seen> {
        start.wait();
        let span = Duration::from_secs(u64::from(self.load.seconds));
        let started = clock::now();
        self.last = started;
        while self.last - started < span {
            let turn = self.schedule.next_turn();
            self.insert(turn)?;
            while let Some((stay, end)) = self.schedule.end_due(self.last - started) {
                if stay.leaves && stay.records > 0 {
                    self.seen.behind = self
                        .seen
                        .behind
                        .max((self.last - started).saturating_sub(end));
                    self.depart(stay)?;
                }
            }
            if self.random.uniform(INSERTS_PER_QUERY_PAIR) == 0 {
                self.ask(turn)?;
            }
        }
        self.seen.outcome.elapsed = self.last - started;
        self.check()?;
        Ok(self.seen)
    }

    #[inline]
    fn insert(&mut self, turn: Turn) -> Result<()> {
        self.key.clear();
        reading::push_turn(turn, &mut self.key);
        let value = match self.load.values {
            IotValues::Random => self.noise.value(&mut self.random),
            IotValues::Kit => {
                reading::kit_value(reading::sensor(turn), &mut self.random, &mut self.value);
                &self.value
            }
        };
        if self.load.sync {
            self.engine.put_sync(&self.key, value)?;
        } else {
            self.engine.put(&self.key, value)?;
        }
        let latency = self.lap();
        let outcome = &mut self.seen.outcome;
        outcome.latencies.record(latency);
        outcome.ops += 1;
        outcome.bytes += (self.key.len() + VALUE_BYTES) as u64;
        Ok(())
    }

    fn depart(&mut self, stay: Stay) -> Result<()> {
        self.key.clear();
        reading::push_device(stay.device, &mut self.key);
        self.engine.depart(&self.key, reading::keys_of(&stay))?;
        let latency = self.lap();
        self.seen.departures.record(latency);
        self.seen.departed += 1;
        self.seen.departed_records += u64::from(stay.records);
        if self.gone.len() == CHECKED {
            self.gone.pop_front();
        }
        self.gone.push_back(stay);
        Ok(())
    }

    /// The kit's pair of queries: one sensor of the device that wrote last, in the last window and in one before.
    fn ask(&mut self, turn: Turn) -> Result<()> {
        let sensor = self.random.uniform(SENSORS);
        let last = reading::timestamp(turn) - reading::FIRST_MS;
        let newest = reading::FIRST_MS + last.saturating_sub(WINDOW_MS);
        let span = last.saturating_sub(2 * WINDOW_MS).max(1);
        let earlier = reading::FIRST_MS + u64::from(self.random.next()) % span;
        for from in [newest, earlier] {
            self.seen.query_rows += self.count(turn.device, sensor, from)?;
            let latency = self.lap();
            self.seen.queries.record(latency);
            self.seen.queried += 1;
        }
        Ok(())
    }

    /// How many readings of a sensor lie in the window that begins at `from`.
    fn count(&self, device: u64, sensor: u32, from: u64) -> Result<u64> {
        let (mut first, mut end) = (Vec::new(), Vec::new());
        reading::push_key(device, sensor, from, &mut first);
        reading::push_key(device, sensor, from + WINDOW_MS, &mut end);
        let mut cursor = self.engine.cursor()?;
        let mut rows = 0;
        let mut is_valid = cursor.seek(&first)?;
        while is_valid && cursor.key() < end.as_slice() {
            if cursor.value().len() != VALUE_BYTES {
                return Err(Error::engine(
                    E::NAME,
                    "query",
                    "a value has another length",
                ));
            }
            rows += 1;
            is_valid = cursor.next()?;
        }
        Ok(rows)
    }

    /// The time since the last call, or since the start.
    #[inline]
    fn lap(&mut self) -> Duration {
        let now = clock::now();
        let latency = now - self.last;
        self.last = now;
        latency
    }

    /// Figures for wrong answers are worth nothing.
    fn check(&mut self) -> Result<()> {
        let there = self.schedule.resident().filter(|stay| stay.records > 0);
        let there = there.take(CHECKED).map(|stay| (stay, true));
        let gone = self.gone.iter().map(|stay| (stay, false));
        let (mut key, mut found) = (Vec::new(), Vec::new());
        for (stay, is_there) in there.chain(gone) {
            for ordinal in [0, stay.records - 1] {
                key.clear();
                reading::push_turn(stay.turn(ordinal), &mut key);
                let is_found = self.engine.get(&key, &mut found)?;
                if is_found != is_there || (is_found && found.len() != VALUE_BYTES) {
                    let what = if is_there { "lost" } else { "not deleted" };
                    let message = format!("{} is {what}", key.escape_ascii());
                    return Err(Error::engine(E::NAME, "keep devices", message));
                }
            }
        }
        Ok(())
    }
}
