//! A file that is written once, from its beginning to its end, in large aligned pieces.
//!
//! Direct transfers want addresses, offsets and lengths in whole units. Bytes gather in one aligned buffer,
//! which is written when it is full; the last piece is padded with zeros to a whole unit and the file then
//! cut to its true length.

use crate::error::Result;
use crate::storage::{AlignedBuffer, Area, File, OpenMode, Storage, Transfer};
use std::path::Path;
use std::sync::Arc;

/// The length of a piece. At a megabyte a direct write reaches the speed of the device.
const PIECE_BYTES: usize = 1 << 20;

/// A file that is written once, from its beginning to its end.
pub(super) struct Output {
    file: Arc<dyn File>,
    buffer: AlignedBuffer,
    /// How many bytes of the file were written.
    written: u64,
}

impl Output {
    /// Creates the file, for direct transfers.
    pub(super) fn create(storage: &dyn Storage, path: &Path) -> Result<Self> {
        let file = storage.open(path, OpenMode::Create, Transfer::Direct, Area::Tables)?;
        Ok(Self {
            file,
            buffer: AlignedBuffer::with_capacity(PIECE_BYTES),
            written: 0,
        })
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Appends `bytes`.
    pub(super) fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = PIECE_BYTES - self.buffer.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.buffer.extend_from_slice(now);
            if self.buffer.len() == PIECE_BYTES {
                self.write_buffer()?;
            }
            bytes = later;
        }
        Ok(())
    }

    /// Completes the file and makes its content durable; its length. What was written around the page cache
    /// is asked into it, because it will be read soon.
    pub(super) fn finish(mut self) -> Result<u64> {
        let length = self.written + self.buffer.len() as u64;
        if !self.buffer.is_empty() {
            self.buffer.pad_to(self.file.alignment());
            self.write_buffer()?;
            self.file.truncate(length)?;
        }
        self.file.sync()?;
        if self.file.is_direct() {
            self.file.prefetch(0, length);
        }
        Ok(length)
    }

    fn write_buffer(&mut self) -> Result<()> {
        self.file.write_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
