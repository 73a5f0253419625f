//! The advice against real programs: run in the laboratory, with every area fast in turn.
//!
//! Each program runs with everything slow, with each area fast and with everything fast, the arrangements taking
//! turns, so that a busy minute of the machine spoils one run of each rather than all of one. The median run counts,
//! and the median of the devices' measurements before the runs; what is over soon is run more often.
//! From the recording of the all-slow run, and devices measured before anything is on them, all are predicted.
//!
//! The slow device is either the machine's own disk, which no model of ours had a part in, or an emulated one, whose
//! model the simulator shares; then only what lies around the device is put to the test. What cannot run says "not
//! run" and why, which is never a success.

pub(crate) mod graph;
mod programs;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::Stop;
use super::rig::{AREAS, RigRecorded, RigRun, RigSettings, record_in_rig};
use crate::error::{Error, Result};
use crate::native::{Trace, load};
use crate::simulate::model::Size;
use crate::simulate::{Chain, DeviceModel, FlashModel, Machine, Placement, Residence, simulate};
use crate::units::seconds;
use programs::{Program, missing, programs};
pub use text::render;

/// No program may take longer.
const TIME_MAX: Duration = Duration::from_secs(180);
/// Of the emulated device.
const EMULATED: &str = "hdd";

/// Runs of each arrangement.
const RUNS_MIN: usize = 3;
/// The same, where no arrangement takes longer than [`SHORT_S`].
const RUNS_MAX: usize = 5;
const SHORT_S: f64 = 5.0;

/// What the slow areas lie on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlowDevice {
    /// The machine's own disk.
    Own,
    /// A disk emulated with the simulator's model.
    Emulated,
}

/// One arrangement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LiveCell {
    /// What was fast.
    pub fast: String,
    /// Predicted seconds.
    pub predicted_s: f64,
    /// Measured seconds, median run.
    pub measured_s: f64,
    /// Measured seconds, fastest run.
    pub measured_min_s: f64,
    /// Measured seconds, slowest run.
    pub measured_max_s: f64,
    /// Runs in which the program came to its end.
    pub runs: usize,
    /// Runs in which it did not.
    pub failed_runs: u32,
    /// How often, in all runs, its group had to wait for memory.
    pub out_of_memory: u32,
}

impl LiveCell {
    /// Predicted / measured - 1.
    pub fn error(&self) -> f64 {
        self.predicted_s / self.measured_s - 1.0
    }
}

/// One program's outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Live {
    /// It could not run here.
    NotRun {
        /// The program.
        program: String,
        /// On what.
        slow: SlowDevice,
        /// Why.
        reason: String,
    },
    /// It ran.
    Compared {
        /// The program.
        program: String,
        /// On what.
        slow: SlowDevice,
        /// All slow, each area fast, all fast.
        cells: Vec<LiveCell>,
        /// The area that the simulation advises.
        advised: String,
        /// The area that was measured to be best.
        best: String,
        /// How much slower than the best measured area the advised one was, as a share.
        regret: f64,
        /// Whether every run of the best one was faster than every run of the advised one; if not, the regret may be
        /// the machine's noise.
        told_apart: bool,
    },
}

/// Runs every program; `directory` is where the slow images go.
pub fn live(
    slow: SlowDevice,
    directory: &Path,
    stop: &Stop,
    mut say: impl FnMut(&str),
) -> Result<Vec<Live>> {
    let all = programs(slow == SlowDevice::Emulated)?;
    Ok(all
        .iter()
        .map(|program| {
            say(program.name);
            compare(program, slow, directory, stop).unwrap_or_else(|error| Live::NotRun {
                program: program.name.to_owned(),
                slow,
                reason: error.to_string(),
            })
        })
        .collect())
}

/// An arrangement's runs.
struct Arm {
    fast: Vec<&'static str>,
    name: &'static str,
    /// Seconds and trace of each.
    runs: Vec<(f64, Trace)>,
    failed: u32,
    out_of_memory: u32,
    /// Why the last one failed.
    reason: String,
}

