//! From some spill files to others: merged when there are many, written anew without what nothing needs, and split by
//! dates.
//!
//! None of this changes what graves hide. So it runs beside everything else, on spill files as they are, and only its
//! result is put in their place, if they are still there.

use super::writer::SpillWriter;
use super::{GraveKind, SpillDirectory, SpillFile, SpillLabel, SpilledGraves};
use crate::cemetery::sorted::Grave;
use crate::error::{Error, Result};
use crate::sst::{InternalIterator, MergingIterator};
use crate::sync::Arc;
use waystation_format::key;
use waystation_format::order::Order;

/// So many spill files whose graves count are let be: a reader looks into each of them.
const COUNTING_MAX: usize = 4;
/// And so many with dates, which no reader looks at before these.
const DATED_MAX: usize = 8;
/// How many graves pass between two questions whether to give up.
const CANCEL_INTERVAL: u64 = 4096;

/// The next work on spill files.
#[derive(Debug)]
pub(crate) enum SpillTask {
    /// To make one of them.
    Merge(Vec<Arc<SpillFile>>),
    /// To part dates that are past at this time from the others.
    Split(Arc<SpillFile>, u64),
}

impl SpillTask {
    /// The spill files it is done to.
    pub(crate) fn inputs(&self) -> &[Arc<SpillFile>] {
        match self {
            Self::Merge(inputs) => inputs,
            Self::Split(input, _) => std::slice::from_ref(input),
        }
    }
}

/// The best next work on `spilled`, if there is any: `is_due` says whether the dates of one that are past at `time` are
/// to be parted from the others, and `is_worn` whether much of one is needed no longer.
pub(crate) fn choose(
    spilled: &SpilledGraves,
    time: u64,
    is_due: impl Fn(&SpillLabel) -> bool,
    is_worn: impl Fn(&SpillFile) -> bool,
) -> Option<SpillTask> {
    let is_mixed = |label: &SpillLabel| label.earliest() <= time && label.latest() > time;
    let mut dated = spilled.iter().filter(|it| !it.label().counts());
    if let Some(due) = dated.find(|it| is_mixed(it.label()) && is_due(it.label())) {
        return Some(SpillTask::Split(Arc::clone(due), time));
    }
    if let Some(worn) = spilled.counting().find(|it| is_worn(it)) {
        return Some(SpillTask::Merge(vec![Arc::clone(worn)]));
    }
    let counting: Vec<_> = spilled.counting().cloned().collect();
    let dated = spilled.iter().filter(|it| !it.label().counts());
    let dated: Vec<_> = dated.cloned().collect();
    let merged = together(&counting, COUNTING_MAX).or_else(|| together(&dated, DATED_MAX))?;
    Some(SpillTask::Merge(merged.to_vec()))
}

/// Which of `spilled`, the oldest first, are to be merged if there are more than `most`: the newest ones as far back as
/// one is not larger than all newer ones together; or else the two neighbours that take the fewest bytes.
fn together(spilled: &[Arc<SpillFile>], most: usize) -> Option<&[Arc<SpillFile>]> {
    if spilled.len() <= most {
        return None;
    }
    let bytes = |spilled: &[Arc<SpillFile>]| -> u64 {
        spilled.iter().map(|it| it.label().file_bytes).sum()
    };
    let is_outgrown = |at: &usize| bytes(&spilled[*at..=*at]) <= bytes(&spilled[at + 1..]);
    if let Some(first) = (0..spilled.len() - 1).find(is_outgrown) {
        return Some(&spilled[first..]);
    }
    let pairs = (0..spilled.len() - 1).map(|at| &spilled[at..at + 2]);
    pairs.min_by_key(|pair| bytes(pair))
}

/// How to go about it.
pub(crate) struct SpillRewrite<'r> {
    pub(crate) site: &'r SpillDirectory,
    /// Gives a number that no spill file has.
    pub(crate) new_number: &'r dyn Fn() -> u64,
    /// All who read are at this snapshot or later.
    pub(crate) oldest_snapshot: u64,
    /// Whether a grave that counts is needed. They come in the order of their keys.
    pub(crate) is_needed: &'r mut dyn FnMut(&Grave<'_>) -> bool,
    /// Whether to give up.
    pub(crate) is_cancelled: &'r dyn Fn() -> bool,
}

