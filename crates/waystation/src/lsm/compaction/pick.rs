//! What to do next: a pure function of the tree's shape.
//!
//! In this order:
//! 1. tables that hold nothing but deletions of nothing, or nothing but what graves hide, are dropped unread;
//! 2. the level that is most over its target gives something to the next one: level 0 by count of tables (each
//!    one is another place where every read has to look) or bytes, the others by bytes. Tables that overlap
//!    nothing below sink as they are; else the table with the least bytes below per own byte is merged, which
//!    moves the most data down per byte rewritten (no compaction pointer
//!    has to be remembered, and the worst table waits, not the next one);
//! 3. when all levels are within their targets, tables of which graves hide much are purged: written anew where they
//!    are (in an idle database, less is much; what is overdue comes first of all); and tables that are mostly deletions, as
//!    LevelDB writes them, are merged down, so that a mass delete does not stay in the way of scans for long;
//! 4. for the sake of readers, who have to look into each table of level 0 and into each level, more is merged
//!    down: when no thread writes and no reader waits for storage, what overlaps little for what it holds in a level that is due
//!    soon (it would have to be merged later at up to the levels' fan-out, so no more is rewritten on the whole); and at any
//!    time, what readers have paid for by looking into several places (LevelDB's compactions for seeks).
//!
//! When level 0 is the most due, but has to wait for jobs on level 1, nothing new is started from level 1: level
//! 0 would wait forever for a pause between them. (Level 0 does not come first always: level 1 would grow, and
//! with it the cost of merging level 0 into it.)

use super::choice::{Choice, Discard, Move};
use super::expand::{self, Inputs};
use super::hidden::Burden;
use super::job::{Grandparent, Job, JobInput, OutputLayout, OutputLimits};
use super::{Hidden, Running, Shape};
use crate::lsm::version::{LEVELS, UserRange, Version};
use crate::sst::{TableFacts, TableMeta};
use crate::sync::Arc;

/// The level nothing sinks out of.
const BOTTOM: usize = LEVELS - 1;

/// At least this many deletions make a table worth merging for their sake.
const MANY_DELETIONS: u64 = 1_000;

/// A table is purged if graves lie over one of so many of its entries; and in an idle database.
const PURGE_SHARE: u64 = 2;
const PURGE_SHARE_WHEN_IDLE: u64 = 8;

/// A level below level 1 is soon due if it holds at least such a part of its target.
const SOON_DUE_PART: u64 = 4;

/// In an idle database tables are merged down if that rewrites at most so many bytes of the next level for each of theirs.
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
    /// What the database is busy with.
    pub traffic: Traffic,
    /// Bytes that may be merged because of what readers paid for looking into several places.
    pub seek_credit_bytes: u64,
    /// What graves hide from all readers.
    pub hidden: &'a Hidden,
}

/// What a database is busy with: merges that are not due wait for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Threads write.
    Writes,
    /// No thread wrote for a while, and readers wait for storage.
    Reads,
    /// Neither.
    None,
}

impl Traffic {
    /// Whether no thread wrote for a while.
    fn is_idle(self) -> bool {
        self != Self::Writes
    }
}

/// The next thing worth doing.
pub(crate) fn pick(context: &Context<'_>) -> Choice {
    if let Some(choice) = pick_droppable(context) {
        return choice;
    }
    if context.hidden.overdue > 0
        && let Some(choice) = pick_purge(context, &|burden, _| burden.is_overdue)
    {
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
            _ => pick_sorted(context, level),
        };
        match choice {
            Choice::Nothing => level1_reserved |= level == 0,
            something => return something,
        }
    }
    if let Some(choice) = pick_purge(context, &|burden, table| {
        let share = if context.traffic.is_idle() {
            PURGE_SHARE_WHEN_IDLE
        } else {
            PURGE_SHARE
        };
        let entries = table.facts().map_or(0, |facts| facts.entries);
        let is_much = burden.points > 0 && burden.points * share >= entries;
        is_much || (context.traffic.is_idle() && burden.ranges)
    }) {
        return choice;
    }
    match pick_deletions(context) {
        Choice::Nothing => pick_for_readers(context),
        choice => choice,
    }
}

