//! Repair: what can still be read of a database with damaged tables, in a new one.
//!
//! The engine itself reads, so that whatever it hides (deletions, departed devices, older versions) stays hidden. Where
//! its cursor meets a damaged block it goes on behind the block's keys. In between, every key that any other block
//! names is asked for by itself: it is answered unless the damaged block would have to be looked at. So nothing comes
//! back that was deleted or overwritten; what a damaged block alone held is lost, and its range is told.
//!
//! A database that does not open (a damaged log, MANIFEST or checkpoint) is not repaired.

use super::table::TableView;
use crate::db::{Db, Durability, IterOptions, Options, TableInfo, WriteBatch};
use crate::error::{Error, Result};
use crate::storage::Storage;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use waystation_format::filename::{self, FileKind};
use waystation_format::key::user_key;
use waystation_format::version_edit::NewFile;

/// Entries are written in batches of about this size (bytes).
const BATCH_BYTES: usize = 256 << 10;

/// What a repair found.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Repaired {
    /// Entries in the new database.
    pub entries: u64,
    /// What could not be read; empty if the database is sound.
    pub gaps: Vec<Gap>,
}

/// Keys that a damaged block may have held.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Gap {
    /// The file.
    pub file: String,
    /// Where the damage is in it.
    pub offset: u64,
    /// What does not hold.
    pub reason: String,
    /// The last key before the gap that was read; none if the gap is at the beginning.
    pub after: Option<Vec<u8>>,
    /// The last key of the gap.
    pub through: Vec<u8>,
    /// Entries within that other blocks hold, and that were read.
    pub rescued: u64,
    /// Keys within that are known by name, and whose present value is in the damaged block.
    pub lost_keys: Vec<Vec<u8>>,
}

/// Writes what can be read of the database in `dir` to the new directory `target`. Nothing is taken from `dir`; it is
/// opened as by any owner, and what it has in memory goes to tables. `progress` hears how many entries are written.
///
/// # Errors
/// What opening or writing meets. Damage of tables is no error: it is in the answer.
pub fn repair(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    target: &Path,
    options: &Options,
    progress: &mut dyn FnMut(u64),
) -> Result<Repaired> {
    let open = |path, create| {
        let options = Options {
            create_if_missing: create,
            error_if_exists: create,
            ..options.clone()
        };
        Db::open_with(Arc::clone(storage), path, options)
    };
    let source = open(dir, false)?;
    source.flush()?;
    if options.devices.is_some() {
        // So that tables name every key.
        for device in source.devices()? {
            match source.settle(&device.name) {
                Err(Error::UnknownDevice { .. }) => {}
                settled => settled?,
            }
        }
    }
    let mut repair = Repair {
        storage,
        source,
        target: open(target, true)?,
        batch: WriteBatch::new(),
        repaired: Repaired::default(),
        progress,
    };
    repair.run()?;
    let Repair {
        target, repaired, ..
    } = repair;
    target.close()?;
    Ok(repaired)
}

struct Repair<'a> {
    storage: &'a Arc<dyn Storage>,
    source: Db,
    target: Db,
    batch: WriteBatch,
    repaired: Repaired,
    progress: &'a mut dyn FnMut(u64),
}

