//! A file that never changes, parts of which may lie in the fast directory, too.

use super::blocks::Blocks;
use super::tier::Tier;
use crate::error::Result;
use crate::storage::File;
use crate::storage::forward::forward;
use crate::sync::Arc;
use std::path::Path;

/// See the module.
pub(super) struct TieredFile {
    pub(super) main: Arc<dyn File>,
    pub(super) blocks: Arc<Blocks>,
    pub(super) tier: Arc<Tier>,
}

impl File for TieredFile {
    /// Reads a block, for which a caller waits.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let (tier, blocks) = (&*self.tier, &self.blocks);
        let Some(index) = blocks.index(offset) else {
            return self.main.read_at(buffer, offset);
        };
        let started = tier.storage.now();
        let elapsed = || tier.storage.now().saturating_sub(started);
        if blocks.is_whole() {
            let read = self.main.read_at(buffer, offset)?;
            tier.meters.of(blocks.area).fast.note(elapsed());
            tier.warm(blocks, index);
            return Ok(read);
        }
        if tier.read((blocks, index), buffer, offset) {
            tier.meters.of(blocks.area).fast.note(elapsed());
            tier.warm(blocks, index);
            return Ok(buffer.len());
        }
        let read = self.main.read_at(buffer, offset)?;
        if tier.meters.note_main(blocks.area, elapsed()) {
            tier.warm(blocks, index);
            tier.offer((blocks, index), offset, &buffer[..read]);
        }
        Ok(read)
    }

    forward! { main:
        fn read_window(buffer: &mut [u8], offset: u64) -> Result<usize>;
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
