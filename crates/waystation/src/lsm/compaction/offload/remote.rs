//! The executor that has a worker run jobs, and runs them itself where that does not work.

use super::adopt::adopt;
use super::link::{LinkError, Session};
use super::stats::{LocalReason, OffloadStats, Times};
use super::{Offload, OffloadSettings};
use crate::directory::JobDirectory;
use crate::error::{Error, Result};
use crate::lsm::compaction::message::{job_message, result_of};
use crate::lsm::compaction::{
    CompactionExecutor, Job, JobResult, LocalExecutor, Workplace, contradiction,
};
use crate::storage::as_micros;
use crate::sync::{Mutex, lock};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use waystation_format::compaction::{
    Answer, Begin, Call, JobId, JobState, MESSAGE_BYTES_MAX, Outcome, Report, Request,
};

/// A job is tried so often at the worker.
const ATTEMPTS: u64 = 2;
/// A worker has so long to answer a request, if the job is not over before.
const WATCH: Duration = Duration::from_millis(100);
/// A job that moves no entry for so long does not move.
const STALL: Duration = Duration::from_secs(2);
/// A job may take this long ...
const RUN_BASE: Duration = Duration::from_secs(60);
/// ... and a second more for so many bytes of its tables.
const RUN_BYTES_PER_SECOND: u64 = 1 << 20;
/// After a failure the worker is left alone for so long, at first and at most.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Outputs may take this much more than their inputs, for blocks that compress worse or not at all.
const OUTPUT_FACTOR: u64 = 4;
const OUTPUT_EXTRA_BYTES: u64 = 1 << 20;

/// Why a job did not come back from a worker as a result.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) reason: LocalReason,
    detail: String,
}

impl Kept {
    pub(super) fn by(reason: LocalReason, detail: &dyn fmt::Display) -> Self {
        Self {
            reason,
            detail: detail.to_string(),
        }
    }
}

impl From<LinkError> for Kept {
    fn from(error: LinkError) -> Self {
        Self::by(LocalReason::from(&error), &error)
    }
}

/// Microseconds since `started`.
pub(super) fn micros_since(place: &Workplace<'_>, started: Duration) -> u64 {
    as_micros(place.storage.now().saturating_sub(started))
}

/// When the worker may be asked again.
#[derive(Debug, Default)]
struct Pause {
    until: Duration,
    length: Duration,
}

/// Has a worker run jobs.
pub(crate) struct RemoteExecutor {
    offload: Offload,
    /// The directory of the database.
    dir: PathBuf,
    /// The same as a worker knows it.
    absolute: Vec<u8>,
    pause: Mutex<Pause>,
    pub(super) stats: Mutex<OffloadStats>,
}

impl RemoteExecutor {
    /// For the database in `dir`.
    pub(crate) fn new(offload: Offload, dir: &Path) -> Self {
        let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        Self {
            offload,
            dir: dir.to_owned(),
            absolute: absolute.into_os_string().into_encoded_bytes(),
            pause: Mutex::default(),
            stats: Mutex::default(),
        }
    }

    pub(super) fn settings(&self) -> &OffloadSettings {
        self.offload.settings()
    }

    /// Runs the job at the worker, or says why it has to run here.
    fn offloaded(&self, job: &Job, place: &Workplace<'_>) -> Result<JobResult, Kept> {
        let settings = self.settings();
        self.admit(job, place, settings)?;
        let unfit = |detail: &str| Kept::by(LocalReason::Unfit, &detail);
        let mut id = [0; 16];
        for half in id.chunks_exact_mut(8) {
            half.copy_from_slice(&place.storage.random().to_le_bytes());
        }
        let message = job_message(job, JobId(id), place.tables.order()).ok_or_else(|| {
            unfit("its graves lie in spill files, or its keys have another order")
        })?;
        let mut request = Request {
            id: message.id,
            attempt: 0,
            call: Call::Begin(Box::new(Begin {
                directory: self.absolute.clone(),
                job: message,
                lease_ms: u64::try_from(settings.lease.as_millis()).unwrap_or(u64::MAX),
                bytes_max: bytes_max(job, place, &self.dir)?,
            })),
        };
        loop {
            request.attempt += 1;
            let attempt = request.attempt;
            if let Call::Begin(begin) = &mut request.call {
                begin.job.attempt = attempt;
            }
            let begin = request.encode();
            if begin.len() > MESSAGE_BYTES_MAX {
                return Err(unfit("its message is too long"));
            }
            match self.attempt(&begin, (request.id, attempt), job, place) {
                Err(kept) if attempt < ATTEMPTS && Self::may_repeat(&kept, place) => {
                    lock(&self.stats).repeated += 1;
                    log::info!("a compaction is offloaded anew: {}", kept.detail);
                }
                outcome => return outcome,
            }
        }
    }