impl Arm {
    fn new(name: &'static str, fast: &[&'static str]) -> Self {
        Self {
            fast: fast.to_vec(),
            name,
            runs: Vec::new(),
            failed: 0,
            out_of_memory: 0,
            reason: String::new(),
        }
    }

    /// Fastest first.
    fn sort(&mut self) {
        self.runs.sort_by(|one, other| one.0.total_cmp(&other.0));
    }

    /// The median run; of an even number the faster one in the middle.
    fn median(&self) -> Result<&(f64, Trace)> {
        self.runs
            .get(self.runs.len().saturating_sub(1) / 2)
            .ok_or_else(|| Error::Refused(format!("with {} fast, {}", self.name, self.reason)))
    }

    fn cell(&self, predicted_s: f64) -> Result<LiveCell> {
        Ok(LiveCell {
            fast: self.name.to_owned(),
            predicted_s,
            measured_s: self.median()?.0,
            measured_min_s: self.runs.first().map_or(0.0, |run| run.0),
            measured_max_s: self.runs.last().map_or(0.0, |run| run.0),
            runs: self.runs.len(),
            failed_runs: self.failed,
            out_of_memory: self.out_of_memory,
        })
    }
}

/// Whether no arrangement took long.
fn all_short(arms: &[Arm]) -> bool {
    arms.iter()
        .flat_map(|arm| &arm.runs)
        .all(|(run_s, _)| *run_s < SHORT_S)
}

fn compare(program: &Program, slow: SlowDevice, directory: &Path, stop: &Stop) -> Result<Live> {
    if let Some(tool) = missing(program) {
        return Err(Error::Refused(format!("{tool} is not installed")));
    }
    let mut arms = [
        Arm::new("nothing", &[]),
        Arm::new("fs", &["fs"]),
        Arm::new("journal", &["journal"]),
        Arm::new("swap", &["swap"]),
        Arm::new("everything", &AREAS),
    ];
    // The slow device and the fast one, before each run.
    let mut devices: [Vec<FlashModel>; 2] = [Vec::new(), Vec::new()];
    for round in 0..RUNS_MAX {
        if round >= RUNS_MIN && !all_short(&arms) {
            break;
        }
        for arm in &mut arms {
            match run(program, slow, directory, &arm.fast, stop) {
                Ok(ran) => {
                    arm.runs.push((ran.run_s, ran.trace));
                    arm.out_of_memory += ran.out_of_memory;
                    devices[usize::from(arm.fast.contains(&"fs"))].push(ran.device);
                }
                // A limited group is now and then told that it is out of memory while there is swap.
                Err(error @ Error::Refused(_)) if !stop.asked() => {
                    arm.failed += 1;
                    arm.reason = error.to_string();
                }
                Err(error) => return Err(error),
            }
        }
    }
    arms.iter_mut().for_each(Arm::sort);
    let [Some(slow_device), Some(fast_device)] = devices.map(|measured| typical(&measured)) else {
        return Err(Error::Refused("no run was made".to_owned()));
    };
    let machine = machine(slow, slow_device, fast_device)?;
    let (slow_s, trace) = arms[0].median()?;
    let chain = Chain::of(&trace.requests);
    // The trace ends with its last request; the run, with the program.
    let rest_s = (slow_s - seconds(trace.info.end_ns)).max(0.0);
    let cells = arms
        .iter()
        .map(|arm| {
            let placement = placement(trace, &arm.fast);
            let outcome = simulate(
                &trace.info,
                &trace.requests,
                &chain,
                &placement,
                &machine,
                false,
            );
            arm.cell(seconds(outcome.run_ns) + rest_s)
        })
        .collect::<Result<Vec<_>>>()?;
    let (advised, best) = advised_and_best(&cells[1..4]);
    Ok(Live::Compared {
        program: program.name.to_owned(),
        slow,
        advised: advised.fast.clone(),
        best: best.fast.clone(),
        regret: advised.measured_s / best.measured_s - 1.0,
        told_apart: best.measured_max_s < advised.measured_min_s,
        cells,
    })
}

