//! Building the laboratory step by step; each step's undoing is noted before it is taken.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::relief::CONTROL;
use super::undo::{State, Undo, undo_all};
use super::{AREAS, RigSettings, failed, text};
use crate::error::Result;
use crate::record::emulated::{CONTROL_FILE, Emulation, Image};
use crate::record::system::System;
use crate::simulate::DeviceModel;

/// Where what is in memory lies.
const FAST_DIRECTORY: &str = "/dev/shm";
/// Where memory groups are, in both versions, with the name of the limit.
const GROUPS: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
];
/// Where the areas begin on an emulated disk.
pub(crate) const EMULATED_BASES: [u64; 3] = [0, 30 << 30, 32 << 30];
/// Reading it makes a device of compressed memory.
const ZRAM_ADD: &str = "/sys/class/zram-control/hot_add";
/// How often the emulated device is looked for before it counts as failed, every [`LOOK`].
const LOOKS: u32 = 250;
const LOOK: Duration = Duration::from_millis(20);

/// The laboratory, as far as it is built.
pub(super) struct Rig<'a> {
    pub(super) system: &'a mut dyn System,
    pub(super) state: State,
    pub(super) state_file: PathBuf,
    /// Loop devices with their areas.
    pub(super) devices: Vec<(PathBuf, String)>,
    /// Behind the swap area's loop device, if it has one.
    swap_image: Option<PathBuf>,
    /// The file that makes an emulated device take its time.
    control: Option<PathBuf>,
    /// Directory on the slow device.
    pub(super) slow: PathBuf,
    /// Directory in memory.
    pub(super) fast: PathBuf,
    /// Where the file system is mounted.
    pub(super) mount: PathBuf,
    /// The memory group.
    pub(super) group: PathBuf,
    /// The group's limit: file and bytes.
    pub(super) limit: (&'static str, u64),
}

impl<'a> Rig<'a> {
    /// Nothing of it is built yet.
    pub(super) fn begin(
        system: &'a mut dyn System,
        settings: &RigSettings,
        state_file: PathBuf,
        name: &str,
    ) -> Self {
        let found = GROUPS.iter().find(|(root, limit)| {
            Path::new(root).join(limit).exists()
                || Path::new(root).join("cgroup.controllers").exists()
        });
        let (group_root, limit) = found.unwrap_or(&GROUPS[0]);
        let slow = settings.directory.join(name);
        Self {
            system,
            state: State::default(),
            state_file,
            devices: Vec::new(),
            swap_image: None,
            control: None,
            mount: slow.join("mount"),
            slow,
            fast: Path::new(FAST_DIRECTORY).join(name),
            limit: (limit, settings.memory_bytes),
            group: Path::new(group_root).join(name),
        }
    }

    /// Notes how a step will be undone, before it is done.
    fn intend(&mut self, undo: Undo) -> Result<()> {
        self.state.undo.push(undo);
        let text = serde_json::to_string_pretty(&self.state)
            .map_err(|error| failed("note its steps")(error.to_string()))?;
        self.system
            .replace(&self.state_file, &text)
            .map_err(failed("note its steps"))
    }

    fn run(&mut self, step: &str, program: &str, arguments: &[&str]) -> Result<String> {
        self.system.run(program, arguments).map_err(failed(step))
    }

    fn directory(&mut self, path: &Path) -> Result<()> {
        self.intend(Undo::RemoveDirectory(path.to_path_buf()))?;
        self.run("make its directories", "mkdir", &["-p", &text(path)])
            .map(|_| ())
    }

    /// Makes the images and attaches a loop device to each.
    pub(super) fn attach(&mut self, settings: &RigSettings) -> Result<()> {
        for directory in [self.slow.clone(), self.fast.clone()] {
            self.directory(&directory)?;
        }
        let bytes = [
            settings.fs_bytes,
            settings.journal_bytes,
            settings.swap_bytes,
        ];
        let emulated = match &settings.emulated {
            Some(model) => Some(self.emulate(settings, model, bytes)?),
            None => None,
        };
        for (area, bytes) in AREAS.into_iter().zip(bytes) {
            if area == "swap" && settings.is_fast(area) && self.attach_zram(bytes)? {
                continue;
            }
            let name = format!("{area}.img");
            let image = match &emulated {
                _ if settings.is_fast(area) => self.fast.join(name),
                Some(directory) => directory.join(name),
                None => self.slow.join(name),
            };
            // An emulated device's files are there already.
            if settings.is_fast(area) || emulated.is_none() {
                self.image(&image, bytes)?;
            }
            if area == "swap" {
                self.swap_image = Some(image.clone());
            }
            self.intend(Undo::Detach(image.clone()))?;
            let device = self.run(
                "attach a loop device",
                "losetup",
                &["--find", "--show", "--direct-io=on", &text(&image)],
            )?;
            self.devices.push((PathBuf::from(device), area.to_owned()));
        }
        Ok(())
    }

    /// Swap in memory, where the kernel has compressed memory as a block device: it answers in the caller's own time.
    /// Behind a loop device a worker would answer, and a group whose pages all wait for a worker that waits for a
    /// processor is told that it is out of memory. (Requests to it are not recorded: it has no queue.)
    fn attach_zram(&mut self, bytes: u64) -> Result<bool> {
        // Reading makes a device and tells its number.
        let Ok(number) = self.system.read(Path::new(ZRAM_ADD)) else {
            return Ok(false);
        };
        let Ok(number) = number.trim().parse::<u32>() else {
            return Ok(false);
        };
        self.intend(Undo::RemoveZram(number))?;
        self.system
            .write(
                Path::new(&format!("/sys/block/zram{number}/disksize")),
                &bytes.to_string(),
            )
            .map_err(failed("make swap in memory"))?;
        let device = PathBuf::from(format!("/dev/zram{number}"));
        self.devices.push((device, "swap".to_owned()));
        Ok(true)
    }

