//! What to do next: a pure function of the tree's shape.
//!
//! In this order:
//! 1. tables that hold nothing but deletions of nothing are dropped unread;
//! 2. the level that is most over its target gives something to the next one: level 0 by count of tables (each
//!    one is another place where every read has to look) or bytes, the others by bytes. Tables that overlap
//!    nothing below sink as they are; else the table with the least bytes below per own byte is merged, which
//!    moves the most data down per byte rewritten (no compaction pointer
//!    has to be remembered, and the worst table waits, not the next one);
//! 3. when all levels are within their targets, tables that are mostly deletions are merged down, so that a
//!    mass delete does not stay in the way of scans for long;
//! 4. when nobody writes either, tables are merged down that overlap little for what they hold: every read
//!    has to look into each table of level 0 and into each level. What is merged at [`REST_BYTES_PER_BYTE`]
//!    would have to be merged later at up to the levels' fan-out, so no more is rewritten on the whole.
//!
//! When level 0 is the most due, but has to wait for jobs on level 1, nothing new is started from level 1: level
//! 0 would wait forever for a pause between them. (Level 0 does not come first always: level 1 would grow, and
//! with it the cost of merging level 0 into it.)

use super::choice::{Choice, Discard, Move};
use super::expand::{self, Inputs};
use super::job::{Grandparent, JOB_FORMAT, Job, JobInput, OutputLayout, OutputLimits};
use super::{Running, Shape};
use crate::lsm::table::TableMeta;
use crate::lsm::version::{LEVELS, UserRange, Version};
use crate::sync::Arc;

/// The level nothing sinks out of.
const BOTTOM: usize = LEVELS - 1;

/// At least this many deletions make a table worth merging for their sake.
const MANY_DELETIONS: u64 = 1_000;

/// The cost of a merge is counted in bytes of the next level for so many of the table's own.
const COST_UNIT: u64 = 1024;

/// At rest tables are merged down if that rewrites at most so many bytes of the next level for each of theirs.
const REST_BYTES_PER_BYTE: u64 = 4;

/// What a choice is made from.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// The newest version.
    pub version: &'a Version,
    /// How it should be shaped.
    pub shape: &'a Shape,
    /// How new tables are laid out.
    pub layout: OutputLayout,
    /// What runs already.
    pub running: &'a Running,
    /// The oldest sequence number that a reader may read at.
    pub smallest_snapshot: u64,
    /// Whether nobody wrote for a while.
    pub at_rest: bool,
}

/// The next thing worth doing.
pub(crate) fn pick(context: &Context<'_>) -> Choice {
    if let Some(choice) = pick_droppable(context) {
        return choice;
    }
    let mut due: Vec<(f64, usize)> = (0..BOTTOM)
        .filter_map(|level| due_score(context, level).map(|score| (score, level)))
        .collect();
    due.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut level1_reserved = false;
    for (_, level) in due {
        let choice = match level {
            0 => pick_level0(context),
            1 if level1_reserved => Choice::Nothing,
            _ => pick_sorted(context, level, u64::MAX, context.shape.target_bytes(level)),
        };
        match choice {
            Choice::Nothing => level1_reserved |= level == 0,
            something => return something,
        }
    }
    match pick_deletions(context) {
        Choice::Nothing if context.at_rest => pick_rest(context),
        choice => choice,
    }
}

/// How far `level` is over its target, if it is. Tables already on their way out do not count.
fn due_score(context: &Context<'_>, level: usize) -> Option<f64> {
    let staying = staying(context, level);
    let bytes: u64 = staying.iter().map(|table| table.file_bytes).sum();
    let by_bytes = ratio(bytes, context.shape.target_bytes(level.max(1)));
    if level > 0 {
        return (by_bytes > 1.0).then_some(by_bytes);
    }
    let by_count = ratio(staying.len() as u64, context.shape.level0_trigger as u64);
    (by_bytes > 1.0 || by_count >= 1.0).then_some(by_bytes.max(by_count))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "scores are compared, not accounted"
)]
fn ratio(value: u64, target: u64) -> f64 {
    value as f64 / target.max(1) as f64
}

