//! A table, read for inspection: no cache, every checksum verified, damage named by the offset of its block.

use super::source::Source;
use crate::error::{Error, Result};
use crate::storage::{Area, Storage};
use std::path::Path;
use waystation_format::FormatError;
use waystation_format::block::{Block, BlockIter};
use waystation_format::filename::{legacy_table_name, table_name};
use waystation_format::key::{InternalKey, ValueKind, user_key};
use waystation_format::table::{
    BlockHandle, Compression, FILTER_NAME, FOOTER_BYTES, FilterBlock, Footer, PROPERTIES_NAME,
    Properties, TRAILER_BYTES, decode_block,
};
use waystation_format::version_edit::NewFile;

/// A table whose footer was read.
pub(crate) struct TableView {
    source: Source,
    footer: Footer,
}

/// A data block as the index names it.
pub(crate) struct IndexedBlock {
    pub(crate) handle: BlockHandle,
    /// No key of the block stands above this one, and all keys of later blocks do.
    pub(crate) separator: Vec<u8>,
}

/// Takes a version of a key: offset of its block, sequence number, value (none: deleted).
type VersionSink<'a> = dyn FnMut(u64, u64, Option<&[u8]>) + 'a;

/// A block that checks, unpacked.
pub(crate) struct BlockView {
    pub(crate) offset: u64,
    pub(crate) compression: &'static str,
    pub(crate) data: Block,
}

impl TableView {
    /// Opens a table of a version.
    pub(crate) fn open(storage: &dyn Storage, dir: &Path, table: &NewFile) -> Result<Self> {
        let source = match Source::open(storage, &dir.join(table_name(table.number)), Area::Tables)
        {
            Err(error) if error.is_not_found() => {
                // The error names the usual name, not the one of old.
                let legacy = dir.join(legacy_table_name(table.number));
                Source::open(storage, &legacy, Area::Tables).map_err(|_| error)?
            }
            result => result?,
        };
        Self::new(source, table.file_bytes)
    }

    /// A table whose footer ends at `bytes`.
    pub(crate) fn new(source: Source, bytes: u64) -> Result<Self> {
        let Some(offset) = bytes.checked_sub(FOOTER_BYTES as u64) else {
            return Err(Error::corruption(
                source.path(),
                0,
                "it is shorter than the footer of a table",
            ));
        };
        let footer = Footer::decode(&source.read(offset, FOOTER_BYTES)?)
            .map_err(|error| Error::corruption(source.path(), offset, error.reason()))?;
        Ok(Self { source, footer })
    }

    /// The file's name.
    pub(crate) fn name(&self) -> String {
        self.source.name()
    }

    fn damaged(&self, offset: u64, error: &FormatError) -> Error {
        self.damage(offset, error.reason())
    }

    /// The error for damage at `offset`.
    pub(crate) fn damage(&self, offset: u64, reason: &str) -> Error {
        Error::corruption(self.source.path(), offset, reason)
    }

    /// A block's payload, verified and unpacked, and how it was compressed.
    fn payload(&self, handle: BlockHandle) -> Result<(Vec<u8>, &'static str)> {
        let length = handle.end().map_or(u64::MAX, |end| end - handle.offset);
        let stored = self
            .source
            .read(handle.offset, usize::try_from(length).unwrap_or(usize::MAX))?;
        let mut scratch = Vec::new();
        let payload = decode_block(&stored, &mut scratch)
            .map_err(|error| self.damaged(handle.offset, &error))?;
        let compression = stored
            .get(stored.len() - TRAILER_BYTES)
            .and_then(|byte| Compression::from_byte(*byte));
        let compression = match compression {
            Some(Compression::Snappy) => "snappy",
            Some(Compression::Zstd) => "zstd",
            Some(Compression::None) | None => "not compressed",
        };
        Ok((payload.to_vec(), compression))
    }

