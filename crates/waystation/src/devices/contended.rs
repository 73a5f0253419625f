//! A lock that tells its holder whether other threads wait for it.
//!
//! Long work under a lock is done at low priority ([`Duty`](crate::storage::Duty)) until another thread wants the lock; so the
//! lock counts the threads that wait.

use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use crate::sync::{Mutex, MutexGuard, lock};

/// A lock that counts the threads that wait for it.
pub(crate) struct ContendedLock<T> {
    content: Mutex<T>,
    waiting: AtomicUsize,
}

impl<T> ContendedLock<T> {
    pub(crate) fn new(content: T) -> Self {
        Self {
            content: Mutex::new(content),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The content, once no other thread has it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.waiting.fetch_add(1, SeqCst);
        let content = lock(&self.content);
        self.waiting.fetch_sub(1, SeqCst);
        content
    }

    /// The content, if no other thread has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.content.try_lock().ok()
    }

    /// Whether a thread waits until its holder is done.
    pub(crate) fn is_contended(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_thread_that_waits_is_counted_until_it_has_the_lock() {
        let contended = ContendedLock::new(());
        thread::scope(|scope| {
            let held = contended.lock();
            assert!(!contended.is_contended() && contended.try_lock().is_none());
            let waiter = scope.spawn(|| drop(contended.lock()));
            while !contended.is_contended() {
                thread::yield_now();
            }
            drop(held);
            waiter.join().unwrap();
        });
        assert!(!contended.is_contended() && contended.try_lock().is_some());
    }
}
