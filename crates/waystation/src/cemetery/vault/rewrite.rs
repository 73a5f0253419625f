//! From some vaults to others: merged when there are many, written anew without what nothing needs, and split by dates.
//!
//! None of this changes what graves hide. So it runs beside everything else, on vaults as they are, and only its result
//! is put in their place, if they are still there.

use super::writer::VaultWriter;
use super::{Kind, Label, Site, Vault, Vaults};
use crate::cemetery::row::Grave;
use crate::error::{Error, Result};
use crate::sst::{InternalIterator, MergingIterator};
use crate::sync::Arc;
use waystation_format::key;
use waystation_format::order::Order;

/// So many vaults whose graves count are let be: a reader looks into each of them.
const COUNTING_MAX: usize = 4;
/// And so many with dates, which nobody looks at before these.
const DATED_MAX: usize = 8;
/// How many graves pass between two questions whether to give up.
const CANCEL_INTERVAL: u64 = 4096;

/// What is to be done to vaults.
#[derive(Debug)]
pub(crate) enum Task {
    /// To make one of them.
    Merge(Vec<Arc<Vault>>),
    /// To part dates that are past at this time from the others.
    Split(Arc<Vault>, u64),
}

impl Task {
    /// The vaults it is done to.
    pub(crate) fn inputs(&self) -> &[Arc<Vault>] {
        match self {
            Self::Merge(inputs) => inputs,
            Self::Split(input, _) => std::slice::from_ref(input),
        }
    }
}

/// What is best done next to `vaults`, if anything: `is_due` says whether the dates of one that are past at `time` are to
/// be parted from the others, and `is_worn` whether much of one is needed no longer.
pub(crate) fn choose(
    vaults: &Vaults,
    time: u64,
    is_due: impl Fn(&Label) -> bool,
    is_worn: impl Fn(&Vault) -> bool,
) -> Option<Task> {
    let is_mixed = |label: &Label| label.earliest() <= time && label.latest() > time;
    let mut dated = vaults.iter().filter(|it| !it.label().counts());
    if let Some(due) = dated.find(|it| is_mixed(it.label()) && is_due(it.label())) {
        return Some(Task::Split(Arc::clone(due), time));
    }
    if let Some(worn) = vaults.counting().find(|it| is_worn(it)) {
        return Some(Task::Merge(vec![Arc::clone(worn)]));
    }
    let counting: Vec<_> = vaults.counting().cloned().collect();
    let dated = vaults.iter().filter(|it| !it.label().counts());
    let dated: Vec<_> = dated.cloned().collect();
    let merged = together(&counting, COUNTING_MAX).or_else(|| together(&dated, DATED_MAX))?;
    Some(Task::Merge(merged.to_vec()))
}

/// Which of `vaults`, the oldest first, are to be merged if there are more than `most`: the newest ones as far back as one
/// is not larger than all newer ones together; or else the two neighbours that take the fewest bytes.
fn together(vaults: &[Arc<Vault>], most: usize) -> Option<&[Arc<Vault>]> {
    if vaults.len() <= most {
        return None;
    }
    let bytes =
        |vaults: &[Arc<Vault>]| -> u64 { vaults.iter().map(|it| it.label().file_bytes).sum() };
    let is_outgrown = |at: &usize| bytes(&vaults[*at..=*at]) <= bytes(&vaults[at + 1..]);
    if let Some(first) = (0..vaults.len() - 1).find(is_outgrown) {
        return Some(&vaults[first..]);
    }
    let pairs = (0..vaults.len() - 1).map(|at| &vaults[at..at + 2]);
    pairs.min_by_key(|pair| bytes(pair))
}

/// How to go about it.
pub(crate) struct Rewrite<'r> {
    pub(crate) site: &'r Site,
    /// Gives a number that no vault has.
    pub(crate) new_number: &'r dyn Fn() -> u64,
    /// All who read are at this snapshot or later.
    pub(crate) oldest_snapshot: u64,
    /// Whether a grave that counts is needed. They come in the order of their keys.
    pub(crate) is_needed: &'r mut dyn FnMut(&Grave<'_>) -> bool,
    /// Whether to give up.
    pub(crate) is_cancelled: &'r dyn Fn() -> bool,
}

impl Rewrite<'_> {
    /// Does it; the labels of what came of it, of which nobody knows yet.
    pub(crate) fn run(&mut self, task: &Task) -> Result<Vec<Label>> {
        let kind = match task.inputs().first() {
            Some(input) if !input.label().counts() => Kind::Dated,
            _ => Kind::Counting,
        };
        let mut outputs = Outputs {
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

    /// Passes what is left of the graves to `outputs`.
    fn pass(&mut self, task: &Task, kind: Kind, outputs: &mut Outputs<'_>) -> Result<()> {
        let inputs = task.inputs();
        let Some(any) = inputs.first() else {
            return Ok(());
        };
        // Of vaults that were dug at different numbers the last counts: tables are asked for more than they need be.
        let dug = inputs.iter().map(|it| it.label().dug).max().unwrap_or(0);
        let until = match task {
            Task::Split(_, time) => *time,
            Task::Merge(_) => 0,
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
                let other = if is_dated && kind == Kind::Counting {
                    dug.max(grave.sequence)
                } else {
                    grave.other
                };
                of_key.push((grave.sequence, other));
                merged.next()?;
            }
            prune(&mut of_key, self.oldest_snapshot);
            for &(sequence, other) in of_key.iter().rev() {
                let grave = Grave {
                    key: &user_key,
                    sequence,
                    other,
                };
                if kind == Kind::Dated {
                    outputs.add(usize::from(other > until), &grave)?;
                } else if (self.is_needed)(&grave) {
                    outputs.add(0, &grave)?;
                }
            }
            of_key.clear();
        }
        Ok(())
    }
}

/// Leaves of the graves of a key, ascending then, those that a reader at `oldest_snapshot` or later may need. (Whoever is
/// past a grave with a date is past the put before it, and needs nothing below.)
fn prune(of_key: &mut Vec<(u64, u64)>, oldest_snapshot: u64) {
    if of_key.len() < 2 {
        return;
    }
    of_key.sort_unstable();
    of_key.dedup_by_key(|it| it.0);
    let behind = of_key.partition_point(|it| it.0 <= oldest_snapshot);
    of_key.drain(..behind.saturating_sub(1));
}

/// The vaults that are being written.
struct Outputs<'r> {
    site: &'r Site,
    new_number: &'r dyn Fn() -> u64,
    kind: Kind,
    writers: [Option<VaultWriter>; 2],
}

impl Outputs<'_> {
    fn add(&mut self, which: usize, grave: &Grave<'_>) -> Result<()> {
        let writer = match &mut self.writers[which] {
            Some(writer) => writer,
            none => none.insert(VaultWriter::create(
                self.site,
                (self.new_number)(),
                self.kind,
            )?),
        };
        writer.add(grave)
    }

    fn finish(&mut self) -> Result<Vec<Label>> {
        let mut labels: Vec<Label> = Vec::new();
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
