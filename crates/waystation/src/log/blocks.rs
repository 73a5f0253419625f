//! Reading the blocks of one segment file, in large pieces.

use crate::error::Result;
use crate::storage::{AlignedBuffer, File};
use waystation_format::log::{BLOCK_BYTES_MAX, BlockHeader, UNIT_BYTES, body_is_valid};

/// Segments are read in pieces of this size; no smaller than two blocks.
const READ_BYTES: usize = 2 * 1024 * 1024;

/// Reads the blocks of one file in order of their offsets.
pub(super) struct BlockReader<'a> {
    file: &'a dyn File,
    /// The next offset to look at, a multiple of the unit.
    pub(super) offset: u64,
    end: u64,
    window: AlignedBuffer,
    window_start: u64,
    window_len: usize,
}

impl<'a> BlockReader<'a> {
    pub(super) fn new(file: &'a dyn File, offset: u64, end: u64) -> Self {
        Self {
            file,
            offset,
            end,
            window: AlignedBuffer::new(),
            window_start: 0,
            window_len: 0,
        }
    }

    /// Up to one longest block's bytes from the current offset.
    fn view(&mut self) -> Result<&[u8]> {
        let wanted = (self.end.saturating_sub(self.offset)).min(BLOCK_BYTES_MAX as u64) as usize;
        let inside = self.offset >= self.window_start
            && self.offset + wanted as u64 <= self.window_start + self.window_len as u64;
        if !inside {
            let len = (self.end.saturating_sub(self.offset)).min(READ_BYTES as u64) as usize;
            self.window.resize(len.next_multiple_of(UNIT_BYTES));
            self.window_start = self.offset;
            self.window_len = self
                .file
                .read_at(self.window.as_mut_slice(), self.offset)?
                .min(len);
        }
        let from = (self.offset - self.window_start) as usize;
        Ok(&self.window[from..self.window_len.min(from + wanted)])
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
