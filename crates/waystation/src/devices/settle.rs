//! Settling: a device that stays moves from the upper level to the tree, once.
//!
//! ```text
//!  1 older    nothing of the device from before this residency is left in a memtable, or it is flushed first
//!  2 switch   logged, at sequence X: what is older is in the index, what is newer goes to the memtable
//!  3 load     tables with the residency's versions and their sequence numbers, after the log is durable through X;
//!             deletions that a reader needs become graves, with their sequence numbers, in the flushed graves and its file
//!  4 install  one synced edit of the MANIFEST; the new version is shown to readers
//!  5 settled  logged and synced; the index goes when no reader is below that any more
//! ```
//!
//! From 2 to 5 no memtable is flushed ([`Settler::pending`] is held), so nothing newer than X of the device enters the
//! tree before older writes. If 3 to 5 fail, or the process dies, the residencies remain pending, and are settled before
//! the next flush; readers look at memtables, tree and index, in this order. A repeated load may write versions that
//! a table holds already: equal in key and sequence number, they are the same.

use super::contended::ContendedLock;
use super::context::{Context, Engine, Events, Memtables};
use super::deletions::Deletions;
use super::gather::Gather;
use super::index::{Leaves, Window};
use super::record::DeviceEvent;
use super::residency::{NEVER, Residency};
use super::settle_plan::{Candidate, SettlePlan};
use super::upper::Upper;
use crate::background::{DiskReserve, MORE_TOGETHER, SettleRound, SettleSight};
use crate::error::Result;
use crate::log::Rejection;
use crate::lsm::tree::Load;
use crate::sst::EntryStream;
use crate::storage::{Duty, IoPriority};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// From this share of a budget on the oldest residencies settle early.
pub(super) const EARLY: f64 = 0.8;
/// Residencies are marked as settled so many at a time: writers wait meanwhile.
const MARKED_TOGETHER: usize = 128;

/// What settles.
pub(crate) struct Settler {
    /// Residencies that have switched and not settled; held while they settle, and while a memtable is flushed.
    pub(crate) pending: ContendedLock<Vec<Arc<Residency>>>,
    /// Residencies that are due wait for the release of a snapshot.
    pub(crate) waits_for_release: AtomicBool,
}

impl Settler {
    /// `pending` had switched when the database was closed or died.
    pub(crate) fn new(pending: Vec<Arc<Residency>>) -> Self {
        for residency in &pending {
            residency.hold();
        }
        Self {
            pending: ContendedLock::new(pending),
            waits_for_release: AtomicBool::new(false),
        }
    }

    /// Lets residencies settle as the [round](SettleRound) chooses; with `early`, the oldest in any case. Returns when to look
    /// again.
    pub(crate) fn settle_due<E: Engine>(
        &self,
        context: &Context<'_, E>,
        early: bool,
    ) -> Result<Option<Duration>> {
        let mut pending = self.pending.lock();
        self.finish(context, &mut pending, IoPriority::High)?;
        drop(pending);
        let mut round = SettleRound::new(sight(context, early));
        let due = context.upper.table.residencies(|residency| {
            let log_bytes = if is_upper(residency) {
                residency.log_bytes()
            } else {
                0
            };
            round.collect(residency.arrival(), log_bytes)
        });
        // Before the oldest snapshot is looked at: a release after it makes another round.
        self.waits_for_release.store(true, SeqCst);
        let oldest = context.engine.oldest_snapshot();
        let due = due.into_iter().filter(|residency| is_upper(residency));
        let (mut free, held): (Vec<_>, Vec<_>) =
            due.partition(|residency| residency.is_whole_since(oldest));
        if held.is_empty() {
            self.waits_for_release.store(false, SeqCst);
        }
        let facts = free.iter().map(|it| (it.arrival(), it.log_bytes()));
        let choice = round.choose(facts);
        if let Some((count, priority)) = choice.settle {
            free.truncate(count);
            self.settle(context, free, priority)?;
        }
        let ended = context.storage.now();
        Ok(choice.pause.map(|pause| ended + pause))
    }

