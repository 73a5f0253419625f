//! What a run did, over all seeds.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) process_deaths: AtomicU64,
    pub(crate) power_cuts: AtomicU64,
    pub(crate) closes: AtomicU64,
    /// Calls of the storage that were made to fail.
    pub(crate) faults: AtomicU64,
    /// Batches that were found again and compared.
    pub(crate) batches: AtomicU64,
    /// Steps of two edges.
    pub(crate) steps: AtomicU64,
}

impl Tally {
    pub(crate) fn summary(&self) -> String {
        let of = |counter: &AtomicU64| counter.load(SeqCst);
        let (deaths, cuts) = (of(&self.process_deaths), of(&self.power_cuts));
        format!(
            "{} crashes ({deaths} of the process, {cuts} of the power), {} closes, {} failed calls, {} batches, {} steps of hand-offs",
            deaths + cuts,
            of(&self.closes),
            of(&self.faults),
            of(&self.batches),
            of(&self.steps)
        )
    }
}
