//! The devices: built before the first run, taken down after the last one, also on Ctrl-C.

use super::emulated;
use crate::cgroup::{ControlGroup, Controller};
use crate::error::{Error, Result};
use crate::interrupt::{self, lock};
use crate::place::Place;
use clap::ValueEnum;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use waystation_advisor::simulate::DeviceModel;

const BLKIO: &str = "/sys/fs/cgroup/blkio";

/// Where files in memory lie.
const MEMORY: &str = "/dev/shm";

/// The file that takes the rest of a confined fast device.
const BALLAST: &str = "ballast";

/// The slow device.
#[derive(Debug, Clone)]
pub(crate) enum SlowDevice {
    /// A file of the machine's own, or one in memory, throttled by the kernel.
    Throttled(Throttle, Backing),
    /// A file that answers as this model would.
    Emulated(DeviceModel),
}

/// Where the content of a throttled device lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backing {
    /// On the device of --data-dir, whose own times add to those of the throttle
    Disk,
    /// In memory: the throttle alone makes the device slow
    Memory,
}

/// What the slow device gives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Throttle {
    /// Reads, and writes, per second.
    pub(crate) iops: u32,
    /// Bytes read, and written, per second.
    pub(crate) bytes_per_s: u64,
}

/// What to build.
#[derive(Debug, Clone)]
pub(crate) struct RigSettings {
    pub(crate) slow_bytes: u64,
    pub(crate) fast_bytes: u64,
    pub(crate) slow: SlowDevice,
    pub(crate) memory_bytes: u64,
}

/// The devices and the group. Dropping it takes them down.
pub(crate) struct Rig {
    place: Place,
    undo: UndoSteps,
    group: ControlGroup,
}

/// What undoes each step, the last one first.
#[derive(Clone, Default)]
pub(super) struct UndoSteps(Arc<Mutex<Vec<Undo>>>);

/// How a step is undone.
pub(super) enum Undo {
    Run(&'static str, Vec<String>),
    Write(PathBuf, String),
    Remove(PathBuf),
}

impl UndoSteps {
    pub(super) fn add(&self, step: Undo) {
        lock(&self.0).push(step);
    }

    /// The path of a file in memory, which goes in the end.
    pub(super) fn file_in_memory(&self) -> PathBuf {
        let file = Path::new(MEMORY).join(format!("waystation-bench-{}", std::process::id()));
        self.add(Undo::Remove(file.clone()));
        file
    }

    /// Undoes the steps, the last one first. What cannot be undone is told.
    fn take_down(&self) {
        for step in lock(&self.0).drain(..).rev() {
            let undone = match &step {
                Undo::Run(program, arguments) => {
                    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                    run(program, &arguments)
                }
                Undo::Write(file, text) => write(file, text),
                Undo::Remove(file) => match fs::remove_file(file) {
                    Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                        Err(Error::io("remove", file, source))
                    }
                    _ => Ok(()),
                },
            };
            if let Err(error) = undone {
                eprintln!("waystation-bench: {error}: undo it by hand");
            }
        }
    }
}

impl Rig {
    /// Builds it below the data directory.
    pub(crate) fn build(data_directory: &Path, settings: &RigSettings) -> Result<Self> {
        let place = Place::new(data_directory)?;
        let group = ControlGroup::new(Controller::Memory, "placement")?;
        group.set_memory(settings.memory_bytes)?;
        let rig = Self {
            place,
            undo: UndoSteps::default(),
            group,
        };
        let undo = rig.undo.clone();
        interrupt::register_step(move || undo.take_down());
        rig.build_slow(settings)?;
        rig.build_fast(settings)?;
        Ok(rig)
    }

    /// The directory on the slow device.
    pub(crate) fn slow(&self) -> PathBuf {
        self.place.path("slow")
    }

    /// The directory on the fast device.
    pub(crate) fn fast(&self) -> PathBuf {
        self.place.path("fast")
    }

    /// Limits the memory of a process.
    pub(crate) fn limit(&self, process: u32) -> Result<()> {
        self.group.add(process)
    }

    /// Lets the kernel forget what it has cached.
    pub(crate) fn drop_caches() -> Result<()> {
        run("sync", &[])?;
        write(Path::new("/proc/sys/vm/drop_caches"), "3")
    }

