//! The worker's side of a job: from the message to tables in the job's directory, and the report.
//!
//! The tables of the database are opened for reading, by the numbers that the job lists. Everything that is written goes
//! through a storage that knows the job's directory alone, and that counts what it may take.

use super::engine::{Ended, EngineError, MergeEngine, merge_by};
use crate::error::{Error, Result};
use crate::lsm::compaction::executor::merge_tables;
use crate::lsm::compaction::message::{job_of, note_finished, report_message};
use crate::lsm::compaction::{Job, JobResult, Workplace};
use crate::sst::{TableCache, TableMemory};
use crate::storage::{Capped, Growth, Margins, OsStorage, Storage, stand_back};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock};
use std::fmt;
use std::path::Path;
use waystation_format::compaction::{
    Begin, Counters, Failure, Finished, JobId, Outcome, Report, job_directory_name,
};
use waystation_format::order::Order;

/// Tables that a job keeps open at once.
const OPEN_TABLES: usize = 128;
/// Memory for blocks of the tables that a job reads; a merge reads each of them once.
const CACHE_BYTES: usize = 1 << 20;
/// Entries between two looks at [`JobControl`].
const LOOK_ENTRIES: u64 = crate::lsm::compaction::merge::CANCEL_INTERVAL;

/// Runs jobs of databases that put their tables where this process sees them.
pub struct Worker {
    storage: Arc<dyn Storage>,
    /// What merges records; without one, this process's own code.
    engine: Option<Box<dyn MergeEngine>>,
}

/// How far a job is, and whether it is to be given up: shared with the thread that runs it.
#[derive(Debug, Default)]
pub struct JobControl {
    is_cancelled: AtomicBool,
    entries: AtomicU64,
    finished: Mutex<Finished>,
}

impl JobControl {
    /// Has the job end soon, without tables.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether [`Self::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Notes that so many entries more were read, about: a job that does not move is given up where writers wait.
    pub fn advance(&self, entries: u64) {
        self.entries.fetch_add(entries, Ordering::Relaxed);
    }

    /// The tables that are complete, after the first `known` ones; `None` if there are none. They stay if the job fails.
    pub fn finished_after(&self, known: u64) -> Option<Finished> {
        let finished = lock(&self.finished);
        let tables = usize::try_from(known).ok();
        let tables = tables.and_then(|known| finished.tables.get(known..))?;
        (!tables.is_empty()).then(|| Finished {
            tables: tables.to_vec(),
            rest: finished.rest.clone(),
            ..*finished
        })
    }

    /// Entries read so far, about.
    pub fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }
}

impl Default for Worker {
    fn default() -> Self {
        Self::over(OsStorage::new())
    }
}

impl Worker {
    /// A worker over `storage`.
    pub(crate) fn over(storage: Arc<dyn Storage>) -> Self {
        Self {
            storage,
            engine: None,
        }
    }

    /// The same, with `engine` to merge records.
    #[must_use]
    pub fn with_engine(self, engine: Box<dyn MergeEngine>) -> Self {
        Self {
            engine: Some(engine),
            ..self
        }
    }

    /// Runs the job that `begin` holds, for the database in `directory`: the caller has looked whether the worker may go
    /// there. Then there are tables in the job's directory, complete and durable; or the report says why not, and there are
    /// none but those of [`JobControl::finished_after`] and a torn one. Nothing else is written or removed. The thread is for
    /// this job alone: it stands back behind others from then on if the job reads nothing of level 0.
    pub fn run(&self, directory: &Path, begin: &Begin, control: &JobControl) -> Report {
        let message = &begin.job;
        let failed = |failure, reason: String| Report {
            id: message.id,
            attempt: message.attempt,
            outcome: Outcome::Failed(failure, reason),
            counters: Counters::default(),
        };
        let job = match job_of(message, &Order::Bytewise) {
            Ok(job) => job,
            Err(error) => return failed(Failure::Unsupported, error.to_string()),
        };
        let is_urgent = job.inputs.iter().any(|input| input.level == 0);
        if !is_urgent && self.storage.has_machine_clock() {
            // Writers may wait for level 0; nothing waits for deeper levels.
            stand_back();
        }
        match self.merge(directory, begin, &job, control) {
            Ok(result) => report_message(&result, (message.id, message.attempt)),
            Err(Ended::ByTables(error)) => failed(failure_of(&error), error.to_string()),
            Err(Ended::ByEngine(error)) => failed(failure_by(&error), error.to_string()),
        }
    }

    fn merge(
        &self,
        directory: &Path,
        begin: &Begin,
        job: &Job,
        control: &JobControl,
    ) -> Result<JobResult, Ended> {
        let (id, attempt): (JobId, u64) = (begin.job.id, begin.job.attempt);
        let room = directory.join(job_directory_name(id, attempt));
        // It is the engine's to make: one that is gone means that the engine has given this run up.
        self.storage.list(&room)?;
        let inner = Arc::clone(&self.storage);
        let capped = Capped::new(inner, &room, begin.bytes_max, Margins::NONE, |_| {
            Growth::Vital
        })?;
        let outputs_storage: Arc<dyn Storage> = Arc::new(capped);
        let inputs = Arc::new(open_tables(&self.storage, directory));
        let outputs = Arc::new(open_tables(&outputs_storage, &room));
        compare_inputs(job, &inputs)?;
        let number = AtomicU64::new(0);
        let place = Workplace {
            storage: &outputs_storage,
            tables: &inputs,
            outputs: &outputs,
            rate: None,
            new_number: &|| number.fetch_add(1, Ordering::Relaxed) + 1,
            flushed_bytes: 0,
            cancelled: &|| {
                control.advance(LOOK_ENTRIES);
                control.is_cancelled()
            },
            is_pressed: &|| false,
            finished: Some(&|table, counters, rest| {
                note_finished(&mut lock(&control.finished), table, counters, rest);
            }),
        };
        match &self.engine {
            None => Ok(merge_tables(job, &place)?),
            Some(engine) => merge_by(&**engine, &*self.storage, job, &place, control),
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

fn open_tables(storage: &Arc<dyn Storage>, directory: &Path) -> TableCache {
    TableCache::new(
        Arc::clone(storage),
        directory,
        OPEN_TABLES,
        TableMemory::own(directory, CACHE_BYTES),
        Order::Bytewise,
    )
}

/// Refuses tables that say something else of themselves than the job says of them.
fn compare_inputs(job: &Job, inputs: &Arc<TableCache>) -> Result<()> {
    for table in job.tables() {
        let found = inputs.get(table)?.facts();
        if table.facts().is_some_and(|told| Some(told) != found) {
            let reason = "the table is not the one that the job describes";
            return Err(Error::corruption(inputs.path(table.number), 0, reason));
        }
    }
    Ok(())
}

fn failure_by(error: &EngineError) -> Failure {
    match error {
        EngineError::Unfit(_) => Failure::Unfit,
        EngineError::Inputs(_) => Failure::Inputs,
        EngineError::Cancelled => Failure::Cancelled,
        EngineError::Failed(_) => Failure::Retryable,
    }
}

fn failure_of(error: &Error) -> Failure {
    match error {
        Error::Closed(_) => Failure::Cancelled,
        Error::Corruption { .. } => Failure::Inputs,
        Error::InvalidArgument(_) => Failure::Unsupported,
        _ if error.is_out_of_space() => Failure::Space,
        _ if error.is_not_found() => Failure::Inputs,
        _ => Failure::Retryable,
    }
}
