//! When the maintenance of devices runs ([`crate::devices::maintenance`] says what it does), and when devices settle.

use super::Core;
use crate::background::{Kind, Next};
use crate::devices::log_release::CHECKPOINT_INTERVAL;
use crate::devices::maintenance::{Devices, TICK};
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::lock;
use std::time::Duration;

impl Core {
    /// One round of the maintenance, as a background job.
    pub(super) fn keep_round(&self) -> Next {
        let Some(devices) = self.devices.as_ref().filter(|_| !self.is_stopping()) else {
            return Next::Idle;
        };
        // Before the round: what comes during it makes another.
        let step = devices.step_bytes();
        let next_lsn = self.log.reserved_lsn().saturating_add(step);
        devices.keep_at_lsn.store(next_lsn, SeqCst);
        devices.waits_for_release.store(true, SeqCst);
        let context = self.context_of(devices);
        let kept = devices.keep(&context, &self.throttle);
        if devices.upper.table.count_over() == 0 {
            devices.waits_for_release.store(false, SeqCst);
        }
        if context.is_early() {
            self.jobs.submit(Kind::Settle);
        }
        if !self.has_succeeded(Kind::Keep, "keeping devices", &kept) {
            return Next::Failed;
        }
        devices.next_keeping(&context).map_or(Next::Idle, Next::At)
    }

    /// Lets residencies settle whose time is over, and says when it will be over for others.
    pub(super) fn settle_round(&self) -> Next {
        let Some(devices) = self.devices.as_ref().filter(|_| !self.is_stopping()) else {
            return Next::Idle;
        };
        let context = self.context_of(devices);
        let settled = devices.settler.settle_due(&context, context.is_early());
        if !self.has_succeeded(Kind::Settle, "settling devices", &settled) {
            return Next::Failed;
        }
        settled.ok().flatten().map_or(Next::Idle, Next::At)
    }

    /// Whether the background threads are to end.
    pub(super) fn is_stopping(&self) -> bool {
        lock(&self.background).stopping
    }

    /// Something happened that may leave the maintenance something to do.
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

    /// Gives up what the maintenance was at, which runs no more.
    pub(super) fn end_keeping(&self) {
        if let Some(devices) = &self.devices {
            devices.snapshots.stop(&*self.storage, &self.dir);
        }
    }
}
