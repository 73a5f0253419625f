//! Runs the schedule on an open engine: the threads, their loops, and what they saw.
//!
//! A thread inserts when its last insert is acknowledged, or at the [pace](crate::workload::pace) that is asked for. Between
//! inserts it deletes the devices whose time is over, and now and then it [asks](super::queries). Deletions and queries
//! are timed apart. When time is over, every thread looks for a few devices that must be there, and for a few that must not.

use super::queries::{Asked, Queries};
use super::reading::{self, Noise, VALUE_BYTES};
use super::schedule::{Schedule, Share};
use super::stay::{Stay, Turn};
use super::{IotFigures, IotLevels, IotLoad, IotValues};
use crate::clock;
use crate::engines::{Engine, Group};
use crate::error::{Error, Result};
use crate::measure::{Latencies, Meter};
use crate::protocol::Figures;
use crate::workload::crew::together;
use crate::workload::pace::{self, Pace};
use crate::workload::{Outcome, Random};
use std::collections::VecDeque;
use std::sync::Barrier;
use std::time::{Duration, Instant};

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
    batch: u32,
    asked: Asked,
}

impl Seen {
    fn new(load: &IotLoad) -> Self {
        Self {
            residency: load.residency(),
            batch: load.batch,
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
            asked: Asked::new(),
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
        self.asked.add(&other.asked);
    }

    /// The figures of the report, given those that every benchmark has.
    pub(crate) fn figures(&self, common: Figures, levels: IotLevels, read_mb: f64) -> IotFigures {
        let asked = &self.asked;
        IotFigures {
            levels,
            batch: self.batch,
            cpu_us_per_op: common.cpu_s * 1e6 / common.ops.max(1) as f64,
            longest_stall_ms: common.max_us / 1e3,
            common,
            departures: self.departed,
            departed_records: self.departed_records,
            departure_p99_us: self.departures.quantile_us(0.99),
            departure_max_us: self.departures.max_us(),
            behind_residencies: self.behind.div_duration_f64(self.residency),
            queries: asked.count,
            query_rows: asked.rows,
            query_p50_us: asked.latencies.quantile_us(0.5),
            query_p99_us: asked.latencies.quantile_us(0.99),
            read_mb,
        }
    }
}

/// Runs the load. The meter was started with the clock.
pub(crate) fn run_iot<E: Engine>(engine: &E, load: IotLoad) -> Result<(Seen, Meter)> {
    let noise = Noise::new();
    let work = |thread, start: &Barrier| Client::new(engine, load, thread, &noise).run(start);
    let watch = |start: &Barrier| {
        let meter = Meter::start();
        start.wait();
        meter
    };
    let (each, meter) = together((E::NAME, "run devices"), load.threads, work, watch)?;
    let mut seen = Seen::new(&load);
    for more in &each {
        seen.add(more);
    }
    Ok((seen, meter?))
}

/// One client thread.
struct Client<'a, E> {
    engine: &'a E,
    load: IotLoad,
    schedule: Schedule,
    pace: Pace,
    queries: Queries,
    noise: &'a Noise,
    random: Random,
    seen: Seen,
    /// The devices that were deleted last.
    gone: VecDeque<Stay>,
    /// The end of the operation before.
    last: Instant,
    key: Vec<u8>,
    value: Vec<u8>,
    group: Group,
}

/// Makes the key of `turn` in the first of two buffers, and returns its value, which may be in the second.
#[inline]
fn next_value<'v>(
    turn: Turn,
    (values, noise): (IotValues, &'v Noise),
    random: &mut Random,
    (key, value): (&mut Vec<u8>, &'v mut Vec<u8>),
) -> &'v [u8] {
    key.clear();
    reading::push_turn(turn, key);
    match values {
        IotValues::Random => noise.value(random),
        IotValues::Kit => {
            reading::kit_value(turn.sensor, random, value);
            value
        }
    }
}

