//! The audit: whether every reading is where it must be, and nowhere else.
//!
//! It knows the trace and what a reading is as a function of vehicle and time, and nothing of those who write: it
//! derives from the trace by itself where every vehicle is ([`expected`]), and asks the engines what they hold. Sums
//! of hashes are compared first (they do not depend on an order); where they differ, reading by reading.
//!
//! - when a vehicle leaves a cell: all it has sent in this stay must be there ([`Audit::leaving`]),
//! - after that: nothing of it ([`Audit::left`]),
//! - after all engines were closed and opened again: each cell holds what the vehicles in it have sent, whole, and
//!   nothing else ([`Audit::cell`]).
//!
//! A reading that is missing, or whose value is another, is *lost*. One that is there twice, or that its vehicle has
//! not sent in this stay, is *doubled*. One of a vehicle that is not in the cell is *left behind*.

mod expected;

use super::edge::{Edge, Result};
use super::reading::{DELIMITER, Plan, mix, range_of, vehicle_of};
use super::trace::Trace;
use expected::Expected;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use waystation_format::checksum;

/// How many readings there are, and the sum of their hashes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    hash: u64,
}

impl Sum {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.count += 1;
        self.hash = self.hash.wrapping_add(hash(key, value));
    }
}

fn hash(key: &[u8], value: &[u8]) -> u64 {
    mix(u64::from(checksum::crc32c(key)) << 32 | u64::from(checksum::crc32c(value)))
}

/// What the audit has found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    /// Readings that should be, and were looked for.
    pub(crate) readings: u64,
    /// Of them, those that were not found as they were sent.
    pub(crate) lost: u64,
    /// Found more than once, or never sent.
    pub(crate) doubled: u64,
    /// Found in a cell that their vehicle has left.
    pub(crate) left_behind: u64,
    /// Queries with another answer than the trace's.
    pub(crate) wrong_answers: u64,
}

impl Verdict {
    /// Whether all is as it should be.
    pub(crate) fn is_clean(&self) -> bool {
        self.lost == 0 && self.doubled == 0 && self.left_behind == 0 && self.wrong_answers == 0
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "audit: {} readings, {} lost, {} doubled, {} left behind",
            self.readings, self.lost, self.doubled, self.left_behind
        )
    }
}

/// What was found, each reading once.
#[derive(Debug, Default)]
struct Findings {
    /// Readings whose last check is done.
    checked: u64,
    lost: HashSet<Vec<u8>>,
    doubled: HashSet<Vec<u8>>,
    left_behind: HashSet<Vec<u8>>,
    wrong_answers: u64,
}

/// What a query has to answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// How many readings.
    pub(crate) count: u64,
    /// The last one's time (milliseconds).
    pub(crate) last_ms: Option<u64>,
}

/// The audit of one run.
pub(crate) struct Audit {
    plan: Plan,
    expected: Expected,
    findings: Mutex<Findings>,
}

impl Audit {
    /// One that goes by `trace` alone.
    pub(crate) fn new(trace: &Trace, plan: Plan) -> Self {
        Self {
            plan,
            expected: Expected::new(trace, plan),
            findings: Mutex::new(Findings::default()),
        }
    }

    /// `vehicle` and what it has sent are about to leave `cell`, whose engine is `edge`, at second `at`, for another cell
    /// or (`departs`) for good: everything must be there still.
    pub(crate) fn leaving<E: Edge>(
        &self,
        edge: &E,
        cell: usize,
        vehicle: u32,
        at: u32,
        departs: bool,
    ) -> Result<()> {
        match self.expected.leaving(vehicle, cell, at, departs) {
            Some(visit) => {
                self.compare(edge, vehicle, at, visit.sum)?;
                if departs {
                    self.findings().checked += visit.sum.count;
                }
                Ok(())
            }
            // By the trace it is not here.
            None => self.left(edge, vehicle),
        }
    }

    /// `vehicle` has left the cell: nothing of it may be there.
    pub(crate) fn left<E: Edge>(&self, edge: &E, vehicle: u32) -> Result<()> {
        let (from, to) = range_of(vehicle);
        let mut behind = Vec::new();
        edge.scan(&from, &to, &mut |key, _| behind.push(key.to_vec()))?;
        self.findings().left_behind.extend(behind);
        Ok(())
    }

