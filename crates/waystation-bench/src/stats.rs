//! The middle of a few figures, and how sure it is.

use crate::workload::Random;

/// How often the figures are drawn anew.
const RESAMPLES: usize = 10_000;
const SEED: u32 = 301;

/// The position of the median in the order of `key`: the lower of the two middle ones if the number is even,
/// so that it is always one of them. Nothing for an empty list.
pub(crate) fn median_index<T>(items: &[T], key: impl Fn(&T) -> f64) -> Option<usize> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|a, b| key(&items[*a]).total_cmp(&key(&items[*b])));
    order.get(items.len().saturating_sub(1) / 2).copied()
}

/// The median; the mean of the two middle figures if the number is even. 0 for an empty list.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        length if length.is_multiple_of(2) => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

/// The 95 % interval of the median, by the bootstrap: the figures are drawn again and again from themselves,
/// and the middle 95 % of the medians are the interval. The same figures give the same interval.
pub(crate) fn median_interval(figures: &[f64]) -> (f64, f64) {
    if figures.is_empty() {
        return (0.0, 0.0);
    }
    let mut random = Random::new(SEED);
    let count = u32::try_from(figures.len()).unwrap_or(u32::MAX);
    let mut resample = || -> Vec<f64> {
        (0..count)
            .map(|_| figures[random.uniform(count) as usize])
            .collect()
    };
    let mut medians: Vec<f64> = (0..RESAMPLES).map(|_| median(&resample())).collect();
    medians.sort_by(f64::total_cmp);
    (
        medians[RESAMPLES / 40],
        medians[RESAMPLES - 1 - RESAMPLES / 40],
    )
}

/// What a ratio (subject over baseline, larger is better) says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// The whole interval lies above 1.
    Faster,
    /// The interval holds 1, or lies between the floor and 1.
    Level,
    /// The whole interval lies below the floor.
    Below,
}

impl Verdict {
    /// The verdict on the interval `low..=high` against `floor`.
    pub(crate) fn of((low, high): (f64, f64), floor: f64) -> Self {
        if low > 1.0 {
            Self::Faster
        } else if high < floor {
            Self::Below
        } else {
            Self::Level
        }
    }

    /// In a word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Level => "level",
            Self::Below => "below",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_run_is_one_of_the_runs() {
        let key = |figure: &f64| *figure;
        assert_eq!(median_index(&[], key), None);
        assert_eq!(median_index(&[5.0], key), Some(0));
        assert_eq!(median_index(&[3.0, 1.0, 2.0], key), Some(2));
        assert_eq!(median_index(&[4.0, 3.0, 1.0, 2.0], key), Some(3));
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert!((median(&[4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < 1e-12);
        assert!((median(&[3.0, 1.0, 9.0]) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn the_interval_of_five_is_their_range_and_the_same_each_time() {
        let ratios = [1.10, 1.02, 1.31, 1.25, 1.07];
        let interval = median_interval(&ratios);
        assert_eq!(interval, (1.02, 1.31));
        assert_eq!(interval, median_interval(&ratios));
    }

    #[test]
    fn the_interval_of_many_is_narrower_than_their_range() {
        let mut random = Random::new(7);
        let figures: Vec<f64> = (0..101).map(|_| f64::from(random.uniform(1000))).collect();
        let (low, high) = median_interval(&figures);
        let middle = median(&figures);
        assert!(
            low > 100.0 && low < middle && middle < high && high < 900.0,
            "{low} {high}"
        );
    }

    #[test]
    fn verdicts_are_about_the_whole_interval() {
        assert_eq!(Verdict::of((1.01, 1.2), 0.95), Verdict::Faster);
        assert_eq!(Verdict::of((0.90, 1.2), 0.95), Verdict::Level);
        assert_eq!(Verdict::of((0.90, 0.96), 0.95), Verdict::Level);
        assert_eq!(Verdict::of((0.90, 0.94), 0.95), Verdict::Below);
    }
}
