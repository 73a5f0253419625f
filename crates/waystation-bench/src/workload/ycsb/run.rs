//! Runs a phase on an open engine: the threads, their loops, and what they saw.
//!
//! The load is closed, and the operations are shared out to the threads. Every record that is asked for has been
//! acknowledged: one that is not there ends the run.

use super::distribution::{Chooser, Uniform};
use super::record::{self, RECORD_BYTES, Text};
use super::{Operation, OperationFigures, YcsbFigures, YcsbLoad, YcsbPhase, YcsbWorkload};
use crate::clock;
use crate::engines::{Cursor, Engine};
use crate::error::{Error, Result};
use crate::measure::{Latencies, Meter};
use crate::protocol::Figures;
use crate::workload::Outcome;
use crate::workload::crew::together;
use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

/// A scan reads at most this many records.
const MAX_SCAN: u64 = 100;
const SEED: u64 = 1000;
/// One in so many records outlives the deletions before scans of graves.
const LEFT: u32 = 10;
/// And so many of these are scanned at once.
const SCAN_OF_LEFT: u32 = 20;

/// What the threads did, all together.
#[derive(Debug)]
pub(crate) struct Done {
    /// All operations.
    pub(crate) outcome: Outcome,
    /// Bytes of keys and values that were put.
    pub(crate) put_bytes: u64,
    scanned: u64,
    by_operation: Vec<Latencies>,
    /// Operations that ended in each second.
    by_second: Vec<u64>,
}

impl Done {
    fn new() -> Self {
        Self {
            outcome: Outcome {
                ops: 0,
                found: 0,
                bytes: 0,
                elapsed: Duration::ZERO,
                latencies: Latencies::new(),
            },
            put_bytes: 0,
            scanned: 0,
            by_operation: Operation::ALL.map(|_| Latencies::new()).to_vec(),
            by_second: Vec::new(),
        }
    }

    fn add(&mut self, other: &Self) {
        let (sum, more) = (&mut self.outcome, &other.outcome);
        sum.ops += more.ops;
        sum.found += more.found;
        sum.bytes += more.bytes;
        sum.elapsed = sum.elapsed.max(more.elapsed);
        sum.latencies.add(&more.latencies);
        self.put_bytes += other.put_bytes;
        self.scanned += other.scanned;
        for (sum, more) in self.by_operation.iter_mut().zip(&other.by_operation) {
            sum.add(more);
        }
        let seconds = self.by_second.len().max(other.by_second.len());
        self.by_second.resize(seconds, 0);
        for (sum, more) in self.by_second.iter_mut().zip(&other.by_second) {
            *sum += more;
        }
    }

    /// Notes an operation that took `latency` and ended when the thread had worked for `elapsed`.
    fn note(&mut self, operation: Operation, latency: Duration, elapsed: Duration) {
        self.outcome.latencies.record(latency);
        self.by_operation[operation as usize].record(latency);
        let second = usize::try_from(elapsed.as_secs()).unwrap_or(usize::MAX);
        if self.by_second.len() <= second {
            self.by_second.resize(second + 1, 0);
        }
        self.by_second[second] += 1;
    }

    /// The figures of the report, given those that every benchmark has.
    pub(crate) fn figures(&self, common: Figures) -> YcsbFigures {
        let figures = |(operation, latencies): (Operation, &Latencies)| OperationFigures {
            operation,
            ops: latencies.count_from(Duration::ZERO),
            p50_us: latencies.quantile_us(0.5),
            p99_us: latencies.quantile_us(0.99),
            p999_us: latencies.quantile_us(0.999),
            max_us: latencies.max_us(),
        };
        let all = Operation::ALL.into_iter().zip(&self.by_operation);
        YcsbFigures {
            common,
            scanned: self.scanned,
            adapted_s: adapted_s(&self.by_second),
            operations: all.map(figures).filter(|figures| figures.ops > 0).collect(),
        }
    }
}

/// Phases shorter than this have no beginning and end to compare (seconds).
const ADAPTS_WITHIN_MIN: usize = 20;
/// The rate is that of so many seconds together.
const RATE_SECONDS: usize = 3;

/// See [`YcsbFigures::adapted_s`]. The last second is mostly a part of one, and does not count.
fn adapted_s(by_second: &[u64]) -> Option<f64> {
    let (_, whole) = by_second.split_last()?;
    if whole.len() < ADAPTS_WITHIN_MIN {
        return None;
    }
    let rate = |seconds: &[u64]| seconds.iter().sum::<u64>() as f64 / seconds.len() as f64;
    let goal = 0.9 * rate(&whole[whole.len() * 3 / 4..]);
    let second = whole
        .windows(RATE_SECONDS)
        .position(|it| rate(it) >= goal)?;
    Some(second as f64)
}

