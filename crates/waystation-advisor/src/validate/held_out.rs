//! Each application predicted with constants that it had no part in.
//!
//! The disk of the measured runs was an emulated one: its seek curve, rotation and cache are known facts. What is not
//! known is fitted: the software path to the slow and to the fast device, the controller's time per operation, and
//! whether a completed write-back may cause what follows it. For each application these are chosen on a grid so that
//! the mean error over all *other* applications is smallest (both data modes of a program are one application); with
//! the constants so found the application is predicted.

use std::thread;

use serde::Serialize;

use super::measured::{Runs, read_runs};
use super::{Cell, Choice, choices, misses, predict};
use crate::error::Result;
use crate::simulate::{Causes, Chain, DeviceModel, Machine};

/// The values that are tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// Software path to the slow device, in microseconds.
    pub path_us: Vec<f64>,
    /// The disk's controller, per operation.
    pub command_us: Vec<f64>,
    /// Software path to the fast device.
    pub fast_path_us: Vec<f64>,
    /// Whether the completion of a write-back may cause a request.
    pub write_back_causes: Vec<bool>,
}

impl Default for Grid {
    /// Wide enough that no fit should lie on its edge.
    fn default() -> Self {
        Self {
            path_us: vec![50.0, 100.0, 150.0, 200.0, 300.0, 400.0],
            command_us: vec![0.0, 75.0, 150.0, 300.0, 600.0],
            fast_path_us: vec![70.0, 100.0, 130.0, 200.0],
            write_back_causes: vec![false, true],
        }
    }
}

/// One application that was held out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fold {
    /// The one that was held out.
    pub application: String,
    /// Fitted on the others: software path to the slow device.
    pub path_us: f64,
    /// Fitted: the disk's controller.
    pub command_us: f64,
    /// Fitted: software path to the fast device.
    pub fast_path_us: f64,
    /// Fitted: whether a completed write-back may cause a request.
    pub write_back_causes: bool,
    /// Mean error over the applications fitted on, as a share.
    pub others_error: f64,
    /// Mean error of the one held out.
    pub own_error: f64,
}

/// Predictions, each with constants that its application had no part in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldOut {
    /// By application.
    pub folds: Vec<Fold>,
    /// Whole areas.
    pub whole: Vec<Cell>,
    /// Parts of areas.
    pub capacity: Vec<Cell>,
    /// One per application and mode.
    pub choices: Vec<Choice>,
}

impl HeldOut {
    /// The figures that are not reached without having seen the application, as sentences; none if all are.
    pub fn misses(&self) -> Vec<String> {
        misses(&self.whole, &self.capacity, &self.choices)
    }
}

/// One point of the grid.
#[derive(Clone, Copy)]
struct Constants {
    path_us: f64,
    command_us: f64,
    fast_path_us: f64,
    causes: Causes,
}

impl Constants {
    fn all(grid: &Grid) -> Vec<Self> {
        let mut all = Vec::new();
        for path_us in &grid.path_us {
            for command_us in &grid.command_us {
                for fast_path_us in &grid.fast_path_us {
                    for write_back in &grid.write_back_causes {
                        all.push(Self {
                            path_us: *path_us,
                            command_us: *command_us,
                            fast_path_us: *fast_path_us,
                            causes: if *write_back {
                                Causes::Every
                            } else {
                                Causes::WaitedFor
                            },
                        });
                    }
                }
            }
        }
        all
    }

    fn machine(self, machine: &Machine) -> Machine {
        let mut machine = machine.clone();
        if let DeviceModel::Disk(disk) = &mut machine.slow {
            disk.path_us = self.path_us;
            disk.command_us = self.command_us;
        }
        if let DeviceModel::Flash(fast) = &mut machine.fast {
            fast.path_us = self.fast_path_us;
        }
        machine
    }
}

fn mean_error<'a>(cells: impl Iterator<Item = &'a Cell>) -> f64 {
    let (count, sum) = cells.fold((0_u32, 0.0), |(count, sum), cell| {
        (count + 1, sum + cell.error.abs())
    });
    sum / f64::from(count.max(1))
}

/// Fits on all applications but one and predicts that one, for each; nothing if there is only one, as there is nothing to
/// fit on then. `progress` is told parts done of all.
pub fn held_out(
    directory: &std::path::Path,
    machine: &Machine,
    grid: &Grid,
    progress: impl Fn(u64, u64) + Sync,
) -> Result<Option<HeldOut>> {
    let all = read_runs(directory)?;
    let mut applications: Vec<&str> = Vec::new();
    for runs in &all {
        let name = runs.rows[0].application.as_str();
        if !applications.contains(&name) {
            applications.push(name);
        }
    }
    if applications.len() < 2 {
        return Ok(None);
    }
    let constants = Constants::all(grid);
    let predicted = predict_all(&all, machine, &constants, progress);
    let mut outcome = HeldOut {
        folds: Vec::new(),
        whole: Vec::new(),
        capacity: Vec::new(),
        choices: Vec::new(),
    };
    for application in applications {
        let others = |cells: &&Cell| cells.application != application;
        let error_of = |cells: &[Cell]| mean_error(cells.iter().filter(others));
        let Some((best, others_error)) = predicted
            .iter()
            .map(|cells| error_of(cells))
            .enumerate()
            .min_by(|one, other| one.1.total_cmp(&other.1))
        else {
            continue;
        };
        let own = || predicted[best].iter().filter(|cell| !others(cell));
        let chosen = constants[best];
        outcome.folds.push(Fold {
            application: application.to_owned(),
            path_us: chosen.path_us,
            command_us: chosen.command_us,
            fast_path_us: chosen.fast_path_us,
            write_back_causes: chosen.causes == Causes::Every,
            others_error,
            own_error: mean_error(own()),
        });
        for cell in own().cloned() {
            if cell.fast_mib.is_some() {
                outcome.capacity.push(cell);
            } else {
                outcome.whole.push(cell);
            }
        }
    }
    outcome.choices = choices(&outcome.whole);
    Ok(Some(outcome))
}

/// The cells of all applications at each point of the grid, on every processor there is.
fn predict_all(
    all: &[Runs],
    machine: &Machine,
    constants: &[Constants],
    progress: impl Fn(u64, u64) + Sync,
) -> Vec<Vec<Cell>> {
    let chains: Vec<[Chain; 2]> = all
        .iter()
        .map(|runs| {
            [Causes::WaitedFor, Causes::Every]
                .map(|causes| Chain::following(&runs.trace.requests, causes))
        })
        .collect();
    let at = |point: &Constants| -> Vec<Cell> {
        let machine = point.machine(machine);
        all.iter()
            .zip(&chains)
            .flat_map(|(runs, chains)| {
                predict(
                    runs,
                    &chains[usize::from(point.causes == Causes::Every)],
                    &machine,
                )
            })
            .collect()
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let part = constants.len().div_ceil(threads).max(1);
    let done = std::sync::atomic::AtomicU64::new(0);
    thread::scope(|scope| {
        let workers: Vec<_> = constants
            .chunks(part)
            .map(|points| {
                let (at, done, progress) = (&at, &done, &progress);
                scope.spawn(move || {
                    points
                        .iter()
                        .map(|point| {
                            let cells = at(point);
                            let count = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            progress(count + 1, constants.len() as u64);
                            cells
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| match worker.join() {
                Ok(cells) => cells,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}