impl SpillRewrite<'_> {
    /// Does it; the labels of what came of it, which no reader knows yet.
    pub(crate) fn run(&mut self, task: &SpillTask) -> Result<Vec<SpillLabel>> {
        let kind = match task.inputs().first() {
            Some(input) if !input.label().counts() => GraveKind::Dated,
            _ => GraveKind::Counting,
        };
        let mut outputs = Rewritten {
            site: self.site,
            new_number: self.new_number,
            kind,
            writers: [None, None],
        };
        match self.pass(task, kind, &mut outputs) {
            Ok(()) => outputs.finish(),
            Err(error) => {
                outputs.abandon();
                Err(error)
            }
        }
    }

    /// Passes the remaining graves to `outputs`.
    fn pass(
        &mut self,
        task: &SpillTask,
        kind: GraveKind,
        outputs: &mut Rewritten<'_>,
    ) -> Result<()> {
        let inputs = task.inputs();
        let Some(any) = inputs.first() else {
            return Ok(());
        };
        // Of spill files that were promoted at different numbers the last counts: tables are asked for more than they
        // need be.
        let promoted = inputs
            .iter()
            .map(|it| it.label().promoted_through)
            .max()
            .unwrap_or(0);
        let until = match task {
            SpillTask::Split(_, time) => *time,
            SpillTask::Merge(_) => 0,
        };
        let cursors = inputs.iter().map(|it| it.scan()).collect();
        let mut merged = MergingIterator::new(cursors, &Order::Bytewise);
        merged.seek_to_first()?;
        let (mut user_key, mut of_key) = (Vec::new(), Vec::new());
        let mut passed = 0_u64;
        while merged.valid() {
            user_key.clear();
            user_key.extend_from_slice(key::user_key(merged.key()));
            while merged.valid() && key::user_key(merged.key()) == user_key {
                if passed.is_multiple_of(CANCEL_INTERVAL) && (self.is_cancelled)() {
                    return Err(Error::Closed("closed"));
                }
                passed += 1;
                let (grave, is_dated) = any.grave(&merged)?;
                let number = if is_dated && kind == GraveKind::Counting {
                    promoted.max(grave.sequence)
                } else {
                    grave.number
                };
                of_key.push((grave.sequence, number));
                merged.next()?;
            }
            prune(&mut of_key, self.oldest_snapshot);
            for &(sequence, number) in of_key.iter().rev() {
                let grave = Grave {
                    key: &user_key,
                    sequence,
                    number,
                };
                if kind == GraveKind::Dated {
                    outputs.add(usize::from(number > until), &grave)?;
                } else if (self.is_needed)(&grave) {
                    outputs.add(0, &grave)?;
                }
            }
            of_key.clear();
        }
        Ok(())
    }
}

/// Leaves of the graves of a key, ascending then, the ones that a reader at `oldest_snapshot` or later may need. (A caller that
/// is past a grave with a date is past the put before it, and needs nothing below.)
fn prune(of_key: &mut Vec<(u64, u64)>, oldest_snapshot: u64) {
    if of_key.len() < 2 {
        return;
    }
    of_key.sort_unstable();
    of_key.dedup_by_key(|it| it.0);
    let behind = of_key.partition_point(|it| it.0 <= oldest_snapshot);
    of_key.drain(..behind.saturating_sub(1));
}

/// The spill files that are being written.
struct Rewritten<'r> {
    site: &'r SpillDirectory,
    new_number: &'r dyn Fn() -> u64,
    kind: GraveKind,
    writers: [Option<SpillWriter>; 2],
}

impl Rewritten<'_> {
    fn add(&mut self, which: usize, grave: &Grave<'_>) -> Result<()> {
        let writer = match &mut self.writers[which] {
            Some(writer) => writer,
            none => none.insert(SpillWriter::create(
                self.site,
                (self.new_number)(),
                self.kind,
            )?),
        };
        writer.add(grave)
    }

    fn finish(&mut self) -> Result<Vec<SpillLabel>> {
        let mut labels: Vec<SpillLabel> = Vec::new();
        for which in 0..self.writers.len() {
            let Some(writer) = self.writers[which].take() else {
                continue;
            };
            match writer.finish() {
                Ok(label) => labels.push(label),
                Err(error) => {
                    self.abandon();
                    for label in labels {
                        self.site.discard(label.number);
                    }
                    return Err(error);
                }
            }
        }
        Ok(labels)
    }

    fn abandon(&mut self) {
        for writer in self.writers.iter_mut().filter_map(Option::take) {
            writer.abandon();
        }
    }
}
