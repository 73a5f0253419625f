//! LevelDB 1.23 through its C interface, which `waystation-rivals` links.

use super::{Cursor, Engine, EngineKind, Group, OpenSettings};
use crate::error::{Error, Result};
use crate::measure;
use std::time::Duration;
use waystation_rivals::leveldb::{self, Batch, Tuning};

const MB: usize = 1 << 20;

/// An open LevelDB.
pub(crate) struct LevelDb(leveldb::LevelDb);

#[inline]
fn told<T>(result: leveldb::Result<T>) -> Result<T> {
    result.map_err(|failure| Error::engine(LevelDb::NAME, failure.operation, failure.message))
}

fn tuning(settings: &OpenSettings) -> Tuning {
    let tuned = Tuning {
        cache_bytes: Some(256 * MB),
        filter_bits: Some(10),
        write_buffer_bytes: Some(64 * MB),
        file_bytes: Some(32 * MB),
    };
    let is_tuned = settings.engine == EngineKind::LevelDbTuned;
    let mut tuning = if is_tuned { tuned } else { Tuning::default() };
    if settings.memtable_bytes.is_some() {
        tuning.write_buffer_bytes = settings.memtable_bytes;
    }
    tuning
}

impl Engine for LevelDb {
    const NAME: &'static str = "leveldb";

    type Cursor<'a> = LevelDbCursor<'a>;

    fn open(settings: &OpenSettings) -> Result<Self> {
        let opened = leveldb::LevelDb::open(&settings.directory, tuning(settings));
        Ok(Self(told(opened)?))
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        told(self.0.put(key, value, false))
    }

    #[inline]
    fn put_sync(&self, key: &[u8], value: &[u8]) -> Result<()> {
        told(self.0.put(key, value, true))
    }

    fn put_group(&self, group: &Group, sync: bool) -> Result<()> {
        let mut batch = told(Batch::new())?;
        for (key, value) in group.iter() {
            batch.put(key, value);
        }
        told(self.0.write(&batch, sync))
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<()> {
        told(self.0.delete(key))
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        told(self.0.get(key, value))
    }

    fn cursor(&self) -> Result<LevelDbCursor<'_>> {
        Ok(LevelDbCursor(told(self.0.cursor())?))
    }

    fn depart(&self, _name: &[u8], keys: impl Iterator<Item = Vec<u8>>) -> Result<()> {
        let mut batch = told(Batch::new())?;
        keys.for_each(|key| batch.delete(&key));
        told(self.0.write(&batch, false))
    }

    fn wait_idle(&self) -> Result<Duration> {
        // The library has no sign for it but the end of its activity.
        measure::wait_quiet()
    }

    fn close(self) -> Result<()> {
        drop(self);
        Ok(())
    }
}

/// LevelDB's iterator.
pub(crate) struct LevelDbCursor<'a>(leveldb::Cursor<'a>);

impl Cursor for LevelDbCursor<'_> {
    fn seek_to_first(&mut self) -> Result<bool> {
        told(self.0.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        told(self.0.seek_to_last())
    }

    #[inline]
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        told(self.0.seek(key))
    }

    #[inline]
    fn next(&mut self) -> Result<bool> {
        told(self.0.next())
    }

    #[inline]
    fn prev(&mut self) -> Result<bool> {
        told(self.0.prev())
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
