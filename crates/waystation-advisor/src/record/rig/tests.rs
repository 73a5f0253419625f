//! The laboratory on a pretended machine: every step that fails or dies leaves nothing behind.

use std::collections::BTreeSet;

use super::super::system::System;
use super::undo::{State, Undo, undo_all, undo_file};
use super::*;

#[derive(Debug, Default, PartialEq, Eq)]
enum Latecomer {
    #[default]
    None,
    Starting,
    Joined,
}

/// A machine that keeps account of what is attached, mounted and swapped on, and fails at a chosen call.
#[derive(Default)]
struct Scripted {
    fail_at: Option<usize>,
    calls: usize,
    failed: bool,
    directories: BTreeSet<String>,
    files: BTreeSet<String>,
    /// Device to image.
    loops: Vec<(String, String)>,
    mounts: BTreeSet<String>,
    swaps: BTreeSet<String>,
    /// Devices of compressed memory.
    zrams: BTreeSet<u32>,
    /// So many unmounts are refused as busy.
    busy: u32,
    /// A process that joins the group when it seems empty.
    latecomer: Latecomer,
    state: Option<String>,
    /// Everything that was ever noted.
    state_ever: String,
}

impl Scripted {
    fn step(&mut self) -> Result<(), String> {
        let call = self.calls;
        self.calls += 1;
        if self.fail_at == Some(call) {
            self.failed = true;
            return Err("No space left on device".to_owned());
        }
        Ok(())
    }

    fn is_clean(&self) -> bool {
        self.directories.is_empty()
            && self.files.is_empty()
            && self.loops.is_empty()
            && self.mounts.is_empty()
            && self.swaps.is_empty()
            && self.zrams.is_empty()
    }
}

fn joined_lines(names: &BTreeSet<String>, end: &str) -> String {
    let lines: Vec<String> = names.iter().map(|name| format!("{name}{end}")).collect();
    lines.join("\n")
}

impl System for Scripted {
    #[expect(clippy::too_many_lines, reason = "a table: an arm for each kind")]
    fn run(&mut self, program: &str, arguments: &[&str]) -> Result<String, String> {
        if !self.failed {
            self.step()?;
        }
        let last = arguments
            .last()
            .map_or(String::new(), |last| (*last).to_owned());
        match program {
            "mkdir" => {
                self.directories.insert(last);
            }
            "rmdir" if last.contains("/cgroup/") && self.latecomer != Latecomer::None => {
                self.latecomer = Latecomer::Joined;
                return Err("Device or resource busy".to_owned());
            }
            "kill" => self.latecomer = Latecomer::None,
            "rmdir" if !self.directories.remove(&last) => {
                return Err("No such file or directory".to_owned());
            }
            "dd" => {
                let file = last.strip_prefix("of=").unwrap();
                self.files.insert(file.to_owned());
            }
            "sh" => {
                // The emulated device is mounted by the time its starter has ended.
                let description = Path::new(arguments[3]).parent().unwrap();
                let name = description.file_name().unwrap().to_str().unwrap();
                self.mounts
                    .insert(format!("waystation /var/tmp/{name}/emulated fuse"));
            }
            "rm" => {
                if last == "/run/x.json" {
                    self.state = None;
                }
                self.files.remove(&last);
            }
            "losetup" if arguments[0] == "--find" => {
                let device = format!("/dev/loop{}", self.loops.len());
                self.loops.push((device.clone(), last));
                return Ok(device);
            }
            "losetup" if arguments[0] == "--detach" => {
                assert!(
                    !self.mounts.iter().any(|mount| mount.contains(&last))
                        && !self.swaps.contains(&last),
                    "detached while in use"
                );
                self.loops.retain(|(device, _)| *device != last);
            }
            "losetup" => {
                let lines: Vec<String> = self
                    .loops
                    .iter()
                    .map(|(device, image)| format!("{device} {image}"))
                    .collect();
                return Ok(lines.join("\n"));
            }
            "mount" => {
                self.mounts.insert(format!("{} {last} ext4", arguments[4]));
            }
            "umount" if self.busy > 0 => {
                self.busy -= 1;
                return Err("umount: /var/tmp/rig/mount: target is busy.".to_owned());
            }
            "umount" => {
                self.mounts.retain(|mount| !mount.contains(&last));
            }
            "swapon" => {
                self.swaps.insert(last);
            }
            "swapoff" => {
                self.swaps.remove(&last);
            }
            _ => {}
        }
        Ok(String::new())
    }

