//! The time of day, for cookies and the Date of events.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "cookies carry the time of day; nothing that is stored depends on it"
)]
pub(crate) fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs()
}