/// The median of each figure of several measurements of one device.
fn typical(measured: &[FlashModel]) -> Option<FlashModel> {
    let figure = |of: fn(&FlashModel) -> f64| {
        let mut figures: Vec<f64> = measured.iter().map(of).collect();
        figures.sort_by(f64::total_cmp);
        figures[(figures.len() - 1) / 2]
    };
    let first = measured.first()?;
    Some(FlashModel {
        read_us: figure(|device| device.read_us),
        write_us: figure(|device| device.write_us),
        flush_us: figure(|device| device.flush_us),
        read_bandwidth: Size(figure(|device| device.read_bandwidth.0 as f64) as u64),
        write_bandwidth: Size(figure(|device| device.write_bandwidth.0 as f64) as u64),
        channels: figure(|device| f64::from(device.channels)) as u32,
        ..first.clone()
    })
}

/// The area with the shortest predicted time, and the one with the shortest measured time.
fn advised_and_best(single: &[LiveCell]) -> (&LiveCell, &LiveCell) {
    let first = |of: fn(&LiveCell) -> f64| {
        single[1..].iter().fold(
            &single[0],
            |least, cell| {
                if of(cell) < of(least) { cell } else { least }
            },
        )
    };
    (
        first(|cell| cell.predicted_s),
        first(|cell| cell.measured_s),
    )
}

/// The placement of an arrangement; an area without a request changes nothing.
fn placement(trace: &Trace, fast: &[&str]) -> Placement {
    let mut placement = Placement::slow(trace.info.areas.len());
    for (area, residence) in trace.info.areas.iter().zip(&mut placement.areas) {
        if fast.contains(&area.name.as_str()) {
            *residence = Residence::Fast;
        }
    }
    placement
}

/// What is simulated: the devices as they were measured, the emulated one as it was described.
fn machine(slow: SlowDevice, slow_device: FlashModel, fast_device: FlashModel) -> Result<Machine> {
    let fast = DeviceModel::Flash(fast_device);
    match slow {
        SlowDevice::Own => Ok(Machine {
            slow: DeviceModel::Flash(slow_device),
            fast,
            layout: BTreeMap::new(),
        }),
        SlowDevice::Emulated => {
            let mut machine = Machine::of_presets(EMULATED, "optane")?;
            if let DeviceModel::Disk(disk) = &mut machine.slow {
                // It was measured without delay: that is the software path.
                disk.path_us = slow_device.read_us;
                disk.path_bandwidth = slow_device.read_bandwidth;
            }
            machine.fast = fast;
            machine.layout = AREAS
                .iter()
                .zip(super::rig::EMULATED_BASES)
                .map(|(area, base)| ((*area).to_owned(), Size(base)))
                .collect();
            Ok(machine)
        }
    }
}

/// One run of one arrangement.
struct Ran {
    run_s: f64,
    trace: Trace,
    /// The file system's device as it was measured.
    device: FlashModel,
    out_of_memory: u32,
}

/// Runs one arrangement once.
fn run(
    program: &Program,
    slow: SlowDevice,
    directory: &Path,
    fast: &[&str],
    stop: &Stop,
) -> Result<Ran> {
    if stop.asked() {
        return Err(interrupted());
    }
    let settings = RigSettings {
        directory: directory.to_path_buf(),
        fs_bytes: 256 << 20,
        journal_bytes: 32 << 20,
        swap_bytes: 128 << 20,
        memory_bytes: program.memory_mib << 20,
        data_mode: "ordered".to_owned(),
        fast: fast.iter().map(|area| (*area).to_owned()).collect(),
        emulated: match slow {
            SlowDevice::Own => None,
            SlowDevice::Emulated => DeviceModel::preset(EMULATED),
        },
        calibrate: true,
    };
    let output = TraceFile::new();
    let shell = |text: &str| vec!["/bin/sh".to_owned(), "-c".to_owned(), text.to_owned()];
    let RigRecorded {
        recorded,
        device,
        out_of_memory,
    } = record_in_rig(
        &settings,
        &RigRun {
            prepare: shell(&program.prepare),
            command: shell(&program.run),
            output: output.0.clone(),
            time: Some(TIME_MAX),
        },
        stop,
    )?;
    if stop.asked() {
        return Err(interrupted());
    }
    match (recorded.exit_code, device) {
        (Some(0), Some(device)) => Ok(Ran {
            run_s: seconds(recorded.run_ns),
            trace: load(&output.0)?,
            device,
            out_of_memory,
        }),
        (None, _) if recorded.run_ns < TIME_MAX.as_nanos() as u64 => {
            Err(Error::Refused("the program was killed".to_owned()))
        }
        (None, _) => Err(Error::Refused(format!(
            "the program did not end within {} s",
            TIME_MAX.as_secs()
        ))),
        (Some(code), _) => Err(Error::Refused(format!(
            "the program ended with code {code}"
        ))),
    }
}