fn staying<'a>(context: &Context<'a>, level: usize) -> Vec<&'a Arc<TableMeta>> {
    let tables = context.version.level(level).iter();
    tables
        .filter(|table| !context.running.has_table(table.number))
        .collect()
}

/// The oldest group of level 0 that nothing running stands in the way of.
fn pick_level0(context: &Context<'_>) -> Choice {
    for seed in context.version.level(0).iter().rev() {
        let inputs = expand::with_next_level(context.version, context.shape, 0, seed);
        if inputs.conflicts(context.running) {
            continue;
        }
        if inputs.upper.len() == 1 && may_move(context, &inputs) {
            return as_move(&inputs);
        }
        return Choice::Merge(describe(context, &inputs));
    }
    Choice::Nothing
}

/// What `level` (1 to 5), which should keep `kept_bytes`, should give to the next one; at most at `cost_max`.
fn pick_sorted(context: &Context<'_>, level: usize, cost_max: u64, kept_bytes: u64) -> Choice {
    let mut candidates: Vec<(u64, u64, &Arc<TableMeta>)> = staying(context, level)
        .into_iter()
        .map(|table| {
            let below = context
                .version
                .overlapping(level + 1, &UserRange::of(table));
            let cost: u64 = below.iter().map(|table| table.file_bytes).sum();
            (
                cost.saturating_mul(COST_UNIT) / table.file_bytes.max(1),
                table.file_bytes,
                table,
            )
        })
        .filter(|&(cost, ..)| cost <= cost_max)
        .collect();
    candidates.sort_by_key(|&(cost, ..)| cost);
    let moved = pick_moves(context, level, &candidates, kept_bytes);
    if !moved.is_empty() {
        return Choice::Move(Move {
            from: level,
            to: level + 1,
            tables: moved,
        });
    }
    for (.., seed) in candidates {
        let inputs = expand::with_next_level(context.version, context.shape, level, seed);
        if !inputs.conflicts(context.running) {
            return Choice::Merge(describe(context, &inputs));
        }
    }
    Choice::Nothing
}

/// Tables of `level` that can sink as they are, until the level has only `kept_bytes`.
fn pick_moves(
    context: &Context<'_>,
    level: usize,
    candidates: &[(u64, u64, &Arc<TableMeta>)],
    kept_bytes: u64,
) -> Vec<Arc<TableMeta>> {
    let held: u64 = candidates.iter().map(|&(_, bytes, _)| bytes).sum();
    let mut excess = held.saturating_sub(kept_bytes);
    let mut tables = Vec::new();
    for &(cost, bytes, table) in candidates {
        if cost > 0 || excess == 0 {
            break;
        }
        let inputs = expand::with_next_level(context.version, context.shape, level, table);
        let alone = inputs.upper.len() == 1 && inputs.lower.is_empty();
        if alone && may_move(context, &inputs) && !inputs.conflicts(context.running) {
            tables.push(Arc::clone(table));
            excess = excess.saturating_sub(bytes);
        }
    }
    tables
}

/// Whether the inputs may sink as they are: nothing to merge with, and little to merge with later.
fn may_move(context: &Context<'_>, inputs: &Inputs<'_>) -> bool {
    if !inputs.lower.is_empty() {
        return false;
    }
    let below = inputs.output_level + 1;
    if below >= LEVELS {
        return true;
    }
    let later = context.version.overlapping(below, &inputs.range());
    let later_bytes: u64 = later.iter().map(|table| table.file_bytes).sum();
    let allowed = context
        .shape
        .grandparent_bytes()
        .max(inputs.bytes() * context.shape.fan_out);
    later_bytes <= allowed
}

fn as_move(inputs: &Inputs<'_>) -> Choice {
    Choice::Move(Move {
        from: inputs.level,
        to: inputs.output_level,
        tables: inputs.upper.iter().map(|table| Arc::clone(table)).collect(),
    })
}

