//! How much memory and how many processors there are to use.

use std::path::Path;
use std::sync::OnceLock;
use std::thread::available_parallelism;

/// Where the kernel says which control groups this process is in, and where these are mounted.
const OWN_GROUPS: &str = "/proc/self/cgroup";
const GROUPS: &str = "/sys/fs/cgroup";

/// The bytes of memory this process may use at most: the machine's, or what its control groups leave it if that is less.
pub(crate) fn memory_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    let total = (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit));
    let groups = std::fs::read_to_string(OWN_GROUPS).unwrap_or_default();
    let limit = group_limit(Path::new(GROUPS), &groups);
    limit.map_or(total, |limit| limit.min(total))
}

/// The least limit of the control groups in `groups`, which are mounted at `mounted`, and of the groups around them. Of
/// version 1 only those of the memory controller count. A container may see its own group as the outermost one alone.
fn group_limit(mounted: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let (outermost, file) = match controllers {
            "" => (mounted.to_owned(), "memory.max"),
            all if all.split(',').any(|it| it == "memory") => {
                (mounted.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let own = outermost.join(group.trim_start_matches('/'));
        let groups = own.ancestors().take_while(|it| it.starts_with(&outermost));
        groups.filter_map(|it| limit_in(&it.join(file))).min()
    });
    limits.min()
}

/// The limit that `file` tells, if there is one.
fn limit_in(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// How many threads can run at once, as the operating system said when it was asked first: it reads several files to tell.
pub(crate) fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| available_parallelism().map_or(1, usize::from))
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::{group_limit, memory_bytes};
    use std::fs;

    #[test]
    fn there_is_some() {
        let bytes = memory_bytes();
        assert!((1 << 24..1 << 50).contains(&bytes), "{bytes}");
    }

    #[test]
    #[cfg(not(miri))]
    fn the_least_limit_of_all_groups_around_the_process_counts() {
        let mounted = tempfile::tempdir().unwrap();
        let limit = |path: &str, text: &str| {
            let file = mounted.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let found = |groups: &str| group_limit(mounted.path(), groups);
        assert_eq!(found("0::/system.slice/edge.service\n"), None);
        limit("system.slice/memory.max", "9000000\n");
        limit("system.slice/edge.service/memory.max", "max\n");
        assert_eq!(found("0::/system.slice/edge.service\n"), Some(9_000_000));
        limit("system.slice/edge.service/memory.max", "7000000\n");
        assert_eq!(found("0::/system.slice/edge.service\n"), Some(7_000_000));
        assert_eq!(found("0::/system.slice\n"), Some(9_000_000));
        assert_eq!(found("0::/\n"), None);
        // As in a container that sees its own group alone.
        limit("memory.max", "5000000\n");
        assert_eq!(found("0::/elsewhere/container\n"), Some(5_000_000));
        // Version 1, beside version 2 without its memory controller.
        limit("memory/docker/memory.limit_in_bytes", "3000000\n");
        limit("cpu/docker/memory.limit_in_bytes", "1000\n");
        let both = "12:cpu,cpuacct:/docker\n4:hugetlb,memory:/docker/1\n0::/docker\n";
        assert_eq!(found(both), Some(3_000_000));
        assert_eq!(found("no group"), None);
    }
}
