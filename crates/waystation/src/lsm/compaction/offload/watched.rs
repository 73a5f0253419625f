//! One run of a job at a worker, as the engine watches it: begin, look how far it is, give it up where it does not get on.

use super::link::Session;
use super::remote::Kept;
use super::stats::{LocalReason, Times};
use crate::lsm::compaction::{Job, Workplace};
use crate::storage::as_micros;
use std::fmt;
use std::time::Duration;
use waystation_format::compaction::{
    Answer, Call, Finished, JobId, JobState, MESSAGE_BYTES_MAX, Report, Request, Watch,
};

/// A worker has so long to answer a request, if the job is not over before.
const WATCH: Duration = Duration::from_millis(100);
/// A job that moves no entry for so long does not move.
const STALL: Duration = Duration::from_secs(2);
/// A job may take this long ...
const RUN_BASE: Duration = Duration::from_secs(60);
/// ... and a second more for so many bytes of its tables.
const RUN_BYTES_PER_SECOND: u64 = 1 << 20;

/// One run of a job at a worker.
pub(super) struct Watched<'a> {
    session: Box<dyn Session>,
    id: JobId,
    attempt: u64,
    lease: Duration,
    pub(super) job: &'a Job,
    pub(super) place: &'a Workplace<'a>,
    /// It is given up at this time.
    until: Duration,
    /// The tables that the worker told of before the job is over, and the bytes of its telling.
    finished: Finished,
    finished_bytes: usize,
}

/// How a job gets on.
struct Progress {
    entries: u64,
    /// When it was seen to read on; `None` while it waits.
    moved_at: Option<Duration>,
}

impl Progress {
    fn note(&mut self, state: &JobState, now: Duration) {
        match state {
            JobState::Running(read) => {
                if *read > self.entries || self.moved_at.is_none() {
                    (self.entries, self.moved_at) = (*read, Some(now));
                }
            }
            _ => self.moved_at = None,
        }
    }

    fn is_stalled(&self, now: Duration) -> bool {
        self.moved_at
            .is_none_or(|at| now.saturating_sub(at) > STALL)
    }
}

impl<'a> Watched<'a> {
    /// The attempt `run.1` at the job `run.0`, over `session`.
    pub(super) fn new(
        session: Box<dyn Session>,
        run: (JobId, u64),
        lease: Duration,
        job: &'a Job,
        place: &'a Workplace<'a>,
    ) -> Self {
        let limit = RUN_BASE + Duration::from_secs(job.input_bytes() / RUN_BYTES_PER_SECOND);
        Self {
            session,
            id: run.0,
            attempt: run.1,
            lease,
            job,
            place,
            until: place.storage.now() + limit,
            finished: Finished::default(),
            finished_bytes: 0,
        }
    }

    /// Ends the connection. The tables that the worker told of before the job is over.
    pub(super) fn end(self) -> Finished {
        self.finished
    }

    /// Has the job run, until it is over or given up.
    pub(super) fn run(
        &mut self,
        begin: &[u8],
        sends_tables: bool,
        times: &mut Times,
    ) -> Result<Report, Kept> {
        let storage = self.place.storage;
        let reads_level0 = self.job.inputs.iter().any(|input| input.level == 0);
        let mut progress = Progress {
            entries: 0,
            moved_at: None,
        };
        let mut asked = storage.now();
        let mut state = self.ask_raw(begin)?;
        if sends_tables && state == JobState::Receiving {
            self.send_inputs(times)?;
            asked = storage.now();
            state = self.ask(Call::Start)?;
        }
        loop {
            let now = storage.now();
            let took = now.saturating_sub(asked);
            progress.note(&state, now);
            match state {
                JobState::Over(report) => {
                    times.run += as_micros(took);
                    return Ok(report);
                }
                JobState::Waiting => times.wait += as_micros(took),
                JobState::Running(_) => times.run += as_micros(took),
                JobState::Receiving | JobState::Chunk(_) => return Err(confused(&OTHER_ANSWER)),
            }
            self.go_on()?;
            if reads_level0 && progress.is_stalled(now) && (self.place.is_pressed)() {
                let detail = "writers wait for level 0, and the worker does not get on";
                return Err(self.cancel(LocalReason::Pressure, detail));
            }
            // One that answers before its time, and has nothing to say, is not asked again at once.
            storage.sleep(WATCH.saturating_sub(took) / 8);
            asked = storage.now();
            let watch = Watch {
                wait_ms: WATCH.as_millis() as u64,
                known: self.finished.tables.len() as u64,
            };
            state = self.ask(Call::Watch(watch))?;
        }
    }

    /// Gives the job up if the database is being closed, or if it has taken too long.
    pub(super) fn go_on(&mut self) -> Result<(), Kept> {
        if (self.place.cancelled)() {
            return Err(self.cancel(LocalReason::Off, "the database is being closed"));
        }
        if self.place.storage.now() > self.until {
            return Err(self.cancel(LocalReason::Late, "the worker takes too long"));
        }
        Ok(())
    }

    /// Has the worker give the job up, and says why.
    fn cancel(&mut self, reason: LocalReason, detail: &str) -> Kept {
        let cancel = self.request(Call::Cancel);
        // Its answer, or the lack of one, changes nothing.
        let _ = self.session.ask(&cancel, self.lease);
        Kept::by(reason, &detail)
    }

    fn request(&self, call: Call) -> Vec<u8> {
        let (id, attempt) = (self.id, self.attempt);
        Request { id, attempt, call }.encode()
    }

    /// What the worker says to `call`.
    pub(super) fn ask(&mut self, call: Call) -> Result<JobState, Kept> {
        let request = self.request(call);
        self.ask_raw(&request)
    }

    /// What the worker says to the request of these bytes.
    fn ask_raw(&mut self, request: &[u8]) -> Result<JobState, Kept> {
        let answer = self.session.ask(request, self.lease)?;
        let length = answer.len();
        let answer = Answer::decode(&answer).map_err(|error| confused(&error))?;
        if (answer.id, answer.attempt) != (self.id, self.attempt) {
            return Err(confused(
                &"the worker answered about another job or attempt",
            ));
        }
        if let Some(finished) = answer.finished {
            self.finished_bytes += length;
            if self.finished_bytes > MESSAGE_BYTES_MAX {
                return Err(confused(&"the worker tells of tables without an end"));
            }
            self.finished.tables.extend(finished.tables);
            self.finished.counters = finished.counters;
            self.finished.rest = finished.rest;
        }
        Ok(answer.state)
    }
}

/// What a worker does that answers another question.
pub(super) const OTHER_ANSWER: &str = "the worker answered another question";

/// Why the job is kept whose worker answers with something else.
pub(super) fn confused(detail: &dyn fmt::Display) -> Kept {
    Kept::by(LocalReason::Confused, detail)
}
