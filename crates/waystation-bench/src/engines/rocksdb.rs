//! RocksDB through its crate, which compiles the bundled source.

use super::{Cursor, Engine, EngineKind, Group, OpenSettings};
use crate::error::{Error, Result};
use crate::tiers::{Policy, TierSettings};
use std::thread;
use std::time::Duration;
use waystation_rivals::rocksdb::{
    self, BlockBasedOptions, Cache, DB, DBCompressionType, DBPath, DBRawIterator, Options,
    WaitForCompactOptions, WriteBatch, WriteOptions,
};

const MB: usize = 1 << 20;

/// An open RocksDB.
pub(crate) struct RocksDb {
    db: DB,
    write: WriteOptions,
    write_synced: WriteOptions,
}

fn failed<T>(operation: &'static str, result: Result<T, rocksdb::Error>) -> Result<T> {
    result.map_err(|error| Error::engine(RocksDb::NAME, operation, error))
}

/// What RocksDB's tuning guide and its own setup advice recommend for point reads and fast writes.
fn tune(options: &mut Options) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    options.increase_parallelism(i32::try_from(cores.max(2)).unwrap_or(2));
    options.set_write_buffer_size(128 * MB);
    options.set_max_write_buffer_number(4);
    options.set_min_write_buffer_number_to_merge(1);
    options.set_enable_pipelined_write(true);
    options.set_use_direct_io_for_flush_and_compaction(true);
    options.set_compaction_readahead_size(2 * MB);
    options.set_max_subcompactions(2);
    options.set_level_compaction_dynamic_level_bytes(true);
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(&Cache::new_lru_cache(256 * MB));
    tables.set_bloom_filter(10.0, false);
    tables.set_cache_index_and_filter_blocks(false);
    options.set_block_based_table_factory(&tables);
}

/// RocksDB's helpers against tombstones, with which its documentation says to combine them.
fn help_with_tombstones(options: &mut Options) -> Result<Options> {
    // The crate has no calls of its own for these.
    let set = "min_tombstones_for_range_conversion=64;memtable_op_scan_flush_trigger=1000;\
               memtable_avg_op_scan_flush_trigger=100";
    let mut helped = failed("set options", options.get_options_from_string(set))?;
    helped.add_compact_on_deletion_collector_factory(128, 64, 0.5);
    Ok(helped)
}

/// Has level 0, to which it flushes and which lies on the first path whatever that path's size says, take no more than `bytes`.
/// Its defaults allow 36 memtables there.
fn keep_level_0_within(options: &mut Options, bytes: u64) {
    options.set_write_buffer_size(usize::try_from(bytes / 12).unwrap_or(usize::MAX));
    options.set_level_zero_slowdown_writes_trigger(6);
    options.set_level_zero_stop_writes_trigger(8);
    // Level 0 counts as much as level 1 when paths are chosen: level 1 is on the slow device.
    options.set_max_bytes_for_level_base(bytes);
}

/// Has it use a slow and a fast device in the ways it has.
fn use_tiers(options: &mut Options, settings: &OpenSettings, tiers: &TierSettings) -> Result<()> {
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(&Cache::new_lru_cache(tiers.cache_bytes));
    tables.set_bloom_filter(10.0, false);
    options.set_block_based_table_factory(&tables);
    match tiers.policy {
        Policy::Journal => options.set_wal_dir(&tiers.directory),
        Policy::Levels => {
            let path = |path, bytes| failed("name a path", DBPath::new(path, bytes));
            let paths = [
                path(&tiers.directory, tiers.capacity_bytes)?,
                path(&settings.directory, u64::MAX)?,
            ];
            options.set_db_paths(&paths);
            if tiers.is_confined {
                keep_level_0_within(options, tiers.capacity_bytes);
            }
        }
        Policy::None | Policy::Own | Policy::Durable | Policy::Tables | Policy::Cache => {}
    }
    Ok(())
}

impl Engine for RocksDb {
    const NAME: &'static str = "rocksdb";

    type Cursor<'a> = RocksDbCursor<'a>;

    fn open(settings: &OpenSettings) -> Result<Self> {
        let mut options = Options::default();
        options.create_if_missing(true);
        if settings.engine == EngineKind::RocksDbTuned {
            tune(&mut options);
            if settings.residency.is_some() {
                options.set_compression_type(DBCompressionType::None);
            }
        }
        if settings.engine == EngineKind::RocksDbTombstones {
            options = help_with_tombstones(&mut options)?;
        }
        if let Some(bytes) = settings.memtable_bytes {
            options.set_write_buffer_size(bytes);
        }
        if let Some(tiers) = &settings.tiers {
            use_tiers(&mut options, settings, tiers)?;
        }
        let db = failed("open", DB::open(&options, &settings.directory))?;
        let mut write_synced = WriteOptions::default();
        write_synced.set_sync(true);
        Ok(Self {
            db,
            write: WriteOptions::default(),
            write_synced,
        })
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        failed("put", self.db.put_opt(key, value, &self.write))
    }

    #[inline]
    fn put_sync(&self, key: &[u8], value: &[u8]) -> Result<()> {
        failed("put", self.db.put_opt(key, value, &self.write_synced))
    }

    fn put_group(&self, group: &Group, sync: bool) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in group.iter() {
            batch.put(key, value);
        }
        let options = if sync {
            &self.write_synced
        } else {
            &self.write
        };
        failed("put a batch", self.db.write_opt(batch, options))
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<()> {
        failed("delete", self.db.delete_opt(key, &self.write))
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let Some(found) = failed("get", self.db.get_pinned(key))? else {
            return Ok(false);
        };
        value.clear();
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn cursor(&self) -> Result<RocksDbCursor<'_>> {
        Ok(RocksDbCursor(self.db.raw_iterator()))
    }

    fn depart(&self, name: &[u8], _keys: impl Iterator<Item = Vec<u8>>) -> Result<()> {
        // The delimiter and the byte after it bound the device's keys.
        let (from, to) = ([name, b":"].concat(), [name, b";"].concat());
        let mut batch = WriteBatch::default();
        batch.delete_range(from, to);
        failed("delete a range", self.db.write_opt(batch, &self.write))
    }

    fn delete_range(&self, start: &[u8], end: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::default();
        batch.delete_range(start, end);
        failed("delete a range", self.db.write_opt(batch, &self.write))
    }

    fn wait_idle(&self) -> Result<Duration> {
        failed(
            "wait for compactions",
            self.db.wait_for_compact(&WaitForCompactOptions::default()),
        )?;
        Ok(Duration::ZERO)
    }

    fn close(self) -> Result<()> {
        drop(self);
        Ok(())
    }
}

/// RocksDB's iterator.
pub(crate) struct RocksDbCursor<'a>(DBRawIterator<'a>);

impl RocksDbCursor<'_> {
    #[inline]
    fn landed(&self) -> Result<bool> {
        if self.0.valid() {
            return Ok(true);
        }
        failed("iterate", self.0.status())?;
        Ok(false)
    }
}

impl Cursor for RocksDbCursor<'_> {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.0.seek_to_first();
        self.landed()
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        self.0.seek_to_last();
        self.landed()
    }

    #[inline]
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.0.seek(key);
        self.landed()
    }

    #[inline]
    fn next(&mut self) -> Result<bool> {
        self.0.next();
        self.landed()
    }

    #[inline]
    fn prev(&mut self) -> Result<bool> {
        self.0.prev();
        self.landed()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.0.key().unwrap_or_default()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.0.value().unwrap_or_default()
    }
}
