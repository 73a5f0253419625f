//! Tests of merges that a worker runs: over a link in memory, with a worker that is honest, slow, dead or hostile.

mod conformance;
mod crash;
mod hostile;

use super::dir;
use crate::lsm::compaction::offload::{
    JobControl, Link, LinkError, LocalReason, Offload, OffloadSettings, OffloadStats, Session,
    Verification, Worker,
};
use crate::lsm::tree::Tree;
use crate::storage::Storage;
use crate::sync::Arc;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use waystation_format::compaction::{Answer, Begin, Call, JobState, Report, Request};

/// What a worker's process does with a request, instead of what it should.
pub(super) type Conduct = dyn Fn(&Desk, &Request) -> Result<Vec<u8>, LinkError> + Send + Sync;

/// A worker in this process, that engines reach without a network.
pub(super) struct Near {
    desk: Arc<Desk>,
    conduct: Arc<Conduct>,
}

/// Where the worker works.
pub(super) struct Desk {
    pub(super) storage: Arc<dyn Storage>,
    worker: Worker,
    /// The jobs that are over, by the attempt.
    over: crate::sync::Mutex<BTreeMap<u64, Report>>,
}

impl Desk {
    /// Does what a worker should: it runs a job at once, tells of it when it is asked again.
    pub(super) fn answer(&self, request: &Request) -> Answer {
        let state = match &request.call {
            Call::Begin(begin) => {
                let report = self.run(begin);
                crate::sync::lock(&self.over).insert(request.attempt, report);
                JobState::Running(1024)
            }
            Call::Watch(_) | Call::Cancel => {
                let over = crate::sync::lock(&self.over).remove(&request.attempt);
                JobState::Over(over.expect("a job that was begun"))
            }
        };
        let (id, attempt) = (request.id, request.attempt);
        Answer { id, attempt, state }
    }

    pub(super) fn run(&self, begin: &Begin) -> Report {
        let directory = std::str::from_utf8(&begin.directory).expect("the tests' path");
        let control = JobControl::default();
        self.worker.run(Path::new(directory), begin, &control)
    }
}

impl Near {
    /// One that does what it should, over `storage`.
    pub(super) fn honest(storage: &Arc<dyn Storage>) -> Self {
        Self::with(storage, |desk, request| Ok(desk.answer(request).encode()))
    }

    /// One that does what `conduct` says.
    pub(super) fn with(
        storage: &Arc<dyn Storage>,
        conduct: impl Fn(&Desk, &Request) -> Result<Vec<u8>, LinkError> + Send + Sync + 'static,
    ) -> Self {
        let desk = Desk {
            storage: Arc::clone(storage),
            worker: Worker::over(Arc::clone(storage)),
            over: crate::sync::Mutex::default(),
        };
        Self {
            desk: Arc::new(desk),
            conduct: Arc::new(conduct),
        }
    }

    /// The way to it, with every entry verified.
    pub(super) fn offload(self) -> Offload {
        let settings = OffloadSettings {
            verification: Verification::Entries,
            ..OffloadSettings::default()
        };
        Offload::new(self, settings)
    }
}

impl Link for Near {
    fn connect(&self) -> Result<Box<dyn Session>, LinkError> {
        Ok(Box::new(NearSession {
            desk: Arc::clone(&self.desk),
            conduct: Arc::clone(&self.conduct),
        }))
    }
}

struct NearSession {
    desk: Arc<Desk>,
    conduct: Arc<Conduct>,
}

impl Session for NearSession {
    fn ask(&mut self, request: &[u8], _: Duration) -> Result<Vec<u8>, LinkError> {
        let request = Request::decode(request).expect("what the engine wrote");
        (self.conduct)(&self.desk, &request)
    }
}

/// What the tree tells of its worker.
pub(super) fn told(tree: &Tree) -> OffloadStats {
    tree.stats().offload.expect("a tree with a worker")
}

/// How many merges ran here for `reason`.
pub(super) fn kept(tree: &Tree, reason: LocalReason) -> u64 {
    told(tree).local.get(&reason).copied().unwrap_or(0)
}

/// The directories in that of the database: those of jobs.
pub(super) fn job_directories(storage: &dyn Storage) -> Vec<String> {
    let entries = storage.list(&dir()).expect("the directory");
    let directories = entries.into_iter().filter(|entry| entry.is_dir);
    directories.map(|entry| entry.name).collect()
}
