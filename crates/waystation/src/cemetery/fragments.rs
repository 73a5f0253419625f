//! Ranges of keys and the versions hidden in them, cut into fragments that do not overlap.
//!
//! ```text
//!   deletions   a ======== d   at 5          fragments   a == c  {5}
//!                     c ======== f   at 8                c == d  {5, 8}
//!                                                        d == f  {8}
//! ```
//!
//! To find what hides a key is one search; to put a range in costs as much as it overlaps, in time and in memory:
//! ranges that all overlap each other take the square of their number until they are [pruned](Fragments::prune).
//!
//! A map is ordered by its keys alone: so keys in a program's order bring that along, and keys in the order of bytes
//! are bytes and nothing else.

use super::{Cut, covering_of, prune};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use waystation_format::order::{Comparator, Order};

type Key = Box<[u8]>;

/// A key by which fragments are ordered.
trait Begin: Ord + Clone + Borrow<Self::Sought> {
    /// What one is looked up by.
    type Sought: Ord + ?Sized;
    /// That, of a key.
    type Lookup<'k>: Borrow<Self::Sought>;

    fn new(order: &Order, key: &[u8]) -> Self;
    fn lookup<'k>(order: &Order, key: &'k [u8]) -> Self::Lookup<'k>;
    fn bytes(&self) -> &[u8];
}

impl Begin for Key {
    type Sought = [u8];
    type Lookup<'k> = &'k [u8];

    fn new(_: &Order, key: &[u8]) -> Self {
        key.into()
    }

    fn lookup<'k>(_: &Order, key: &'k [u8]) -> &'k [u8] {
        key
    }

    fn bytes(&self) -> &[u8] {
        self
    }
}

/// A key in a program's order.
#[derive(Clone)]
struct Placed {
    key: Key,
    /// `None`: the order is that of bytes after all.
    comparator: Option<Arc<dyn Comparator>>,
}

impl Ord for Placed {
    fn cmp(&self, other: &Self) -> Ordering {
        match &self.comparator {
            Some(comparator) => comparator.compare(&self.key, &other.key),
            None => self.key.cmp(&other.key),
        }
    }
}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Placed {}

impl Begin for Placed {
    type Sought = Self;
    type Lookup<'k> = Self;

    fn new(order: &Order, key: &[u8]) -> Self {
        let comparator = match order {
            Order::Bytewise => None,
            Order::Custom(comparator) => Some(Arc::clone(comparator)),
        };
        Self {
            key: key.into(),
            comparator,
        }
    }

    fn lookup(order: &Order, key: &[u8]) -> Self {
        Self::new(order, key)
    }

    fn bytes(&self) -> &[u8] {
        &self.key
    }
}

/// A span of keys with the same cuts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fragment {
    /// Excluded; `None`: no end.
    end: Option<Key>,
    /// Ascending.
    cuts: Vec<Cut>,
}

/// Fragments by the keys they begin with.
#[derive(Clone, PartialEq, Eq)]
struct Map<K> {
    order: Order,
    map: BTreeMap<K, Fragment>,
}

/// Disjoint ranges with the versions hidden in each.
#[derive(Clone, PartialEq, Eq)]
enum Ranges {
    Bytewise(Map<Key>),
    Custom(Map<Placed>),
}

/// Disjoint ranges with the versions hidden in each.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Fragments(Ranges);

/// The keys around one for which the same covering sequence counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span<'a> {
    /// Versions below this are hidden; 0 if none are.
    pub(crate) covering: u64,
    /// Where it begins, included. `None`: at the first key.
    pub(crate) start: Option<&'a [u8]>,
    /// Where it ends, excluded. `None`: behind the last key.
    pub(crate) end: Option<&'a [u8]>,
}

/// A range with its cuts: where it begins, where it ends (`None`: behind the last key).
type Range<'a> = (&'a [u8], Option<&'a [u8]>, &'a [Cut]);

impl Default for Fragments {
    fn default() -> Self {
        Self::new(&Order::Bytewise)
    }
}