/// Tables with nothing but deletions which delete nothing, as no deeper table overlaps them.
fn pick_droppable(context: &Context<'_>) -> Option<Choice> {
    let droppable = |level: usize, table: &TableMeta| {
        let Some(facts) = table.facts else {
            return false;
        };
        facts.deletions == facts.entries
            && facts.largest_sequence <= context.smallest_snapshot
            && !context.running.has_table(table.number)
            && nothing_deeper(context.version, level, &UserRange::of(table))
            && expand::same_level(context.version, level, UserRange::of(table)).len() == 1
    };
    (0..LEVELS).find_map(|level| {
        let tables = context.version.level(level).iter();
        let tables: Vec<_> = tables
            .filter(|table| droppable(level, table))
            .cloned()
            .collect();
        (!tables.is_empty()).then_some(Choice::Drop(Discard { level, tables }))
    })
}

fn nothing_deeper(version: &Version, level: usize, range: &UserRange<'_>) -> bool {
    (level + 1..LEVELS).all(|deeper| !version.overlaps(deeper, range))
}

/// A merge for the sake of a table that is mostly deletions.
fn pick_deletions(context: &Context<'_>) -> Choice {
    for level in 1..LEVELS {
        for table in context.version.level(level) {
            if !is_mostly_deletions(table) || context.running.has_table(table.number) {
                continue;
            }
            let at_rest = nothing_deeper(context.version, level, &UserRange::of(table));
            let inputs = if at_rest {
                if !all_below(table, context.smallest_snapshot) {
                    continue;
                }
                in_place(context.version, level, table)
            } else {
                expand::with_next_level(context.version, context.shape, level, table)
            };
            if !inputs.conflicts(context.running) {
                return Choice::Merge(describe(context, &inputs));
            }
        }
    }
    Choice::Nothing
}

/// What is not due, but makes fewer places for readers to look into.
fn pick_rest(context: &Context<'_>) -> Choice {
    match pick_rest_level0(context) {
        Choice::Nothing => {}
        choice => return choice,
    }
    // Into an empty level nothing is moved: that would make no place less.
    let mut levels = (1..BOTTOM).filter(|&level| context.version.level_bytes(level + 1) > 0);
    levels
        .find_map(|level| {
            match pick_sorted(context, level, REST_BYTES_PER_BYTE * COST_UNIT, 0) {
                Choice::Nothing => None,
                choice => Some(choice),
            }
        })
        .unwrap_or(Choice::Nothing)
}

fn pick_rest_level0(context: &Context<'_>) -> Choice {
    let Some(seed) = context.version.level(0).last() else {
        return Choice::Nothing;
    };
    let inputs = expand::with_next_level(context.version, context.shape, 0, seed);
    let (own, rewritten) = (expand::sum_bytes(&inputs.upper), expand::sum_bytes(&inputs.lower));
    if rewritten > own.saturating_mul(REST_BYTES_PER_BYTE) || inputs.conflicts(context.running) {
        return Choice::Nothing;
    }
    if inputs.upper.len() == 1 && may_move(context, &inputs) {
        return as_move(&inputs);
    }
    Choice::Merge(describe(context, &inputs))
}

fn is_mostly_deletions(table: &TableMeta) -> bool {
    table.facts.is_some_and(|facts| {
        facts.deletions >= MANY_DELETIONS && facts.deletions * 2 >= facts.entries
    })
}

fn all_below(table: &TableMeta, snapshot: u64) -> bool {
    table
        .facts
        .is_some_and(|facts| facts.largest_sequence <= snapshot)
}

fn in_place<'v>(version: &'v Version, level: usize, table: &TableMeta) -> Inputs<'v> {
    Inputs {
        level,
        upper: expand::same_level(version, level, UserRange::of(table)),
        output_level: level,
        lower: Vec::new(),
    }
}

