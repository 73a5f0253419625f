//! A server as a process: where it may run, what it takes, and its end.

use crate::cores::on_core;
use crate::drives::cpu_seconds;
use crate::error::{Error, Result};
use crate::interrupt;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

/// So many lines of what a program complained of are shown.
const COMPLAINT_LINES: usize = 10;

/// A program that runs until it is dropped.
pub(crate) struct Process {
    child: Arc<Mutex<Child>>,
    number: u32,
    complaints: PathBuf,
    name: String,
}

/// Starts `command` on `core`, or anywhere, and returns its output as well.
///
/// `package` names the Debian package that holds the program, and `complaints` the file for its standard error.
pub(crate) fn start(
    command: &mut Command,
    core: Option<usize>,
    package: &str,
    complaints: &Path,
) -> Result<(Process, Option<ChildStdout>)> {
    let name = command.get_program().to_string_lossy().into_owned();
    let log = File::create(complaints);
    let log = log.map_err(|source| Error::io("make", complaints, source))?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log);
    let spawned = match core {
        Some(core) => on_core(core, || command.spawn())?,
        None => command.spawn(),
    };
    let mut child = spawned.map_err(|source| missing(&name, package, source))?;
    let number = child.id();
    let output = child.stdout.take();
    let child = Arc::new(Mutex::new(child));
    interrupt::register_child(&child);
    let process = Process {
        child,
        number,
        complaints: complaints.to_owned(),
        name,
    };
    Ok((process, output))
}

/// Why a program does not start, with the package that has it.
pub(crate) fn missing(program: &str, package: &str, source: std::io::Error) -> Error {
    if source.kind() == std::io::ErrorKind::NotFound {
        return Error::Refused(format!(
            "{program} is not installed: apt-get install {package}"
        ));
    }
    Error::io("start", program, source)
}

impl Process {
    /// Seconds of processor time that it has taken.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.number)
    }

    /// Its memory now (10^6 bytes); pages of files that it maps count.
    pub(crate) fn rss_mb(&self) -> f64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.number));
        let text = text.unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        let kib: f64 = kib.and_then(|it| it.parse().ok()).unwrap_or(0.0);
        kib * 1024.0 / 1e6
    }

    /// A failure of this program, with the end of its standard error.
    pub(crate) fn failed(&self, what: &str) -> Error {
        let text = fs::read_to_string(&self.complaints).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.len().saturating_sub(COMPLAINT_LINES);
        let last = lines[last..].join("\n");
        Error::Refused(format!("{} {what}: {last}", self.name))
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        !matches!(interrupt::lock(&self.child).try_wait(), Ok(None))
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(&self) -> Result<()> {
        let pid = i32::try_from(self.number).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
        let ended = interrupt::lock(&self.child).wait();
        let ended = ended.map_err(|source| Error::io("wait for", &self.name, source))?;
        if ended.success() {
            return Ok(());
        }
        Err(self.failed(&format!("ended with {ended}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut child = interrupt::lock(&self.child);
        // It may have ended by itself, or been stopped.
        let _ = child.kill();
        let _ = child.wait();
        drop(child);
        interrupt::forget_child(&self.child);
    }
}
