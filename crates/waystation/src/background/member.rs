//! Members: the databases that share a scheduler.

use super::Jobs;
use super::plan::{Id, Kind, Limits};
use super::scheduler::{Scheduler, spawn};
use crate::error::Result;
use crate::storage::Storage;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// A database that joined a scheduler. It leaves when this is dropped, or before ([`Member::leave`]).
pub(crate) struct Member {
    scheduler: Arc<Scheduler>,
    id: Id,
    has_left: AtomicBool,
}

impl Member {
    /// Joins the scheduler of the process, or one of its own on a `storage` with a clock of its own, with up to so many
    /// jobs at once. None begins before [`Self::start`].
    pub(crate) fn join(storage: &Arc<dyn Storage>, limits: &Limits) -> Arc<Self> {
        let (scheduler, id) = if storage.has_machine_clock() {
            process::join(limits)
        } else {
            join_new(storage, limits)
        };
        Arc::new(Self {
            scheduler,
            id,
            has_left: AtomicBool::new(false),
        })
    }

    /// Has `jobs` run, each kind once as a beginning, and whenever something is submitted.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if a thread cannot be started; then none runs that others do not need.
    pub(crate) fn start(&self, jobs: Arc<dyn Jobs>) -> Result<()> {
        self.scheduler.start(self.id, jobs, &mut spawn)
    }

    /// Something happened that jobs of `kind` have to look at.
    pub(crate) fn submit(&self, kind: Kind) {
        self.scheduler.submit(self.id, kind);
    }

    /// Has a job of `kind` run at `at`, by the storage's clock, if none is to run before.
    pub(crate) fn by(&self, kind: Kind, at: Duration) {
        self.scheduler.by(self.id, kind, at);
    }

    /// Lets no job of `kinds` begin any more, and waits until none runs.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if any job of this database has panicked.
    pub(crate) fn end(&self, kinds: &[Kind]) -> Result<()> {
        self.scheduler.end(self.id, kinds)
    }

    /// Ends all jobs and leaves. With the last database the threads end. Not to be called by a job.
    ///
    /// # Errors
    /// As [`Self::end`].
    pub(crate) fn leave(&self) -> Result<()> {
        let ended = self.end(&Kind::ALL);
        if !self.has_left.swap(true, SeqCst) {
            process::leave(&self.scheduler, self.id);
        }
        ended
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // A failure was told, or belongs to an opening that failed itself.
        let _ = self.leave();
    }
}

/// A scheduler for this database alone.
fn join_new(storage: &Arc<dyn Storage>, limits: &Limits) -> (Arc<Scheduler>, Id) {
    let scheduler = Scheduler::new(Arc::clone(storage));
    let id = scheduler.join(limits);
    (scheduler, id)
}

/// The scheduler of all databases of the process.
#[cfg(not(any(loom, shuttle)))]
mod process {
    use super::{Arc, Id, Limits, Scheduler};
    use crate::storage::OsStorage;
    use crate::sync::{Mutex, lock};

    /// While there is such a database. Held while one joins or leaves, so that none joins a scheduler that ends.
    static SHARED: Mutex<Option<Arc<Scheduler>>> = Mutex::new(None);

    pub(super) fn join(limits: &Limits) -> (Arc<Scheduler>, Id) {
        let mut shared = lock(&SHARED);
        let scheduler = shared.get_or_insert_with(|| Scheduler::new(OsStorage::new()));
        let id = scheduler.join(limits);
        (Arc::clone(scheduler), id)
    }

    /// Lets the database leave `scheduler`, whosever that is, and waits for the threads if they end.
    pub(super) fn leave(scheduler: &Arc<Scheduler>, id: Id) {
        let mut shared = lock(&SHARED);
        let (is_last, threads) = scheduler.leave(id);
        if is_last {
            shared.take_if(|it| Arc::ptr_eq(it, scheduler));
        }
        drop(shared);
        super::join_threads(threads);
    }
}

/// In a model every database has a scheduler of its own.
#[cfg(any(loom, shuttle))]
mod process {
    use super::{Arc, Id, Limits, Scheduler};

    pub(super) fn join(_: &Limits) -> (Arc<Scheduler>, Id) {
        unreachable!("no model has the machine's clock")
    }

    pub(super) fn leave(scheduler: &Arc<Scheduler>, id: Id) {
        super::join_threads(scheduler.leave(id).1);
    }
}

fn join_threads(threads: Vec<crate::sync::thread::JoinHandle<()>>) {
    for thread in threads {
        // Jobs that panic are caught; there is nothing else to be told.
        let _ = thread.join();
    }
}
