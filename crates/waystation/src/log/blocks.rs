//! Reading the blocks of one segment file, in large pieces.
//!
//! While the blocks of one piece are looked at, a thread reads the next: the device and the processor are busy at
//! once. Short files have one piece and need no thread.

use crate::error::{Error, Result};
use crate::storage::{AlignedBuffer, File};
use crate::sync::Arc;
use crate::sync::thread::{self, JoinHandle};
use waystation_format::log::{BLOCK_BYTES_MAX, BlockHeader, UNIT_BYTES, body_is_valid};

/// Segments are read in pieces of this size; no smaller than two blocks.
const READ_BYTES: usize = 2 * 1024 * 1024;

/// A piece of a file.
struct Window {
    bytes: AlignedBuffer,
    start: u64,
    length: usize,
}

impl Window {
    /// Reads the piece of `file` from `start` to `end`, or its beginning, into the memory of `bytes`.
    fn read(file: &dyn File, mut bytes: AlignedBuffer, start: u64, end: u64) -> Result<Self> {
        let length = end.saturating_sub(start).min(READ_BYTES as u64) as usize;
        bytes.resize(length.next_multiple_of(UNIT_BYTES));
        let length = file.read_at(bytes.as_mut_slice(), start)?.min(length);
        Ok(Self {
            bytes,
            start,
            length,
        })
    }

    fn end(&self) -> u64 {
        self.start + self.length as u64
    }

    fn holds(&self, offset: u64, length: usize) -> bool {
        offset >= self.start && offset + length as u64 <= self.end()
    }
}

/// Reads the blocks of one file in order of their offsets.
pub(super) struct BlockReader<'a> {
    file: &'a Arc<dyn File>,
    /// The next offset to look at, a multiple of the unit.
    pub(super) offset: u64,
    end: u64,
    window: Window,
    /// The next piece, which begins with the last block's worth of this one.
    ahead: Option<JoinHandle<Result<Window>>>,
    spare: Option<AlignedBuffer>,
}

impl<'a> BlockReader<'a> {
    pub(super) fn new(file: &'a Arc<dyn File>, offset: u64, end: u64) -> Self {
        Self {
            file,
            offset,
            end,
            window: Window {
                bytes: AlignedBuffer::new(),
                start: 0,
                length: 0,
            },
            ahead: None,
            spare: None,
        }
    }

    /// Up to one longest block's bytes from the current offset.
    fn view(&mut self) -> Result<&[u8]> {
        let wanted = (self.end.saturating_sub(self.offset)).min(BLOCK_BYTES_MAX as u64) as usize;
        if !self.window.holds(self.offset, wanted) {
            self.go_on(wanted)?;
        }
        let window = &self.window;
        let from = (self.offset - window.start) as usize;
        Ok(&window.bytes[from..window.length.min(from + wanted)])
    }

    /// Makes the piece with `wanted` bytes from the current offset on the current one, and has the next one read.
    fn go_on(&mut self, wanted: usize) -> Result<()> {
        let ahead = self.ahead.take().map(join).transpose()?;
        let next = if let Some(ahead) = ahead.filter(|ahead| ahead.holds(self.offset, wanted)) {
            ahead
        } else {
            let bytes = self.spare.take().unwrap_or_default();
            Window::read(&**self.file, bytes, self.offset, self.end)?
        };
        let used = std::mem::replace(&mut self.window, next);
        let follows = self.window.end().saturating_sub(BLOCK_BYTES_MAX as u64);
        if self.window.length == READ_BYTES && self.window.end() < self.end {
            let (file, end) = (Arc::clone(self.file), self.end);
            let reader = thread::Builder::new().name("waystation-read".to_owned());
            let read = move || Window::read(&*file, used.bytes, follows, end);
            let started = reader.spawn(read);
            let started =
                started.map_err(|error| Error::io("start thread", "waystation-read", error));
            self.ahead = Some(started?);
        } else {
            self.spare = Some(used.bytes);
        }
        Ok(())
    }

    /// The block at the current offset, header and whole bytes, if it is valid and `belongs`.
    pub(super) fn block(
        &mut self,
        belongs: impl Fn(&BlockHeader) -> bool,
    ) -> Result<Option<(BlockHeader, &[u8])>> {
        let view = self.view()?;
        let Some(header) = BlockHeader::decode(view).filter(&belongs) else {
            return Ok(None);
        };
        Ok(view
            .get(..header.seal.length as usize)
            .filter(|block| body_is_valid(block))
            .map(|block| (header, block)))
    }

    /// Skips unit by unit to the next valid block that `belongs`, and past it.
    pub(super) fn next_valid(
        &mut self,
        belongs: impl Fn(&BlockHeader) -> bool,
    ) -> Result<Option<BlockHeader>> {
        while self.offset < self.end {
            let found = self.block(&belongs)?.map(|(header, _)| header);
            match found {
                Some(header) => {
                    self.offset += u64::from(header.seal.length);
                    return Ok(Some(header));
                }
                None => self.offset += UNIT_BYTES as u64,
            }
        }
        Ok(None)
    }
}

impl Drop for BlockReader<'_> {
    fn drop(&mut self) {
        // Nobody reads on behind the reader's back.
        if let Some(ahead) = self.ahead.take() {
            let _ = ahead.join();
        }
    }
}

fn join(reader: JoinHandle<Result<Window>>) -> Result<Window> {
    reader
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