    fn write(&mut self, path: &Path, text: &str) -> Result<(), String> {
        if !self.failed {
            self.step()?;
        }
        if path == Path::new("/run/x.json") {
            self.state = Some(text.to_owned());
            self.state_ever.push_str(text);
        }
        if path.ends_with("hot_remove") {
            let number = text.parse().unwrap();
            assert!(!self.swaps.contains(&format!("/dev/zram{number}")));
            self.zrams.remove(&number);
        }
        Ok(())
    }

    fn replace(&mut self, path: &Path, text: &str) -> Result<(), String> {
        self.write(path, text)
    }

    fn read(&mut self, path: &Path) -> Result<String, String> {
        match path.to_str() {
            Some("/proc/mounts") => Ok(joined_lines(&self.mounts, "")),
            Some("/proc/swaps") => Ok(joined_lines(&self.swaps, " partition")),
            Some(path)
                if path.ends_with("cgroup.procs")
                    && self
                        .directories
                        .iter()
                        .any(|directory| path.starts_with(directory.as_str())) =>
            {
                let is_in = self.latecomer == Latecomer::Joined;
                Ok(if is_in { "77\n" } else { "" }.to_owned())
            }
            Some("/sys/class/zram-control/hot_add") => {
                self.zrams.insert(3);
                Ok("3\n".to_owned())
            }
            Some("/sys/block/zram3/disksize") if self.zrams.contains(&3) => Ok("0".to_owned()),
            Some("/run/x.json") => self.state.clone().ok_or_else(|| "No such file".to_owned()),
            _ => Err("No such file or directory".to_owned()),
        }
    }
}

fn settings() -> RigSettings {
    RigSettings {
        directory: PathBuf::from("/var/tmp"),
        fs_bytes: 1 << 28,
        journal_bytes: 1 << 25,
        swap_bytes: 1 << 28,
        memory_bytes: 1 << 25,
        data_mode: "ordered".to_owned(),
        fast: vec!["journal".to_owned()],
        emulated: None,
        calibrate: false,
    }
}

/// The same with swap in memory.
fn fast_swap() -> RigSettings {
    RigSettings {
        fast: vec!["swap".to_owned()],
        ..settings()
    }
}

/// The same on an emulated disk.
fn emulated() -> RigSettings {
    RigSettings {
        emulated: DeviceModel::preset("hdd"),
        ..settings()
    }
}

fn build<'a>(machine: &'a mut Scripted, settings: &RigSettings) -> (Rig<'a>, Result<()>) {
    let mut rig = Rig::begin(machine, settings, state_file(), "rig");
    let outcome = rig
        .attach(settings)
        .and_then(|()| rig.build(settings))
        .and_then(|()| rig.limit());
    (rig, outcome)
}

fn state_file() -> PathBuf {
    PathBuf::from("/run/x.json")
}

#[test]
fn up_and_down_leaves_nothing() {
    for settings in [settings(), fast_swap(), emulated()] {
        let mut machine = Scripted::default();
        let (mut rig, outcome) = build(&mut machine, &settings);
        outcome.unwrap();
        assert_eq!(rig.devices.len(), 3);
        rig.down().unwrap();
        assert!(machine.is_clean());
        assert_eq!(machine.state, None);
    }
}

#[test]
fn a_fast_area_lies_in_memory_and_the_others_on_one_slow_device() {
    let images = |settings: &RigSettings| -> Vec<String> {
        let mut machine = Scripted::default();
        let (rig, outcome) = build(&mut machine, settings);
        outcome.unwrap();
        drop(rig);
        machine.loops.into_iter().map(|(_, image)| image).collect()
    };
    assert_eq!(
        images(&settings()),
        [
            "/var/tmp/rig/fs.img",
            "/dev/shm/rig/journal.img",
            "/var/tmp/rig/swap.img"
        ]
    );
    assert_eq!(
        images(&emulated()),
        [
            "/var/tmp/rig/emulated/fs.img",
            "/dev/shm/rig/journal.img",
            "/var/tmp/rig/emulated/swap.img"
        ]
    );
}

