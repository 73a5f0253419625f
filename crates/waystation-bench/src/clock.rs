//! The clocks: the one place of this crate that asks for the time.
#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures the real clock; the ban protects the engine's simulation"
)]

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant, SystemTime};

/// Now, on the clock that never goes back.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Seconds since the Unix epoch.
pub(crate) fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Milliseconds since the Unix epoch.
pub(crate) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Processor time, user and system, that all threads of this process have used.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
