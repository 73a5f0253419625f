//! Runs one benchmark on an open engine: the threads, their loops, and what they saw.
//!
//! All threads are ready (generators made) before the clock starts, and it stops when the last one is done.
//! Operations are timed as `db_bench` times them: from the end of one to the end of the next, which costs one
//! reading of the clock per operation. An iterator's step is of the same order as that reading, so of `readseq`
//! and `readreverse` one step in [`SCAN_SAMPLING`] is timed.

use super::{Benchmark, KEY_BYTES, Key, Random, Values};
use crate::clock;
use crate::engines::{Cursor, Engine};
use crate::error::{Error, Result};
use crate::measure::{Latencies, Meter};
use crate::workload::crew::together;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Of the steps of a scan, one in this many is timed.
const SCAN_SAMPLING: u64 = 16;
/// How often a thread says how far it is, in operations.
const PROGRESS_OPS: u64 = 1024;
/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// The seed of the first thread of the first benchmark, less one.
const THREAD_SEED: u32 = 1000;

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Keys are numbers below this; most benchmarks do as many operations per thread.
    pub(crate) num: u32,
    /// The length of every value.
    pub(crate) value_bytes: usize,
    /// Threads, each doing all of it.
    pub(crate) threads: u32,
    /// How many threads ran in the benchmarks before this one: it tells their seeds.
    pub(crate) threads_before: u32,
}

/// What the threads of one benchmark saw, all together.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Operations done.
    pub(crate) ops: u64,
    /// Of these, reads that found their key.
    pub(crate) found: u64,
    /// Bytes of keys and values written, or read and found.
    pub(crate) bytes: u64,
    /// From the first operation's start to the last one's end.
    pub(crate) elapsed: Duration,
    /// How long single operations took.
    pub(crate) latencies: Latencies,
}

/// Runs `benchmark`, telling `on_progress` (done, total) now and then. The meter was started with the clock.
pub(crate) fn run<E: Engine>(
    engine: &E,
    benchmark: Benchmark,
    load: Load,
    mut on_progress: impl FnMut(u64, u64),
) -> Result<(Outcome, Meter)> {
    let ops = benchmark.ops_per_thread(load.num);
    let total = u64::from(ops) * u64::from(load.threads);
    let done = AtomicU64::new(0);
    let running = AtomicUsize::new(load.threads as usize);
    let waiter = thread::current();

    let work = |index, start: &Barrier| {
        let mut values = Values::new(load.value_bytes);
        let mut random = Random::new(THREAD_SEED + load.threads_before + index + 1);
        start.wait();
        let mut laps = Laps::new(&done);
        let mut task = Task {
            load,
            ops,
            values: &mut values,
            random: &mut random,
        };
        let result = task.run(engine, benchmark, &mut laps);
        let finished = clock::now();
        running.fetch_sub(1, Ordering::AcqRel);
        waiter.unpark();
        result.map(|()| (laps, finished))
    };
    let watch = |start: &Barrier| {
        let meter = Meter::start();
        start.wait();
        let started = clock::now();
        while running.load(Ordering::Acquire) > 0 {
            thread::park_timeout(PROGRESS_INTERVAL);
            on_progress(done.load(Ordering::Relaxed), total);
        }
        meter.map(|meter| (meter, started))
    };
    let (each, watched) = together((E::NAME, "run a benchmark"), load.threads, work, watch)?;
    let (meter, started) = watched?;
    let mut outcome = Outcome {
        ops: 0,
        found: 0,
        bytes: 0,
        elapsed: Duration::ZERO,
        latencies: Latencies::new(),
    };
    for (laps, finished) in each {
        outcome.ops += laps.ops;
        outcome.found += laps.found;
        outcome.bytes += laps.bytes;
        outcome.elapsed = outcome
            .elapsed
            .max(finished.saturating_duration_since(started));
        outcome.latencies.add(&laps.latencies);
    }
    Ok((outcome, meter))
}

/// What one thread counts.
struct Laps<'a> {
    ops: u64,
    found: u64,
    bytes: u64,
    latencies: Latencies,
    last: Instant,
    done: &'a AtomicU64,
}

impl<'a> Laps<'a> {
    fn new(done: &'a AtomicU64) -> Self {
        Self {
            ops: 0,
            found: 0,
            bytes: 0,
            latencies: Latencies::new(),
            last: clock::now(),
            done,
        }
    }

    /// One operation ended.
    #[inline]
    fn finish(&mut self, bytes: usize) {
        let now = clock::now();
        self.latencies.record(now - self.last);
        self.last = now;
        self.count(bytes);
    }

    /// One step of a scan ended.
    #[inline]
    fn finish_step(&mut self, bytes: usize) {
        self.count(bytes);
        match self.ops % SCAN_SAMPLING {
            0 => self.last = clock::now(),
            1 if self.ops > 1 => self.latencies.record(clock::now() - self.last),
            _ => {}
        }
    }

