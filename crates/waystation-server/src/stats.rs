//! What the server counts: requests by method, answers by status.

use hyper::{Method, StatusCode};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Methods that are counted by name; others count as `OTHER`.
const METHODS: [&str; 7] = ["COPY", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];

/// Counts since the server started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) methods: BTreeMap<&'static str, u64>,
    pub(crate) statuses: BTreeMap<u16, u64>,
}

/// See the module.
pub(crate) struct Stats {
    begun: Instant,
    counts: Mutex<Counts>,
}

impl Default for Stats {
    #[expect(
        clippy::disallowed_methods,
        reason = "the uptime is told, and nothing depends on it"
    )]
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            counts: Mutex::default(),
        }
    }
}

impl Stats {
    /// Counts a request and its answer.
    pub(crate) fn count(&self, method: &Method, status: StatusCode) {
        let named = METHODS.iter().find(|name| **name == method.as_str());
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.requests += 1;
        *counts
            .methods
            .entry(named.copied().unwrap_or("OTHER"))
            .or_default() += 1;
        *counts.statuses.entry(status.as_u16()).or_default() += 1;
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> Counts {
        let counts = self.counts.lock();
        counts.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How long the server has been running.
    pub(crate) fn uptime(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Seconds since the server started.
    pub(crate) fn uptime_seconds(&self) -> u64 {
        self.uptime().as_secs()
    }
}
