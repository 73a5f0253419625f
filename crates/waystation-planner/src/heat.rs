//! How often the parts of files are read: the heat of each, and what so many fast bytes are worth by it.
//!
//! A block's heat is a small number that grows with each read that the fast tier would have spared, up to [`HEAT_MAX`], and is
//! halved as time passes (the aging of `TinyLFU`, ACM Transactions on Storage 13(4), 2017). A [`Histogram`] counts the blocks of
//! each heat, and what was read of them. With it, every question about a capacity is a sum over some thirty numbers, however
//! many blocks there are.
//!
//! Blocks that seem hot are partly blocks that luck has favoured: the reads that they were chosen by promise too much. So a
//! histogram ranks blocks by their heat of *before* and weighs them by the reads *since*.

use crate::precise;
use std::time::Duration;

/// The greatest heat. Greater differences say nothing that outlives a change of the load.
pub const HEAT_MAX: u8 = 31;
/// A block that was read once is no better than its neighbours: 80 to 90 % of blocks are never read again (Kim and
/// Bahn, 2019). So this is the lowest heat that deserves a place.
pub const HEAT_MIN: u8 = 2;
/// The heat is halved after so long,
const HALVED_AFTER: Duration = Duration::from_secs(10);
/// if so many reads came,
const HALVED_AFTER_READS_MIN: u64 = 1_000;
/// or earlier after so many reads for each block that fits. With fewer of them the heat would tell blocks apart that chance has
/// told apart.
const HALVED_AFTER_READS_PER_BLOCK: u64 = 16;
/// A newcomer takes the place of another block if its heat is this many eighths of the other's at least.
const TAKES_OVER_EIGHTHS: u16 = 10;

const HEATS: usize = HEAT_MAX as usize + 1;

/// The heat that a block has which was read `recent` times since the heat was halved to `before`.
pub fn sum(before: u8, recent: u8) -> u8 {
    before.saturating_add(recent).min(HEAT_MAX)
}

/// Whether the heat is to be halved: so long and so many counted reads after the last time, where `capacity` blocks fit.
pub fn is_to_be_halved(since: Duration, reads: u64, capacity: u64) -> bool {
    let is_enough = since >= HALVED_AFTER || reads >= capacity * HALVED_AFTER_READS_PER_BLOCK;
    reads >= HALVED_AFTER_READS_MIN && is_enough
}

/// How many blocks have which heat, and how often they were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// By the heat of before and since.
    blocks: [u64; HEATS],
    /// By the heat of before alone, and the reads since.
    before: [u64; HEATS],
    reads: [u64; HEATS],
}

impl Histogram {
    /// Counts one block, which was read `recent` times since its heat was halved to `before`, at most [`HEAT_MAX`].
    pub fn add(&mut self, before: u8, recent: u8) {
        self.blocks[usize::from(sum(before, recent))] += 1;
        let before = usize::from(before.min(HEAT_MAX));
        self.before[before] += 1;
        self.reads[before] += u64::from(recent);
    }

    /// The blocks that were read lately.
    pub fn warm(&self) -> u64 {
        self.blocks[1..].iter().sum()
    }

    /// All blocks.
    pub fn count(&self) -> u64 {
        self.blocks.iter().sum()
    }

    /// The reads since the heat was halved.
    pub fn reads(&self) -> u64 {
        self.reads.iter().sum()
    }

    /// The heat up to which there are `count` blocks: the coldest ones have it at most.
    pub fn coldest(&self, count: u64) -> u8 {
        let mut taken = 0;
        let all = (0..=HEAT_MAX).zip(self.blocks);
        let enough = |(_, blocks): &(u8, u64)| {
            taken += blocks;
            taken >= count
        };
        all.into_iter()
            .find(enough)
            .map_or(HEAT_MAX, |(heat, _)| heat)
    }

    /// The lowest heat, from [`HEAT_MIN`] on, of which all blocks and all hotter ones fit into `capacity` blocks.
    /// [`HEAT_MAX`] if not even those fit.
    pub fn threshold(&self, capacity: u64) -> u8 {
        let mut taken = 0;
        let mut threshold = HEAT_MAX;
        for heat in (HEAT_MIN..=HEAT_MAX).rev() {
            taken += self.blocks[usize::from(heat)];
            if taken > capacity {
                break;
            }
            threshold = heat;
        }
        threshold
    }

    /// Whether the heat was halved since the blocks were read first: only then [`Self::share`] says something.
    pub fn is_halved(&self) -> bool {
        self.before[1..].iter().any(|blocks| *blocks > 0)
    }

    /// The share of all reads that go to the hottest `capacity` blocks, from 0 to 1: those that were hottest before. 0 until
    /// the heat was halved once.
    pub fn share(&self, capacity: u64) -> f64 {
        let all = self.reads();
        if all == 0 {
            return 0.0;
        }
        let mut left = capacity;
        let mut served = 0.0;
        for heat in (1..HEATS).rev() {
            let (blocks, reads) = (self.before[heat], self.reads[heat]);
            let placed = blocks.min(left);
            left -= placed;
            if blocks > 0 {
                served += precise(reads) * precise(placed) / precise(blocks);
            }
        }
        served / precise(all)
    }
}

