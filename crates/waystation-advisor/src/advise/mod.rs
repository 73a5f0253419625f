//! Where to put so many megabytes of fast storage, and what that buys.
//!
//! Every candidate is simulated: each area as storage (the blocks touched first, or the hottest), a journal sized to
//! fit, caches, and splits of the capacity over several areas. Splits come from the planner, which assumes that
//! gains add up; the best few are simulated before anything is claimed.

mod candidates;
mod commands;
pub mod explain;
pub mod heat;
pub mod render;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::event::{BLOCK_BYTES, Role};
use crate::native::Trace;
use crate::simulate::Machine;
use crate::units::format_bytes;
use candidates::Workbench;

/// Nine of ten predictions were at most this wrong against measured runs (`make validate-placement`).
pub const ERROR_BAND: f64 = 0.19;

/// Less than this is not worth a recommendation.
const WORTHWHILE: f64 = 0.03;

/// An area that gains less than this is no part of a split.
const SHARE_WORTH: f64 = 0.005;

/// Predictions this close count as equal; then the simpler and smaller one is advised.
const TIE: f64 = 0.02;

/// What carrying it out takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Realisable {
    /// mke2fs, swapon, mount: on any Linux.
    Here,
    /// An option of the storage engine that the trace is of.
    Engine,
    /// Device-mapper (or bcache), or a change of the application.
    DeviceMapper,
}

impl Realisable {
    /// As a sentence's end.
    pub fn words(self) -> &'static str {
        match self {
            Self::Here => "realisable here",
            Self::Engine => "`fast_directory` and `fast_bytes` of the database",
            Self::DeviceMapper => "needs device-mapper or an application change",
        }
    }
}

/// How an area uses its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// The whole area lies on the fast device.
    Whole,
    /// The blocks touched first.
    FirstTouch,
    /// The blocks that save most.
    HotSet,
    /// A journal made as small as it may be.
    JournalSized,
    /// A swap device of this size, used first.
    SwapSized,
    /// An LRU cache over all areas, write-back.
    CacheWriteBack,
    /// An LRU cache over all areas, write-through.
    CacheWriteThrough,
    /// The engine's fast directory: copies of what is read most of tables and spill.
    EngineCopies,
}

/// One area's share of the capacity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Share {
    /// The area, or "all areas".
    pub area: String,
    /// What it is for.
    pub role: Option<Role>,
    /// How it is used.
    pub how: How,
    /// Fast bytes that it takes.
    pub bytes: u64,
}

/// One way to use the fast storage, simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// In a few words.
    pub name: String,
    /// Who gets how much.
    pub shares: Vec<Share>,
    /// Fast bytes used.
    pub bytes: u64,
    /// Predicted run time.
    pub seconds: f64,
    /// Nine of ten measured runs lay between these.
    pub band_s: (f64, f64),
    /// Seconds saved per megabyte used.
    pub saved_s_per_mb: f64,
    /// Megabytes written to the fast device per hour of such work.
    pub wear_mb_per_hour: f64,
    /// What it takes.
    pub realisable: Realisable,
}

/// The answer for one capacity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CapacityAdvice {
    /// Fast bytes there are.
    pub capacity: u64,
    /// All candidates, fastest first.
    pub candidates: Vec<Candidate>,
    /// Index of the one advised, if anything pays.
    pub advised: Option<usize>,
    /// Index of the best that needs nothing but Linux's own tools, or an option of the engine.
    pub advised_here: Option<usize>,
    /// The recommendation in one sentence with its reason.
    pub sentence: String,
    /// Shell scripts that carry the advice out, each of which writes one that undoes it: of the best that needs nothing
    /// but Linux's own tools, and of the one advised if it is a cache.
    pub scripts: Vec<Script>,
}

/// A shell script that carries a candidate out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Script {
    /// The candidate's name.
    pub what: String,
    /// The script.
    pub text: String,
}

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The recorded run.
    pub recorded_s: f64,
    /// The same run simulated with everything slow.
    pub slow_s: f64,
    /// And with everything fast: nothing can be better.
    pub fast_s: f64,
    /// By capacity.
    pub capacities: Vec<CapacityAdvice>,
    /// What to know before believing it.
    pub notes: Vec<String>,
}

/// Answers for every capacity. `progress` is told how many of how many capacities are done.
pub fn advise(
    trace: &Trace,
    machine: &Machine,
    capacities: &[u64],
    mut progress: impl FnMut(u64, u64),
) -> Result<Advice> {
    check(trace, capacities)?;
    let bench = Workbench::new(trace, machine);
    let mut advice = Advice {
        recorded_s: crate::units::seconds(trace.info.end_ns),
        slow_s: bench.slow_s,
        fast_s: bench.fast_s,
        capacities: Vec::new(),
        notes: notes(trace, &bench),
    };
    for (number, capacity) in capacities.iter().enumerate() {
        progress(number as u64, capacities.len() as u64);
        let candidates = bench.candidates(*capacity);
        advice
            .capacities
            .push(choose(&bench, *capacity, candidates));
    }
    progress(capacities.len() as u64, capacities.len() as u64);
    Ok(advice)
}

