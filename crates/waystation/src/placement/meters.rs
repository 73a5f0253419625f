//! How long reads take, by area and by where the bytes came from: what the gain is reckoned from.
//!
//! Only reads that a caller waits for count. A read of the main directory is *slow* if it took longer than memory takes;
//! what is not slow came from the page cache, and a fast tier would not spare it.

use crate::storage::Area;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A read of the main directory that takes longer than so many reads of the fast one is slow ...
const SLOW_TIMES: u64 = 3;
/// ... within these limits (nanoseconds).
const SLOW_NS: (u64, u64) = (10_000, 1_000_000);
/// What a read of the fast directory is taken to need until there were some (nanoseconds).
const FAST_NS_AT_FIRST: u64 = 3_000;

/// Reads, and how long they took.
#[derive(Debug, Default)]
pub(super) struct Reads {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Reads {
    pub(super) fn note(&self, elapsed: Duration) {
        self.count.fetch_add(1, Relaxed);
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    pub(super) fn seconds(&self) -> f64 {
        Duration::from_nanos(self.nanos.load(Relaxed)).as_secs_f64()
    }

    /// How long one took, on average.
    pub(super) fn mean_ns(&self) -> Option<u64> {
        self.nanos.load(Relaxed).checked_div(self.count())
    }
}

/// The reads of one area.
#[derive(Debug, Default)]
pub(super) struct AreaReads {
    /// From the fast directory.
    pub(super) fast: Reads,
    /// From the main directory, slowly.
    pub(super) slow: Reads,
    /// From the main directory, as memory serves them.
    pub(super) cached: Reads,
}

impl AreaReads {
    /// What the fast directory has spared so far, in seconds: each of its reads would have been a slow one.
    pub(super) fn saved_seconds(&self) -> f64 {
        let slow = self.slow.mean_ns().unwrap_or(0);
        let without = Duration::from_nanos(slow.saturating_mul(self.fast.count()));
        (without.as_secs_f64() - self.fast.seconds()).max(0.0)
    }
}

/// The reads of the areas that have a place in the fast tier.
#[derive(Debug, Default)]
pub(super) struct Meters {
    tables: AreaReads,
    spill: AreaReads,
    /// From here on a read is slow (nanoseconds); 0: not known yet.
    slow_from: AtomicU64,
}

impl Meters {
    pub(super) fn of(&self, area: Area) -> &AreaReads {
        match area {
            Area::Spill => &self.spill,
            Area::Tables | Area::Journal | Area::Copies => &self.tables,
        }
    }

    /// Both areas.
    pub(super) fn areas(&self) -> [(Area, &AreaReads); 2] {
        [(Area::Tables, &self.tables), (Area::Spill, &self.spill)]
    }

    /// Notes a read of the main directory, and says whether it was slow.
    pub(super) fn note_main(&self, area: Area, elapsed: Duration) -> bool {
        let from = match self.slow_from.load(Relaxed) {
            0 => self.look(),
            from => from,
        };
        let is_slow = elapsed.as_nanos() >= u128::from(from);
        let reads = self.of(area);
        if is_slow { &reads.slow } else { &reads.cached }.note(elapsed);
        is_slow
    }

    /// Finds out anew from where on a read is slow.
    pub(super) fn look(&self) -> u64 {
        let fast = self.fast_mean_ns().unwrap_or(FAST_NS_AT_FIRST);
        let from = (fast * SLOW_TIMES).clamp(SLOW_NS.0, SLOW_NS.1);
        self.slow_from.store(from, Relaxed);
        from
    }

    /// Reads of copies, and slow ones.
    pub(super) fn counts(&self) -> (u64, u64) {
        let areas = self.areas();
        let sum = |of: fn(&AreaReads) -> u64| areas.iter().map(|(_, reads)| of(reads)).sum();
        (
            sum(|reads| reads.fast.count()),
            sum(|reads| reads.slow.count()),
        )
    }

    pub(super) fn fast_mean_ns(&self) -> Option<u64> {
        mean(self.areas().map(|(_, reads)| &reads.fast))
    }

    pub(super) fn slow_mean_ns(&self) -> Option<u64> {
        mean(self.areas().map(|(_, reads)| &reads.slow))
    }
}

fn mean(reads: [&Reads; 2]) -> Option<u64> {
    let nanos: u64 = reads.iter().map(|it| it.nanos.load(Relaxed)).sum();
    nanos.checked_div(reads.iter().map(|it| it.count()).sum())
}

/// A count as a float.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts are far below 2^52, and the mean is for comparing"
)]
pub(super) fn precise(count: u64) -> f64 {
    count as f64
}
