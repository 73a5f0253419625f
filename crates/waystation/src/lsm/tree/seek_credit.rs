//! What readers have paid towards compactions.
//!
//! A cursor that is sent to a key has to look into every table of level 0 and every level. Each place beyond the
//! first costs a block read, which is time that a merge of the places would have saved. [`SEEK_BYTES`] is what a
//! disk or a processor merges in about that time (LevelDB's estimate: one seek costs as much as merging 40 KB,
//! and it allows a compaction after one seek for every 16 KB). Once what was paid covers a merge, it is worth it.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The bytes that could have been merged in the time of a look into one place.
const SEEK_BYTES: u64 = 16 * 1024;
/// Compactors are told each time that so much more was paid.
const WORTH_TELLING: u64 = 4096 * SEEK_BYTES;
/// No more than this is kept, so that a long time of reading does not pay for writes to come.
const MAX_BYTES: u64 = 1 << 30;

/// What readers have paid and no merge has used up.
#[derive(Debug, Default)]
pub(crate) struct SeekCredit {
    bytes: AtomicU64,
}

impl SeekCredit {
    /// A reader looked into `places` that it would not have had to; whether compactors should be told.
    pub(crate) fn add(&self, places: u64) -> bool {
        let added = places * SEEK_BYTES;
        let before = self.bytes.load(Relaxed);
        if added == 0 || before >= MAX_BYTES {
            return false;
        }
        let before = self.bytes.fetch_add(added, Relaxed);
        before / WORTH_TELLING != (before + added) / WORTH_TELLING
    }

    /// What there is.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// A merge of `bytes` begins. Called in one critical section by all.
    pub(super) fn pay(&self, bytes: u64) {
        let paid = self.bytes.load(Relaxed).min(bytes);
        self.bytes.fetch_sub(paid, Relaxed);
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_paid_is_told_now_and_then_and_used_up_by_merges() {
        let seek_credit = SeekCredit::default();
        let told = (0..3 * 4096).filter(|_| seek_credit.add(1)).count();
        assert_eq!(told, 3);
        assert_eq!(seek_credit.bytes(), 3 * WORTH_TELLING);
        seek_credit.pay(WORTH_TELLING);
        assert_eq!(seek_credit.bytes(), 2 * WORTH_TELLING);
        seek_credit.pay(u64::MAX);
        assert_eq!(seek_credit.bytes(), 0);
        assert!(!seek_credit.add(0));
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let seek_credit = SeekCredit::default();
        while seek_credit.bytes() < MAX_BYTES {
            seek_credit.add(1000);
        }
        seek_credit.add(1000);
        assert!(seek_credit.bytes() < MAX_BYTES + 1000 * SEEK_BYTES);
    }
}
