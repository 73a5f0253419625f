//! A device with very much data departs while others go on writing: how long is the call, and do the others notice?
//!
//! One device is filled. Then other devices write at a rate that is offered whatever the engine does, a part of what
//! it takes at full speed; in the middle of that the large device departs. Puts are timed from when they were due, apart by
//! the second in which that was: the seconds before the call, the one after it, and the rest.

use super::pace::{self, Pace};
use super::{Key, Random, Values};
use crate::clock;
use crate::engines::Engine;
use crate::error::{Error, Result};
use crate::measure::Latencies;
use crate::workload::crew::together;
use serde::{Deserialize, Serialize};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The device that departs.
const LARGE: &[u8] = b"large";
/// Devices that every thread writes for, in turn.
const DEVICES_PER_THREAD: u32 = 1000;
/// Keys of each of them, which are written again and again.
const KEYS_PER_DEVICE: u32 = 1000;
/// For how long the engine is asked what it takes.
const FULL_SPEED: Duration = Duration::from_secs(2);
/// So many seconds at the beginning of the offered load are left out: caches and threads wake up.
const WARM_UP_S: usize = 1;
const SEED: u32 = 1000;

/// What is done.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct DepartureLoad {
    /// Records of the large device.
    pub(crate) records: u32,
    /// The length of every value.
    pub(crate) value_bytes: usize,
    /// Threads that write for other devices.
    pub(crate) threads: u32,
    /// For how long they do; the large device departs in the middle.
    pub(crate) seconds: u32,
    /// What they offer, of what the engine takes.
    pub(crate) open_loop: f64,
    /// Whether the large device has settled before.
    pub(crate) settled: bool,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DepartureFigures {
    /// Puts per second at full speed.
    pub(crate) most_per_s: f64,
    /// Puts per second that were offered.
    pub(crate) offered_per_s: f64,
    /// How long the call lasted that let the large device depart.
    pub(crate) call_us: f64,
    /// The put that 99 % of the others' do not exceed, in the seconds before.
    pub(crate) p99_before_us: f64,
    /// The same in the second after the call began.
    pub(crate) p99_meanwhile_us: f64,
    /// The same in the seconds after that one.
    pub(crate) p99_after_us: f64,
    /// Meanwhile over before.
    pub(crate) p99_ratio: f64,
    /// The longest put in the second after the call began.
    pub(crate) max_meanwhile_us: f64,
    /// The put that 99 % do not exceed, second by second.
    pub(crate) p99_us_by_second: Vec<f64>,
}

/// Runs it on an empty database.
pub(crate) fn run_departure<E: Engine>(
    engine: &E,
    load: DepartureLoad,
) -> Result<DepartureFigures> {
    let mut values = Values::new(load.value_bytes);
    let mut key = Vec::new();
    for record in 0..load.records {
        push_large(record, &mut key);
        engine.put(&key, values.next(load.value_bytes))?;
    }
    if load.settled {
        engine.settle(LARGE)?;
    }
    engine.wait_idle()?;

    let full = write(engine, load, None, FULL_SPEED, || Ok(()))?;
    let most_per_s = full.puts as f64 / full.elapsed.as_secs_f64();
    engine.wait_idle()?;
    let offered_per_s = load.open_loop * most_per_s;
    let span = Duration::from_secs(u64::from(load.seconds));
    let mut call = Duration::ZERO;
    let seen = write(engine, load, Some(offered_per_s), span, || {
        let started = clock::now();
        engine.depart(LARGE, large_keys(load.records))?;
        call = started.elapsed();
        Ok(())
    })?;
    check_gone(engine, load.records)?;

    let middle = (load.seconds / 2) as usize;
    let (before, after) = seen.by_second.split_at(middle);
    let before = sum(&before[WARM_UP_S.min(middle - 1)..]);
    let (meanwhile, rest) = (&after[0], sum(&after[1..]));
    let p99 = |latencies: &Latencies| latencies.quantile_us(0.99);
    Ok(DepartureFigures {
        most_per_s,
        offered_per_s,
        call_us: call.as_nanos() as f64 / 1e3,
        p99_before_us: p99(&before),
        p99_meanwhile_us: p99(meanwhile),
        p99_after_us: p99(&rest),
        p99_ratio: p99(meanwhile) / p99(&before),
        max_meanwhile_us: meanwhile.max_us(),
        p99_us_by_second: seen.by_second.iter().map(p99).collect(),
    })
}

