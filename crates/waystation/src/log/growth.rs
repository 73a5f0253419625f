//! The length of the staging ring: before a writer would go round, the file is made twice as long, if the last lap took less
//! than [`QUICK_LAP`], or if the writer would wait for room: the device may be slow. Otherwise the log has written everything when
//! a writer comes there again, and a longer ring would spare nothing. A database that is closed, or to which nothing was
//! written for long, has the shortest.
//!
//! Where others take the room of the ring, or the log defers its writes, the ring also becomes half as long when writers take longer
//! than [`SLOW_HALF`] for a half, and the other half holds nothing that segments lack: its pages take memory. A log that does not
//! defer keeps it: devices are read there.
//!
//! Where the disk has no room, or the file cannot grow, the ring goes round as it is, and another attempt is made in a later
//! lap. The file grows under the front's lock, as no thread may reserve meanwhile: that is a few calls in all, until the ring
//! has its whole length. [`ring`](super::ring) says why no byte moves.

use super::Log;
use super::deferral::DELAY;
use super::front::Front;
use super::ring::NewLength;
use crate::directory::RING_NAME;
use crate::error::Result;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::lock;
use std::time::Duration;

/// A block that the log defers waits for twice the [`DELAY`] at most, and then takes a write.
const QUICK_LAP: Duration = Duration::from_millis(1_100);
/// A ring that has become shorter is not to grow at once at the same rate.
const SLOW_HALF: Duration = Duration::from_millis(1_300);
const _: () = assert!(QUICK_LAP.as_millis() < SLOW_HALF.as_millis());
const _: () = assert!(QUICK_LAP.as_millis() > 2 * DELAY.as_millis());

impl Log {
    /// Gives the ring a length that fits the rate of writers, for a record that ends at `end`, if it may and can.
    pub(super) fn fit_ring(&self, front: &mut Front, end: u64) {
        let (released, reserved) = (self.released_lsn.load(SeqCst), front.layout.boundary());
        if let Some(growth) = self.ring.growth(released, reserved, end) {
            let has_room = end <= released + self.ring.len();
            let is_due = |lap: Option<Duration>| !has_room || lap.is_none_or(|it| it <= QUICK_LAP);
            self.change_ring(front, &growth, is_due);
        } else if (self.ring_shares_room || self.defers)
            && let Some(shrinkage) = self.ring.shrinkage(released, reserved, end)
        {
            let is_due = |half: Option<Duration>| half.is_some_and(|it| it > SLOW_HALF);
            self.change_ring(front, &shrinkage, is_due);
        }
    }

    /// Gives the ring its `new` length if that `is_due`, which depends on how long writers take for the shorter of both.
    fn change_ring(
        &self,
        front: &mut Front,
        new: &NewLength,
        is_due: impl Fn(Option<Duration>) -> bool,
    ) {
        let shorter = new.len.min(self.ring.len());
        let place = new.from_lsn + shorter;
        if front.fitted.is_some_and(|before| before.0 >= place) {
            return;
        }
        let now = self.storage.now();
        let before = front.fitted.replace((place, now));
        if !is_due(before.map(|before| time_for(shorter, before, (place, now)))) {
            return;
        }
        match self.change_file(new.len) {
            Ok(true) => {
                self.ring.change(new);
                front.ring_since = front.ring_since.max(new.from_lsn);
            }
            Ok(false) => {}
            Err(error) => log::debug!("the staging ring stays as it is for now: {error}"),
        }
    }

    /// Whether the file is longer than it begins, and others would take the room.
    pub(crate) fn ring_has_room_for_others(&self) -> bool {
        self.ring_shares_room && self.ring.len() > self.ring.len_min()
    }

    /// Gives the room back that the file takes beyond its shortest length, if all of the log is in segments.
    pub(super) fn shorten_ring(&self) -> Result<()> {
        let length = self.ring.len_min();
        let mut front = lock(&self.front);
        let is_in_segments = self.released_lsn.load(SeqCst) >= front.layout.boundary();
        if !is_in_segments || length >= self.ring.len() {
            return Ok(());
        }
        // No thread has a place to write to, and readers look into segments from now on.
        let path = self.dir.join(RING_NAME);
        self.storage.resize_ring(&path, length as usize)?;
        self.ring.shorten(length);
        front.ring_since = front.layout.boundary();
        front.fitted = None;
        Ok(())
    }

    /// Gives the file the length `len`, unless there is too little room beside all that is kept. Returns whether it has it.
    fn change_file(&self, len: u64) -> Result<bool> {
        if let Some(more) = len.checked_sub(self.ring.len()) {
            let needed = more.saturating_add(self.segment_lengths.kept_beside);
            if self.storage.free_bytes(&self.dir)? < needed {
                return Ok(false);
            }
        }
        let path = self.dir.join(RING_NAME);
        self.storage.resize_ring(&path, len as usize)?;
        Ok(true)
    }
}

/// How long writers take for `len` bytes, as from one position and time to another one further on.
fn time_for(len: u64, from: (u64, Duration), to: (u64, Duration)) -> Duration {
    let parts = len as f64 / (to.0 - from.0) as f64;
    to.1.saturating_sub(from.1).mul_f64(parts)
}
