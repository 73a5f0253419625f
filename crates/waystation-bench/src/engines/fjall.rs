//! fjall, the nearest peer in Rust: one keyspace of one database.
//!
//! A plain insert reaches the operating system's buffers, the promise of LevelDB's unsynced put. A synced one
//! is an insert followed by `persist(SyncData)`, as its documentation asks.

use super::{Cursor, Engine, Group, OpenSettings};
use crate::error::{Error, Result};
use crate::measure;
use fjall::{Database, Iter, Keyspace, KeyspaceCreateOptions, PersistMode, UserKey, UserValue};
use std::time::Duration;

/// fjall refuses a smaller one.
const MIN_JOURNAL_BYTES: u64 = 64 << 20;

/// An open fjall.
pub(crate) struct Fjall {
    keyspace: Keyspace,
    database: Database,
}

fn failed<T>(operation: &'static str, result: fjall::Result<T>) -> Result<T> {
    result.map_err(|error| Error::engine(Fjall::NAME, operation, error))
}

impl Engine for Fjall {
    const NAME: &'static str = "fjall";

    type Cursor<'a> = FjallCursor<'a>;

    fn open(settings: &OpenSettings) -> Result<Self> {
        let mut builder = Database::builder(&settings.directory);
        if let Some(bytes) = settings.memtable_bytes {
            let journal_bytes = (2 * bytes as u64).max(MIN_JOURNAL_BYTES);
            builder = builder.max_journaling_size(journal_bytes);
        }
        let database = failed("open", builder.open())?;
        let keyspace = database.keyspace("bench", || {
            let options = KeyspaceCreateOptions::default();
            match settings.memtable_bytes {
                Some(bytes) => options.max_memtable_size(bytes as u64),
                None => options,
            }
        });
        Ok(Self {
            keyspace: failed("open", keyspace)?,
            database,
        })
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        failed("put", self.keyspace.insert(key, value))
    }

    #[inline]
    fn put_sync(&self, key: &[u8], value: &[u8]) -> Result<()> {
        failed("put", self.keyspace.insert(key, value))?;
        failed("sync", self.database.persist(PersistMode::SyncData))
    }

    fn put_group(&self, group: &Group, sync: bool) -> Result<()> {
        let mut batch = self.database.batch();
        for (key, value) in group.iter() {
            batch.insert(&self.keyspace, key, value);
        }
        failed("put a batch", batch.commit())?;
        if sync {
            failed("sync", self.database.persist(PersistMode::SyncData))?;
        }
        Ok(())
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<()> {
        failed("delete", self.keyspace.remove(key))
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = failed("get", self.keyspace.get(key))?;
        let Some(found) = found else {
            return Ok(false);
        };
        value.clear();
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn cursor(&self) -> Result<FjallCursor<'_>> {
        Ok(FjallCursor {
            keyspace: &self.keyspace,
            iter: None,
            entry: None,
        })
    }

    fn depart(&self, _name: &[u8], keys: impl Iterator<Item = Vec<u8>>) -> Result<()> {
        let mut batch = self.database.batch();
        for key in keys {
            batch.remove(&self.keyspace, key);
        }
        failed("delete a batch", batch.commit())
    }

    fn wait_idle(&self) -> Result<Duration> {
        loop {
            let quiet = measure::wait_quiet()?;
            if self.database.outstanding_flushes() == 0 && self.database.active_compactions() == 0 {
                return Ok(quiet);
            }
        }
    }

    fn close(self) -> Result<()> {
        failed("close", self.database.persist(PersistMode::Buffer))
    }
}

/// fjall iterates over ranges; a seek starts a new one.
pub(crate) struct FjallCursor<'a> {
    keyspace: &'a Keyspace,
    iter: Option<Iter>,
    entry: Option<(UserKey, UserValue)>,
}

impl FjallCursor<'_> {
    #[inline]
    fn step(&mut self, step: impl FnOnce(&mut Iter) -> Option<fjall::Guard>) -> Result<bool> {
        let guard = self.iter.as_mut().and_then(step);
        self.entry = match guard {
            Some(guard) => Some(failed("iterate", guard.into_inner())?),
            None => None,
        };
        Ok(self.entry.is_some())
    }
}

impl Cursor for FjallCursor<'_> {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.iter = Some(self.keyspace.iter());
        self.step(Iter::next)
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        self.iter = Some(self.keyspace.iter());
        self.step(Iter::next_back)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.iter = Some(self.keyspace.range(key..));
        self.step(Iter::next)
    }

    #[inline]
    fn next(&mut self) -> Result<bool> {
        self.step(Iter::next)
    }

    #[inline]
    fn prev(&mut self) -> Result<bool> {
        self.step(Iter::next_back)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.entry.as_ref().map_or(&[], |(key, _)| key)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.entry.as_ref().map_or(&[], |(_, value)| value)
    }
}