/// A step towards having all keys of `range` one level deeper than `level`, whatever the sizes say: a move, a
/// merge, or nothing if `level` has no such tables. Tables of level 0 with numbers above `newest` do not count.
/// `None` while running jobs stand in the way.
pub(crate) fn pick_range(
    context: &Context<'_>,
    level: usize,
    range: &UserRange<'_>,
    newest: u64,
) -> Option<Choice> {
    let is_meant = |table: &&Arc<TableMeta>| table.number <= newest && range.overlaps_table(table);
    let first = match level {
        0 => context.version.level(0).iter().rev().find(is_meant),
        _ => context.version.overlapping(level, range).first(),
    };
    let Some(seed) = first else {
        return Some(Choice::Nothing);
    };
    let inputs = expand::with_next_level(context.version, context.shape, level, seed);
    if inputs.conflicts(context.running) {
        return None;
    }
    if inputs.upper.len() == 1 && inputs.lower.is_empty() {
        return Some(as_move(&inputs));
    }
    Some(Choice::Merge(describe(context, &inputs)))
}

/// A step towards having no deletions among the keys of `range` in `level`, below which nothing has such keys:
/// a merge that stays in the level, or nothing. `None` while running jobs stand in the way.
pub(crate) fn pick_clean(
    context: &Context<'_>,
    level: usize,
    range: &UserRange<'_>,
) -> Option<Choice> {
    if level == 0 {
        return Some(Choice::Nothing);
    }
    let is_due = |table: &&Arc<TableMeta>| {
        table.facts.is_some_and(|facts| facts.deletions > 0)
            && all_below(table, context.smallest_snapshot)
            && nothing_deeper(context.version, level, &UserRange::of(table))
    };
    let tables = context.version.overlapping(level, range);
    let Some(seed) = tables.iter().find(is_due) else {
        return Some(Choice::Nothing);
    };
    let inputs = in_place(context.version, level, seed);
    (!inputs.conflicts(context.running)).then(|| Choice::Merge(describe(context, &inputs)))
}

/// The job that merges `inputs`.
fn describe(context: &Context<'_>, inputs: &Inputs<'_>) -> Job {
    let range = inputs.range();
    let own = |tables: &[&Arc<TableMeta>]| tables.iter().map(|table| (***table).clone()).collect();
    let mut levels = vec![JobInput {
        level: inputs.level,
        tables: own(&inputs.upper),
    }];
    if !inputs.lower.is_empty() {
        levels.push(JobInput {
            level: inputs.output_level,
            tables: own(&inputs.lower),
        });
    }
    Job {
        format: JOB_FORMAT,
        inputs: levels,
        output_level: inputs.output_level,
        smallest_snapshot: context.smallest_snapshot,
        deeper: ranges_from(context.version, inputs.output_level + 1, &range),
        grandparents: grandparents(context.version, inputs.output_level, &range),
        limits: OutputLimits {
            table_bytes: context.shape.table_bytes,
            grandparent_bytes: context.shape.grandparent_bytes(),
        },
        layout: context.layout,
    }
}

/// Where levels from `first` on may hold keys of `range`: sorted, disjoint.
pub(crate) fn ranges_from(
    version: &Version,
    first: usize,
    range: &UserRange<'_>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let level0 = version
        .level(0)
        .iter()
        .filter(|table| first == 0 && range.overlaps_table(table));
    let sorted = (first.max(1)..LEVELS).flat_map(|level| version.overlapping(level, range));
    let mut all: Vec<UserRange<'_>> = level0
        .chain(sorted)
        .map(|table| UserRange::of(table))
        .collect();
    all.sort_by_key(|range| range.smallest);
    let mut joined: Vec<UserRange<'_>> = Vec::new();
    for next in all {
        match joined.last_mut() {
            Some(last) if last.overlaps(&next) => *last = last.union(next),
            _ => joined.push(next),
        }
    }
    let own = |key: Option<&[u8]>| key.unwrap_or_default().to_vec();
    joined
        .into_iter()
        .map(|range| (own(range.smallest), own(range.largest)))
        .collect()
}

/// The tables of the level below `output_level` that `range` overlaps.
pub(crate) fn grandparents(
    version: &Version,
    output_level: usize,
    range: &UserRange<'_>,
) -> Vec<Grandparent> {
    if output_level + 1 >= LEVELS {
        return Vec::new();
    }
    version
        .overlapping(output_level + 1, range)
        .iter()
        .map(|table| Grandparent {
            largest: table.largest_user_key().to_vec(),
            bytes: table.file_bytes,
        })
        .collect()
}
