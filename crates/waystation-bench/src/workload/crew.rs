//! Threads that begin together: those that load an engine, and who watches them.

use crate::error::{Error, Result};
use std::sync::Barrier;
use std::thread;

/// Has `threads` threads `work`, each told its number, and the caller `watch` them; all of them, and the caller, wait at
/// the barrier once, when they are ready. Returns what each of them did, in order, and what was watched. `doing` says, for
/// an error, what they do to `engine`.
pub(super) fn together<T: Send, W>(
    (engine, doing): (&'static str, &'static str),
    threads: u32,
    work: impl Fn(u32, &Barrier) -> Result<T> + Sync,
    watch: impl FnOnce(&Barrier) -> W,
) -> Result<(Vec<T>, W)> {
    let start = Barrier::new(threads as usize + 1);
    thread::scope(|scope| {
        let (start, work) = (&start, &work);
        let spawn = |number| scope.spawn(move || work(number, start));
        let running: Vec<_> = (0..threads).map(spawn).collect();
        let watched = watch(start);
        let join = |thread: thread::ScopedJoinHandle<'_, Result<T>>| {
            let panicked = |_| Err(Error::engine(engine, doing, "a thread panicked"));
            thread.join().unwrap_or_else(panicked)
        };
        let done: Vec<Result<T>> = running.into_iter().map(join).collect();
        let done: Result<Vec<T>> = done.into_iter().collect();
        Ok((done?, watched))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    #[test]
    fn all_begin_at_once_and_answer_in_order() {
        let ready = AtomicU32::new(0);
        let work = |number, start: &Barrier| {
            ready.fetch_add(1, SeqCst);
            start.wait();
            assert_eq!(ready.load(SeqCst), 5);
            Ok(number * 2)
        };
        let watch = |start: &Barrier| start.wait().is_leader();
        let (done, _) = together(("test", "work"), 5, work, watch).unwrap();
        assert_eq!(done, [0, 2, 4, 6, 8]);
    }

    #[test]
    fn one_that_fails_or_panics_is_an_error() {
        let fails = |number, start: &Barrier| {
            start.wait();
            assert!(number != 1, "this one panics");
            Ok(())
        };
        let failed = together(("test", "work"), 3, fails, Barrier::wait);
        assert!(failed.is_err_and(|error| error.to_string().contains("panicked")));
    }
}
