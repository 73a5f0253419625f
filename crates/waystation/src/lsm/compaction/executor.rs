//! Executors: what runs a job.
//!
//! An executor reads the tables that the job lists, makes tables of its own, and touches nothing else. The tree
//! verifies what it made, and alone installs it.
//!
//! The executor in this process needs no messages. In builds with debug assertions it runs a job from the bytes of its
//! message all the same, and answers with the bytes of a report: so every merge of every test shows that they lack
//! nothing.

use super::message::{job_message, job_of, report_message, result_of};
use super::offload::OffloadStats;
use super::{Job, JobResult, Workplace, run};
use crate::error::{Error, Result};
use crate::lsm::iter::{LevelIterator, Run};
use crate::sst::{EntryStream, InternalIterator, MergingIterator, first_version};
use crate::sync::Arc;
use waystation_format::FormatError;
use waystation_format::compaction::{self as message, JobId, Report};

/// Runs jobs.
pub(crate) trait CompactionExecutor: Send + Sync {
    /// Runs `job`. Then its tables are complete, durable and known to the caller alone; or there are none, and an error
    /// tells why.
    fn execute(&self, job: &Job, place: &Workplace<'_>) -> Result<JobResult>;

    /// What ran elsewhere; `None` if nothing can.
    fn offload_stats(&self) -> Option<OffloadStats> {
        None
    }
}

/// The executor in this process, on the thread of its caller.
#[derive(Debug)]
pub(crate) struct LocalExecutor;

impl CompactionExecutor for LocalExecutor {
    fn execute(&self, job: &Job, place: &Workplace<'_>) -> Result<JobResult> {
        if cfg!(debug_assertions)
            && let Some(message) = job_message(job, JobId::default(), place.tables.order())
        {
            return by_message(&message.encode(), place);
        }
        merge_tables(job, place)
    }
}

/// Runs the job of these bytes.
fn by_message(bytes: &[u8], place: &Workplace<'_>) -> Result<JobResult> {
    let message = message::Job::decode(bytes).map_err(|error| unreadable("job", &error))?;
    let job = job_of(&message, place.tables.order())?;
    let result = merge_tables(&job, place)?;
    let run = (message.id, message.attempt);
    let report = report_message(&result, run).encode();
    let report = Report::decode(&report).map_err(|error| unreadable("report", &error))?;
    result_of(&report, run, &job)
}

fn unreadable(what: &str, error: &FormatError) -> Error {
    Error::InvalidArgument(format!("a compaction {what} cannot be read: {error}"))
}

/// Merges the tables of `job`, without leaving their blocks in the cache.
pub(super) fn merge_tables(job: &Job, place: &Workplace<'_>) -> Result<JobResult> {
    let cursor = |run| LevelIterator::for_merge(Arc::clone(place.tables), run);
    let mut cursors = Vec::new();
    for input in &job.inputs {
        let tables = input.tables.iter().cloned().map(Arc::new);
        if input.level == 0 {
            cursors.extend(tables.map(|table| cursor(Run::Table(table))));
        } else {
            cursors.push(cursor(Run::List(tables.collect())));
        }
    }
    let mut input = MergingIterator::new(cursors, place.tables.order());
    match &job.from {
        None => run(job, &mut input, place),
        Some(from) => {
            let first = first_version(from);
            run(job, &mut Rest { input, first }, place)
        }
    }
}

/// The entries from an internal key on.
struct Rest<I> {
    input: I,
    first: Vec<u8>,
}

impl<I: InternalIterator> EntryStream for Rest<I> {
    fn start(&mut self) -> Result<()> {
        self.input.seek(&self.first)
    }

    #[inline]
    fn has_entry(&self) -> bool {
        self.input.has_entry()
    }

    #[inline]
    fn advance(&mut self) -> Result<()> {
        self.input.advance()
    }

    #[inline]
    fn entry(&self) -> (&[u8], &[u8]) {
        self.input.entry()
    }
}
