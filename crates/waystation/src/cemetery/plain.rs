//! For tests: deletions as tombstones in the tree, so that histories can be compared with and without the cemetery.
//!
//! It counts for what the thread that asks for it writes, lets settle, or reads back from the log itself.

use std::cell::Cell;

thread_local! {
    static IS_PLAIN: Cell<bool> = const { Cell::new(false) };
}

/// Whether deletions of keys are tombstones, for this thread.
pub(crate) fn is_plain() -> bool {
    IS_PLAIN.get()
}

/// Deletions of keys are tombstones while `act` runs.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn with_tombstones<T>(act: impl FnOnce() -> T) -> T {
    IS_PLAIN.set(true);
    let done = act();
    IS_PLAIN.set(false);
    done
}
