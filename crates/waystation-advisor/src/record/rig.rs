//! The laboratory: three areas of its own for one command, on one machine.
//!
//! ```text
//!   command in a memory-limited group
//!        |  files                     |  pages that do not fit
//!   ext4 (data=ordered|journal)       |
//!     fs.img    journal.img        swap.img        files under one directory (or in memory: "fast")
//!     /dev/loopA  /dev/loopB       /dev/loopC      direct I/O
//! ```
//! **Nothing may be left.** Before each step its undoing is written to a state file; a keeper (a second process that
//! no signal from the terminal reaches) undoes everything when its pipe from this process closes, however this
//! process ends. `record --rig-down` undoes what even a dead keeper left. Undoing goes backwards, is repeatable, and
//! never removes a directory that something is still mounted on.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Stop;
use super::session::{Recorded, Recording, record};
use super::system::{Linux, System};
use crate::error::{Error, Result};

#[cfg(test)]
mod tests;

/// Where state files lie until the laboratory is down.
const STATE_DIRECTORY: &str = "/run/waystation-rig";
const FAST_DIRECTORY: &str = "/dev/shm";
const GROUPS: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
];

/// What to build.
#[derive(Debug, Clone, PartialEq, Eq)]
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
}

impl RigSettings {
    /// Whether what was asked for can be built.
    pub fn check(&self) -> Result<()> {
        let wrong = |text: &str| Err(Error::Usage(text.to_owned()));
        if let Some(area) = self
            .fast
            .iter()
            .find(|area| !matches!(area.as_str(), "fs" | "journal" | "swap"))
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

/// How to undo one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "undo", content = "what", rename_all = "kebab-case")]
enum Undo {
    RemoveDirectory(PathBuf),
    RemoveFile(PathBuf),
    /// Detach every loop device of this file.
    Detach(PathBuf),
    Unmount(PathBuf),
    /// Swap off every loop device of this file.
    SwapOff(PathBuf),
    /// End the processes of this group and remove it.
    RemoveGroup(PathBuf),
}

/// Steps that were begun, oldest first.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    undo: Vec<Undo>,
}

/// The built laboratory.
struct Rig<'a> {
    system: &'a mut dyn System,
    state: State,
    state_file: PathBuf,
    devices: Vec<(PathBuf, String)>,
    mount: PathBuf,
    group: PathBuf,
    /// The group's limit: file and bytes.
    limit: (&'static str, u64),
}

fn failed(step: &str) -> impl Fn(String) -> Error + '_ {
    move |reason| Error::Rig {
        step: step.to_owned(),
        reason,
    }
}

impl<'a> Rig<'a> {
    /// Notes how a step will be undone, before it is done.
    fn intend(&mut self, undo: Undo) -> Result<()> {
        self.state.undo.push(undo);
        let text = serde_json::to_string_pretty(&self.state)
            .map_err(|error| failed("note its steps")(error.to_string()))?;
        self.system
            .replace(&self.state_file, &text)
            .map_err(failed("note its steps"))
    }

    /// Builds everything; on failure what was built is undone before the error is returned.
    fn up(
        system: &'a mut dyn System,
        settings: &RigSettings,
        state_file: PathBuf,
        name: &str,
    ) -> Result<Self> {
        let group_root = GROUPS.iter().find(|(root, limit)| {
            Path::new(root).join(limit).exists()
                || Path::new(root).join("cgroup.controllers").exists()
        });
        let mut rig = Self {
            system,
            state: State::default(),
            state_file,
            devices: Vec::new(),
            mount: settings.directory.join(name).join("mount"),
            limit: (
                group_root.map_or(GROUPS[0].1, |(_, limit)| limit),
                settings.memory_bytes,
            ),
            group: PathBuf::from(group_root.map_or(GROUPS[0].0, |(root, _)| root)).join(name),
        };
        match rig.build(settings, name) {
            Ok(()) => Ok(rig),
            Err(error) => {
                rig.down()?;
                Err(error)
            }
        }
    }