    /// Lets `residencies` settle together, as far as they are in the upper level, and waits for the ones that are settling.
    pub(crate) fn settle<E: Engine>(
        &self,
        context: &Context<'_, E>,
        mut residencies: Vec<Arc<Residency>>,
        priority: IoPriority,
    ) -> Result<()> {
        // In the tree, one that came from elsewhere would be seen by readers from before it was admitted.
        let oldest = context.engine.oldest_snapshot();
        residencies.retain(|residency| residency.is_whole_since(oldest));
        if residencies.is_empty() {
            return Ok(());
        }
        if residencies
            .iter()
            .any(|residency| is_upper(residency) && has_older_in_memory(context, residency))
        {
            context.engine.rotate_now();
            context.engine.wait_flushed()?;
        }
        let mut pending = self.pending.lock();
        self.finish(context, &mut pending, IoPriority::High)?;
        let switched = switch(context, residencies);
        if switched.is_err() {
            note_settling(context.reserve, &pending);
        }
        pending.extend(switched?);
        self.finish(context, &mut pending, priority)
    }

    /// Brings the residencies that have switched into the tree.
    pub(crate) fn finish<E: Engine>(
        &self,
        context: &Context<'_, E>,
        pending: &mut Vec<Arc<Residency>>,
        priority: IoPriority,
    ) -> Result<()> {
        let before = pending.len();
        for left in pending.extract_if(.., |residency| residency.departed() != NEVER) {
            left.let_go();
        }
        if pending.len() < before {
            note_settling(context.reserve, pending);
        }
        if pending.is_empty() {
            return Ok(());
        }
        pending.sort_by(|a, b| a.prefix().cmp(b.prefix()));
        // Of some only the last sync may have failed.
        let is_due = |residency: &&Arc<Residency>| residency.gone() == NEVER;
        let due: Vec<_> = pending.iter().filter(is_due).cloned().collect();
        if !due.is_empty() {
            context.upper.log.sync_all()?;
            self.load(context, &due, priority)?;
            context.engine.adopt_version();
            // No memtable has been flushed since: newer writes are not in the tree yet.
            let generation = context.engine.generation();
            for residency in &due {
                residency.set_installed(generation);
            }
            for due in due.chunks(MARKED_TOGETHER) {
                let event =
                    DeviceEvent::Settled(due.iter().map(|residency| residency.prefix()).collect());
                // Before a reader comes to the event's sequence number: it looks into the tree.
                context.log_event(&event, |_, sequence| {
                    for residency in due {
                        context.upper.table.settled(residency, sequence);
                    }
                    Ok(())
                })?;
            }
        }
        let last = context.upper.log.visible_sequence();
        context.upper.log.sync_all()?;
        context.upper.note_durable(last);
        for residency in pending.drain(..) {
            residency.let_go();
        }
        note_settling(context.reserve, pending);
        context.engine.look_again();
        context.engine.keep_soon();
        Ok(())
    }

    fn load<E: Engine>(
        &self,
        context: &Context<'_, E>,
        residencies: &[Arc<Residency>],
        priority: IoPriority,
    ) -> Result<()> {
        // A flush, a device that is to settle, and a backup wait for it.
        let priority = || context.priority_by_now(priority, &self.pending);
        let duty = Duty::new(context.storage, &priority);
        let oldest_snapshot = context.engine.oldest_snapshot();
        let is_mixed = residencies.iter().any(|residency| residency.is_mixed());
        let may_be_older = is_mixed || !context.upper.table.is_complete();
        let mut deletions = Deletions::new(oldest_snapshot, may_be_older);
        let mut load = context.engine.tree().begin_load(oldest_snapshot);
        let candidates = residencies
            .iter()
            .enumerate()
            .filter_map(|(number, residency)| {
                let (first, last) = key_range(residency)?;
                let bytes = residency.log_bytes();
                duty.pause();
                Some(Candidate {
                    residency: number,
                    bytes,
                    first,
                    last,
                })
            });
        let plan = SettlePlan::new(candidates, |first, last| load.find_place(first, last));
        let pick = |number: &usize| Arc::clone(&residencies[*number]);
        let in_runs: Vec<_> = (plan.deep.iter().flat_map(|run| &run.residencies))
            .map(pick)
            .collect();
        let rest: Vec<_> = plan.rest.iter().map(pick).collect();
        let mut entries = Gather::new(context.upper, &in_runs, &duty);
        entries.start()?;
        for run in plan.deep {
            let mut left = deletions.leave(entries.up_to(&run.last));
            load.write(run.place, (&run.first, &run.last), &mut left)?;
        }
        drop(entries);
        load_together(context.upper, &mut load, &rest, &mut deletions, &duty)?;
        // Before a reader sees what they hide.
        let switch = residencies.iter().map(|residency| residency.switch()).max();
        context
            .engine
            .add_settled_graves(&deletions.into_graves(), switch.unwrap_or(0))?;
        load.install()
    }
}

