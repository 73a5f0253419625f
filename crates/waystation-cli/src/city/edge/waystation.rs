//! A cell on Waystation.

use super::{Carried, Edge, Occupancy, Result, Visitor};
use crate::city::reading::DELIMITER;
use std::path::Path;
use std::time::Duration;
use waystation::storage::Area;
use waystation::{
    Db, DeviceError, DeviceLevel, DeviceOptions, Durability, Error, Extractor, IterOptions,
    Options, Resources,
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// The log's and the ring's lengths are multiples of this.
const UNIT: usize = 4 * KIB;
/// The least that an engine works with: the smallest memtables, indexes and ring that it takes, and a cache.
pub(crate) const MEMORY_MIN: usize = 512 * KIB;
/// No engine may take more than this part of the memory for a memtable, or for indexes.
const NEED_PART: u64 = 16;
/// No memtable, ring or index needs more, however much there is.
const MEMORY_MAX: usize = 8 << 30;
/// Files that an engine has open besides its tables: log, ring, `MANIFEST`, lock, directory.
const FILES_BESIDES_TABLES: usize = 8;
/// Tables that an engine has open at least, and that it needs no more of.
const TABLES: (usize, usize) = (16, 64);
/// The fewest files that an engine may have open: one of this memory has few tables.
pub(crate) const FILES_MIN: usize = 2 * FILES_BESIDES_TABLES;

/// A cell's engine.
pub(crate) struct WaystationEdge {
    db: Db,
    /// What other cells call it.
    name: String,
    /// What a hand-off survives.
    durability: Durability,
}

/// Options of each of `cells` engines that share `memory` bytes: a quarter for the cache, and a quarter at most for rings, from
/// which vehicles that leave soon are read without a device; the rest as each cell needs it, for the upper level's indexes,
/// memtables, and what is read, written and merged meanwhile.
/// Vehicles settle when the city says so, as the engine's clock knows nothing of the trace's time. Each has about `files`
/// files open at most.
pub(crate) fn options_within(memory: u64, cells: usize, files: usize) -> Result<Options> {
    let share = usize::try_from(memory / cells as u64).unwrap_or(usize::MAX);
    let share = share.clamp(MEMORY_MIN, MEMORY_MAX);
    let quarter = share / 4 / UNIT * UNIT;
    let tables = files.saturating_sub(FILES_BESIDES_TABLES);
    let most = usize::try_from(memory / NEED_PART).unwrap_or(MEMORY_MAX);
    let most = most.min(MEMORY_MAX / 8) / UNIT * UNIT;
    Ok(Options {
        resources: Some(Resources::new(memory, memory / 4)?),
        memtable_bytes: most.clamp(64 * KIB, 32 * MIB),
        ring_bytes: quarter.clamp(256 * KIB, 16 * MIB),
        log_segment_bytes: quarter.clamp(256 * KIB, 64 * MIB),
        table_bytes: (quarter / 2).clamp(256 * KIB, 8 * MIB),
        background_jobs: 1,
        max_open_tables: tables.clamp(TABLES.0, TABLES.1),
        devices: Some(DeviceOptions {
            residency: Duration::from_secs(365 * 86_400),
            index_bytes: most as u64,
            upper_bytes: Some(64 * share as u64),
            ..DeviceOptions::new(Extractor::until(DELIMITER))
        }),
        ..Options::default()
    })
}

impl WaystationEdge {
    /// Opens the engine in `directory`, made if missing.
    pub(crate) fn open(directory: &Path, options: Options, durability: Durability) -> Result<Self> {
        let db = Db::open(directory, options)?;
        let name = directory.file_name().unwrap_or(directory.as_os_str());
        Ok(Self {
            db,
            name: name.to_string_lossy().into_owned(),
            durability,
        })
    }
}

fn between(from: &[u8], to: &[u8]) -> IterOptions {
    IterOptions {
        lower: Some(from.to_vec()),
        upper: Some(to.to_vec()),
        ..IterOptions::default()
    }
}

/// That there was nothing to be done is no failure.
fn or_nothing(result: waystation::Result<()>) -> Result<()> {
    match result {
        Ok(()) | Err(Error::Device(DeviceError::Unknown { .. })) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Edge for WaystationEdge {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value)?)
    }

    fn scan(&self, from: &[u8], to: &[u8], each: Visitor<'_>) -> Result<()> {
        let mut cursor = self.db.iter(between(from, to))?;
        cursor.seek_to_first()?;
        while cursor.valid() {
            each(cursor.key(), cursor.value());
            cursor.next()?;
        }
        Ok(())
    }

    fn last(&self, from: &[u8], to: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut cursor = self.db.iter(between(from, to))?;
        cursor.seek_to_last()?;
        let found = cursor.valid();
        Ok(found.then(|| (cursor.key().to_vec(), cursor.value().to_vec())))
    }

    fn welcome(&self, name: &[u8]) -> Result<()> {
        // It may have been handed on from here once.
        or_nothing(self.db.devices().lift_stub(name))
    }

    fn hand_off(&self, name: &[u8], target: &Self) -> Result<Carried> {
        let exported = self
            .db
            .devices()
            .export(name, &target.name, self.durability);
        let receipt = match exported {
            Ok(stream) => target.db.devices().admit(stream)?,
            // It has sent nothing since it came.
            Err(Error::Device(DeviceError::Unknown { .. })) => {
                target.welcome(name)?;
                return Ok(Carried::default());
            }
            Err(error) => return Err(error.into()),
        };
        self.db.devices().complete(&receipt)?;
        let digest = &receipt.digest;
        Ok(Carried {
            records: digest.records,
            // The stream's keys are without what they all begin with.
            bytes: digest.bytes + digest.records * (name.len() as u64 + 1),
        })
    }

    fn depart(&self, name: &[u8]) -> Result<()> {
        // It may have come and gone between two readings.
        or_nothing(self.db.devices().depart(name))
    }

    fn settle(&self, names: &[Vec<u8>]) -> Result<bool> {
        self.db
            .devices()
            .settle_together(names.iter().map(Vec::as_slice))?;
        Ok(true)
    }

    fn occupancy(&self) -> Result<Occupancy> {
        let stats = self.db.stats();
        let mut occupancy = Occupancy {
            tree_bytes: stats.tree.levels.iter().map(|level| level.bytes).sum(),
            ..Occupancy::default()
        };
        if let Some(devices) = &stats.devices {
            occupancy.index_bytes = devices.index_bytes;
            occupancy.settled_records = devices.settled_records;
        }
        for device in self.db.devices().list()? {
            match device.level {
                DeviceLevel::Upper | DeviceLevel::Settling => {
                    occupancy.upper_vehicles += 1;
                    occupancy.upper_bytes += device.bytes;
                }
                DeviceLevel::Tree => occupancy.tree_vehicles += 1,
                DeviceLevel::Departed => {}
            }
        }
        for storage in &stats.storage {
            occupancy.storage_read += storage.meter.read_bytes;
            match storage.area {
                Area::Journal => occupancy.log_written += storage.meter.written_bytes,
                Area::Tables | Area::Spill | Area::Copies => {
                    occupancy.tables_written += storage.meter.written_bytes;
                }
            }
        }
        Ok(occupancy)
    }

    fn close(self) -> Result<()> {
        Ok(self.db.close()?)
    }
}
