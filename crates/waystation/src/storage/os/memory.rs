//! How much memory and how many processors there are to use.

use std::sync::OnceLock;
use std::thread::available_parallelism;

/// Where the kernel says what the control group of this process may use, as a container sees it.
const GROUP_LIMIT: &str = "/sys/fs/cgroup/memory.max";

/// The bytes of memory this process may use at most: the machine's, or its control group's if that is less.
pub(crate) fn memory_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    let total = (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit));
    let limit = std::fs::read_to_string(GROUP_LIMIT).ok();
    let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
    limit.map_or(total, |limit| limit.min(total))
}

/// How many threads can run at once, as the operating system said when it was asked first: it reads several files to tell.
pub(crate) fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| available_parallelism().map_or(1, usize::from))
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    #[test]
    fn there_is_some() {
        let bytes = super::memory_bytes();
        assert!((1 << 24..1 << 50).contains(&bytes), "{bytes}");
    }
}
