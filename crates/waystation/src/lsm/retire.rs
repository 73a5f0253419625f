//! Retirement by proof: a grave goes once nothing is left that it hides.
//!
//! A table may hold what a deletion at `d` hides iff its keys go round the grave's and it has versions below `d` and
//! was not purged through `d` (every merge leaves out what graves hide from all readers, and notes how far it knew
//! them); or, if the deletion had a date, through the number at which it was dug. Who reads through an older version of the tree reads an older ground as well, so only the newest counts.

use super::table::TableMeta;
use super::version::{LEVELS, UserRange, Version};
use crate::cemetery::Cut;
use crate::cemetery::ground::Ground;
use crate::cemetery::row::Grave;

/// What may need graves besides tables.
pub(crate) struct Needs<'a> {
    /// Memtables hold writes from this sequence number on.
    pub(crate) memtables_from: u64,
    /// Whether anything from the first key (included) to the second (excluded) with a sequence number below the last
    /// one is on its way to the tree.
    pub(crate) upper: &'a IsOnItsWay<'a>,
}

/// Answers whether anything in a range of keys, below a sequence number, is on its way to the tree.
type IsOnItsWay<'a> = dyn Fn(&[u8], Option<&[u8]>, u64) -> bool + 'a;

/// Whether `table` may hold something below `sequence` that was not purged through `number`.
fn may_hold(table: &TableMeta, sequence: u64, number: u64) -> bool {
    table
        .facts()
        .is_none_or(|facts| facts.smallest_sequence < sequence && facts.purged_through < number)
}

/// The ground without the graves that nothing in `version` needs; `None` if all are needed.
pub(crate) fn retire(ground: &Ground, version: &Version, needs: &Needs<'_>) -> Option<Ground> {
    let mut runs = Runs::new(version, ground.last_number());
    let is_needed_in_memory = |sequence| sequence >= needs.memtables_from;
    let is_kept: Vec<bool> = ground
        .points()
        .iter()
        .map(|grave| is_needed_in_memory(grave.sequence) || runs.need(&grave))
        .collect();
    let keeps_range = |start: &[u8], end: Option<&[u8]>, cut: &Cut| {
        is_needed_in_memory(cut.below)
            || range_is_needed(version, start, end, cut.below)
            || (needs.upper)(start, end, cut.below)
    };
    let keeps_all_of = |(start, end, cuts): (&[u8], Option<&[u8]>, &[Cut])| {
        cuts.iter().all(|cut| keeps_range(start, end, cut))
    };
    // Mostly all are needed: then nothing is copied.
    if is_kept.iter().all(|is_kept| *is_kept) && ground.ranges().iter().all(keeps_all_of) {
        return None;
    }
    let mut is_kept = is_kept.into_iter();
    let keeps_point = |_: &Grave<'_>| is_kept.next().unwrap_or(true);
    Some(ground.retain(keeps_point, keeps_range))
}

/// Whether a table may hold a version below `sequence` of a key from `start` to `end`.
fn range_is_needed(version: &Version, start: &[u8], end: Option<&[u8]>, sequence: u64) -> bool {
    let range = UserRange {
        smallest: Some(start),
        largest: end,
    };
    let level0 = version.level(0).iter();
    let mut level0 = level0.filter(|table| range.overlaps_table(table));
    level0.any(|table| may_hold(table, sequence, sequence))
        || (1..LEVELS).any(|level| {
            let tables = version.overlapping(level, &range);
            tables
                .iter()
                .any(|table| may_hold(table, sequence, sequence))
        })
}

/// The tables that may hold anything a grave hides, as sorted runs, walked along with the graves.
struct Runs<'v> {
    runs: Vec<(Vec<&'v TableMeta>, usize)>,
}

impl<'v> Runs<'v> {
    fn new(version: &'v Version, through: u64) -> Self {
        let mut runs = Vec::new();
        for level in 0..LEVELS {
            let tables = version.level(level).iter().map(|table| &**table);
            let some: Vec<_> = tables
                .filter(|table| may_hold(table, through, through))
                .collect();
            if level == 0 {
                runs.extend(some.into_iter().map(|table| (vec![table], 0)));
            } else if !some.is_empty() {
                runs.push((some, 0));
            }
        }
        Self { runs }
    }

    /// Whether a table may hold what `grave` hides. Graves come in the order of their keys.
    fn need(&mut self, grave: &Grave<'_>) -> bool {
        let key = grave.key;
        let mut is_needed = false;
        for (tables, at) in &mut self.runs {
            while tables
                .get(*at)
                .is_some_and(|it| it.largest_user_key() < key)
            {
                *at += 1;
            }
            let here = tables[*at..].iter();
            // Two neighbours may share a key.
            is_needed |= here
                .take_while(|it| it.smallest_user_key() <= key)
                .any(|it| may_hold(it, grave.sequence, grave.other));
        }
        is_needed
    }
}
