//! The length of the staging ring: before a writer would go round, the file is made twice as long, if the last lap took less
//! than [`QUICK_LAP`], or if the writer would wait for room: the device may be slow. Otherwise the log has written everything when
//! a writer comes there again, and a longer ring would spare nothing. A database that is closed, or to which nothing was
//! written for long, has the shortest.
//!
//! Where the disk has no room, or the file cannot grow, the ring goes round as it is, and another attempt is made in a later
//! lap. The file grows under the front's lock, as no thread may reserve meanwhile: that is a few calls in all, until the ring
//! has its whole length. [`ring`](super::ring) says why no byte moves.

use super::Log;
use super::deferral::DELAY;
use super::front::Front;
use super::ring::Growth;
use crate::directory::RING_NAME;
use crate::error::Result;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::lock;
use std::time::Duration;

/// A block that the log defers waits for twice the [`DELAY`] at most, and then takes a write.
const QUICK_LAP: Duration = Duration::from_millis(1_500);
const _: () = assert!(QUICK_LAP.as_millis() > 2 * DELAY.as_millis());

impl Log {
    /// Lets the ring grow for a record that ends at `end`, if it may and can.
    pub(super) fn grow_ring(&self, front: &mut Front, end: u64) {
        let released = self.released_lsn.load(SeqCst);
        let Some(growth) = self.ring.growth(released, front.layout.boundary(), end) else {
            return;
        };
        if front.not_grown == Some(growth.from_lsn) {
            return;
        }
        let lap_end = growth.from_lsn + self.ring.len();
        let now = self.storage.now();
        let before = front.lap_ended.replace((lap_end, now));
        let has_room = end <= released + self.ring.len();
        if has_room && before.is_some_and(|before| !self.is_quick(before, (lap_end, now))) {
            front.not_grown = Some(growth.from_lsn);
            return;
        }
        match self.lengthen_file(&growth) {
            Ok(true) => {
                self.ring.grow(&growth);
                front.ring_since = front.ring_since.max(growth.from_lsn);
            }
            Ok(false) => front.not_grown = Some(growth.from_lsn),
            Err(error) => {
                log::debug!("the staging ring stays as it is for now: {error}");
                front.not_grown = Some(growth.from_lsn);
            }
        }
    }

    /// Whether writers go round within [`QUICK_LAP`], as from one position and time to another.
    fn is_quick(&self, from: (u64, Duration), to: (u64, Duration)) -> bool {
        let laps = (to.0 - from.0) as f64 / self.ring.len() as f64;
        to.1.saturating_sub(from.1) <= QUICK_LAP.mul_f64(laps)
    }

    /// Whether the file is longer than it begins.
    pub(crate) fn ring_has_grown(&self) -> bool {
        self.ring.len() > self.ring.len_min()
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
        front.not_grown = None;
        front.lap_ended = None;
        Ok(())
    }

    /// Whether there was room beside all that is kept, and the file is longer now.
    fn lengthen_file(&self, growth: &Growth) -> Result<bool> {
        let more = growth.len - self.ring.len();
        let needed = more.saturating_add(self.segment_lengths.kept_beside);
        if self.storage.free_bytes(&self.dir)? < needed {
            return Ok(false);
        }
        let path = self.dir.join(RING_NAME);
        self.storage.resize_ring(&path, growth.len as usize)?;
        Ok(true)
    }
}
