//! Looks at everything there is of a kind: the more there is, the more seldom.

use crate::storage::Storage;
use crate::sync::{Mutex, lock};
use std::time::Duration;

/// After a look the next comes at the earliest after so many times as long.
const SHARE: u32 = 10;

/// When to look again.
#[derive(Debug, Default)]
pub(super) struct Looks {
    next: Mutex<Duration>,
}

impl Looks {
    /// When it is time.
    pub(super) fn next(&self) -> Duration {
        *lock(&self.next)
    }

    /// Looks, if it is time. Then it is time again after `pause`, or after ten times what this look took if that is
    /// more.
    pub(super) fn look<T>(
        &self,
        storage: &dyn Storage,
        pause: Duration,
        look: impl FnOnce() -> T,
    ) -> Option<T> {
        let begun = storage.now();
        if begun < *lock(&self.next) {
            return None;
        }
        let seen = look();
        let ended = storage.now();
        *lock(&self.next) = ended + pause.max(ended.saturating_sub(begun) * SHARE);
        Some(seen)
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
        let looks = Looks::default();
        let wait = |seconds| storage.sleep(Duration::from_secs(seconds));
        let pause = Duration::from_secs(300);
        assert!(looks.look(&*storage, pause, || wait(50)).is_some());
        wait(450);
        assert!(looks.look(&*storage, pause, || ()).is_none());
        wait(100);
        assert!(looks.look(&*storage, pause, || ()).is_some());
        wait(200);
        assert!(looks.look(&*storage, pause, || ()).is_none(), "the pause");
        wait(150);
        assert!(looks.look(&*storage, pause, || ()).is_some());
    }
}