impl Repair<'_> {
    fn run(&mut self) -> Result<()> {
        let mut last: Option<Vec<u8>> = None;
        // A cursor goes on behind this key.
        let mut passed: Option<Vec<u8>> = None;
        while let Err(error) = self.copy_from(passed.as_deref(), &mut last) {
            let Error::Corruption {
                path,
                offset,
                reason,
            } = error
            else {
                return Err(error);
            };
            let known = last.clone().max(passed.clone());
            let through = self.end_of_damage(&path, offset, known.as_deref())?;
            let mut gap = Gap {
                file: super::source::name_of(&path),
                offset,
                reason,
                after: known,
                through,
                rescued: 0,
                lost_keys: Vec::new(),
            };
            self.rescue(&mut gap)?;
            passed = Some(gap.through.clone());
            self.repaired.gaps.push(gap);
        }
        self.write()
    }

    /// Copies everything behind `passed`, as far as it can be read; `last` is the last key copied.
    fn copy_from(&mut self, passed: Option<&[u8]>, last: &mut Option<Vec<u8>>) -> Result<()> {
        let mut cursor = self.source.iter(IterOptions::default())?;
        match passed {
            None => cursor.seek_to_first()?,
            Some(key) => cursor.seek(&[key, &[0]].concat())?,
        }
        while cursor.valid() {
            self.put(cursor.key(), cursor.value())?;
            *last = Some(cursor.key().to_vec());
            cursor.next()?;
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.put(key, value);
        self.repaired.entries += 1;
        if self.batch.byte_len() >= BATCH_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        self.target.write(&self.batch, Durability::ProcessCrash)?;
        self.batch.clear();
        (self.progress)(self.repaired.entries);
        Ok(())
    }

    /// The last key that the damage at `offset` of `path` may hide, which lies behind `known`.
    fn end_of_damage(&self, path: &Path, offset: u64, known: Option<&[u8]>) -> Result<Vec<u8>> {
        let name = super::source::name_of(path);
        let Some(FileKind::Table(number)) = filename::parse(&name) else {
            return Err(Error::corruption(path, offset, "it cannot be gone around"));
        };
        let tables = self.source.tables();
        let Some(table) = tables.iter().find(|table| table.number == number) else {
            return Err(Error::corruption(path, offset, "it is no table in force"));
        };
        let view = self.view(table);
        let index = view.and_then(|view| view.index()).unwrap_or_default();
        let block = index.iter().find(|block| block.handle.offset == offset);
        let end = block.map(|block| user_key(&block.separator).to_vec());
        // Without an index, or where nothing would be passed: the whole table.
        let end = end.filter(|end| known.is_none_or(|known| known < &end[..]));
        Ok(end.unwrap_or_else(|| table.largest.clone()))
    }

    fn view(&self, table: &TableInfo) -> Result<TableView> {
        let file = NewFile {
            level: table.level as u32,
            number: table.number,
            file_bytes: table.file_bytes,
            smallest: Vec::new(),
            largest: Vec::new(),
        };
        TableView::open(&**self.storage, self.source.path(), &file)
    }

    /// Asks for every key in the gap that any sound block names.
    fn rescue(&mut self, gap: &mut Gap) -> Result<()> {
        for key in self.keys_within(gap.after.as_deref(), &gap.through) {
            match self.source.get(&key) {
                Ok(Some(value)) => {
                    self.put(&key, &value)?;
                    gap.rescued += 1;
                }
                Ok(None) => {}
                Err(Error::Corruption { .. }) => gap.lost_keys.push(key),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The keys behind `after` and up to `through` that can be read in any table.
    fn keys_within(&self, after: Option<&[u8]>, through: &[u8]) -> BTreeSet<Vec<u8>> {
        let mut keys = BTreeSet::new();
        let is_within = |key: &[u8]| after.is_none_or(|after| key > after) && key <= through;
        for table in self.source.tables() {
            let is_beside = table.smallest[..] > *through
                || after.is_some_and(|after| table.largest[..] <= *after);
            let Some(view) = (!is_beside).then(|| self.view(&table).ok()).flatten() else {
                continue;
            };
            let mut begins_behind = false;
            for block in view.index().unwrap_or_default() {
                let ends_before = after.is_some_and(|after| user_key(&block.separator) < after);
                if begins_behind {
                    break;
                }
                begins_behind = user_key(&block.separator) > through;
                if ends_before {
                    continue;
                }
                // One that is damaged names no key.
                let _ = view.block(block.handle).and_then(|block| {
                    view.each(&block, &mut |key, _| {
                        if is_within(user_key(key)) {
                            keys.insert(user_key(key).to_vec());
                        }
                        true
                    })
                });
            }
        }
        keys
    }
}
