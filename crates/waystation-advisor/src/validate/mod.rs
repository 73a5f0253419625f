//! The simulator against runs that were measured.
//!
//! A directory holds `measured.csv` (application, data mode, what was fast, seconds), for each application and
//! mode the trace of its all-slow run, and `machine.toml` where the devices are not those of the laboratory. What was
//! fast is `allHDD` (nothing), `allNVM` (everything), the name of an area, or with `-ft` behind it its part touched first.
//! From that trace alone every measured arrangement is predicted and compared with the fastest of the measured runs. The constants that are no facts of the emulated disk were chosen with all
//! runs in sight; [`held_out`] chooses them without the application that is predicted.

mod held_out;
mod measured;
mod text;

use std::path::Path;

use serde::Serialize;
use waystation_planner::hottest;

use crate::advise::heat::BlockCosts;
use crate::error::Result;
use crate::event::BLOCK_BYTES;
use crate::native::Trace;
use crate::simulate::{Chain, Machine, Placement, Residence, simulate};
use crate::units::seconds;
pub use held_out::{Fold, Grid, HeldOut, held_out};
use measured::{Measured, Runs, read_runs};

#[cfg(test)]
mod tests;

/// The application and mode that the split of 20 MB is shown on.
const SPLIT_OF: (&str, &str) = ("db-sqlite-del", "ordered");

/// What is fast where nothing is.
const ALL_SLOW: &str = "allHDD";
/// What is fast where everything is.
const ALL_FAST: &str = "allNVM";
/// The areas of the laboratory: they are there even if nothing was asked of them.
const LABORATORY: [&str; 3] = crate::record::rig::AREAS;
/// The devices of the measured runs.
const MACHINE: &str = "machine.toml";

/// The median error of whole areas must not be above this.
pub const WHOLE_MEDIAN_MAX: f64 = 0.08;
/// The median error of parts of areas must not be above this.
pub const CAPACITY_MEDIAN_MAX: f64 = 0.10;
/// The advised area may have been measured to be this much slower than the best one.
pub const REGRET_MAX: f64 = 0.05;

/// One arrangement, predicted and measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// The program.
    pub application: String,
    /// ext4's data mode.
    pub mode: String,
    /// What was fast ("fs", "fs-ft", "allNVM").
    pub fast: String,
    /// How much of it, in MiB; nothing for a whole area.
    pub fast_mib: Option<u64>,
    /// Seconds that the simulation says.
    pub predicted_s: f64,
    /// The fastest measured run.
    pub measured_s: f64,
    /// The slowest measured run.
    pub measured_max_s: f64,
    /// Predicted / measured - 1.
    pub error: f64,
}

/// The choice of an area for one application and mode.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// The program.
    pub application: String,
    /// ext4's data mode.
    pub mode: String,
    /// The area that the simulation advises.
    pub advised: String,
    /// The area that was measured to be best.
    pub best: String,
    /// How much slower the advised one was measured to be, as a share.
    pub regret: f64,
}

/// The outcome of a validation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Validation {
    /// Whole areas.
    pub whole: Vec<Cell>,
    /// Parts of areas.
    pub capacity: Vec<Cell>,
    /// Measured arrangements that no simulation was made for, with the reason.
    pub left_out: Vec<String>,
    /// One per application and mode.
    pub choices: Vec<Choice>,
    /// `SQLite` ordered with 20 MB split over journal and hot blocks: predicted seconds, and the best single area's. None
    /// where the data set has no such runs.
    pub split_s: Option<(f64, f64)>,
}

/// The placement that a measured row describes, if this trace can say anything about it.
fn placement(trace: &Trace, row: &Measured) -> Option<Placement> {
    let areas = trace.info.areas.len();
    let area = |name: &str| trace.info.areas.iter().position(|area| area.name == name);
    if let Some(name) = row.fast.strip_suffix("-ft") {
        let name = if name == "sw" { "swap" } else { name };
        let bytes = row.mib?.checked_mul(1 << 20)?;
        return Some(Placement::one(
            areas,
            area(name)?,
            Residence::FirstTouch(bytes),
        ));
    }
    match row.fast.as_str() {
        ALL_SLOW => Some(Placement::slow(areas)),
        ALL_FAST => Some(Placement::fast(areas)),
        name => match area(name) {
            Some(at) => Some(Placement::one(areas, at, Residence::Fast)),
            // An area without a single request may be fast: it changes nothing.
            None if LABORATORY.contains(&name) => Some(Placement::slow(areas)),
            None => None,
        },
    }
}

/// The devices that the runs below `directory` were measured on: those of its `machine.toml`, or the laboratory's.
pub fn machine_of(directory: &Path) -> Result<Machine> {
    let file = directory.join(MACHINE);
    if file.exists() {
        return Machine::from_file(&file);
    }
    Ok(Machine::laboratory())
}

/// Predicts everything that `directory` has measurements of.
pub fn validate(
    directory: &Path,
    machine: &Machine,
    mut progress: impl FnMut(u64, u64),
) -> Result<Validation> {
    let all = read_runs(directory)?;
    let mut validation = Validation {
        whole: Vec::new(),
        capacity: Vec::new(),
        left_out: Vec::new(),
        choices: Vec::new(),
        split_s: None,
    };
    for (number, runs) in all.iter().enumerate() {
        progress(number as u64, all.len() as u64);
        let chain = Chain::of(&runs.trace.requests);
        for cell in predict(runs, &chain, machine) {
            if cell.fast_mib.is_some() {
                validation.capacity.push(cell);
            } else {
                validation.whole.push(cell);
            }
        }
        for row in &runs.rows {
            if (row.application.as_str(), row.mode.as_str()) == SPLIT_OF
                && validation.split_s.is_none()
            {
                validation.split_s = split_20mb(&runs.trace, &chain, machine);
            }
            if placement(&runs.trace, row).is_none() {
                validation.left_out.push(format!(
                    "{} {} {}: no placement that the trace knows (its areas are {}; or \"{ALL_SLOW}\", \"{ALL_FAST}\", an area with \"-ft\" and MiB)",
                    row.application,
                    row.mode,
                    row.fast,
                    runs.trace
                        .info
                        .areas
                        .iter()
                        .map(|area| area.name.as_str())
                        .collect::<Vec<_>>()
                        .join(", ")
                ));
            }
        }
    }
    validation.choices = choices(&validation.whole);
    progress(all.len() as u64, all.len() as u64);
    Ok(validation)
}

