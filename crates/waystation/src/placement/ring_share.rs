//! The staging ring in a fast directory that is durable.
//!
//! Writers fill the ring again and again, and the kernel writes its pages back: where the process has little memory, most of them
//! in each lap. In the fast directory that takes nothing from flushes and merges. So the ring lies there if all of it
//! fits beside a segment. Segments leave it the room of its whole length. Tables and copies leave it the room of its
//! file, which becomes short soon after the last write.

use super::spread::FastFiles;
use super::tier::Tier;
use crate::directory::RING_NAME;
use crate::error::{Error, Result};
use crate::storage::Ring;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::io::ErrorKind;

/// The room of the ring (bytes).
#[derive(Debug, Default)]
pub(super) struct RingShare {
    /// The length that it can grow to; 0 if it is to lie in the main directory.
    whole: AtomicU64,
    /// The length of its file in the fast directory.
    length: AtomicU64,
    /// The room that is kept for the file: more than its length before it grows.
    taken: AtomicU64,
}

impl RingShare {
    /// The length of its file in the fast directory.
    pub(super) fn length(&self) -> u64 {
        self.length.load(Relaxed)
    }

    /// What others leave to the file.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }
}

impl Tier {
    /// Keeps room for a ring that can grow to `bytes`, if all of it fits.
    pub(super) fn claim_ring(&self, bytes: u64) {
        let with_segment = bytes.saturating_add(self.options.segment_bytes_max());
        if with_segment <= self.options.capacity_bytes {
            self.ring.whole.store(bytes, Relaxed);
        }
    }

    /// Whether the ring fits there.
    pub(crate) fn is_for_ring(&self) -> bool {
        self.ring.whole.load(Relaxed) > 0
    }

    /// What the ring leaves to segments (bytes).
    pub(super) fn bytes_for_segments(&self) -> u64 {
        let whole = self.ring.whole.load(Relaxed);
        self.options.capacity_bytes.saturating_sub(whole)
    }

    /// What it leaves to segments and tables now.
    pub(super) fn shared_bytes(&self) -> u64 {
        let capacity = self.options.capacity_bytes;
        capacity.saturating_sub(self.ring.taken())
    }

    /// Notes that the file of the ring there has `bytes`.
    pub(super) fn note_ring(&self, bytes: u64) {
        self.ring.length.store(bytes, Relaxed);
        self.ring.taken.store(bytes, Relaxed);
        self.reserve_others();
    }

    /// Takes room for a ring of `bytes`. `false`: there is none yet. Copies leave it then, and tables that are too many go.
    pub(super) fn lengthen_ring(&self, bytes: u64) -> bool {
        self.ring.taken.fetch_max(bytes, Relaxed);
        let segments = self.log_share().map_or(0, |share| share.placed().0);
        let taken = bytes
            .saturating_add(segments)
            .saturating_add(self.table_bytes());
        self.reserve_others() && taken <= self.options.capacity_bytes
    }
}

impl FastFiles {
    /// Whether the ring is to lie there.
    pub(super) fn is_for_ring(&self) -> bool {
        self.tier.as_ref().is_some_and(|tier| tier.is_for_ring())
    }

    /// Whether a new one is made there.
    pub(super) fn takes_ring(&self) -> bool {
        let is_good = self.tier.as_ref().is_some_and(|tier| tier.health.is_good());
        is_good && self.is_for_ring()
    }

    /// Whether the ring was mapped there. One that is to move at this opening has no tier.
    pub(super) fn has_ring(&self) -> bool {
        self.tier
            .as_ref()
            .is_some_and(|tier| tier.ring.length() > 0)
    }

    /// Maps the ring there.
    pub(super) fn map_ring(&self, bytes: usize) -> Result<(Arc<dyn Ring>, bool)> {
        let mapped =
            (self.segments).change(RING_NAME, |path| self.storage.map_ring(path, bytes))?;
        if let Some(tier) = &self.tier {
            tier.note_ring(mapped.0.file_bytes() as u64);
        }
        Ok(mapped)
    }

    /// Gives the file of the ring there another length, if there is room.
    pub(super) fn resize_ring(&self, bytes: usize) -> Result<()> {
        let path = self.segments.dir().join(RING_NAME);
        let length = bytes as u64;
        let is_longer = self
            .tier
            .as_ref()
            .filter(|tier| length > tier.ring.length());
        if is_longer.is_some_and(|tier| !tier.lengthen_ring(length)) {
            return Err(Error::io("resize", &path, ErrorKind::StorageFull.into()));
        }
        self.storage.resize_ring(&path, bytes)?;
        if let Some(tier) = &self.tier {
            tier.note_ring(length);
        }
        Ok(())
    }
}
