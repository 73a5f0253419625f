//! The candidates of one capacity, simulated.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use waystation_planner::{Curve, Point, hottest, split};

use super::commands::file_system_bytes;
use super::heat::BlockCosts;
use super::{Candidate, ERROR_BAND, How, Realisable, Share};
use crate::engine::{SOURCE, has_copies};
use crate::event::{BLOCK_BYTES, Op, Role};
use crate::native::Trace;
use crate::simulate::{
    CacheMode, Chain, Machine, Outcome, Placement, Residence, simulate, simulate_cache,
    simulate_copies,
};
use crate::units::{format_bytes, seconds};

/// Parts of the capacity that a share of a split may take.
const PARTS: u64 = 8;
/// Splits that are simulated.
const SPLITS_CHECKED: usize = 3;
/// ext4 refuses a journal device of 4 MiB and takes one of 6.
const JOURNAL_BYTES_MIN: u64 = 6 << 20;
/// jbd2 gives one transaction at most a quarter of the log.
const JOURNAL_TRANSACTIONS: u64 = 4;

/// A trace with everything that its candidates share.
pub(super) struct Workbench<'a> {
    trace: &'a Trace,
    pub(super) machine: &'a Machine,
    chain: Chain,
    costs: BlockCosts,
    /// Bytes of distinct blocks, by area.
    unique: Vec<u64>,
    /// The smallest journal that holds the trace's transactions, by area.
    journal_bytes: Vec<Option<u64>>,
    pub(super) slow_s: f64,
    pub(super) fast_s: f64,
    simulated: RefCell<HashMap<(usize, How, u64), Outcome>>,
}

impl<'a> Workbench<'a> {
    pub(super) fn new(trace: &'a Trace, machine: &'a Machine) -> Self {
        let areas = trace.info.areas.len();
        let chain = Chain::of(&trace.requests);
        let run = |placement: &Placement, keep| {
            simulate(
                &trace.info,
                &trace.requests,
                &chain,
                placement,
                machine,
                keep,
            )
        };
        let slow = run(&Placement::slow(areas), true);
        let fast = run(&Placement::fast(areas), false);
        let costs = BlockCosts::of(areas, &trace.requests, |request| {
            let (issued, completed) = slow.times_ns[request];
            completed.saturating_sub(issued)
        });
        let unique = costs
            .areas
            .iter()
            .map(|blocks| blocks.len() as u64 * BLOCK_BYTES)
            .collect();
        Self {
            journal_bytes: (0..areas).map(|area| journal_bytes(trace, area)).collect(),
            trace,
            machine,
            costs,
            unique,
            slow_s: seconds(slow.run_ns),
            fast_s: seconds(fast.run_ns),
            simulated: RefCell::new(HashMap::new()),
            chain,
        }
    }

    fn residence(&self, area: usize, how: How, bytes: u64) -> Residence {
        match how {
            How::Whole | How::JournalSized => Residence::Fast,
            How::FirstTouch | How::SwapSized => Residence::FirstTouch(bytes),
            _ => {
                let count = (bytes / BLOCK_BYTES) as usize;
                let blocks: HashSet<u64> = hottest(self.costs.heat(area, 0), count)
                    .into_iter()
                    .map(|heat| heat.block)
                    .collect();
                Residence::Blocks(blocks)
            }
        }
    }

    fn run(&self, placement: &Placement) -> Outcome {
        simulate(
            &self.trace.info,
            &self.trace.requests,
            &self.chain,
            placement,
            self.machine,
            false,
        )
    }

    fn one(&self, area: usize, how: How, bytes: u64) -> Outcome {
        let key = (area, how, bytes);
        if let Some(known) = self.simulated.borrow().get(&key) {
            return known.clone();
        }
        let placement = Placement::one(
            self.trace.info.areas.len(),
            area,
            self.residence(area, how, bytes),
        );
        let outcome = self.run(&placement);
        self.simulated.borrow_mut().insert(key, outcome.clone());
        outcome
    }

