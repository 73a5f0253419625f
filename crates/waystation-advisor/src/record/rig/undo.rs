//! How each step of the laboratory is undone.
//!
//! Undoing goes backwards, is repeatable (what is undone already is no failure), and never removes a directory that
//! something is still mounted on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{STATE_DIRECTORY, failed, text};
use crate::error::{Error, Result};
use crate::record::system::{Linux, System};

/// A device that was just detached may be busy for a moment.
const TRIES: u32 = 100;
const ZRAM_REMOVE: &str = "/sys/class/zram-control/hot_remove";
const PAUSE: Duration = Duration::from_millis(20);

/// How to undo one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "undo", content = "what", rename_all = "kebab-case")]
pub(super) enum Undo {
    RemoveDirectory(PathBuf),
    RemoveFile(PathBuf),
    /// Detach every loop device of this file.
    Detach(PathBuf),
    Unmount(PathBuf),
    /// Swap off every loop device of this file.
    SwapOff(PathBuf),
    /// Swap off and remove this device of compressed memory.
    RemoveZram(u32),
    /// End the processes of this group and remove it.
    RemoveGroup(PathBuf),
    /// Let the emulated device behind this control file answer at once, so that the rest is quick.
    Quicken(PathBuf),
}

/// Steps that were begun, oldest first.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) undo: Vec<Undo>,
}

/// Undoes the steps, last first. One that fails does not keep the others from being undone.
pub(super) fn undo_all(system: &mut dyn System, state: &mut State) -> Result<()> {
    let mut left = Vec::new();
    let mut first_error = None;
    while let Some(undo) = state.undo.pop() {
        if let Err(reason) = undo_one(system, &undo) {
            first_error.get_or_insert(reason);
            left.insert(0, undo);
        }
    }
    state.undo = left;
    first_error.map_or(Ok(()), |reason| {
        Err(Error::Rig {
            step: "be taken down completely (run `waystation place record --rig-down` again)"
                .to_owned(),
            reason,
        })
    })
}

fn undo_one(system: &mut dyn System, undo: &Undo) -> Result<(), String> {
    let mounts = |system: &mut dyn System| system.read(Path::new("/proc/mounts"));
    match undo {
        Undo::RemoveFile(path) => system.run("rm", &["-f", &text(path)]).map(|_| ()),
        Undo::RemoveDirectory(path) => {
            let below = format!(" {}", text(path));
            if mounts(system)?.lines().any(|line| line.contains(&below)) {
                return Err(format!("something is still mounted on {}", text(path)));
            }
            // Only if empty: what is not ours stays.
            system
                .run("rmdir", &["--ignore-fail-on-non-empty", &text(path)])
                .or_else(|reason| {
                    if reason.contains("No such file") {
                        Ok(String::new())
                    } else {
                        Err(reason)
                    }
                })?;
            Ok(())
        }
        Undo::Unmount(path) => {
            let entry = format!(" {} ", text(path));
            for again in (0..TRIES).rev() {
                if !mounts(system)?.contains(&entry) {
                    break;
                }
                match system.run("umount", &[&text(path)]) {
                    Err(reason) if again > 0 && reason.contains("busy") => {
                        std::thread::sleep(PAUSE);
                    }
                    outcome => {
                        outcome?;
                    }
                }
            }
            Ok(())
        }
        Undo::Detach(image) => {
            for device in loops(system, image)? {
                system.run("losetup", &["--detach", &device])?;
            }
            Ok(())
        }
        Undo::SwapOff(image) => {
            for device in loops(system, image)? {
                swap_off(system, &device)?;
            }
            Ok(())
        }
        Undo::RemoveZram(number) => {
            let device = format!("/dev/zram{number}");
            swap_off(system, &device)?;
            let reset = format!("/sys/block/zram{number}/reset");
            if system
                .read(Path::new(&format!("/sys/block/zram{number}/disksize")))
                .is_ok()
            {
                system.write(Path::new(&reset), "1")?;
                system.write(Path::new(ZRAM_REMOVE), &number.to_string())?;
            }
            Ok(())
        }
        Undo::RemoveGroup(group) => remove_group(system, group),
        Undo::Quicken(control) => {
            // If its process is gone there is nothing to quicken.
            let _ = system.write(control, "0");
            Ok(())
        }
    }
}

fn swap_off(system: &mut dyn System, device: &str) -> Result<(), String> {
    let swaps = system.read(Path::new("/proc/swaps"))?;
    let is_on = |line: &str| line.split_ascii_whitespace().next() == Some(device);
    if swaps.lines().any(is_on) {
        system.run("swapoff", &[device])?;
    }
    Ok(())
}

/// The loop devices of an image file. The file itself is not looked at: the device that it is on may be gone.
fn loops(system: &mut dyn System, image: &Path) -> Result<Vec<String>, String> {
    let listed = system.run(
        "losetup",
        &["--noheadings", "--raw", "--output", "NAME,BACK-FILE"],
    )?;
    let image = text(image);
    Ok(listed
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, file)| *file == image || *file == format!("{image} (deleted)"))
        .map(|(device, _)| device.to_owned())
        .collect())
}

/// Until the group is gone a process that was started for it may still join.
fn remove_group(system: &mut dyn System, group: &Path) -> Result<(), String> {
    let mut outcome = Ok(());
    for _ in 0..TRIES {
        let Ok(processes) = system.read(&group.join("cgroup.procs")) else {
            return Ok(());
        };
        let processes: Vec<&str> = processes.split_whitespace().collect();
        if processes.is_empty() {
            outcome = system.run("rmdir", &[&text(group)]).map(|_| ());
            if outcome.is_ok() {
                return Ok(());
            }
        } else {
            let mut arguments = vec!["-KILL"];
            arguments.extend(processes);
            // They may have ended in between.
            let _ = system.run("kill", &arguments);
        }
        std::thread::sleep(PAUSE);
    }
    outcome.and_then(|()| Err(format!("processes in {} do not end", text(group))))
}

pub(super) fn undo_file(system: &mut dyn System, state_file: &Path) -> Result<()> {
    let Ok(text) = system.read(state_file) else {
        return Ok(());
    };
    let mut state: State =
        serde_json::from_str(&text).map_err(|error| failed("read its state")(error.to_string()))?;
    undo_all(system, &mut state)?;
    system
        .run("rm", &["-f", &state_file.display().to_string()])
        .map(|_| ())
        .map_err(failed("forget its state"))
}

/// Undoes every laboratory that was left; returns how many there were.
pub fn down_all() -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(STATE_DIRECTORY)
        .into_iter()
        .flatten()
        .flatten()
    {
        let path = entry.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            undo_file(&mut Linux::default(), &path)?;
            count += 1;
        }
    }
    crate::record::tracefs::remove_leftovers();
    Ok(count)
}
