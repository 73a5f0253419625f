//! Jobs and their results as messages, for executors that share no memory with the engine.
//!
//! A job leaves only if it is whole: graves that lie in spill files, and an order of keys that only the program knows,
//! keep it here. What comes back names no path and decides nothing: the tree verifies and installs it, or does not.

use super::hidden::Hidden;
use super::job::{Grandparent, JobInput, OutputLayout, OutputLimits};
use super::run::JobResult;
use super::{Counters, Job};
use crate::cemetery::checkpoint::{self, Checkpoint};
use crate::error::{Error, Result};
use crate::lsm::version::LEVELS;
use crate::sst::{TableFacts, TableMeta};
use crate::sync::Arc;
use waystation_format::compaction::{self as message, Finished, JobId, Outcome, Report};
use waystation_format::order::Order;

/// The job as a message of its first attempt, or `None` if it cannot leave. Its user keys are in `order`.
pub(super) fn job_message(job: &Job, id: JobId, order: &Order) -> Option<message::Job> {
    let graves = &job.hidden.graves;
    if !order.is_bytewise() || !graves.spilled().is_empty() {
        return None;
    }
    let input_level = |input: &JobInput| message::InputLevel {
        level: input.level as u32,
        tables: input.tables.iter().map(table_message).collect(),
    };
    let checkpoint = if graves.is_empty() {
        Vec::new()
    } else {
        checkpoint::encode(graves)
    };
    let grandparent = |table: &Grandparent| message::Grandparent {
        largest: table.largest.clone(),
        bytes: table.bytes,
    };
    Some(message::Job {
        id,
        attempt: 1,
        comparator: order.name().to_owned(),
        inputs: job.inputs.iter().map(input_level).collect(),
        from: job.from.clone(),
        output_level: job.output_level as u32,
        smallest_snapshot: job.smallest_snapshot,
        deeper: job.deeper.clone(),
        graves: message::Graves {
            checkpoint,
            through: job.hidden.through,
        },
        grandparents: job.grandparents.iter().map(grandparent).collect(),
        limits: message::Limits {
            table_bytes: job.limits.table_bytes,
            grandparent_bytes: job.limits.grandparent_bytes,
        },
        layout: message::Layout {
            block_bytes: job.layout.block_bytes,
            restart_interval: job.layout.restart_interval,
            compression: job.layout.compression,
            filter_bits_per_key: job.layout.filter_bits_per_key,
        },
    })
}

/// The job of a message, for tables in `order`.
pub(super) fn job_of(message: &message::Job, order: &Order) -> Result<Job> {
    let refuse = |reason| Err(Error::InvalidArgument(format!("a compaction job {reason}")));
    if message.comparator != order.name() {
        return refuse(format!(
            "is about keys in the order {:?}, and the tables are in the order {:?}",
            message.comparator,
            order.name()
        ));
    }
    let levels = message.inputs.iter().map(|input| input.level);
    if let Some(level) = levels
        .chain([message.output_level])
        .find(|level| *level as usize >= LEVELS)
    {
        return refuse(format!("names level {level}, and there are {LEVELS}"));
    }
    let Some(hidden) = hidden_of(&message.graves) else {
        return refuse("has graves that cannot be read, or lacks some".to_owned());
    };
    let inputs = message.inputs.iter().map(|input| JobInput {
        level: input.level as usize,
        tables: input.tables.iter().map(table_of).collect(),
    });
    let grandparents = message.grandparents.iter().map(|table| Grandparent {
        largest: table.largest.clone(),
        bytes: table.bytes,
    });
    Ok(Job {
        inputs: inputs.collect(),
        from: message.from.clone(),
        output_level: message.output_level as usize,
        smallest_snapshot: message.smallest_snapshot,
        deeper: message.deeper.clone(),
        hidden,
        grandparents: grandparents.collect(),
        limits: OutputLimits {
            table_bytes: message.limits.table_bytes,
            grandparent_bytes: message.limits.grandparent_bytes,
        },
        layout: OutputLayout {
            block_bytes: message.layout.block_bytes,
            restart_interval: message.layout.restart_interval,
            compression: message.layout.compression,
            filter_bits_per_key: message.layout.filter_bits_per_key,
        },
    })
}