fn check(trace: &Trace, capacities: &[u64]) -> Result<()> {
    if trace.info.completed == 0 {
        return Err(Error::Unanswerable(format!(
            "No advice can be given from this trace. {}",
            trace.info.shortcomings().join(" ")
        )));
    }
    if capacities.is_empty() {
        return Err(Error::Usage(
            "say how much fast storage there is, for instance --fast 20MB".to_owned(),
        ));
    }
    let end: u64 = trace.info.areas.iter().map(|area| area.extent_bytes).sum();
    for capacity in capacities {
        if *capacity < BLOCK_BYTES {
            return Err(Error::Usage(format!(
                "{capacity} bytes of fast storage hold no block of {BLOCK_BYTES}; there is nothing to place"
            )));
        }
        if *capacity > end {
            return Err(Error::Usage(format!(
                "{} of fast storage are beyond the devices: all areas of this trace together end at {}",
                format_bytes(*capacity),
                format_bytes(end)
            )));
        }
    }
    Ok(())
}

fn notes(trace: &Trace, bench: &Workbench<'_>) -> Vec<String> {
    let mut notes = trace.info.shortcomings();
    let recorded = crate::units::seconds(trace.info.end_ns);
    let off = bench.slow_s / recorded.max(1e-9) - 1.0;
    if off.abs() > 0.25 {
        notes.push(format!(
            "The model of the slow device does not fit the recording: {:.1} s simulated, {recorded:.1} s recorded. Name the right one with --slow, or believe the order of the candidates rather than their seconds.",
            bench.slow_s
        ));
    }
    for name in bench.machine.layout.keys() {
        if !trace.info.areas.iter().any(|area| area.name == *name) {
            notes.push(format!(
                "The layout of the slow device places \"{name}\", which is no area of this trace."
            ));
        }
    }
    notes.push(
        "What the whole of a file system takes counts the blocks that the trace touches; the files must fit as a whole.".to_owned(),
    );
    notes.push(
        "Storage is taken to hold its data when the run begins; a cache begins empty. Hot sets come from this very run, so they are upper bounds for another one.".to_owned(),
    );
    notes.push(
        "The traffic is taken as recorded: a faster device that changes the traffic itself (less memory pinned, other write-back) is not foreseen.".to_owned(),
    );
    notes
}

fn choose(bench: &Workbench<'_>, capacity: u64, mut candidates: Vec<Candidate>) -> CapacityAdvice {
    candidates.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let worthwhile = |candidate: &Candidate| candidate.seconds < bench.slow_s * (1.0 - WORTHWHILE);
    let pick = |usable: &dyn Fn(&Candidate) -> bool| {
        let best = candidates
            .iter()
            .find(|candidate| usable(candidate) && worthwhile(candidate))?;
        // Among equals: what can be done here, then what is simpler, then what takes less.
        candidates
            .iter()
            .enumerate()
            .filter(|(_, candidate)| {
                usable(candidate) && candidate.seconds <= best.seconds * (1.0 + TIE)
            })
            .min_by_key(|(_, candidate)| {
                (
                    candidate.realisable == Realisable::DeviceMapper,
                    candidate.shares.len(),
                    candidate.bytes,
                )
            })
            .map(|(index, _)| index)
    };
    let advised = pick(&|_| true);
    let advised_here = pick(&|candidate| candidate.realisable != Realisable::DeviceMapper);
    let sentence = sentence(bench, capacity, &candidates, advised, advised_here);
    let mut wanted: Vec<usize> = advised_here.into_iter().chain(advised).collect();
    wanted.dedup();
    let scripts = wanted
        .into_iter()
        .filter_map(|index| commands::script(&candidates[index]))
        .collect();
    CapacityAdvice {
        capacity,
        candidates,
        advised,
        advised_here,
        sentence,
        scripts,
    }
}

fn sentence(
    bench: &Workbench<'_>,
    capacity: u64,
    candidates: &[Candidate],
    advised: Option<usize>,
    advised_here: Option<usize>,
) -> String {
    let Some(best) = advised.map(|index| &candidates[index]) else {
        return format!(
            "Keep everything where it is: {} of fast storage save less than {:.0} % of the {:.1} s, wherever they go.",
            format_bytes(capacity),
            WORTHWHILE * 100.0,
            bench.slow_s
        );
    };
    let mut text = format!(
        "Give {} to {}: {:.1} s instead of {:.1} s (nine of ten times between {:.1} and {:.1} s), because {}",
        format_bytes(best.bytes),
        best.name,
        best.seconds,
        bench.slow_s,
        best.band_s.0,
        best.band_s.1,
        bench.reason(best)
    );
    let Some(here) = advised_here.map(|index| &candidates[index]) else {
        text.push_str("; it needs device-mapper or an application change.");
        return text;
    };
    let is_option = here.realisable == Realisable::Engine;
    if advised_here != advised {
        let _ = write!(
            text,
            "; that needs device-mapper or an application change, and what {} can do is {} ({:.1} s)",
            if is_option {
                "an option of the database"
            } else {
                "Linux's own tools"
            },
            here.name,
            here.seconds
        );
    } else if !is_option {
        text.push_str("; it is realisable here");
    }
    if is_option {
        let _ = write!(
            text,
            ": name a directory there as `fast_directory` of the database, and {} as its `fast_bytes`",
            here.bytes
        );
    }
    text.push('.');
    text
}
