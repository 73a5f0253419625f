//! What a trace holds, in one pass and in bounded memory.
//!
//! Every figure has its own small accumulator; [`Characteriser`] feeds them all. What needs a table of blocks uses
//! one of fixed size ([`blocks`]) that begins exact and becomes a uniform sample of the block numbers when the
//! footprint outgrows it; the report says which it was.

mod blocks;
mod chunks;
#[cfg(test)]
mod exact_tests;
mod heat_map;
mod histogram;
pub mod html;
mod positions;
mod reuse;
#[cfg(test)]
mod tests;
pub mod text;

use serde::Serialize;

use crate::event::{Flags, Op, Request, TraceInfo};
use blocks::BlockTable;
use chunks::parts;
use heat_map::HeatMap;
pub use heat_map::HeatRow;
use histogram::Histogram;
use reuse::ReuseSampler;

/// Columns of every picture over time.
pub const TIME_COLUMNS: usize = 96;
/// With more areas than this, less is kept of each.
const MANY_AREAS: usize = 16;

/// Requests, bytes and time of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
    /// Sum of latencies, in nanoseconds.
    pub latency_ns: u64,
    /// Requests that somebody waited for, by the kernel's mark (reads always).
    pub waited_for: u64,
}

/// Latency quantiles, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// Half are faster.
    pub p50: u64,
    /// 99 of 100 are faster.
    pub p99: u64,
    /// 999 of 1,000 are faster.
    pub p999: u64,
}

/// Touched once, or more often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Multiplicity {
    /// Share of the touched blocks that were touched exactly once.
    pub single_of_blocks: f64,
    /// Share of the block accesses that went to those.
    pub single_of_accesses: f64,
    /// The same among blocks that were read: read exactly once.
    pub read_once_of_read: f64,
    /// The same among blocks that were written: written exactly once.
    pub written_once_of_written: f64,
    /// Share of the accesses that the hottest tenth of the blocks took.
    pub hottest_tenth_of_accesses: f64,
}

/// One point of a miss-ratio curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MissPoint {
    /// Bytes of an LRU cache for this area alone.
    pub cache_bytes: u64,
    /// Share of the block accesses that miss.
    pub miss_ratio: f64,
}

/// Everything about one area.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AreaReport {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: String,
    /// Reads.
    pub read: Traffic,
    /// Writes.
    pub write: Traffic,
    /// Flushes (also those that come with a write).
    pub flush: Traffic,
    /// Discards.
    pub discard: Traffic,
    /// Time in which it had at least one request outstanding, in nanoseconds.
    pub busy_ns: u64,
    /// Bytes of distinct blocks touched.
    pub unique_bytes: u64,
    /// Bytes of distinct blocks by time.
    pub growth: Vec<u64>,
    /// Blocks touched once and more often.
    pub multiplicity: Multiplicity,
    /// Mean bytes touched within 1, 10 and 60 seconds.
    pub working_set: [u64; 3],
    /// Misses of an LRU cache by its size.
    pub miss_ratio: Vec<MissPoint>,
    /// Block accesses by reuse distance: first accesses, then distances of up to 2^i blocks.
    pub reuse: Vec<f64>,
    /// How fast reads were.
    pub read_latency: Quantiles,
    /// How fast writes were.
    pub write_latency: Quantiles,
    /// How fast flushes were.
    pub flush_latency: Quantiles,
    /// Share of the requests that began where the one before in the area ended.
    pub sequential: f64,
    /// Bytes by address and time; addresses never touched are left out.
    pub heat: Vec<HeatRow>,
    /// Addresses reach so far.
    pub extent_bytes: u64,
}

/// Everything about a trace.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// Where it came from.
    pub source: String,
    /// Requests.
    pub requests: u64,
    /// From the first issue to the last completion.
    pub duration_ns: u64,
    /// Time with at least one request outstanding anywhere.
    pub busy_ns: u64,
    /// Time with nothing outstanding: the application's own.
    pub think_ns: u64,
    /// Half of the thinking pauses are shorter.
    pub think_p50_ns: u64,
    /// Mean number of requests outstanding, by time.
    pub queue_depth: Vec<f64>,
    /// By area.
    pub areas: Vec<AreaReport>,
    /// 1 when blocks were counted exactly, otherwise the share of them that was sampled, in chunks of 64 KiB.
    pub sampled: f64,
    /// What the trace cannot tell.
    pub shortcomings: Vec<String>,
}

struct AreaState {
    report: AreaReport,
    read_latency: Histogram,
    write_latency: Histogram,
    flush_latency: Histogram,
    busy_end_ns: u64,
    last_end: u64,
    sequential: u64,
    reuse: ReuseSampler,
    heat: HeatMap,
}

/// Takes requests in order of issue.
pub struct Characteriser {
    areas: Vec<AreaState>,
    blocks: BlockTable,
    report: Report,
    end_ns: u64,
    column_ns: u64,
    column: usize,
    /// The next column's beginning.
    column_end_ns: u64,
    busy_end_ns: u64,
    pauses: Histogram,
    outstanding_ns: Vec<u64>,
}