    #[inline]
    fn count(&mut self, bytes: usize) {
        self.ops += 1;
        self.bytes += bytes as u64;
        if self.ops.is_multiple_of(PROGRESS_OPS) {
            self.done.fetch_add(PROGRESS_OPS, Ordering::Relaxed);
        }
    }
}

/// The work of one thread.
struct Task<'a> {
    load: Load,
    ops: u32,
    values: &'a mut Values,
    random: &'a mut Random,
}

impl Task<'_> {
    fn run<E: Engine>(&mut self, engine: &E, benchmark: Benchmark, laps: &mut Laps) -> Result<()> {
        match benchmark {
            Benchmark::FillSeq => self.write(laps, |task, i, laps| {
                let value = task.values.next(task.load.value_bytes);
                engine.put(Key::new(i).as_bytes(), value)?;
                laps.finish(KEY_BYTES + value.len());
                Ok(())
            }),
            Benchmark::FillRandom | Benchmark::Overwrite => self.write(laps, |task, _, laps| {
                let key = task.random_key();
                let value = task.values.next(task.load.value_bytes);
                engine.put(key.as_bytes(), value)?;
                laps.finish(KEY_BYTES + value.len());
                Ok(())
            }),
            Benchmark::FillSync => self.write(laps, |task, _, laps| {
                let key = task.random_key();
                let value = task.values.next(task.load.value_bytes);
                engine.put_sync(key.as_bytes(), value)?;
                laps.finish(KEY_BYTES + value.len());
                Ok(())
            }),
            Benchmark::DeleteSeq => self.write(laps, |_, i, laps| {
                engine.delete(Key::new(i).as_bytes())?;
                laps.finish(KEY_BYTES);
                Ok(())
            }),
            Benchmark::ReadRandom => self.read(engine, laps, |key| key.as_bytes()),
            Benchmark::ReadMissing => self.read(engine, laps, Key::missing),
            Benchmark::ReadSeq => self.scan::<E>(engine.cursor()?, laps, true),
            Benchmark::ReadReverse => self.scan::<E>(engine.cursor()?, laps, false),
            Benchmark::SeekRandom => self.seek(engine, laps),
            Benchmark::P2 | Benchmark::MassDelete | Benchmark::Churn => Err(Error::Refused(
                format!("{benchmark} is a scenario, and no loop over operations"),
            )),
        }
    }

    #[inline]
    fn random_key(&mut self) -> Key {
        Key::new(self.random.uniform(self.load.num))
    }

    #[inline]
    fn write(
        &mut self,
        laps: &mut Laps,
        mut one: impl FnMut(&mut Self, u32, &mut Laps) -> Result<()>,
    ) -> Result<()> {
        for i in 0..self.ops {
            one(self, i, laps)?;
        }
        Ok(())
    }

    fn read<E: Engine>(
        &mut self,
        engine: &E,
        laps: &mut Laps,
        bytes_of: impl Fn(&Key) -> &[u8],
    ) -> Result<()> {
        let mut value = Vec::new();
        for _ in 0..self.ops {
            let key = self.random_key();
            let key = bytes_of(&key);
            let is_found = engine.get(key, &mut value)?;
            let mut bytes = 0;
            if is_found {
                self.check_value::<E>(&value)?;
                laps.found += 1;
                bytes = key.len() + value.len();
            }
            laps.finish(bytes);
        }
        Ok(())
    }

    fn scan<E: Engine>(
        &mut self,
        mut cursor: impl Cursor,
        laps: &mut Laps,
        is_forward: bool,
    ) -> Result<()> {
        let mut is_valid = if is_forward {
            cursor.seek_to_first()?
        } else {
            cursor.seek_to_last()?
        };
        for _ in 0..self.ops {
            if !is_valid {
                break;
            }
            self.check_value::<E>(cursor.value())?;
            let bytes = cursor.key().len() + cursor.value().len();
            laps.found += 1;
            laps.finish_step(bytes);
            is_valid = if is_forward {
                cursor.next()?
            } else {
                cursor.prev()?
            };
        }
        Ok(())
    }

    fn seek<E: Engine>(&mut self, engine: &E, laps: &mut Laps) -> Result<()> {
        for _ in 0..self.ops {
            let key = self.random_key();
            let mut cursor = engine.cursor()?;
            let is_found = cursor.seek(key.as_bytes())? && cursor.key() == key.as_bytes();
            let mut bytes = 0;
            if is_found {
                laps.found += 1;
                bytes = KEY_BYTES + cursor.value().len();
            }
            drop(cursor);
            laps.finish(bytes);
        }
        Ok(())
    }

    /// A figure for wrong answers is worth nothing.
    #[inline]
    fn check_value<E: Engine>(&self, value: &[u8]) -> Result<()> {
        if value.len() == self.load.value_bytes {
            return Ok(());
        }
        let message = format!(
            "a value of {} bytes came back where all have {}",
            value.len(),
            self.load.value_bytes
        );
        Err(Error::engine(E::NAME, "read", message))
    }
}