    /// Removes what is on both devices.
    pub(crate) fn clear(&self) -> Result<()> {
        let ballast = self.fast().join(BALLAST);
        if ballast.exists() {
            fs::remove_file(&ballast).map_err(|source| Error::io("remove", ballast, source))?;
        }
        for directory in [self.slow(), self.fast()] {
            let database = directory.join("db");
            match fs::remove_dir_all(&database) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", database, source));
                }
                _ => {}
            }
        }
        run("sync", &[])
    }

    /// Leaves `bytes` of room on the fast device, until the next [`clear`](Self::clear).
    pub(crate) fn confine_fast(&self, bytes: u64) -> Result<()> {
        let fast = self.fast();
        let room = rustix::fs::statvfs(&fast)
            .map(|stats| stats.f_bavail * stats.f_frsize)
            .map_err(|source| Error::io("look at the room of", &fast, source.into()))?;
        let ballast = fast.join(BALLAST);
        let file =
            fs::File::create(&ballast).map_err(|source| Error::io("create", &ballast, source))?;
        let taken = room.saturating_sub(bytes);
        allocate(&file, taken, &ballast)
    }

    fn build_slow(&self, settings: &RigSettings) -> Result<()> {
        match &settings.slow {
            SlowDevice::Throttled(throttle, backing) => {
                let image = match backing {
                    Backing::Disk => self.place.path("slow.img"),
                    Backing::Memory => self.undo.file_in_memory(),
                };
                let file = fs::File::create(&image)
                    .map_err(|source| Error::io("create", &image, source))?;
                file.set_len(settings.slow_bytes)
                    .map_err(|source| Error::io("grow", &image, source))?;
                if *backing == Backing::Memory {
                    // All of it is there from the start: the engine's group does not pay for it.
                    allocate(&file, settings.slow_bytes, &image)?;
                }
                let device = self.attach(&image)?;
                self.throttle(&device, throttle)
            }
            SlowDevice::Emulated(model) => {
                let (image, control) =
                    emulated::start(&self.place, &self.undo, model, settings.slow_bytes)?;
                self.attach(&image)?;
                write(&control, "1")?;
                // To take it down costs no time.
                self.undo.add(Undo::Write(control, "0".to_owned()));
                Ok(())
            }
        }
    }

    /// Mounts the image as the slow device. Returns the loop device.
    fn attach(&self, image: &Path) -> Result<String> {
        let image = image.display().to_string();
        let device = run_for_output("losetup", &["--direct-io=on", "-f", "--show", &image])?;
        let detach = vec!["-d".to_owned(), device.clone()];
        self.undo.add(Undo::Run("losetup", detach));
        self.mount(&device, &self.slow())?;
        Ok(device)
    }

    fn throttle(&self, device: &str, throttle: &Throttle) -> Result<()> {
        let name = device.trim_start_matches("/dev/");
        let numbers = fs::read_to_string(format!("/sys/class/block/{name}/dev"))
            .map_err(|source| Error::io("read the number of", device, source))?;
        let Throttle { iops, bytes_per_s } = *throttle;
        for (limit, value) in [
            ("read_iops", u64::from(iops)),
            ("write_iops", u64::from(iops)),
            ("read_bps", bytes_per_s),
            ("write_bps", bytes_per_s),
        ] {
            let file = Path::new(BLKIO).join(format!("blkio.throttle.{limit}_device"));
            write(&file, &format!("{} {value}", numbers.trim()))?;
            self.undo
                .add(Undo::Write(file, format!("{} 0", numbers.trim())));
        }
        Ok(())
    }

    fn build_fast(&self, settings: &RigSettings) -> Result<()> {
        let zram = Path::new("/sys/block/zram0");
        let size = zram.join("disksize");
        let used = fs::read_to_string(&size).unwrap_or_default();
        if used.trim() != "0" {
            return Err(Error::Refused(
                "placement: /dev/zram0, the fast device, is missing or in use; load the module zram, or reset it"
                    .to_owned(),
            ));
        }
        write(&size, &settings.fast_bytes.to_string())?;
        self.undo
            .add(Undo::Write(zram.join("reset"), "1".to_owned()));
        self.mount("/dev/zram0", &self.fast())
    }

    fn mount(&self, device: &str, directory: &Path) -> Result<()> {
        // No room is root's alone: what is free is what an engine has. What is allocated stays so.
        run(
            "mkfs.ext4",
            &["-q", "-F", "-m", "0", "-E", "nodiscard", device],
        )?;
        fs::create_dir_all(directory).map_err(|source| Error::io("create", directory, source))?;
        let directory = directory.display().to_string();
        run("mount", &[device, &directory])?;
        self.undo.add(Undo::Run("umount", vec![directory]));
        Ok(())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.undo.take_down();
    }
}

fn allocate(file: &fs::File, bytes: u64, path: &Path) -> Result<()> {
    rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes)
        .map_err(|source| Error::io("grow", path, source.into()))
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).map_err(|source| Error::io("write", file, source))
}

pub(super) fn run(program: &'static str, arguments: &[&str]) -> Result<()> {
    run_for_output(program, arguments).map(drop)
}

fn run_for_output(program: &'static str, arguments: &[&str]) -> Result<String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", path)
        .output()
        .map_err(|source| Error::io("run", program, source))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Refused(format!(
        "placement: {program} {} failed: {}; it needs root, loop devices, zram and groups of version 1",
        arguments.join(" "),
        said.trim()
    )))
}
