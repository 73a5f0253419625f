//! The server and its agents: processes on one core each, with a share of it.

use crate::cgroup::{ControlGroup, Controller};
use crate::cores::on_core;
use crate::error::{Error, Result};
use crate::interrupt;
use rustix::process::Pid;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// Ticks of a second, in which the kernel counts the time of processes.
const TICKS: f64 = 100.0;

/// A process in a control group of its own.
pub(crate) struct Held {
    child: Arc<Mutex<Child>>,
    process: u32,
    group: ControlGroup,
    /// What its first line ends with: where it listens.
    pub(crate) address: String,
}

impl Held {
    /// Starts `program` with `arguments` on core `core`, and gives it `share` of that.
    pub(crate) fn start(
        name: &str,
        program: &Path,
        arguments: &[String],
        core: usize,
        share: f64,
    ) -> Result<Self> {
        let group = ControlGroup::new(Controller::Processor, name)?;
        group.set_share(share)?;
        let refused = |source| Error::io("start", program, source);
        let spawn = || {
            Command::new(program)
                .args(arguments)
                .stdout(Stdio::piped())
                .stdin(Stdio::null())
                .spawn()
        };
        let mut child = on_core(core, spawn)?.map_err(refused)?;
        let process = child.id();
        let output = child.stdout.take();
        let child = Arc::new(Mutex::new(child));
        interrupt::register_child(&child);
        let mut held = Self {
            child,
            process,
            group,
            address: String::new(),
        };
        held.group.add(process)?;
        let mut line = String::new();
        if let Some(output) = output {
            let read = BufReader::new(output).read_line(&mut line);
            read.map_err(|source| Error::io("read from", program, source))?;
        }
        let address = line.trim().rsplit(' ').next().unwrap_or_default();
        if !address.contains(':') {
            return Err(Error::Worker {
                engine: name.to_owned(),
                what: "ended before it listened; its messages stand above".to_owned(),
            });
        }
        address.trim_end_matches('/').clone_into(&mut held.address);
        Ok(held)
    }

    pub(crate) fn set_share(&self, share: f64) -> Result<()> {
        self.group.set_share(share)
    }

    /// Starts a process that spins in the same group, on the same core, until the result is dropped.
    pub(crate) fn spin(&self, core: usize) -> Result<Spinner> {
        let spawn = || {
            Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .spawn()
        };
        let child = on_core(core, spawn)?.map_err(|source| Error::io("start", "sh", source))?;
        let spinner = Spinner(child);
        self.group.add(spinner.0.id())?;
        Ok(spinner)
    }

    /// Seconds of processor time that it has taken.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.process)
    }

    /// The most memory that it has had (10^6 bytes).
    pub(crate) fn peak_rss_mb(&self) -> f64 {
        peak_rss_mb(self.process)
    }
}

/// Seconds of processor time that `process` has taken.
pub(crate) fn cpu_seconds(process: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program stands in brackets, and may hold spaces.
    let rest = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|it| it.parse().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / TICKS
}

/// Seconds of processor time that a hypervisor has kept from this machine.
pub(crate) fn stolen_seconds() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let stolen = line.split_whitespace().nth(8);
    stolen.and_then(|it| it.parse().ok()).unwrap_or(0.0) / TICKS
}

/// The most memory that `process` has had (10^6 bytes); pages of files that it maps count.
pub(crate) fn peak_rss_mb(process: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    let kib: f64 = kib.and_then(|it| it.parse().ok()).unwrap_or(0.0);
    kib * 1024.0 / 1e6
}

impl Drop for Held {
    fn drop(&mut self) {
        let pid = i32::try_from(self.process).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = interrupt::lock(&self.child).wait();
        interrupt::forget_child(&self.child);
    }
}

/// A process that does nothing but take time.
pub(crate) struct Spinner(Child);

impl Drop for Spinner {
    fn drop(&mut self) {
        // It ends by nothing else.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
