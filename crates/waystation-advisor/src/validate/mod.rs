//! The simulator against runs that were measured.
//!
//! A directory holds `measured.csv` (application, data mode, what was fast, seconds) and for each application and
//! mode the trace of its all-slow run. From that trace alone every measured arrangement is predicted and compared
//! with the fastest of the measured runs. Two constants of the disk model were fitted on [`CALIBRATED_ON`]'s recorded latencies, so
//! the medians are also given without it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use waystation_planner::hottest;

use crate::advise::heat::BlockCosts;
use crate::error::{Error, Result};
use crate::event::BLOCK_BYTES;
use crate::import::{AreaRules, Format, ImportSettings, import};
use crate::native::Trace;
use crate::simulate::{Chain, Machine, Placement, Residence, simulate};
use crate::units::seconds;

#[cfg(test)]
mod tests;

/// The application and mode whose latencies the disk model's two constants were fitted on.
pub const CALIBRATED_ON: (&str, &str) = ("db-sqlite-del", "ordered");

/// What the figures must reach.
pub const WHOLE_MEDIAN_MAX: f64 = 0.08;
/// What the figures must reach.
pub const CAPACITY_MEDIAN_MAX: f64 = 0.10;
/// What the figures must reach.
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
    /// `SQLite` ordered with 20 MB split over journal and hot blocks: predicted seconds, and the best single area's.
    pub split_s: Option<(f64, f64)>,
}

struct Measured {
    application: String,
    mode: String,
    fast: String,
    mib: Option<u64>,
    min_s: f64,
    max_s: f64,
}

fn read_measured(path: &Path) -> Result<Vec<Measured>> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::io("read", path, source))?;
    let mut rows = Vec::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        let wrong = || {
            Error::Malformed(format!(
                "{}, line {}: not a measured run: {line}",
                path.display(),
                number + 1
            ))
        };
        let [application, mode, fast, mib, min_s, max_s, ..] =
            line.split(',').collect::<Vec<_>>()[..]
        else {
            return Err(wrong());
        };
        rows.push(Measured {
            application: application.to_owned(),
            mode: mode.to_owned(),
            fast: fast.to_owned(),
            mib: mib.parse().ok().filter(|mib| *mib > 0),
            min_s: min_s.parse().map_err(|_| wrong())?,
            max_s: max_s.parse().map_err(|_| wrong())?,
        });
    }
    Ok(rows)
}

fn read_trace(path: PathBuf) -> Result<Trace> {
    let mut trace = Trace::default();
    let settings = ImportSettings {
        files: vec![path],
        format: Format::Csv,
        rules: AreaRules::default(),
        columns: None,
    };
    let rejections = import(&settings, &mut trace)?;
    if rejections.is_empty() {
        Ok(trace)
    } else {
        Err(Error::Malformed(rejections.to_string()))
    }
}

/// The placement that a measured row describes, if this trace can say anything about it.
fn placement(trace: &Trace, row: &Measured) -> Option<Placement> {
    let areas = trace.info.areas.len();
    let area = |name: &str| trace.info.areas.iter().position(|area| area.name == name);
    let part = |name: &str| {
        Some(Placement::one(
            areas,
            area(name)?,
            Residence::FirstTouch(row.mib? << 20),
        ))
    };
    match row.fast.as_str() {
        "allHDD" => Some(Placement::slow(areas)),
        "allNVM" => Some(Placement::fast(areas)),
        "fs-ft" => part("fs"),
        "sw-ft" => part("swap"),
        // An area without a single request may be fast: it changes nothing.
        name @ ("fs" | "journal" | "swap") => Some(area(name).map_or_else(
            || Placement::slow(areas),
            |at| Placement::one(areas, at, Residence::Fast),
        )),
        _ => None,
    }
}

