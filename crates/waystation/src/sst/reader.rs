//! An open table: index and filter in memory, data blocks from the cache or from storage.
//!
//! Every block that comes from storage is checked against its checksum before anything in it is believed.

use super::block_cache::{BlockCache, Slots};
use super::index::Index;
use super::iterator::{Access, TableIterator};
use super::lookup::{LookupKey, PinnedValue};
use super::memory::TableMemory;
use super::{ReadLoad, TableFacts};
use crate::background::{Charge, Use};
use crate::error::{Error, Result};
use crate::sst::Lookup;
use crate::storage::{File, WHOLE_BYTES_MAX, resize};
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use waystation_format::FormatError;
use waystation_format::block::{Block, BlockIter};
use waystation_format::key::ValueKind;
use waystation_format::order::Order;
use waystation_format::table::{
    BlockHandle, FILTER_NAME, FOOTER_BYTES, FilterBlock, Footer, PROPERTIES_NAME, Properties,
    StoredBlock, TRAILER_BYTES,
};

/// How much of a table's end is read at once when it is opened: mostly all that an opening needs.
const TAIL_BYTES: u64 = 64 * 1024;
/// No table is longer: each takes memory by its length.
const TABLE_BYTES_MAX: u64 = 1 << 42;
/// Scratch memory above this is given back after use.
const SCRATCH_KEPT_BYTES: usize = 1 << 20;

thread_local! {
    /// Memory to read the next block into, and memory for a block: without these, a thread that misses the
    /// cache again and again would spend its time in the allocator.
    static STORED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Keeps the memory of a block that no reader holds for the next one this thread reads.
pub(super) fn recycle(block: Block) {
    if let Some(memory) = block.into_bytes() {
        keep_memory(memory);
    }
}

fn keep_memory(memory: Vec<u8>) {
    if memory.capacity() <= SCRATCH_KEPT_BYTES {
        SPARE.set(memory);
    }
}

/// The first read in each chunk of a table of this length brings the whole chunk near, unless the table was just
/// written: one read of this length takes the device little longer than one of a block.
const NEAR_BYTES: u64 = 128 * 1024;

/// Bytes of memory that the index and the filter of an open table take.
fn memory_bytes(index: &Index, filter: Option<&FilterBlock>) -> usize {
    index.memory_bytes() + filter.map_or(0, FilterBlock::byte_len)
}

/// An open table.
pub(crate) struct Table {
    file: Arc<dyn File>,
    /// Which chunks were read from, a bit each; none if the whole table was near from the first.
    near: Box<[AtomicU64]>,
    data_end: u64,
    index: Index,
    filter: Option<FilterBlock>,
    facts: Option<TableFacts>,
    blocks: Arc<BlockCache>,
    slots: Arc<Slots>,
    reads: Arc<ReadLoad>,
    _charge: Charge,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("path", &self.file.path())
            .finish_non_exhaustive()
    }
}

impl Table {
    /// Opens the table whose footer ends at `file_bytes` of `file`, of user keys in `order`; it is near if it was
    /// written just before.
    pub(crate) fn open(
        file: Arc<dyn File>,
        file_bytes: u64,
        is_near: bool,
        memory: &TableMemory,
        order: &Order,
    ) -> Result<Self> {
        let tail = Tail::read(&file, file_bytes)?;
        let index = tail.block(tail.footer.index)?;
        let index = Index::read(&index, tail.data_end, order)
            .map_err(|error| damaged(&*file, tail.footer.index, &error))?;
        let (filter, facts) = tail.meta_blocks()?;
        // It could tell keys apart that compare equal.
        let filter = filter.filter(|_| order.is_bytewise());
        let taken = memory_bytes(&index, filter.as_ref());
        Ok(Self {
            _charge: Charge::new(&memory.account, Use::Tables, taken as u64),
            near: near_chunks(if is_near { 0 } else { tail.data_end }),
            data_end: tail.data_end,
            slots: Arc::new(memory.blocks.slots(index.len(), &memory.account)),
            index,
            filter,
            facts,
            blocks: Arc::clone(&memory.blocks),
            reads: Arc::clone(&memory.reads),
            file,
        })
    }

