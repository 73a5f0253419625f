//! Turns of the processors among the threads that write.
//!
//! The kernel takes the processor from a busy thread after milliseconds, which are thousands of writes. Where more threads write
//! than there are processors, a write that has to wait for one would wait that long for each of the others. There a writer
//! lets other threads run after a few operations, and after each batch that has as many. Where fewer write, none does: the
//! thread that ran instead could be one of the background, and hold the writer up.

use crate::storage::processors;
use std::ops::Range;
use std::ptr;

/// The write with one in so many operations lets other threads run.
const YIELD_EVERY: u64 = 16;
/// Writers are counted over so many writes: more than a busy thread does before another one runs.
const WINDOW: u64 = 4096;

thread_local! {
    /// Its address tells threads apart.
    static PLACE: u8 = const { 0 };
}

/// The threads that have written lately, guarded by the front's lock. Each has one of 64 bits, which few threads share; so none
/// yields on a machine of 64 processors or more.
#[derive(Debug)]
pub(super) struct Turns {
    processors: u32,
    /// In this window of writes, and in the last one.
    writers: [u64; 2],
}

impl Turns {
    pub(super) fn new() -> Self {
        Self::on(u32::try_from(processors()).unwrap_or(u32::MAX))
    }

    pub(super) fn on(processors: u32) -> Self {
        Self {
            processors,
            writers: [0; 2],
        }
    }

    /// Notes that this thread makes the write with `ticket`, of the operations with these `sequences`. Whether it is to let other
    /// threads run afterwards.
    #[inline]
    pub(super) fn note(&mut self, ticket: u64, sequences: Range<u64>) -> bool {
        self.note_of(bit(), ticket, sequences)
    }

    fn note_of(&mut self, bit: u64, ticket: u64, sequences: Range<u64>) -> bool {
        if ticket.is_multiple_of(WINDOW) {
            self.writers = [0, self.writers[0]];
        }
        self.writers[0] |= bit;
        let [now, before] = self.writers;
        let is_turn = sequences.start / YIELD_EVERY != sequences.end / YIELD_EVERY;
        is_turn && (now | before).count_ones() > self.processors
    }
}

/// The bit of this thread.
fn bit() -> u64 {
    let address = PLACE.with(|place| ptr::from_ref(place).addr()) as u64;
    // Threads lie a multiple of pages apart; the product's first bits depend on all of the address.
    let hash = (address >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    1 << (hash >> 58)
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn writers_yield_where_they_are_more_than_processors() {
        let mut turns = Turns::on(2);
        let yields = |turns: &mut Turns, tickets: Range<u64>, writers: u64| {
            let yields =
                |ticket: &u64| turns.note_of(1 << (ticket % writers), *ticket, *ticket..ticket + 1);
            tickets.filter(yields).count() as u64
        };
        assert_eq!(yields(&mut turns, 0..WINDOW, 1), 0);
        assert_eq!(yields(&mut turns, WINDOW..2 * WINDOW, 2), 0);
        let crowded = yields(&mut turns, 2 * WINDOW..3 * WINDOW, 3);
        assert!(crowded + 1 >= WINDOW / YIELD_EVERY, "{crowded}");
        assert!(crowded <= WINDOW / YIELD_EVERY, "{crowded}");
        // Two of them have ended: it takes a window to see that.
        yields(&mut turns, 3 * WINDOW..4 * WINDOW, 1);
        assert_eq!(yields(&mut turns, 4 * WINDOW..6 * WINDOW, 1), 0);
    }

    #[test]
    fn writers_of_long_batches_yield_after_each() {
        let mut turns = Turns::on(2);
        for (operations, one_in) in [(YIELD_EVERY, 1), (1000, 1), (YIELD_EVERY / 2, 2)] {
            let writes = 120;
            let yields = |ticket: &u64| {
                let start = ticket * operations;
                turns.note_of(1 << (ticket % 12), *ticket, start..start + operations)
            };
            let yielded = (0..writes).filter(yields).count() as u64;
            assert!(yielded + 2 >= writes / one_in, "{yielded} of {operations}");
            assert!(yielded <= writes / one_in, "{yielded} of {operations}");
        }
    }

    #[test]
    fn threads_that_live_together_differ() {
        const THREADS: usize = 16;
        let met = Barrier::new(THREADS);
        let bits = thread::scope(|scope| {
            let of_one = || {
                met.wait();
                assert_eq!(bit(), bit(), "a thread keeps its bit");
                bit()
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(of_one)).collect();
            let bits = threads.into_iter().map(|it| it.join().unwrap());
            bits.fold(0, |all, bit| all | bit)
        });
        // 14 on average, if chance decides.
        assert!(bits.count_ones() >= 8, "{bits:b}");
    }
}
