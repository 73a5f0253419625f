//! When the keeper looks after the upper level ([`devices`](super::devices) says what it does): soon after anything that may
//! leave something to be freed, when the log has grown by a part of the budgets, and when time brings something.
//!
//! Nothing of that comes to a database to which nothing happens: then the keeper rests, too.

use super::Core;
use super::devices::{CHECKPOINT_INTERVAL, Devices};
use super::image::Drawing;
use crate::background::{Kind, Next};
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::lock;
use std::time::Duration;

/// What happens within this time is looked at together.
const TICK: Duration = Duration::from_millis(20);
/// How often the disk is looked at while it is full, the log while somebody holds it, and streams while they come.
const PAUSE: Duration = Duration::from_millis(100);
/// The keeper looks at budgets when the log has grown by this part of the smallest of them, within limits (bytes).
const BUDGET_PART: u64 = 64;
const STEP_MIN: u64 = 16 << 10;
const STEP_MAX: u64 = 4 << 20;

impl Core {
    /// One round of the keeper, as a background job.
    pub(super) fn keep_round(&self) -> Next {
        let Some(devices) = self.devices.as_ref().filter(|_| !self.is_stopping()) else {
            return Next::Idle;
        };
        // Before the round: what comes during it makes another.
        let step = devices.step_bytes();
        let next_lsn = self.log.reserved_lsn().saturating_add(step);
        devices.keep_at_lsn.store(next_lsn, SeqCst);
        devices.waits_for_release.store(true, SeqCst);
        let mut drawing = lock(&devices.drawing);
        let kept = self.keep(devices, &mut drawing);
        if devices.upper.table.count_over() == 0 {
            devices.waits_for_release.store(false, SeqCst);
        }
        if self.is_early(devices) {
            self.jobs.submit(Kind::Settle);
        }
        if !self.has_succeeded(Kind::Keep, "keeping devices", &kept) {
            return Next::Failed;
        }
        self.next_keeping(devices, &drawing)
            .map_or(Next::Idle, Next::At)
    }

    /// When there is something to be kept, if nothing happens before.
    fn next_keeping(&self, devices: &Devices, drawing: &Drawing) -> Option<Duration> {
        let now = self.storage.now();
        let is_short = self.is_short_of_room();
        let looked_at_all = devices.floors_seen.load(SeqCst) == self.views.load().generation();
        let checkpoint = {
            let kept = devices.kept.lock();
            let is_behind = kept.sequence < self.log.visible_sequence();
            is_behind.then(|| kept.at + CHECKPOINT_INTERVAL)
        };
        let idle = lock(&devices.idle_next).map(|at| {
            let left = at.saturating_sub(devices.now(&*self.storage));
            (now + left).max(devices.looks_for_idle.next())
        });
        // A stream may stall.
        let is_coming = !devices.upper.table.coming().is_empty();
        let times = [
            drawing.is_under_way().then_some(now),
            (is_short || self.log.is_held() || is_coming).then_some(now + PAUSE),
            (!looked_at_all).then(|| devices.looks_at_floors.next()),
            checkpoint,
            idle,
            self.log.next_removal(),
        ];
        let first = times.into_iter().flatten().min();
        first.map(|at| at.max(now + TICK))
    }

    /// Something happened that may leave the keeper something to do.
    pub(super) fn keep_soon(&self) {
        if self.devices.is_some() {
            self.jobs.by(Kind::Keep, self.storage.now() + TICK);
        }
    }

    /// The log goes to `end_lsn` now.
    #[inline]
    pub(super) fn note_growth(&self, devices: &Devices, end_lsn: u64) {
        if end_lsn >= devices.keep_at_lsn.load(Relaxed) {
            self.keep_after_growth(devices);
        }
    }

    #[cold]
    fn keep_after_growth(&self, devices: &Devices) {
        // One call is enough.
        devices.keep_at_lsn.store(u64::MAX, SeqCst);
        self.keep_soon();
    }

    /// Has what was written since a while ago be looked at in time: devices that arrived, and what a checkpoint is to tell.
    pub(super) fn expect_keeping(&self) {
        let Some(devices) = &self.devices else {
            return;
        };
        let now = self.storage.now();
        let idle = devices.settings.idle_departure.unwrap_or(Duration::MAX);
        let keep_after = idle.min(CHECKPOINT_INTERVAL);
        self.jobs.by(Kind::Keep, now.saturating_add(keep_after));
        let residency = devices.settings.residency;
        self.jobs.by(Kind::Settle, now.saturating_add(residency));
        self.note_growth(devices, self.log.reserved_lsn());
    }

    /// A snapshot was released: those go on that waited for it.
    pub(super) fn go_on_after_release(&self) {
        if let Some(devices) = &self.devices
            && devices.waits_for_release.swap(false, SeqCst)
        {
            self.keep_soon();
        }
        self.watch_after_release();
    }

    /// Gives up what the keeper was at, which runs no more.
    pub(super) fn end_keeping(&self) {
        if let Some(devices) = &self.devices {
            self.stop_drawing(&mut lock(&devices.drawing));
        }
    }
}

impl Devices {
    /// The keeper looks whenever the log has grown by so many bytes.
    fn step_bytes(&self) -> u64 {
        let settings = &self.settings;
        let budgets = [
            settings.upper_bytes,
            settings.index_bytes,
            settings.replay_bytes,
        ];
        let smallest = budgets.into_iter().min().unwrap_or(STEP_MAX);
        (smallest / BUDGET_PART).clamp(STEP_MIN, STEP_MAX)
    }
}