    /// What the table says about itself; `None` if it was not written by us.
    pub(crate) fn facts(&self) -> Option<TableFacts> {
        self.facts
    }

    /// Bytes of memory that index and filter take.
    pub(crate) fn memory_bytes(&self) -> usize {
        memory_bytes(&self.index, self.filter.as_ref())
    }

    /// The newest version the key's snapshot sees.
    pub(crate) fn get(&self, key: &LookupKey<'_>) -> Result<Lookup<PinnedValue>> {
        if self.index.len() == 0 || self.is_ruled_out(key, None) {
            return Ok(Lookup::Missing);
        }
        let position = self.index.find(key.user_key, key.trailer);
        let handle = self.index.handle(position);
        if self.is_ruled_out(key, Some(handle)) {
            return Ok(Lookup::Missing);
        }
        let block = self.block(position)?;
        let found = block
            .get_in(self.order(), key.user_key, key.trailer)
            .map_err(|error| self.damaged(handle, &error))?;
        let Some((trailer, range)) = found else {
            recycle(block);
            return Ok(Lookup::Missing);
        };
        if trailer >> 8 < key.covering {
            // Hidden, with all that is older.
            recycle(block);
            return Ok(Lookup::Missing);
        }
        match ValueKind::from_byte(trailer as u8) {
            Some(ValueKind::Value) => Ok(Lookup::Found(PinnedValue::new(block, range))),
            Some(ValueKind::Deletion) => {
                recycle(block);
                Ok(Lookup::Deleted)
            }
            None => Err(Error::corruption(
                self.file.path(),
                handle.offset,
                "a version is neither a value nor a deletion",
            )),
        }
    }

    /// Whether the filter says that the key is not in the table; if a block is given, not in that block.
    #[inline]
    fn is_ruled_out(&self, key: &LookupKey<'_>, block: Option<BlockHandle>) -> bool {
        let Some(filter) = &self.filter else {
            return false;
        };
        let offset = match block {
            None if filter.is_whole_table() => 0,
            Some(handle) if !filter.is_whole_table() => handle.offset,
            _ => return false,
        };
        !filter.may_contain(offset, key.filter_hash)
    }

    /// Whether the table may hold versions of the key, for all that its filter says.
    pub(crate) fn may_hold(&self, key: &LookupKey<'_>) -> bool {
        self.index.len() > 0 && !self.is_ruled_out(key, None)
    }

    /// A cursor for readers: a few blocks after each seek go through the cache.
    pub(crate) fn iter(self: &Arc<Self>) -> TableIterator {
        TableIterator::new(Arc::clone(self), Access::Reader)
    }

    /// A cursor for merges: it leaves the cache alone and reads far ahead.
    pub(crate) fn scan(self: &Arc<Self>) -> TableIterator {
        TableIterator::new(Arc::clone(self), Access::Merge)
    }

    /// Where the block begins that holds the first entry at or after `user_key`, or would.
    pub(crate) fn offset_of(&self, user_key: &[u8]) -> u64 {
        match self.index.len() {
            0 => 0,
            _ => {
                self.index
                    .handle(self.index.find(user_key, u64::MAX))
                    .offset
            }
        }
    }

    /// Where the blocks lie that may hold entries from the first key to the last (both included).
    pub(crate) fn span_of(&self, first: &[u8], last: &[u8]) -> Range<u64> {
        match self.index.len() {
            0 => 0..0,
            blocks => {
                let behind = self.index.find(last, 0).min(blocks - 1);
                let end = self.index.handle(behind).end().unwrap_or(self.data_end);
                self.offset_of(first)..end + TRAILER_BYTES as u64
            }
        }
    }

    /// Bytes of its data blocks.
    pub(crate) fn block_bytes(&self) -> u64 {
        let last = self.index.len().checked_sub(1);
        let end = last.and_then(|last| self.index.handle(last).end());
        end.map_or(0, |end| end + TRAILER_BYTES as u64)
    }

    /// The order of user keys.
    #[inline]
    pub(super) fn order(&self) -> &Order {
        self.index.order()
    }

    #[inline]
    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    pub(super) fn file(&self) -> &dyn File {
        &*self.file
    }

    /// Where the data blocks end, at the latest.
    pub(super) fn data_end(&self) -> u64 {
        self.data_end
    }

