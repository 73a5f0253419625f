//! Publication: writers finish in any order, their writes become visible in one.
//!
//! ```text
//! ticket    7     8     9     10    11        head = 8: everything below is finished
//! slot    done  open  done  done  open        ticket 8 finishing publishes 8, 9 and 10 at once
//! ```
//!
//! Each reservation holds a ticket; tickets are handed out in the order of LSN and sequence. A finished
//! writer marks its slot; the writer that finds the slot at the head finished moves the head on, for itself and for
//! those behind it. No thread waits under a lock.
//!
//! **Acknowledged before visible.** A writer whose predecessor still copies does not wait for it: one preempted writer
//! would hold up all. It raises the *acknowledged* watermark and returns. A reader waits instead, and only while an
//! acknowledged write is not visible (papers: Pebble's commit pipeline, which waits in the writer). So each read sees a
//! prefix of the order that holds every write acknowledged before it.
//!
//! Invariants: `visible_sequence` and `copied_lsn` never pass a ticket that is not finished; what is acknowledged is
//! finished.

use crate::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use crate::sync::{Condvar, Mutex, hint, lock, raise, wait};

/// How often a thread looks again before it sleeps: about as long as a neighbour's copy takes. It does not yield: a
/// thread that does gives the rest of its time slice away, which takes as long as a sleep at least, and as many
/// milliseconds where others are busy.
const SPINS: usize = 64;

#[derive(Default)]
struct Slot {
    /// The ticket that finished here, plus one.
    finished: AtomicU64,
    end_lsn: AtomicU64,
    last_sequence: AtomicU64,
}

/// A place to wait for the watermarks.
struct Waiting {
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    woken: Condvar,
}

/// The order of publication and the watermarks it moves.
pub(crate) struct Publication {
    /// A power of two of them.
    slots: Box<[Slot]>,
    head: AtomicU64,
    copied_lsn: AtomicU64,
    visible_sequence: AtomicU64,
    /// The highest sequence number of a write that was acknowledged before it was visible.
    acknowledged: AtomicU64,
    waiting: Waiting,
}

impl Waiting {
    fn new() -> Self {
        Self {
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    fn until(&self, reached: impl Fn() -> bool) {
        for _ in 0..SPINS {
            if reached() {
                return;
            }
            hint::spin_loop();
        }
        self.sleepers.fetch_add(1, SeqCst);
        let mut guard = lock(&self.sleep);
        while !reached() {
            guard = wait(&self.woken, guard);
        }
        drop(guard);
        self.sleepers.fetch_sub(1, SeqCst);
    }

    /// Lets those here look again. What they wait for was stored before: either it is seen here that they sleep, or they
    /// see, on their way to sleep, what was stored.
    fn wake(&self) {
        if self.sleepers.load(SeqCst) > 0 {
            drop(lock(&self.sleep));
            self.woken.notify_all();
        }
    }
}

impl Publication {
    /// Nothing open; everything up to `copied_lsn` and `visible_sequence` published. At least `open` reservations can be
    /// open at once.
    pub(crate) fn new(copied_lsn: u64, visible_sequence: u64, open: usize) -> Self {
        let slots = (0..open.next_power_of_two()).map(|_| Slot::default());
        Self {
            slots: slots.collect(),
            head: AtomicU64::new(0),
            copied_lsn: AtomicU64::new(copied_lsn),
            visible_sequence: AtomicU64::new(visible_sequence),
            acknowledged: AtomicU64::new(0),
            waiting: Waiting::new(),
        }
    }

    /// The highest sequence number of which it and all before it are finished.
    pub(crate) fn visible_sequence(&self) -> u64 {
        self.visible_sequence.load(SeqCst)
    }

    /// All bytes of the log below this position have been copied.
    pub(crate) fn copied_lsn(&self) -> u64 {
        self.copied_lsn.load(SeqCst)
    }

    /// Whether a further ticket would meet a slot still in use.
    pub(crate) fn is_full(&self, ticket: u64) -> bool {
        ticket - self.head.load(SeqCst) >= self.slots.len() as u64
    }

    /// A writer alone at the head reports progress within its own long record, so that the log can make room
    /// for the rest of it.
    pub(crate) fn copied_so_far(&self, ticket: u64, lsn: u64) {
        assert_eq!(
            self.head.load(SeqCst),
            ticket,
            "only the head reports progress"
        );
        raise(&self.copied_lsn, lsn);
    }

    /// Waits until everything before `ticket` is published.
    pub(crate) fn wait_for_turn(&self, ticket: u64) {
        self.waiting.until(|| self.head.load(SeqCst) >= ticket);
    }

    /// Marks `ticket`, whose last operation has `last_sequence`, finished; publishes whatever is finished from the head on.
    pub(crate) fn finish(&self, ticket: u64, end_lsn: u64, last_sequence: u64) {
        let slot = self.slot(ticket);
        slot.end_lsn.store(end_lsn, Relaxed);
        slot.last_sequence.store(last_sequence, Relaxed);
        slot.finished.store(ticket + 1, SeqCst);
        // Either this thread sees its predecessor's mark below, or the predecessor sees this one: sequential
        // consistency leaves no third way, so no finished ticket is left behind.
        let mut moved = false;
        loop {
            let head = self.head.load(SeqCst);
            let slot = self.slot(head);
            if slot.finished.load(SeqCst) != head + 1 {
                break;
            }
            let (lsn, sequence) = (slot.end_lsn.load(Relaxed), slot.last_sequence.load(Relaxed));
            // The mark was stored after the values. The slot is used again only after the head has passed it, so a won
            // exchange proves that they are those of this ticket.
            if self
                .head
                .compare_exchange(head, head + 1, SeqCst, SeqCst)
                .is_ok()
            {
                // In this order, so that a block seen as copied has no record with a later sequence.
                raise(&self.visible_sequence, sequence);
                raise(&self.copied_lsn, lsn);
                moved = true;
            }
        }
        if moved {
            self.waiting.wake();
        }
    }

    /// Notes that the write with `last_sequence`, which is finished, is about to be acknowledged.
    pub(crate) fn acknowledge(&self, last_sequence: u64) {
        if self.visible_sequence() < last_sequence {
            raise(&self.acknowledged, last_sequence);
        }
    }

    /// The highest sequence number that was acknowledged, if it is not visible.
    pub(crate) fn acknowledged_ahead(&self) -> Option<u64> {
        let acknowledged = self.acknowledged.load(SeqCst);
        (acknowledged > self.visible_sequence()).then_some(acknowledged)
    }

    /// Waits until `sequence` is visible.
    pub(crate) fn wait_visible(&self, sequence: u64) {
        self.waiting.until(|| self.visible_sequence() >= sequence);
    }

    /// Waits until all bytes below `lsn` have been copied.
    pub(crate) fn wait_copied(&self, lsn: u64) {
        self.waiting.until(|| self.copied_lsn() >= lsn);
    }

    fn slot(&self, ticket: u64) -> &Slot {
        &self.slots[ticket as usize & (self.slots.len() - 1)]
    }
}