#[test]
fn a_failure_at_any_step_leaves_nothing() {
    for settings in [settings(), fast_swap(), emulated()] {
        let mut whole = Scripted::default();
        build(&mut whole, &settings).1.unwrap();
        assert!(whole.calls > 20);
        for call in 0..whole.calls {
            let mut machine = Scripted {
                fail_at: Some(call),
                ..Scripted::default()
            };
            let (mut rig, outcome) = build(&mut machine, &settings);
            let error = outcome.unwrap_err();
            assert!(error.to_string().contains("No space left"), "{error}");
            rig.down().unwrap();
            assert!(
                machine.is_clean(),
                "call {call}: {:?} {:?} {:?}",
                machine.directories,
                machine.mounts,
                machine.loops
            );
        }
    }
}

#[test]
fn a_process_killed_at_any_step_is_cleaned_up_from_the_state_file() {
    for settings in [settings(), fast_swap(), emulated()] {
        let mut whole = Scripted::default();
        build(&mut whole, &settings).1.unwrap();
        for call in 0..whole.calls {
            let mut machine = Scripted {
                fail_at: Some(call),
                ..Scripted::default()
            };
            // Building stops here, as if the process had died: nothing of it is undone by itself.
            assert!(build(&mut machine, &settings).1.is_err());
            undo_file(&mut machine, &state_file()).unwrap();
            let noted = machine.state_ever.contains("remove-zram");
            if !noted {
                // Made and told in one step: an unused device without memory may stay.
                machine.zrams.clear();
            }
            assert!(machine.is_clean(), "call {call}");
            undo_file(&mut machine, &state_file()).unwrap();
        }
    }
}

#[test]
fn a_directory_with_a_mount_in_it_is_never_removed() {
    let mut machine = Scripted::default();
    machine.directories.insert("/var/tmp/rig".to_owned());
    machine
        .mounts
        .insert("/dev/other /var/tmp/rig/elsewhere ext4".to_owned());
    let mut state = State {
        undo: vec![Undo::RemoveDirectory(PathBuf::from("/var/tmp/rig"))],
    };
    let error = undo_all(&mut machine, &mut state).unwrap_err();
    assert!(error.to_string().contains("still mounted"), "{error}");
    assert_eq!(state.undo.len(), 1, "it can be tried again");
    assert!(machine.directories.contains("/var/tmp/rig"));
}

#[test]
fn a_device_that_is_busy_for_a_moment_is_tried_again() {
    let mut machine = Scripted::default();
    let (mut rig, outcome) = build(&mut machine, &settings());
    outcome.unwrap();
    let state = std::mem::take(&mut rig.state);
    drop(rig);
    machine.busy = 3;
    let mut left = state;
    undo_all(&mut machine, &mut left).unwrap();
    assert!(machine.is_clean());
    assert_eq!(machine.busy, 0);
}

#[test]
fn a_process_that_joins_while_the_group_goes_is_ended() {
    let mut machine = Scripted {
        latecomer: Latecomer::Starting,
        ..Scripted::default()
    };
    let (mut rig, outcome) = build(&mut machine, &settings());
    outcome.unwrap();
    rig.down().unwrap();
    assert!(machine.is_clean());
    assert_eq!(machine.latecomer, Latecomer::None);
}

#[test]
fn what_stays_busy_is_an_error_and_can_be_undone_later() {
    let mut machine = Scripted {
        busy: u32::MAX,
        ..Scripted::default()
    };
    machine
        .mounts
        .insert("/dev/loop0 /var/tmp/rig/mount ext4".to_owned());
    let mut state = State {
        undo: vec![Undo::Unmount(PathBuf::from("/var/tmp/rig/mount"))],
    };
    let error = undo_all(&mut machine, &mut state).unwrap_err();
    assert!(error.to_string().contains("busy"), "{error}");
    machine.busy = 0;
    undo_all(&mut machine, &mut state).unwrap();
    assert!(machine.is_clean());
}