/// What the simulator says of each measured arrangement that is one of the placement.
fn predict(runs: &Runs, chain: &Chain, machine: &Machine) -> Vec<Cell> {
    let trace = &runs.trace;
    runs.rows
        .iter()
        .filter_map(|row| {
            let placement = placement(trace, row)?;
            let outcome = simulate(
                &trace.info,
                &trace.requests,
                chain,
                &placement,
                machine,
                false,
            );
            let predicted_s = seconds(outcome.run_ns);
            Some(Cell {
                application: row.application.clone(),
                mode: row.mode.clone(),
                fast: row.fast.clone(),
                fast_mib: row.mib,
                predicted_s,
                measured_s: row.min_s,
                measured_max_s: row.max_s,
                error: predicted_s / row.min_s - 1.0,
            })
        })
        .collect()
}

fn choices(cells: &[Cell]) -> Vec<Choice> {
    let mut choices: Vec<Choice> = Vec::new();
    for cell in cells {
        if choices
            .iter()
            .any(|choice| choice.application == cell.application && choice.mode == cell.mode)
        {
            continue;
        }
        let candidates = || {
            cells.iter().filter(|other| {
                other.application == cell.application
                    && other.mode == cell.mode
                    && !matches!(other.fast.as_str(), ALL_SLOW | ALL_FAST)
            })
        };
        let advised =
            candidates().min_by(|one, other| one.predicted_s.total_cmp(&other.predicted_s));
        let best = candidates().min_by(|one, other| one.measured_s.total_cmp(&other.measured_s));
        if let (Some(advised), Some(best)) = (advised, best) {
            choices.push(Choice {
                application: cell.application.clone(),
                mode: cell.mode.clone(),
                advised: advised.fast.clone(),
                best: best.fast.clone(),
                regret: advised.measured_s / best.measured_s - 1.0,
            });
        }
    }
    choices
}

/// 20 MB as a 6 MiB journal and the hottest blocks of the file system, against the best whole area.
fn split_20mb(trace: &Trace, chain: &Chain, machine: &Machine) -> Option<(f64, f64)> {
    const JOURNAL_BYTES: u64 = 6 << 20;
    let areas = trace.info.areas.len();
    let area = |name: &str| trace.info.areas.iter().position(|area| area.name == name);
    let (fs, journal) = (area("fs")?, area("journal")?);
    let run = |placement: &Placement| {
        seconds(
            simulate(
                &trace.info,
                &trace.requests,
                chain,
                placement,
                machine,
                false,
            )
            .run_ns,
        )
    };
    let costs = BlockCosts::of(areas, &trace.requests, |request| {
        trace.requests[request].latency_ns().unwrap_or(0)
    });
    let blocks = (20_000_000 - JOURNAL_BYTES) / BLOCK_BYTES;
    let hot = hottest(costs.heat(fs, 0), blocks as usize);
    let mut split = Placement::one(areas, journal, Residence::Fast);
    split.areas[fs] = Residence::Blocks(hot.iter().map(|heat| heat.block).collect());
    let single = (0..areas)
        .map(|area| run(&Placement::one(areas, area, Residence::Fast)))
        .min_by(f64::total_cmp)?;
    Some((run(&split), single))
}

/// The value below which `share` of the absolute errors lie.
pub fn quantile<'a>(cells: impl IntoIterator<Item = &'a Cell>, share: f64) -> f64 {
    let mut errors: Vec<f64> = cells.into_iter().map(|cell| cell.error.abs()).collect();
    errors.sort_by(f64::total_cmp);
    let at = ((errors.len().saturating_sub(1)) as f64 * share).round() as usize;
    errors.get(at).copied().unwrap_or(0.0)
}

/// What these predictions do not reach, as sentences.
fn misses(whole: &[Cell], capacity: &[Cell], choices: &[Choice]) -> Vec<String> {
    let mut misses = Vec::new();
    for (what, cells, most) in [
        ("whole areas", whole, WHOLE_MEDIAN_MAX),
        ("parts of areas", capacity, CAPACITY_MEDIAN_MAX),
    ] {
        let median = quantile(cells, 0.5);
        if median > most {
            misses.push(format!(
                "the median error of {what} is {:.1} % (at most {:.0} %)",
                median * 100.0,
                most * 100.0
            ));
        }
    }
    for choice in choices.iter().filter(|choice| choice.regret > REGRET_MAX) {
        misses.push(format!(
            "for {} with data={} it advises {}, which was {:.0} % slower than {}",
            choice.application,
            choice.mode,
            choice.advised,
            choice.regret * 100.0,
            choice.best
        ));
    }
    misses
}

impl Validation {
    /// The figures that are not reached, as sentences; none if all are.
    pub fn misses(&self) -> Vec<String> {
        let mut misses = misses(&self.whole, &self.capacity, &self.choices);
        if let Some((split, single)) = self.split_s.filter(|(split, single)| split >= single) {
            misses.push(format!(
                "the split of 20 MB takes {split:.1} s, and the best single area {single:.1} s"
            ));
        }
        misses
    }
}