    /// Data block `position`, from the cache or from storage into the cache.
    #[inline]
    pub(super) fn block(&self, position: usize) -> Result<Block> {
        if let Some(block) = self.cached(position) {
            return Ok(block);
        }
        self.note_read();
        let handle = self.index.handle(position);
        self.bring_near(handle.offset);
        let block = read_block(&*self.file, handle)?;
        if self.blocks.admits(&self.slots, position)
            && let Some(memory) = self.blocks.insert(&self.slots, position, &block)
        {
            keep_memory(memory);
        }
        Ok(block)
    }

    /// Notes that a reader has to read a block.
    #[inline]
    pub(super) fn note_read(&self) {
        self.reads.note_block();
    }

    /// Keeps `block`, which a long scan has read at `position`, if nothing has to go for it and scans come here again.
    pub(super) fn keep_from_scan(&self, position: usize, block: &Block) {
        if self.blocks.admits_from_scan(&self.slots, position, block)
            && let Some(memory) = self.blocks.insert(&self.slots, position, block)
        {
            keep_memory(memory);
        }
    }

    /// Has the chunk of the table around `offset` fetched, once.
    fn bring_near(&self, offset: u64) {
        let chunk = offset / NEAR_BYTES;
        let Some(word) = self.near.get((chunk / 64) as usize) else {
            return;
        };
        let bit = 1 << (chunk % 64);
        if word.load(Relaxed) & bit == 0 && word.fetch_or(bit, Relaxed) & bit == 0 {
            self.file.prefetch(chunk * NEAR_BYTES, NEAR_BYTES);
        }
    }

    /// Data block `position`, if the cache has it.
    #[inline]
    pub(super) fn cached(&self, position: usize) -> Option<Block> {
        self.slots.get(position)
    }

    /// The block whose stored bytes, read at `handle`, are `stored`; in the memory given.
    pub(super) fn decode(
        &self,
        handle: BlockHandle,
        stored: &[u8],
        mut memory: Vec<u8>,
    ) -> Result<Block> {
        StoredBlock::check(stored)
            .and_then(|stored| stored.decode(&mut memory))
            .and_then(|()| Block::new(memory))
            .map_err(|error| self.damaged(handle, &error))
    }

    #[cold]
    pub(super) fn damaged(&self, handle: BlockHandle, error: &FormatError) -> Error {
        damaged(&*self.file, handle, error)
    }
}

fn near_chunks(data_end: u64) -> Box<[AtomicU64]> {
    let words = data_end.div_ceil(NEAR_BYTES).div_ceil(64);
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// The end of a table while it is opened.
struct Tail<'a> {
    file: &'a dyn File,
    footer: Footer,
    data_end: u64,
    bytes: Vec<u8>,
    offset: u64,
}

impl<'a> Tail<'a> {
    fn read(file: &'a Arc<dyn File>, file_bytes: u64) -> Result<Self> {
        let file = &**file;
        let Some(data_end) = file_bytes.checked_sub(FOOTER_BYTES as u64) else {
            let reason = "a table is not shorter than its footer";
            return Err(Error::corruption(file.path(), 0, reason));
        };
        if file_bytes > TABLE_BYTES_MAX {
            let reason = "it is longer than any table";
            return Err(Error::corruption(file.path(), TABLE_BYTES_MAX, reason));
        }
        let offset = file_bytes.saturating_sub(TAIL_BYTES);
        let mut bytes = vec![0; (file_bytes - offset) as usize];
        read_window(file, &mut bytes, offset)?;
        let footer = Footer::decode(&bytes[bytes.len() - FOOTER_BYTES..]).map_err(|error| {
            Error::corruption(file.path(), data_end + error.offset(), error.reason())
        })?;
        Ok(Self {
            file,
            footer,
            data_end,
            bytes,
            offset,
        })
    }

