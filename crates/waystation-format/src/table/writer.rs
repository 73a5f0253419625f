//! Writes a table: entries in, bytes out, in the order they belong in the file.
//!
//! The writer does no I/O. Finished blocks gather in [`TableWriter::pending`]; the caller takes them whenever it
//! likes, so that it can write in pieces of its own size.

use super::compression::{Compression, Compressor};
use super::filter::append_whole_table_filter;
use super::properties::Properties;
use super::stored::append_block;
use super::{BlockHandle, FILTER_NAME, Footer, PROPERTIES_NAME};
use crate::block::BlockBuilder;
use crate::bloom;
use crate::error::FormatError;
use crate::key::{InternalKey, ValueKind, shorten_separator, shorten_successor};
use crate::order::Order;

/// How a table is laid out.
#[derive(Debug, Clone)]
pub struct TableOptions {
    /// A data block ends once it has this many bytes, uncompressed.
    pub block_bytes: usize,
    /// Entries per restart point of data blocks.
    pub restart_interval: usize,
    /// How blocks are compressed, where that saves at least an eighth.
    pub compression: Compression,
    /// Bits of the Bloom filter per key; 0 for no filter.
    pub filter_bits_per_key: u32,
    /// See [`Properties::purged_through`].
    pub purged_through: u64,
    /// How user keys are ordered. Where that is not by their bytes, there is no filter, which could tell keys apart that
    /// compare equal, and the separators of the index are not shortened.
    pub order: Order,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            block_bytes: 4096,
            restart_interval: 16,
            compression: Compression::default(),
            filter_bits_per_key: 10,
            purged_through: 0,
            order: Order::default(),
        }
    }
}

/// Writes a table.
#[derive(Debug)]
pub struct TableWriter {
    options: TableOptions,
    compressor: Compressor,
    /// Finished bytes the caller has not taken.
    pending: Vec<u8>,
    /// How many bytes the caller has taken.
    taken: u64,
    data: BlockBuilder,
    index: BlockBuilder,
    /// The data block before, whose index entry waits for the key after it.
    unindexed: Option<BlockHandle>,
    /// Memory for keys and values of index entries.
    index_key: Vec<u8>,
    index_value: Vec<u8>,
    hashes: Vec<u32>,
    properties: Properties,
}

impl TableWriter {
    /// A writer of an empty table.
    pub fn new(mut options: TableOptions) -> Self {
        if !options.order.is_bytewise() {
            options.filter_bits_per_key = 0;
        }
        let properties = Properties {
            purged_through: options.purged_through,
            smallest_sequence: u64::MAX,
            ..Properties::default()
        };
        Self {
            compressor: Compressor::new(options.compression),
            pending: Vec::new(),
            taken: 0,
            data: BlockBuilder::new(options.restart_interval),
            index: BlockBuilder::new(1),
            unindexed: None,
            index_key: Vec::new(),
            index_value: Vec::new(),
            hashes: Vec::new(),
            properties,
            options,
        }
    }

    /// Appends an entry. Refused, and without effect, unless `internal_key` is one and follows all before it.
    #[inline]
    pub fn add(&mut self, internal_key: &[u8], value: &[u8]) -> Result<(), FormatError> {
        let key = InternalKey::parse(internal_key)?;
        if self.properties.entries == 0 {
            self.properties.smallest_key = internal_key.to_vec();
        } else if self
            .options
            .order
            .compare_internal(self.data.last_key(), internal_key)
            .is_ge()
        {
            return Err(FormatError::malformed(
                0,
                "the keys of a table ascend, and this one does not follow the one before",
            ));
        }
        if let Some(handle) = self.unindexed.take() {
            self.index_key.clear();
            self.index_key.extend_from_slice(self.data.last_key());
            if self.options.order.is_bytewise() {
                shorten_separator(&mut self.index_key, internal_key);
            }
            self.add_to_index(handle);
        }
        self.note(&key, value.len());
        self.data.add(internal_key, value);
        if self.data.estimated_bytes() >= self.options.block_bytes {
            self.finish_data_block();
        }
        Ok(())
    }

