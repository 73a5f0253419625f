//! How long data should stay in a cell's upper level: learned from those who have left, never from what is to come.
//!
//! Each cell counts the dwell times of the vehicles that have left it so far. Its residency is the time within which
//! nine of ten of those had gone: data of the tenth is worth being sorted, as it will be here for a while. Until
//! enough have left, a cell goes by a round guess.

/// Share of visits that should end within the residency.
const SHARE: f64 = 0.9;
/// Leavings that a cell must have seen to go by them.
const ENOUGH: u64 = 20;
/// The residency until then (seconds).
const GUESS: u32 = 120;
/// Settling a vehicle that leaves a moment later is in vain, however quickly others leave (seconds).
const LEAST: u32 = 30;
/// Longer stays count as this long (seconds).
const LONGEST: usize = 3_600;

/// What one cell knows of dwell times.
#[derive(Debug, Clone)]
pub(crate) struct Learner {
    /// Visits by their length in seconds.
    visits: Vec<u64>,
    total: u64,
}

impl Learner {
    /// One that has seen nobody leave.
    pub(crate) fn new() -> Self {
        Self {
            visits: vec![0; LONGEST + 1],
            total: 0,
        }
    }

    /// Somebody left after so many seconds.
    pub(crate) fn left(&mut self, dwell: u32) {
        self.visits[(dwell as usize).min(LONGEST)] += 1;
        self.total += 1;
    }

    /// The residency, by all that is known now (seconds).
    pub(crate) fn residency(&self) -> u32 {
        if self.total < ENOUGH {
            return GUESS;
        }
        let wanted = (self.total as f64 * SHARE).ceil();
        let mut seen = 0;
        let reached = self.visits.iter().position(|count| {
            seen += count;
            seen as f64 >= wanted
        });
        (reached.unwrap_or(LONGEST) as u32).max(LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_of_ten_leave_within_it() {
        let mut learner = Learner::new();
        for dwell in 41..=59 {
            learner.left(dwell);
            assert_eq!(learner.residency(), GUESS, "too few have left");
        }
        learner.left(60);
        assert_eq!(learner.residency(), 58);
        (0..1_000).for_each(|_| learner.left(3));
        assert_eq!(learner.residency(), LEAST);
        (0..20_000).for_each(|_| learner.left(9_000));
        assert_eq!(learner.residency(), 3_600);
    }
}
