//! What is counted and timed while the city runs.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// Longer than any operation may take (nanoseconds): 10 minutes.
const LONGEST_NS: u64 = 600_000_000_000;

/// The kinds of queries.
pub(crate) const QUERIES: [&str; 3] = ["latest", "range", "windows"];

/// How long operations took.
#[derive(Debug, Clone)]
pub(crate) struct Latency(Histogram<u64>);

/// A latency's figures (microseconds).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Percentiles {
    /// How many operations.
    pub(crate) count: u64,
    /// The median.
    pub(crate) p50_us: f64,
    /// 99 of 100 are faster.
    pub(crate) p99_us: f64,
    /// 999 of 1,000 are faster.
    pub(crate) p999_us: f64,
    /// The slowest.
    pub(crate) max_us: f64,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Self(histogram.expect("constant bounds in order, and 3 digits"))
    }
}

impl Latency {
    /// One operation took so long.
    #[inline]
    pub(crate) fn record(&mut self, elapsed: Duration) {
        let elapsed = u64::try_from(elapsed.as_nanos()).unwrap_or(LONGEST_NS);
        self.0.saturating_record(elapsed.max(1));
    }

    fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("they have the same bounds");
    }

    /// Its figures.
    pub(crate) fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        Percentiles {
            count: self.0.len(),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.0.max() as f64 / 1e3,
        }
    }
}

/// Counts of what was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    /// Readings that vehicles sent.
    pub(crate) readings: u64,
    /// Their keys' and values' bytes.
    pub(crate) reading_bytes: u64,
    /// Continuing leavings.
    pub(crate) hand_offs: u64,
    /// Readings that went along.
    pub(crate) handed_records: u64,
    /// Their keys' and values' bytes.
    pub(crate) handed_bytes: u64,
    /// True departures.
    pub(crate) departures: u64,
    /// Vehicles that were sent to the tree.
    pub(crate) settled: u64,
    /// Readings that queries answered with.
    pub(crate) answered_rows: u64,
    /// Queries that were watched for reading storage, one of 16.
    pub(crate) watched_queries: u64,
    /// Of them, those that did.
    pub(crate) storage_queries: u64,
}

/// Counts and times of one worker, or of all, for some time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meters {
    pub(crate) counts: Counts,
    pub(crate) put: Latency,
    pub(crate) hand_off: Latency,
    pub(crate) depart: Latency,
    pub(crate) settle: Latency,
    pub(crate) queries: [Latency; QUERIES.len()],
    /// Time that the audit took, all threads together.
    pub(crate) audit: Duration,
}

impl Meters {
    /// Takes in what another has counted.
    pub(crate) fn add(&mut self, other: &Self) {
        self.counts += other.counts;
        self.put.add(&other.put);
        self.hand_off.add(&other.hand_off);
        self.depart.add(&other.depart);
        self.settle.add(&other.settle);
        for (mine, theirs) in self.queries.iter_mut().zip(&other.queries) {
            mine.add(theirs);
        }
        self.audit += other.audit;
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.readings += other.readings;
        self.reading_bytes += other.reading_bytes;
        self.hand_offs += other.hand_offs;
        self.handed_records += other.handed_records;
        self.handed_bytes += other.handed_bytes;
        self.departures += other.departures;
        self.settled += other.settled;
        self.answered_rows += other.answered_rows;
        self.watched_queries += other.watched_queries;
        self.storage_queries += other.storage_queries;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meters_add_up() {
        let mut all = Meters::default();
        for micros in 1..=1_000 {
            let mut one = Meters::default();
            one.put.record(Duration::from_micros(micros));
            one.counts.readings = 1;
            one.counts.reading_bytes = 200;
            all.add(&one);
        }
        let put = all.put.percentiles();
        assert_eq!((put.count, all.counts.readings), (1_000, 1_000));
        assert_eq!(all.counts.reading_bytes, 200_000);
        assert!(
            (put.p50_us - 500.0).abs() < 2.0 && (put.p99_us - 990.0).abs() < 2.0,
            "{put:?}"
        );
        assert!((put.max_us - 1_000.0).abs() < 2.0);
        assert_eq!(Latency::default().percentiles(), Percentiles::default());
    }
}
