//! The laboratory: three areas of its own for one command, on one machine.
//!
//! ```text
//!   command in a memory-limited group
//!        |  files                     |  pages that do not fit
//!   ext4 (data=ordered|journal)       |
//!     fs.img    journal.img        swap.img        files under one directory, on an emulated device, or in memory
//!     /dev/loopA  /dev/loopB       /dev/loopC      direct I/O
//! ```
//! **Nothing may be left.** Before each step its undoing is written to a state file; a keeper (a second process that
//! no signal from the terminal reaches) undoes everything when its pipe from this process closes, however this
//! process ends. `record --rig-down` undoes what even a dead keeper left.
//!
//! Images are written once before they are used: on a sparse or merely allocated file the first write of each block
//! makes the file system below commit its own journal, and no latency would be like another.

mod keeper;
mod laboratory;
mod relief;
mod undo;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Stop;
use super::calibrate::calibrate;
use super::session::{Recorded, Recording, record};
use super::system::Linux;
use crate::error::{Error, Result};
use crate::simulate::{DeviceModel, FlashModel};

use keeper::Keeper;
pub(crate) use keeper::keep;
pub(crate) use laboratory::EMULATED_BASES;
use laboratory::Rig;
pub use undo::down_all;

#[cfg(test)]
mod tests;

/// Where state files lie until the laboratory is down.
const STATE_DIRECTORY: &str = "/run/waystation-rig";
/// How often a running command is looked at.
const PAUSE: Duration = Duration::from_millis(5);
/// The areas of a laboratory, in the order of its devices.
pub(crate) const AREAS: [&str; 3] = ["fs", "journal", "swap"];

/// What to build.
#[derive(Debug, Clone, PartialEq)]
pub struct RigSettings {
    /// Where the slow images lie.
    pub directory: PathBuf,
    /// Bytes of the file system.
    pub fs_bytes: u64,
    /// Bytes of its journal.
    pub journal_bytes: u64,
    /// Bytes of swap.
    pub swap_bytes: u64,
    /// Memory that the command may use.
    pub memory_bytes: u64,
    /// ext4's data mode ("ordered", "journal", "writeback").
    pub data_mode: String,
    /// Areas whose images are in memory instead.
    pub fast: Vec<String>,
    /// A device that the machine does not have, emulated, for the areas that are not in memory.
    pub emulated: Option<DeviceModel>,
    /// Measure the file system's device before anything is on it.
    pub calibrate: bool,
}

/// What came out of a laboratory.
#[derive(Debug, Clone, PartialEq)]
pub struct RigRecorded {
    /// The recording.
    pub recorded: Recorded,
    /// The file system's device as it was measured, if that was asked for.
    pub device: Option<FlashModel>,
    /// How often the group was out of memory although it had swap, and got room for a moment instead of being killed.
    pub out_of_memory: u32,
}

impl RigSettings {
    /// Whether an area lies in memory.
    fn is_fast(&self, area: &str) -> bool {
        self.fast.iter().any(|fast| fast == area)
    }

    /// Whether what was asked for can be built.
    pub fn check(&self) -> Result<()> {
        let wrong = |text: &str| Err(Error::Usage(text.to_owned()));
        if let Some(area) = self
            .fast
            .iter()
            .find(|area| !AREAS.contains(&area.as_str()))
        {
            return wrong(&format!(
                "the laboratory has no area \"{area}\"; its areas are fs, journal and swap"
            ));
        }
        if !matches!(self.data_mode.as_str(), "ordered" | "journal" | "writeback") {
            return wrong("ext4's data mode is ordered, journal or writeback");
        }
        if self.journal_bytes < 6 << 20 {
            return wrong("ext4 takes no external journal below 6 MiB");
        }
        if self.fs_bytes < 16 << 20 || self.swap_bytes < 1 << 20 || self.memory_bytes < 4 << 20 {
            return wrong(
                "the laboratory needs at least 16 MiB of file system, 1 MiB of swap and 4 MiB of memory",
            );
        }
        Ok(())
    }
}

