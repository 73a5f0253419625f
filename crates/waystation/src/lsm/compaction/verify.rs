//! What the tree believes of a result before it installs it.
//!
//! Whatever ran a merge, its tables must lie where those of the job lay, in order and apart from each other; every entry
//! read must have been written or left out for a reason, and the tables must hold every written one; and no table
//! may claim that more graves were applied to it than the job has: such a claim would let a grave retire too early. That
//! the tables hold what they say of themselves was compared when they were opened.

use super::{Counters, Job, JobResult};
use crate::lsm::version::UserRange;
use crate::sst::TableMeta;
use waystation_format::order::Order;

/// Why `result` cannot be that of `job`, whose user keys are in `order`.
pub(crate) fn contradiction(job: &Job, result: &JobResult, order: &Order) -> Option<&'static str> {
    let read = result.counters.entries_in;
    // How many of the entries lie before a bound is not known.
    if job.from.is_none() && entries(job.tables()).is_some_and(|entries| entries != read) {
        return Some("it read more or fewer entries than the tables of the job hold");
    }
    contradiction_in(job, result, order)
}

/// Why `result` cannot be what `job` has made of the user keys before `rest`.
pub(super) fn contradiction_so_far(
    job: &Job,
    result: &JobResult,
    rest: &[u8],
    order: &Order,
) -> Option<&'static str> {
    let read = result.counters.entries_in;
    if entries(job.tables()).is_some_and(|entries| entries < read) {
        return Some("it read more entries than the tables of the job hold");
    }
    let is_done = |table: &TableMeta| order.is_before(table.largest_user_key(), rest);
    if !result.outputs.last().is_some_and(is_done) {
        return Some("the rest begins within its tables");
    }
    contradiction_in(job, result, order)
}

fn contradiction_in(job: &Job, result: &JobResult, order: &Order) -> Option<&'static str> {
    let Counters {
        entries_in,
        entries_out,
        shadowed,
        dead_deletions,
        hidden,
        ..
    } = result.counters;
    let accounted = [entries_out, shadowed, dead_deletions, hidden];
    let accounted = accounted.into_iter().try_fold(0, u64::checked_add);
    if accounted != Some(entries_in) {
        return Some("not every entry that it read was written or left out for a reason");
    }
    if entries(result.outputs.iter()).is_some_and(|entries| entries != entries_out) {
        return Some("its tables hold more or fewer entries than it wrote");
    }
    if job.tables().next().is_some() && !lies_within(job, &result.outputs, order) {
        return Some("a table holds keys that no table of the job held");
    }
    let ascend = |pair: &[TableMeta]| {
        order.is_before(pair[0].largest_user_key(), pair[1].smallest_user_key())
    };
    if !result.outputs.windows(2).all(ascend) {
        return Some("its tables overlap, or are not in order");
    }
    let through = job.purged_through();
    let claims = |table: &TableMeta| {
        table
            .facts()
            .is_some_and(|facts| facts.purged_through > through)
    };
    if result.outputs.iter().any(claims) {
        return Some("a table claims that more graves were applied than the job has");
    }
    None
}

/// The entries of all `tables`, if each of them tells.
fn entries<'t>(mut tables: impl Iterator<Item = &'t TableMeta>) -> Option<u64> {
    tables.try_fold(0_u64, |sum, table| sum.checked_add(table.facts()?.entries))
}

/// Whether each of `outputs` lies within the keys of the job's tables.
fn lies_within(job: &Job, outputs: &[TableMeta], order: &Order) -> bool {
    let Some(UserRange {
        smallest: Some(first),
        largest: Some(last),
    }) = UserRange::hull(order, job.tables())
    else {
        return true;
    };
    let first = match &job.from {
        Some(from) if order.is_before(first, from) => from,
        _ => first,
    };
    outputs.iter().all(|table| {
        let (smallest, largest) = (table.smallest_user_key(), table.largest_user_key());
        !order.is_before(smallest, first)
            && !order.is_before(last, largest)
            && !order.is_before(largest, smallest)
    })
}
