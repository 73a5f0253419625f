//! A file that is written once, from its beginning to its end, in large chunks.
//!
//! It goes through the page cache, unlike the log: what was just flushed or merged is read soon, and reading it back from
//! the device while all threads write takes a hundred times as long as the copy. So a chunk is copied by the thread that fills it,
//! while it is in the processor's cache; no thread waits for the device before the end. Each chunk is sent on its way to the
//! device at once: of all of them at the end the device would be full, and the reads of others wait there for milliseconds.

use super::{Area, File, OpenMode, RateLimit, Storage, Transfer, TransitBuffer};
use crate::error::Result;
use crate::sync::Arc;
use std::path::Path;

/// The length of a chunk.
const CHUNK_BYTES: usize = 256 << 10;

/// A file that is written once, from its beginning to its end.
pub(crate) struct Output {
    file: Arc<dyn File>,
    chunk: TransitBuffer,
    /// How much of the chunk is filled.
    filled: usize,
    /// How many bytes of the file were written.
    written: u64,
    /// How fast chunks may leave, and whose clock says so.
    rate: Option<(Arc<RateLimit>, Arc<dyn Storage>)>,
}

impl Output {
    /// Creates the file.
    pub(crate) fn create(storage: &dyn Storage, path: &Path) -> Result<Self> {
        let file = storage.open(path, OpenMode::Create, Transfer::Buffered, Area::Tables)?;
        let mut chunk = TransitBuffer::in_pages();
        chunk.resize(CHUNK_BYTES, path)?;
        Ok(Self {
            file,
            chunk,
            filled: 0,
            written: 0,
            rate: None,
        })
    }

    /// Lets chunks leave at this rate from now on.
    pub(crate) fn set_rate(&mut self, rate: Option<(Arc<RateLimit>, Arc<dyn Storage>)>) {
        self.rate = rate;
    }

    /// Waits until as many bytes as are gathered may leave.
    fn wait_for_turn(&self) {
        if let Some((rate, storage)) = &self.rate {
            rate.take(self.filled, &**storage);
        }
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Appends `bytes`.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = CHUNK_BYTES - self.filled;
            let (now, later) = bytes.split_at(bytes.len().min(room));
            let end = self.filled + now.len();
            self.chunk[self.filled..end].copy_from_slice(now);
            self.filled = end;
            if end == CHUNK_BYTES {
                self.write()?;
            }
            bytes = later;
        }
        Ok(())
    }

    /// Completes the file and makes its content durable; its length.
    pub(crate) fn finish(self) -> Result<u64> {
        let (bytes, file) = self.complete()?;
        file.sync()?;
        Ok(bytes)
    }

    /// Completes the file: its length, and the file, whose content is durable once it is synced.
    pub(crate) fn complete(mut self) -> Result<(u64, Arc<dyn File>)> {
        if self.filled > 0 {
            self.write()?;
        }
        Ok((self.written, self.file))
    }

    fn write(&mut self) -> Result<()> {
        self.wait_for_turn();
        let filled = &self.chunk[..self.filled];
        self.file.write_at(filled, self.written)?;
        let bytes = filled.len() as u64;
        self.file.write_back(self.written, bytes);
        self.written += bytes;
        self.filled = 0;
        Ok(())
    }
}