fn interrupted() -> Error {
    Error::Refused("it was interrupted".to_owned())
}

/// A trace that is removed again.
struct TraceFile(PathBuf);

impl TraceFile {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("waystation-live-{}.trace", std::process::id())))
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        // It is not there when the recording failed.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(fast: &str, predicted_s: f64, measured_s: f64) -> LiveCell {
        LiveCell {
            fast: fast.to_owned(),
            predicted_s,
            measured_s,
            measured_min_s: measured_s,
            measured_max_s: measured_s,
            runs: 1,
            failed_runs: 0,
            out_of_memory: 0,
        }
    }

    #[test]
    fn regret_is_what_following_the_advice_cost() {
        let cells = [
            cell("fs", 2.0, 3.0),
            cell("journal", 2.5, 2.4),
            cell("swap", 9.0, 9.0),
        ];
        let (advised, best) = advised_and_best(&cells);
        assert_eq!(
            (advised.fast.as_str(), best.fast.as_str()),
            ("fs", "journal")
        );
        let compared = |told_apart| Live::Compared {
            program: "web".to_owned(),
            slow: SlowDevice::Own,
            cells: cells.to_vec(),
            advised: advised.fast.clone(),
            best: best.fast.clone(),
            regret: 0.25,
            told_apart,
        };
        let text = render(&[compared(false)]);
        assert!(
            text.contains("advised fs, measured best journal, top-1 regret 25.0 %"),
            "{text}"
        );
        assert!(text.contains("do not tell which is better"), "{text}");
        assert!(!render(&[compared(true)]).contains("do not tell"));
    }

    #[test]
    fn a_device_is_what_it_was_measured_to_be_most_times() {
        let Some(DeviceModel::Flash(quiet)) = DeviceModel::preset("nvme") else {
            unreachable!("it is a flash preset")
        };
        let busy = FlashModel {
            read_us: quiet.read_us * 9.0,
            write_bandwidth: Size(quiet.write_bandwidth.0 / 9),
            ..quiet.clone()
        };
        let measured = [quiet.clone(), busy.clone(), quiet.clone()];
        assert_eq!(typical(&measured), Some(quiet));
        assert_eq!(typical(&[]), None);
    }

    #[test]
    fn the_median_run_counts_and_what_never_ran_says_why() {
        let mut arm = Arm::new("swap", &["swap"]);
        arm.reason = "the program was killed".to_owned();
        let error = arm.median().unwrap_err().to_string();
        assert!(error.contains("with swap fast, the program was killed"));
        for run_s in [3.0, 1.0, 9.0] {
            arm.runs.push((run_s, Trace::default()));
        }
        arm.sort();
        let cell = arm.cell(3.3).unwrap();
        assert!((cell.measured_s - 3.0).abs() < 1e-9 && cell.runs == 3);
        assert!((cell.measured_min_s - 1.0).abs() < 1e-9);
        assert!((cell.measured_max_s - 9.0).abs() < 1e-9);
        assert!(!all_short(std::slice::from_ref(&arm)));
    }

    #[test]
    fn what_did_not_run_is_named_with_its_reason_and_never_as_success() {
        let text = render(&[Live::NotRun {
            program: "web (nginx and wget)".to_owned(),
            slow: SlowDevice::Own,
            reason: "nginx is not installed".to_owned(),
        }]);
        assert!(text.contains("not run: nginx is not installed"), "{text}");
        assert!(!text.contains("regret"), "{text}");
    }
}
