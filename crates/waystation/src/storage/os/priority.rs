//! Which threads the processor serves first, and how soon.

use std::io;

/// How much nicer than others a background thread is: it gets a third of the time of one that competes with it.
const NICE: i32 = 5;

/// Lets this thread stand back behind threads that others wait for. A system that refuses costs speed only.
pub(crate) fn stand_back() {
    // On Linux this is about the thread alone, whatever POSIX says of processes.
    if let Err(error) = rustix::process::nice(NICE) {
        log::debug!("a background thread runs at the priority of all others: {error}");
    }
}

/// The slice of a thread that others wait for (nanoseconds).
const SHORT_SLICE_NS: u64 = 100_000;

/// Lets this thread have the processor soon after it wakes. From Linux 6.12 on a thread with a shorter slice does not wait
/// until the slice of another one ends. Its share of the time stays what it is. Earlier kernels, and threads of another
/// policy than the usual ones, stay as they are.
pub(crate) fn wake_soon() {
    let set = attributes().and_then(|attributes| match attributes.sched_policy.cast_signed() {
        libc::SCHED_OTHER | libc::SCHED_BATCH => set_attributes(&libc::sched_attr {
            sched_runtime: SHORT_SLICE_NS,
            ..attributes
        }),
        _ => Ok(()),
    });
    if let Err(error) = set {
        log::debug!("a thread that others wait for wakes as late as all others: {error}");
    }
}

/// The attributes of a thread before they are read.
const UNKNOWN: libc::sched_attr = libc::sched_attr {
    size: size_of::<libc::sched_attr>() as u32,
    sched_policy: 0,
    sched_flags: 0,
    sched_nice: 0,
    sched_priority: 0,
    sched_runtime: 0,
    sched_deadline: 0,
    sched_period: 0,
};

/// How the kernel schedules this thread.
#[expect(unsafe_code, reason = "a call that no crate offers")]
fn attributes() -> io::Result<libc::sched_attr> {
    let mut attributes = UNKNOWN;
    let size = attributes.size;
    let pointer = &raw mut attributes;
    // SAFETY: the kernel writes at most `size` bytes to the structure, which has so many, all of them numbers.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, pointer, size, 0) };
    outcome_of(outcome).map(|()| attributes)
}

#[expect(unsafe_code, reason = "a call that no crate offers")]
fn set_attributes(attributes: &libc::sched_attr) -> io::Result<()> {
    let pointer = std::ptr::from_ref(attributes);
    // SAFETY: the kernel reads the structure, which has as many bytes as it says, and keeps no pointer to it.
    outcome_of(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, pointer, 0) })
}

fn outcome_of(returned: libc::c_long) -> io::Result<()> {
    if returned == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle, miri)))]
mod tests {
    use super::*;

    /// On a thread of its own, as its attributes stay changed.
    fn after(change: impl FnOnce() + Send) -> [libc::sched_attr; 2] {
        std::thread::scope(|scope| {
            let changed = scope.spawn(|| {
                let before = attributes().unwrap();
                change();
                [before, attributes().unwrap()]
            });
            changed.join().unwrap()
        })
    }

    #[test]
    fn a_thread_that_wakes_soon_has_a_short_slice_and_its_old_share() {
        for nicer in [0, 3] {
            let [before, now] = after(|| {
                rustix::process::nice(nicer).unwrap();
                wake_soon();
            });
            assert_eq!(now.sched_nice, before.sched_nice + nicer);
            assert_eq!(now.sched_policy, before.sched_policy);
            // An earlier kernel tells no slice.
            if before.sched_runtime > 0 {
                assert_eq!(now.sched_runtime, SHORT_SLICE_NS);
            }
        }
    }

    #[test]
    fn a_thread_that_stands_back_has_its_old_slice() {
        let [before, now] = after(stand_back);
        assert_eq!(now.sched_nice, before.sched_nice + NICE);
        assert_eq!(now.sched_runtime, before.sched_runtime);
    }
}
