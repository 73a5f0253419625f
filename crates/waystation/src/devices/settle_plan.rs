//! The settle plan: which residencies settle together in one run of tables.
//!
//! A run goes into the tree as deep as nothing lies in its way; what goes in deep is not merged again. One run of all
//! residencies would span all keys, so that nearly everything is in its way. One for each residency has the least in its way, but makes
//! as many files, each of them synced. So a residency begins a run, and its neighbours join as long as that goes as deep as
//! without them, which is so if nothing of other devices lies between: devices that come one after the other often have
//! names that follow each other, too.
//!
//! A residency of a megabyte is alone, so that its departure drops whole files. What finds no place below level 0, or stays
//! small, is the rest: one run of all that.

use crate::lsm::tree::Place;

/// A run of less is not worth a file (bytes).
const RUN_BYTES_MIN: u64 = 64 << 10;
/// A residency of this size shares no table (bytes).
const ALONE_BYTES: u64 = 1 << 20;
/// Residencies share a run up to this size (bytes): departures of some of them leave that much behind at most.
const SHARED_BYTES_MAX: u64 = 8 << 20;

/// How deep something can go.
pub(crate) trait Depth {
    /// The level.
    fn level(&self) -> usize;
}

impl Depth for Place<'_> {
    fn level(&self) -> usize {
        Place::level(self)
    }
}

/// A residency that settles.
pub(crate) struct Candidate {
    /// Its number among the residencies.
    pub(crate) residency: usize,
    /// What it has in the log.
    pub(crate) bytes: u64,
    /// Its first key.
    pub(crate) first: Vec<u8>,
    /// Its last key.
    pub(crate) last: Vec<u8>,
}

/// Neighbouring residencies, and where they can go.
pub(crate) struct Run<P> {
    /// Their numbers.
    pub(crate) residencies: Vec<usize>,
    /// Their first key.
    pub(crate) first: Vec<u8>,
    /// Their last key.
    pub(crate) last: Vec<u8>,
    /// Below level 0.
    pub(crate) place: P,
    bytes: u64,
    is_shared: bool,
}

impl<P: Depth> Run<P> {
    fn may_take(&self, candidate: &Candidate) -> bool {
        self.is_shared
            && candidate.bytes < ALONE_BYTES
            && self.bytes + candidate.bytes <= SHARED_BYTES_MAX
    }
}

/// Runs, by key, and the rest.
pub(crate) struct SettlePlan<P> {
    /// The runs that go below level 0.
    pub(crate) deep: Vec<Run<P>>,
    /// The numbers of the other residencies.
    pub(crate) rest: Vec<usize>,
}

impl<P: Depth> SettlePlan<P> {
    /// The runs of `candidates`, which come by key. `find` finds the place of a run from its first to its last key; while a place
    /// is held, no other one is found that overlaps it.
    pub(crate) fn new(
        candidates: impl Iterator<Item = Candidate>,
        mut find: impl FnMut(&[u8], &[u8]) -> P,
    ) -> Self {
        let mut runs = Self {
            deep: Vec::new(),
            rest: Vec::new(),
        };
        for candidate in candidates {
            let neighbour = runs.deep.pop_if(|run| run.may_take(&candidate));
            let alone = match neighbour {
                Some(run) => runs.join(run, candidate, &mut find),
                None => Some(candidate),
            };
            if let Some(candidate) = alone {
                let place = find(&candidate.first, &candidate.last);
                runs.add(Run {
                    residencies: vec![candidate.residency],
                    first: candidate.first,
                    last: candidate.last,
                    place,
                    bytes: candidate.bytes,
                    is_shared: candidate.bytes < ALONE_BYTES,
                });
            }
        }
        let small = runs.deep.extract_if(.., |run| run.bytes < RUN_BYTES_MIN);
        runs.rest.extend(small.flat_map(|run| run.residencies));
        runs.rest.sort_unstable();
        runs
    }

    /// Adds `candidate` to the run before it, if that goes as deep then as without. Returns it if not.
    fn join(
        &mut self,
        mut run: Run<P>,
        candidate: Candidate,
        find: &mut impl FnMut(&[u8], &[u8]) -> P,
    ) -> Option<Candidate> {
        let level = run.place.level();
        // It would stand in the way of the longer one.
        drop(run.place);
        run.place = find(&run.first, &candidate.last);
        if run.place.level() >= level {
            run.residencies.push(candidate.residency);
            run.last = candidate.last;
            run.bytes += candidate.bytes;
            self.deep.push(run);
            return None;
        }
        drop(run.place);
        run.place = find(&run.first, &run.last);
        self.add(run);
        Some(candidate)
    }

