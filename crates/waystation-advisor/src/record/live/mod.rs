//! The advice against real programs: run in the laboratory, with every area fast in turn.
//!
//! Each program runs with everything slow, with each area fast and with everything fast, the arrangements taking
//! turns, so that a busy minute of the machine spoils one run of each rather than all of one. The fastest run counts.
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

/// What the slow areas lie on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlowDevice {
    /// The machine's own disk.
    Own,
    /// A disk emulated with the simulator's model.
    Emulated,
}

impl SlowDevice {
    /// Runs of each arrangement; an emulated disk's time does not depend on what else the machine does.
    fn runs(self) -> usize {
        match self {
            Self::Own => 3,
            Self::Emulated => 2,
        }
    }
}

/// One arrangement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LiveCell {
    /// What was fast.
    pub fast: String,
    /// Predicted seconds.
    pub predicted_s: f64,
    /// Measured seconds, fastest run.
    pub measured_s: f64,
    /// Measured seconds, slowest run.
    pub measured_max_s: f64,
    /// Runs in which the program did not come to its end.
    pub failed_runs: u32,
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
        /// How much slower than the best measured area it was, as a share.
        regret: f64,
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
    /// The fastest run and its trace.
    best: Option<(f64, Trace)>,
    slowest_s: f64,
    failed: u32,
    /// Why the last one failed.
    reason: String,
}

fn arms() -> [Arm; 5] {
    let arm = |name: &'static str, fast: &[&'static str]| Arm {
        fast: fast.to_vec(),
        name,
        best: None,
        slowest_s: 0.0,
        failed: 0,
        reason: String::new(),
    };
    [
        arm("nothing", &[]),
        arm("fs", &["fs"]),
        arm("journal", &["journal"]),
        arm("swap", &["swap"]),
        arm("everything", &AREAS),
    ]
}

fn compare(program: &Program, slow: SlowDevice, directory: &Path, stop: &Stop) -> Result<Live> {
    if let Some(tool) = missing(program) {
        return Err(Error::Refused(format!("{tool} is not installed")));
    }
    let mut arms = arms();
    // The slow device and the fast one, as they were at their best: it is the best runs that are predicted.
    let mut devices: [Option<FlashModel>; 2] = [None, None];
    for _ in 0..slow.runs() {
        for arm in &mut arms {
            let (run_s, trace, measured) = match run(program, slow, directory, &arm.fast, stop) {
                Ok(ran) => ran,
                // A limited group is now and then told that it is out of memory while there is swap.
                Err(error @ Error::Refused(_)) if !stop.asked() => {
                    arm.failed += 1;
                    arm.reason = error.to_string();
                    continue;
                }
                Err(error) => return Err(error),
            };
            arm.slowest_s = arm.slowest_s.max(run_s);
            if arm.best.as_ref().is_none_or(|(known, _)| run_s < *known) {
                arm.best = Some((run_s, trace));
            }
            let device = &mut devices[usize::from(arm.fast.contains(&"fs"))];
            *device = Some(match device.take() {
                Some(known) => at_its_best(&known, &measured),
                None => measured,
            });
        }
    }
    let best = |arm: &Arm| {
        arm.best
            .clone()
            .ok_or_else(|| Error::Refused(format!("with {} fast, {}", arm.name, arm.reason)))
    };
    let ran = arms.iter().map(best).collect::<Result<Vec<_>>>()?;
    let [Some(slow_device), Some(fast_device)] = devices else {
        return Err(Error::Refused("no run was made".to_owned()));
    };
    let (slow_s, trace) = &ran[0];
    let machine = machine(slow, slow_device, fast_device)?;
    let chain = Chain::of(&trace.requests);
    // The trace ends with its last request; the run, with the program.
    let rest_s = (slow_s - seconds(trace.info.end_ns)).max(0.0);
    let mut cells = Vec::new();
    for (arm, (run_s, _)) in arms.iter().zip(&ran) {
        let placement = placement(trace, &arm.fast);
        let outcome = simulate(
            &trace.info,
            &trace.requests,
            &chain,
            &placement,
            &machine,
            false,
        );
        cells.push(LiveCell {
            fast: arm.name.to_owned(),
            predicted_s: seconds(outcome.run_ns) + rest_s,
            measured_s: *run_s,
            measured_max_s: arm.slowest_s,
            failed_runs: arm.failed,
        });
    }
    let (advised, regret) = advised(&cells[1..4]);
    Ok(Live::Compared {
        program: program.name.to_owned(),
        slow,
        cells,
        advised,
        regret,
    })
}

/// The better of each figure of two measurements of one device.
fn at_its_best(one: &FlashModel, other: &FlashModel) -> FlashModel {
    FlashModel {
        read_us: one.read_us.min(other.read_us),
        write_us: one.write_us.min(other.write_us),
        flush_us: one.flush_us.min(other.flush_us),
        read_bandwidth: Size(one.read_bandwidth.0.max(other.read_bandwidth.0)),
        write_bandwidth: Size(one.write_bandwidth.0.max(other.write_bandwidth.0)),
        channels: one.channels.max(other.channels),
        ..one.clone()
    }
}

/// The area with the shortest predicted time, and how much slower than the best one it was measured to be.
fn advised(single: &[LiveCell]) -> (String, f64) {
    let advised = single
        .iter()
        .min_by(|one, other| one.predicted_s.total_cmp(&other.predicted_s));
    let best = single
        .iter()
        .min_by(|one, other| one.measured_s.total_cmp(&other.measured_s));
    match (advised, best) {
        (Some(advised), Some(best)) => (
            advised.fast.clone(),
            advised.measured_s / best.measured_s - 1.0,
        ),
        _ => (String::new(), 0.0),
    }
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

/// Runs one arrangement once: seconds, trace, and the file system's device.
fn run(
    program: &Program,
    slow: SlowDevice,
    directory: &Path,
    fast: &[&str],
    stop: &Stop,
) -> Result<(f64, Trace, FlashModel)> {
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
    let RigRecorded { recorded, device } = record_in_rig(
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
        return Err(Error::Refused("it was interrupted".to_owned()));
    }
    match (recorded.exit_code, device) {
        (Some(0), Some(device)) => Ok((seconds(recorded.run_ns), load(&output.0)?, device)),
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
            measured_max_s: measured_s,
            failed_runs: 0,
        }
    }

    #[test]
    fn regret_is_what_following_the_advice_cost() {
        let cells = [
            cell("fs", 2.0, 3.0),
            cell("journal", 2.5, 2.4),
            cell("swap", 9.0, 9.0),
        ];
        let (area, regret) = advised(&cells);
        assert_eq!(area, "fs");
        assert!((regret - 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_device_is_as_good_as_its_best_measurement() {
        let Some(DeviceModel::Flash(quiet)) = DeviceModel::preset("nvme") else {
            unreachable!("it is a flash preset")
        };
        let busy = FlashModel {
            read_us: quiet.read_us * 9.0,
            write_bandwidth: Size(quiet.write_bandwidth.0 / 9),
            ..quiet.clone()
        };
        assert_eq!(at_its_best(&busy, &quiet), quiet);
        assert_eq!(at_its_best(&quiet, &busy), quiet);
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
