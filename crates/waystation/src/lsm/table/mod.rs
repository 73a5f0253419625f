//! Tables: immutable sorted files in LevelDB's format.
//!
//! A lookup asks the table's one Bloom filter, then its index, then one data block, which comes from the cache or
//! from storage; the value found stays where it is until the caller copies it. A cursor does the same for its
//! first block and then walks.

mod block_cache;
mod builder;
mod index;
mod iterator;
mod lookup;
mod meta;
mod reader;
mod table_cache;
#[cfg(test)]
pub(super) mod tests;

pub(crate) use block_cache::BlockCache;
pub(crate) use builder::TableBuilder;
pub(crate) use iterator::TableIterator;
pub(crate) use lookup::LookupKey;
pub(crate) use meta::{LearntFacts, TableFacts, TableMeta};
pub(crate) use reader::Table;
pub(crate) use table_cache::TableCache;
pub(crate) use waystation_format::table::{Compression, TableOptions as TableSettings};