    fn image(&mut self, image: &Path, bytes: u64) -> Result<()> {
        self.intend(Undo::RemoveFile(image.to_path_buf()))?;
        let (output, count) = (format!("of={}", text(image)), format!("count={bytes}"));
        self.run(
            "write the image files",
            "dd",
            &[
                "if=/dev/zero",
                "bs=1M",
                "iflag=count_bytes",
                "conv=fsync",
                "status=none",
                &count,
                &output,
            ],
        )
        .map(|_| ())
    }

    /// Starts the emulated device; returns the directory of its files.
    fn emulate(
        &mut self,
        settings: &RigSettings,
        model: &DeviceModel,
        bytes: [u64; 3],
    ) -> Result<PathBuf> {
        let mount = self.slow.join("emulated");
        self.directory(&mount)?;
        let mut emulation = Emulation {
            mount: mount.clone(),
            model: model.clone(),
            images: Vec::new(),
        };
        for ((area, bytes), base) in AREAS.into_iter().zip(bytes).zip(EMULATED_BASES) {
            if settings.is_fast(area) {
                continue;
            }
            let data = self.fast.join(format!("{area}.data"));
            self.intend(Undo::RemoveFile(data.clone()))?;
            emulation.images.push(Image {
                name: format!("{area}.img"),
                base,
                bytes,
                data,
            });
        }
        let (description, log) = (
            self.fast.join("emulated.json"),
            self.fast.join("emulated.log"),
        );
        self.intend(Undo::RemoveFile(description.clone()))?;
        self.intend(Undo::RemoveFile(log.clone()))?;
        let json = serde_json::to_string_pretty(&emulation)
            .map_err(|error| failed("describe the emulated device")(error.to_string()))?;
        self.system
            .replace(&description, &json)
            .map_err(failed("describe the emulated device"))?;
        let program = std::env::current_exe()
            .map_err(|error| failed("find its own program")(error.to_string()))?;
        self.intend(Undo::Unmount(mount.clone()))?;
        // In the background, out of reach of the terminal's signals, before others on a busy processor. It keeps the
        // pipe to the keeper until it is mounted.
        self.run(
            "start the emulated device",
            "sh",
            &[
                "-c",
                "setsid chrt --rr 1 \"$0\" place record --rig-emulate \"$1\" <&0 >\"$2\" 2>&1 &",
                &text(&program),
                &text(&description),
                &text(&log),
            ],
        )?;
        let entry = format!(" {} ", text(&mount));
        for _ in 0..LOOKS {
            let mounts = self.system.read(Path::new("/proc/mounts"));
            if mounts
                .map_err(failed("look at its mounts"))?
                .contains(&entry)
            {
                self.control = Some(mount.join(CONTROL_FILE));
                return Ok(mount);
            }
            std::thread::sleep(LOOK);
        }
        let said = self.system.read(&log).unwrap_or_default();
        Err(failed("start the emulated device")(said.trim().to_owned()))
    }

    /// Makes journal, file system, swap and group on the devices.
    pub(super) fn build(&mut self, settings: &RigSettings) -> Result<()> {
        let device = |at: usize| text(&self.devices[at].0);
        let (fs, journal, swap) = (device(0), device(1), device(2));
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
        self.directory(&mount)?;
        self.intend(Undo::Unmount(mount))?;
        self.mount(settings)?;
        if let Some(image) = self.swap_image.clone() {
            self.intend(Undo::SwapOff(image))?;
        }
        self.run("turn swap on", "swapon", &["--priority", "10", &swap])?;
        let group = self.group.clone();
        self.intend(Undo::RemoveGroup(group.clone()))?;
        self.run("make the memory group", "mkdir", &["-p", &text(&group)])
            .map(|_| ())
    }

    fn mount(&mut self, settings: &RigSettings) -> Result<()> {
        let (fs, mount) = (text(&self.devices[0].0), text(&self.mount));
        let mode = format!("data={}", settings.data_mode);
        self.run(
            "mount the file system",
            "mount",
            &["-t", "ext4", "-o", &mode, &fs, &mount],
        )
        .map(|_| ())
    }

    /// Unmounts and mounts again, so that the command begins with nothing of the file system in memory.
    pub(super) fn remount(&mut self, settings: &RigSettings) -> Result<()> {
        let mount = text(&self.mount);
        self.run("empty the page cache", "umount", &[&mount])?;
        self.mount(settings)
    }

    /// From here on the group's memory is limited and an emulated device takes its time.
    pub(super) fn limit(&mut self) -> Result<()> {
        let (file, bytes) = self.limit;
        self.system
            .write(&self.group.join(file), &bytes.to_string())
            .map_err(failed("limit the memory"))?;
        // Where groups can wait for memory, it waits (see `relief`); elsewhere it is killed.
        let out_of_memory = self.group.join(CONTROL);
        if self.system.read(&out_of_memory).is_ok() {
            self.system
                .write(&out_of_memory, "1")
                .map_err(failed("let the group wait for memory"))?;
        }
        let Some(control) = self.control.clone() else {
            return Ok(());
        };
        self.intend(Undo::Quicken(control.clone()))?;
        self.system
            .write(&control, "1")
            .map_err(failed("slow the emulated device down"))
    }

    /// Undoes everything and forgets the state file; the first thing that could not be undone is the error.
    pub(super) fn down(&mut self) -> Result<()> {
        undo_all(self.system, &mut self.state)?;
        let file = text(&self.state_file);
        self.run("forget its state", "rm", &["-f", &file])
            .map(|_| ())
    }
}
