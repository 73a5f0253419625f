//! Puts of random keys at full speed for a while: how long does the longest one take?
//!
//! An average hides that an engine stops for a second to let its compactions catch up. Here every put is timed,
//! and the throughput of each second is kept beside the pauses.

use super::{KEY_BYTES, Key, Random, Values};
use crate::clock;
use crate::engines::Engine;
use crate::error::Result;
use crate::measure::Latencies;
use crate::workload::crew::together;
use serde::{Deserialize, Serialize};
use std::sync::Barrier;
use std::time::Duration;

/// Pauses are counted from these lengths on, in milliseconds.
const PAUSES_MS: [u64; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
const THREAD_SEED: u32 = 1000;

/// What is put, and for how long.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct PauseLoad {
    /// Keys are random numbers below this.
    pub(crate) num: u32,
    /// The length of every value.
    pub(crate) value_bytes: usize,
    /// Threads that put.
    pub(crate) threads: u32,
    /// For how long.
    pub(crate) seconds: u32,
}

/// How many puts took at least so long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pause {
    /// The length.
    pub(crate) from_ms: u64,
    /// Puts that took as long or longer.
    pub(crate) puts: u64,
}

/// What the threads saw, all together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PauseFigures {
    /// Puts done.
    pub(crate) ops: u64,
    /// Puts per second.
    pub(crate) ops_per_s: f64,
    /// Bytes of keys and values per second, in units of 10^6.
    pub(crate) mb_per_s: f64,
    /// The longest put.
    pub(crate) longest_put_ms: f64,
    /// The latency that half of the puts do not exceed.
    pub(crate) p50_us: f64,
    /// The latency that 99 % of the puts do not exceed.
    pub(crate) p99_us: f64,
    /// The latency that 99.9 % of the puts do not exceed.
    pub(crate) p999_us: f64,
    /// Puts in the slowest whole second.
    pub(crate) slowest_second_ops: u64,
    /// Puts by second.
    pub(crate) ops_by_second: Vec<u64>,
    /// Pauses by length.
    pub(crate) pauses: Vec<Pause>,
}

/// Puts at full speed.
pub(crate) fn run_pauses<E: Engine>(engine: &E, load: PauseLoad) -> Result<PauseFigures> {
    let span = Duration::from_secs(u64::from(load.seconds));
    let work = |index, start: &Barrier| put_for(engine, load, index, start, span);
    let (each, _) = together((E::NAME, "put"), load.threads, work, Barrier::wait)?;

    let mut latencies = Latencies::new();
    let mut ops_by_second = vec![0; load.seconds as usize];
    for (of_thread, by_second) in each {
        latencies.add(&of_thread);
        for (sum, ops) in ops_by_second.iter_mut().zip(by_second) {
            *sum += ops;
        }
    }
    let ops: u64 = ops_by_second.iter().sum();
    let ops_per_s = ops as f64 / f64::from(load.seconds);
    let count = |from_ms| Pause {
        from_ms,
        puts: latencies.count_from(Duration::from_millis(from_ms)),
    };
    Ok(PauseFigures {
        ops,
        ops_per_s,
        mb_per_s: ops_per_s * (KEY_BYTES + load.value_bytes) as f64 / 1e6,
        longest_put_ms: latencies.max_us() / 1e3,
        p50_us: latencies.quantile_us(0.5),
        p99_us: latencies.quantile_us(0.99),
        p999_us: latencies.quantile_us(0.999),
        slowest_second_ops: ops_by_second.iter().copied().min().unwrap_or(0),
        ops_by_second,
        pauses: PAUSES_MS.map(count).to_vec(),
    })
}

/// One thread's puts. Those that end after the span are timed (a pause may be one of them), but not counted.
fn put_for<E: Engine>(
    engine: &E,
    load: PauseLoad,
    index: u32,
    start: &Barrier,
    span: Duration,
) -> Result<(Latencies, Vec<u64>)> {
    let mut values = Values::new(load.value_bytes);
    let mut random = Random::new(THREAD_SEED + index + 1);
    let mut latencies = Latencies::new();
    let mut by_second = vec![0; load.seconds as usize];
    start.wait();
    let started = clock::now();
    let mut last = started;
    while last - started < span {
        let key = Key::new(random.uniform(load.num));
        engine.put(key.as_bytes(), values.next(load.value_bytes))?;
        let now = clock::now();
        latencies.record(now - last);
        last = now;
        if let Some(ops) = by_second.get_mut((now - started).as_secs() as usize) {
            *ops += 1;
        }
    }
    Ok((latencies, by_second))
}
