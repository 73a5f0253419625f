//! The merge of flushed graves with active ones, key by key, when a memtable is flushed.
//!
//! ```text
//!   counting --> key by key --> the graves that some reader can tell from the others
//!   dated    --> due graves are promoted: they count, and asks tables for more
//!   active   --> sorted first, in their places
//! ```

use super::FlushedGraves;
use crate::cemetery::active::ActiveGraves;
use crate::cemetery::points::{DatedInOrder, DatedPoints, InOrder, PointsInOrder};
use crate::cemetery::sorted::{Grave, SortedGraves};
use crate::cemetery::{Cut, prune};
use std::iter::Peekable;

impl FlushedGraves {
    /// These graves and the `active` ones, which are the only others up to `through`. Graves that no reader at
    /// `oldest_snapshot` or later can tell from others are left out; all readers are past `time`.
    ///
    /// A promoted grave counts for tables that are purged through `through` from now on. If some were purged so far
    /// already, as `purged_through` tells, they have not heard of it: then nothing is promoted, and due graves hide
    /// by its date until a later flush.
    pub(crate) fn with<'p>(
        &self,
        active_graves: impl IntoIterator<Item = &'p ActiveGraves>,
        through: u64,
        oldest_snapshot: u64,
        time: u64,
        purged_through: u64,
    ) -> Self {
        let mut ranges = self.ranges.clone();
        let mut new = NewGraves::default();
        for graves in active_graves {
            graves.with_ranges(|fresh| {
                for (start, end, cuts) in fresh.iter() {
                    for cut in cuts {
                        ranges.insert(start, end, *cut);
                    }
                }
            });
            new.add(graves);
        }
        ranges.prune(oldest_snapshot);
        let mut next = Self::new(through, ranges).at_time(time.max(self.time));
        let (count, key_bytes) = new.room;
        next.points = SortedGraves::with_room(
            self.points.len() + count,
            self.points.key_bytes() + key_bytes,
        );
        let due = if through > purged_through { time } else { 0 };
        let mut merge = GraveMerge {
            next: next.with_spilled(self.spilled.promote(due, through)),
            oldest_snapshot,
            due,
            of_key: OfKey::default(),
        };
        merge.run(self, new);
        merge.next.points.shrink();
        if merge.next.is_timed() {
            merge.next
        } else {
            merge.next.at_time(0)
        }
    }
}

/// Merges flushed and active graves.
struct GraveMerge {
    next: FlushedGraves,
    oldest_snapshot: u64,
    /// What has a date up to here is promoted.
    due: u64,
    /// The graves of the key that comes next.
    of_key: OfKey,
}

/// Graves of one key: sequence numbers with what tables must be purged through, and with dates.
#[derive(Default)]
struct OfKey {
    counting: Vec<(u64, u64)>,
    dated: Vec<(u64, u64)>,
    cuts: Vec<Cut>,
}

impl GraveMerge {
    /// Takes all graves of `before`, and the `new` ones.
    fn run(&mut self, before: &FlushedGraves, mut new: NewGraves<'_>) {
        let mut counting = before.points.iter().peekable();
        let mut dated = before.dated.iter().peekable();
        let mut key = Vec::new();
        loop {
            let flushed = [
                counting.peek().map(|it| it.key),
                dated.peek().map(|it| it.key),
            ];
            let Some(first) = flushed.into_iter().flatten().chain(new.keys()).min() else {
                break;
            };
            key.clear();
            key.extend_from_slice(first);
            take_key(&mut counting, &key, &mut self.of_key.counting);
            take_key(&mut dated, &key, &mut self.of_key.dated);
            new.take_key(&key, &mut self.of_key);
            self.add_key(&key);
        }
    }

    /// Takes the graves of `key`, which is behind all others, as far as any reader needs them.
    fn add_key(&mut self, key: &[u8]) {
        self.promote_due();
        let ranges = &self.next.ranges;
        let covered = if ranges.is_empty() {
            0
        } else {
            ranges.covering(key, self.oldest_snapshot)
        };
        if !self.of_key.dated.is_empty() {
            self.add_dated(key, covered);
        }
        if let [(sequence, purge_through)] = self.of_key.counting[..] {
            if sequence > covered {
                let grave = Grave::counting(key, sequence, purge_through);
                self.next.push(grave);
            }
        } else {
            self.add_counting(key, covered);
        }
        self.of_key.counting.clear();
    }

