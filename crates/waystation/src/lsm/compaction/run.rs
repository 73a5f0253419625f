//! The executor in this process: runs a job over the files of a directory.
//!
//! A job that fails, or is cancelled, leaves no file behind, unless its caller wants to keep finished tables; a job that succeeds leaves tables that are complete,
//! synced, opened once and compared with what was written into them. Nothing here installs anything.
//!
//! Tables are synced when the job is over, all at once: by then the device has most of their bytes, and one commit of the
//! file system serves all of them. A sync after each table would have the merge wait for a commit each time.

use super::merge::{Output, merge};
use super::{Counters, Job};
use crate::error::{Error, Result};
use crate::sst::EntryStream;
use crate::sst::{TableBuilder, TableCache, TableMeta, TableSettings};
use crate::storage::{File, RateLimit, Storage, as_micros};
use crate::sync::Arc;

/// So many tables are open at most until they are synced.
const UNSYNCED_MAX: usize = 64;

/// Is told of a table that is complete, of what was done with it, and of the user key that the rest begins with.
pub(crate) type OnFinished<'a> = dyn Fn(&TableMeta, &Counters, &[u8]) + 'a;

/// What a job needs besides its description.
pub(crate) struct Workplace<'a> {
    /// Where the files are.
    pub storage: &'a Arc<dyn Storage>,
    /// The tables of the directory.
    pub tables: &'a Arc<TableCache>,
    /// The tables of the directory that outputs are written to.
    pub outputs: &'a Arc<TableCache>,
    /// How fast, if there is a limit.
    pub rate: Option<&'a Arc<RateLimit>>,
    /// Gives a file number that no file has.
    pub new_number: &'a dyn Fn() -> u64,
    /// The bytes of the memtable that is flushed.
    pub flushed_bytes: u64,
    /// Whether the job is to be given up.
    pub cancelled: &'a dyn Fn() -> bool,
    /// Whether writers wait for level 0.
    pub is_pressed: &'a dyn Fn() -> bool,
    /// Is told of each table but the last. These tables stay if the job fails. `None`: none stays.
    pub finished: Option<&'a OnFinished<'a>>,
}

/// What a job made.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobResult {
    /// The tables, by key; only the caller knows of them.
    pub outputs: Vec<TableMeta>,
    /// What it took.
    pub counters: Counters,
}

/// Runs `job` over `input`, which holds the entries of its tables (or of a memtable) in order.
pub(crate) fn run<I: EntryStream>(
    job: &Job,
    input: &mut I,
    place: &Workplace<'_>,
) -> Result<JobResult> {
    let started = place.storage.now();
    let order = place.tables.order();
    let settings = TableSettings {
        order: order.clone(),
        ..job.table_settings()?
    };
    let bytes = match &*job.inputs {
        [] => place.flushed_bytes,
        _ => job.input_bytes(),
    };
    let mut outputs = Outputs {
        place,
        settings,
        expected: (bytes.min(job.limits.table_bytes), job.output_level),
        current: None,
        done: Vec::new(),
        unsynced: Vec::new(),
    };
    let merged = input
        .start()
        .and_then(|()| merge(job, order, input, &mut outputs, place.cancelled))
        .and_then(|counters| outputs.sync().map(|()| counters))
        .and_then(|counters| verify(place, &outputs.done, &counters).map(|()| counters));
    match merged {
        Ok(mut counters) => {
            let outputs = std::mem::take(&mut outputs.done);
            counters.jobs = 1;
            counters.read_bytes = job.input_bytes();
            counters.written_bytes = outputs.iter().map(|table| table.file_bytes).sum();
            let elapsed = place.storage.now().saturating_sub(started);
            counters.elapsed_us = as_micros(elapsed);
            Ok(JobResult { outputs, counters })
        }
        Err(error) => {
            outputs.remove();
            Err(error)
        }
    }
}

/// Removes tables that no version knows. A file that stays is a leftover for the next open to remove.
pub(crate) fn remove_outputs(place: &Workplace<'_>, outputs: &[TableMeta]) {
    for table in outputs {
        place.outputs.evict(table.number);
        if let Err(error) = place.storage.remove(&place.outputs.path(table.number)) {
            log::warn!("a table of a failed job stays for now: {error}");
        }
    }
}

/// Opens every output as a reader would and compares what it says of itself with what was written.
fn verify(place: &Workplace<'_>, outputs: &[TableMeta], counters: &Counters) -> Result<()> {
    let mut entries = 0;
    for table in outputs {
        let found = place.outputs.get(table)?.facts();
        if found != table.facts() {
            let reason = "what the table says of itself is not what was written into it";
            let path = place.outputs.path(table.number);
            return Err(Error::corruption(path, table.file_bytes, reason));
        }
        entries += found.map_or(0, |facts| facts.entries);
    }
    if entries == counters.entries_out {
        return Ok(());
    }
    let written = counters.entries_out;
    let reason = format!("a merge wrote {written} entries, and its tables hold {entries}");
    let path = outputs.first().map_or(place.outputs.path(0), |table| {
        place.outputs.path(table.number)
    });
    Err(Error::corruption(path, 0, reason))
}

/// The tables a job writes.
struct Outputs<'a> {
    place: &'a Workplace<'a>,
    settings: TableSettings,
    /// About how long each of them gets (bytes), and its level.
    expected: (u64, usize),
    current: Option<TableBuilder>,
    done: Vec<TableMeta>,
    /// The files of the last ones of these.
    unsynced: Vec<Arc<dyn File>>,
}

impl Outputs<'_> {
    /// Makes the content of all complete tables durable.
    fn sync(&mut self) -> Result<()> {
        self.unsynced.drain(..).try_for_each(|file| file.sync())
    }

    #[cold]
    fn begin(&mut self) -> Result<&mut TableBuilder> {
        let number = (self.place.new_number)();
        let path = self.place.outputs.path(number);
        let settings = self.settings.clone();
        let (bytes, level) = self.expected;
        self.place.storage.expect(&path, bytes, level);
        let builder = TableBuilder::create(self.place.storage, &path, number, settings)
            .map(|builder| builder.at_rate(self.place.rate.cloned()))
            // It may have been created nevertheless.
            .inspect_err(|_| drop(self.place.storage.remove(&path)))?;
        Ok(self.current.insert(builder))
    }

    fn remove(self) {
        if let Some(builder) = self.current
            && let Err(error) = builder.abandon()
        {
            log::warn!("a table of a failed job stays for now: {error}");
        }
        if self.place.finished.is_none() {
            remove_outputs(self.place, &self.done);
        }
    }
}

impl Output for Outputs<'_> {
    #[inline]
    fn add(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        let builder = match &mut self.current {
            Some(builder) => builder,
            None => self.begin()?,
        };
        builder.add(internal_key, value)
    }

    #[inline]
    fn table_bytes(&self) -> u64 {
        self.current
            .as_ref()
            .map_or(0, TableBuilder::estimated_bytes)
    }

    fn cut(&mut self, rest: Option<(&Counters, &[u8])>) -> Result<()> {
        if let Some(builder) = self.current.take() {
            let (table, file) = builder.complete()?;
            if let (Some(tell), Some((counters, rest))) = (self.place.finished, rest) {
                tell(&table, counters, rest);
            }
            self.done.push(table);
            self.unsynced.push(file);
        }
        if self.unsynced.len() < UNSYNCED_MAX {
            return Ok(());
        }
        self.sync()
    }
}
