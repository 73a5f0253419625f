//! Time: what happens when, and servers that do one thing after another.
//!
//! Events carry the number under which they were entered, so that events of one nanosecond come in that order:
//! every run of a load is the same. Nothing here knows the wall clock.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Nanoseconds since the simulation began, or a span of them.
pub type Nanos = u64;

/// What is to happen, in order of time.
pub(super) struct Calendar<E> {
    entries: BinaryHeap<Entry<E>>,
    now: Nanos,
    entered: u64,
}

struct Entry<E> {
    at: Nanos,
    number: u64,
    event: E,
}

impl<E> Calendar<E> {
    pub(super) fn new() -> Self {
        Self {
            entries: BinaryHeap::new(),
            now: 0,
            entered: 0,
        }
    }

    /// The time of the event taken last.
    pub(super) fn now(&self) -> Nanos {
        self.now
    }

    /// Enters an event; one for a time that has passed happens now.
    pub(super) fn enter(&mut self, at: Nanos, event: E) {
        let at = at.max(self.now);
        self.entered += 1;
        self.entries.push(Entry {
            at,
            number: self.entered,
            event,
        });
    }

    /// Takes the next event, and goes on to its time.
    pub(super) fn take(&mut self) -> Option<E> {
        let entry = self.entries.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }

    /// How many events there were so far.
    pub(super) fn entered(&self) -> u64 {
        self.entered
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// The heap gives its largest first: the earliest is the largest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// Something that serves one request after another: a link, a processor, a memory port.
#[derive(Debug, Clone, Default)]
pub(super) struct Server {
    free_at: Nanos,
    busy: Nanos,
}

impl Server {
    /// Serves a request that came at `now` and takes `service`; when it is done.
    pub(super) fn serve(&mut self, now: Nanos, service: Nanos) -> Nanos {
        self.free_at = self.free_at.max(now) + service;
        self.busy += service;
        self.free_at
    }

    /// How long it was busy, all told.
    pub(super) fn busy(&self) -> Nanos {
        self.busy
    }
}

/// How long `bytes` take at `mb_s` megabytes (of a million bytes) per second, rounded up.
pub(super) fn transfer(bytes: u64, mb_s: u64) -> Nanos {
    (bytes * 1000).div_ceil(mb_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_moment_keep_their_order() {
        let mut calendar = Calendar::new();
        for (at, name) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
            calendar.enter(at, name);
        }
        let taken: String = std::iter::from_fn(|| calendar.take()).collect();
        assert_eq!((taken.as_str(), calendar.now()), ("abcd", 5));
        calendar.enter(1, 'e');
        assert_eq!((calendar.take(), calendar.now()), (Some('e'), 5));
    }

    #[test]
    fn a_server_does_one_thing_after_another() {
        let mut server = Server::default();
        assert_eq!(server.serve(10, 5), 15);
        assert_eq!(server.serve(11, 5), 20);
        assert_eq!(server.serve(100, 1), 101);
        assert_eq!(server.busy(), 11);
        assert_eq!(transfer(16_384, 200), 81_920);
        assert_eq!(transfer(1, 3000), 1);
    }
}
