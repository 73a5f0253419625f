//! The time of keys with a time to live: the wall clock when the server started, and counted from then on.
//!
//! The engine counts in the same way, so that a wall clock which is set forward or back lets no key live for longer or
//! shorter than it was told.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    started: Instant,
    since_epoch: Duration,
}

impl Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the server has no simulated clock; the engine's own is not for its callers"
    )]
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
            since_epoch: wall(),
        }
    }

    pub(crate) fn since_epoch(&self) -> Duration {
        self.since_epoch + self.started.elapsed()
    }

    /// Milliseconds since 1970.
    pub(crate) fn millis(&self) -> u64 {
        self.since_epoch().as_millis() as u64
    }

    /// How long the server has been running.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

/// The wall clock, since 1970.
#[expect(clippy::disallowed_methods, reason = "`TIME` asks for the wall clock")]
pub(crate) fn wall() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