    /// A block, verified and unpacked.
    pub(crate) fn block(&self, handle: BlockHandle) -> Result<BlockView> {
        let (payload, compression) = self.payload(handle)?;
        let data = Block::new(payload).map_err(|error| self.damaged(handle.offset, &error))?;
        Ok(BlockView {
            offset: handle.offset,
            compression,
            data,
        })
    }

    /// Calls `visit` with each entry of a block, until it answers that it has enough.
    pub(crate) fn each(
        &self,
        block: &BlockView,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let mut entries = BlockIter::new(block.data.clone());
        let mut step = entries.seek_to_first();
        while step.is_ok() && entries.valid() && visit(entries.key(), entries.value()) {
            step = entries.next();
        }
        step.map_err(|error| self.damaged(block.offset, &error))
    }

    /// The data blocks, in the order of their keys.
    pub(crate) fn index(&self) -> Result<Vec<IndexedBlock>> {
        let block = self.block(self.footer.index)?;
        let (mut index, mut failure) = (Vec::new(), None);
        self.each(
            &block,
            &mut |separator, value| match BlockHandle::decode(value) {
                Ok(handle) => {
                    index.push(IndexedBlock {
                        handle,
                        separator: separator.to_vec(),
                    });
                    true
                }
                Err(error) => {
                    failure = Some(self.damaged(block.offset, &error));
                    false
                }
            },
        )?;
        failure.map_or(Ok(index), Err)
    }

    /// The meta blocks and their names.
    pub(crate) fn meta_blocks(&self) -> Result<Vec<(String, BlockHandle)>> {
        let block = self.block(self.footer.metaindex)?;
        let mut blocks = Vec::new();
        self.each(&block, &mut |name, value| {
            if let Ok(handle) = BlockHandle::decode(value) {
                blocks.push((String::from_utf8_lossy(name).into_owned(), handle));
            }
            true
        })?;
        Ok(blocks)
    }

    fn meta_block(&self, name: &[u8]) -> Result<Option<BlockHandle>> {
        let blocks = self.meta_blocks()?;
        Ok(blocks
            .into_iter()
            .find(|(other, _)| other.as_bytes() == name)
            .map(|(_, handle)| handle))
    }

    /// What the table says of itself; nothing if LevelDB wrote it.
    pub(crate) fn properties(&self) -> Result<Option<Properties>> {
        let Some(handle) = self.meta_block(PROPERTIES_NAME)? else {
            return Ok(None);
        };
        let (payload, _) = self.payload(handle)?;
        Properties::decode(payload)
            .map(Some)
            .map_err(|error| self.damaged(handle.offset, &error))
    }

    /// The filter, if there is one.
    pub(crate) fn filter(&self) -> Result<Option<FilterBlock>> {
        let Some(handle) = self.meta_block(FILTER_NAME)? else {
            return Ok(None);
        };
        let (payload, _) = self.payload(handle)?;
        FilterBlock::new(payload)
            .map(Some)
            .map_err(|error| self.damaged(handle.offset, &error))
    }

    /// Calls `visit` with each version of `key`; unless keys are in the order of their bytes, every block is read for that.
    pub(crate) fn versions_of(
        &self,
        key: &[u8],
        is_bytewise: bool,
        visit: &mut VersionSink<'_>,
    ) -> Result<()> {
        for indexed in self.index()? {
            if is_bytewise && user_key(&indexed.separator) < key {
                continue;
            }
            let block = self.block(indexed.handle)?;
            let mut is_past = false;
            self.each(&block, &mut |internal, value| {
                if let Ok(entry) = InternalKey::parse(internal) {
                    if entry.user_key == key {
                        let value = (entry.kind == ValueKind::Value).then_some(value);
                        visit(indexed.handle.offset, entry.sequence, value);
                    }
                    is_past = is_bytewise && entry.user_key > key;
                }
                !is_past
            })?;
            if is_past {
                break;
            }
        }
        Ok(())
    }
}
