//! When the fast directory fails, is full or is slow: it rests, all reads go to the main directory, and after a while it is
//! tried again, from empty.

use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::sync::{Mutex, lock};
use std::time::Duration;

/// The first pause, and the longest: each is twice as long as the one before, until the directory works again.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Health {
    is_resting: AtomicBool,
    rest: Mutex<Rest>,
}

#[derive(Debug, Default)]
struct Rest {
    /// Why it rests.
    reason: Option<String>,
    /// A rest that has begun and that the background has not heard of.
    is_new: bool,
    pause: Duration,
    until: Duration,
}

impl Health {
    /// Whether reads may ask the fast directory.
    pub(super) fn is_good(&self) -> bool {
        !self.is_resting.load(SeqCst)
    }

    /// Why it rests, if it does.
    pub(super) fn reason(&self) -> Option<String> {
        lock(&self.rest).reason.clone()
    }

    /// Has it rest. Says so once.
    pub(super) fn rest(&self, reason: &str) {
        let mut rest = lock(&self.rest);
        if self.is_resting.swap(true, SeqCst) {
            return;
        }
        rest.is_new = true;
        if rest.reason.replace(reason.to_owned()).is_none() {
            log::warn!("the database goes on without its fast directory: {reason}");
        }
    }

    /// The time at which the rest is over, which begins `now` for the background. `None`: it does not rest.
    pub(super) fn until(&self, now: Duration) -> Option<Duration> {
        let mut rest = lock(&self.rest);
        if self.is_good() {
            return None;
        }
        if std::mem::take(&mut rest.is_new) {
            rest.pause = (rest.pause * 2).clamp(PAUSES.0, PAUSES.1);
            rest.until = now + rest.pause;
        }
        Some(rest.until)
    }

    /// Has it rest for good: the database is closed.
    pub(super) fn rest_quietly(&self) {
        self.is_resting.store(true, SeqCst);
    }

    /// It is tried again.
    pub(super) fn resume(&self) {
        let _rest = lock(&self.rest);
        self.is_resting.store(false, SeqCst);
    }

    /// It has worked for a while.
    pub(super) fn has_worked(&self) {
        let mut rest = lock(&self.rest);
        if self.is_good() && rest.reason.take().is_some() {
            log::info!("the database uses its fast directory again");
            rest.pause = Duration::ZERO;
        }
    }
}
