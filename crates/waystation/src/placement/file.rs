//! A file that never changes, parts of which may lie in the fast directory, too.

use super::extents::Extents;
use super::tier::Tier;
use crate::error::Result;
use crate::storage::forward::forward;
use crate::storage::{File, is_background};
use std::path::Path;
use std::sync::Arc;

/// A read of more extents than this, 64 KiB, goes through the file: it is a scan's or a merge's, which come once.
const POINT_EXTENTS: usize = 16;

/// See the module.
pub(super) struct TieredFile {
    pub(super) main: Arc<dyn File>,
    pub(super) extents: Arc<Extents>,
    pub(super) tier: Arc<Tier>,
}

impl TieredFile {
    /// Reads from the fast directory, if all of it lies there.
    fn read_fast(&self, buffer: &mut [u8], offset: u64) -> Option<usize> {
        let extents = &*self.extents;
        let left = extents.bytes.saturating_sub(offset);
        let there = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let is_read = there > 0
            && self.tier.health.is_good()
            && self.tier.read(extents, &mut buffer[..there], offset);
        is_read.then_some(there)
    }

    /// Reads what a caller waits for.
    fn read_point(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let (tier, extents) = (&*self.tier, &self.extents);
        let around = extents.around(offset, buffer.len());
        let area = extents.area;
        let started = tier.storage.now();
        let elapsed = || tier.storage.now().saturating_sub(started);
        if let Some(read) = self.read_fast(buffer, offset) {
            tier.meters.of(area).fast.note(elapsed());
            tier.warm(extents, around);
            return Ok(read);
        }
        let read = if tier.wants(extents, around.clone()) {
            tier.bring((&*self.main, extents), around.clone(), buffer, offset)?
        } else {
            self.main.read_at(buffer, offset)?
        };
        if tier.meters.note_main(area, elapsed()) {
            tier.warm(extents, around);
        }
        Ok(read)
    }
}

impl File for TieredFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let around = self.extents.around(offset, buffer.len());
        if !around.is_empty() && around.len() <= POINT_EXTENTS && !is_background() {
            return self.read_point(buffer, offset);
        }
        match self.read_fast(buffer, offset) {
            Some(read) => Ok(read),
            None => self.main.read_at(buffer, offset),
        }
    }

    forward! { main:
        fn write_at(data: &[u8], offset: u64) -> Result<()>;
        fn sync() -> Result<()>;
        fn preallocate(bytes: u64) -> Result<()>;
        fn truncate(bytes: u64) -> Result<()>;
        fn size() -> Result<u64>;
        fn is_direct() -> bool;
        fn alignment() -> usize;
        fn prefetch(offset: u64, length: u64);
        fn write_back(offset: u64, length: u64);
        fn path() -> &Path;
    }
}
