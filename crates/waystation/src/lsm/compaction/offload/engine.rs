//! Engines: what merges records in a worker, in place of the merge in software. Hardware, or a model of it.
//!
//! An engine gets tables and gives blocks of records, merged. Tables are made of them as every executor makes them: graves
//! and the keys of deeper levels are asked, outputs are cut, blocks compressed, filters built. So an engine knows nothing of
//! all that, and its tables are those of any other executor, byte for byte. It may leave out what two simple rules of
//! `LevelDB` let it leave out, and counts it; what both leave out adds up, as the count of entries will show.

use super::worker::JobControl;
use crate::error::{Error, Result};
use crate::lsm::compaction::{Job, JobResult, Workplace, run};
use crate::sst::EntryStream;
use crate::storage::{Storage, read_whole};
use waystation_format::FormatError;
use waystation_format::block::{Block, BlockIter};
use waystation_format::table::{BlockHandle, decode_block};

/// Merges the records of tables.
pub trait MergeEngine: Send + Sync {
    /// Merges the tables of `task`. Tells `control` how far it is, and gives up once that is cancelled.
    ///
    /// # Errors
    /// [`EngineError`]; then there is nothing to be cleared away.
    fn merge(&self, task: &EngineTask, control: &JobControl) -> Result<Merged, EngineError>;
}

/// What an engine merges.
#[derive(Debug, Clone, Default)]
pub struct EngineTask {
    /// The inputs, the newest first: each a chain of tables in key order, whole files in `LevelDB`'s format.
    pub inputs: Vec<Vec<Vec<u8>>>,
    /// Whether the last input is that of the deepest level, which the others are merged into.
    pub has_lower: bool,
    /// A version that has a newer one at or below this sequence number may be left out.
    pub smallest_snapshot: u64,
    /// Whether a deletion at or below that number may be left out, with all older versions of its key.
    pub drops_deletions: bool,
}

/// What an engine made.
#[derive(Debug, Clone, Default)]
pub struct Merged {
    /// Blocks of records in the order of internal keys, in `LevelDB`'s format, uncompressed.
    pub bytes: Vec<u8>,
    /// Where they lie, in order.
    pub blocks: Vec<BlockHandle>,
    /// Versions that were left out because of a newer one.
    pub shadowed: u64,
    /// Deletions that were left out.
    pub dead_deletions: u64,
}

/// Why an engine made nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// It does not take such a task; others it may take.
    #[error("the engine does not take this job: {0}")]
    Unfit(String),
    /// A table is damaged.
    #[error("the engine cannot read a table: {0}")]
    Inputs(String),
    /// It was told to give up.
    #[error("the engine was told to give up")]
    Cancelled,
    /// It failed.
    #[error("the engine failed: {0}")]
    Failed(String),
}

/// Why a worker with an engine made nothing.
#[derive(Debug)]
pub(super) enum Ended {
    ByEngine(EngineError),
    ByTables(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::ByTables(error)
    }
}

/// Runs `job`, whose tables lie in `files`, and whose records `engine` merges.
pub(super) fn merge_by(
    engine: &dyn MergeEngine,
    files: &dyn Storage,
    job: &Job,
    place: &Workplace<'_>,
    control: &JobControl,
) -> Result<JobResult, Ended> {
    job.table_settings()?;
    if job.from.is_some() {
        let reason = "it merges whole tables, and this is the rest of a job".to_owned();
        return Err(Ended::ByEngine(EngineError::Unfit(reason)));
    }
    let task = task_of(job, files, place)?;
    let merged = engine.merge(&task, control).map_err(Ended::ByEngine)?;
    drop(task);
    let (shadowed, dead_deletions) = (merged.shadowed, merged.dead_deletions);
    let result = run(job, &mut Records::new(merged), place);
    let mut result = result.map_err(|error| match error {
        // The job is sound, so this is about the records.
        Error::InvalidArgument(reason) => Ended::ByEngine(EngineError::Failed(reason)),
        other => Ended::ByTables(other),
    })?;
    let counters = &mut result.counters;
    counters.entries_in += shadowed + dead_deletions;
    counters.shadowed += shadowed;
    counters.dead_deletions += dead_deletions;
    Ok(result)
}

fn task_of(job: &Job, storage: &dyn Storage, place: &Workplace<'_>) -> Result<EngineTask> {
    let mut task = EngineTask {
        has_lower: job.inputs.last().is_some_and(|input| input.level > 0),
        smallest_snapshot: job.smallest_snapshot,
        // Where a grave or a deeper level has a say, the tables' writer asks it.
        drops_deletions: job.deeper.is_empty() && job.hidden.graves.is_empty(),
        ..EngineTask::default()
    };
    for input in &job.inputs {
        let files = input.tables.iter();
        let files = files.map(|table| read_whole(storage, &place.tables.path(table.number)));
        let files: Vec<Vec<u8>> = files.collect::<Result<_>>()?;
        if input.level == 0 {
            task.inputs.extend(files.into_iter().map(|file| vec![file]));
        } else {
            task.inputs.push(files);
        }
    }
    Ok(task)
}

/// The records of an engine's blocks, in order.
struct Records {
    merged: Merged,
    /// The block after the one at hand.
    next: usize,
    at: Option<BlockIter>,
}

impl Records {
    fn new(merged: Merged) -> Self {
        Self {
            merged,
            next: 0,
            at: None,
        }
    }

    /// Goes on to the first record of the next block that has one.
    fn next_block(&mut self) -> Result<()> {
        self.at = None;
        while self.at.is_none()
            && let Some(&handle) = self.merged.blocks.get(self.next)
        {
            self.next += 1;
            let records = self.open(handle).map_err(|error| unreadable(&error))?;
            self.at = records.valid().then_some(records);
        }
        Ok(())
    }

    /// The block at `handle`; one that does not lie within the bytes has no checksum, and is refused for that.
    fn open(&self, handle: BlockHandle) -> Result<BlockIter, FormatError> {
        let bytes = &self.merged.bytes;
        let end = handle.end().and_then(|end| usize::try_from(end).ok());
        let stored = end.and_then(|end| bytes.get(handle.offset as usize..end));
        let stored = stored.unwrap_or_default();
        let mut scratch = Vec::new();
        let mut records = BlockIter::new(Block::new(decode_block(stored, &mut scratch)?)?);
        records.seek_to_first()?;
        Ok(records)
    }
}

fn unreadable(error: &FormatError) -> Error {
    Error::InvalidArgument(format!("what the engine made cannot be read: {error}"))
}

impl EntryStream for Records {
    fn start(&mut self) -> Result<()> {
        self.next = 0;
        self.next_block()
    }

    fn has_entry(&self) -> bool {
        self.at.is_some()
    }

    fn advance(&mut self) -> Result<()> {
        if let Some(records) = &mut self.at {
            records.next().map_err(|error| unreadable(&error))?;
            if records.valid() {
                return Ok(());
            }
        }
        self.next_block()
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        let records = self.at.as_ref();
        records.map_or((&[], &[]), |records| (records.key(), records.value()))
    }
}
