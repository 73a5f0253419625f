//! Meters: how many documents and bytes a node's scans read in a second.
//!
//! Several scans of a node go on at once. What counts is the time in which at least one of them does: documents by that
//! time are the speed of the node, however many scans there are. Old measurements count half after each period, so the
//! speed follows a node that becomes faster or slower.

use crate::shard::ScanStats;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use waystation::storage::{OsStorage, Storage};

/// Scans for as long as this count half afterwards.
const PERIOD: Duration = Duration::from_secs(1);
/// Scans for less than this say nothing.
const BUSY_MIN: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    /// Scans that are going on.
    active: u64,
    /// When the first of them began.
    since: Duration,
    busy: Duration,
    documents: f64,
    bytes: f64,
}

/// Measures the scans of a node. See the module.
#[derive(Debug)]
pub struct Meter {
    clock: Arc<OsStorage>,
    figures: Mutex<Figures>,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            clock: OsStorage::new(),
            figures: Mutex::default(),
        }
    }
}

/// A scan that is going on.
pub(super) struct Begun(Arc<Meter>);

impl Meter {
    fn lock(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a scan begins.
    pub(super) fn begin(self: &Arc<Self>) -> Begun {
        self.lock().begin(self.clock.now());
        Begun(Arc::clone(self))
    }

    /// How long one more scan is likely to take, compared with other nodes. One that was not measured is tried first.
    pub(super) fn cost(&self) -> f64 {
        let figures = self.lock();
        let speed = figures.speed().map(|(documents, _)| documents.max(1.0));
        (figures.active + 1) as f64 / speed.unwrap_or(f64::MAX)
    }

    /// Documents and bytes in a second; `None`: too little was scanned to say.
    pub fn speed(&self) -> Option<(f64, f64)> {
        self.lock().speed()
    }
}

impl Begun {
    /// Notes that the scan ends, and what it read.
    pub(super) fn end(self, read: ScanStats) {
        let mut figures = self.0.lock();
        figures.documents += read.examined as f64;
        figures.bytes += read.bytes as f64;
    }
}

/// A scan that failed read nothing, and took its time all the same.
impl Drop for Begun {
    fn drop(&mut self) {
        let now = self.0.clock.now();
        self.0.lock().end(now);
    }
}

impl Figures {
    fn begin(&mut self, now: Duration) {
        if self.active == 0 {
            self.since = now;
        }
        self.active += 1;
    }

    fn end(&mut self, now: Duration) {
        self.active -= 1;
        self.busy += now.saturating_sub(self.since);
        self.since = now;
        if self.busy >= 2 * PERIOD {
            self.busy /= 2;
            self.documents /= 2.0;
            self.bytes /= 2.0;
        }
    }

    fn speed(&self) -> Option<(f64, f64)> {
        let seconds = self.busy.as_secs_f64();
        (self.busy >= BUSY_MIN).then(|| (self.documents / seconds, self.bytes / seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn read(figures: &mut Figures, documents: f64, now: Duration) {
        figures.documents += documents;
        figures.end(now);
    }

    #[test]
    fn scans_that_go_on_at_once_share_their_time() {
        let mut figures = Figures::default();
        figures.begin(at(0));
        figures.begin(at(500));
        read(&mut figures, 100.0, at(1000));
        read(&mut figures, 100.0, at(1000));
        assert_eq!(figures.speed(), Some((200.0, 0.0)));
        // Rest is not counted.
        figures.begin(at(9000));
        read(&mut figures, 200.0, at(10_000));
        assert_eq!(figures.speed(), Some((200.0, 0.0)));
    }

    #[test]
    fn a_node_that_becomes_slower_is_noticed() {
        let mut figures = Figures::default();
        assert_eq!(figures.speed(), None);
        for second in 0..8 {
            figures.begin(at(second * 1000));
            read(&mut figures, 1000.0, at(second * 1000 + 1000));
        }
        for second in 8..40 {
            figures.begin(at(second * 1000));
            read(&mut figures, 100.0, at(second * 1000 + 1000));
        }
        let (documents, _) = figures.speed().expect("a speed");
        assert!((100.0..160.0).contains(&documents), "{documents}");
    }
}
