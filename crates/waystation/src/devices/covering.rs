//! Covering sequences: the departures of a device that has been in the tree, until nothing is left there that they hide.
//!
//! The grave of a departure hides the data, over the range of the device's keys (see [`crate::cemetery`]). The
//! device table remembers the departure as long as that grave is there: until then the device is known.

/// The covering sequences of one device, ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CoveringSequences(Vec<u64>);

impl CoveringSequences {
    /// Adds the departure at `sequence`. Departures come in order; one that is known already counts once.
    pub(crate) fn add(&mut self, sequence: u64) {
        if self.newest() < sequence {
            self.0.push(sequence);
        }
    }

    /// The newest of them; 0 if there is none.
    pub(crate) fn newest(&self) -> u64 {
        self.0.last().copied().unwrap_or(0)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Retires all of them up to `sequence`.
    pub(crate) fn retire(&mut self, sequence: u64) {
        self.0.retain(|covering| *covering > sequence);
    }

    /// All of them, ascending.
    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.0
    }
}

impl From<Vec<u64>> for CoveringSequences {
    fn from(mut covering: Vec<u64>) -> Self {
        covering.sort_unstable();
        covering.dedup();
        Self(covering)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn covering_sequences_are_added_once_and_retired() {
        let mut covering = CoveringSequences::default();
        for sequence in [5, 5, 9, 12] {
            covering.add(sequence);
        }
        assert_eq!(covering.as_slice(), [5, 9, 12]);
        covering.retire(9);
        assert_eq!(covering.newest(), 12);
        covering.retire(12);
        assert!(covering.is_empty());
    }
}
