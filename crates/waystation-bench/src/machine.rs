//! What the figures were measured on. A figure without its machine is a rumour.

use crate::clock;
use crate::place::Place;
use serde::Serialize;
use std::fs;
use std::thread;

/// The machine, as the report names it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    /// The processor's name.
    cpu: String,
    /// Logical processors that this process may use.
    cores: usize,
    /// Memory, in units of 10^6 bytes.
    memory_mb: u64,
    /// The kernel's release.
    kernel: String,
    /// The operating system's name.
    os: String,
    /// The file system that holds the data.
    file_system: &'static str,
    /// The allocator of every engine.
    allocator: &'static str,
    /// How busy the machine was with other things when measuring started: the load average of a minute.
    load_average: f64,
    /// When measuring started, in seconds since 1970.
    started_unix_s: u64,
}

impl Machine {
    /// This machine, with data in `place`.
    pub(crate) fn here(place: &Place) -> Self {
        let value = |path: &str, name: &str, separator: char| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line
                .and_then(|line| line.split_once(separator))
                .map(|(_, value)| value);
            value.map_or_else(
                || "unknown".to_owned(),
                |value| value.trim().trim_matches('"').to_owned(),
            )
        };
        let memory = value("/proc/meminfo", "MemTotal", ':');
        let memory_kib: u64 = memory
            .split(' ')
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or(0);
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: value("/proc/cpuinfo", "model name", ':'),
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory_mb: memory_kib * 1024 / 1_000_000,
            kernel: kernel.trim().to_owned(),
            os: value("/etc/os-release", "PRETTY_NAME", '='),
            file_system: place.file_system(),
            allocator: "the C library's",
            load_average: load
                .split(' ')
                .next()
                .and_then(|number| number.parse().ok())
                .unwrap_or(0.0),
            started_unix_s: clock::unix_seconds(),
        }
    }

    /// In a line.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{}, {} cores, {} MB, {}, {}, load {:.2}",
            self.cpu, self.cores, self.memory_mb, self.kernel, self.file_system, self.load_average
        )
    }
}