/// A merge that leaves out what graves hide in a table that `is_due`. Below level 0 the table is written anew where it
/// is, and level 0 is merged down, as the order of its tables is that of their numbers.
fn pick_purge(
    context: &Context<'_>,
    is_due: &dyn Fn(&Burden, &TableMeta) -> bool,
) -> Option<Choice> {
    if context.hidden.graves.is_empty() {
        return None;
    }
    let may_hold = |table: &TableMeta| {
        let through = context.hidden.through;
        let is_stale =
            |facts: TableFacts| facts.purged_through < through && facts.smallest_sequence < through;
        !table.facts.are_unread() && table.facts().is_none_or(is_stale)
    };
    for (level, table) in context.version.tables() {
        if context.running.has_table(table.number)
            || !may_hold(table)
            || !is_due(&context.hidden.burden(table), table)
        {
            continue;
        }
        let inputs = if level == 0 {
            expand::with_next_level(context.version, context.shape, level, table)
        } else {
            in_place(context.version, level, table)
        };
        if !inputs.conflicts(context.running) {
            return Some(Choice::Merge(describe(context, &inputs)));
        }
    }
    None
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

/// What `level` (1 to 5) should give to the next one.
fn pick_sorted(context: &Context<'_>, level: usize) -> Choice {
    let candidates = candidates(context, level);
    let moved = pick_moves(context, level, &candidates);
    if !moved.is_empty() {
        return Choice::Move(Move {
            from: level,
            to: level + 1,
            tables: moved,
        });
    }
    for candidate in candidates {
        let inputs =
            expand::with_next_level(context.version, context.shape, level, candidate.table);
        if !inputs.conflicts(context.running) {
            return Choice::Merge(describe(context, &inputs));
        }
    }
    Choice::Nothing
}

/// A table that might be merged down.
struct Candidate<'v> {
    table: &'v Arc<TableMeta>,
    /// Bytes of the next level that this would rewrite for 1024 of its own.
    cost: u64,
}

/// The tables of `level` that stay, the cheapest first.
fn candidates<'v>(context: &Context<'v>, level: usize) -> Vec<Candidate<'v>> {
    let mut candidates: Vec<_> = staying(context, level)
        .into_iter()
        .map(|table| {
            let rewritten = (context.version).bytes_overlapping(level + 1, &UserRange::of(table));
            let cost = rewritten.saturating_mul(1024) / table.file_bytes.max(1);
            Candidate { table, cost }
        })
        .collect();
    candidates.sort_by_key(|candidate| candidate.cost);
    candidates
}