    #[inline]
    fn note(&mut self, key: &InternalKey<'_>, value_bytes: usize) {
        if self.options.filter_bits_per_key > 0 {
            let hash = bloom::hash(key.user_key);
            if self.hashes.last() != Some(&hash) {
                self.hashes.push(hash); // versions of one key need one place
            }
        }
        let properties = &mut self.properties;
        properties.entries += 1;
        properties.deletions += u64::from(key.kind == ValueKind::Deletion);
        properties.smallest_sequence = properties.smallest_sequence.min(key.sequence);
        properties.largest_sequence = properties.largest_sequence.max(key.sequence);
        properties.raw_key_bytes += (key.user_key.len() + crate::key::TRAILER_BYTES) as u64;
        properties.raw_value_bytes += value_bytes as u64;
    }

    /// Bytes to write, at offset [`written`](Self::written) less their length.
    #[inline]
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// Tells that the caller has taken all that was pending.
    pub fn clear_pending(&mut self) {
        self.taken += self.pending.len() as u64;
        self.pending.clear();
    }

    /// The length of the table so far, taken and pending.
    #[inline]
    pub fn written(&self) -> u64 {
        self.taken + self.pending.len() as u64
    }

    /// How long the data would be, uncompressed where it is not yet a block, if the table ended here.
    #[inline]
    pub fn estimated_bytes(&self) -> u64 {
        self.written() + self.data.estimated_bytes() as u64
    }

    /// How many entries there are.
    #[inline]
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// The last internal key; empty if there is none.
    pub fn last_key(&self) -> &[u8] {
        self.data.last_key()
    }

    /// Completes the table: all its remaining bytes are pending. Nothing may be added after that.
    pub fn finish(&mut self) -> &Properties {
        if !self.data.is_empty() {
            self.finish_data_block();
        }
        self.properties.largest_key = self.data.last_key().to_vec();
        if self.properties.entries == 0 {
            self.properties.smallest_sequence = 0;
        }
        if let Some(handle) = self.unindexed.take() {
            self.index_key.clear();
            self.index_key.extend_from_slice(self.data.last_key());
            if self.options.order.is_bytewise() {
                shorten_successor(&mut self.index_key);
            }
            self.add_to_index(handle);
        }
        let metaindex = self.append_meta_blocks();
        let index = self.index.finish();
        let offset = self.taken + self.pending.len() as u64;
        let length = append_block(&mut self.compressor, index, &mut self.pending) as u64;
        let index = BlockHandle { offset, length };
        Footer { metaindex, index }.encode(&mut self.pending);
        &self.properties
    }

    fn finish_data_block(&mut self) {
        let offset = self.written();
        let raw = self.data.finish();
        let length = append_block(&mut self.compressor, raw, &mut self.pending) as u64;
        self.data.reset();
        self.unindexed = Some(BlockHandle { offset, length });
    }

    fn add_to_index(&mut self, handle: BlockHandle) {
        self.index_value.clear();
        handle.encode(&mut self.index_value);
        self.index.add(&self.index_key, &self.index_value);
    }

    /// Appends filter and properties, then the metaindex, whose handle it returns.
    fn append_meta_blocks(&mut self) -> BlockHandle {
        let mut metaindex = BlockBuilder::new(1);
        let mut value = Vec::new();
        if self.options.filter_bits_per_key > 0 {
            let mut filter = Vec::new();
            append_whole_table_filter(&self.hashes, self.options.filter_bits_per_key, &mut filter);
            self.append_uncompressed(&filter).encode(&mut value);
            metaindex.add(FILTER_NAME, &value);
        }
        let properties = self.properties.encode();
        value.clear();
        self.append_uncompressed(&properties).encode(&mut value);
        metaindex.add(PROPERTIES_NAME, &value);
        self.append_uncompressed(metaindex.finish())
    }

    /// Appends a block that compression would not make shorter, or that is read once.
    fn append_uncompressed(&mut self, raw: &[u8]) -> BlockHandle {
        let offset = self.written();
        let mut plain = Compressor::new(Compression::None);
        let length = append_block(&mut plain, raw, &mut self.pending) as u64;
        BlockHandle { offset, length }
    }
}
