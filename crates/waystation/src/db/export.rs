//! Export: the database as a plain `LevelDB` directory.
//!
//! The entries of one snapshot are written to a fresh database in the target, which is closed cleanly: its
//! memory goes to tables and its comparator gets `LevelDB`'s name back. What is left of ours beside that (log
//! segments, ring, side files) is removed, so that nothing in the directory is strange to `LevelDB`. Until all of it is
//! there, the target is not.

use super::{Db, DbIterator, IterOptions, WriteBatch};
use crate::directory::{Unfinished, is_own};
use crate::error::{Error, Result};
use crate::options::{Compression, Durability, Options};
use crate::storage::Storage;
use crate::sync::Arc;
use std::path::Path;

/// Entries are handed over in batches of about this size (bytes).
const BATCH_BYTES: usize = 256 * 1024;

/// What an export wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Exported {
    /// Entries written.
    pub entries: u64,
    /// Tables they are in.
    pub tables: u64,
    /// The tables' bytes.
    pub table_bytes: u64,
}

impl Db {
    /// Writes the database as it is now to the new directory `target`, as a plain `LevelDB` database. What has a time to
    /// live does not expire there.
    /// `progress` hears how many entries are written, now and then.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `target` is not empty, or for a compression that `LevelDB` 1.23 cannot
    /// read (zstd).
    pub fn export_leveldb(
        &self,
        target: &Path,
        compression: Compression,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Exported> {
        let storage = &self.core.storage;
        if compression == Compression::Zstd {
            return Err(Error::InvalidArgument(
                "LevelDB 1.23 cannot read zstd; export with snappy or none".into(),
            ));
        }
        let unfinished = Unfinished::begin(&**storage, target)?;
        let target = unfinished.dir();
        let options = Options {
            compression,
            // All of it goes to tables.
            devices: None,
            ..self.options_of_copy()
        };
        let fresh = Self::open_with(Arc::clone(storage), target, options)?;
        let all = |_: &DbIterator| Ok(true);
        let mut cursor = self.iter(IterOptions::default())?;
        let entries = copy_entries(&mut cursor, &fresh, false, all, progress)?;
        fresh.flush()?;
        fresh.wait_idle()?;
        let levels = fresh.stats().tree.levels;
        fresh.close()?;
        remove_own_files(&**storage, target)?;
        unfinished.finish()?;
        Ok(Exported {
            entries,
            tables: levels.iter().map(|level| level.tables as u64).sum(),
            table_bytes: levels.iter().map(|level| level.bytes).sum(),
        })
    }

    /// The settings of a new database that gets the entries of this one. The fast directory is this one's.
    fn options_of_copy(&self) -> Options {
        Options {
            create_if_missing: true,
            error_if_exists: true,
            fast: None,
            ..self.core.options.clone()
        }
    }

    /// Writes a copy, as the database is now, to the new directory `target`, with the same settings. If keys of devices
    /// expire, the copy is older than its extractor: they are written first.
    pub(super) fn copy_with_devices(&self, target: &Path) -> Result<()> {
        let storage = &self.core.storage;
        let unfinished = Unfinished::begin(&**storage, target)?;
        let options = self.options_of_copy();
        let extractor = options.devices.as_ref().map(|devices| devices.extractor);
        let is_of_device = |key: &[u8]| extractor.is_some_and(|it| it.prefix(key).is_some());
        let expires = |at: &DbIterator| Ok(is_of_device(at.key()) && at.expiry()?.is_some());
        let mut cursor = self.iter(IterOptions::default())?;
        let some_expire = find(&mut cursor, expires)?;
        if some_expire {
            let plain = Options {
                devices: None,
                ..options.clone()
            };
            let plain = Self::open_with(Arc::clone(storage), unfinished.dir(), plain)?;
            copy_entries(&mut cursor, &plain, true, expires, &mut |_| {})?;
            plain.close()?;
        }
        let options = Options {
            error_if_exists: !some_expire,
            ..options
        };
        let fresh = Self::open_with(Arc::clone(storage), unfinished.dir(), options)?;
        let others = |at: &DbIterator| Ok(!some_expire || !expires(at)?);
        copy_entries(&mut cursor, &fresh, true, others, &mut |_| {})?;
        fresh.sync()?;
        fresh.close()?;
        unfinished.finish()
    }
}

/// Whether `cursor` comes to an entry that it `takes`. Looks at none if nothing at all expires.
fn find(cursor: &mut DbIterator, takes: impl Fn(&DbIterator) -> Result<bool>) -> Result<bool> {
    cursor.seek_to_first()?;
    while cursor.knows_dates() && cursor.valid() {
        if takes(cursor)? {
            return Ok(true);
        }
        cursor.next()?;
    }
    Ok(false)
}

/// Writes the entries that it `takes` of `cursor` to `target`; those with a time to live keep what is left of it if
/// `with_times`, or live on.
fn copy_entries(
    cursor: &mut DbIterator,
    target: &Db,
    with_times: bool,
    takes: impl Fn(&DbIterator) -> Result<bool>,
    progress: &mut dyn FnMut(u64),
) -> Result<u64> {
    let mut batch = WriteBatch::new();
    let mut entries = 0;
    cursor.seek_to_first()?;
    while cursor.valid() {
        if takes(cursor)? {
            match cursor.expiry()?.filter(|_| with_times) {
                Some(expiry) => batch.put_until(cursor.key(), cursor.value(), expiry),
                None => batch.put(cursor.key(), cursor.value()),
            }
            entries += 1;
        }
        if batch.byte_len() >= BATCH_BYTES {
            target.write(&batch, Durability::ProcessCrash)?;
            batch.clear();
            progress(entries);
        }
        cursor.next()?;
    }
    target.write(&batch, Durability::ProcessCrash)?;
    progress(entries);
    Ok(entries)
}

/// Removes what `LevelDB` would not know from a database that was closed cleanly.
fn remove_own_files(storage: &dyn Storage, dir: &Path) -> Result<()> {
    for entry in storage.list(dir)? {
        if is_own(&entry.name) {
            storage.remove(&dir.join(&entry.name))?;
        }
    }
    storage.sync_dir(dir)
}