    fn add(&mut self, run: Run<P>) {
        if run.place.level() == 0 {
            self.rest.extend(run.residencies);
        } else {
            self.deep.push(run);
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// A place that is in others' way while it is held.
    struct Held<'a> {
        level: usize,
        range: (u8, u8),
        taken: &'a RefCell<Vec<(u8, u8)>>,
    }

    impl Depth for Held<'_> {
        fn level(&self) -> usize {
            self.level
        }
    }

    impl Drop for Held<'_> {
        fn drop(&mut self) {
            self.taken.borrow_mut().retain(|range| *range != self.range);
        }
    }

    /// The runs of residencies (first key, last key, bytes) in a tree of which level 2 holds `settled` and level 1 `above`.
    fn runs(
        residencies: &[(u8, u8, u64)],
        settled: &[(u8, u8)],
        above: &[(u8, u8)],
    ) -> (Vec<Vec<usize>>, Vec<usize>) {
        let taken = RefCell::new(Vec::new());
        let overlaps = |(first, last): (u8, u8), others: &[(u8, u8)]| {
            others
                .iter()
                .any(|other| first <= other.1 && other.0 <= last)
        };
        let find = |first: &[u8], last: &[u8]| {
            let range = (first[0], last[0]);
            assert!(
                !overlaps(range, &taken.borrow()),
                "{range:?} is in its own way"
            );
            taken.borrow_mut().push(range);
            let level = match range {
                range if overlaps(range, above) => 0,
                range if overlaps(range, settled) => 1,
                _ => 2,
            };
            Held {
                level,
                range,
                taken: &taken,
            }
        };
        let candidates = residencies
            .iter()
            .enumerate()
            .map(|(residency, (first, last, bytes))| Candidate {
                residency,
                bytes: *bytes,
                first: vec![*first],
                last: vec![*last],
            });
        let runs = SettlePlan::new(candidates, find);
        for run in &runs.deep {
            let (first, last) = (
                run.residencies[0],
                run.residencies[run.residencies.len() - 1],
            );
            assert_eq!(
                (run.first[0], run.last[0]),
                (residencies[first].0, residencies[last].1)
            );
        }
        (
            runs.deep.into_iter().map(|run| run.residencies).collect(),
            runs.rest,
        )
    }

    const SMALL: u64 = 40 << 10;

    #[test]
    fn neighbours_share_a_run() {
        let residencies = [(1, 2, SMALL), (3, 4, SMALL), (5, 6, SMALL)];
        assert_eq!(runs(&residencies, &[], &[]), (vec![vec![0, 1, 2]], vec![]));
    }

    #[test]
    fn what_lies_between_parts_them() {
        let large = 2 * SMALL;
        let residencies = [(1, 2, large), (3, 4, large), (6, 7, large)];
        assert_eq!(
            runs(&residencies, &[(5, 5)], &[]),
            (vec![vec![0, 1], vec![2]], vec![])
        );
    }

    #[test]
    fn small_ones_that_are_parted_are_the_rest() {
        let residencies = [(1, 2, SMALL), (4, 5, SMALL), (6, 7, SMALL)];
        assert_eq!(
            runs(&residencies, &[(3, 3)], &[]),
            (vec![vec![1, 2]], vec![0])
        );
    }

    #[test]
    fn what_finds_no_place_below_is_the_rest() {
        let residencies = [(1, 2, 1 << 20), (3, 4, 1 << 20), (5, 6, 1 << 20)];
        assert_eq!(
            runs(&residencies, &[], &[(4, 4)]),
            (vec![vec![0], vec![2]], vec![1])
        );
        assert_eq!(runs(&residencies, &[], &[(0, 9)]), (vec![], vec![0, 1, 2]));
    }

    #[test]
    fn large_ones_are_alone_and_runs_do_not_grow_on() {
        let residencies = [
            (1, 1, SMALL),
            (2, 2, SMALL),
            (3, 3, 1 << 20),
            (4, 4, 2 * SMALL),
        ];
        let expected = (vec![vec![0, 1], vec![2], vec![3]], vec![]);
        assert_eq!(runs(&residencies, &[], &[]), expected);
        let many: Vec<(u8, u8, u64)> = (0..20).map(|key| (key, key, 900 << 10)).collect();
        let (deep, rest) = runs(&many, &[], &[]);
        let lengths: Vec<usize> = deep.iter().map(Vec::len).collect();
        assert_eq!((lengths, rest), (vec![9, 9, 2], vec![]));
    }
}
