//! Room for a limited group that is out of memory although it has swap.
//!
//! Reclaim within a group gives up after so many rounds in which no page came free, which happens when every page was
//! used between two looks, as a graph computation with fast swap does it; the kernel then kills. Where the kernel lets
//! a group wait instead (memory groups of version 1), the laboratory's group waits, and gets [`ROOM_BYTES`] for a
//! moment. It is counted how often: a run with many such moments had more memory than was asked for.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// What the group may use more, until it can be taken back.
const ROOM_BYTES: u64 = 256 << 10;
/// How often the group is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// Tells whether the group waits; "1" written to it makes it wait rather than be killed.
pub(super) const CONTROL: &str = "memory.oom_control";

/// Watches a group with its limit while something is done, if the kernel lets the group wait; also returns how often
/// it was out of memory.
pub(super) fn relieved<T>(
    group: &Path,
    limit_file: &str,
    limit_bytes: u64,
    work: impl FnOnce() -> T,
) -> (T, u32) {
    let watch = Watch {
        control: group.join(CONTROL),
        limit_file: group.join(limit_file),
        limit_bytes,
    };
    if !watch.control.exists() {
        return (work(), 0);
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut times = 0;
            while !over.load(Ordering::Relaxed) {
                times += u32::from(watch.look());
                thread::sleep(LOOK);
            }
            times
        });
        let done = {
            let _end = End(&over);
            work()
        };
        match watcher.join() {
            Ok(times) => (done, times),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Ends the watching, however the work ends.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Watch {
    control: PathBuf,
    limit_file: PathBuf,
    limit_bytes: u64,
}

impl Watch {
    /// Gives a group that waits room for a moment; whether it did wait.
    fn look(&self) -> bool {
        let waits = std::fs::read_to_string(&self.control)
            .is_ok_and(|text| text.lines().any(|line| line == "under_oom 1"));
        if waits {
            // The group may be gone, and the room may be in use for a while: it is asked back at every later look.
            let _ = self.set(self.limit_bytes + ROOM_BYTES);
            thread::sleep(LOOK);
        }
        if waits || self.is_above() {
            let _ = self.set(self.limit_bytes);
        }
        waits
    }

    fn set(&self, bytes: u64) -> std::io::Result<()> {
        std::fs::write(&self.limit_file, bytes.to_string())
    }

    fn is_above(&self) -> bool {
        std::fs::read_to_string(&self.limit_file)
            .is_ok_and(|text| text.trim().parse() == Ok(self.limit_bytes + ROOM_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(under_oom: u8, limit: u64) -> (tempfile::TempDir, Watch) {
        let directory = tempfile::tempdir().unwrap();
        let watch = Watch {
            control: directory.path().join(CONTROL),
            limit_file: directory.path().join("memory.limit_in_bytes"),
            limit_bytes: 1 << 20,
        };
        std::fs::write(
            &watch.control,
            format!("oom_kill_disable 1\nunder_oom {under_oom}\noom_kill 0\n"),
        )
        .unwrap();
        std::fs::write(&watch.limit_file, format!("{limit}\n")).unwrap();
        (directory, watch)
    }

    #[test]
    fn a_group_that_waits_is_counted_and_keeps_its_limit_in_the_end() {
        let (_directory, watch) = group(1, 1 << 20);
        assert!(watch.look());
        assert_eq!(
            std::fs::read_to_string(&watch.limit_file).unwrap(),
            "1048576"
        );
    }

    #[test]
    fn room_that_could_not_be_taken_back_is_asked_for_again() {
        let (_directory, watch) = group(0, (1 << 20) + ROOM_BYTES);
        assert!(!watch.look());
        assert_eq!(
            std::fs::read_to_string(&watch.limit_file).unwrap(),
            "1048576"
        );
    }

    #[test]
    fn a_group_that_does_not_wait_is_left_alone() {
        let (_directory, watch) = group(0, 77 << 12);
        assert!(!watch.look());
        let limit = std::fs::read_to_string(&watch.limit_file).unwrap();
        assert_eq!(limit.trim(), (77 << 12).to_string());
    }

    #[test]
    fn without_the_kernel_s_help_nothing_is_watched() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(relieved(directory.path(), "memory.max", 1, || 7), (7, 0));
    }

    #[test]
    fn a_group_is_watched_until_the_work_is_done() {
        let (directory, _watch) = group(1, 1 << 20);
        let (seven, times) = relieved(directory.path(), "memory.limit_in_bytes", 1 << 20, || {
            thread::sleep(LOOK * 20);
            7
        });
        assert_eq!(seven, 7);
        assert!(times > 0);
    }
}
