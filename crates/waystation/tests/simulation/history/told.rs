//! What clients tell the oracle: which batches were begun and acknowledged, and when.
//!
//! Times are ticks of one clock, so that the order of what several clients did is known: a batch that was acknowledged
//! before another one was begun comes before it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

/// One batch of this life.
#[derive(Clone, Copy)]
struct Stamp {
    begun: u64,
    acknowledged: Option<u64>,
}

/// What one client told.
#[derive(Default)]
struct Account {
    stamps: Vec<Stamp>,
    /// Batches that survive a power cut by a promise of their own.
    synced: usize,
}

/// What all clients told in one life.
pub(crate) struct Told {
    clock: AtomicU64,
    accounts: Vec<Mutex<Account>>,
    /// Everything acknowledged before this tick survives a power cut.
    synced_before: AtomicU64,
    acknowledged: AtomicU64,
    /// Batches under way that may wait for the storage to be well again.
    pub(crate) long: AtomicU64,
    /// The machine has ended, and with it the clients' work.
    pub(crate) over: AtomicBool,
}

/// How many batches of each client, beyond those of earlier lives, there are.
pub(crate) type Counts = Vec<u64>;

impl Told {
    pub(crate) fn new(clients: usize) -> Self {
        Self {
            clock: AtomicU64::new(1),
            accounts: (0..clients).map(|_| Mutex::default()).collect(),
            synced_before: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            long: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }

    fn account(&self, client: usize) -> std::sync::MutexGuard<'_, Account> {
        let account = self.accounts[client].lock();
        account.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// Now; everything that was told before has an earlier time.
    pub(crate) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    /// `client` is about to write its next batch.
    pub(crate) fn begin(&self, client: usize) -> u64 {
        let begun = self.tick();
        let acknowledged = None;
        self.account(client).stamps.push(Stamp {
            begun,
            acknowledged,
        });
        begun
    }

    /// The batch of `client` that it began last is there.
    pub(crate) fn acknowledge(&self, client: usize) {
        let now = self.tick();
        if let Some(stamp) = self.account(client).stamps.last_mut() {
            stamp.acknowledged = Some(now);
        }
        self.acknowledged.fetch_add(1, SeqCst);
    }

    /// It survives a power cut, as does everything from before `begun`.
    pub(crate) fn note_synced(&self, client: usize, begun: u64) {
        self.note_all_synced(begun);
        let mut account = self.account(client);
        account.synced = account.stamps.len();
    }

    /// Everything acknowledged before `begun` survives a power cut.
    pub(crate) fn note_all_synced(&self, begun: u64) {
        self.synced_before.fetch_max(begun, SeqCst);
    }

    /// How many batches all clients had acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(SeqCst)
    }

    /// What has to be there after the death of the process.
    pub(crate) fn kept_by_process_crash(&self) -> Counts {
        self.acknowledged_before(u64::MAX)
    }

    /// What has to be there after a power cut.
    pub(crate) fn kept_by_power_cut(&self) -> Counts {
        let before = self.synced_before.load(SeqCst);
        let counts = self.acknowledged_before(before);
        let synced = |client: usize| self.account(client).synced as u64;
        (0..)
            .zip(counts)
            .map(|(at, it)| it.max(synced(at)))
            .collect()
    }

    /// Of each client, how many batches were acknowledged before `tick`.
    fn acknowledged_before(&self, tick: u64) -> Counts {
        let count = |client: usize| {
            let account = self.account(client);
            let is_before = |stamp: &&Stamp| stamp.acknowledged.is_some_and(|at| at < tick);
            account.stamps.iter().take_while(is_before).count() as u64
        };
        (0..self.accounts.len()).map(count).collect()
    }

    /// How many batches of each client there can be.
    pub(crate) fn begun(&self) -> Counts {
        let count = |client: usize| self.account(client).stamps.len() as u64;
        (0..self.accounts.len()).map(count).collect()
    }

    /// Whether what was found is a prefix: with a batch there is all that was acknowledged before it was begun. Says what
    /// is missing.
    pub(crate) fn judge(&self, found: &Counts) -> Result<(), String> {
        for (client, count) in found.iter().enumerate() {
            let Some(last) = (*count as usize).checked_sub(1) else {
                continue;
            };
            let begun = self.account(client).stamps[last].begun;
            let least = self.acknowledged_before(begun);
            if let Some(other) = (0..found.len()).find(|at| found[*at] < least[*at]) {
                return Err(format!(
                    "batch {last} of client {client} is there, and of client {other} only {} of {} that came before",
                    found[other], least[other]
                ));
            }
        }
        Ok(())
    }
}