/// Predicts everything that `directory` has measurements of.
pub fn validate(
    directory: &Path,
    machine: &Machine,
    mut progress: impl FnMut(u64, u64),
) -> Result<Validation> {
    let measured = read_measured(&directory.join("measured.csv"))?;
    let mut validation = Validation {
        whole: Vec::new(),
        capacity: Vec::new(),
        left_out: Vec::new(),
        choices: Vec::new(),
        split_s: None,
    };
    let total = measured.len() as u64;
    let mut loaded: Option<(String, Trace, Chain)> = None;
    for (number, row) in measured.iter().enumerate() {
        progress(number as u64, total);
        let name = format!("{}.{}.allHDD.csv.gz", row.application, row.mode);
        if loaded.as_ref().is_none_or(|(known, ..)| *known != name) {
            let trace = read_trace(directory.join(&name))?;
            let chain = Chain::of(&trace.requests);
            if (row.application.as_str(), row.mode.as_str()) == CALIBRATED_ON
                && validation.split_s.is_none()
            {
                validation.split_s = split_20mb(&trace, &chain, machine);
            }
            loaded = Some((name, trace, chain));
        }
        let Some((_, trace, chain)) = &loaded else {
            continue;
        };
        let Some(placement) = placement(trace, row) else {
            validation.left_out.push(format!(
                "{} {} {}: a variant of the kernel's settings, not of the placement",
                row.application, row.mode, row.fast
            ));
            continue;
        };
        let outcome = simulate(
            &trace.info,
            &trace.requests,
            chain,
            &placement,
            machine,
            false,
        );
        let predicted_s = seconds(outcome.run_ns);
        let cell = Cell {
            application: row.application.clone(),
            mode: row.mode.clone(),
            fast: row.fast.clone(),
            fast_mib: row.mib,
            predicted_s,
            measured_s: row.min_s,
            measured_max_s: row.max_s,
            error: predicted_s / row.min_s - 1.0,
        };
        if row.mib.is_some() {
            validation.capacity.push(cell);
        } else {
            validation.whole.push(cell);
        }
    }
    validation.choices = choices(&validation.whole);
    progress(total, total);
    Ok(validation)
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
                    && matches!(other.fast.as_str(), "fs" | "journal" | "swap")
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

impl Validation {
    /// Whether every figure is reached.
    pub fn passes(&self) -> bool {
        quantile(&self.whole, 0.5) <= WHOLE_MEDIAN_MAX
            && quantile(&self.capacity, 0.5) <= CAPACITY_MEDIAN_MAX
            && self
                .choices
                .iter()
                .all(|choice| choice.regret <= REGRET_MAX)
            && self.split_s.is_some_and(|(split, single)| split < single)
    }

    /// The cells of applications that nothing was fitted on.
    pub fn unseen(cells: &[Cell]) -> impl Iterator<Item = &Cell> {
        cells
            .iter()
            .filter(|cell| (cell.application.as_str(), cell.mode.as_str()) != CALIBRATED_ON)
    }

    /// The tables for a terminal.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (title, cells) in [
            ("Whole areas", &self.whole),
            ("Parts of areas (first touch)", &self.capacity),
        ] {
            let _ = writeln!(
                text,
                "{title}: seconds, predicted from the all-slow trace and measured (fastest .. slowest run)"
            );
            for cell in cells {
                let size = cell
                    .fast_mib
                    .map_or_else(|| "whole".to_owned(), |mib| format!("{mib} MiB"));
                let _ = writeln!(
                    text,
                    "  {:<14} {:<8} {:<8} {:>7}  {:>6.1}  {:>6.1} ..{:>5.1}  {:>+6.1} %",
                    cell.application,
                    cell.mode,
                    cell.fast,
                    size,
                    cell.predicted_s,
                    cell.measured_s,
                    cell.measured_max_s,
                    cell.error * 100.0
                );
            }
            let line = |name: &str, cells: &[&Cell]| {
                format!(
                    "  {name}: {} cells, median error {:.1} %, 90 % below {:.1} %, worst {:.1} %\n",
                    cells.len(),
                    quantile(cells.iter().copied(), 0.5) * 100.0,
                    quantile(cells.iter().copied(), 0.9) * 100.0,
                    quantile(cells.iter().copied(), 1.0) * 100.0
                )
            };
            text.push_str(&line("all", &cells.iter().collect::<Vec<_>>()));
            text.push_str(&line(
                "without the application fitted on",
                &Self::unseen(cells).collect::<Vec<_>>(),
            ));
            text.push('\n');
        }
        text.push_str("Which area to make fast\n");
        for choice in &self.choices {
            let _ = writeln!(
                text,
                "  {:<14} {:<8} advised {:<8} measured best {:<8} regret {:.1} %",
                choice.application,
                choice.mode,
                choice.advised,
                choice.best,
                choice.regret * 100.0
            );
        }
        if let Some((split, single)) = self.split_s {
            let _ = writeln!(
                text,
                "\nSQLite ordered, 20 MB as 6 MiB journal and hot blocks: {split:.1} s predicted; best single area of any size {single:.1} s: {:.1} times as fast",
                single / split
            );
        }
        for reason in &self.left_out {
            let _ = writeln!(text, "left out: {reason}");
        }
        text
    }
}