    fn build(&mut self, settings: &RigSettings, name: &str) -> Result<()> {
        let slow = settings.directory.join(name);
        let fast = Path::new(FAST_DIRECTORY).join(name);
        for directory in [&slow, &fast] {
            self.intend(Undo::RemoveDirectory(directory.clone()))?;
            self.run("make its directories", "mkdir", &["-p", &text(directory)])?;
        }
        for (area, bytes) in [
            ("fs", settings.fs_bytes),
            ("journal", settings.journal_bytes),
            ("swap", settings.swap_bytes),
        ] {
            let is_fast = settings.fast.iter().any(|name| name == area);
            let image = if is_fast { &fast } else { &slow }.join(format!("{area}.img"));
            self.intend(Undo::RemoveFile(image.clone()))?;
            self.run(
                "make the image files",
                "fallocate",
                &["-l", &bytes.to_string(), &text(&image)],
            )?;
            self.intend(Undo::Detach(image.clone()))?;
            let device = self.run(
                "attach a loop device",
                "losetup",
                &["--find", "--show", "--direct-io=on", &text(&image)],
            )?;
            self.devices.push((PathBuf::from(device), area.to_owned()));
        }
        let device = |rig: &Self, at: usize| text(&rig.devices[at].0);
        let (fs, journal, swap) = (device(self, 0), device(self, 1), device(self, 2));
        self.run(
            "make the journal",
            "mke2fs",
            &["-q", "-F", "-b", "4096", "-O", "journal_dev", &journal],
        )?;
        let external = format!("device={journal}");
        let options = [
            "-q",
            "-F",
            "-b",
            "4096",
            "-E",
            "lazy_itable_init=0,nodiscard",
            "-J",
            &external,
            &fs,
        ];
        self.run("make the file system", "mkfs.ext4", &options)?;
        self.run("make the swap area", "mkswap", &[&swap])?;
        let mount = self.mount.clone();
        self.intend(Undo::RemoveDirectory(mount.clone()))?;
        self.run("make the mount point", "mkdir", &["-p", &text(&mount)])?;
        self.intend(Undo::Unmount(mount.clone()))?;
        let mode = format!("data={}", settings.data_mode);
        self.run(
            "mount the file system",
            "mount",
            &["-t", "ext4", "-o", &mode, &fs, &text(&mount)],
        )?;
        let in_memory = settings.fast.iter().any(|area| area == "swap");
        let swap_image = if in_memory { &fast } else { &slow }.join("swap.img");
        self.intend(Undo::SwapOff(swap_image))?;
        self.run("turn swap on", "swapon", &["--priority", "10", &swap])?;
        let group = self.group.clone();
        self.intend(Undo::RemoveGroup(group.clone()))?;
        self.run("make the memory group", "mkdir", &["-p", &text(&group)])
            .map(|_| ())
    }

    fn run(&mut self, step: &str, program: &str, arguments: &[&str]) -> Result<String> {
        self.system.run(program, arguments).map_err(failed(step))
    }

    /// Undoes everything and forgets the state file; the first thing that could not be undone is the error.
    fn down(&mut self) -> Result<()> {
        undo_all(self.system, &mut self.state)?;
        let file = text(&self.state_file);
        self.run("forget its state", "rm", &["-f", &file])
            .map(|_| ())
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Undoes the steps, last first. One that fails does not keep the others from being undone.
fn undo_all(system: &mut dyn System, state: &mut State) -> Result<()> {
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
            if mounts(system)?.contains(&entry) {
                system.run("umount", &[&text(path)])?;
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
            let swaps = system.read(Path::new("/proc/swaps"))?;
            for device in loops(system, image)? {
                if swaps
                    .lines()
                    .any(|line| line.split(' ').next() == Some(&device))
                {
                    system.run("swapoff", &[&device])?;
                }
            }
            Ok(())
        }
        Undo::RemoveGroup(group) => remove_group(system, group),
    }
}

/// The loop devices of an image file.
fn loops(system: &mut dyn System, image: &Path) -> Result<Vec<String>, String> {
    let listed = system.run(
        "losetup",
        &[
            "--noheadings",
            "--output",
            "NAME",
            "--associated",
            &text(image),
        ],
    );
    match listed {
        Ok(text) => Ok(text
            .lines()
            .map(|line| line.trim().to_owned())
            .filter(|line| !line.is_empty())
            .collect()),
        Err(reason) if reason.contains("No such file") => Ok(Vec::new()),
        Err(reason) => Err(reason),
    }
}

fn remove_group(system: &mut dyn System, group: &Path) -> Result<(), String> {
    for _ in 0..100 {
        let Ok(processes) = system.read(&group.join("cgroup.procs")) else {
            return Ok(());
        };
        let processes: Vec<&str> = processes.split_whitespace().collect();
        if processes.is_empty() {
            break;
        }
        let mut arguments = vec!["-KILL"];
        arguments.extend(processes);
        // They may have ended in between.
        let _ = system.run("kill", &arguments);
        std::thread::sleep(Duration::from_millis(20));
    }
    system.run("rmdir", &[&text(group)]).map(|_| ())
}

/// The process that takes down what this one leaves.
struct Keeper {
    child: Child,
}

impl Keeper {
    fn start(state_file: &Path) -> Result<Self> {
        use std::os::unix::process::CommandExt;
        let program = std::env::current_exe()
            .map_err(|error| failed("find its own program")(error.to_string()))?;
        let child = Command::new(program)
            .args(["place", "record", "--rig-keeper"])
            .arg(state_file)
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| failed("start its keeper")(error.to_string()))?;
        Ok(Self { child })
    }
}

