//! A task in as many merges as the engine's inputs make necessary, after [`crate::model::staging`].
//!
//! What a merge before the last one makes stays in memory. It keeps all that a later one may need: deletions are left out
//! by the last merge only.

use super::refusal;
use super::tables::table_of;
use crate::ip::{Counters, IpError, Job, Output, Settings, TableImage};
use crate::model::staging::{Source, plan};
use waystation::offload::{EngineError, EngineTask, Merged};
use waystation_format::key::MAX_SEQUENCE;

/// The restart interval and the length of blocks between engine and worker, which lays tables out by itself.
const RESTART_INTERVAL: u8 = 16;
const BLOCK_BYTES: u32 = 4096;

/// What merges a job.
pub(super) trait Merger {
    /// Merges `job`, which has no more inputs than the engine.
    fn merge(&mut self, job: &Job) -> Result<Output, IpError>;
}

/// What a task came to.
pub(super) struct Staged {
    pub(super) merged: Merged,
    /// How large the task was.
    pub(super) shape: Shape,
}

/// How large a task was: the model makes times of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// Records and bytes of each input but the deepest.
    pub(super) upper: Vec<(u64, u64)>,
    /// Records and bytes of the deepest, if there is one.
    pub(super) lower: Option<(u64, u64)>,
    /// Records and bytes of the result.
    pub(super) made: (u64, u64),
}

/// Merges `task` by an engine with so many inputs. Without `stages`, more inputs are refused.
pub(super) fn run(
    task: &EngineTask,
    inputs: usize,
    stages: bool,
    merger: &mut dyn Merger,
) -> Result<Staged, EngineError> {
    let given = task.inputs.len();
    if given > inputs && (!stages || inputs < 2) {
        let reason = format!("it has {given} inputs, the engine {inputs}");
        return Err(EngineError::Unfit(reason));
    }
    let image = |chain: &Vec<Vec<u8>>| {
        let tables = chain.iter().map(|file| table_of(file.clone()));
        tables.collect::<Result<Vec<TableImage>, IpError>>()
    };
    let images: Result<Vec<_>, _> = task.inputs.iter().map(image).collect();
    let mut images = images.map_err(refusal)?;
    let lower = if task.has_lower { images.pop() } else { None };
    let mut shape = Shape {
        upper: images.iter().map(|chain| (0, bytes_of(chain))).collect(),
        lower: lower.as_ref().map(|chain| (0, bytes_of(chain))),
        made: (0, 0),
    };
    let (merged, counted) = run_plan(task, images, lower, inputs, merger).map_err(refusal)?;
    shape.made = (counted.records_out, counted.bytes_out);
    let read = counted.records_out + merged.shadowed + merged.dead_deletions;
    shape.spread(read);
    Ok(Staged { merged, shape })
}

fn run_plan(
    task: &EngineTask,
    upper: Vec<Vec<TableImage>>,
    lower: Option<Vec<TableImage>>,
    inputs: usize,
    merger: &mut dyn Merger,
) -> Result<(Merged, Counters), IpError> {
    let plan = plan(upper.len(), lower.is_some(), inputs);
    let mut upper: Vec<Option<Vec<TableImage>>> = upper.into_iter().map(Some).collect();
    let mut lower = lower;
    let mut staged: Vec<Option<Vec<TableImage>>> = Vec::new();
    let mut merged = Merged::default();
    let mut counted = Counters::default();
    for stage in &plan {
        let chains = stage.inputs.iter().map(|source| match *source {
            Source::Upper(at) => upper[at].take(),
            Source::Staged(at) => staged[at].take(),
            Source::Lower => lower.take(),
        });
        let job = Job {
            inputs: chains.flatten().collect(),
            settings: Settings {
                smallest_snapshot: task.smallest_snapshot.min(MAX_SEQUENCE),
                bottom: task.drops_deletions && !stage.to_memory,
                block_bytes: BLOCK_BYTES,
                restart_interval: RESTART_INTERVAL,
            },
        };
        let output = merger.merge(&job)?;
        merged.shadowed += output.counters.shadowed;
        merged.dead_deletions += output.counters.vanished;
        let blocks = output.blocks.iter().map(|block| block.handle).collect();
        if stage.to_memory {
            let bytes = output.bytes;
            staged.push(Some(vec![TableImage { bytes, blocks }]));
        } else {
            (merged.bytes, merged.blocks) = (output.bytes, blocks);
            counted = output.counters;
        }
    }
    Ok((merged, counted))
}

fn bytes_of(chain: &[TableImage]) -> u64 {
    chain.iter().map(|table| table.bytes.len() as u64).sum()
}

impl Shape {
    /// Spreads `records` over the inputs by their bytes.
    fn spread(&mut self, records: u64) {
        let inputs = || self.upper.iter().chain(&self.lower);
        let all: u64 = inputs().map(|(_, bytes)| bytes).sum();
        let share = |bytes: u64| {
            let records = u128::from(records) * u128::from(bytes) / u128::from(all.max(1));
            (records as u64).max(1)
        };
        for (records, bytes) in self.upper.iter_mut().chain(&mut self.lower) {
            *records = share(*bytes);
        }
    }
}
