//! Replications: documents on their way between databases, of this server and of others.
//!
//! ```text
//!   order        what is to be replicated, as clients write it
//!   documents    orders that stand in `_replicator`, and what becomes of them
//!   job          an order that is carried out: runs, faults, waits
//!   session      one run: batches of changes, checkpoints
//!   transfer     one batch: what the target misses
//!   checkpoint   how far both sides agree to have come
//!   peer         one side, asked in CouchDB's protocol
//!   remote       connections to other servers
//!   fault        how a replication fails
//! ```
//!
//! A request to `_replicate` orders a job that ends with its first fault, and with the process. A document of
//! `_replicator` orders one that is tried again after every fault, with growing waits, and by the next process too.
//!
//! Invariants: a checkpoint is never ahead of what the target has made durable; a job acts with the rights of the user
//! who ordered it, on both sides; nothing of a document is changed on its way.

mod checkpoint;
pub(crate) mod documents;
mod fault;
mod job;
mod order;
mod peer;
mod remote;
mod session;
mod transfer;

pub(crate) use fault::Fault;
pub(crate) use job::{Job, State};
pub(crate) use order::Order;

use crate::app::App;
use crate::auth::User;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

/// The jobs of a server.
pub(crate) struct Replicator {
    /// By their whole names.
    jobs: Mutex<BTreeMap<String, Arc<Job>>>,
    /// A place for each job that runs.
    places: Arc<Semaphore>,
}

impl Replicator {
    /// Jobs of which `running_max` run at once.
    pub(crate) fn new(running_max: usize) -> Self {
        Self {
            jobs: Mutex::default(),
            places: Arc::new(Semaphore::new(running_max)),
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All jobs, by their names.
    pub(crate) fn jobs(&self) -> Vec<Arc<Job>> {
        self.all().values().cloned().collect()
    }

    /// The job `id`.
    pub(crate) fn job(&self, id: &str) -> Option<Arc<Job>> {
        self.all().get(id).cloned()
    }

    /// The job that the document `id` of `_replicator` ordered.
    pub(crate) fn job_of(&self, id: &str) -> Option<Arc<Job>> {
        let jobs = self.all();
        let found = jobs.values().find(|job| job.document() == Some(id));
        found.cloned()
    }

    /// Has `order` carried out for `user`; `document`: the document of `_replicator` that it stands in. Returns the job
    /// of this order, which may have been there already.
    pub(crate) fn start(
        app: &Arc<App>,
        order: Order,
        user: User,
        document: Option<String>,
    ) -> Arc<Job> {
        let job = Arc::new(Job::new(&app.uuid, order, user, document));
        let mut jobs = app.replicator.all();
        if let Some(known) = jobs.get(job.id()) {
            return Arc::clone(known);
        }
        jobs.insert(job.id().to_owned(), Arc::clone(&job));
        drop(jobs);
        tokio::spawn(Arc::clone(&job).carry_out(Arc::clone(app)));
        job
    }

    /// Stops the job, and forgets it.
    pub(crate) fn cancel(&self, job: &Job) {
        job.stop();
        self.forget(job);
    }

    /// Forgets the job, if it is still the one of its name.
    fn forget(&self, job: &Job) {
        let mut jobs = self.all();
        if jobs
            .get(job.id())
            .is_some_and(|known| std::ptr::eq(Arc::as_ptr(known), job))
        {
            jobs.remove(job.id());
        }
    }
}
