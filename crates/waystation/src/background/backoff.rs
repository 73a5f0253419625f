//! Backoff: work that goes over everything there is of a kind runs the more seldom the longer it takes.

use crate::storage::Storage;
use crate::sync::{Mutex, lock};
use std::time::Duration;

/// After a run the next comes at the earliest after so many times as long.
const SHARE: u32 = 10;

/// When such work may run again.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    next: Mutex<Duration>,
}

impl Backoff {
    /// When it is time.
    pub(crate) fn next(&self) -> Duration {
        *lock(&self.next)
    }

    /// Runs `work`, if it is time. Then it is time again after `pause`, or after ten times what this run took if that is
    /// more.
    pub(crate) fn run<T>(
        &self,
        storage: &dyn Storage,
        pause: Duration,
        work: impl FnOnce() -> T,
    ) -> Option<T> {
        let begun = storage.now();
        if begun < *lock(&self.next) {
            return None;
        }
        let done = work();
        let ended = storage.now();
        *lock(&self.next) = ended + pause.max(ended.saturating_sub(begun) * SHARE);
        Some(done)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::storage::SimStorage;

    #[test]
    fn what_takes_long_comes_seldom() {
        let storage = SimStorage::new(1);
        let backoff = Backoff::default();
        let wait = |seconds| storage.sleep(Duration::from_secs(seconds));
        let pause = Duration::from_secs(300);
        assert!(backoff.run(&*storage, pause, || wait(50)).is_some());
        wait(450);
        assert!(backoff.run(&*storage, pause, || ()).is_none());
        wait(100);
        assert!(backoff.run(&*storage, pause, || ()).is_some());
        wait(200);
        assert!(backoff.run(&*storage, pause, || ()).is_none(), "the pause");
        wait(150);
        assert!(backoff.run(&*storage, pause, || ()).is_some());
    }
}
