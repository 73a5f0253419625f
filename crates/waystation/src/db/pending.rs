//! Stays that have switched and not settled, and who waits for them.
//!
//! The lock is held while they settle, and while a memtable is flushed. Settling that nobody waits for is done at leisure,
//! so whoever has to wait here is counted.

use crate::device::resident::Resident;
use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use crate::sync::{Arc, Mutex, MutexGuard, lock};

/// See the module.
pub(super) struct Pending {
    stays: Mutex<Vec<Arc<Resident>>>,
    waiting: AtomicUsize,
}

impl Pending {
    pub(super) fn new(stays: Vec<Arc<Resident>>) -> Self {
        Self {
            stays: Mutex::new(stays),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The stays, once nobody else has them.
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Arc<Resident>>> {
        self.waiting.fetch_add(1, SeqCst);
        let stays = lock(&self.stays);
        self.waiting.fetch_sub(1, SeqCst);
        stays
    }

    /// The stays, if nobody has them.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Vec<Arc<Resident>>>> {
        self.stays.try_lock().ok()
    }

    /// Whether somebody waits until whoever has them is done.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn who_waits_is_counted_until_it_is_his_turn() {
        let pending = Pending::new(Vec::new());
        thread::scope(|scope| {
            let held = pending.lock();
            assert!(!pending.is_awaited() && pending.try_lock().is_none());
            let waiter = scope.spawn(|| drop(pending.lock()));
            while !pending.is_awaited() {
                thread::yield_now();
            }
            drop(held);
            waiter.join().unwrap();
        });
        assert!(!pending.is_awaited() && pending.try_lock().is_some());
    }
}