impl Characteriser {
    /// Prepares for a trace.
    pub fn new(info: &TraceInfo) -> Self {
        let areas = info
            .areas
            .iter()
            .map(|area| AreaState {
                report: AreaReport {
                    name: area.name.clone(),
                    role: area.role.to_string(),
                    extent_bytes: area.extent_bytes.max(1),
                    ..AreaReport::default()
                },
                read_latency: Histogram::new(),
                write_latency: Histogram::new(),
                flush_latency: Histogram::new(),
                busy_end_ns: 0,
                last_end: u64::MAX,
                sequential: 0,
                reuse: ReuseSampler::new(info.areas.len() > MANY_AREAS),
                heat: HeatMap::new(area.extent_bytes, info.areas.len()),
            })
            .collect();
        Self {
            blocks: BlockTable::new(info.areas.len()),
            areas,
            report: Report {
                source: info.source.clone(),
                shortcomings: info.shortcomings(),
                ..Report::default()
            },
            end_ns: info.end_ns,
            column_ns: info.end_ns / TIME_COLUMNS as u64 + 1,
            column: 0,
            column_end_ns: info.end_ns / TIME_COLUMNS as u64 + 1,
            busy_end_ns: 0,
            pauses: Histogram::new(),
            outstanding_ns: vec![0; TIME_COLUMNS],
        }
    }

    /// Takes one request.
    pub fn add(&mut self, request: &Request) {
        self.report.requests += 1;
        while request.issue_ns >= self.column_end_ns && self.column < TIME_COLUMNS - 1 {
            self.close_column();
        }
        let area_number = usize::from(request.area);
        let Some(area) = self.areas.get_mut(area_number) else {
            return;
        };
        let latency = request.latency_ns();
        area.count(request, latency);
        if let Some(latency) = latency {
            let end = request.issue_ns + latency;
            area.report.busy_ns += end.saturating_sub(request.issue_ns.max(area.busy_end_ns));
            area.busy_end_ns = area.busy_end_ns.max(end);
            if request.issue_ns > self.busy_end_ns {
                self.pauses.add(request.issue_ns - self.busy_end_ns);
            }
            self.report.busy_ns += end.saturating_sub(request.issue_ns.max(self.busy_end_ns));
            self.busy_end_ns = self.busy_end_ns.max(end);
            self.spread(request.issue_ns, end);
        }
        if !request.moves_data() {
            return;
        }
        let area = &mut self.areas[area_number];
        area.heat.add(request, self.column);
        let is_write = request.op == Op::Write;
        for part in parts(area_number, request.blocks()) {
            self.blocks.touch(&part, is_write, request.issue_ns);
            area.reuse.touch(&part);
        }
    }

    /// Adds a request's time to the columns that it covers.
    fn spread(&mut self, from_ns: u64, to_ns: u64) {
        // Requests come in order of issue: this one began in the present column, and mostly ends there, too.
        if to_ns <= self.column_end_ns {
            self.outstanding_ns[self.column] += to_ns - from_ns;
            return;
        }
        let mut at = from_ns;
        while at < to_ns {
            let column = ((at / self.column_ns) as usize).min(TIME_COLUMNS - 1);
            let end = if column == TIME_COLUMNS - 1 {
                to_ns
            } else {
                to_ns.min((column as u64 + 1) * self.column_ns)
            };
            self.outstanding_ns[column] += end - at;
            at = end;
        }
    }

    fn close_column(&mut self) {
        for (number, area) in self.areas.iter_mut().enumerate() {
            area.report.growth.push(self.blocks.unique_bytes(number));
        }
        self.column += 1;
        self.column_end_ns = self.column_end_ns.saturating_add(self.column_ns);
    }

    /// The report.
    pub fn finish(mut self) -> Report {
        while self.column < TIME_COLUMNS {
            self.close_column();
        }
        let mut report = self.report;
        report.duration_ns = self.end_ns;
        report.think_ns = self.end_ns.saturating_sub(report.busy_ns);
        report.think_p50_ns = self.pauses.quantile(0.5);
        report.sampled = self.blocks.rate();
        report.queue_depth = self
            .outstanding_ns
            .iter()
            .map(|ns| *ns as f64 / self.column_ns as f64)
            .collect();
        for (number, area) in self.areas.into_iter().enumerate() {
            let mut one = area.report;
            let total = one.read.requests + one.write.requests;
            one.sequential = area.sequential as f64 / total.max(1) as f64;
            one.read_latency = area.read_latency.quantiles();
            one.write_latency = area.write_latency.quantiles();
            one.flush_latency = area.flush_latency.quantiles();
            one.unique_bytes = self.blocks.unique_bytes(number);
            one.multiplicity = self.blocks.multiplicity(number);
            one.working_set = self.blocks.working_set(number, self.end_ns);
            one.reuse = area.reuse.histogram();
            one.heat = area.heat.finish();
            one.miss_ratio = area.reuse.miss_ratio();
            report.areas.push(one);
        }
        report
    }
}

impl AreaState {
    fn count(&mut self, request: &Request, latency: Option<u64>) {
        let report = &mut self.report;
        let (traffic, histogram) = match request.op {
            Op::Read => (&mut report.read, Some(&mut self.read_latency)),
            Op::Write => (&mut report.write, Some(&mut self.write_latency)),
            Op::Flush => (&mut report.flush, Some(&mut self.flush_latency)),
            Op::Discard => (&mut report.discard, None),
        };
        traffic.requests += 1;
        traffic.bytes += u64::from(request.length);
        let waits =
            request.op == Op::Read || request.op == Op::Flush || request.flags.has(Flags::SYNC);
        traffic.waited_for += u64::from(waits);
        if let Some(latency) = latency {
            traffic.latency_ns += latency;
            if let Some(histogram) = histogram {
                histogram.add(latency);
            }
        }
        if request.op == Op::Write && request.flags.has(Flags::PREFLUSH) {
            report.flush.requests += 1;
        }
        if request.moves_data() {
            self.sequential += u64::from(request.offset == self.last_end);
            self.last_end = request.offset + u64::from(request.length);
        }
    }
}
