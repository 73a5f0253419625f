//! The executor that has a worker run jobs, and runs them itself where that does not work.

use super::adopt::adopt;
use super::link::LinkError;
use super::resume::Partial;
use super::stats::{LocalReason, OffloadStats, Times};
use super::watched::Watched;
use super::{Offload, OffloadSettings};
use crate::directory::JobDirectory;
use crate::error::{Error, Result};
use crate::lsm::compaction::message::{job_message, result_of};
use crate::lsm::compaction::{
    CompactionExecutor, Job, JobResult, LocalExecutor, Workplace, contradiction, remove_outputs,
};
use crate::storage::as_micros;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use waystation_format::compaction::{
    Begin, Call, Failure, JobId, MESSAGE_BYTES_MAX, Outcome, Request,
};

/// A job is tried so often at the worker.
const ATTEMPTS: u64 = 2;
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

/// One attempt at a job.
struct Attempt<'a> {
    /// The request to begin it.
    begin: &'a [u8],
    run: (JobId, u64),
    sends_tables: bool,
    /// The whole job.
    job: &'a Job,
    place: &'a Workplace<'a>,
}

impl Attempt<'_> {
    /// What the worker reported about what is left beside `partial`; its tables are in `directory`, and nothing but the report
    /// was looked at.
    fn reported(
        &self,
        watched: &mut Watched<'_>,
        directory: &Path,
        partial: &Partial,
        times: &mut Times,
    ) -> Result<Option<JobResult>, Kept> {
        let report = watched.run(self.begin, self.sends_tables, times)?;
        match &report.outcome {
            Outcome::Done(_) => {}
            Outcome::Failed(Failure::Unseen, reason) if !self.sends_tables => {
                log::info!("tables are sent to the worker from now on: {reason}");
                return Ok(None);
            }
            Outcome::Failed(failure, reason) => return Err(Kept::by((*failure).into(), reason)),
        }
        let contradicted = |detail: &dyn fmt::Display| Kept::by(LocalReason::Contradiction, detail);
        let job = self.job;
        let made = result_of(&report, self.run, job).map_err(|error| contradicted(&error))?;
        let joined = partial.joined_with(made.clone());
        if let Some(reason) = contradiction(job, &joined, self.place.tables.order()) {
            return Err(contradicted(&reason));
        }
        if self.sends_tables {
            watched.fetch_outputs(directory, &made.outputs, times)?;
        }
        Ok(Some(made))
    }
}

