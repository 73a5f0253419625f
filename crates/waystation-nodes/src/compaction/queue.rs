//! Jobs of a worker: each has a thread, and so many run at once; the others wait.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use waystation::offload::{JobControl, Worker};
use waystation_format::compaction::{
    Begin, Counters, Failure, Finished, JobId, JobState, Outcome, Report,
};

/// A job that waits looks so often whether it was given up.
const LOOK: Duration = Duration::from_millis(50);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Places for jobs that run.
#[derive(Debug)]
pub(super) struct Places {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A place, given back when this is dropped.
struct Place(Arc<Places>);

impl Places {
    pub(super) fn new(places: usize) -> Self {
        Self {
            free: Mutex::new(places.max(1)),
            freed: Condvar::new(),
        }
    }

    /// Takes a place, if one is free.
    fn try_take(self: &Arc<Self>) -> Option<Place> {
        let mut free = lock(&self.free);
        *free = free.checked_sub(1)?;
        Some(Place(Arc::clone(self)))
    }

    /// Waits for a place; `None` if the job was given up meanwhile.
    fn take(self: &Arc<Self>, control: &JobControl) -> Option<Place> {
        let mut free = lock(&self.free);
        loop {
            if control.is_cancelled() {
                return None;
            }
            if *free > 0 {
                *free -= 1;
                return Some(Place(Arc::clone(self)));
            }
            let waited = self.freed.wait_timeout(free, LOOK);
            free = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *lock(&self.0.free) += 1;
        self.0.freed.notify_one();
    }
}

/// How far a job is.
#[derive(Debug, Clone)]
enum Stage {
    Waiting,
    Running,
    Over(Report),
}

#[derive(Debug)]
struct Shared {
    control: JobControl,
    stage: Mutex<Stage>,
    is_over: Condvar,
}

/// A job and its thread. Dropped, the job is given up, and its files are closed.
#[derive(Debug)]
pub(super) struct RunningJob {
    pub(super) id: JobId,
    pub(super) attempt: u64,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl RunningJob {
    /// Has the job of `begin` run in `directory` as soon as there is a place. If one is free it runs by now: an engine whose
    /// writers wait would take a job that waits, be it for a moment, for one that has to be merged elsewhere.
    pub(super) fn start(
        worker: &Arc<Worker>,
        places: &Arc<Places>,
        directory: PathBuf,
        begin: Begin,
    ) -> std::io::Result<Self> {
        let place = places.try_take();
        let stage = match place {
            Some(_) => Stage::Running,
            None => Stage::Waiting,
        };
        let shared = Arc::new(Shared {
            control: JobControl::default(),
            stage: Mutex::new(stage),
            is_over: Condvar::new(),
        });
        let (id, attempt) = (begin.job.id, begin.job.attempt);
        let (worker, places) = (Arc::clone(worker), Arc::clone(places));
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("waystation-merge".to_owned());
        let thread = thread.spawn(move || {
            let place = place.or_else(|| places.take(&of_thread.control));
            let report = match place {
                Some(_place) => {
                    *lock(&of_thread.stage) = Stage::Running;
                    worker.run(&directory, &begin, &of_thread.control)
                }
                None => cancelled(id, attempt),
            };
            *lock(&of_thread.stage) = Stage::Over(report);
            of_thread.is_over.notify_all();
        })?;
        Ok(Self {
            id,
            attempt,
            shared,
            thread: Some(thread),
        })
    }

    /// How far it is, once it is over or `patience` has passed.
    pub(super) fn watch(&self, patience: Duration) -> JobState {
        let is_under_way = |stage: &mut Stage| !matches!(stage, Stage::Over(_));
        let stage = lock(&self.shared.stage);
        let waited = self
            .shared
            .is_over
            .wait_timeout_while(stage, patience, is_under_way);
        let stage = waited.unwrap_or_else(PoisonError::into_inner).0;
        match &*stage {
            Stage::Waiting => JobState::Waiting,
            Stage::Running => JobState::Running(self.shared.control.entries()),
            Stage::Over(report) => JobState::Over(report.clone()),
        }
    }

    /// The tables that are complete, after the first `known` ones.
    pub(super) fn finished_after(&self, known: u64) -> Option<Finished> {
        self.shared.control.finished_after(known)
    }

    /// Gives it up; it is over on return.
    pub(super) fn cancel(&mut self) -> JobState {
        self.shared.control.cancel();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread of a compaction job panicked");
            let reason = "the worker failed at the job; its log has more".to_owned();
            return JobState::Over(failed((self.id, self.attempt), Failure::Retryable, reason));
        }
        self.watch(Duration::ZERO)
    }

    /// Whether its thread ended without a report.
    pub(super) fn has_died(&self) -> bool {
        let is_finished = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        is_finished && !matches!(*lock(&self.shared.stage), Stage::Over(_))
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The report of a job without tables.
pub(super) fn failed((id, attempt): (JobId, u64), failure: Failure, reason: String) -> Report {
    Report {
        id,
        attempt,
        outcome: Outcome::Failed(failure, reason),
        counters: Counters::default(),
    }
}

/// The report of a job that was given up before it ran.
pub(super) fn cancelled(id: JobId, attempt: u64) -> Report {
    let reason = "it was given up before it began".to_owned();
    failed((id, attempt), Failure::Cancelled, reason)
}
