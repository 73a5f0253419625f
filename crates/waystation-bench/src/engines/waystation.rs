//! Waystation itself, through its public interface only.

use super::{Cursor, Engine, EngineKind, ExecutorSettings, Group, Levels, Merges, OpenSettings};
use crate::error::{Error, Result};
use crate::tiers::{FixedTier, LruCache, Policy, TierSettings};
use std::sync::Arc;
use std::time::Duration;
use waystation::offload::{Offload, OffloadSettings};
use waystation::storage::{Area, AreaMeter, OsStorage, Storage};
use waystation::{
    Db, DbIterator, DeviceLevel, DeviceOptions, Durability, Extractor, FastTier, IterOptions,
    LevelStats, Options, PutOptions, WriteBatch,
};
use waystation_nodes::compaction::WorkerAddress;

const MB: usize = 1 << 20;
/// Tables, segments and the ring where a fast device holds a small part of the data: of these, some fit.
const TIER_TABLE_BYTES: usize = 2 * MB;
const TIER_SEGMENT_BYTES: usize = 4 * MB;
/// Less than the graves of most records take: deletions below a cursor spill.
const TIER_GRAVES_BYTES: usize = MB;
/// Nothing in a benchmark lasts this long.
const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);

/// An open Waystation.
pub(crate) struct Waystation {
    db: Db,
    /// Whether it tells devices apart.
    has_devices: bool,
}

fn failed<T>(operation: &'static str, result: waystation::Result<T>) -> Result<T> {
    result.map_err(|error| Error::engine(Waystation::NAME, operation, error))
}

impl Engine for Waystation {
    const NAME: &'static str = "waystation";

    type Cursor<'a> = WaystationCursor;

    fn open(settings: &OpenSettings) -> Result<Self> {
        let mut options = Options::default();
        if settings.engine == EngineKind::WaystationTuned {
            options.memtable_bytes = 64 * MB;
            options.ring_bytes = 128 * MB;
            options.cache_bytes = 256 * MB;
        }
        if let Some(bytes) = settings.memtable_bytes {
            options.memtable_bytes = bytes;
        }
        options.offload = offload(&settings.executor)?;
        let is_plain = settings.engine == EngineKind::WaystationPlain;
        let residency = settings.residency.filter(|_| !is_plain);
        options.devices = residency.map(|residency| {
            let options = DeviceOptions::new(Extractor::until(b':'));
            if residency < Duration::MAX {
                return DeviceOptions {
                    residency,
                    ..options
                };
            }
            DeviceOptions {
                residency: FOR_EVER,
                upper_bytes: Some(u64::MAX / 4),
                index_bytes: u64::MAX / 4,
                ..options
            }
        });
        let storage = match &settings.tiers {
            Some(tiers) => use_tiers(settings, tiers, &mut options)?,
            None => OsStorage::new(),
        };
        let opened = Db::open_with(storage, &settings.directory, options.clone());
        Ok(Self {
            has_devices: options.devices.is_some(),
            db: failed("open", opened)?,
        })
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        failed("put", self.db.put(key, value))
    }

    #[inline]
    fn put_sync(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put(key, value);
        failed("put", self.db.write(&batch, Durability::PowerLoss))
    }