/// Has a worker run jobs.
pub(crate) struct RemoteExecutor {
    offload: Offload,
    /// The directory of the database.
    dir: PathBuf,
    /// The same as a worker knows it.
    absolute: Vec<u8>,
    /// Whether the worker was found not to see the directory: then tables are sent.
    sends_tables: AtomicBool,
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
            sends_tables: AtomicBool::new(false),
            pause: Mutex::default(),
            stats: Mutex::default(),
        }
    }

    pub(super) fn settings(&self) -> &OffloadSettings {
        self.offload.settings()
    }

    /// Runs the job at the worker, or says why what is left of it, beside `partial`, has to run here.
    fn offloaded(
        &self,
        job: &Job,
        place: &Workplace<'_>,
        partial: &mut Partial,
    ) -> Result<JobResult, Kept> {
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
                directory: Vec::new(),
                job: message,
                lease_ms: u64::try_from(settings.lease.as_millis()).unwrap_or(u64::MAX),
                bytes_max: bytes_max(job, place, &self.dir)?,
            })),
        };
        let mut failed = 0;
        loop {
            let sends_tables = self.sends_tables.load(Ordering::Relaxed);
            request.attempt += 1;
            self.address(&mut request, sends_tables, partial.from());
            let begin = request.encode();
            if begin.len() > MESSAGE_BYTES_MAX {
                return Err(unfit("its message is too long"));
            }
            let attempt = Attempt {
                begin: &begin,
                run: (request.id, request.attempt),
                sends_tables,
                job,
                place,
            };
            match self.attempt(&attempt, partial) {
                Ok(Some(result)) => return Ok(result),
                Ok(None) => self.sends_tables.store(true, Ordering::Relaxed),
                Err(kept) => {
                    failed += 1;
                    if failed == ATTEMPTS || !Self::may_repeat(&kept, place) {
                        return Err(kept);
                    }
                    lock(&self.stats).repeated += 1;
                    log::info!("a compaction is offloaded anew: {}", kept.detail);
                }
            }
        }
    }

    /// Has the request to begin be about this attempt at the user keys from `from` on, and about tables that the worker sees or
    /// is sent.
    fn address(&self, request: &mut Request, sends_tables: bool, from: Option<&Vec<u8>>) {
        if let Call::Begin(begin) = &mut request.call {
            begin.job.attempt = request.attempt;
            begin.job.from = from.cloned();
            begin.directory = if sends_tables {
                Vec::new()
            } else {
                self.absolute.clone()
            };
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
        let is_found = |number| {
            let path = place.tables.path(number);
            place.storage.is_found_by_others(&path)
        };
        if place.rate.is_some() || !job.tables().all(|table| is_found(table.number)) {
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

    /// One attempt at the worker. `None`: the worker does not see the tables, and would take them if they were sent. If it
    /// fails, `partial` takes the tables that the worker has finished.
    fn attempt(
        &self,
        attempt: &Attempt<'_>,
        partial: &mut Partial,
    ) -> Result<Option<JobResult>, Kept> {
        let (settings, place) = (self.settings(), attempt.place);
        let mut times = Times::default();
        let session = self.offload.link().connect()?;
        let started = place.storage.now();
        let (id, number) = attempt.run;
        let directory = JobDirectory::create(&**place.storage, &self.dir, id, number)
            .map_err(|error| Kept::by(LocalReason::Storage, &error))?;
        times.install = micros_since(place, started);
        let job = attempt.job;
        let mut watched = Watched::new(session, attempt.run, settings.lease, job, place);
        let reported = attempt.reported(&mut watched, directory.path(), partial, &mut times);
        let finished = watched.end();
        let verification = settings.verification;
        let made = match reported {
            Ok(None) => return Ok(None),
            Ok(Some(made)) => made,
            Err(kept) if kept.reason.leaves_tables() && !attempt.sends_tables => {
                let path = directory.path();
                let taken = partial.keep(&finished, (job, place), path, verification, times);
                return match taken {
                    Err(worse) if worse.reason != LocalReason::Storage => Err(worse),
                    _ => Err(kept),
                };
            }
            Err(kept) => return Err(kept),
        };
        let path = directory.path();
        let outputs = adopt(place, path, &made.outputs, verification, &mut times)?;
        let started = place.storage.now();
        drop(directory);
        times.install += micros_since(place, started);
        let mut result = partial.joined_with(JobResult { outputs, ..made });
        let mut stats = lock(&self.stats);
        partial.count(job, &mut stats);
        let counters = &mut result.counters;
        let kept_bytes = partial.written_bytes();
        stats.offloaded(
            counters.read_bytes - partial.read_bytes(job),
            counters.written_bytes - kept_bytes,
            &times,
        );
        times.add(partial.times());
        counters.elapsed_us = times.elapsed();
        Ok(Some(result))
    }

    /// Merges in this process what is left of `job`, for this reason; all of it if what is done turns out to be wrong.
    fn merge_here(
        &self,
        job: &Job,
        place: &Workplace<'_>,
        mut partial: Partial,
        reason: LocalReason,
    ) -> Result<JobResult> {
        if !partial.is_nothing() {
            let rest = LocalExecutor.execute(&partial.rest_of(job), place);
            let rest = rest.inspect_err(|_| partial.discard(place))?;
            let joined = partial.joined_with(rest);
            let Some(wrong) = contradiction(job, &joined, place.tables.order()) else {
                let mut stats = lock(&self.stats);
                partial.count(job, &mut stats);
                stats.kept(reason, job.input_bytes() - partial.read_bytes(job));
                return Ok(joined);
            };
            log::warn!(
                "a compaction runs here from its beginning, as the tables kept of it were wrong: {wrong}"
            );
            remove_outputs(place, &joined.outputs);
        }
        lock(&self.stats).kept(reason, job.input_bytes());
        LocalExecutor.execute(job, place)
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
        let mut partial = Partial::default();
        let kept = match self.offloaded(job, place, &mut partial) {
            Ok(result) => {
                self.note(None, place);
                if self.is_shadowed(place) {
                    return self.shadow(job, &result, place);
                }
                return Ok(result);
            }
            Err(kept) => kept,
        };
        let is_closing = (place.cancelled)();
        if is_closing || !kept.reason.leaves_tables() {
            partial.discard(place);
        }
        if is_closing {
            return Err(Error::Closed("closed"));
        }
        self.note(Some(kept.reason), place);
        if kept.reason.is_of_worker() {
            log::warn!(
                "a compaction runs here and not at the worker: {}",
                kept.detail
            );
        }
        self.merge_here(job, place, partial, kept.reason)
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
    Ok(output_bytes_max(job).min(free_bytes))
}

/// The most bytes that outputs of `job` can have.
pub(super) fn output_bytes_max(job: &Job) -> u64 {
    let most = job.input_bytes().saturating_mul(OUTPUT_FACTOR);
    most.saturating_add(OUTPUT_EXTRA_BYTES)
}
