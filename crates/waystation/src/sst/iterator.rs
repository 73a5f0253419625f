//! A cursor over one table.
//!
//! Nothing is read, and no memory taken, before the first positioning call. After a seek the next few blocks go
//! through the cache; a cursor that goes on reads ahead in growing windows. It takes from the cache what is there, and
//! leaves a block there only if no other one has to go for it: a long scan does not wash the cache out, and what has room
//! there is not read and unpacked again and again.

use super::reader::{Table, read_window, recycle};
use crate::error::Result;
use crate::sst::InternalIterator;
use crate::storage::TransitBuffer;
use std::sync::Arc;
use waystation_format::FormatError;
use waystation_format::block::{Block, BlockIter};
use waystation_format::key::split;
use waystation_format::table::{BlockHandle, StoredBlock, TRAILER_BYTES};

/// How many blocks in a row go through the cache.
const CACHED_RUN: u32 = 4;
/// A reader's first window of bytes read ahead, and its last: every block in between doubles it. A merge has the last at once.
const FIRST_WINDOW_BYTES: u64 = 32 * 1024;
const LAST_WINDOW_BYTES: u64 = 256 * 1024;

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// A user's iterator.
    Reader,
    /// A merge, which reads everything once.
    Merge,
}

/// A cursor over one table.
#[derive(Debug)]
pub(crate) struct TableIterator {
    table: Arc<Table>,
    access: Access,
    /// The data block the cursor is in, if it is in any.
    position: usize,
    block: Option<BlockIter>,
    /// Memory of a block that was left, for the next one.
    spare: Vec<u8>,
    ahead: ReadAhead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl TableIterator {
    pub(super) fn new(table: Arc<Table>, access: Access) -> Self {
        Self {
            table,
            access,
            position: 0,
            block: None,
            spare: Vec::new(),
            ahead: ReadAhead::new(access),
        }
    }

    /// Goes to another table, in the same memory.
    pub(crate) fn reset(&mut self, table: Arc<Table>) {
        self.table = table;
        self.block = None;
        self.ahead.forget();
    }

    /// Makes data block `position` the current one, nowhere yet.
    fn load(&mut self, position: usize) -> Result<&mut BlockIter> {
        let block = match self.access {
            Access::Reader if self.ahead.run < CACHED_RUN => self.table.block(position),
            Access::Reader => match self.table.cached(position) {
                Some(block) => Ok(block),
                None => self.read_ahead(position).inspect(|block| {
                    self.table.note_read();
                    self.table.keep_from_scan(position, block);
                }),
            },
            Access::Merge => self.read_ahead(position),
        };
        self.position = position;
        let block = block.inspect_err(|_| self.block = None)?;
        match &mut self.block {
            Some(iter) => {
                if let Some(memory) = iter.reset(block).into_bytes() {
                    self.spare = memory;
                }
                Ok(iter)
            }
            none => Ok(none.insert(BlockIter::new(block))),
        }
    }

    /// Data block `position`, read with what follows it.
    fn read_ahead(&mut self, position: usize) -> Result<Block> {
        let handle = self.table.index().handle(position);
        let stored = self.ahead.read(&self.table, handle)?;
        self.table
            .decode(handle, stored, std::mem::take(&mut self.spare))
    }

    /// Makes the first entry of block `position` or of those after it the current one.
    fn enter_forward(&mut self, mut position: usize) -> Result<()> {
        while position < self.table.index().len() {
            let entered = self.load(position)?.seek_to_first();
            self.checked(entered)?;
            if self.valid() {
                return Ok(());
            }
            position += 1;
        }
        self.block = None;
        Ok(())
    }

    /// Makes the last entry of the blocks before block `position` the current one.
    fn enter_backward(&mut self, mut position: usize) -> Result<()> {
        while position > 0 {
            position -= 1;
            let entered = self.load(position)?.seek_to_last();
            self.checked(entered)?;
            if self.valid() {
                return Ok(());
            }
        }
        self.block = None;
        Ok(())
    }

    #[cold]
    fn go_to_next_block(&mut self) -> Result<()> {
        self.ahead.step(Direction::Forward);
        self.enter_forward(self.position + 1)
    }

    #[cold]
    fn go_to_block_before(&mut self) -> Result<()> {
        self.ahead.step(Direction::Backward);
        self.enter_backward(self.position)
    }

    #[inline]
    fn checked(&self, result: Result<(), FormatError>) -> Result<()> {
        match result {
            Ok(()) => Ok(()),
            Err(error) => {
                let handle = self.table.index().handle(self.position);
                Err(self.table.damaged(handle, &error))
            }
        }
    }
}

impl InternalIterator for TableIterator {
    #[inline]
    fn valid(&self) -> bool {
        self.block.as_ref().is_some_and(BlockIter::valid)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.ahead.begin(Direction::Forward);
        self.enter_forward(0)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.ahead.begin(Direction::Backward);
        self.enter_backward(self.table.index().len())
    }