    fn put_group(&self, group: &Group, sync: bool) -> Result<()> {
        let mut batch = WriteBatch::new();
        for (key, value) in group.iter() {
            batch.put(key, value);
        }
        let durability = if sync {
            Durability::PowerLoss
        } else {
            Durability::ProcessCrash
        };
        failed("put a batch", self.db.write(&batch, durability))
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<()> {
        failed("delete", self.db.delete(key))
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        match failed("get", self.db.get(key))? {
            Some(found) => {
                *value = found;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn cursor(&self) -> Result<WaystationCursor> {
        let iterator = failed("make an iterator", self.db.iter(IterOptions::default()))?;
        Ok(WaystationCursor(iterator))
    }

    #[inline]
    fn depart(&self, name: &[u8], _keys: impl Iterator<Item = Vec<u8>>) -> Result<()> {
        if !self.has_devices {
            // The delimiter and the byte after it bound the device's keys.
            return self.delete_range(&[name, b":"].concat(), &[name, b";"].concat());
        }
        failed("let a device depart", self.db.devices().depart(name))
    }

    fn settle(&self, name: &[u8]) -> Result<()> {
        if !self.has_devices {
            return Ok(());
        }
        failed("let a device settle", self.db.devices().settle(name))
    }

    fn delete_range(&self, start: &[u8], end: &[u8]) -> Result<()> {
        failed("delete a range", self.db.delete_range(start, Some(end)))
    }

    fn put_for(&self, key: &[u8], value: &[u8], lifetime: Duration) -> Result<bool> {
        let put = self.db.put_with(key, value, PutOptions::expiring(lifetime));
        failed("put with a time to live", put).map(|()| true)
    }

    fn levels(&self) -> Result<Option<Levels>> {
        let stats = self.db.stats();
        let Some(devices) = stats.devices else {
            return Ok(None);
        };
        let known = failed("name its devices", self.db.devices().list())?;
        let journal = |moved: fn(&AreaMeter) -> u64| {
            let areas = stats.storage.iter();
            let journal = areas.filter(|it| it.area == Area::Journal);
            journal.map(|it| moved(&it.meter)).sum()
        };
        let upper = known
            .iter()
            .filter(|device| matches!(device.level, DeviceLevel::Upper | DeviceLevel::Settling));
        Ok(Some(Levels {
            upper_records: upper.map(|device| device.records).sum(),
            index_bytes: devices.index_bytes,
            settled_records: devices.settled_records,
            tree_records: stats.tree.flushes.entries_in,
            freed_log_bytes: stats.log.reserved_lsn.saturating_sub(stats.log.live_bytes),
            log_read_bytes: journal(|meter| meter.read_bytes),
            log_written_bytes: journal(|meter| meter.written_bytes),
            loaded_bytes: stats.tree.flushes.written_bytes,
            merged_bytes: (stats.tree.levels.iter())
                .map(|level| level.merges.written_bytes)
                .sum(),
        }))
    }

    fn merges(&self) -> Option<Merges> {
        let tree = self.db.stats().tree;
        let offload = tree.offload.unwrap_or_default();
        let all = |levels: &[LevelStats]| {
            let sum = |of: fn(&LevelStats) -> u64| levels.iter().map(of).sum::<u64>();
            let elapsed = Duration::from_micros(sum(|it| it.merges.elapsed_us));
            (sum(|it| it.merges.read_bytes), elapsed)
        };
        let cpu_us = tree.levels.iter().map(|it| it.merges.cpu_us).sum();
        let times = [
            offload.wait_us,
            offload.run_us,
            offload.verify_us,
            offload.install_us,
        ];
        let local = offload.local.iter();
        Some(Merges {
            cpu: Duration::from_micros(cpu_us),
            // What goes to level 1 comes from level 0.
            level0: all(&tree.levels[..2]),
            deeper: all(&tree.levels[2..]),
            debt_bytes: tree.debt_bytes,
            read_bytes: (offload.read_bytes, offload.local_read_bytes),
            local: local.map(|(why, jobs)| (why.to_string(), *jobs)).collect(),
            elsewhere: times.map(Duration::from_micros),
        })
    }

    fn wait_idle(&self) -> Result<Duration> {
        failed("come to rest", self.db.wait_idle())?;
        Ok(Duration::ZERO)
    }

    /// An idle Waystation merges tables for readers: nothing waits for that.
    fn wait_while_due(&self) -> Result<Duration> {
        const POLL: Duration = Duration::from_millis(5);
        loop {
            let stats = self.db.stats();
            if let Some(failure) = stats.failure {
                return Err(Error::engine(Self::NAME, "merge what is due", failure));
            }
            if stats.full_memtables == 0 && stats.tree.debt_bytes == 0 {
                return Ok(Duration::ZERO);
            }
            std::thread::sleep(POLL);
        }
    }

    fn close(self) -> Result<()> {
        failed("close", self.db.close())
    }
}

/// Has a database with `options` use a slow and a fast device: the storage that does what its options do not.
fn use_tiers(
    settings: &OpenSettings,
    tiers: &TierSettings,
    options: &mut Options,
) -> Result<Arc<dyn Storage>> {
    options.cache_bytes = tiers.cache_bytes;
    options.table_bytes = TIER_TABLE_BYTES;
    options.log_segment_bytes = TIER_SEGMENT_BYTES;
    options.ring_bytes = TIER_SEGMENT_BYTES.max(2 * options.memtable_bytes);
    options.graves_bytes = TIER_GRAVES_BYTES;
    let storage: Arc<dyn Storage> = OsStorage::new();
    let (fast, capacity) = (&tiers.directory, tiers.capacity_bytes);
    let file_bytes = match tiers.policy {
        Policy::None => return Ok(storage),
        Policy::Own | Policy::Durable => {
            options.fast = Some(FastTier {
                durable: tiers.policy == Policy::Durable,
                ..FastTier::new(fast, capacity)
            });
            return Ok(storage);
        }
        Policy::Cache => {
            let cache = LruCache::new(storage, fast, capacity);
            return Ok(Arc::new(failed("make a cache", cache)?));
        }
        Policy::Journal => TIER_SEGMENT_BYTES,
        Policy::Tables | Policy::Levels => TIER_TABLE_BYTES,
    };
    let directories = (&*settings.directory, &**fast);
    let sizes = (capacity, file_bytes as u64);
    let fixed = FixedTier::new(storage, tiers.policy, directories, sizes);
    Ok(Arc::new(failed("use a fast directory", fixed)?))
}

/// What merges for a database with these settings, if not its own threads.
fn offload(settings: &ExecutorSettings) -> Result<Option<Offload>> {
    match settings {
        ExecutorSettings::Local => Ok(None),
        ExecutorSettings::Worker(address) => {
            let address = address.parse().map_err(Error::Refused)?;
            let worker = WorkerAddress::new(address, None);
            Ok(Some(Offload::new(worker, OffloadSettings::default())))
        }
    }
}

/// Waystation's iterator.
pub(crate) struct WaystationCursor(DbIterator);

impl WaystationCursor {
    #[inline]
    fn landed(&self, result: waystation::Result<()>) -> Result<bool> {
        failed("iterate", result)?;
        Ok(self.0.valid())
    }
}

impl Cursor for WaystationCursor {
    fn seek_to_first(&mut self) -> Result<bool> {
        let result = self.0.seek_to_first();
        self.landed(result)
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        let result = self.0.seek_to_last();
        self.landed(result)
    }

    #[inline]
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let result = self.0.seek(key);
        self.landed(result)
    }

    #[inline]
    fn next(&mut self) -> Result<bool> {
        let result = self.0.next();
        self.landed(result)
    }

    #[inline]
    fn prev(&mut self) -> Result<bool> {
        let result = self.0.prev();
        self.landed(result)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.0.key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.0.value()
    }
}
