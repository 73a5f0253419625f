//! Looking for valid blocks in segment files, which are read in large windows.

use crate::error::Result;
use crate::storage::{AlignedBuffer, File};
use waystation_format::log::{BLOCK_BYTES_MAX, BlockHeader, UNIT_BYTES, body_is_valid};

/// Segments are read in windows of this size; no smaller than two blocks.
const WINDOW_BYTES: usize = 2 * 1024 * 1024;

/// A window on a file.
#[derive(Default)]
struct Window {
    memory: AlignedBuffer,
    start: u64,
    length: usize,
}

impl Window {
    /// Shows the part of `file` from `start` to `end`, or its beginning.
    fn read(&mut self, file: &dyn File, start: u64, end: u64) -> Result<()> {
        let length = end.saturating_sub(start).min(WINDOW_BYTES as u64) as usize;
        self.memory.resize(length.next_multiple_of(UNIT_BYTES));
        let read = file.read_at(self.memory.as_mut_slice(), start)?;
        (self.start, self.length) = (start, read.min(length));
        Ok(())
    }

    /// What it shows.
    fn bytes(&self) -> &[u8] {
        &self.memory[..self.length]
    }

    /// The offset in the file behind what it shows.
    fn end(&self) -> u64 {
        self.start + self.length as u64
    }

    fn holds(&self, offset: u64, length: usize) -> bool {
        offset >= self.start && offset + length as u64 <= self.end()
    }
}

/// The header of the block at the beginning of `bytes`, if it is there as a whole, is valid and `belongs`.
pub(super) fn valid_block(
    bytes: &[u8],
    belongs: impl FnOnce(&BlockHeader) -> bool,
) -> Option<BlockHeader> {
    BlockHeader::decode(bytes).filter(belongs).filter(|header| {
        let block = bytes.get(..header.seal.length as usize);
        block.is_some_and(body_is_valid)
    })
}

/// Looks for the valid blocks of one file in the order of their offsets.
pub(super) struct BlockSearch<'a> {
    file: &'a dyn File,
    /// The next offset to look at, a multiple of the unit.
    offset: u64,
    end: u64,
    window: Window,
}

impl<'a> BlockSearch<'a> {
    pub(super) fn new(file: &'a dyn File, offset: u64, end: u64) -> Self {
        Self {
            file,
            offset,
            end,
            window: Window::default(),
        }
    }

    /// Skips unit by unit to the next valid block that `belongs`, and past it.
    pub(super) fn next(
        &mut self,
        belongs: impl Fn(&BlockHeader) -> bool,
    ) -> Result<Option<BlockHeader>> {
        while self.offset < self.end {
            match valid_block(self.view()?, &belongs) {
                Some(header) => {
                    self.offset += u64::from(header.seal.length);
                    return Ok(Some(header));
                }
                None => self.offset += UNIT_BYTES as u64,
            }
        }
        Ok(None)
    }

    /// Up to one longest block's bytes from the current offset.
    fn view(&mut self) -> Result<&[u8]> {
        let length = (self.end - self.offset).min(BLOCK_BYTES_MAX as u64) as usize;
        if !self.window.holds(self.offset, length) {
            self.window.read(self.file, self.offset, self.end)?;
        }
        let from = (self.offset - self.window.start) as usize;
        let bytes = &self.window.bytes()[from..];
        Ok(&bytes[..length.min(bytes.len())])
    }
}
