//! How often the parts of files are read: the heat of each, and what so many fast bytes are worth by it.
//!
//! An *extent* is a part of a file, all of one size. Its heat is a small number that grows with each read that the fast tier
//! would have spared, up to [`HEAT_MAX`], and is halved as time passes (the aging of `TinyLFU`, ACM Transactions on Storage 13(4),
//! 2017). A [`Histogram`] counts the extents of each heat; with it, every question about a capacity is a sum over some thirty
//! numbers, however many extents there are.

use crate::{Curve, Point, precise};

/// The greatest heat. Greater differences say nothing that outlives a change of the load.
pub const HEAT_MAX: u8 = 31;
/// An extent that was read once is no better than its neighbours: 80 to 90 % of blocks are never read again (Kim and
/// Bahn, 2019). So this is the lowest heat that deserves a place.
pub const HEAT_MIN: u8 = 2;
/// A newcomer takes the place of another extent if its heat is this many eighths of the other's at least.
const TAKES_OVER_EIGHTHS: u16 = 10;

const HEATS: usize = HEAT_MAX as usize + 1;

/// How many extents have which heat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    extents: [u64; HEATS],
}

impl Histogram {
    /// Counts one extent. A heat above [`HEAT_MAX`] counts as that.
    pub fn add(&mut self, heat: u8) {
        self.extents[usize::from(heat.min(HEAT_MAX))] += 1;
    }

    /// The extents that were read lately.
    pub fn warm(&self) -> u64 {
        self.extents[1..].iter().sum()
    }

    /// The lowest heat, from [`HEAT_MIN`] on, of which all extents and all hotter ones fit into `capacity` extents.
    /// [`HEAT_MAX`] if not even those fit.
    pub fn threshold(&self, capacity: u64) -> u8 {
        let mut taken = 0;
        let mut threshold = HEAT_MAX;
        for heat in (HEAT_MIN..=HEAT_MAX).rev() {
            taken += self.extents[usize::from(heat)];
            if taken > capacity {
                break;
            }
            threshold = heat;
        }
        threshold
    }

    /// The share of all reads that go to the hottest `capacity` extents, from 0 to 1. Extents of no place's worth count as
    /// read, and get none.
    pub fn share(&self, capacity: u64) -> f64 {
        let all: u64 = self.weights().map(|(_, weight)| weight).sum();
        if all == 0 {
            return 0.0;
        }
        let mut left = capacity;
        let mut served = 0;
        for (heat, _) in self.weights().rev() {
            if heat < HEAT_MIN {
                break;
            }
            let placed = self.extents[usize::from(heat)].min(left);
            left -= placed;
            served += placed * u64::from(heat);
        }
        precise(served) / precise(all)
    }

    /// What each size gains, if sparing all counted reads gains `all`: the points at which a heat fits as a whole.
    pub fn curve(&self, extent_bytes: u64, all: f64) -> Curve {
        let mut extents = 0;
        let mut points = Vec::new();
        for heat in (HEAT_MIN..=HEAT_MAX).rev() {
            let count = self.extents[usize::from(heat)];
            extents += count;
            if count > 0 {
                points.push(Point {
                    bytes: extents.saturating_mul(extent_bytes),
                    gain: all * self.share(extents),
                });
            }
        }
        Curve { points }
    }

    fn weights(&self) -> impl DoubleEndedIterator<Item = (u8, u64)> {
        (0..=HEAT_MAX)
            .zip(self.extents)
            .map(|(heat, extents)| (heat, extents * u64::from(heat)))
    }
}

/// Whether an extent of heat `newcomer` takes the place of one of heat `present`. The newcomer has to be hotter by some part:
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
            histogram.add(*heat);
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
        assert_eq!(heats.warm(), 7);
    }

    #[test]
    fn a_curve_ends_with_all_that_deserves_a_place() {
        let curve = histogram(&[8, 4, 4, 1]).curve(10, 17.0);
        let points: Vec<_> = curve.points.iter().map(|it| (it.bytes, it.gain)).collect();
        assert_eq!(points, [(10, 8.0), (30, 16.0)]);
        assert!(histogram(&[1, 1, 0]).curve(10, 5.0).points.is_empty());
        assert!(histogram(&[]).share(5).abs() < 1e-12);
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
        /// Against sorting.
        #[test]
        fn the_share_is_that_of_the_hottest(heats in prop::collection::vec(0..=HEAT_MAX, 0..60), capacity in 0..70_usize) {
            let mut sorted = heats.clone();
            sorted.sort_unstable_by(|one, other| other.cmp(one));
            let all: u64 = heats.iter().map(|it| u64::from(*it)).sum();
            let placed = sorted.iter().filter(|it| **it >= HEAT_MIN).take(capacity);
            let served: u64 = placed.map(|it| u64::from(*it)).sum();
            let right = if all == 0 { 0.0 } else { precise(served) / precise(all) };
            let found = histogram(&heats);
            prop_assert!((found.share(capacity as u64) - right).abs() < 1e-12);
            let threshold = found.threshold(capacity as u64);
            let above = heats.iter().filter(|it| **it >= threshold).count();
            prop_assert!(above <= capacity || threshold == HEAT_MAX);
        }
    }
}