/// The graves of a message; `None` if they are none, or not all.
fn hidden_of(graves: &message::Graves) -> Option<Hidden> {
    let mut hidden = Hidden {
        through: graves.through,
        ..Hidden::default()
    };
    if !graves.checkpoint.is_empty() {
        let Checkpoint {
            flushed, labels, ..
        } = checkpoint::decode(&graves.checkpoint).ok()?;
        hidden.graves = labels.is_empty().then(|| Arc::new(flushed))?;
    }
    Some(hidden)
}

/// The report of `result`, which is that of this attempt at the job of this name.
pub(super) fn report_message(result: &JobResult, (id, attempt): (JobId, u64)) -> Report {
    let counters = &result.counters;
    Report {
        id,
        attempt,
        outcome: Outcome::Done(result.outputs.iter().map(table_message).collect()),
        counters: counters_message(counters),
    }
}

/// Notes that `table` is complete, the next one of `finished`: with it `counters` are done, and `rest` is where the rest of
/// the job begins.
pub(super) fn note_finished(
    finished: &mut Finished,
    table: &TableMeta,
    counters: &Counters,
    rest: &[u8],
) {
    finished.tables.push(table_message(table));
    finished.counters = counters_message(counters);
    finished.rest.clear();
    finished.rest.extend_from_slice(rest);
}

/// The result so far of a job of which these tables are finished.
pub(super) fn result_so_far(finished: &Finished) -> JobResult {
    let outputs: Vec<TableMeta> = finished.tables.iter().map(table_of).collect();
    JobResult {
        counters: Counters {
            written_bytes: outputs.iter().map(|table| table.file_bytes).sum(),
            ..counters_of(&finished.counters)
        },
        outputs,
    }
}

fn counters_message(counters: &Counters) -> message::Counters {
    message::Counters {
        entries_in: counters.entries_in,
        entries_out: counters.entries_out,
        shadowed: counters.shadowed,
        dead_deletions: counters.dead_deletions,
        hidden: counters.hidden,
        elapsed_us: counters.elapsed_us,
    }
}

/// What an executor counted. What a worker spends is not spent by this process.
fn counters_of(counters: &message::Counters) -> Counters {
    Counters {
        entries_in: counters.entries_in,
        entries_out: counters.entries_out,
        shadowed: counters.shadowed,
        dead_deletions: counters.dead_deletions,
        hidden: counters.hidden,
        elapsed_us: counters.elapsed_us,
        ..Counters::default()
    }
}

/// What a report says of this attempt at `job`, which has this name.
pub(super) fn result_of(report: &Report, run: (JobId, u64), job: &Job) -> Result<JobResult> {
    let refuse = |reason: &str| {
        let message = format!("the report of a compaction job {reason}");
        Err(Error::InvalidArgument(message))
    };
    if (report.id, report.attempt) != run {
        return refuse("is that of another job, or of an earlier attempt");
    }
    let outputs: Vec<TableMeta> = match &report.outcome {
        Outcome::Done(outputs) => outputs.iter().map(table_of).collect(),
        Outcome::Failed(_, reason) => return refuse(&format!("says that it failed: {reason}")),
    };
    Ok(JobResult {
        counters: Counters {
            jobs: 1,
            read_bytes: job.input_bytes(),
            written_bytes: outputs.iter().map(|table| table.file_bytes).sum(),
            ..counters_of(&report.counters)
        },
        outputs,
    })
}

fn table_message(table: &TableMeta) -> message::Table {
    let facts = |facts: TableFacts| message::Facts {
        smallest_sequence: facts.smallest_sequence,
        largest_sequence: facts.largest_sequence,
        purged_through: facts.purged_through,
        entries: facts.entries,
        deletions: facts.deletions,
    };
    message::Table {
        number: table.number,
        file_bytes: table.file_bytes,
        smallest: table.smallest.clone(),
        largest: table.largest.clone(),
        facts: table.facts().map(facts),
    }
}

fn table_of(table: &message::Table) -> TableMeta {
    let facts = |facts: message::Facts| TableFacts {
        smallest_sequence: facts.smallest_sequence,
        largest_sequence: facts.largest_sequence,
        purged_through: facts.purged_through,
        entries: facts.entries,
        deletions: facts.deletions,
    };
    TableMeta {
        number: table.number,
        file_bytes: table.file_bytes,
        smallest: table.smallest.clone(),
        largest: table.largest.clone(),
        facts: table.facts.map(facts).into(),
    }
}