/// Numbers of new records, and up to which all are acknowledged.
#[derive(Debug)]
struct Inserts {
    next: AtomicU64,
    /// The records below it are there.
    acknowledged: AtomicU64,
    /// Those above it that are there.
    early: Mutex<BTreeSet<u64>>,
}

impl Inserts {
    fn new(records: u64) -> Self {
        Self {
            next: AtomicU64::new(records),
            acknowledged: AtomicU64::new(records),
            early: Mutex::new(BTreeSet::new()),
        }
    }

    fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn acknowledge(&self, number: u64) {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        early.insert(number);
        let mut acknowledged = self.acknowledged.load(Ordering::Relaxed);
        while early.remove(&acknowledged) {
            acknowledged += 1;
        }
        self.acknowledged.store(acknowledged, Ordering::Release);
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }
}

/// Runs a phase. The meter was started with the clock.
pub(crate) fn run_ycsb<E: Engine>(
    engine: &E,
    phase: YcsbPhase,
    load: YcsbLoad,
) -> Result<(Done, Meter)> {
    let text = Text::new();
    let inserts = Inserts::new(u64::from(load.records));
    let work = |thread, start: &Barrier| {
        let client = Client {
            engine,
            load,
            thread,
            text: &text,
            inserts: &inserts,
            random: Uniform::new(SEED + u64::from(thread)),
            done: Done::new(),
            key: Vec::new(),
            value: Vec::new(),
        };
        client.run(phase, start)
    };
    let watch = |start: &Barrier| {
        let meter = Meter::start();
        start.wait();
        meter
    };
    let (each, meter) = together((E::NAME, "run YCSB"), load.threads, work, watch)?;
    let mut done = Done::new();
    for more in &each {
        done.add(more);
    }
    Ok((done, meter?))
}

