//! Ranges of keys and what is hidden in them, cut into fragments that do not overlap.
//!
//! ```text
//!   deletions   a ======== d   at 5          fragments   a == c  {5}
//!                     c ======== f   at 8                c == d  {5, 8}
//!                                                        d == f  {8}
//! ```
//!
//! To find what hides a key is one search; to put a range in costs as much as it overlaps, in time and in memory: ranges
//! that all overlap each other take the square of their number until they are [pruned](Fragments::prune).

use super::{Cut, floor_of, prune};
use std::collections::BTreeMap;
use std::ops::Bound;

type Key = Box<[u8]>;

/// A stretch of keys with the same cuts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fragment {
    /// Excluded; `None`: no end.
    end: Option<Key>,
    /// Ascending.
    cuts: Vec<Cut>,
}

/// Disjoint ranges with what is hidden in each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fragments {
    map: BTreeMap<Key, Fragment>,
}

/// The keys around one for which the same floor counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch<'a> {
    /// Versions below this are hidden; 0 if none are.
    pub(crate) floor: u64,
    /// Where it begins, included. Empty: at the first key.
    pub(crate) start: &'a [u8],
    /// Where it ends, excluded. `None`: behind the last key.
    pub(crate) end: Option<&'a [u8]>,
}

fn is_before(key: &[u8], end: Option<&[u8]>) -> bool {
    end.is_none_or(|end| key < end)
}

impl Fragments {
    /// How many fragments there are.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Hides `cut` in the keys from `start` (included) to `end` (excluded). Returns how many cuts there are more.
    pub(crate) fn insert(&mut self, start: &[u8], end: Option<&[u8]>, cut: Cut) -> usize {
        if !is_before(start, end) {
            return 0;
        }
        let mut more = self.split_at(start);
        if let Some(end) = end {
            more += self.split_at(end);
        }
        let bound = end.map_or(Bound::Unbounded, Bound::Excluded);
        let mut gap = Some(Key::from(start));
        let mut gaps = Vec::new();
        for (begins, fragment) in self
            .map
            .range_mut::<[u8], _>((Bound::Included(start), bound))
        {
            if let Some(from) = gap.take_if(|gap| *gap != *begins) {
                gaps.push((from, Some(begins.clone())));
            }
            if let Err(at) = fragment.cuts.binary_search(&cut) {
                fragment.cuts.insert(at, cut);
                more += 1;
            }
            gap.clone_from(&fragment.end);
        }
        if let Some(from) = gap
            && is_before(&from, end)
        {
            gaps.push((from, end.map(Key::from)));
        }
        for (from, end) in gaps {
            let cuts = vec![cut];
            more += 1;
            self.map.insert(from, Fragment { end, cuts });
        }
        more
    }

    /// Leaves in what lies from `start` to `end` only the latest `count` cuts of each fragment, then joins neighbours there
    /// that are alike.
    pub(crate) fn keep_latest(&mut self, start: &[u8], end: Option<&[u8]>, count: usize) {
        let bound = end.map_or(Bound::Unbounded, Bound::Excluded);
        let inside = (Bound::Included(start), bound);
        for (_, fragment) in self.map.range_mut::<[u8], _>(inside) {
            let surplus = fragment.cuts.len().saturating_sub(count);
            fragment.cuts.drain(..surplus);
        }
        let starts: Vec<_> = self
            .map
            .range::<[u8], _>(inside)
            .map(|it| it.0.clone())
            .collect();
        let mut last: Option<Key> = None;
        for start in starts {
            match last.as_ref().and_then(|last| self.map.get(last)) {
                Some(before)
                    if before.end.as_ref() == Some(&start)
                        && before.cuts == self.map[&start].cuts =>
                {
                    let end = self.map.remove(&start).and_then(|it| it.end);
                    if let Some(before) = last.as_ref().and_then(|last| self.map.get_mut(last)) {
                        before.end = end;
                    }
                }
                _ => last = Some(start),
            }
        }
    }

    /// Makes `key`, if it lies inside a fragment, the beginning of one. Returns how many cuts there are more.
    fn split_at(&mut self, key: &[u8]) -> usize {
        let before = (Bound::Unbounded, Bound::Excluded(key));
        let Some((_, fragment)) = self.map.range_mut::<[u8], _>(before).next_back() else {
            return 0;
        };
        if !is_before(key, fragment.end.as_deref()) {
            return 0;
        }
        let rest = Fragment {
            end: fragment.end.replace(key.into()),
            cuts: fragment.cuts.clone(),
        };
        let more = rest.cuts.len();
        self.map.insert(key.into(), rest);
        more
    }

