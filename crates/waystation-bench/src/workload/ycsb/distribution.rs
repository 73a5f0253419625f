//! Which record: Zipf's law as YCSB draws from it, and what YCSB makes of it.
//!
//! The popularity of the record of rank r is proportional to 1 / r^0.99. *Zipfian* workloads draw a rank out of 10^10 and
//! scatter it over the records by a hash, so that the popular ones lie apart, and so that which ones they are does not depend on how
//! many records there are. *Latest* counts ranks back from the last record that was inserted.
//!
//! Source: Gray, Sundaresan, Englert, Baclawski, Weinberger, "Quickly generating billion-record synthetic databases",
//! SIGMOD 1994; YCSB, `ZipfianGenerator`, `ScrambledZipfianGenerator`, `SkewedLatestGenerator`.

use super::record;

/// How uneven.
const THETA: f64 = 0.99;
/// Ranks that are scattered over the records.
const SCATTERED_RANKS: u64 = 10_000_000_000;
/// The sum of 1 / r^0.99 over these.
const SCATTERED_ZETA: f64 = 26.469_028_201_783_02;

/// Uniform numbers of 64 bits: `SplitMix64`.
#[derive(Debug, Clone)]
pub(crate) struct Uniform(u64);

impl Uniform {
    /// The same numbers for the same seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// From 0 to less than 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Ranks by Zipf's law, from 0, of a number of items that may grow.
#[derive(Debug, Clone)]
struct Zipf {
    items: u64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    fn new(items: u64) -> Self {
        Self::with_zeta(items, zeta(0..items))
    }

    fn with_zeta(items: u64, zeta_of_items: f64) -> Self {
        let eta =
            (1.0 - (2.0 / items as f64).powf(1.0 - THETA)) / (1.0 - zeta(0..2) / zeta_of_items);
        Self {
            items,
            zeta: zeta_of_items,
            eta,
        }
    }

    /// Of `items` from now on, which are no fewer than before.
    fn grow(&mut self, items: u64) {
        if items > self.items {
            *self = Self::with_zeta(items, self.zeta + zeta(self.items..items));
        }
    }

    #[expect(clippy::cast_sign_loss, reason = "a rank is not negative")]
    fn draw(&self, random: &mut Uniform) -> u64 {
        let share = random.share();
        let scaled = share * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(THETA) {
            return 1;
        }
        let rank = (self.eta * share - self.eta + 1.0).powf(1.0 / (1.0 - THETA));
        ((self.items as f64 * rank) as u64).min(self.items - 1)
    }
}

/// The sum of 1 / r^0.99 over some ranks, counted from 0.
fn zeta(ranks: std::ops::Range<u64>) -> f64 {
    ranks.map(|rank| ((rank + 1) as f64).powf(-THETA)).sum()
}

/// Whose turn it is.
#[derive(Debug, Clone)]
pub(crate) struct Chooser(Choice);

#[derive(Debug, Clone)]
enum Choice {
    Scattered { zipf: Zipf, over: u64 },
    Latest(Zipf),
}

impl Chooser {
    /// Records of all ages, by a scattered Zipf's law, while their number grows from `records` by some `inserts`: twice
    /// as many are reckoned with, so that the popular ones stay the same.
    pub(crate) fn zipfian(records: u64, inserts: u64) -> Self {
        Self(Choice::Scattered {
            zipf: Zipf::with_zeta(SCATTERED_RANKS, SCATTERED_ZETA),
            over: records + 2 * inserts + 1,
        })
    }

    /// The younger the likelier.
    pub(crate) fn latest(records: u64) -> Self {
        Self(Choice::Latest(Zipf::new(records)))
    }