fn push_large(record: u32, key: &mut Vec<u8>) {
    key.clear();
    key.extend_from_slice(LARGE);
    key.push(b':');
    key.extend_from_slice(Key::new(record).as_bytes());
}

fn large_keys(records: u32) -> impl Iterator<Item = Vec<u8>> {
    (0..records).map(|record| {
        let mut key = Vec::new();
        push_large(record, &mut key);
        key
    })
}

/// Figures for a departure that left something behind are worth nothing.
fn check_gone<E: Engine>(engine: &E, records: u32) -> Result<()> {
    let mut found = Vec::new();
    for key in large_keys(records).step_by(1 + records as usize / 1000) {
        if engine.get(&key, &mut found)? {
            let message = format!("{} is not deleted", key.escape_ascii());
            return Err(Error::engine(E::NAME, "let a device depart", message));
        }
    }
    Ok(())
}

fn sum(latencies: &[Latencies]) -> Latencies {
    let mut sum = Latencies::new();
    for more in latencies {
        sum.add(more);
    }
    sum
}

/// What the writers saw.
struct Seen {
    puts: u64,
    elapsed: Duration,
    by_second: Vec<Latencies>,
}

/// Other devices' writes for some time, and `meanwhile` in the middle of it.
fn write<E: Engine>(
    engine: &E,
    load: DepartureLoad,
    offered_per_s: Option<f64>,
    span: Duration,
    meanwhile: impl FnOnce() -> Result<()>,
) -> Result<Seen> {
    let work = |thread, start: &Barrier| {
        let writer = Writer {
            engine,
            load,
            thread,
            pace: Pace::new(offered_per_s, thread, load.threads),
            span,
        };
        writer.run(start)
    };
    let watch = |start: &Barrier| {
        start.wait();
        pace::wait_until(clock::now() + span / 2);
        meanwhile()
    };
    let (each, result) = together((E::NAME, "put"), load.threads, work, watch)?;
    result?;
    let mut seen = Seen {
        puts: 0,
        elapsed: Duration::ZERO,
        by_second: vec![Latencies::new(); span.as_secs() as usize],
    };
    for more in each {
        seen.puts += more.puts;
        seen.elapsed = seen.elapsed.max(more.elapsed);
        for (sum, more) in seen.by_second.iter_mut().zip(&more.by_second) {
            sum.add(more);
        }
    }
    Ok(seen)
}

/// One thread that writes for devices of its own.
struct Writer<'a, E> {
    engine: &'a E,
    load: DepartureLoad,
    thread: u32,
    pace: Pace,
    span: Duration,
}

impl<E: Engine> Writer<'_, E> {
    fn run(&self, start: &Barrier) -> Result<Seen> {
        let mut values = Values::new(self.load.value_bytes);
        let mut random = Random::new(SEED + 1 + self.thread);
        let mut by_second = vec![Latencies::new(); self.span.as_secs() as usize];
        let mut key = Vec::new();
        self.pace.prepare();
        start.wait();
        let started = clock::now();
        let mut last = started;
        let mut puts = 0;
        loop {
            let due = self.pace.due(puts).unwrap_or(last - started);
            if due >= self.span {
                break;
            }
            let begin: Instant = pace::wait_until(started + due).min(started + due);
            self.push_key(puts, &mut random, &mut key);
            self.engine.put(&key, values.next(self.load.value_bytes))?;
            last = clock::now();
            by_second[due.as_secs() as usize].record(last - begin);
            puts += 1;
        }
        Ok(Seen {
            puts,
            elapsed: last - started,
            by_second,
        })
    }

    fn push_key(&self, puts: u64, random: &mut Random, key: &mut Vec<u8>) {
        key.clear();
        let device =
            self.thread * DEVICES_PER_THREAD + (puts % u64::from(DEVICES_PER_THREAD)) as u32;
        key.extend_from_slice(Key::new(device).as_bytes());
        key.push(b':');
        key.extend_from_slice(Key::new(random.uniform(KEYS_PER_DEVICE)).as_bytes());
    }
}
