//! Idleness: the watch of one database, which looks at it as its [agenda](super::agenda) says, and what wakes it.
//!
//! Data at the edge comes in bursts. Between two of them there is time to put into a table what the last one left in memory,
//! and to merge level 0 down: reads then look into fewer places, the log is free, and the next open is quick.
//!
//! Invariant: a write that a look does not see, and that comes before the database counts as busy again, finds the watch
//! listening and wakes it. A busy database costs its writers one load of a flag.

use super::agenda::{Agenda, Decision, Expiry, QUIET, Sight};
use super::member::Member;
use super::plan::Kind;
use crate::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use crate::sync::{Arc, Mutex, lock};
use std::time::Duration;

/// No write has this sequence number.
const NEVER: u64 = u64::MAX;

/// Whether a database is idle, and what its watch waits for.
pub(crate) struct IdleWatch {
    jobs: Arc<Member>,
    agenda: Mutex<Agenda>,
    /// The last write before the database became idle.
    idle_after: AtomicU64,
    /// The next write wakes the watch.
    listens: AtomicBool,
    /// The next release of a snapshot does.
    waits_for_release: AtomicBool,
    /// A caller waits for the database to become idle.
    is_awaited: AtomicBool,
}

impl IdleWatch {
    /// The watch of a database whose jobs are `jobs`.
    pub(crate) fn new(jobs: &Arc<Member>) -> Self {
        Self {
            jobs: Arc::clone(jobs),
            agenda: Mutex::default(),
            idle_after: AtomicU64::new(NEVER),
            listens: AtomicBool::new(false),
            waits_for_release: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
        }
    }

    /// Looks at the database, `now`, of which `see` tells. One look at a time.
    pub(crate) fn look(
        &self,
        now: Duration,
        see: impl Fn(bool) -> Sight,
        last_write: u64,
    ) -> Decision {
        let is_awaited = self.is_awaited.load(SeqCst);
        if lock(&self.agenda).is_quiet(last_write, now) {
            self.listens.store(true, SeqCst);
        }
        // Both before the look: a write or a release after it makes another look.
        self.waits_for_release.store(true, SeqCst);
        let sight = see(is_awaited);
        let decision = lock(&self.agenda).look(&sight, now);
        if !decision.is_idle {
            self.listens.store(false, SeqCst);
        }
        if !decision.is_idle || sight.expiry != Expiry::Snapshot {
            self.waits_for_release.store(false, SeqCst);
        }
        decision
    }

    /// The database counts as idle since write `sequence`: the work for that has begun.
    pub(crate) fn become_idle(&self, sequence: u64) {
        self.idle_after.store(sequence, SeqCst);
        self.is_awaited.store(false, SeqCst);
    }

    /// Whether no thread has written for a while, the last visible write being `last_write`.
    pub(crate) fn is_idle(&self, last_write: u64) -> bool {
        self.idle_after.load(SeqCst) == last_write
    }

    /// A caller waits for the database to become idle: it is looked at as soon as it can be, `now`.
    pub(crate) fn expect(&self, now: Duration) {
        self.is_awaited.store(true, SeqCst);
        self.note_change();
        self.jobs.by(Kind::Watch, now + QUIET);
    }

    /// Something was written, or changed that the watch looks at.
    #[inline]
    pub(crate) fn note_change(&self) {
        if self.listens.load(Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.listens.swap(false, SeqCst) {
            self.jobs.submit(Kind::Watch);
        }
    }

    /// A snapshot was released: what it held back can be flushed.
    pub(crate) fn note_release(&self) {
        if self.waits_for_release.swap(false, SeqCst) {
            self.jobs.submit(Kind::Watch);
        }
    }
}