impl std::fmt::Debug for Fragments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Does the same to whatever map there is.
macro_rules! delegate {
    ($fragments:expr, $map:ident => $call:expr) => {
        match $fragments {
            Ranges::Bytewise($map) => $call,
            Ranges::Custom($map) => $call,
        }
    };
}

impl Fragments {
    /// No ranges; keys are in `order`.
    pub(crate) fn new(order: &Order) -> Self {
        Self(match order {
            Order::Bytewise => Ranges::Bytewise(Map::new(order)),
            Order::Custom(_) => Ranges::Custom(Map::new(order)),
        })
    }

    /// The order of keys.
    pub(crate) fn order(&self) -> &Order {
        delegate!(&self.0, map => &map.order)
    }

    /// How many fragments there are.
    pub(crate) fn len(&self) -> usize {
        delegate!(&self.0, map => map.map.len())
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        delegate!(&self.0, map => map.map.is_empty())
    }

    /// Hides `cut` in the keys from `start` (included) to `end` (excluded). Returns how many cuts there are more.
    pub(crate) fn insert(&mut self, start: &[u8], end: Option<&[u8]>, cut: Cut) -> usize {
        delegate!(&mut self.0, map => map.insert(start, end, cut))
    }

    /// Leaves in what lies from `start` to `end` only the latest `count` cuts of each fragment, then joins neighbours
    /// there that are alike.
    pub(crate) fn keep_latest(&mut self, start: &[u8], end: Option<&[u8]>, count: usize) {
        delegate!(&mut self.0, map => map.keep_latest(start, end, count));
    }

    /// The covering sequence of `key` at `snapshot`; 0 if there is none.
    pub(crate) fn covering(&self, key: &[u8], snapshot: u64) -> u64 {
        delegate!(&self.0, map => map.covering(key, snapshot))
    }

    /// The span with `key` in it, at `snapshot`. Its neighbours may have the same covering sequence.
    pub(crate) fn span(&self, key: &[u8], snapshot: u64) -> Span<'_> {
        delegate!(&self.0, map => map.span(key, snapshot))
    }

    /// Whether everything from `first` to `last` (both included) is hidden below `bound` at `snapshot`.
    pub(crate) fn covers(&self, first: &[u8], last: &[u8], bound: u64, snapshot: u64) -> bool {
        let mut at = first;
        loop {
            let span = self.span(at, snapshot);
            if span.covering < bound {
                return false;
            }
            match span.end {
                Some(end) if self.order().compare(end, last).is_le() => at = end,
                _ => return true,
            }
        }
    }

    /// All fragments, by key: start, end, cuts.
    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = Range<'_>> + '_> {
        delegate!(&self.0, map => Box::new(map.iter()))
    }

    /// The fragments that overlap the keys from `first` to `last` (both included; `None`: no bound).
    pub(crate) fn overlapping<'s>(
        &'s self,
        first: Option<&[u8]>,
        last: Option<&[u8]>,
    ) -> Box<dyn Iterator<Item = Range<'s>> + 's> {
        delegate!(&self.0, map => Box::new(map.overlapping(first, last)))
    }

    /// Lets `keep` say of each fragment which cuts stay, then joins neighbours that are alike.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&[u8], Option<&[u8]>, &Cut) -> bool) {
        delegate!(&mut self.0, map => map.retain(keep));
    }

    /// Forgets what no reader at `oldest_snapshot` or later can tell.
    pub(crate) fn prune(&mut self, oldest_snapshot: u64) {
        delegate!(&mut self.0, map => {
            for fragment in map.map.values_mut() {
                prune(&mut fragment.cuts, oldest_snapshot);
            }
        });
        self.retain(|_, _, _| true);
    }

    /// Bytes of memory taken, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        delegate!(&self.0, map => map.memory_bytes())
    }
}

impl<K: Begin> Map<K> {
    fn new(order: &Order) -> Self {
        Self {
            order: order.clone(),
            map: BTreeMap::new(),
        }
    }

