//! What a benchmark costs: time per operation, processor time, memory, bytes written, bytes kept.
//!
//! Written bytes are what the kernel charged to this process (`/proc/self/io`): pages made dirty and direct
//! writes, less the pages that were dropped before they reached the device. It counts what the engine causes,
//! whoever writes it back, and nothing that other processes do.

use crate::clock;
use crate::error::{Error, Result};
use hdrhistogram::Histogram;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The longest latency told apart: an hour.
const MAX_NANOSECONDS: u64 = 3_600_000_000_000;
/// Latencies are kept to 1 %: finer counters would push the engine's data out of the processor's cache.
const SIGNIFICANT_DIGITS: u8 = 2;
const BLOCK_BYTES: u64 = 512;

/// Latencies of single operations.
#[derive(Debug, Clone)]
pub(crate) struct Latencies(Histogram<u32>);

impl Latencies {
    /// None so far.
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, MAX_NANOSECONDS, SIGNIFICANT_DIGITS);
        Self(histogram.expect("the bounds are constants within what the crate allows"))
    }

    /// One more.
    #[inline]
    pub(crate) fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(MAX_NANOSECONDS);
        self.0.saturating_record(nanoseconds);
    }

    /// All of another thread's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// The latency, in microseconds, that this share of the operations does not exceed; 0 if there were none.
    pub(crate) fn quantile_us(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 / 1e3
    }

    /// The longest, in microseconds.
    pub(crate) fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }

    /// How many took at least `least`.
    pub(crate) fn count_from(&self, least: Duration) -> u64 {
        let nanoseconds = u64::try_from(least.as_nanos()).unwrap_or(MAX_NANOSECONDS);
        self.0.count_between(nanoseconds, MAX_NANOSECONDS)
    }
}

/// Counts from a moment on. Starting one also restarts the peak of resident memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter {
    cpu: Duration,
    written_bytes: u64,
    read_bytes: u64,
}

impl Meter {
    /// Starts counting.
    pub(crate) fn start() -> Result<Self> {
        // 5 resets VmHWM to what is resident now. A kernel that does not offer it leaves the peak since start.
        let _ = fs::write("/proc/self/clear_refs", "5");
        Self::now()
    }

    fn now() -> Result<Self> {
        Ok(Self {
            cpu: clock::cpu_time(),
            written_bytes: written_bytes()?,
            read_bytes: io_bytes("read_bytes:")?,
        })
    }

    /// Processor seconds, user and system, of all threads since the start.
    pub(crate) fn cpu_s(&self) -> f64 {
        clock::cpu_time().saturating_sub(self.cpu).as_secs_f64()
    }

    /// Bytes written to storage since the start.
    pub(crate) fn written_bytes(&self) -> Result<u64> {
        Ok(written_bytes()?.saturating_sub(self.written_bytes))
    }

    /// Bytes read from storage since the start; what came out of the page cache is not among them.
    pub(crate) fn read_bytes(&self) -> Result<u64> {
        Ok(io_bytes("read_bytes:")?.saturating_sub(self.read_bytes))
    }
}

/// Bytes this process has caused to be written to storage in its life.
pub(crate) fn written_bytes() -> Result<u64> {
    Ok(io_bytes("write_bytes:")?.saturating_sub(io_bytes("cancelled_write_bytes:")?))
}

/// What the kernel has charged to this process under `name`; 0 if it does not keep that.
fn io_bytes(name: &str) -> Result<u64> {
    let path = "/proc/self/io";
    let text = fs::read_to_string(path).map_err(|source| Error::io("read", path, source))?;
    Ok(field(&text, name).unwrap_or(0))
}

/// The peak of resident memory since the last meter was started, in units of 10^6 bytes.
pub(crate) fn peak_rss_mb() -> Result<f64> {
    let path = "/proc/self/status";
    let text = fs::read_to_string(path).map_err(|source| Error::io("read", path, source))?;
    Ok(field(&text, "VmHWM:").unwrap_or(0) as f64 * 1024.0 / 1e6)
}

/// The number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// What a directory occupies on storage, in units of 10^6 bytes. Files that vanish meanwhile count nothing.
pub(crate) fn disk_mb(directory: &Path) -> f64 {
    occupied_bytes(directory) as f64 / 1e6
}

fn occupied_bytes(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else {
        return 0;
    };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => occupied_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * BLOCK_BYTES,
        Err(_) => 0,
    });
    bytes.sum()
}

/// Waits until this process has written nothing and computed next to nothing for `QUIET`: how to tell that an
/// engine without a better sign has finished its compactions. Returns how long nothing has happened.
#[cfg(feature = "rivals")]
pub(crate) fn wait_quiet() -> Result<Duration> {
    const QUIET: Duration = Duration::from_secs(1);
    const POLL: Duration = Duration::from_millis(50);
    const IDLE_SHARE: f64 = 0.02;
    let mut since = clock::now();
    let mut meter = Meter::now()?;
    loop {
        std::thread::sleep(POLL);
        let now = clock::now();
        let busy_s = meter.cpu_s();
        let allowed_s = (now - since).max(QUIET / 4).as_secs_f64() * IDLE_SHARE;
        if meter.written_bytes()? > 0 || busy_s > allowed_s {
            since = now;
            meter = Meter::now()?;
        } else if now - since >= QUIET {
            return Ok(now - since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_kept_to_one_percent() {
        let mut latencies = Latencies::new();
        for microseconds in 1..=1000 {
            latencies.record(Duration::from_micros(microseconds));
        }
        for (share, expected) in [(0.5, 500.0), (0.99, 990.0)] {
            let seen = latencies.quantile_us(share);
            assert!((seen / expected - 1.0).abs() < 0.02, "{share}: {seen}");
        }
        assert!((latencies.max_us() / 1000.0 - 1.0).abs() < 0.01);
        assert!(
            latencies
                .count_from(Duration::from_micros(900))
                .abs_diff(101)
                <= 10
        );
    }

    #[test]
    fn threads_are_added_up() {
        let (mut one, mut other) = (Latencies::new(), Latencies::new());
        one.record(Duration::from_micros(1));
        other.record(Duration::from_millis(5));
        one.add(&other);
        assert!(one.max_us() >= 4_950.0);
        assert_eq!(one.count_from(Duration::from_millis(1)), 1);
    }

    #[test]
    fn a_write_is_charged_to_the_process() {
        // Beside the test's own binary: the usual temporary directory may be in memory.
        let binary = std::env::current_exe().expect("a running binary");
        let beside = binary.parent().expect("a directory");
        let directory = tempfile::tempdir_in(beside).expect("a directory");
        let meter = Meter::start().expect("/proc is there");
        let path = directory.path().join("file");
        fs::write(&path, vec![1; 1 << 20]).expect("room for a megabyte");
        let file = fs::File::open(&path).expect("just written");
        file.sync_all().expect("a sync");
        assert!(meter.written_bytes().expect("/proc is there") >= 1 << 20);
        assert!(disk_mb(directory.path()) >= 1.0);
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "write_bytes: 12\ncancelled_write_bytes: 3\nVmHWM:\t  42 kB\n";
        assert_eq!(field(text, "write_bytes:"), Some(12));
        assert_eq!(field(text, "cancelled_write_bytes:"), Some(3));
        assert_eq!(field(text, "VmHWM:"), Some(42));
        assert_eq!(field(text, "absent:"), None);
    }
}