    /// The floor of `key` at `snapshot`; 0 if there is none.
    pub(crate) fn floor(&self, key: &[u8], snapshot: u64) -> u64 {
        let until = (Bound::Unbounded, Bound::Included(key));
        let found = self.map.range::<[u8], _>(until).next_back();
        found
            .filter(|(_, fragment)| is_before(key, fragment.end.as_deref()))
            .map_or(0, |(_, fragment)| floor_of(&fragment.cuts, snapshot))
    }

    /// The stretch with `key` in it, at `snapshot`. Its neighbours may have the same floor.
    pub(crate) fn stretch(&self, key: &[u8], snapshot: u64) -> Stretch<'_> {
        let until = (Bound::Unbounded, Bound::Included(key));
        let mut start: &[u8] = &[];
        if let Some((begins, fragment)) = self.map.range::<[u8], _>(until).next_back() {
            let end = fragment.end.as_deref();
            if is_before(key, end) {
                let floor = floor_of(&fragment.cuts, snapshot);
                return Stretch {
                    floor,
                    start: begins,
                    end,
                };
            }
            start = end.unwrap_or_default();
        }
        let behind = (Bound::Excluded(key), Bound::Unbounded);
        let next = self.map.range::<[u8], _>(behind).next();
        Stretch {
            floor: 0,
            start,
            end: next.map(|(begins, _)| &**begins),
        }
    }

    /// Whether everything from `first` to `last` (both included) is hidden below `bound` at `snapshot`.
    pub(crate) fn covers(&self, first: &[u8], last: &[u8], bound: u64, snapshot: u64) -> bool {
        let mut at = first;
        loop {
            let stretch = self.stretch(at, snapshot);
            if stretch.floor < bound {
                return false;
            }
            match stretch.end {
                Some(end) if end <= last => at = end,
                _ => return true,
            }
        }
    }

    /// All fragments, by key: start, end, cuts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>, &[Cut])> {
        let each = self.map.iter();
        each.map(|(start, it)| (&**start, it.end.as_deref(), &it.cuts[..]))
    }

    /// The fragments that overlap the keys from `first` to `last` (both included; `None`: no bound).
    pub(crate) fn overlapping(
        &self,
        first: Option<&[u8]>,
        last: Option<&[u8]>,
    ) -> impl Iterator<Item = (&[u8], Option<&[u8]>, &[Cut])> {
        let from = first.map_or(&[][..], |first| self.stretch(first, 0).start);
        let until = last.map_or(Bound::Unbounded, Bound::Included);
        let last_ok = last.is_none_or(|last| from <= last);
        let from = if last_ok {
            from
        } else {
            last.unwrap_or_default()
        };
        let range = self.map.range::<[u8], _>((Bound::Included(from), until));
        range.map(|(start, it)| (&**start, it.end.as_deref(), &it.cuts[..]))
    }

    /// Lets `keep` say of each fragment which cuts stay, then joins neighbours that are alike.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&[u8], Option<&[u8]>, &Cut) -> bool) {
        let old = std::mem::take(&mut self.map);
        let mut joined: Vec<(Key, Fragment)> = Vec::new();
        for (start, mut fragment) in old {
            let end = fragment.end.as_deref();
            fragment.cuts.retain(|cut| keep(&start, end, cut));
            match joined.last_mut() {
                _ if fragment.cuts.is_empty() => {}
                Some((_, last))
                    if last.end.as_ref() == Some(&start) && last.cuts == fragment.cuts =>
                {
                    last.end = fragment.end;
                }
                _ => joined.push((start, fragment)),
            }
        }
        self.map = joined.into_iter().collect();
    }

    /// Forgets what nobody who reads at `oldest_snapshot` or later can tell.
    pub(crate) fn prune(&mut self, oldest_snapshot: u64) {
        for fragment in self.map.values_mut() {
            prune(&mut fragment.cuts, oldest_snapshot);
        }
        self.retain(|_, _, _| true);
    }

    /// Bytes of memory taken, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let one = |(start, it): (&Key, &Fragment)| {
            let end = it.end.as_ref().map_or(0, |end| end.len());
            start.len() + end + size_of::<Fragment>() + it.cuts.capacity() * size_of::<Cut>() + 48
        };
        self.map.iter().map(one).sum()
    }
}
