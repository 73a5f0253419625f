//! The length of the staging ring: before a writer would go round, the file is made twice as long. A closed database has the
//! shortest.
//!
//! Where the disk has no room, or the file cannot grow, the ring goes round as it is, and another attempt is made in a later
//! lap. The file grows under the front's lock, as no thread may reserve meanwhile: that is a few calls in all, until the ring
//! has its whole length. [`ring`](super::ring) says why no byte moves.

use super::Log;
use super::front::Front;
use super::ring::Growth;
use crate::directory::RING_NAME;
use crate::error::Result;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::lock;
use waystation_format::log::ring_file_lengths;

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

    /// Gives the room back that the file takes beyond its shortest length. All of the log is in segments, and no thread
    /// writes any more.
    pub(super) fn shorten_ring(&self) -> Result<()> {
        let shortest = ring_file_lengths(self.ring.len_max()).last();
        let Some(length) = shortest.filter(|length| *length < self.ring.len()) else {
            return Ok(());
        };
        // Cursors may still be there: they read segments from now on.
        let mut front = lock(&self.front);
        assert!(self.released_lsn.load(SeqCst) >= front.layout.block_start());
        front.ring_since = front.layout.boundary();
        self.ring.shorten(length);
        self.storage
            .resize_ring(&self.dir.join(RING_NAME), length as usize)
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
