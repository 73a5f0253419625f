//! Retirement by proof: a grave goes once nothing is left that it hides.
//!
//! A table may hold what a deletion at `d` hides iff its keys go round the grave's and it has versions below `d` and
//! was not purged through `d` (every merge leaves out what graves hide from all readers, and notes how far it knew
//! them); or, if the deletion had a date, through the number at which it was promoted. Who reads through an older
//! version of the tree reads an older flushed graves as well, so only the newest counts. What a deletion hides may also
//! be in no table: [`Outside`].
//!
//! A spill file goes unread once no table needs any of its graves, for all that its label says. Which of them are
//! needed is looked at when it is written anew, which is worth it once the tables that need any lie over half of it.

use crate::cemetery::Cut;
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::sorted::Grave;
use crate::cemetery::spilled::SpillFile;
use crate::lsm::version::{LEVELS, UserRange, Version};
use crate::sst::TableMeta;

/// Which deletions may hide data that is in no table, by their sequence numbers.
pub(crate) struct Outside {
    /// Memtables hold writes from this sequence number on.
    pub(crate) memtables_from: u64,
    /// Deletions of keys between these numbers (both excluded) hide what readers find in indexes alone.
    pub(crate) indexes: Vec<(u64, u64)>,
}

impl Outside {
    /// Whether one of the deletions of keys from `first` to `last` (both included) may.
    pub(crate) fn needs(&self, first: u64, last: u64) -> bool {
        let meets = |&(after, before): &(u64, u64)| after < last && first < before;
        last >= self.memtables_from || self.indexes.iter().any(meets)
    }

    /// Whether one of those in `spill` may, for all that its label says.
    fn needs_of(&self, spill: &SpillFile) -> bool {
        let (first, last) = spill.label().sequences;
        self.needs(first, last)
    }
}

/// What may need graves besides tables.
pub(crate) struct Needs<'a> {
    pub(crate) outside: Outside,
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

/// The flushed graves without the graves that nothing in `version` needs; `None` if all are needed.
pub(crate) fn retire(
    flushed: &FlushedGraves,
    version: &Version,
    needs: &Needs<'_>,
) -> Option<FlushedGraves> {
    let mut runs = Runs::new(version, flushed.last_number());
    let outside = &needs.outside;
    let keeps_spill = |spill: &SpillFile| {
        !spill.label().counts()
            || outside.needs_of(spill)
            || tables_that_need(version, spill).next().is_some()
    };
    let is_kept: Vec<bool> = flushed
        .points()
        .iter()
        .map(|grave| outside.needs(grave.sequence, grave.sequence) || runs.need(&grave))
        .collect();
    let keeps_range = |start: &[u8], end: Option<&[u8]>, cut: &Cut| {
        cut.below >= outside.memtables_from
            || range_is_needed(version, start, end, cut.below)
            || (needs.upper)(start, end, cut.below)
    };
    let keeps_all_of = |(start, end, cuts): (&[u8], Option<&[u8]>, &[Cut])| {
        cuts.iter().all(|cut| keeps_range(start, end, cut))
    };
    // Mostly all are needed: then nothing is copied.
    if is_kept.iter().all(|is_kept| *is_kept)
        && flushed.ranges().iter().all(keeps_all_of)
        && flushed.spilled().iter().all(|it| keeps_spill(it))
    {
        return None;
    }
    let mut is_kept = is_kept.into_iter();
    let keeps_point = |_: &Grave<'_>| is_kept.next().unwrap_or(true);
    Some(flushed.retain(keeps_point, keeps_range, keeps_spill))
}

/// The tables that may hold what a grave of `spill` hides, for all that its label says.
fn tables_that_need<'v>(
    version: &'v Version,
    spill: &'v SpillFile,
) -> impl Iterator<Item = &'v TableMeta> {
    let label = spill.label();
    let (first, last) = (&label.first[..], &label.last[..]);
    let tables = version.tables().map(|(_, table)| &**table);
    tables.filter(move |it| {
        it.smallest_user_key() <= last
            && it.largest_user_key() >= first
            && may_hold(it, label.sequences.1, label.demands().1)
    })
}

/// Whether half of `spill` or more is needed by no table of `version`, and so should be left out; what it has may be
/// needed `outside` of them.
pub(crate) fn is_worn(spill: &SpillFile, version: &Version, outside: &Outside) -> bool {
    if outside.needs_of(spill) {
        return false;
    }
    let tables = tables_that_need(version, spill);
    let places = tables.map(|it| spill.place_of(it.smallest_user_key(), it.largest_user_key()));
    let mut places: Vec<_> = places.collect();
    places.sort_unstable_by_key(|it| it.start);
    let (mut needed, mut end) = (0, 0);
    for place in places {
        needed += place.end.saturating_sub(place.start.max(end));
        end = end.max(place.end);
    }
    needed <= spill.data_bytes() / 2
}

/// Whether a table may hold a version below `sequence` of a key from `start` to `end`.
fn range_is_needed(version: &Version, start: &[u8], end: Option<&[u8]>, sequence: u64) -> bool {
    let range = UserRange {
        smallest: Some(start),
        largest: end,
    };
    let level0 = version.level(0).iter();
    let mut level0 = level0.filter(|table| range.overlaps_table(version.order(), table));
    level0.any(|table| may_hold(table, sequence, sequence))
        || (1..LEVELS).any(|level| {
            let tables = version.overlapping(level, &range);
            tables
                .iter()
                .any(|table| may_hold(table, sequence, sequence))
        })
}

/// The tables that may hold anything a grave hides, as sorted runs, walked along with the graves.
pub(crate) struct Runs<'v> {
    runs: Vec<(Vec<&'v TableMeta>, usize)>,
}

impl<'v> Runs<'v> {
    /// Those of `version`, for graves that ask for tables purged through numbers up to `through`.
    pub(crate) fn new(version: &'v Version, through: u64) -> Self {
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
    pub(crate) fn need(&mut self, grave: &Grave<'_>) -> bool {
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
                .any(|it| may_hold(it, grave.sequence, grave.purge_through()));
        }
        is_needed
    }
}
