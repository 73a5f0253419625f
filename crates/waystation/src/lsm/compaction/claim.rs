//! Which tables and key ranges running jobs have taken.
//!
//! A claim is taken in the same critical section that picked the job, and given up after its result was
//! installed (or its outputs removed). A flush that writes below level 0 takes one too.

use crate::lsm::version::UserRange;
use waystation_format::order::Order;

/// What one running job has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The tables it reads or moves.
    pub tables: Vec<u64>,
    /// The level it writes to.
    pub output_level: usize,
    /// The first user key it may write; `None` for no limit.
    pub smallest: Option<Vec<u8>>,
    /// The last user key it may write; `None` for no limit.
    pub largest: Option<Vec<u8>>,
}

impl Claim {
    /// A claim of `tables` and of `range` in `output_level`.
    pub(crate) fn new(tables: Vec<u64>, output_level: usize, range: &UserRange<'_>) -> Self {
        Self {
            tables,
            output_level,
            smallest: range.smallest.map(<[u8]>::to_vec),
            largest: range.largest.map(<[u8]>::to_vec),
        }
    }

    fn range(&self) -> UserRange<'_> {
        UserRange {
            smallest: self.smallest.as_deref(),
            largest: self.largest.as_deref(),
        }
    }
}

/// The claims of all running jobs.
#[derive(Debug, Default)]
pub(crate) struct Running {
    claims: Vec<(u64, Claim)>,
    next_ticket: u64,
}

impl Running {
    /// Adds a claim; the ticket gives it up again.
    pub(crate) fn add(&mut self, claim: Claim) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.claims.push((ticket, claim));
        ticket
    }

    /// Gives up the claim of `ticket`.
    pub(crate) fn remove(&mut self, ticket: u64) {
        self.claims.retain(|(held, _)| *held != ticket);
    }

    /// How many jobs run.
    pub(crate) fn len(&self) -> usize {
        self.claims.len()
    }

    /// Whether a job has taken table `number`.
    pub(crate) fn has_table(&self, number: u64) -> bool {
        self.claims
            .iter()
            .any(|(_, claim)| claim.tables.contains(&number))
    }

    /// Whether a job may write keys of `range`, which are in `order`, to `level`.
    pub(crate) fn writes(&self, order: &Order, level: usize, range: &UserRange<'_>) -> bool {
        self.claims
            .iter()
            .any(|(_, claim)| claim.output_level == level && claim.range().overlaps(order, range))
    }
}
