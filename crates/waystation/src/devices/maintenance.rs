//! The maintenance of the devices of a database: all that is not done while a write or a read waits.
//!
//! A background job runs a round of it ([`Devices::keep`]): soon after anything that may leave something to be released, when the
//! log has grown by a part of the budgets, and when time brings something, as the [agenda](crate::background) says. Nothing of that comes
//! to a database to which nothing happens. Another job lets devices settle ([`settle`](super::settle)).

use super::checkpoint::Directory;
use super::clock::ResidencyClock;
use super::context::{Context, Engine};
use super::departures::{self, Departures};
use super::handoff::{give_up_stalled, next_stall};
use super::index_snapshot::IndexSnapshots;
use super::log_release::Checkpoints;
use super::residency::Residency;
use super::settle::Settler;
use super::upper::Upper;
use crate::background::{Account, DeviceAgenda, DeviceSight, DiskReserve, Throttle, Use};
use crate::error::Result;
use crate::options::DeviceOptions;
use crate::storage::Storage;
use crate::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use crate::sync::{Arc, Mutex, lock};
use std::path::Path;
use std::time::Duration;

/// Budgets are looked at when the log has grown by this part of the smallest of them, within limits (bytes).
const BUDGET_PART: u64 = 64;
const STEP_MIN: u64 = 16 << 10;
const STEP_MAX: u64 = 4 << 20;

/// The devices of a database.
pub(crate) struct Devices {
    pub(crate) upper: Arc<Upper>,
    pub(crate) settings: DeviceOptions,
    clock: ResidencyClock,
    pub(crate) directory: Directory,
    pub(crate) settler: Settler,
    pub(crate) departures: Departures,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) snapshots: IndexSnapshots,
    /// A round is due when the log comes to here.
    keep_at_lsn: AtomicU64,
    /// A round was asked for that has not begun. The scheduler knows it, too, but under a lock, and each departure asks.
    is_awaited: AtomicBool,
    agenda: Mutex<DeviceAgenda>,
    account: Arc<Account>,
    /// Indexes wait for the release of a snapshot.
    pub(crate) waits_for_release: AtomicBool,
}

impl Devices {
    /// The devices of a directory, as its checkpoint `directory` and the `pending` switches stood when it was opened at `now`,
    /// with an index snapshot that spares the log before `snapshot_lsn` (0: there is none).
    pub(crate) fn new(
        upper: Arc<Upper>,
        (settings, account): (DeviceOptions, Arc<Account>),
        directory: Directory,
        pending: Vec<Arc<Residency>>,
        snapshot_lsn: u64,
        now: Duration,
    ) -> Self {
        Self {
            upper,
            settings,
            clock: ResidencyClock::resume(directory.clock, now),
            directory,
            settler: Settler::new(pending),
            departures: Departures::default(),
            checkpoints: Checkpoints::new(&directory, now),
            snapshots: IndexSnapshots::new(snapshot_lsn),
            keep_at_lsn: AtomicU64::new(u64::MAX),
            is_awaited: AtomicBool::new(false),
            agenda: Mutex::default(),
            account,
            waits_for_release: AtomicBool::new(false),
        }
    }

    /// What the maintenance is given by `engine`, whose database is in `dir`.
    pub(crate) fn context<'a, E>(
        &'a self,
        engine: &'a E,
        storage: &'a dyn Storage,
        dir: &'a Path,
        reserve: &'a DiskReserve,
    ) -> Context<'a, E> {
        Context {
            storage,
            dir,
            upper: &self.upper,
            settings: &self.settings,
            directory: &self.directory,
            clock: &self.clock,
            reserve,
            account: &self.account,
            engine,
        }
    }

    /// The reading of the residency clock.
    pub(crate) fn now(&self, storage: &dyn Storage) -> Duration {
        self.clock.read(storage.now())
    }

    /// Notes what the indexes take.
    pub(crate) fn note_memory(&self) {
        let bytes = self.upper.table.index_bytes();
        self.account.set(Use::Indexes, bytes);
    }

    /// Whether it matters when a device was written to last.
    pub(crate) fn notes_writes(&self) -> bool {
        self.settings.idle_departure.is_some()
    }

    /// The next round is due when the log, which is at `reserved_lsn`, has grown by a part of the budgets.
    pub(crate) fn expect_growth(&self, reserved_lsn: u64) {
        let next_lsn = reserved_lsn.saturating_add(self.step_bytes());
        self.keep_at_lsn.store(next_lsn, SeqCst);
    }

    /// Asks for a round. Whether none was awaited before: then it is to be scheduled.
    #[inline]
    pub(crate) fn await_round(&self) -> bool {
        !self.is_awaited.load(SeqCst) && !self.is_awaited.swap(true, SeqCst)
    }

    /// A round begins: what comes from here on asks for another one.
    pub(crate) fn begin_round(&self) {
        self.is_awaited.store(false, SeqCst);
    }

    /// Whether the log's growth to `end_lsn` makes a round due. It does so once.
    #[inline]
    pub(crate) fn is_due_at(&self, end_lsn: u64) -> bool {
        end_lsn >= self.keep_at_lsn.load(Relaxed)
            && self.keep_at_lsn.swap(u64::MAX, SeqCst) < u64::MAX
    }

    /// One round. `throttle` is told how full the budgets are.
    pub(crate) fn keep<E: Engine>(
        &self,
        context: &Context<'_, E>,
        throttle: &Throttle,
    ) -> Result<()> {
        // Before indexes are looked at: a release after it makes another round.
        self.waits_for_release.store(true, SeqCst);
        departures::reap(context);
        if self.upper.table.count_over() == 0 {
            self.waits_for_release.store(false, SeqCst);
        }
        context.reserve.look()?;
        // Before anything that needs room: on a full disk this is what makes some.
        let is_short = context.engine.is_short_of_room();
        let removed = context.upper.log.remove_surplus(is_short, is_short);
        let fill = context.fill();
        throttle.observe_upper(fill);
        give_up_stalled(context, is_short || context.is_early());
        self.departures.look(context)?;
        self.checkpoints.free(context, false)?;
        context.reserve.keep(context.storage, context.dir);
        self.snapshots.draw(context, &self.checkpoints)?;
        removed
    }

    /// When there is something to be kept, if nothing happens before.
    pub(crate) fn next_keeping<E: Engine>(&self, context: &Context<'_, E>) -> Option<Duration> {
        let is_short_of_room = context.engine.is_short_of_room();
        let sight = DeviceSight {
            is_drawing: self.snapshots.can_go_on(context),
            is_short_of_room,
            stream_at: next_stall(context, is_short_of_room || context.is_early()),
            departure_at: self.departures.next(context),
            checkpoint_at: self.checkpoints.next(context),
            removal_at: context.upper.log.next_removal(),
        };
        lock(&self.agenda).next(&sight, context.storage.now())
    }

    /// A round is due whenever the log has grown by so many bytes.
    fn step_bytes(&self) -> u64 {
        let settings = &self.settings;
        let budgets = [
            settings.upper_budget(),
            settings.index_bytes,
            settings.replay_bytes,
        ];
        let smallest = budgets.into_iter().min().unwrap_or(STEP_MAX);
        (smallest / BUDGET_PART).clamp(STEP_MIN, STEP_MAX)
    }
}