    fn is_before(&self, key: &[u8], end: Option<&[u8]>) -> bool {
        end.is_none_or(|end| self.order.is_before(key, end))
    }

    fn insert(&mut self, start: &[u8], end: Option<&[u8]>, cut: Cut) -> usize {
        if !self.is_before(start, end) {
            return 0;
        }
        let mut more = self.split_at(start);
        if let Some(end) = end {
            more += self.split_at(end);
        }
        let (from, until) = (K::lookup(&self.order, start), self.lookup(end));
        let inside = (
            Bound::Included(from.borrow()),
            excluded::<K>(until.as_ref()),
        );
        let mut gap = Some(Key::from(start));
        let mut gaps = Vec::new();
        for (begins, fragment) in self.map.range_mut::<K::Sought, _>(inside) {
            let is_gap = |gap: &mut Key| !self.order.is_same(gap, begins.bytes());
            if let Some(from) = gap.take_if(is_gap) {
                gaps.push((from, Some(Key::from(begins.bytes()))));
            }
            if let Err(at) = fragment.cuts.binary_search(&cut) {
                fragment.cuts.insert(at, cut);
                more += 1;
            }
            gap.clone_from(&fragment.end);
        }
        if let Some(from) = gap
            && self.is_before(&from, end)
        {
            gaps.push((from, end.map(Key::from)));
        }
        for (from, end) in gaps {
            let cuts = vec![cut];
            more += 1;
            let begins = K::new(&self.order, &from);
            self.map.insert(begins, Fragment { end, cuts });
        }
        more
    }

