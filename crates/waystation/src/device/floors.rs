//! Floors: what a departure hides of a device that has been in the tree.
//!
//! A departure at sequence number d is one number. A version s is hidden at snapshot S iff there is a floor d
//! with s < d <= S: those who look from before the departure go on seeing everything, everybody else nothing,
//! and a device that comes back begins above its floor.
//!
//! A floor is *retired* once nothing that it hides is left in the tree, in memory or in anybody's view. Until
//! then merges drop what it hides from all snapshots. (This is the first range grave.)

/// The floors of one device, ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Floors(Vec<u64>);

impl Floors {
    /// Adds the departure at `sequence`. Departures come in order; one that is known already counts once.
    pub(crate) fn add(&mut self, sequence: u64) {
        if self.newest() < sequence {
            self.0.push(sequence);
        }
    }

    /// The floor that counts at `snapshot`: versions below it are hidden. 0 if there is none.
    #[inline]
    pub(crate) fn at(&self, snapshot: u64) -> u64 {
        let below = self.0.partition_point(|floor| *floor <= snapshot);
        below.checked_sub(1).map_or(0, |last| self.0[last])
    }

    /// The newest floor; 0 if there is none.
    pub(crate) fn newest(&self) -> u64 {
        self.0.last().copied().unwrap_or(0)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Retires all floors up to `sequence`.
    pub(crate) fn retire(&mut self, sequence: u64) {
        self.0.retain(|floor| *floor > sequence);
    }

    /// All floors, ascending.
    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.0
    }
}

impl From<Vec<u64>> for Floors {
    fn from(mut floors: Vec<u64>) -> Self {
        floors.sort_unstable();
        floors.dedup();
        Self(floors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// `at` answers the rule as it is written.
        #[test]
        fn a_version_is_hidden_iff_a_floor_lies_between(
            floors in prop::collection::vec(1u64..50, 0..6),
            snapshot in 0u64..60,
            version in 1u64..60,
        ) {
            let by_rule = floors.iter().any(|floor| version < *floor && *floor <= snapshot);
            let set = Floors::from(floors);
            prop_assert_eq!(version < set.at(snapshot), by_rule);
        }
    }

    #[test]
    fn floors_are_added_once_and_retired() {
        let mut floors = Floors::default();
        for floor in [5, 5, 9, 12] {
            floors.add(floor);
        }
        assert_eq!(floors.as_slice(), [5, 9, 12]);
        floors.retire(9);
        assert_eq!((floors.at(11), floors.at(12)), (0, 12));
        floors.retire(12);
        assert!(floors.is_empty());
    }
}
