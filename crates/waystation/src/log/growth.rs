//! The length of the staging ring: before a writer would go round, the file is made twice as long, if the last lap was
//! [`QUICK`], or if writers would wait for room before long: the device may be slow. Otherwise the log has written everything when
//! a writer comes there again, and a longer ring would spare nothing. A database that is closed, or to which nothing was
//! written for long, has the shortest.
//!
//! Where others take the room of the ring, or the log defers its writes, the ring also becomes half as long when that would still
//! take writers [`SLOW`], and the other half holds nothing that segments lack: its pages take memory. A log that does not
//! defer keeps it: devices are read there.
//!
//! Where blocks become due before writers have filled a memtable, deferral spares few writes. If others take the room of the ring,
//! they gain more by it then. So the log defers nothing any more, and a lap may be as short as [`SHORT_QUICK`].
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
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::lock;
use std::time::Duration;

/// A block that the log defers waits for twice the [`DELAY`] at most, and then takes a write.
const QUICK: Duration = Duration::from_millis(1_100);
/// A ring that has become shorter is not to grow at once at the same rate.
const SLOW: Duration = Duration::from_millis(1_300);
/// The same of a log that defers nothing, which writes a quarter of the ring at a time.
const SHORT_QUICK: Duration = Duration::from_millis(200);
const SHORT_SLOW: Duration = Duration::from_millis(250);
/// A ring of which less than this part has been written to segments, and is free, is nearly full.
const NEARLY_FULL: u64 = 8;
const _: () = assert!(QUICK.as_millis() < SLOW.as_millis());
const _: () = assert!(SHORT_QUICK.as_millis() < SHORT_SLOW.as_millis());
const _: () = assert!(QUICK.as_millis() > 2 * DELAY.as_millis());

/// How long writers take for halves of the window.
#[derive(Default)]
pub(super) struct Halves {
    /// Where the half ends that is being written; 0: not known.
    end: u64,
    /// When writers came to it, if they did not begin within it.
    began: Option<Duration>,
    /// How long the last whole one took.
    took: Option<Duration>,
    /// The length could not change up to here.
    refused_to: u64,
}

impl Halves {
    /// Notes a record that ends at `end`, in a window whose halves have `half` bytes.
    /// Returns whether it leaves one.
    fn note(&mut self, end: u64, half: u64, now: impl FnOnce() -> Duration) -> bool {
        if end <= self.end {
            return false;
        }
        let now = now();
        let is_known = self.end > 0;
        let halves = 1 + (end - 1).saturating_sub(self.end) / half;
        let time = |began| now.saturating_sub(began) / u32::try_from(halves).unwrap_or(u32::MAX);
        self.took = self.began.map(time).or(self.took);
        self.began = is_known.then_some(now);
        self.end = (end - 1) / half * half + half;
        is_known
    }

    /// A record that ends at `end` is the first one in a window whose halves have `half` bytes instead of `before`.
    fn resize(&mut self, end: u64, half: u64, before: u64) {
        self.end = (end - 1) / half * half + half;
        self.began = None;
        self.took = self
            .took
            .map(|took| took.mul_f64(half as f64 / before as f64));
    }
}

impl Log {
    /// Gives the ring a length that fits the rate of writers, for a record that ends at `end`, if it may and can.
    pub(super) fn fit_ring(&self, front: &mut Front, end: u64) {
        let half = self.ring.len() / 2;
        let is_noted = front.halves.note(end, half, || self.storage.now());
        if is_noted && self.ring_shares_room {
            self.note_rate(&front.halves);
        }
        let (quick, slow) = if self.spares_little.load(Relaxed) {
            (SHORT_QUICK, SHORT_SLOW)
        } else {
            (QUICK, SLOW)
        };
        let (released, reserved) = (self.released_lsn.load(SeqCst), front.layout.boundary());
        if let Some(growth) = self.ring.growth(released, reserved, end) {
            let len = self.ring.len();
            let is_full = end > released + len - len / NEARLY_FULL;
            if is_full || front.halves.took.is_none_or(|half| 2 * half <= quick) {
                self.change_ring(front, &growth, end);
            }
        } else if (self.ring_shares_room || self.defers)
            && front.halves.took.is_some_and(|half| half > slow)
            && let Some(shrinkage) = self.ring.shrinkage(released, reserved, end)
        {
            self.change_ring(front, &shrinkage, end);
        }
    }

    /// Decides whether deferral spares little: blocks are due before writers come to the next flush.
    fn note_rate(&self, halves: &Halves) {
        let Some(took) = halves.took else {
            return;
        };
        let half = self.ring.len() / 2;
        let time = took.mul_f64(self.flush_bytes as f64 / half as f64);
        if time > SLOW {
            self.spares_little.store(true, Relaxed);
        } else if time <= QUICK {
            self.spares_little.store(false, Relaxed);
        }
    }

    /// Gives the ring its `new` length for a record that ends at `end`, unless that failed in this lap.
    fn change_ring(&self, front: &mut Front, new: &NewLength, end: u64) {
        if end <= front.halves.refused_to {
            return;
        }
        let before = self.ring.len();
        match self.change_file(new.len) {
            Ok(true) => {
                self.ring.change(new);
                front.ring_since = front.ring_since.max(new.from_lsn);
                front.halves.resize(end, new.len / 2, before / 2);
                if new.len < before {
                    // They wait for a run of the longer ring.
                    self.wake_writers();
                }
                return;
            }
            Ok(false) => {}
            Err(error) => log::debug!("the staging ring stays as it is for now: {error}"),
        }
        let lap_end = new.from_lsn + new.len.min(before);
        front.halves.refused_to = lap_end.max(end);
    }

    /// Whether the file is longer than it begins.
    pub(crate) fn has_long_ring(&self) -> bool {
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
        front.halves = Halves::default();
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
