//! A worker in this process, which engines reach without a network.

use crate::lsm::compaction::offload::{
    JobControl, Link, LinkError, MergeEngine, Offload, OffloadSettings, Session, Verification,
    Worker,
};
use crate::storage::Storage;
use crate::sync::Arc;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use waystation_format::compaction::{Answer, Begin, Call, Finished, JobState, Report, Request};

/// What a worker's process does with a request, instead of what it should.
pub(in crate::lsm::tree) type Conduct =
    dyn Fn(&Desk, &Request) -> Result<Vec<u8>, LinkError> + Send + Sync;

/// A worker in this process, that engines reach without a network.
pub(in crate::lsm::tree) struct Near {
    pub(in crate::lsm::tree) desk: Arc<Desk>,
    conduct: Arc<Conduct>,
}

/// Where the worker works.
pub(in crate::lsm::tree) struct Desk {
    #[cfg(test)]
    pub(in crate::lsm::tree) storage: Arc<dyn Storage>,
    worker: Worker,
    /// The jobs that are over, by the attempt.
    over: crate::sync::Mutex<BTreeMap<u64, (Report, Option<Finished>)>>,
}

impl Desk {
    /// Does what a worker should: it runs a job at once, tells of it when it is asked again.
    pub(in crate::lsm::tree) fn answer(&self, request: &Request) -> Answer {
        let mut finished = None;
        let state = match &request.call {
            Call::Begin(begin) => {
                let control = JobControl::default();
                let report = self.run(begin, &control);
                let over = (report, control.finished_after(0));
                crate::sync::lock(&self.over).insert(request.attempt, over);
                JobState::Running(1024)
            }
            Call::Watch(_) | Call::Cancel => {
                let over = crate::sync::lock(&self.over);
                let over = over.get(&request.attempt).cloned();
                let (report, tables) = over.expect("a job that was begun");
                finished = tables;
                JobState::Over(report)
            }
            Call::Send(_) | Call::Start | Call::Fetch(_) => {
                unreachable!("tables are sent to a worker that does not see them")
            }
        };
        let (id, attempt) = (request.id, request.attempt);
        Answer {
            id,
            attempt,
            state,
            finished,
        }
    }

    pub(in crate::lsm::tree) fn run(&self, begin: &Begin, control: &JobControl) -> Report {
        let directory = std::str::from_utf8(&begin.directory).expect("the tests' path");
        self.worker.run(Path::new(directory), begin, control)
    }
}

impl Near {
    /// One that does what it should, over `storage`.
    #[cfg(test)]
    pub(in crate::lsm::tree) fn honest(storage: &Arc<dyn Storage>) -> Self {
        Self::with(storage, |desk, request| Ok(desk.answer(request).encode()))
    }

    /// One that does what `conduct` says.
    #[cfg(test)]
    pub(in crate::lsm::tree) fn with(
        storage: &Arc<dyn Storage>,
        conduct: impl Fn(&Desk, &Request) -> Result<Vec<u8>, LinkError> + Send + Sync + 'static,
    ) -> Self {
        Self::new(storage, Worker::over(Arc::clone(storage)), conduct)
    }

    /// One that does what it should, and has `engine` merge records.
    pub(in crate::lsm::tree) fn by_engine(
        storage: &Arc<dyn Storage>,
        engine: Box<dyn MergeEngine>,
    ) -> Self {
        let worker = Worker::over(Arc::clone(storage)).with_engine(engine);
        Self::new(storage, worker, |desk, request| {
            Ok(desk.answer(request).encode())
        })
    }

    #[cfg_attr(
        not(test),
        expect(unused_variables, reason = "tests lie beside the worker")
    )]
    fn new(
        storage: &Arc<dyn Storage>,
        worker: Worker,
        conduct: impl Fn(&Desk, &Request) -> Result<Vec<u8>, LinkError> + Send + Sync + 'static,
    ) -> Self {
        let desk = Desk {
            #[cfg(test)]
            storage: Arc::clone(storage),
            worker,
            over: crate::sync::Mutex::default(),
        };
        Self {
            desk: Arc::new(desk),
            conduct: Arc::new(conduct),
        }
    }

    /// The way to it, with every entry verified.
    pub(in crate::lsm::tree) fn offload(self) -> Offload {
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
