//! Sorted tables: immutable files in LevelDB's format, and cursors over sorted entries.
//!
//! A lookup asks the table's one Bloom filter, then its index, then one data block, which comes from the cache or
//! from storage; the value found stays where it is until the caller copies it. A cursor does the same for its
//! first block and then walks. The tree and the cemetery's spilled graves are both made of these files; this room
//! knows neither.

mod block_cache;
mod builder;
mod cursor;
mod handles;
mod index;
mod iterator;
mod lookup;
mod memory;
mod merging;
mod meta;
mod read_load;
mod reader;
mod table_cache;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod tests;
mod walk;

pub(crate) use block_cache::BlockCache;
pub(crate) use builder::TableBuilder;
pub(crate) use cursor::{EntryStream, InternalIterator};
pub(crate) use iterator::TableIterator;
pub(crate) use lookup::{Lookup, LookupKey};
pub(crate) use memory::TableMemory;
pub(crate) use merging::{MergingIterator, first_version};
pub(crate) use meta::{LearntFacts, TableFacts, TableMeta};
pub(crate) use read_load::ReadLoad;
pub(crate) use reader::Table;
pub(crate) use table_cache::TableCache;
pub(crate) use walk::Walk;
pub(crate) use waystation_format::table::{Compression, TableOptions as TableSettings};
