//! A cell on LevelDB 1.23.

use super::{Carried, Edge, Occupancy, Result, Visitor, range_of_name};
use crate::city::machine;
use std::path::{Path, PathBuf};
use waystation_rivals::leveldb::{Batch, LevelDb, Tuning};

/// A cell's engine.
pub(crate) struct LevelDbEdge {
    db: LevelDb,
    directory: PathBuf,
    /// Whether a hand-off survives a power cut.
    is_synced: bool,
}

impl LevelDbEdge {
    /// Opens the engine in `directory` with about `memory` bytes: a quarter each for the cache and for each of two
    /// write buffers.
    pub(crate) fn open(directory: &Path, memory: usize, is_synced: bool) -> Result<Self> {
        let tuning = Tuning {
            cache_bytes: Some(memory / 4),
            filter_bits: Some(10),
            write_buffer_bytes: Some(memory / 4),
            file_bytes: None,
        };
        Ok(Self {
            db: LevelDb::open(directory, tuning)?,
            directory: directory.to_owned(),
            is_synced,
        })
    }
}

impl Edge for LevelDbEdge {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value, false)?)
    }

    fn scan(&self, from: &[u8], to: &[u8], each: Visitor<'_>) -> Result<()> {
        let mut cursor = self.db.cursor()?;
        let mut is_valid = cursor.seek(from)?;
        while is_valid && cursor.key() < to {
            each(cursor.key(), cursor.value());
            is_valid = cursor.next()?;
        }
        Ok(())
    }

    fn last(&self, from: &[u8], to: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut cursor = self.db.cursor()?;
        let is_valid = if cursor.seek(to)? {
            cursor.prev()?
        } else {
            cursor.seek_to_last()?
        };
        let found = is_valid && cursor.key() >= from;
        Ok(found.then(|| (cursor.key().to_vec(), cursor.value().to_vec())))
    }

    fn welcome(&self, _name: &[u8]) -> Result<()> {
        Ok(())
    }

    /// A copy, and then a deletion of each key: the best that the engine has.
    fn hand_off(&self, name: &[u8], target: &Self) -> Result<Carried> {
        let (from, to) = range_of_name(name);
        let (mut puts, mut deletions) = (Batch::new()?, Batch::new()?);
        let mut carried = Carried::default();
        self.scan(&from, &to, &mut |key, value| {
            puts.put(key, value);
            deletions.delete(key);
            carried.add(key, value);
        })?;
        if carried.records > 0 {
            target.db.write(&puts, self.is_synced)?;
            self.db.write(&deletions, false)?;
        }
        Ok(carried)
    }

    fn depart(&self, name: &[u8]) -> Result<()> {
        let (from, to) = range_of_name(name);
        let mut deletions = Batch::new()?;
        self.scan(&from, &to, &mut |key, _| deletions.delete(key))?;
        Ok(self.db.write(&deletions, false)?)
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
