//! `waystation serve` as a process of its own, and what the kernel knows of it.

use crate::drives::{Server, cpu_seconds, peak_rss_mb};
use crate::error::{Error, Result};
use crate::interrupt;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// The server.
pub(crate) struct ServerProcess {
    child: Arc<Mutex<Child>>,
    process: u32,
    server: Server,
}

impl ServerProcess {
    /// Starts `program` over `directory`, with `shards` for each database.
    pub(crate) fn start(program: &Path, directory: &Path, shards: u32) -> Result<Self> {
        let refused = |source| Error::io("start", program, source);
        let mut child = Command::new(program)
            .arg("serve")
            .arg(directory)
            .args(["--listen", "127.0.0.1:0", "-q", &shards.to_string()])
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .map_err(refused)?;
        let process = child.id();
        let output = child.stdout.take();
        let child = Arc::new(Mutex::new(child));
        interrupt::register_child(&child);
        let mut line = String::new();
        let read = output.map_or(Ok(0), |output| BufReader::new(output).read_line(&mut line));
        let read = read.map_err(|source| Error::io("read from", program, source));
        let url = line.trim().rsplit(' ').next().unwrap_or_default();
        let server = read.and_then(|_| Server::new(url));
        match server {
            Ok(server) => Ok(Self {
                child,
                process,
                server,
            }),
            Err(error) => {
                end(process, &child);
                Err(error)
            }
        }
    }

    /// Its interface.
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Seconds of processor time that it has taken.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.process)
    }

    /// Begins to measure the peak of its memory anew.
    pub(crate) fn forget_peak(&self) -> Result<()> {
        let path = format!("/proc/{}/clear_refs", self.process);
        fs::write(&path, "5").map_err(|source| Error::io("write to", path, source))
    }

    /// The most memory that it has had since then (10^6 bytes).
    pub(crate) fn peak_rss_mb(&self) -> f64 {
        peak_rss_mb(self.process)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        end(self.process, &self.child);
    }
}

fn end(process: u32, child: &Arc<Mutex<Child>>) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::TERM);
    }
    let _ = interrupt::lock(child).wait();
    interrupt::forget_child(child);
}