    /// Areas that carry data.
    fn used(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.trace.info.areas.len()).filter(|area| self.unique[*area] > 0)
    }

    /// The ways to give one area at most `bytes`: how, and what it takes.
    fn ways(&self, area: usize, bytes: u64) -> Vec<(How, u64)> {
        let unique = self.unique[area];
        let role = self.trace.info.areas[area].role;
        let mut ways = Vec::new();
        if let Some(journal) = self.journal_bytes[area] {
            if bytes >= journal {
                ways.push((How::JournalSized, journal));
            }
            return ways;
        }
        let whole = file_system_bytes(unique);
        match role {
            Role::Swap => ways.push((How::SwapSized, bytes.min(unique))),
            _ if bytes >= whole => ways.push((How::Whole, whole)),
            _ => ways.push((How::FirstTouch, bytes.min(unique))),
        }
        if bytes < unique {
            ways.push((How::HotSet, bytes));
        }
        ways
    }

    /// Whether the trace is of the storage engine: its areas are files of one directory, which no tool of Linux tells apart.
    fn is_of_engine(&self) -> bool {
        self.trace.info.source == SOURCE
    }

    /// The engine's own choice with `capacity` bytes, where the trace is of the engine.
    fn of_engine(&self, capacity: u64) -> Option<Candidate> {
        if !self.is_of_engine() {
            return None;
        }
        let info = &self.trace.info;
        let may_have = |area: u8| info.areas.get(usize::from(area)).is_some_and(has_copies);
        let copies = simulate_copies(
            info,
            &self.trace.requests,
            &self.chain,
            (capacity, may_have),
            self.machine,
        );
        let share = Share {
            area: "tables and spill".to_owned(),
            role: None,
            how: How::EngineCopies,
            bytes: capacity,
        };
        Some(self.candidate(vec![share], &copies.outcome))
    }

    fn share(&self, area: usize, how: How, bytes: u64) -> Share {
        let info = &self.trace.info.areas[area];
        Share {
            area: info.name.clone(),
            role: Some(info.role),
            how,
            bytes,
        }
    }

    fn candidate(&self, shares: Vec<Share>, outcome: &Outcome) -> Candidate {
        let bytes = shares.iter().map(|share| share.bytes).sum();
        let run_s = seconds(outcome.run_ns);
        let here = shares
            .iter()
            .all(|share| matches!(share.how, How::Whole | How::JournalSized | How::SwapSized));
        Candidate {
            name: name(&shares),
            bytes,
            seconds: run_s,
            band_s: (run_s / (1.0 + ERROR_BAND), run_s / (1.0 - ERROR_BAND)),
            saved_s_per_mb: (self.slow_s - run_s) / (bytes as f64 / 1e6).max(1e-9),
            wear_mb_per_hour: outcome.fast_written as f64 / 1e6 / run_s.max(1e-9) * 3600.0,
            realisable: match &shares[..] {
                [only] if only.how == How::EngineCopies => Realisable::Engine,
                _ if here && !self.is_of_engine() => Realisable::Here,
                _ => Realisable::DeviceMapper,
            },
            shares,
        }
    }

    /// Every candidate of `capacity` bytes.
    pub(super) fn candidates(&self, capacity: u64) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for area in self.used() {
            for (how, bytes) in self.ways(area, capacity) {
                candidates.push(self.candidate(
                    vec![self.share(area, how, bytes)],
                    &self.one(area, how, bytes),
                ));
            }
        }
        for (how, mode) in [
            (How::CacheWriteBack, CacheMode::WriteBack),
            (How::CacheWriteThrough, CacheMode::WriteThrough),
        ] {
            let cached = simulate_cache(
                &self.trace.info,
                &self.trace.requests,
                &self.chain,
                capacity,
                mode,
                self.machine,
            );
            let share = Share {
                area: "all areas".to_owned(),
                role: None,
                how,
                bytes: capacity,
            };
            candidates.push(self.candidate(vec![share], &cached.outcome));
        }
        candidates.extend(self.of_engine(capacity));
        candidates.extend(self.splits(capacity, false));
        candidates.extend(self.splits(capacity, true));
        // Both kinds of split may end in the same answer.
        let mut seen = HashSet::new();
        candidates.retain(|candidate| seen.insert(candidate.name.clone()));
        candidates
    }

    /// The best divisions over at least two areas; `here` leaves out what Linux's own tools cannot do.
    fn splits(&self, capacity: u64, here: bool) -> Vec<Candidate> {
        let areas: Vec<usize> = self.used().collect();
        let worth = self.slow_s * super::SHARE_WORTH;
        let mut choices: Vec<Vec<(How, u64)>> = Vec::new();
        let mut curves = Vec::new();
        // What is left beside a journal is a size of its own.
        let journals: u64 = areas
            .iter()
            .filter_map(|area| self.journal_bytes[*area])
            .sum();
        for area in &areas {
            let mut ways: Vec<(How, u64)> = Vec::new();
            let sizes = (1..=PARTS)
                .map(|part| capacity * part / PARTS)
                .chain(capacity.checked_sub(journals));
            for bytes in sizes
                .map(|bytes| bytes / BLOCK_BYTES * BLOCK_BYTES)
                .filter(|bytes| *bytes > 0)
            {
                for way in self.ways(*area, bytes) {
                    let possible =
                        !here || matches!(way.0, How::Whole | How::JournalSized | How::SwapSized);
                    if possible && !ways.contains(&way) {
                        ways.push(way);
                    }
                }
            }
            let points = ways
                .iter()
                .map(|(how, bytes)| Point {
                    bytes: *bytes,
                    gain: self.slow_s - seconds(self.one(*area, *how, *bytes).run_ns) - worth,
                })
                .collect();
            curves.push(Curve { points });
            choices.push(ways);
        }
        split(&curves, capacity)
            .into_iter()
            .filter(|split| split.chosen.iter().flatten().count() > 1)
            .take(SPLITS_CHECKED)
            .map(|split| {
                let mut placement = Placement::slow(self.trace.info.areas.len());
                let mut shares = Vec::new();
                for (at, chosen) in split.chosen.iter().enumerate() {
                    if let Some(index) = chosen {
                        let (how, bytes) = choices[at][*index];
                        placement.areas[areas[at]] = self.residence(areas[at], how, bytes);
                        shares.push(self.share(areas[at], how, bytes));
                    }
                }
                self.candidate(shares, &self.run(&placement))
            })
            .collect()
    }

    /// Why a candidate is good, from what its areas cost today.
    pub(super) fn reason(&self, candidate: &Candidate) -> String {
        let total: u64 = (0..self.costs.areas.len())
            .map(|area| self.waited_ns(area).0 + self.waited_ns(area).1)
            .sum();
        let mut parts = Vec::new();
        for share in &candidate.shares {
            let Some(area) = self
                .trace
                .info
                .areas
                .iter()
                .position(|area| area.name == share.area)
            else {
                parts.push("it holds what several areas read again or write".to_owned());
                continue;
            };
            let (access_ns, flush_ns) = self.waited_ns(area);
            let of_all = (access_ns + flush_ns) as f64 / total.max(1) as f64 * 100.0;
            let mostly = if flush_ns > access_ns {
                "mostly in flushes"
            } else {
                "mostly in reads and writes"
            };
            let blocks = self.costs.areas[area].len().max(1);
            let single = self.costs.areas[area]
                .values()
                .filter(|cost| cost.reads + cost.writes == 1)
                .count();
            parts.push(format!(
                "{} is where {of_all:.0} % of the waiting is ({mostly}) and {:.0} % of its blocks are touched only once",
                share.area,
                single as f64 / blocks as f64 * 100.0
            ));
        }
        parts.join(", and ")
    }

    /// Time charged to an area's blocks: by access, by flush.
    fn waited_ns(&self, area: usize) -> (u64, u64) {
        let sum =
            |of: fn(&super::heat::BlockCost) -> u64| self.costs.areas[area].values().map(of).sum();
        (sum(|cost| cost.waited_ns), sum(|cost| cost.flushed_ns))
    }
}