impl Keeper {
    /// The writing end of its pipe, once more.
    fn pipe(&self) -> Result<Option<OwnedFd>> {
        let Some(stdin) = &self.child.stdin else {
            return Ok(None);
        };
        let pipe = stdin.as_fd().try_clone_to_owned();
        pipe.map(Some)
            .map_err(|error| failed("reach its keeper")(error.to_string()))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Closing its input ends it, after it has undone whatever is left.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// What the keeper process does: waits until its input ends, then undoes what the state file still names.
pub(crate) fn keep(state_file: &Path) -> Result<()> {
    // Signals to this process are ignored until its input has ended.
    let _stop = Stop::on_signals();
    // Whatever comes, the end counts.
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    undo_file(&mut Linux::default(), state_file)?;
    super::tracefs::remove_leftovers();
    Ok(())
}

fn undo_file(system: &mut dyn System, state_file: &Path) -> Result<()> {
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
    super::tracefs::remove_leftovers();
    Ok(count)
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

/// Builds the laboratory, prepares it with `prepare` (not recorded), records `command` in it, takes it down.
pub fn record_in_rig(
    settings: &RigSettings,
    prepare: &[String],
    command: &[String],
    output: &Path,
    time: Option<Duration>,
    stop: &Stop,
) -> Result<Recorded> {
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
    let mut rig = Rig::up(&mut linux, settings, state_file, &name)?;
    let result = run_in(&mut rig, prepare, command, output, time, stop);
    let down = rig.down();
    // It ends when nobody holds its pipe.
    drop(rig);
    drop(linux);
    drop(keeper);
    // What went wrong first is what the user has to know; a laboratory that is not down is worse than either.
    down.and(result)
}

fn run_in(
    rig: &mut Rig<'_>,
    prepare: &[String],
    command: &[String],
    output: &Path,
    time: Option<Duration>,
    stop: &Stop,
) -> Result<Recorded> {
    if !prepare.is_empty() {
        // In the group too, so that it ends with the laboratory; the limit comes after it.
        let prepare = joined(&rig.group, prepare);
        let prepared = Command::new(&prepare[0])
            .args(&prepare[1..])
            .current_dir(&rig.mount)
            .status()
            .map_err(|error| failed("prepare")(error.to_string()))?;
        if !prepared.success() {
            return Err(failed("prepare")(format!(
                "{} ended with {prepared}",
                prepare.join(" ")
            )));
        }
        remount(rig)?;
    }
    let (file, bytes) = rig.limit;
    rig.system
        .write(&rig.group.join(file), &bytes.to_string())
        .map_err(failed("limit the memory"))?;
    let recording = Recording {
        devices: rig.devices.clone(),
        output: output.to_path_buf(),
        command: joined(&rig.group, command),
        time,
        directory: Some(rig.mount.clone()),
    };
    record(&recording, stop)
}

/// Unmounts and mounts again, so that the command begins with nothing of the file system in memory.
fn remount(rig: &mut Rig<'_>) -> Result<()> {
    let mount = text(&rig.mount);
    let options = rig.run(
        "look at its mounts",
        "findmnt",
        &["--noheadings", "--output", "OPTIONS", &mount],
    )?;
    let mode = options
        .split(',')
        .find(|option| option.starts_with("data="))
        .unwrap_or("data=ordered")
        .to_owned();
    let fs = text(&rig.devices[0].0);
    rig.run("empty the page cache", "umount", &[&mount])?;
    rig.run(
        "mount the file system again",
        "mount",
        &["-t", "ext4", "-o", &mode, &fs, &mount],
    )
    .map(|_| ())
}