/// Tables of `level` that can sink as they are, as many as bring the level back to its target.
fn pick_moves(
    context: &Context<'_>,
    level: usize,
    candidates: &[Candidate<'_>],
) -> Vec<Arc<TableMeta>> {
    let held: u64 = candidates
        .iter()
        .map(|candidate| candidate.table.file_bytes)
        .sum();
    let mut excess = held.saturating_sub(context.shape.target_bytes(level));
    let mut tables = Vec::new();
    for &Candidate { table, cost } in candidates {
        if cost > 0 || excess == 0 {
            break;
        }
        let inputs = expand::with_next_level(context.version, context.shape, level, table);
        let alone = inputs.upper.len() == 1 && inputs.lower.is_empty();
        if alone && may_move(context, &inputs) && !inputs.conflicts(context.running) {
            tables.push(Arc::clone(table));
            excess = excess.saturating_sub(table.file_bytes);
        }
    }
    tables
}

/// Whether the inputs may sink as they are: nothing to merge with, and little to merge with later.
fn may_move(context: &Context<'_>, inputs: &Inputs<'_>) -> bool {
    if !inputs.lower.is_empty() {
        return false;
    }
    let later_bytes = (context.version).bytes_overlapping(inputs.output_level + 1, &inputs.range());
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

/// Tables with nothing but deletions which delete nothing, as no deeper table overlaps them, and tables with
/// nothing but what graves hide.
fn pick_droppable(context: &Context<'_>) -> Option<Choice> {
    let droppable = |level: usize, table: &TableMeta| {
        let Some(facts) = table.facts() else {
            return false;
        };
        facts.deletions == facts.entries
            && facts.largest_sequence <= context.smallest_snapshot
            && !context.running.has_table(table.number)
            && nothing_deeper(context.version, level, &UserRange::of(table))
            && expand::same_level(context.version, level, UserRange::of(table)).len() == 1
    };
    let hidden = |table: &TableMeta| {
        context.hidden.hides_all_of(table) && !context.running.has_table(table.number)
    };
    (0..LEVELS).find_map(|level| {
        let tables = context.version.level(level).iter();
        let tables: Vec<_> = tables
            .filter(|table| droppable(level, table) || hidden(table))
            .cloned()
            .collect();
        (!tables.is_empty()).then_some(Choice::Drop(Discard { level, tables }))
    })
}

fn nothing_deeper(version: &Version, level: usize, range: &UserRange<'_>) -> bool {
    (level + 1..LEVELS).all(|deeper| !version.overlaps(deeper, range))
}

/// A step towards having nothing in any table that graves hide from all readers, whatever it costs, or nothing. `None`
/// while running jobs stand in the way.
pub(crate) fn pick_burdened(context: &Context<'_>) -> Option<Choice> {
    if let Some(choice) = pick_droppable(context) {
        return Some(choice);
    }
    let is_burdened = |(_, table): &(usize, &Arc<TableMeta>)| {
        let burden = context.hidden.burden(table);
        burden.points > 0 || burden.ranges
    };
    if !context.version.tables().any(|it| is_burdened(&it)) {
        return Some(Choice::Nothing);
    }
    pick_purge(context, &|burden, _| burden.points > 0 || burden.ranges)
}

/// A merge for the sake of a table that is mostly deletions.
fn pick_deletions(context: &Context<'_>) -> Choice {
    for level in 1..LEVELS {
        for table in context.version.level(level) {
            if !is_mostly_deletions(table) || context.running.has_table(table.number) {
                continue;
            }
            let is_lowest = nothing_deeper(context.version, level, &UserRange::of(table));
            let inputs = if is_lowest {
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

/// Merges that are not due, but leave readers fewer places to look into.
fn pick_for_readers(context: &Context<'_>) -> Choice {
    let worth_it = |inputs: &Inputs<'_>| {
        let (own, rewritten) = (
            expand::sum_bytes(&inputs.upper),
            expand::sum_bytes(&inputs.lower),
        );
        let cheap = context.traffic == Traffic::None
            && is_soon_due(context, inputs.level)
            && rewritten <= own.saturating_mul(REST_BYTES_PER_BYTE);
        let paid_for = inputs.bytes() <= context.seek_credit_bytes;
        (cheap || paid_for) && !inputs.conflicts(context.running)
    };
    let level0 = context.version.level(0).last().map(|seed| (0, seed));
    // Nothing is merged down into an empty level: that would make no place less.
    let levels = (1..BOTTOM).filter(|&level| context.version.level_bytes(level + 1) > 0);
    let deeper = levels.flat_map(|level| {
        let candidates = candidates(context, level).into_iter();
        candidates.map(move |candidate| (level, candidate.table))
    });
    level0
        .into_iter()
        .chain(deeper)
        .map(|(level, seed)| expand::with_next_level(context.version, context.shape, level, seed))
        .find(worth_it)
        .map_or(Choice::Nothing, |inputs| {
            if inputs.upper.len() == 1 && may_move(context, &inputs) {
                as_move(&inputs)
            } else {
                Choice::Merge(describe(context, &inputs))
            }
        })
}

/// Whether `level` will give something to the next one before long. What settled on its own far down may never have to.
fn is_soon_due(context: &Context<'_>, level: usize) -> bool {
    let bytes = context.version.level_bytes(level);
    level <= 1 || bytes.saturating_mul(SOON_DUE_PART) >= context.shape.target_bytes(level)
}

fn is_mostly_deletions(table: &TableMeta) -> bool {
    table.facts().is_some_and(|facts| {
        facts.deletions >= MANY_DELETIONS && facts.deletions * 2 >= facts.entries
    })
}

fn all_below(table: &TableMeta, snapshot: u64) -> bool {
    table
        .facts()
        .is_some_and(|facts| facts.largest_sequence <= snapshot)
}

fn in_place<'v>(version: &'v Version, level: usize, table: &TableMeta) -> Inputs<'v> {
    Inputs {
        order: version.order(),
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
    let order = context.version.order();
    let is_meant =
        |table: &&Arc<TableMeta>| table.number <= newest && range.overlaps_table(order, table);
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

/// A step towards having nothing that graves hide among the keys of `range` in `level`, and no deletions where nothing
/// deeper has such keys: a merge that stays in the level, or nothing. `None` while running jobs stand in the way.
pub(crate) fn pick_clean(
    context: &Context<'_>,
    level: usize,
    range: &UserRange<'_>,
) -> Option<Choice> {
    if level == 0 {
        return Some(Choice::Nothing);
    }
    let is_due = |table: &&Arc<TableMeta>| {
        let burden = context.hidden.burden(table);
        let has_deletions = table.facts().is_some_and(|facts| facts.deletions > 0)
            && all_below(table, context.smallest_snapshot)
            && nothing_deeper(context.version, level, &UserRange::of(table));
        has_deletions || burden.points > 0 || burden.ranges
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
        inputs: levels,
        from: None,
        output_level: inputs.output_level,
        smallest_snapshot: context.smallest_snapshot,
        deeper: ranges_from(context.version, inputs.output_level + 1, &range),
        hidden: context.hidden.within(&range),
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
    let order = version.order();
    let level0 = version
        .level(0)
        .iter()
        .filter(|table| first == 0 && range.overlaps_table(order, table));
    let sorted = (first.max(1)..LEVELS).flat_map(|level| version.overlapping(level, range));
    let mut all: Vec<UserRange<'_>> = level0
        .chain(sorted)
        .map(|table| UserRange::of(table))
        .collect();
    all.sort_by(|a, b| {
        let (a, b) = (
            a.smallest.unwrap_or_default(),
            b.smallest.unwrap_or_default(),
        );
        order.compare(a, b)
    });
    let mut joined: Vec<UserRange<'_>> = Vec::new();
    for next in all {
        match joined.last_mut() {
            Some(last) if last.overlaps(order, &next) => *last = last.union(order, next),
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
