//! Calls that are made at the same time.

use std::sync::Barrier;
use std::thread;

/// Makes one call from two threads at once.
pub(crate) fn twice<T: Send>(call: impl Fn() -> T + Sync) -> (T, T) {
    both(&call, &call)
}

/// Makes two calls at once.
pub(crate) fn both<T: Send, U>(
    one: impl FnOnce() -> T + Send,
    other: impl FnOnce() -> U,
) -> (T, U) {
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let beside = scope.spawn(|| {
            start.wait();
            one()
        });
        start.wait();
        let other = other();
        let one = beside.join();
        (
            one.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            other,
        )
    })
}