/// Whether a block of heat `newcomer` takes the place of one of heat `present`. The newcomer has to be hotter by some part:
/// what would change places again soon stays where it is.
pub fn takes_over(newcomer: u8, present: u8) -> bool {
    newcomer >= HEAT_MIN
        && newcomer > present
        && u16::from(newcomer) * 8 >= u16::from(present) * TAKES_OVER_EIGHTHS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(heats: &[u8]) -> Histogram {
        let mut histogram = Histogram::default();
        for heat in heats {
            histogram.add(*heat, 0);
        }
        histogram
    }

    #[test]
    fn the_threshold_admits_what_fits() {
        let heats = histogram(&[9, 9, 5, 5, 5, 1, 1, 0]);
        assert_eq!(heats.threshold(2), 6, "all of heat 6 and more fit");
        assert_eq!(heats.threshold(4), 6, "a third of heat 5 would not fit");
        assert_eq!(heats.threshold(5), HEAT_MIN);
        assert_eq!(heats.threshold(100), HEAT_MIN, "once is not enough");
        assert_eq!(histogram(&[31; 9]).threshold(3), HEAT_MAX);
        assert_eq!((heats.warm(), heats.count()), (7, 8));
    }

    #[test]
    fn the_coldest_are_some_of_a_heat() {
        let heats = histogram(&[9, 9, 5, 5, 5, 1, 1, 0]);
        let coldest = [1, 2, 3, 4, 7, 8, 9].map(|count| heats.coldest(count));
        assert_eq!(coldest, [0, 1, 1, 5, 9, 9, HEAT_MAX]);
    }

    #[test]
    fn the_share_is_of_reads_that_came_after_the_choice() {
        let mut histogram = Histogram::default();
        // Hot before and since; hot by luck; cold before.
        for (before, recent) in [(8, 8), (8, 0), (1, 4), (0, 4)] {
            histogram.add(before, recent);
        }
        let share = |capacity| histogram.share(capacity);
        assert!((share(1) - 0.25).abs() < 1e-12, "either of the two");
        assert!((share(2) - 0.5).abs() < 1e-12);
        assert!((share(3) - 0.75).abs() < 1e-12);
        assert!(
            (share(9) - 0.75).abs() < 1e-12,
            "the cold one gets no place"
        );
        assert!(histogram.is_halved());
        assert!(Histogram::default().share(5).abs() < 1e-12);
        assert!(!Histogram::default().is_halved());
        assert_eq!(sum(20, 30), HEAT_MAX);
    }

    #[test]
    fn the_heat_is_halved_after_a_while_of_reading_or_after_many_reads() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(10));
        assert!(!is_to_be_halved(long, 999, 10));
        assert!(is_to_be_halved(long, 1_000, 1_000_000));
        assert!(!is_to_be_halved(short, 15_999, 1_000));
        assert!(is_to_be_halved(short, 16_000, 1_000));
    }

    #[test]
    fn what_is_hardly_hotter_moves_nothing() {
        assert!(takes_over(2, 0));
        assert!(!takes_over(1, 0), "read once");
        assert!(!takes_over(17, 16));
        assert!(takes_over(20, 16));
        assert!(!takes_over(HEAT_MAX, HEAT_MAX));
    }

    proptest! {
        /// Against sorting, where no two blocks were as hot as each other.
        #[test]
        fn the_share_is_that_of_the_hottest(
            recent in prop::collection::vec(0..=HEAT_MAX, usize::from(HEAT_MAX)),
            capacity in 0..40_usize,
        ) {
            let mut histogram = Histogram::default();
            for (before, recent) in (1..=HEAT_MAX).zip(&recent) {
                histogram.add(before, *recent);
            }
            let all: u64 = recent.iter().map(|it| u64::from(*it)).sum();
            let served: u64 = recent.iter().rev().take(capacity).map(|it| u64::from(*it)).sum();
            let right = if all == 0 { 0.0 } else { precise(served) / precise(all) };
            prop_assert!((histogram.share(capacity as u64) - right).abs() < 1e-12);
        }

        /// Against counting.
        #[test]
        fn all_from_the_threshold_on_fit(heats in prop::collection::vec(0..=HEAT_MAX, 0..60), capacity in 0..70_u64) {
            let threshold = histogram(&heats).threshold(capacity);
            let above = |least: u8| heats.iter().filter(|heat| **heat >= least).count() as u64;
            prop_assert!(above(threshold) <= capacity || threshold == HEAT_MAX);
            prop_assert!(threshold == HEAT_MIN || above(threshold - 1) > capacity);
        }
    }
}
