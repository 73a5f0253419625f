//! What the operating system tells of this process, on Linux. Elsewhere these figures are missing.

/// Ticks of a second in `/proc`: the same on all of Linux.
const TICKS: f64 = 100.0;

/// Memory of this process that is in use (bytes).
pub(super) fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024.0)
}

/// Time on processors (seconds).
pub(super) fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may have spaces.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS)
}

/// Open files, sockets among them.
pub(super) fn open_files() -> Option<f64> {
    let files = std::fs::read_dir("/proc/self/fd").ok()?;
    Some(files.count() as f64)
}