    /// Whether the worker is to be asked at all.
    fn admit(
        &self,
        job: &Job,
        place: &Workplace<'_>,
        settings: &OffloadSettings,
    ) -> Result<(), Kept> {
        let keep = |reason| Err(Kept::by(reason, &"it is not offloaded"));
        if !self.offload.is_on() {
            return keep(LocalReason::Off);
        }
        if job.output_level < settings.level_min {
            return keep(LocalReason::Level);
        }
        if place.rate.is_some() {
            return keep(LocalReason::Unfit);
        }
        if place.storage.now() < lock(&self.pause).until {
            return keep(LocalReason::Pause);
        }
        Ok(())
    }

    fn may_repeat(kept: &Kept, place: &Workplace<'_>) -> bool {
        kept.reason.may_pass() && !(place.cancelled)() && !(place.is_pressed)()
    }

    /// One attempt at the worker.
    fn attempt(
        &self,
        begin: &[u8],
        (id, attempt): (JobId, u64),
        job: &Job,
        place: &Workplace<'_>,
    ) -> Result<JobResult, Kept> {
        let settings = self.settings();
        let mut times = Times::default();
        let session = self.offload.link().connect()?;
        let started = place.storage.now();
        let directory = JobDirectory::create(&**place.storage, &self.dir, id, attempt)
            .map_err(|error| Kept::by(LocalReason::Storage, &error))?;
        times.install = micros_since(place, started);
        let mut watched = Watched {
            session,
            id,
            attempt,
            lease: settings.lease,
        };
        let report = watched.run(begin, job, place, &mut times)?;
        drop(watched);
        if let Outcome::Failed(failure, reason) = &report.outcome {
            return Err(Kept::by((*failure).into(), reason));
        }
        let contradicted = |detail: &dyn fmt::Display| Kept::by(LocalReason::Contradiction, detail);
        let mut result =
            result_of(&report, (id, attempt), job).map_err(|error| contradicted(&error))?;
        if let Some(reason) = contradiction(job, &result, place.tables.order()) {
            return Err(contradicted(&reason));
        }
        let outputs = adopt(
            place,
            directory.path(),
            &result.outputs,
            settings.verification,
            &mut times,
        )?;
        let started = place.storage.now();
        drop(directory);
        times.install += micros_since(place, started);
        result.outputs = outputs;
        result.counters.elapsed_us = times.wait + times.run + times.verify + times.install;
        let counters = &result.counters;
        lock(&self.stats).offloaded(counters.read_bytes, counters.written_bytes, times);
        Ok(result)
    }

    /// Leaves the worker alone for a while after a failure of its, longer each time; a success ends that.
    fn note(&self, failed: Option<LocalReason>, place: &Workplace<'_>) {
        let mut pause = lock(&self.pause);
        match failed {
            None => *pause = Pause::default(),
            Some(reason) if reason.is_of_worker() => {
                pause.length = (pause.length * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                pause.until = place.storage.now() + pause.length;
            }
            Some(_) => {}
        }
    }
}

impl CompactionExecutor for RemoteExecutor {
    fn execute(&self, job: &Job, place: &Workplace<'_>) -> Result<JobResult> {
        let kept = match self.offloaded(job, place) {
            Ok(result) => {
                self.note(None, place);
                if self.is_shadowed(place) {
                    return self.shadow(job, &result, place);
                }
                return Ok(result);
            }
            Err(kept) => kept,
        };
        if (place.cancelled)() {
            return Err(Error::Closed("closed"));
        }
        self.note(Some(kept.reason), place);
        if kept.reason.is_of_worker() {
            log::warn!(
                "a compaction runs here and not at the worker: {}",
                kept.detail
            );
        }
        lock(&self.stats).kept(kept.reason, job.input_bytes());
        LocalExecutor.execute(job, place)
    }