    /// The content of the block at `handle`, from the bytes at hand if they hold it.
    fn content(&self, handle: BlockHandle) -> Result<Vec<u8>> {
        if handle.end().is_none_or(|end| end > self.data_end) {
            let reason = "a block is named that lies past the end of its table";
            return Err(Error::corruption(self.file.path(), self.data_end, reason));
        }
        if handle.length > WHOLE_BYTES_MAX {
            let reason = "a block is named that no table has";
            return Err(Error::corruption(self.file.path(), handle.offset, reason));
        }
        let length = handle.length as usize + TRAILER_BYTES;
        let mut read = Vec::new();
        let stored = if let Some(start) = handle.offset.checked_sub(self.offset) {
            &self.bytes[start as usize..][..length]
        } else {
            resize(&mut read, length, self.file.path())?;
            read_window(self.file, &mut read, handle.offset)?;
            &read
        };
        let mut content = Vec::new();
        StoredBlock::check(stored)
            .and_then(|stored| stored.decode(&mut content))
            .map_err(|error| damaged(self.file, handle, &error))?;
        Ok(content)
    }

    fn block(&self, handle: BlockHandle) -> Result<Block> {
        Block::new(self.content(handle)?).map_err(|error| damaged(self.file, handle, &error))
    }

    /// Filter and facts. LevelDB's tables have no facts, and perhaps no filter, or one of a foreign policy.
    fn meta_blocks(&self) -> Result<(Option<FilterBlock>, Option<TableFacts>)> {
        let at = self.footer.metaindex;
        let mut metaindex = BlockIter::new(self.block(at)?);
        let (mut filter, mut facts) = (None, None);
        let mut visit = || -> Result<(), FormatError> {
            metaindex.seek_to_first()?;
            while metaindex.valid() {
                let handle = match metaindex.key() {
                    FILTER_NAME => &mut filter,
                    PROPERTIES_NAME => &mut facts,
                    _ => &mut None,
                };
                *handle = Some(BlockHandle::decode(metaindex.value())?);
                metaindex.next()?;
            }
            Ok(())
        };
        visit().map_err(|error| damaged(self.file, at, &error))?;
        let filter = filter
            .map(|at| FilterBlock::new(self.content(at)?).map_err(|e| damaged(self.file, at, &e)));
        let properties = facts.map(|at| {
            Properties::decode(self.content(at)?).map_err(|e| damaged(self.file, at, &e))
        });
        let facts = properties.transpose()?.as_ref().map(TableFacts::from);
        Ok((filter.transpose()?, facts))
    }
}

/// Reads the block at `handle`.
fn read_block(file: &dyn File, handle: BlockHandle) -> Result<Block> {
    let mut stored = STORED.take();
    resize(
        &mut stored,
        handle.length as usize + TRAILER_BYTES,
        file.path(),
    )?;
    read_exact(file, &mut stored, handle.offset)?;
    let bytes = decode(&mut stored);
    if stored.capacity() <= SCRATCH_KEPT_BYTES {
        STORED.set(stored);
    }
    bytes
        .and_then(Block::new)
        .map_err(|error| damaged(file, handle, &error))
}

/// The bytes of a stored block. If it is not compressed, they stay where they are, and `stored` gets other
/// memory.
fn decode(stored: &mut Vec<u8>) -> Result<Vec<u8>, FormatError> {
    let block = StoredBlock::check(stored)?;
    let mut bytes = SPARE.take();
    if block.is_plain() {
        std::mem::swap(stored, &mut bytes);
        bytes.truncate(bytes.len() - TRAILER_BYTES);
    } else {
        block.decode(&mut bytes)?;
    }
    Ok(bytes)
}

fn read_exact(file: &dyn File, buffer: &mut [u8], offset: u64) -> Result<()> {
    let read = file.read_at(buffer, offset)?;
    is_whole(file, read, (buffer.len(), offset))
}

/// As [`read_exact`], for what is read once: by a walk, or at opening.
pub(super) fn read_window(file: &dyn File, buffer: &mut [u8], offset: u64) -> Result<()> {
    let read = file.read_window(buffer, offset)?;
    is_whole(file, read, (buffer.len(), offset))
}

fn is_whole(file: &dyn File, read: usize, (length, offset): (usize, u64)) -> Result<()> {
    if read == length {
        return Ok(());
    }
    let reason = "the file is shorter than the table was";
    Err(Error::corruption(file.path(), offset + read as u64, reason))
}

#[cold]
fn damaged(file: &dyn File, handle: BlockHandle, error: &FormatError) -> Error {
    Error::corruption(file.path(), handle.offset, error.reason())
}