/// Whether a memtable holds anything of the device from before `residency`: it must not come to lie above it.
fn has_older_in_memory<E: Memtables>(context: &Context<'_, E>, residency: &Residency) -> bool {
    let table = &context.upper.table;
    let in_tree = table
        .get(residency.prefix())
        .is_some_and(|device| device.with_state(|state| state.in_tree));
    in_tree && context.engine.holds_prefix(residency.prefix())
}

/// Logs the switch of those of `residencies` that are in the upper level still.
fn switch<E: Events + Memtables>(
    context: &Context<'_, E>,
    mut residencies: Vec<Arc<Residency>>,
) -> Result<Vec<Arc<Residency>>> {
    let table = &context.upper.table;
    loop {
        residencies.retain(|residency| is_upper(residency));
        if residencies.is_empty() {
            return Ok(residencies);
        }
        residencies.sort_by(|a, b| a.prefix().cmp(b.prefix()));
        let event = DeviceEvent::Switched(
            residencies
                .iter()
                .map(|residency| residency.prefix())
                .collect(),
        );
        // If one of them departs: without it.
        let is_logged = context.log_event(&event, |lsn, sequence| {
            if !residencies.iter().all(|residency| is_upper(residency)) {
                return Err(Rejection::Moved);
            }
            // The bytes being copied may be theirs, too.
            let copying = lsn.saturating_sub(context.upper.log.copied_lsn());
            let bytes: u64 = residencies
                .iter()
                .map(|residency| residency.log_bytes())
                .sum();
            context
                .reserve
                .begin_settling(context.engine.active_bytes(), bytes + copying)?;
            for residency in &residencies {
                residency.hold();
                table.switch(residency, sequence);
            }
            Ok(())
        })?;
        if is_logged {
            return Ok(residencies);
        }
    }
}

/// Counts what has switched and is to be settled, whatever else there is room for.
pub(crate) fn note_settling(reserve: &DiskReserve, pending: &[Arc<Residency>]) {
    reserve.note_settling(pending.iter().map(|residency| residency.log_bytes()).sum());
}

/// Whether `residency` is in the upper level and nothing of it is on its way to the tree.
fn is_upper(residency: &Residency) -> bool {
    residency.has_begun() && residency.departed() == NEVER && residency.switch() == NEVER
}

/// The first and the last key of a residency.
fn key_range(residency: &Residency) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut window = Window::default();
    let whole = |suffix: &[u8]| [residency.prefix(), suffix].concat();
    residency.load(&mut window, |index: &Leaves, window| {
        index.load_from(b"", u64::MAX, window);
    });
    let first = whole(window.get(0)?.0);
    residency.load(&mut window, Leaves::load_last);
    let last = whole(window.get(window.len().checked_sub(1)?)?.0);
    Some((first, last))
}

/// What a round of settling sees.
fn sight<E: Engine>(context: &Context<'_, E>, early: bool) -> SettleSight {
    let (reserve, active) = (context.reserve, context.engine.active_bytes());
    let together_bytes = reserve.together_bytes();
    SettleSight {
        now: context.now(),
        residency: context.settings.residency,
        early,
        together_bytes,
        has_room_for_more: reserve.is_left(active, MORE_TOGETHER * together_bytes),
        room_bytes: reserve.left_for_settling(active),
    }
}

/// Loads residencies, ordered by prefix, as one run.
fn load_together(
    upper: &Upper,
    load: &mut Load<'_>,
    residencies: &[Arc<Residency>],
    deletions: &mut Deletions,
    duty: &Duty<'_>,
) -> Result<()> {
    let (Some(first), Some(last)) = (
        residencies
            .iter()
            .find_map(|residency| key_range(residency)),
        residencies
            .iter()
            .rev()
            .find_map(|residency| key_range(residency)),
    ) else {
        return Ok(());
    };
    let place = load.find_place(&first.0, &last.1);
    let mut left = deletions.leave(Gather::new(upper, residencies, duty));
    load.write(place, (&first.0, &last.1), &mut left)
}
