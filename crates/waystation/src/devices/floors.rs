//! Floors: the departures of a device that has been in the tree, until nothing is left there of what they hide.
//!
//! What a departure hides is told by its grave, over the range of the device's keys (see [`crate::cemetery`]). The
//! device table remembers the departure as long as that grave is there: until then the device is known.

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

    #[test]
    fn floors_are_added_once_and_retired() {
        let mut floors = Floors::default();
        for floor in [5, 5, 9, 12] {
            floors.add(floor);
        }
        assert_eq!(floors.as_slice(), [5, 9, 12]);
        floors.retire(9);
        assert_eq!(floors.newest(), 12);
        floors.retire(12);
        assert!(floors.is_empty());
    }
}