    fn offload_stats(&self) -> Option<OffloadStats> {
        Some(lock(&self.stats).told())
    }
}

/// The room that outputs may take.
fn bytes_max(job: &Job, place: &Workplace<'_>, dir: &Path) -> Result<u64, Kept> {
    let free_bytes = place
        .storage
        .free_bytes(dir)
        .map_err(|error| Kept::by(LocalReason::Storage, &error))?;
    let most = job.input_bytes().saturating_mul(OUTPUT_FACTOR);
    Ok(most.saturating_add(OUTPUT_EXTRA_BYTES).min(free_bytes))
}

/// How long the worker may take for `job`, waiting included.
fn run_limit(job: &Job) -> Duration {
    RUN_BASE + Duration::from_secs(job.input_bytes() / RUN_BYTES_PER_SECOND)
}

/// One run of a job at a worker, as the engine watches it.
struct Watched {
    session: Box<dyn Session>,
    id: JobId,
    attempt: u64,
    lease: Duration,
}

impl Watched {
    /// Has the job run, until it is over or given up.
    fn run(
        &mut self,
        begin: &[u8],
        job: &Job,
        place: &Workplace<'_>,
        times: &mut Times,
    ) -> Result<Report, Kept> {
        let begun = place.storage.now();
        let limit = run_limit(job);
        let reads_level0 = job.inputs.iter().any(|input| input.level == 0);
        let watch = self.request(Call::Watch(WATCH.as_millis() as u64));
        // When it was seen to read on; `None` while it waits.
        let (mut entries, mut moved_at) = (0, None);
        let mut request = begin;
        loop {
            let asked = place.storage.now();
            let state = self.ask(request)?;
            request = &watch;
            let now = place.storage.now();
            let took = now.saturating_sub(asked);
            match state {
                JobState::Over(report) => {
                    times.run += as_micros(took);
                    return Ok(report);
                }
                JobState::Waiting => {
                    times.wait += as_micros(took);
                    moved_at = None;
                }
                JobState::Running(read) => {
                    times.run += as_micros(took);
                    if read > entries || moved_at.is_none() {
                        (entries, moved_at) = (read, Some(now));
                    }
                }
            }
            let is_stalled = moved_at.is_none_or(|at| now.saturating_sub(at) > STALL);
            if (place.cancelled)() {
                return Err(self.cancel(LocalReason::Off, "the database is being closed"));
            }
            if reads_level0 && is_stalled && (place.is_pressed)() {
                let detail = "writers wait for level 0, and the worker does not get on";
                return Err(self.cancel(LocalReason::Pressure, detail));
            }
            if now.saturating_sub(begun) > limit {
                return Err(self.cancel(LocalReason::Late, "the worker takes too long"));
            }
            // One that answers before its time, and has nothing to say, is not asked again at once.
            place.storage.sleep(WATCH.saturating_sub(took) / 8);
        }
    }

    /// Has the worker give the job up, and says why.
    fn cancel(&mut self, reason: LocalReason, detail: &str) -> Kept {
        let cancel = self.request(Call::Cancel);
        // What it answers, or whether it does, changes nothing.
        let _ = self.session.ask(&cancel, self.lease);
        Kept::by(reason, &detail)
    }

    fn request(&self, call: Call) -> Vec<u8> {
        let (id, attempt) = (self.id, self.attempt);
        Request { id, attempt, call }.encode()
    }

    /// What the worker says to `request`.
    fn ask(&mut self, request: &[u8]) -> Result<JobState, Kept> {
        let answer = self.session.ask(request, self.lease)?;
        let confused = |detail: &dyn fmt::Display| Kept::by(LocalReason::Confused, detail);
        let answer = Answer::decode(&answer).map_err(|error| confused(&error))?;
        if (answer.id, answer.attempt) != (self.id, self.attempt) {
            return Err(confused(
                &"the worker answered about another job or attempt",
            ));
        }
        Ok(answer.state)
    }
}
