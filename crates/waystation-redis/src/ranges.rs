//! Ranges of keys that were deleted. They lie apart, so that one look finds out about a key however many there are.

use std::collections::BTreeMap;
use std::ops::Bound;

/// Where each range starts, and where it ends (none: behind the last key). No two meet.
#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<Vec<u8>, Option<Vec<u8>>>);

impl Ranges {
    /// Adds a range, which takes in all that it meets.
    pub(crate) fn add(&mut self, start: &[u8], end: Option<&[u8]>) {
        if end.is_some_and(|end| end <= start) {
            return;
        }
        let (mut start, mut end) = (start.to_vec(), end.map(<[u8]>::to_vec));
        loop {
            let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Included);
            let last = self.up_to(upper);
            let met = last.filter(|it| it.1.as_ref().is_none_or(|ended| *ended >= start));
            let Some(begun) = met.map(|it| it.0.clone()) else {
                break;
            };
            let ended = self.0.remove(&begun).flatten();
            start = start.min(begun);
            end = end.zip(ended).map(|(one, other)| one.max(other));
        }
        self.0.insert(start, end);
    }

    /// The last range that starts within a bound.
    fn up_to(&self, upper: Bound<&[u8]>) -> Option<(&Vec<u8>, &Option<Vec<u8>>)> {
        self.0
            .range::<[u8], _>((Bound::<&[u8]>::Unbounded, upper))
            .next_back()
    }

    /// Whether `key` lies in one of them.
    pub(crate) fn have(&self, key: &[u8]) -> bool {
        self.up_to(Bound::Included(key))
            .is_some_and(|(_, end)| end.as_ref().is_none_or(|end| key < &end[..]))
    }

    /// Those that may have keys from `lower` on and, unless there is none, before `upper`, which lies behind it.
    pub(crate) fn between(&self, lower: &[u8], upper: Option<&[u8]>) -> Self {
        let end = upper.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.0.range::<[u8], _>((Bound::Excluded(lower), end));
        let all = self.up_to(Bound::Included(lower)).into_iter().chain(behind);
        Self(all.map(|it| (it.0.clone(), it.1.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_of_all_ranges_are_found(
            added in prop::collection::vec((0u8..20, prop::option::of(0u8..20)), 0..8),
            (lower, upper) in (0u8..20, prop::option::of(0u8..21)),
        ) {
            let mut ranges = Ranges::default();
            for (start, end) in &added {
                ranges.add(&[*start], end.as_ref().map(std::slice::from_ref));
            }
            let ends: Vec<_> = ranges.0.iter().collect();
            for pair in ends.windows(2) {
                prop_assert!(pair[0].1.as_ref().is_some_and(|end| end < pair[1].0));
            }
            let upper = upper.filter(|it| *it > lower);
            let some = ranges.between(&[lower], upper.as_ref().map(std::slice::from_ref));
            for key in 0..20 {
                let is_in = |it: &(u8, Option<u8>)| key >= it.0 && it.1.is_none_or(|end| key < end);
                let expected = added.iter().any(is_in);
                prop_assert_eq!(ranges.have(&[key]), expected);
                if key >= lower && upper.is_none_or(|upper| key < upper) {
                    prop_assert_eq!(some.have(&[key]), expected);
                }
            }
        }
    }
}
