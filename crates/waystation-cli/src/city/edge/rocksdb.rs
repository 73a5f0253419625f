//! A cell on RocksDB.

use super::{Carried, Edge, Occupancy, Result, Visitor, range_of_name};
use crate::city::machine;
use std::path::{Path, PathBuf};
use waystation_rivals::rocksdb::{
    BlockBasedOptions, Cache, DB, Options, ReadOptions, WriteBatch, WriteOptions,
};

/// A cell's engine.
pub(crate) struct RocksDbEdge {
    db: DB,
    directory: PathBuf,
    /// How a hand-off is written.
    handing: WriteOptions,
}

impl RocksDbEdge {
    /// Opens the engine in `directory` with about `memory` bytes: a quarter each for the cache and for each of two
    /// write buffers.
    pub(crate) fn open(directory: &Path, memory: usize, is_synced: bool) -> Result<Self> {
        let mut tables = BlockBasedOptions::default();
        tables.set_block_cache(&Cache::new_lru_cache(memory / 4));
        tables.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_write_buffer_size(memory / 4);
        options.set_block_based_table_factory(&tables);
        let mut handing = WriteOptions::default();
        handing.set_sync(is_synced);
        Ok(Self {
            db: DB::open(&options, directory)?,
            directory: directory.to_owned(),
            handing,
        })
    }
}

fn between(from: &[u8], to: &[u8]) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(from);
    options.set_iterate_upper_bound(to);
    options
}

impl Edge for RocksDbEdge {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value)?)
    }

    fn scan(&self, from: &[u8], to: &[u8], each: Visitor<'_>) -> Result<()> {
        let mut cursor = self.db.raw_iterator_opt(between(from, to));
        cursor.seek_to_first();
        while let Some((key, value)) = cursor.item() {
            each(key, value);
            cursor.next();
        }
        Ok(cursor.status()?)
    }

    fn last(&self, from: &[u8], to: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut cursor = self.db.raw_iterator_opt(between(from, to));
        cursor.seek_to_last();
        let found = cursor
            .item()
            .map(|(key, value)| (key.to_vec(), value.to_vec()));
        cursor.status()?;
        Ok(found)
    }

    fn welcome(&self, _name: &[u8]) -> Result<()> {
        Ok(())
    }

    /// A copy, and then a deletion of the range: the best that the engine has.
    fn hand_off(&self, name: &[u8], target: &Self) -> Result<Carried> {
        let (from, to) = range_of_name(name);
        let mut puts = WriteBatch::default();
        let mut carried = Carried::default();
        self.scan(&from, &to, &mut |key, value| {
            puts.put(key, value);
            carried.add(key, value);
        })?;
        if carried.records > 0 {
            target.db.write_opt(puts, &self.handing)?;
            self.depart(name)?;
        }
        Ok(carried)
    }

    fn depart(&self, name: &[u8]) -> Result<()> {
        let (from, to) = range_of_name(name);
        let mut deletion = WriteBatch::default();
        deletion.delete_range(from, to);
        Ok(self.db.write(deletion)?)
    }

    fn settle(&self, _names: &[Vec<u8>]) -> Result<bool> {
        Ok(false)
    }

    fn occupancy(&self) -> Result<Occupancy> {
        Ok(Occupancy {
            tree_bytes: machine::disk_bytes(&self.directory),
            ..Occupancy::default()
        })
    }

    fn close(self) -> Result<()> {
        Ok(())
    }
}