    /// The cell as a whole, at the beginning of second `now`. With `is_final`, nobody looks after this.
    pub(crate) fn cell<E: Edge>(
        &self,
        edge: &E,
        cell: usize,
        now: u32,
        is_final: bool,
    ) -> Result<()> {
        let mut sums: HashMap<u32, Sum> = HashMap::new();
        let mut foreign = Vec::new();
        edge.scan(b"", &[0xff; 16], &mut |key, value| {
            let name = key.split(|byte| *byte == DELIMITER).next();
            match name.and_then(vehicle_of) {
                Some(vehicle) => sums.entry(vehicle).or_default().add(key, value),
                None => foreign.push(key.to_vec()),
            }
        })?;
        self.findings().doubled.extend(foreign);
        for (vehicle, visit) in self.expected.residents(cell, now) {
            let sum = self.expected.sum_at(visit, vehicle, now);
            let found = sums.remove(&vehicle).unwrap_or_default();
            if found != sum {
                self.compare(edge, vehicle, now, sum)?;
            }
            if is_final {
                self.findings().checked += sum.count;
            }
        }
        for vehicle in sums.into_keys() {
            self.left(edge, vehicle)?;
        }
        Ok(())
    }

    /// What is to be answered when somebody asks, at the end of second `now`, for the readings of `vehicle` from
    /// `sensor` between two times.
    pub(crate) fn answer(
        &self,
        vehicle: u32,
        sensor: u32,
        now: u32,
        span_ms: (u64, u64),
    ) -> Answer {
        let mut answer = Answer::default();
        let seconds = (
            span_ms.0 / 1_000,
            span_ms.1.div_ceil(1_000).min(u64::from(now) + 1),
        );
        for (from, until) in self.expected.spans(vehicle, now + 1) {
            let from = from.max(seconds.0 as u32);
            let until = until.min(seconds.1 as u32);
            for reading in self.plan.readings(vehicle, from, until.max(from)) {
                if reading.sensor == sensor && (span_ms.0..span_ms.1).contains(&reading.at_ms) {
                    answer.count += 1;
                    answer.last_ms = Some(reading.at_ms);
                }
            }
        }
        answer
    }

    /// Somebody was answered otherwise.
    pub(crate) fn wrong_answer(&self) {
        self.findings().wrong_answers += 1;
    }

    /// What was found until the beginning of second `now`, the last. A reading that nobody looked for is lost.
    pub(crate) fn verdict(&self, now: u32) -> Verdict {
        let findings = self.findings();
        let readings = self.expected.total(now);
        Verdict {
            readings,
            lost: findings.lost.len() as u64 + readings.abs_diff(findings.checked),
            doubled: findings.doubled.len() as u64,
            left_behind: findings.left_behind.len() as u64,
            wrong_answers: findings.wrong_answers,
        }
    }

    fn findings(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds what `edge` has of `vehicle` at the beginning of second `now` against `sum`, and tells what differs.
    fn compare<E: Edge>(&self, edge: &E, vehicle: u32, now: u32, sum: Sum) -> Result<()> {
        let (from, to) = range_of(vehicle);
        let mut found = Sum::default();
        edge.scan(&from, &to, &mut |key, value| found.add(key, value))?;
        if found == sum {
            return Ok(());
        }
        let mut missing: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        for (from, until) in self.expected.spans(vehicle, now) {
            for reading in self.plan.readings(vehicle, from, until) {
                let (mut key, mut value) = (Vec::new(), Vec::new());
                reading.key(&mut key);
                reading.value(self.plan.value_bytes, &mut value);
                missing.insert(key, value);
            }
        }
        let (mut lost, mut doubled) = (Vec::new(), Vec::new());
        edge.scan(&from, &to, &mut |key, value| match missing.remove(key) {
            Some(expected) if expected == value => {}
            Some(_) => lost.push(key.to_vec()),
            None => doubled.push(key.to_vec()),
        })?;
        let mut findings = self.findings();
        findings.lost.extend(lost);
        findings.lost.extend(missing.into_keys());
        findings.doubled.extend(doubled);
        Ok(())
    }
}