    /// Lets graves count that are past their date for every reader.
    fn promote_due(&mut self) {
        let OfKey {
            counting, dated, ..
        } = &mut self.of_key;
        dated.retain(|&(sequence, date)| {
            let is_due = date <= self.due;
            if is_due {
                counting.push((sequence, self.next.through.max(sequence)));
            }
            !is_due
        });
    }

    /// Takes the dated graves of `key`, of which versions below `covered` are hidden by a range.
    fn add_dated(&mut self, key: &[u8], covered: u64) {
        let OfKey {
            counting, dated, ..
        } = &mut self.of_key;
        prune_dated(dated, counting, covered, self.oldest_snapshot);
        for &(sequence, date) in dated.iter() {
            self.next.push_dated(Grave::dated(key, sequence, date));
        }
        dated.clear();
    }

    /// Takes the graves of `key` that count, where there are none or several.
    fn add_counting(&mut self, key: &[u8], covered: u64) {
        let OfKey { counting, cuts, .. } = &mut self.of_key;
        // Of one that was promoted twice, as the log told of it again, the first promotion counts.
        counting.sort_unstable();
        counting.dedup_by_key(|it| it.0);
        cuts.extend(counting.iter().map(|it| Cut::deletion(it.0)));
        prune(cuts, self.oldest_snapshot);
        counting.retain(|it| it.0 > covered && cuts.iter().any(|cut| cut.below == it.0));
        for &(sequence, purge_through) in counting.iter().rev() {
            let grave = Grave::counting(key, sequence, purge_through);
            self.next.push(grave);
        }
        cuts.clear();
    }
}

/// Adds the graves of `key`, which are the next ones, to `of_key`.
fn take_key<'g>(
    graves: &mut Peekable<impl Iterator<Item = Grave<'g>>>,
    key: &[u8],
    of_key: &mut Vec<(u64, u64)>,
) {
    while let Some(grave) = graves.next_if(|it| it.key == key) {
        of_key.push((grave.sequence, grave.number));
    }
}

/// Leaves of the `dated` graves of a key, latest first, the ones that a reader at `oldest_snapshot` or later may need.
fn prune_dated(
    dated: &mut Vec<(u64, u64)>,
    counting: &[(u64, u64)],
    covered: u64,
    oldest_snapshot: u64,
) {
    dated.sort_unstable_by(|a, b| b.cmp(a));
    dated.dedup_by_key(|it| it.0);
    dated.retain(|it| counting.iter().all(|other| other.0 != it.0));
    // Each stands behind a put of the key, at the number before: who is past that put never looks below it, or else
    // finds that hidden as well.
    let sequences = counting.iter().chain(dated.iter()).map(|it| it.0);
    let passed = sequences
        .filter(|sequence| *sequence <= oldest_snapshot)
        .max();
    let covering = passed.unwrap_or(0).max(covered);
    dated.retain(|it| it.0 >= covering);
}

/// Active graves of keys.
#[derive(Default)]
struct NewGraves<'g> {
    counting: Vec<PointsInOrder<'g>>,
    dated: Vec<DatedInOrder<'g>>,
    /// How many count, and the bytes of their keys.
    room: (usize, usize),
}

impl<'g> NewGraves<'g> {
    fn add(&mut self, graves: &'g ActiveGraves) {
        let points = graves.points();
        self.counting.push(points.sorted());
        self.dated.extend(graves.dated().map(DatedPoints::sorted));
        let (count, key_bytes) = self.room;
        self.room = (count + points.len(), key_bytes + points.key_bytes());
    }

    /// The next keys.
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let counting = self.counting.iter().filter_map(InOrder::peek);
        let dated = self.dated.iter().filter_map(InOrder::peek);
        counting.chain(dated).map(|grave| grave.key)
    }

    /// Adds the graves of `key`, which are the next ones, to `of_key`.
    fn take_key(&mut self, key: &[u8], of_key: &mut OfKey) {
        for graves in &mut self.counting {
            take_new(graves, key, &mut of_key.counting);
        }
        for graves in &mut self.dated {
            take_new(graves, key, &mut of_key.dated);
        }
    }
}

fn take_new<const HEAD: usize>(
    graves: &mut InOrder<'_, HEAD>,
    key: &[u8],
    of_key: &mut Vec<(u64, u64)>,
) {
    while let Some(grave) = graves.peek().filter(|it| it.key == key) {
        of_key.push((grave.sequence, grave.number));
        graves.advance();
    }
}