impl<'a, E: Engine> Client<'a, E> {
    fn new(engine: &'a E, load: IotLoad, thread: u32, noise: &'a Noise) -> Self {
        let share = Share {
            thread,
            threads: load.threads,
            devices: load.devices,
            batch: load.batch,
        };
        let random = Random::new(SCHEDULE_SEED + 1 + thread);
        Self {
            engine,
            load,
            schedule: Schedule::new(share, load.mode, load.residency(), load.departing, random),
            pace: Pace::new(load.offered_per_s, thread, load.threads),
            queries: Queries::new(load, thread),
            noise,
            random: Random::new(VALUE_SEED + 1 + thread),
            seen: Seen::new(&load),
            gone: VecDeque::new(),
            last: clock::now(),
            key: Vec::new(),
            value: Vec::new(),
            group: Group::default(),
        }
    }

    fn run(mut self, start: &Barrier) -> Result<Seen> {
        self.pace.prepare();
        start.wait();
        let span = Duration::from_secs(u64::from(self.load.seconds));
        let (started, started_ms) = (clock::now(), clock::unix_millis());
        self.last = started;
        let batch = u64::from(self.load.batch);
        for ordinal in 0.. {
            let due = self.pace.due(ordinal * batch);
            if due.unwrap_or(self.last - started) >= span {
                break;
            }
            let begin = due.map_or(self.last, |due| started + due);
            if due.is_some() {
                self.last = pace::wait_until(begin);
            }
            let now = self.last - started;
            self.insert(started_ms + now.as_millis() as u64, begin)?;
            if (0..batch).filter(|_| self.queries.is_due()).count() > 0 {
                let writer = self.schedule.last_writer();
                self.queries
                    .ask(self.engine, writer, &mut self.seen.asked)?;
                self.last = clock::now();
            }
            while let Some((stay, end)) = self.schedule.end_due(self.last - started) {
                if !stay.leaves {
                    self.queries.remember(stay);
                } else if stay.records > 0 {
                    let late = (self.last - started).saturating_sub(end);
                    self.seen.behind = self.seen.behind.max(late);
                    self.depart(stay)?;
                }
            }
        }
        self.seen.outcome.elapsed = self.last - started;
        self.check()?;
        Ok(self.seen)
    }

    /// Puts what was to be put at `begin`, a record or a batch, the time of day being `now_ms`.
    #[inline]
    fn insert(&mut self, now_ms: u64, begin: Instant) -> Result<()> {
        let bytes = if self.load.batch == 1 {
            self.put_one(now_ms)?
        } else {
            self.put_batch(now_ms)?
        };
        self.last = clock::now();
        let outcome = &mut self.seen.outcome;
        outcome.latencies.record(self.last - begin);
        outcome.ops += u64::from(self.load.batch);
        outcome.bytes += bytes as u64;
        Ok(())
    }

    #[inline]
    fn put_one(&mut self, now_ms: u64) -> Result<usize> {
        let value = next_value(
            self.schedule.next_turn(now_ms),
            (self.load.values, self.noise),
            &mut self.random,
            (&mut self.key, &mut self.value),
        );
        if self.load.sync {
            self.engine.put_sync(&self.key, value)?;
        } else {
            self.engine.put(&self.key, value)?;
        }
        Ok(self.key.len() + VALUE_BYTES)
    }

    fn put_batch(&mut self, now_ms: u64) -> Result<usize> {
        self.group.clear();
        for _ in 0..self.load.batch {
            let value = next_value(
                self.schedule.next_turn(now_ms),
                (self.load.values, self.noise),
                &mut self.random,
                (&mut self.key, &mut self.value),
            );
            self.group.push(&self.key, value);
        }
        self.engine.put_group(&self.group, self.load.sync)?;
        Ok(self.group.bytes())
    }

    fn depart(&mut self, stay: Stay) -> Result<()> {
        self.key.clear();
        reading::push_device(stay.device, &mut self.key);
        self.engine.depart(&self.key, stay.keys())?;
        let begin = std::mem::replace(&mut self.last, clock::now());
        self.seen.departures.record(self.last - begin);
        self.seen.departed += 1;
        self.seen.departed_records += u64::from(stay.records);
        if self.gone.len() == CHECKED {
            self.gone.pop_front();
        }
        self.gone.push_back(stay);
        Ok(())
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