    fn seek(&mut self, internal_key: &[u8]) -> Result<()> {
        self.ahead.begin(Direction::Forward);
        let index = self.table.index();
        if index.len() == 0 {
            return Ok(());
        }
        let (user_key, trailer) = split(internal_key).unwrap_or((&[], u64::MAX));
        let position = index.find(user_key, trailer);
        if self.block.is_none() || self.position != position {
            self.load(position)?;
        }
        let Some(iter) = &mut self.block else {
            return Ok(());
        };
        let sought = iter.seek_in(self.table.order(), internal_key);
        self.checked(sought)?;
        if self.valid() {
            return Ok(());
        }
        self.enter_forward(position + 1)
    }

    fn seek_for_prev(&mut self, internal_key: &[u8]) -> Result<()> {
        self.seek(internal_key)?;
        if !self.valid() {
            return self.seek_to_last();
        }
        self.ahead.begin(Direction::Backward);
        let order = self.table.order();
        if order.compare_internal(self.key(), internal_key).is_gt() {
            return self.prev();
        }
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let Some(iter) = &mut self.block else {
            return Ok(());
        };
        let moved = iter.next();
        if iter.valid() {
            return Ok(());
        }
        self.checked(moved)?;
        self.go_to_next_block()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let Some(iter) = &mut self.block else {
            return Ok(());
        };
        let moved = iter.prev();
        if iter.valid() {
            return Ok(());
        }
        self.checked(moved)?;
        self.go_to_block_before()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], BlockIter::key)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], BlockIter::value)
    }
}

impl Table {
    /// Reads every data block and compares its checksum, without unpacking it.
    pub(crate) fn check_blocks(&self) -> Result<()> {
        let mut ahead = ReadAhead::new(Access::Merge);
        for position in 0..self.index().len() {
            let handle = self.index().handle(position);
            let stored = ahead.read(self, handle)?;
            StoredBlock::check(stored).map_err(|error| self.damaged(handle, &error))?;
            ahead.step(Direction::Forward);
        }
        Ok(())
    }
}

/// A cursor that was made for one seek leaves its block's memory for the next.
impl Drop for TableIterator {
    fn drop(&mut self) {
        if let Some(iter) = self.block.take() {
            recycle(iter.into_block());
        }
    }
}

/// Bytes that are read ahead of the cursor.
#[derive(Debug)]
struct ReadAhead {
    direction: Direction,
    /// How many blocks in a row were stepped over in this direction.
    run: u32,
    /// The least that is read at once.
    first_window: u64,
    bytes: TransitBuffer,
    /// Where in the file `bytes` begin.
    offset: u64,
}

impl ReadAhead {
    fn new(access: Access) -> Self {
        let (first_window, bytes) = match access {
            Access::Reader => (FIRST_WINDOW_BYTES, TransitBuffer::on_heap()),
            Access::Merge => (LAST_WINDOW_BYTES, TransitBuffer::in_pages()),
        };
        Self {
            direction: Direction::Forward,
            run: 0,
            first_window,
            bytes,
            offset: 0,
        }
    }

    /// A new walk begins.
    fn begin(&mut self, direction: Direction) {
        self.direction = direction;
        self.run = 0;
    }

    /// The walk goes on to the next block.
    fn step(&mut self, direction: Direction) {
        if self.direction == direction {
            self.run = self.run.saturating_add(1);
        } else {
            self.begin(direction);
        }
    }

    fn forget(&mut self) {
        self.bytes.clear();
    }

    /// The stored block at `handle`; reads it with as many bytes beyond it as the walk has earned.
    fn read(&mut self, table: &Table, handle: BlockHandle) -> Result<&[u8]> {
        let length = handle.length + TRAILER_BYTES as u64;
        let end = handle.offset + length;
        let held_end = self.offset + self.bytes.len() as u64;
        if handle.offset < self.offset || end > held_end {
            self.fill(table, handle.offset, end)?;
        }
        let start = (handle.offset - self.offset) as usize;
        Ok(&self.bytes[start..start + length as usize])
    }

    /// Reads `start..end` and the rest of the window, beyond it or before it.
    fn fill(&mut self, table: &Table, start: u64, end: u64) -> Result<()> {
        let doublings = self.run.saturating_sub(CACHED_RUN).min(8);
        let window = (self.first_window << doublings).min(LAST_WINDOW_BYTES);
        let (start, end) = match self.direction {
            Direction::Forward => (start, end.max(table.data_end().min(start + window))),
            Direction::Backward => (start.min(end.saturating_sub(window)), end),
        };
        let length = (end - start) as usize;
        self.bytes.resize(length, table.file().path())?;
        self.offset = start;
        let read = read_window(table.file(), &mut self.bytes, start);
        if read.is_err() {
            self.forget();
        } else if window == LAST_WINDOW_BYTES && self.direction == Direction::Forward {
            // The device reads the next window while this one is used.
            let next = end.min(table.data_end());
            let length = (table.data_end() - next).min(LAST_WINDOW_BYTES);
            table.file().prefetch(next, length);
        }
        read
    }
}
