//! Which part of the ring to prepare next, so that writers find its pages ready.
//!
//! The first store to a page takes as long as ten records, and the kernel, which writes the ring's file back now and then,
//! makes the next one a first one again. It is not left to writers, all of whom wait for the one that is held up. But a page
//! that is prepared is written back, too: so only for writers that are faster than the kernel.

use std::ops::Range;
use std::time::Duration;

/// It is looked again after so much was written (bytes).
const STEP_BYTES: u64 = 256 * 1024;
/// A step that took longer was slow.
const QUICK: Duration = Duration::from_secs(1);

/// How far the ring is prepared.
pub(super) struct Prepared {
    lsn: u64,
    /// Where and when (by the storage's clock) the last step ended.
    stepped: (u64, Duration),
}

impl Prepared {
    /// For a log that goes on at `lsn`; it is `now`.
    pub(super) fn new(lsn: u64, now: Duration) -> Self {
        Self {
            lsn,
            stepped: (lsn, now),
        }
    }

    /// What to prepare when the log was written up to `written`, `now`, to be `ahead` bytes ahead. Mostly nothing.
    pub(super) fn next(&mut self, written: u64, ahead: u64, now: Duration) -> Range<u64> {
        let (from, since) = self.stepped;
        // Writes may end in another order than they began.
        if written < from + STEP_BYTES.min(ahead) {
            return written..written;
        }
        self.stepped = (written, now);
        let end = written + ahead;
        let start = self.lsn.clamp(written, end);
        if now.saturating_sub(since) > QUICK {
            return written..written;
        }
        self.lsn = end;
        start..end
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    const AHEAD: u64 = 4 << 20;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn what_is_written_fast_is_prepared_once() {
        let mut prepared = Prepared::new(1000, at(0));
        assert!(prepared.next(2000, AHEAD, at(1)).is_empty());
        let first = 1000 + STEP_BYTES;
        assert_eq!(prepared.next(first, AHEAD, at(2)), first..first + AHEAD);
        let second = first + STEP_BYTES;
        let third = second + STEP_BYTES;
        assert_eq!(
            prepared.next(third, AHEAD, at(3)),
            first + AHEAD..third + AHEAD
        );
        assert!(
            prepared.next(second, AHEAD, at(4)).is_empty(),
            "it was late"
        );
        let far = third + 2 * AHEAD;
        assert_eq!(prepared.next(far, AHEAD, at(5)), far..far + AHEAD);
    }

    #[test]
    fn what_is_written_slowly_is_not() {
        let mut prepared = Prepared::new(0, at(0));
        for step in 1..10 {
            let now = at(step * 1500);
            assert!(prepared.next(step * STEP_BYTES, AHEAD, now).is_empty());
        }
        let burst = 10 * STEP_BYTES;
        assert_eq!(
            prepared.next(burst, AHEAD, at(9 * 1500 + 10)),
            burst..burst + AHEAD
        );
    }
}
