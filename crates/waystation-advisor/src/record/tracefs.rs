//! The kernel's event tracing, through files.
//!
//! An *instance* is a trace buffer of its own: nobody else's tracing is touched. Each event has a filter by device,
//! so that only what was asked for costs anything. If tracefs is not mounted, it is mounted in a private directory
//! for the time of the recording.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::error::{Error, Result};

const EVENTS: [&str; 3] = ["block_rq_issue", "block_rq_complete", "block_rq_requeue"];
/// Buffer per processor.
const BUFFER_KIB: u32 = 8192;
const PREFIX: &str = "waystation-";

/// A running trace; dropping it removes everything it made.
pub(super) struct Tracefs {
    instance: PathBuf,
    /// Mounted by us.
    private: Option<PathBuf>,
    pipe: Option<File>,
}

fn refused(what: &str, path: &Path, error: &std::io::Error) -> Error {
    let hint = match error.kind() {
        ErrorKind::PermissionDenied => {
            "recording needs root, and a kernel whose lockdown permits tracing"
        }
        ErrorKind::NotFound => "this kernel has no block events (CONFIG_BLK_DEV_IO_TRACE)",
        _ => "the kernel does not permit tracing here",
    };
    Error::Refused(format!(
        "cannot {what} ({}: {error}); {hint}",
        path.display()
    ))
}

/// Where tracefs is mounted, if it is.
fn mounted() -> Option<PathBuf> {
    ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.join("instances").is_dir())
}

/// Mounts tracefs where nobody else looks.
fn mount_private() -> Result<PathBuf> {
    let root = PathBuf::from(format!("/run/{PREFIX}tracefs-{}", std::process::id()));
    fs::create_dir_all(&root)
        .map_err(|error| refused("make a place for tracefs", &root, &error))?;
    if let Err(errno) = mount("waystation", &root, "tracefs", MountFlags::empty(), None) {
        // Empty, and of no use to anybody.
        let _ = fs::remove_dir(&root);
        return Err(refused("mount tracefs", &root, &errno.into()));
    }
    Ok(root)
}

impl Tracefs {
    /// Begins to trace the devices (as the kernel numbers them: major << 20 | minor).
    pub(super) fn begin(devices: &[u32]) -> Result<Self> {
        remove_leftovers();
        let (root, private) = if let Some(root) = mounted() {
            (root, None)
        } else {
            let root = mount_private()?;
            (root.clone(), Some(root))
        };
        let instance = root
            .join("instances")
            .join(format!("{PREFIX}{}", std::process::id()));
        let mut trace = Self {
            instance,
            private,
            pipe: None,
        };
        // From here on a failure takes everything down by Drop.
        fs::create_dir(&trace.instance)
            .map_err(|error| refused("create a trace instance", &trace.instance, &error))?;
        trace.write("tracing_on", "0")?;
        trace.write("trace_clock", "mono")?;
        trace.write("buffer_size_kb", &BUFFER_KIB.to_string())?;
        let filter: Vec<String> = devices
            .iter()
            .map(|device| format!("dev == {device}"))
            .collect();
        for event in EVENTS {
            trace.write(
                &format!("events/block/{event}/filter"),
                &filter.join(" || "),
            )?;
            trace.write(&format!("events/block/{event}/enable"), "1")?;
        }
        let path = trace.instance.join("trace_pipe");
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(nonblocking)
            .open(&path)
            .map_err(|error| refused("read the trace", &path, &error))?;
        trace.pipe = Some(pipe);
        trace.write("tracing_on", "1")?;
        Ok(trace)
    }

    /// Stops; what was traced can still be read.
    pub(super) fn stop(&self) -> Result<()> {
        self.write("tracing_on", "0")
    }

    /// Reads what there is; 0 when there is nothing now.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(0);
        };
        match pipe.read(buffer) {
            Ok(bytes) => Ok(bytes),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(0)
            }
            Err(source) => Err(Error::io("read", &self.instance.join("trace_pipe"), source)),
        }
    }

    /// Events that did not fit into the buffers.
    pub(super) fn lost(&self) -> u64 {
        let Ok(processors) = fs::read_dir(self.instance.join("per_cpu")) else {
            return 0;
        };
        processors
            .flatten()
            .filter_map(|entry| fs::read_to_string(entry.path().join("stats")).ok())
            .map(|stats| lost_in(&stats))
            .sum()
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.instance.join(file);
        fs::write(&path, text).map_err(|error| refused("set up the trace", &path, &error))
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        // Each may not have been made yet; what cannot be removed is removed by the next recording.
        let _ = self.stop();
        self.pipe = None;
        let _ = fs::remove_dir(&self.instance);
        if let Some(private) = &self.private {
            let _ = unmount(private, UnmountFlags::empty());
            let _ = fs::remove_dir(private);
        }
    }
}

/// The overruns and drops in one processor's statistics.
fn lost_in(stats: &str) -> u64 {
    stats
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(name, _)| matches!(*name, "overrun" | "dropped events" | "commit overrun"))
        .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
        .sum()
}

/// Removes what recordings left that were killed: instances, and mounts of their own.
pub(super) fn remove_leftovers() {
    if let Some(root) = mounted() {
        remove_stale(&root.join("instances"));
    }
    for entry in fs::read_dir("/run").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix("waystation-tracefs-"));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove_stale(&entry.path().join("instances"));
            // Whatever stays is tried again by the next recording.
            let _ = unmount(entry.path(), UnmountFlags::empty());
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Instances of recordings that were killed.
fn remove_stale(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX))
            .and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Somebody may be quicker.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_missing() {
        let path = Path::new("/sys/kernel/tracing/instances/x");
        let said =
            |kind: ErrorKind| refused("create a trace instance", path, &kind.into()).to_string();
        assert!(said(ErrorKind::PermissionDenied).contains("needs root"));
        assert!(said(ErrorKind::NotFound).contains("no block events"));
        assert!(said(ErrorKind::ResourceBusy).contains("does not permit tracing"));
        for kind in [ErrorKind::PermissionDenied, ErrorKind::NotFound] {
            assert!(said(kind).contains("/sys/kernel/tracing/instances/x"));
        }
    }

    #[test]
    fn losses_are_added_up() {
        let stats = "entries: 5\noverrun: 7\ncommit overrun: 1\nbytes: 99\ndropped events: 2\nread events: 3\n";
        assert_eq!(lost_in(stats), 10);
    }
}
