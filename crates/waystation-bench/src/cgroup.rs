//! Control groups: processes that get a share of a core, in slices so short that a scan does not notice them, or little memory.
//!
//! A group of version 1 lies under the hierarchy of its controller, one of version 2 under the only hierarchy.

use crate::error::{Error, Result};
use crate::interrupt;
use std::fs;
use std::path::{Path, PathBuf};

/// What a group limits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Controller {
    /// Time of processors: a quota of microseconds for each period.
    Processor,
    /// Memory, the page cache for the group's files included.
    Memory,
}

impl Controller {
    /// The kernel's name for it.
    fn name(self) -> &'static str {
        match self {
            Self::Processor => "cpu",
            Self::Memory => "memory",
        }
    }
}

/// The period (microseconds): a scan of some milliseconds meets its share.
const PERIOD_US: u64 = 5_000;
/// The kernel takes no smaller quota (microseconds).
const QUOTA_US_MIN: u64 = 1_000;

/// A control group, removed when it is dropped.
pub(crate) struct ControlGroup {
    path: PathBuf,
    is_unified: bool,
}

/// Where groups are made, and whether that is version 2.
fn hierarchy(controller: Controller) -> Result<(PathBuf, bool)> {
    let name = controller.name();
    let unified = Path::new("/sys/fs/cgroup");
    let old = unified.join(name);
    if old.join("cgroup.procs").exists() {
        return Ok((old, false));
    }
    let controllers = fs::read_to_string(unified.join("cgroup.controllers")).unwrap_or_default();
    if controllers.split_whitespace().any(|it| it == name) {
        return Ok((unified.to_owned(), true));
    }
    Err(Error::Refused(format!(
        "this machine has no control groups of `{name}`; mount the controller, or run on a machine that has it"
    )))
}

impl ControlGroup {
    /// Makes the group `name`.
    pub(crate) fn new(controller: Controller, name: &str) -> Result<Self> {
        let (parent, is_unified) = hierarchy(controller)?;
        let path = parent.join(format!("waystation-bench-{}-{name}", std::process::id()));
        let refused = |source: std::io::Error| {
            Error::Refused(format!(
                "cannot make the control group {}: {source}; run as root, or in a container that may make groups",
                path.display()
            ))
        };
        if is_unified {
            // The group's parent has to hand the controller down; it may do so already.
            let hand_down = format!("+{}", controller.name());
            let handed = fs::write(parent.join("cgroup.subtree_control"), hand_down);
            handed.map_err(refused)?;
        }
        fs::create_dir(&path).map_err(refused)?;
        let left = path.clone();
        interrupt::register_step(move || drop(fs::remove_dir(left)));
        Ok(Self { path, is_unified })
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, text).map_err(|source| Error::io("write", path, source))
    }

    /// Gives the group `share` of one core.
    pub(crate) fn set_share(&self, share: f64) -> Result<()> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share is between 0 and some cores"
        )]
        let quota = ((share * PERIOD_US as f64) as u64).max(QUOTA_US_MIN);
        if self.is_unified {
            return self.write("cpu.max", &format!("{quota} {PERIOD_US}"));
        }
        self.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
        self.write("cpu.cfs_quota_us", &quota.to_string())
    }

    /// Gives the group `bytes` of memory.
    pub(crate) fn set_memory(&self, bytes: u64) -> Result<()> {
        let file = if self.is_unified {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        self.write(file, &bytes.to_string())
    }

    /// Puts a process with all its threads into the group.
    pub(crate) fn add(&self, process: u32) -> Result<()> {
        self.write("cgroup.procs", &process.to_string())
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // A process that just ended may still be counted: the kernel refuses until it is gone.
        for _ in 0..50 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!(
            "waystation-bench: {} stays: remove it by hand",
            self.path.display()
        );
    }
}
