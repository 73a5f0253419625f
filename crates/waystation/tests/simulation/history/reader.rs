//! A reader of other clients' regions: at any moment a snapshot sees a whole number of batches, and does not move.

use super::looks::{Look, count_of};
use super::plan::{Plan, Written};
use super::told::Told;
use crate::support::{Content, Random};
use waystation::{Db, Snapshot};

/// Full looks of one life at most: they cost a hundred times a look at a counter.
const FULL_LOOKS_MAX: u32 = 8;

pub(crate) struct Reader<'a> {
    pub(crate) db: &'a Db,
    pub(crate) plan: &'a Plan,
    pub(crate) told: &'a Told,
    pub(crate) random: Random,
    /// Of each client, what the last snapshot saw.
    pub(crate) seen: Vec<Written>,
}

impl Reader<'_> {
    /// Reads until the machine ends; ends when a read fails, as storage does in some lives.
    pub(crate) fn run(mut self) {
        let mut full_looks = 0;
        while !self.told.is_over() {
            let is_full = full_looks < FULL_LOOKS_MAX && self.random.one_in(20);
            full_looks += u32::from(is_full);
            let client = self.random.below(self.plan.clients as u64) as usize;
            if self.look(client, is_full).is_err() {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn look(&mut self, client: usize, is_full: bool) -> waystation::Result<()> {
        let snapshot = self.db.snapshot();
        let counter = Plan::counter(client);
        let read = || -> waystation::Result<u64> {
            let count = self.db.get_at(&counter, &snapshot)?;
            Ok(count_of(count.as_deref()))
        };
        let count = read()?;
        let seed = self.plan.seed;
        let before = self.seen[client].count;
        assert!(
            count >= before,
            "seed {seed}, client {client}: a snapshot sees {count} batches, an earlier one saw {before}"
        );
        self.seen[client].go_to(self.plan, client, count);
        if is_full {
            self.look_at_all(client, &snapshot)?;
        }
        let again = read()?;
        assert_eq!(
            again, count,
            "seed {seed}, client {client}: a snapshot moved"
        );
        Ok(())
    }

    fn look_at_all(&mut self, client: usize, snapshot: &Snapshot) -> waystation::Result<()> {
        let (db, plan) = (self.db, self.plan);
        let seen = &self.seen[client];
        let mut compare = |expected: &Content| {
            let look = Look {
                db,
                plan,
                client,
                snapshot: Some(snapshot),
                expected,
            };
            look.compare(&mut self.random)
        };
        if let Err(difference) = compare(&seen.state)? {
            // The departure before the next batch may have happened.
            let is_half = match seen.half_done(plan, client) {
                Some(half) => compare(&half)?.is_ok(),
                None => false,
            };
            let (seed, count) = (plan.seed, seen.count);
            assert!(
                is_half,
                "seed {seed}: a reader sees {count} batches of client {client}; {difference}"
            );
        }
        Ok(())
    }
}
