//! A lock that tells who has it whether others wait, and what hurries who works under it.
//!
//! What takes long and nobody waits for is done at leisure ([`Duty`](crate::storage::Duty)), until somebody does; so whoever
//! has to wait is counted.

use super::Core;
use crate::storage::Haste;
use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use crate::sync::{Mutex, MutexGuard, lock};

/// See the module.
pub(super) struct Awaited<T> {
    content: Mutex<T>,
    waiting: AtomicUsize,
}

impl<T> Awaited<T> {
    pub(super) fn new(content: T) -> Self {
        Self {
            content: Mutex::new(content),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The content, once nobody else has it.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.waiting.fetch_add(1, SeqCst);
        let content = lock(&self.content);
        self.waiting.fetch_sub(1, SeqCst);
        content
    }

    /// The content, if nobody has it.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.content.try_lock().ok()
    }

    /// Whether somebody waits until whoever has it is done.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }
}

impl Core {
    /// The haste in which to go on with what was begun in `haste` by whoever holds `held`.
    pub(super) fn haste_by_now<T>(&self, haste: Haste, held: &Awaited<T>) -> Haste {
        if held.is_awaited() || self.is_stopping() {
            Haste::Much
        } else {
            haste
        }
    }

    /// Whether the background threads are to end.
    pub(super) fn is_stopping(&self) -> bool {
        lock(&self.background).stopping
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn who_waits_is_counted_until_it_is_his_turn() {
        let awaited = Awaited::new(());
        thread::scope(|scope| {
            let held = awaited.lock();
            assert!(!awaited.is_awaited() && awaited.try_lock().is_none());
            let waiter = scope.spawn(|| drop(awaited.lock()));
            while !awaited.is_awaited() {
                thread::yield_now();
            }
            drop(held);
            waiter.join().unwrap();
        });
        assert!(!awaited.is_awaited() && awaited.try_lock().is_some());
    }
}
