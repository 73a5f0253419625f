//! The engine's door to everything two threads can meet at: locks, atomics, reference counts, yielding.
//!
//! Whatever is shared between threads takes its primitives from here and not from `std`, so that the same
//! code runs under two model checkers. In an ordinary build this is `std`. Under `--cfg loom` it is loom,
//! which tries every interleaving and every value the memory model allows (small structures: the memtable).
//! Under `--cfg shuttle` it is shuttle, which tries many random schedules, sequentially consistent (larger
//! protocols: the ring, the commit pipeline). With the feature `test-storage` it is `std` with threads that a test can have
//! held up now and then (`restless`), so that the whole engine meets what happens on a machine with far too much to do.
//!
//! To keep all builds alike: no `static` or `const` atomics (loom's are not `const`), no timeouts but [`wait_for`]'s, and
//! no waiting without [`Condvar`], [`hint::spin_loop`] or [`thread::yield_now`]. [`Arc`] is `std`'s everywhere, as
//! shuttle's is too: loom's is no method receiver and does not coerce to trait objects, and it is not in
//! reference counts that our mistakes will be.
#![allow(
    unused_imports,
    reason = "the three sets are kept alike, whichever part is used today"
)]

#[cfg(all(test, shuttle))]
pub(crate) mod models;
pub(crate) mod queue;
#[cfg(feature = "test-storage")]
pub(crate) mod restless;

#[cfg(not(any(loom, shuttle)))]
mod chosen {
    pub(crate) use std::hint;
    pub(crate) use std::sync::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic,
    };
    pub(crate) use std::thread;
}

#[cfg(loom)]
mod chosen {
    pub(crate) use loom::hint;
    pub(crate) use loom::sync::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic,
    };
    pub(crate) use loom::thread;
}

#[cfg(all(shuttle, not(loom)))]
mod chosen {
    pub(crate) use shuttle::hint;
    pub(crate) use shuttle::sync::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic,
    };
    pub(crate) use shuttle::thread;
}

pub(crate) use chosen::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, hint, thread,
};
pub(crate) use std::sync::{Arc, Weak};

/// Locks `mutex`. A poisoned lock means that a thread died with an invariant broken: nothing behind it can
/// be trusted, so this one stops too.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    may_be_held_up();
    mutex.lock().expect("no thread panics with this lock held")
}

/// How often a thread looks for a lock before it sleeps: for a tenth of a millisecond or less.
#[cfg(not(any(loom, shuttle)))]
const LOOKS: usize = 2000;

/// The same as [`lock`], for a thread that is to have the lock soon, where every holder gives it back at once. A thread that
/// sleeps waits for the turns of all busy threads when it is woken; so this one looks for the lock first.
#[inline]
pub(crate) fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    may_be_held_up();
    #[cfg(not(any(loom, shuttle)))]
    for _ in 0..LOOKS {
        if let Ok(guard) = mutex.try_lock() {
            return guard;
        }
        hint::spin_loop();
    }
    lock(mutex)
}

/// Here another thread may get far ahead of this one: it does, once in a while, where a test asks for it.
#[inline]
pub(crate) fn may_be_held_up() {
    #[cfg(feature = "test-storage")]
    restless::pass();
}

/// Waits on `condvar`, as [`lock`].
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar
        .wait(guard)
        .expect("no thread panics with this lock held")
}

/// Waits on `condvar`, but not much longer than `time`. In a model others get on once.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn wait_for<'a, T>(
    condvar: &Condvar,
    _: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    time: std::time::Duration,
) -> MutexGuard<'a, T> {
    let waited = condvar.wait_timeout(guard, time);
    waited.expect("no thread panics with this lock held").0
}

/// Waits on `condvar`, but not much longer than `time`. In a model others get on once.
#[cfg(any(loom, shuttle))]
pub(crate) fn wait_for<'a, T>(
    _: &Condvar,
    mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    _: std::time::Duration,
) -> MutexGuard<'a, T> {
    drop(guard);
    thread::yield_now();
    lock(mutex)
}

/// Makes `value` at least `least`, so that a thread that loads it knows all that was done before.
///
/// `fetch_max` would say the same, but the thread sanitizer does not see that one (LLVM hands it on no `atomicrmw umax`), and
/// so would find races where this is what orders two threads. On x86-64 both become the same loop.
#[inline]
pub(crate) fn raise(value: &atomic::AtomicU64, least: u64) {
    replace(value, |old| old.max(least));
}

/// Makes `value` at most `most`; the counterpart of [`raise`].
#[inline]
pub(crate) fn lower(value: &atomic::AtomicU64, most: u64) {
    replace(value, |old| old.min(most));
}

#[inline]
fn replace(value: &atomic::AtomicU64, new: impl Fn(u64) -> u64) {
    use atomic::Ordering::SeqCst;
    let mut seen = value.load(SeqCst);
    while let Err(now) = value.compare_exchange_weak(seen, new(seen), SeqCst, SeqCst) {
        seen = now;
    }
}
