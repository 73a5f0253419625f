//! The real clock and what the process takes, as the operating system counts.
#![expect(
    clippy::disallowed_methods,
    reason = "a run is measured by the real clock; the ban protects the engine's simulation"
)]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Now, on the clock that never goes back.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Processor time that all threads of this process have used.
pub(crate) fn cpu_time() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// Processor time that this thread has used.
pub(crate) fn thread_cpu_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Bytes that this process has sent to storage.
pub(crate) fn written_bytes() -> u64 {
    counter("/proc/self/io", "write_bytes:")
}

/// Bytes that this thread has fetched from storage.
pub(crate) fn thread_read_bytes() -> u64 {
    counter("/proc/thread-self/io", "read_bytes:")
}

/// The most memory that this process has had since [`forget_peak`].
pub(crate) fn peak_memory_bytes() -> u64 {
    1_024 * counter("/proc/self/status", "VmHWM:")
}

/// The memory that this process has.
pub(crate) fn memory_bytes() -> u64 {
    1_024 * counter("/proc/self/status", "VmRSS:")
}

/// The memory that the machine has; 0 if it does not tell.
pub(crate) fn physical_memory_bytes() -> u64 {
    1_024 * counter("/proc/meminfo", "MemTotal:")
}

/// Lets this process have as many files open as the system allows it without asking; how many.
pub(crate) fn allow_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
    match raised {
        Ok(()) => most,
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// Lets the peak begin at what the process has now. Where that is not allowed it goes on.
pub(crate) fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Bytes of the files in a directory and those below.
pub(crate) fn disk_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

/// A number from one of the kernel's lists; 0 where there is none.
fn counter(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix(name));
    let number = found.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells() {
        assert!(memory_bytes() > 1 << 20);
        assert!(peak_memory_bytes() >= memory_bytes() / 2);
        assert!(cpu_time() > Duration::ZERO);
        assert!(physical_memory_bytes() > memory_bytes());
        assert!(allow_files() >= 256 && allow_files() == allow_files());
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a"), [0; 100]).unwrap();
        fs::create_dir(directory.path().join("b")).unwrap();
        fs::write(directory.path().join("b/c"), [0; 11]).unwrap();
        assert_eq!(disk_bytes(directory.path()), 111);
    }
}