    fn lookup<'k>(&self, key: Option<&'k [u8]>) -> Option<K::Lookup<'k>> {
        key.map(|key| K::lookup(&self.order, key))
    }

    fn keep_latest(&mut self, start: &[u8], end: Option<&[u8]>, count: usize) {
        let (from, until) = (K::lookup(&self.order, start), self.lookup(end));
        let inside = (
            Bound::Included(from.borrow()),
            excluded::<K>(until.as_ref()),
        );
        for (_, fragment) in self.map.range_mut::<K::Sought, _>(inside) {
            let surplus = fragment.cuts.len().saturating_sub(count);
            fragment.cuts.drain(..surplus);
        }
        let within = self.map.range::<K::Sought, _>(inside);
        let starts: Vec<_> = within.map(|it| it.0.clone()).collect();
        let mut last: Option<K> = None;
        for start in starts {
            match last.as_ref().and_then(|last| self.map.get(last.borrow())) {
                Some(before)
                    if self.ends_at(before, start.bytes())
                        && before.cuts == self.map[start.borrow()].cuts =>
                {
                    let end = self.map.remove(start.borrow()).and_then(|it| it.end);
                    let last = last.as_ref().map(K::borrow);
                    if let Some(before) = last.and_then(|last| self.map.get_mut(last)) {
                        before.end = end;
                    }
                }
                _ => last = Some(start),
            }
        }
    }

    /// Whether `fragment` ends where another one begins.
    fn ends_at(&self, fragment: &Fragment, begins: &[u8]) -> bool {
        let end = fragment.end.as_ref();
        end.is_some_and(|end| self.order.is_same(end, begins))
    }

    /// Makes `key`, if it lies inside a fragment, the beginning of one. Returns how many cuts there are more.
    fn split_at(&mut self, key: &[u8]) -> usize {
        let sought = K::lookup(&self.order, key);
        let before = (Bound::Unbounded, Bound::Excluded(sought.borrow()));
        let order = &self.order;
        let Some((_, fragment)) = self.map.range_mut::<K::Sought, _>(before).next_back() else {
            return 0;
        };
        let end = fragment.end.as_deref();
        if end.is_some_and(|end| !order.is_before(key, end)) {
            return 0;
        }
        let rest = Fragment {
            end: fragment.end.replace(key.into()),
            cuts: fragment.cuts.clone(),
        };
        let more = rest.cuts.len();
        self.map.insert(K::new(order, key), rest);
        more
    }

    /// The last fragment that begins at `key` or before.
    fn at_or_before(&self, key: &[u8]) -> Option<(&K, &Fragment)> {
        let sought = K::lookup(&self.order, key);
        let until = (Bound::Unbounded, Bound::Included(sought.borrow()));
        self.map.range::<K::Sought, _>(until).next_back()
    }

    fn covering(&self, key: &[u8], snapshot: u64) -> u64 {
        self.at_or_before(key)
            .filter(|(_, fragment)| self.is_before(key, fragment.end.as_deref()))
            .map_or(0, |(_, fragment)| covering_of(&fragment.cuts, snapshot))
    }

    fn span(&self, key: &[u8], snapshot: u64) -> Span<'_> {
        let mut start = None;
        if let Some((begins, fragment)) = self.at_or_before(key) {
            let end = fragment.end.as_deref();
            if self.is_before(key, end) {
                let covering = covering_of(&fragment.cuts, snapshot);
                return Span {
                    covering,
                    start: Some(begins.bytes()),
                    end,
                };
            }
            start = end;
        }
        let sought = K::lookup(&self.order, key);
        let behind = (Bound::Excluded(sought.borrow()), Bound::Unbounded);
        let next = self.map.range::<K::Sought, _>(behind).next();
        Span {
            covering: 0,
            start,
            end: next.map(|(begins, _)| begins.bytes()),
        }
    }

    fn iter(&self) -> impl Iterator<Item = Range<'_>> {
        let each = self.map.iter();
        each.map(|(start, it)| (start.bytes(), it.end.as_deref(), &it.cuts[..]))
    }

    fn overlapping<'s>(
        &'s self,
        first: Option<&[u8]>,
        last: Option<&[u8]>,
    ) -> impl Iterator<Item = Range<'s>> + use<'s, K> {
        let from = first.and_then(|first| self.span(first, 0).start);
        // A map does not look for a range that ends before it begins.
        let is_void = from
            .zip(last)
            .is_some_and(|(from, last)| self.order.is_before(last, from));
        let from = self.lookup(if is_void { last } else { from });
        let until = self.lookup(last);
        let lower = from
            .as_ref()
            .map_or(Bound::Unbounded, |it| Bound::Included(it.borrow()));
        let upper = until
            .as_ref()
            .map_or(Bound::Unbounded, |it| Bound::Included(it.borrow()));
        let range = self.map.range::<K::Sought, _>((lower, upper));
        range.map(|(start, it)| (start.bytes(), it.end.as_deref(), &it.cuts[..]))
    }

    fn memory_bytes(&self) -> usize {
        let one = |(start, it): (&K, &Fragment)| {
            let keys = start.bytes().len() + it.end.as_ref().map_or(0, |end| end.len());
            keys + size_of::<Fragment>() + it.cuts.capacity() * size_of::<Cut>() + 48
        };
        self.map.iter().map(one).sum()
    }

    fn retain(&mut self, mut keep: impl FnMut(&[u8], Option<&[u8]>, &Cut) -> bool) {
        let old = std::mem::take(&mut self.map);
        let mut joined: Vec<(K, Fragment)> = Vec::new();
        for (start, mut fragment) in old {
            let end = fragment.end.as_deref();
            fragment.cuts.retain(|cut| keep(start.bytes(), end, cut));
            match joined.last_mut() {
                _ if fragment.cuts.is_empty() => {}
                Some((_, last))
                    if self.ends_at(last, start.bytes()) && last.cuts == fragment.cuts =>
                {
                    last.end = fragment.end;
                }
                _ => joined.push((start, fragment)),
            }
        }
        self.map = joined.into_iter().collect();
    }
}

/// The bound of a range before `end`.
fn excluded<'k, K: Begin>(end: Option<&'k K::Lookup<'_>>) -> Bound<&'k K::Sought> {
    end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.borrow()))
}
