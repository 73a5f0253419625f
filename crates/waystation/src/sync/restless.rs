//! Threads that are held up, for real, as on a machine with far too much to do: for a moment in one of a few hundred places
//! where they could be.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Of so many places one holds a thread up.
const ONE_IN: u64 = 300;
/// For so long at most (microseconds).
const LONGEST: u64 = 3_000;

static IS_ON: AtomicBool = AtomicBool::new(false);

thread_local! {
    static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0) | 1);
}

/// From now on any thread of any database of this process may be held up, for up to 3 ms, wherever it takes a lock.
pub fn hold_threads_up() {
    IS_ON.store(true, Relaxed);
}

#[inline]
pub(super) fn pass() {
    if IS_ON.load(Relaxed) {
        hold_up_at_random();
    }
}

fn hold_up_at_random() {
    // A thread that is ending has no state any more, and goes on.
    let next = STATE.try_with(|state| {
        let mut next = state.get();
        next ^= next << 13;
        next ^= next >> 7;
        next ^= next << 17;
        state.set(next);
        next
    });
    if let Ok(number) = next
        && (number >> 32).is_multiple_of(ONE_IN)
    {
        std::thread::sleep(Duration::from_micros(number % LONGEST));
    }
}