/// An error of this step, from what was reported.
fn failed(step: &str) -> impl Fn(String) -> Error + '_ {
    move |reason| Error::Rig {
        step: step.to_owned(),
        reason,
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A command in the group, without any code between fork and exec: the shell joins and becomes the command.
fn joined(group: &Path, command: &[String]) -> Vec<String> {
    let mut whole = vec![
        "/bin/sh".to_owned(),
        "-c".to_owned(),
        "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"".to_owned(),
        group.display().to_string(),
    ];
    whole.extend_from_slice(command);
    whole
}

/// What to do in a laboratory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RigRun {
    /// Prepares the file system; not recorded.
    pub prepare: Vec<String>,
    /// The command to record.
    pub command: Vec<String>,
    /// Where the trace goes.
    pub output: PathBuf,
    /// The longest that the command may take.
    pub time: Option<Duration>,
}

/// Builds the laboratory, prepares it, records the command in it, takes it down.
pub fn record_in_rig(settings: &RigSettings, run: &RigRun, stop: &Stop) -> Result<RigRecorded> {
    settings.check()?;
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Refused(
            "the laboratory attaches loop devices, mounts and swaps, which needs root".to_owned(),
        ));
    }
    let name = format!("waystation-rig-{}", std::process::id());
    let state_file = Path::new(STATE_DIRECTORY).join(format!("{name}.json"));
    std::fs::create_dir_all(STATE_DIRECTORY)
        .map_err(|source| Error::io("create", Path::new(STATE_DIRECTORY), source))?;
    let keeper = Keeper::start(&state_file)?;
    let mut linux = Linux {
        keeper: keeper.pipe()?,
    };
    let mut rig = Rig::begin(&mut linux, settings, state_file, &name);
    let result = work_in(&mut rig, settings, run, stop);
    let down = rig.down();
    // It ends when nobody holds its pipe.
    drop(rig);
    drop(linux);
    drop(keeper);
    // What went wrong first is what the user has to know; a laboratory that is not down is worse than either.
    down.and(result)
}

fn work_in(
    rig: &mut Rig<'_>,
    settings: &RigSettings,
    run: &RigRun,
    stop: &Stop,
) -> Result<RigRecorded> {
    rig.attach(settings)?;
    let device = if settings.calibrate {
        Some(calibrate(&rig.devices[0].0, settings.fs_bytes)?)
    } else {
        None
    };
    rig.build(settings)?;
    if stop.asked() {
        return Err(interrupted());
    }
    if !run.prepare.is_empty() {
        prepare(rig, &run.prepare, stop)?;
        rig.remount(settings)?;
    }
    rig.limit()?;
    let recording = Recording {
        devices: rig.devices.clone(),
        output: run.output.clone(),
        command: joined(&rig.group, &run.command),
        time: run.time,
        directory: Some(rig.mount.clone()),
    };
    let (limit_file, limit_bytes) = rig.limit;
    let (recorded, out_of_memory) = relief::relieved(&rig.group, limit_file, limit_bytes, || {
        record(&recording, stop)
    });
    Ok(RigRecorded {
        recorded: recorded?,
        device,
        out_of_memory,
    })
}

fn interrupted() -> Error {
    Error::Refused("it was interrupted before the command began".to_owned())
}

/// Runs the preparing command: in the group, so that it ends with the laboratory, but without its limit.
fn prepare(rig: &Rig<'_>, command: &[String], stop: &Stop) -> Result<()> {
    let command = joined(&rig.group, command);
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .current_dir(&rig.mount)
        .spawn()
        .map_err(|error| failed("prepare")(error.to_string()))?;
    let status = loop {
        let status = child
            .try_wait()
            .map_err(|error| failed("prepare")(error.to_string()))?;
        if let Some(status) = status {
            break status;
        }
        if stop.asked() {
            // What it started ends with the group.
            let _ = child.kill();
            let _ = child.wait();
            return Err(interrupted());
        }
        std::thread::sleep(PAUSE);
    };
    if status.success() {
        Ok(())
    } else {
        Err(failed("prepare")(format!(
            "{} ended with {status}",
            command.join(" ")
        )))
    }
}