/// One client thread.
struct Client<'a, E> {
    engine: &'a E,
    load: YcsbLoad,
    thread: u32,
    text: &'a Text,
    inserts: &'a Inserts,
    random: Uniform,
    done: Done,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<E: Engine> Client<'_, E> {
    fn run(mut self, phase: YcsbPhase, start: &Barrier) -> Result<Done> {
        let load = self.load;
        let total = match phase {
            YcsbPhase::Load | YcsbPhase::Delete => load.records,
            YcsbPhase::Run(_) | YcsbPhase::Graves => load.operations,
        };
        let share = total / load.threads + u32::from(self.thread < total % load.threads);
        let mut chooser = match phase {
            YcsbPhase::Run(YcsbWorkload::D) => Chooser::latest(u64::from(load.records)),
            YcsbPhase::Run(workload) => {
                let (_, percent, other) = workload.mix();
                let inserts = (100 - percent) * u32::from(other == Operation::Insert);
                let inserts = u64::from(load.operations) * u64::from(inserts) / 100;
                Chooser::zipfian(u64::from(load.records), inserts)
            }
            YcsbPhase::Load | YcsbPhase::Delete | YcsbPhase::Graves => Chooser::zipfian(1, 0),
        };
        let engine = self.engine;
        let _pinned = match phase {
            YcsbPhase::Graves => {
                let cursor = engine.cursor()?;
                self.delete_most()?;
                Some(cursor)
            }
            _ => None,
        };
        start.wait();
        let started = clock::now();
        let mut last = started;
        for index in 0..share {
            let operation = match phase {
                YcsbPhase::Load => {
                    self.put_new(u64::from(self.thread + index * load.threads))?;
                    Operation::Insert
                }
                YcsbPhase::Delete => {
                    let number = u64::from(self.thread + index * load.threads);
                    record::push_key(number, &mut self.key);
                    self.engine.delete(&self.key)?;
                    Operation::Delete
                }
                YcsbPhase::Graves => {
                    self.scan_left()?;
                    Operation::Scan
                }
                YcsbPhase::Run(workload) => self.operate(workload, &mut chooser)?,
            };
            let now = clock::now();
            self.done.note(operation, now - last, now - started);
            last = now;
        }
        self.done.outcome.ops = u64::from(share);
        self.done.outcome.elapsed = last - started;
        Ok(self.done)
    }

    fn operate(&mut self, workload: YcsbWorkload, chooser: &mut Chooser) -> Result<Operation> {
        let (usual, percent, other) = workload.mix();
        let operation = if self.random.below(100) < u64::from(percent) {
            usual
        } else {
            other
        };
        if operation == Operation::Insert {
            let number = self.inserts.next();
            self.put_new(number)?;
            self.inserts.acknowledge(number);
            return Ok(operation);
        }
        let number = chooser.choose(self.inserts.acknowledged(), &mut self.random);
        record::push_key(number, &mut self.key);
        match operation {
            Operation::Scan => self.scan()?,
            Operation::Update => self.update()?,
            Operation::ReadModifyWrite => {
                self.read()?;
                self.update()?;
            }
            Operation::Read | Operation::Insert | Operation::Delete => self.read()?,
        }
        Ok(operation)
    }

    /// Deletes this thread's part of the records that do not outlive the deletions.
    fn delete_most(&mut self) -> Result<()> {
        let load = self.load;
        let all = (self.thread..load.records).step_by(load.threads as usize);
        for number in all.filter(|number| number % LEFT != 0) {
            record::push_key(u64::from(number), &mut self.key);
            self.engine.delete(&self.key)?;
        }
        Ok(())
    }

    /// Scans some records that are left, from any key on.
    fn scan_left(&mut self) -> Result<()> {
        let number = self.random.below(u64::from(self.load.records));
        record::push_key(number, &mut self.key);
        let mut cursor = self.engine.cursor()?;
        let mut is_valid = cursor.seek(&self.key)?;
        for _ in 0..SCAN_OF_LEFT {
            if !is_valid {
                break;
            }
            let (key, value) = (black_box(cursor.key()), black_box(cursor.value()));
            self.done.outcome.bytes += (key.len() + value.len()) as u64;
            self.done.scanned += 1;
            is_valid = cursor.next()?;
        }
        self.done.outcome.found += 1;
        Ok(())
    }

    fn put_new(&mut self, number: u64) -> Result<()> {
        record::push_key(number, &mut self.key);
        let value = self.text.record(&mut self.random);
        self.engine.put(&self.key, value)?;
        self.count_put();
        Ok(())
    }

    fn count_put(&mut self) {
        let bytes = (self.key.len() + RECORD_BYTES) as u64;
        self.done.put_bytes += bytes;
        self.done.outcome.bytes += bytes;
    }

    /// Reads the record of `key`.
    fn read(&mut self) -> Result<()> {
        let is_there = self.engine.get(&self.key, &mut self.value)?;
        if !is_there || self.value.len() != RECORD_BYTES {
            let message = format!("{} is lost", self.key.escape_ascii());
            return Err(Error::engine(E::NAME, "read a record", message));
        }
        self.done.outcome.found += 1;
        self.done.outcome.bytes += (self.key.len() + RECORD_BYTES) as u64;
        Ok(())
    }

    fn update(&mut self) -> Result<()> {
        self.read()?;
        self.text.update(&mut self.value, &mut self.random);
        self.engine.put(&self.key, &self.value)?;
        self.count_put();
        Ok(())
    }

    fn scan(&mut self) -> Result<()> {
        let most = 1 + self.random.below(MAX_SCAN);
        let mut cursor = self.engine.cursor()?;
        let mut is_valid = cursor.seek(&self.key)?;
        if !is_valid || cursor.key() != self.key {
            let message = format!("{} is lost", self.key.escape_ascii());
            return Err(Error::engine(E::NAME, "scan records", message));
        }
        let mut count = 0;
        while is_valid {
            let (key, value) = (black_box(cursor.key()), black_box(cursor.value()));
            self.done.outcome.bytes += (key.len() + value.len()) as u64;
            count += 1;
            if count == most {
                break;
            }
            is_valid = cursor.next()?;
        }
        self.done.scanned += count;
        self.done.outcome.found += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_as_there_when_all_before_them_are() {
        let inserts = Inserts::new(10);
        let numbers: Vec<u64> = (0..4).map(|_| inserts.next()).collect();
        assert_eq!(numbers, [10, 11, 12, 13]);
        for (number, acknowledged) in [(11, 10), (13, 10), (10, 12), (12, 14)] {
            inserts.acknowledge(number);
            assert_eq!(inserts.acknowledged(), acknowledged);
        }
    }

    #[test]
    fn a_phase_has_adapted_when_its_rate_is_almost_that_of_the_end() {
        let phase = |slow: usize, fast: usize| {
            let mut seconds = vec![50; slow];
            seconds.extend(vec![100; fast]);
            seconds.push(3);
            seconds
        };
        assert_eq!(adapted_s(&phase(0, 30)), Some(0.0));
        assert_eq!(adapted_s(&phase(12, 30)), Some(12.0));
        assert_eq!(adapted_s(&phase(1, 15)), None);
        assert_eq!(adapted_s(&[]), None);
    }

    #[test]
    fn latencies_are_kept_in_the_order_of_the_operations() {
        for (place, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, place);
        }
    }
}
