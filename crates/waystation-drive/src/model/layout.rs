//! The merges of a job and their inputs, as pages; and how long a page takes.

use super::calendar::Nanos;
use super::config::{Load, Machine};
use super::job::Place;
use super::shape::{Merge, Table};
use super::staging::{Source, plan};
use crate::ip::law::{Even, Law};
use std::cmp::Ordering;

/// The part of the memory of drive or card that may hold what is loaded ahead of its merge: one in so many.
const AHEAD: u64 = 2;
/// Chunks of output that the card holds before its engine waits.
const CARD_CHUNKS: usize = 16;

/// How much a job may have under way, in pages but for `in_flight_max`.
pub(super) struct Limits {
    /// Pages of a read.
    pub(super) chunk: usize,
    /// Reads (on the card also writes of chunks).
    pub(super) in_flight_max: usize,
    /// What is loaded for an input of the merge at hand.
    pub(super) window: usize,
    /// What is loaded for later merges.
    pub(super) ahead_max: usize,
    /// What has been merged and is not yet on flash.
    pub(super) unwritten_max: usize,
}

impl Limits {
    /// Those of a place.
    pub(super) fn of(place: Place, machine: &Machine) -> Self {
        let per = |bytes: u64| (bytes / machine.flash.page_bytes).max(1) as usize;
        match place {
            Place::Drive { .. } => Self {
                chunk: 1,
                in_flight_max: machine.engine.reads_in_flight,
                window: per(machine.engine.buffer_bytes),
                ahead_max: if machine.engine.load_ahead {
                    per(machine.memory.bytes / AHEAD)
                } else {
                    0
                },
                unwritten_max: machine.engine.writes_in_flight,
            },
            Place::Card { .. } => {
                let chunk = per(machine.card.chunk_bytes);
                Self {
                    chunk,
                    in_flight_max: machine.card.chunks_in_flight,
                    window: 4 * chunk,
                    ahead_max: per(machine.card.memory_bytes / AHEAD),
                    unwritten_max: CARD_CHUNKS * chunk,
                }
            }
            Place::Host => {
                let chunk = per(machine.host.read_bytes);
                Self {
                    chunk,
                    in_flight_max: machine.host.reads_in_flight,
                    window: 2 * chunk,
                    ahead_max: 0,
                    unwritten_max: machine.host.writes_in_flight,
                }
            }
        }
    }
}

/// Pages of one input.
pub(super) struct Stream {
    /// Where they lie; none if an earlier merge makes them.
    pub(super) pages: Option<Vec<u32>>,
    pub(super) total: usize,
    pub(super) issued: usize,
    pub(super) arrived: usize,
    pub(super) consumed: usize,
    pub(super) stage: usize,
}

pub(super) struct Stage {
    pub(super) streams: Vec<usize>,
    /// The stream that this merge makes, if it stays in memory.
    pub(super) makes: Option<usize>,
    pub(super) pages_in: usize,
    pub(super) pages_out: usize,
    pub(super) consumed: usize,
    pub(super) made: usize,
    pub(super) page_ns: Nanos,
}

/// Pages of a number of records.
pub(super) fn pages_of(records: u64, load: &Load, machine: &Machine) -> usize {
    (records * load.record_bytes())
        .div_ceil(machine.flash.page_bytes)
        .max(1) as usize
}

/// How long a page takes to merge; `kept` is the part of its records that stays.
#[expect(clippy::cast_sign_loss, reason = "cycles are positive")]
fn page_ns(place: Place, machine: &Machine, load: &Load, inputs: usize, kept: f64) -> Nanos {
    let (clock, units) = match place {
        Place::Host => {
            return machine.flash.page_bytes * machine.host.merge_ns_per_kib / 1024;
        }
        Place::Card { .. } => (machine.card.clock_mhz, machine.card.units),
        Place::Drive { .. } => (machine.engine.clock_mhz, machine.engine.units),
    };
    let cycles = Law::default().per_record(Even {
        inputs: inputs as u64,
        user_bytes: load.key_bytes,
        shared_bytes: load.shared_bytes(),
        value_bytes: load.value_bytes,
        kept,
        block_bytes: 4096,
    });
    let records = machine.flash.page_bytes as f64 / load.record_bytes() as f64;
    (records * cycles * 1000.0 / (clock * units) as f64).ceil() as Nanos
}

/// Makes the streams and stages of a merge whose tables lie in these pages and whose result has `outputs` pages.
pub(super) fn lay_out(
    place: Place,
    machine: &Machine,
    load: &Load,
    merge: &Merge,
    outputs: usize,
    pages: impl Fn(&Table) -> Vec<u32>,
) -> (Vec<Stream>, Vec<Stage>) {
    let kept = merge.records_out as f64 / merge.records_in() as f64;
    let plan = plan(merge.upper.len(), !merge.lower.is_empty(), place.inputs());
    let (mut all, mut stages, mut made_by) = (Vec::new(), Vec::new(), Vec::new());
    for (number, stage) in plan.iter().enumerate() {
        let mut streams = Vec::new();
        for source in &stage.inputs {
            let stored = match *source {
                Source::Staged(before) => {
                    let stream: usize = made_by[before];
                    streams.push(stream);
                    continue;
                }
                Source::Upper(table) => pages(&merge.upper[table]),
                Source::Lower => merge.lower.iter().flat_map(&pages).collect(),
            };
            streams.push(all.len());
            all.push(Stream::new(stored.len(), Some(stored), number));
        }
        let pages_in = streams.iter().map(|&it: &usize| all[it].total).sum();
        let page_ns = if stage.to_memory {
            // What is staged loses next to nothing: tables of level 0 hold few keys twice.
            made_by.push(all.len());
            all.push(Stream::new(pages_in, None, number));
            page_ns(place, machine, load, streams.len(), 1.0)
        } else {
            page_ns(place, machine, load, streams.len(), kept)
        };
        stages.push(Stage {
            streams,
            makes: stage.to_memory.then(|| all.len() - 1),
            pages_in,
            pages_out: if stage.to_memory { pages_in } else { outputs },
            consumed: 0,
            made: 0,
            page_ns,
        });
    }
    (all, stages)
}

impl Stream {
    fn new(total: usize, pages: Option<Vec<u32>>, stage: usize) -> Self {
        Self {
            pages,
            total,
            issued: 0,
            arrived: 0,
            consumed: 0,
            stage,
        }
    }
}

/// Which of two streams has done less of itself.
pub(super) fn behind(a: &Stream, b: &Stream, done: impl Fn(&Stream) -> usize) -> Ordering {
    (done(a) * b.total).cmp(&(done(b) * a.total))
}
