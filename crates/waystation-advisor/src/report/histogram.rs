//! Counts by value, 16 classes per power of two: quantiles are right within 6 %.

use super::Quantiles;

const CLASSES: usize = 64 * 16;

/// The counts.
pub(super) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self {
            counts: vec![0; CLASSES],
            total: 0,
        }
    }

    fn class(value: u64) -> usize {
        if value < 16 {
            return value as usize;
        }
        let power = 63 - value.leading_zeros() as usize;
        (power - 3) * 16 + ((value >> (power - 4)) & 15) as usize
    }

    /// The middle of a class.
    fn value(class: usize) -> u64 {
        if class < 16 {
            return class as u64;
        }
        let power = class / 16 + 3;
        let step = 1_u64 << (power - 4);
        (1_u64 << power) + (class % 16) as u64 * step + step / 2
    }

    #[inline]
    pub(super) fn add(&mut self, value: u64) {
        self.counts[Self::class(value)] += 1;
        self.total += 1;
    }

    pub(super) fn quantile(&self, share: f64) -> u64 {
        let rank = (self.total as f64 * share) as u64;
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen > rank {
                return Self::value(class);
            }
        }
        0
    }

    pub(super) fn quantiles(&self) -> Quantiles {
        Quantiles {
            p50: self.quantile(0.5),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
        }
    }
}
