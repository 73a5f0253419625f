//! Collects requests from all threads and writes them in order of issue.
//!
//! A request is known in full when it ends, so requests arrive in order of completion. The writing thread holds them
//! back until no request that began earlier is under way.

use crate::event::{Flags, Op, Request};
use crate::native::Writer;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The thread writes after so long,
const PAUSE: Duration = Duration::from_millis(100);
/// or as soon as so many requests have ended.
const MANY: usize = 65_536;
/// The trace of a database ends after this many, about a gigabyte of them.
pub(super) const REQUESTS_MAX: u64 = 100_000_000;

/// See the module.
pub(super) struct Recorder {
    started: Instant,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    due: Condvar,
}

#[derive(Default)]
struct State {
    ended: Vec<Request>,
    /// When requests that are under way began, with a number of their own.
    under_way: BTreeSet<(u64, u64)>,
    next: u64,
    is_over: bool,
    /// The trace has ended: nothing is collected any more.
    has_ended: bool,
}

/// A request that is under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    issue_ns: u64,
    number: u64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder {
    /// Starts the thread that writes to `writer`, until there are `requests_max` and some more.
    pub(super) fn start(writer: Writer, requests_max: u64) -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("waystation-trace".to_owned())
            .spawn(move || write(&of_thread, writer, requests_max));
        if let Err(error) = &thread {
            log::warn!("the trace is not written: its thread does not start: {error}");
            shared.lock().has_ended = true;
        }
        Self {
            started: now(),
            shared,
            thread: thread.ok(),
        }
    }

    /// Notes that a request begins now.
    pub(super) fn begin(&self) -> Begun {
        let mut state = self.shared.lock();
        // Under the lock, so that no later request has an earlier time.
        let issue_ns = self.elapsed_ns();
        let number = state.next;
        state.next += 1;
        state.under_way.insert((issue_ns, number));
        Begun { issue_ns, number }
    }

    /// Notes that a request has ended, which went to the `ranges` of an area: one row each.
    pub(super) fn end(
        &self,
        begun: Begun,
        (op, flags): (Op, Flags),
        area: u8,
        ranges: impl IntoIterator<Item = (u64, u64)>,
    ) {
        let complete_ns = self.elapsed_ns();
        let pid = thread_number();
        let mut state = self.shared.lock();
        state.under_way.remove(&(begun.issue_ns, begun.number));
        if state.has_ended {
            return;
        }
        for (offset, length) in ranges {
            state.ended.push(Request {
                issue_ns: begun.issue_ns,
                complete_ns,
                offset,
                length: u32::try_from(length).unwrap_or(u32::MAX),
                pid,
                comm: 0,
                area,
                op,
                flags,
            });
        }
        if state.ended.len() >= MANY {
            self.shared.due.notify_one();
        }
    }

    fn elapsed_ns(&self) -> u64 {
        let elapsed = now().saturating_duration_since(self.started);
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.due.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::warn!("the trace is not complete: its thread panicked");
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the clock of the trace, beside the engine's"
)]
fn now() -> Instant {
    Instant::now()
}

/// A number for the calling thread, in place of the process: a thread waits for its own requests.
fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// Writes until the recorder is dropped. What cannot be written ends the trace, and not the database.
fn write(shared: &Shared, mut writer: Writer, requests_max: u64) {
    let mut held: Vec<Request> = Vec::new();
    loop {
        let mut state = shared.lock();
        while state.ended.len() < MANY && !state.is_over {
            let (next, waited) = shared
                .due
                .wait_timeout(state, PAUSE)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            if waited.timed_out() {
                break;
            }
        }
        held.append(&mut state.ended);
        let oldest = state.under_way.first().map(|(issue_ns, _)| *issue_ns);
        let is_over = state.is_over;
        drop(state);
        held.sort_by_key(|request| request.issue_ns);
        // Nothing begins before this moment any more, except for the requests that are under way.
        let count = match oldest {
            Some(oldest) if !is_over => held.partition_point(|it| it.issue_ns < oldest),
            _ => held.len(),
        };
        let written = held.drain(..count).try_for_each(|it| writer.push(it));
        let is_full = writer.info_mut().requests >= requests_max;
        if written.is_err() || is_over || is_full {
            let mut state = shared.lock();
            state.has_ended = true;
            state.ended = Vec::new();
            drop(state);
            if let Err(error) = written.and_then(|()| writer.finish()) {
                log::warn!("the trace is not complete: {error}");
            }
            return;
        }
    }
}
