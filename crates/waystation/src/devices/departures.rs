//! Departures: a device goes in one record of the log and one number in the device table, and the cleaning up later.
//!
//! What a departure leaves is done at low priority, in the rounds of the [maintenance](super::maintenance): indexes that no snapshot
//! needs are given up, and departures are forgotten whose graves were retired.

use super::context::{Context, Engine, Events, Memtables};
use super::events::unknown;
use super::index::Index;
use super::record::DeviceEvent;
use super::residency::{NEVER, Residency};
use super::table::{Departure, Device};
use crate::background::Backoff;
use crate::error::Result;
use crate::log::Rejection;
use crate::storage::Duty;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::sync::{Mutex, lock};
use std::time::Duration;
use waystation_format::batch::prefix_end;

/// Idle devices are looked for every such part of the time that makes one idle.
const IDLE_PART: u32 = 64;
/// Residencies are reaped this many at a time: writers wait while devices are forgotten with them.
const REAPED_AT_ONCE: usize = 32;
/// Nothing is done at low priority for longer than this at a time: the budgets wait meanwhile.
pub(super) const LEISURE_MAX: Duration = Duration::from_millis(200);

/// When to look for devices that depart by themselves, and for departures to forget.
#[derive(Default)]
pub(crate) struct Departures {
    idle_backoff: Backoff,
    /// When, by the residency clock, the next device will have been idle for long enough.
    idle_next: Mutex<Option<Duration>>,
    departed_backoff: Backoff,
    /// The read state in which departures were looked at last.
    departed_seen: AtomicU64,
}

impl Departures {
    /// Lets devices depart that were idle for too long, and forgets departures whose graves were retired: if it is time.
    pub(crate) fn look<E: Events + Memtables>(&self, context: &Context<'_, E>) -> Result<()> {
        if let Some(limit) = context.settings.idle_departure {
            let pause = limit / IDLE_PART;
            let departed = self
                .idle_backoff
                .run(context.storage, pause, || depart_idle(context, limit));
            if let Some(next) = departed {
                *lock(&self.idle_next) = next?;
            }
        }
        self.departed_backoff
            .run(context.storage, Duration::ZERO, || {
                self.departed_seen
                    .store(context.engine.generation(), SeqCst);
                retire_departures(context);
            });
        Ok(())
    }

    /// When to look again.
    pub(crate) fn next<E: Memtables>(&self, context: &Context<'_, E>) -> Option<Duration> {
        let idle = lock(&self.idle_next).map(|at| {
            let left = at.saturating_sub(context.now());
            (context.storage.now() + left).max(self.idle_backoff.next())
        });
        let has_looked = self.departed_seen.load(SeqCst) == context.engine.generation();
        let departed = (!has_looked).then(|| self.departed_backoff.next());
        [idle, departed].into_iter().flatten().min()
    }
}

/// Lets the device of `prefix` depart, which has keys in the tree that the table does not know of if it `has_older`.
pub(crate) fn depart<E: Events + Memtables>(
    context: &Context<'_, E>,
    device: &[u8],
    prefix: &[u8],
    has_older: bool,
) -> Result<()> {
    let table = &context.upper.table;
    let event = DeviceEvent::Departed(prefix);
    context
        .log_write(&event, |lsn, sequence| {
            if let Some(barred) = table.barred(prefix) {
                Err(Rejection::Failed(table.barred_error(prefix, &barred)))
            } else if !has_older && !table.is_occupied(prefix) {
                Err(unknown(device))
            } else if depart_at(context, prefix, lsn, sequence) {
                Ok(())
            } else {
                Err(unknown(device))
            }
        })
        .map(|_| ())
}

/// Lets the device of `prefix` depart at `sequence`; whether it was there. Under the front's lock.
fn depart_at<E: Memtables>(
    context: &Context<'_, E>,
    prefix: &[u8],
    lsn: u64,
    sequence: u64,
) -> bool {
    let departure = context.upper.table.depart(prefix, sequence);
    add_departure(context, departure, prefix, lsn, sequence);
    departure != Departure::Unknown
}

/// Hides what the tree may hold of the device of `prefix`, which departed at `sequence`. Under the front's lock.
pub(crate) fn add_departure<E: Memtables>(
    context: &Context<'_, E>,
    departure: Departure,
    prefix: &[u8],
    lsn: u64,
    sequence: u64,
) {
    if departure == Departure::FromTree {
        let end = prefix_end(prefix);
        context
            .engine
            .add_range_grave(prefix, end.as_deref(), lsn, sequence);
    }
}

/// Gives up the indexes of residencies that are over and that no snapshot needs.
pub(crate) fn reap<E: Engine>(context: &Context<'_, E>) {
    let table = &context.upper.table;
    let until = context.storage.now() + LEISURE_MAX;
    let priority = || context.low_priority_until(until);
    let duty = Duty::new(context.storage, &priority);
    // The residencies that are over by now: more may come all the time.
    let mut left = table.count_over();
    while left > 0 {
        let reaped = table.reap(context.engine.oldest_snapshot(), left.min(REAPED_AT_ONCE));
        if reaped.indexes.is_empty() {
            return;
        }
        left -= reaped.indexes.len();
        if reaped.has_left {
            context.engine.look_for_needs_again();
        }
        if !reaped.empty.is_empty() {
            context
                .upper
                .log
                .at_front(|_, _| table.forget(&reaped.empty));
        }
        for index in reaped.indexes {
            drop::<Index>(index);
            duty.pause();
        }
    }
}

/// Lets devices depart that were idle for `limit`. Returns when, by the residency clock, the next will have been.
fn depart_idle<E: Events + Memtables>(
    context: &Context<'_, E>,
    limit: Duration,
) -> Result<Option<Duration>> {
    let now = context.now();
    let table = &context.upper.table;
    let may_depart = |residency: &Residency| {
        residency.departed() == NEVER
            && residency.switch() == NEVER
            && table.frozen(residency.prefix()).is_none()
    };
    let idle_from = |residency: &Residency| residency.last_write() + limit;
    let is_idle = |residency: &Residency| may_depart(residency) && idle_from(residency) <= now;
    let residencies = table.residencies(|_| true);
    let next = residencies
        .iter()
        .filter(|residency| may_depart(residency) && !is_idle(residency));
    let next = next.map(|residency| idle_from(residency)).min();
    for residency in residencies.iter().filter(|residency| is_idle(residency)) {
        let event = DeviceEvent::Departed(residency.prefix());
        // One that was written to meanwhile stays.
        context.log_event(&event, |lsn, sequence| {
            if is_idle(residency) && depart_at(context, residency.prefix(), lsn, sequence) {
                Ok(())
            } else {
                Err(Rejection::Moved)
            }
        })?;
    }
    Ok(next)
}

/// Forgets departures whose graves were retired. The last look is under the front's lock, where departures note
/// themselves and dig: outside, a departure may be noted whose grave is not dug yet, or lies in active graves that is
/// newer than the read state; forgotten then, it would not be dug again after a crash.
fn retire_departures<E: Memtables>(context: &Context<'_, E>) {
    let table = &context.upper.table;
    let departed_from_tree = table.departed_from_tree();
    if departed_from_tree.is_empty() {
        return;
    }
    let newest = |device: &Device| device.with_state(|state| state.covering.newest());
    let engine = context.engine;
    for device in departed_from_tree {
        if engine.hides_in_prefix(device.prefix(), newest(&device)) {
            continue;
        }
        context.upper.log.at_front(|_, _| {
            let newest = newest(&device);
            if !engine.hides_in_prefix(device.prefix(), newest) {
                table.retire(&device, newest);
            }
        });
    }
}
