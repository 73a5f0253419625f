//! Resuming: the tables that a worker finished before it failed are kept, and the rest of the job alone is merged.
//!
//! Outputs are cut between user keys, and nothing but the key is carried over a cut: a merge that begins with the first key
//! of a table makes that table and the later ones, byte for byte. So the worker tells of each table that is complete, with
//! what it has counted up to there and the key that comes next. The tables are taken over as those of a whole job are; in
//! the end both parts together have to account for every entry of the job's tables.

use super::adopt::adopt;
use super::remote::Kept;
use super::stats::{LocalReason, Times};
use super::{OffloadStats, Verification};
use crate::lsm::compaction::message::result_so_far;
use crate::lsm::compaction::verify::contradiction_so_far;
use crate::lsm::compaction::{Job, JobResult, Workplace, remove_outputs};
use std::path::Path;
use waystation_format::compaction::Finished;

/// What is done of a job; its tables are in the directory of the database, known to the caller alone.
#[derive(Debug, Default)]
pub(super) struct Partial {
    result: JobResult,
    /// The user key that the rest begins with; `None`: all is left.
    from: Option<Vec<u8>>,
    times: Times,
}

impl Partial {
    /// Whether nothing is done.
    pub(super) fn is_nothing(&self) -> bool {
        self.from.is_none()
    }

    /// The user key that the rest begins with; `None`: all is left.
    pub(super) fn from(&self) -> Option<&Vec<u8>> {
        self.from.as_ref()
    }

    /// What is left of `job`.
    pub(super) fn rest_of(&self, job: &Job) -> Job {
        Job {
            from: self.from.clone(),
            ..job.clone()
        }
    }

    /// The result of the whole job, of which `rest` is the result of the rest.
    pub(super) fn joined_with(&self, rest: JobResult) -> JobResult {
        let mut joined = self.result.clone();
        joined.counters.add(&rest.counters);
        joined.outputs.extend(rest.outputs);
        joined
    }

    /// The bytes of the tables of `job` that it has read, by its part of the entries.
    pub(super) fn read_bytes(&self, job: &Job) -> u64 {
        let entries = job
            .tables()
            .map(|table| table.facts().map_or(0, |it| it.entries));
        let entries = entries.map(u128::from).sum::<u128>().max(1);
        let read = u128::from(self.result.counters.entries_in).min(entries);
        (u128::from(job.input_bytes()) * read / entries) as u64
    }

    /// The bytes of its tables.
    pub(super) fn written_bytes(&self) -> u64 {
        self.result.counters.written_bytes
    }

    /// Where the time of its attempts went.
    pub(super) fn times(&self) -> &Times {
        &self.times
    }

    /// Counts it among what the worker did, if it is anything.
    pub(super) fn count(&self, job: &Job, stats: &mut OffloadStats) {
        if !self.is_nothing() {
            stats.resumed(self.read_bytes(job), self.written_bytes(), &self.times);
        }
    }

    /// Takes over the `finished` tables of an attempt at its rest, which lie in `directory`. On a failure it is what it was.
    pub(super) fn keep(
        &mut self,
        finished: &Finished,
        (job, place): (&Job, &Workplace<'_>),
        directory: &Path,
        verification: Verification,
        mut times: Times,
    ) -> Result<(), Kept> {
        if finished.tables.is_empty() {
            return Ok(());
        }
        let mut made = result_so_far(finished);
        let joined = self.joined_with(made.clone());
        let order = place.tables.order();
        if let Some(reason) = contradiction_so_far(job, &joined, &finished.rest, order) {
            return Err(Kept::by(LocalReason::Contradiction, &reason));
        }
        made.outputs = adopt(place, directory, &made.outputs, verification, &mut times)?;
        log::info!(
            "{} tables of an offloaded compaction are kept",
            made.outputs.len()
        );
        self.result = self.joined_with(made);
        self.from = Some(finished.rest.clone());
        self.times.add(&times);
        Ok(())
    }

    /// Removes its tables: all is left.
    pub(super) fn discard(&mut self, place: &Workplace<'_>) {
        remove_outputs(place, &self.result.outputs);
        *self = Self::default();
    }
}