/// The smallest journal that never holds up a transaction of this trace; nothing for other areas, or without flushes.
fn journal_bytes(trace: &Trace, area: usize) -> Option<u64> {
    if trace.info.areas[area].role != Role::Journal || trace.info.flushes == 0 {
        return None;
    }
    let (mut largest, mut since_flush) = (0, 0);
    for request in trace
        .requests
        .iter()
        .filter(|request| usize::from(request.area) == area)
    {
        match request.op {
            Op::Write => since_flush += u64::from(request.length),
            Op::Flush => since_flush = 0,
            _ => {}
        }
        largest = largest.max(since_flush);
    }
    let bytes = (largest * JOURNAL_TRANSACTIONS).max(JOURNAL_BYTES_MIN);
    Some(bytes.next_multiple_of(1 << 20))
}

fn name(shares: &[Share]) -> String {
    let alone = shares.len() == 1;
    let parts: Vec<String> = shares
        .iter()
        .map(|share| {
            let what = match share.how {
                How::Whole => format!("the whole of {}", share.area),
                How::FirstTouch => format!("the blocks of {} touched first", share.area),
                How::HotSet => format!("the hottest blocks of {}", share.area),
                How::JournalSized => format!("{} sized to fit", share.area),
                How::SwapSized => format!("{} on a device of higher priority", share.area),
                How::CacheWriteBack => "an LRU write-back cache".to_owned(),
                How::CacheWriteThrough => "an LRU write-through cache".to_owned(),
                How::EngineCopies => "the engine's fast directory".to_owned(),
            };
            if alone {
                what
            } else {
                format!("{what} ({})", format_bytes(share.bytes))
            }
        })
        .collect();
    parts.join(" and ")
}