    /// A record's number, `records` being there.
    pub(crate) fn choose(&mut self, records: u64, random: &mut Uniform) -> u64 {
        match &mut self.0 {
            Choice::Scattered { zipf, over } => loop {
                let number = record::hash(zipf.draw(random)) % *over;
                if number < records {
                    return number;
                }
            },
            Choice::Latest(zipf) => {
                zipf.grow(records);
                records - 1 - zipf.draw(random).min(records - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const DRAWS: u32 = 400_000;

    fn counts(mut draw: impl FnMut() -> u64) -> HashMap<u64, u32> {
        let mut counts = HashMap::new();
        for _ in 0..DRAWS {
            *counts.entry(draw()).or_default() += 1;
        }
        counts
    }

    #[test]
    fn the_known_sum_is_that_of_its_law() {
        // The sum of the first million, and the integral of the rest.
        let rest = |from: f64, to: f64| (to.powf(0.01) - from.powf(0.01)) / 0.01;
        let sum = zeta(0..1_000_000) + rest(1_000_000.5, SCATTERED_RANKS as f64 + 0.5);
        assert!((sum / SCATTERED_ZETA - 1.0).abs() < 1e-4, "{sum}");
    }

    #[test]
    fn ranks_have_the_share_that_the_law_gives_them() {
        let mut random = Uniform::new(1);
        for items in [1000, 100_000] {
            let zipf = Zipf::new(items);
            let counts = counts(|| zipf.draw(&mut random));
            assert!(counts.keys().all(|rank| *rank < items));
            // Gray's formula is exact for the first two, and an approximation after them.
            for (rank, tolerance) in [(0u64, 0.03), (1, 0.05), (9, 0.25), (99, 0.25)] {
                let expected = f64::from(DRAWS) / ((rank + 1) as f64).powf(THETA) / zipf.zeta;
                let seen = f64::from(counts.get(&rank).copied().unwrap_or(0));
                assert!(
                    (seen / expected - 1.0).abs() < tolerance,
                    "{rank}: {seen} {expected}"
                );
            }
        }
    }

    #[test]
    fn a_law_that_has_grown_is_that_of_all_items() {
        let mut grown = Zipf::new(1000);
        grown.grow(1500);
        grown.grow(1200);
        let whole = Zipf::new(1500);
        assert_eq!(grown.items, 1500);
        assert!((grown.zeta - whole.zeta).abs() < 1e-9 && (grown.eta - whole.eta).abs() < 1e-9);
    }

    #[test]
    fn popular_records_lie_apart_and_stay_popular_when_records_are_added() {
        let mut random = Uniform::new(7);
        let mut chooser = Chooser::zipfian(10_000, 500);
        let before = counts(|| chooser.choose(10_000, &mut random));
        let after = counts(|| chooser.choose(10_400, &mut random));
        let most = |counts: &HashMap<u64, u32>| {
            let mut numbers: Vec<u64> = counts.keys().copied().collect();
            numbers.sort_by_key(|number| std::cmp::Reverse(counts[number]));
            numbers.truncate(3);
            numbers
        };
        assert_eq!(most(&before), most(&after));
        assert!(before.keys().all(|number| *number < 10_000));
        assert!(after.keys().any(|number| *number >= 10_000));
        // The most popular of 10^10 ranks has 1 / 26.469 of all.
        let top = f64::from(before[&most(&before)[0]]) / f64::from(DRAWS);
        assert!((top * SCATTERED_ZETA - 1.0).abs() < 0.1, "{top}");
        let numbers = most(&before);
        assert!(numbers[0].abs_diff(numbers[1]) > 1);
    }

    #[test]
    fn the_youngest_is_the_most_popular_of_the_latest() {
        let mut random = Uniform::new(7);
        let mut chooser = Chooser::latest(1000);
        let counts = counts(|| chooser.choose(2000, &mut random));
        let youngest = counts[&1999];
        assert!(counts.values().all(|count| *count <= youngest));
        assert!(counts.keys().all(|number| *number < 2000));
        let expected = f64::from(DRAWS) / zeta(0..2000);
        assert!(
            (f64::from(youngest) / expected - 1.0).abs() < 0.03,
            "{youngest} {expected}"
        );
    }
}
