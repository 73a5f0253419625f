//! The storage of a database whose files lie in two directories: the ring, segments of the log and tables are in the main one,
//! or in the fast one.
//!
//! To the rooms above there is one directory. A file keeps the name that it would have in the main directory; where it
//! lies is found out when it is opened. Everything else lies in the main directory.
//!
//! Invariants:
//! - a segment lies in one of the directories only: its place is chosen when its length is reserved, before it has any byte,
//!   and it stays there. A file that a failing fast directory could not remove has no content;
//! - the ring stays where it was made as well. It is made in the other directory at an opening, once segments hold its records;
//! - a table that the MANIFEST lists is whole in one of the directories at least. It may be moved to the main one
//!   ([`moves`](super::moves));
//! - of two files of one name the one in the main directory counts, and the next owner removes the other;
//! - the names in both directories are durable after `sync_dir` of the main one;
//! - a listing has the files of both, or fails: a fast directory that is missing never looks like a shorter log.

use super::link::{Link, files_of_log, is_table, lock_files, tables};
use super::moves::copy_to_main;
use super::names::Names;
use super::options::FastTier;
use super::placed_table::PlacedTable;
use super::spread_file::SpreadFile;
use super::table_share::TableShare;
use super::tier::Tier;
use crate::directory::{RING_NAME, segment_number};
use crate::error::{Error, Result};
use crate::storage::forward::forward;
use crate::storage::{
    Area, AreaMeter, DirectoryLock, Entry, File, OpenMode, Ring, Storage, Transfer,
};
use crate::sync::Arc;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// See the module.
pub(crate) struct Spread {
    main: Arc<dyn Storage>,
    /// The database's directory.
    dir: PathBuf,
    fast: Arc<FastFiles>,
}

/// What the owner of a database has.
pub(crate) struct Owned {
    /// The storage of all its files.
    pub(crate) storage: Arc<dyn Storage>,
    /// The lock of the files in a fast directory.
    pub(crate) lock: Option<Box<dyn DirectoryLock>>,
}

/// The files in the fast directory.
pub(super) struct FastFiles {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) segments: Names,
    tables: Names,
    /// Gives new files their places. `None`: they go to the main directory.
    pub(super) tier: Option<Arc<Tier>>,
}

impl Spread {
    /// The storage of the database in `dir`, for its owner. A ring that can grow to `ring_bytes`, new segments and tables may go
    /// to the fast directory of `options`, if that is durable. If not, tables there are moved to the main directory.
    ///
    /// # Errors
    /// [`Error::Incompatible`] if files lie in a fast directory that is not there; [`Error::Locked`].
    pub(crate) fn own(
        main: &Arc<dyn Storage>,
        dir: &Path,
        options: Option<&FastTier>,
        tier: Option<&Arc<Tier>>,
        ring_bytes: u64,
    ) -> Result<Owned> {
        let fast = options.filter(|it| it.durable);
        let Some((link, lock)) = own_link(&**main, dir, fast)? else {
            return Ok(Owned {
                storage: Arc::clone(main),
                lock: None,
            });
        };
        main.create_dir(&link.tables_dir())?;
        remove_doubles(&**main, dir, &link)?;
        let is_chosen = fast.is_some_and(|it| it.directory == link.directory());
        let tier = tier.filter(|_| is_chosen);
        if let Some(tier) = tier {
            tier.claim_ring(ring_bytes);
            share(&**main, dir, &link, tier)?;
        } else {
            bring_back(&**main, dir, &link.tables_dir())?;
        }
        Ok(Owned {
            storage: Self::over(main, dir, &link, tier.cloned()),
            lock: Some(lock),
        })
    }

    /// The storage of the database in `dir`, for a reader.
    ///
    /// # Errors
    /// As [`own`](Self::own), but for the lock.
    pub(crate) fn look(main: Arc<dyn Storage>, dir: &Path) -> Result<Arc<dyn Storage>> {
        let Some(link) = Link::read(&*main, dir)? else {
            return Ok(main);
        };
        link.check(&*main)?;
        Ok(Self::over(&main, dir, &link, None))
    }

    fn over(
        main: &Arc<dyn Storage>,
        dir: &Path,
        link: &Link,
        tier: Option<Arc<Tier>>,
    ) -> Arc<dyn Storage> {
        let fast = FastFiles {
            storage: Arc::clone(main),
            segments: Names::of(link.log_dir()),
            tables: Names::of(link.tables_dir()),
            tier,
        };
        Arc::new(Self {
            main: Arc::clone(main),
            dir: dir.to_owned(),
            fast: Arc::new(fast),
        })
    }

    /// Has `destroy` remove the database in `dir` with the storage of all its files, and gives the fast directory up. A fast
    /// directory that is not there holds up nothing.
    pub(crate) fn while_destroyed(
        main: &Arc<dyn Storage>,
        dir: &Path,
        destroy: impl FnOnce(&dyn Storage) -> Result<()>,
    ) -> Result<()> {
        let link = Link::read(&**main, dir).ok().flatten();
        match link.filter(|link| link.check(&**main).is_ok()) {
            None => destroy(&**main),
            Some(link) => {
                let _lock = lock_files(&**main, &link)?;
                destroy(&*Self::over(main, dir, &link, None))?;
                link.leave(&**main)
            }
        }
    }

    /// The name of the file at `path`, if that is in the main directory.
    fn name<'a>(&self, path: &'a Path) -> Option<&'a str> {
        let is_here = path.parent() == Some(&self.dir);
        path.file_name()?.to_str().filter(|_| is_here)
    }

    /// The name of the segment at `path`. `None`: it is no segment of the database.
    fn segment<'a>(&self, path: &'a Path) -> Option<&'a str> {
        self.name(path)
            .filter(|name| segment_number(name).is_some())
    }

    /// Whether `path` is that of the ring.
    fn is_ring(&self, path: &Path) -> bool {
        self.name(path) == Some(RING_NAME)
    }

    /// Whether the ring lies in the fast directory. `None`: there is none.
    fn finds_ring_there(&self) -> Result<Option<bool>> {
        if has(&self.main.list(&self.dir)?, RING_NAME) {
            return Ok(Some(false));
        }
        let there = files_of_log(&*self.main, self.fast.segments.dir())?;
        Ok(has(&there, RING_NAME).then_some(true))
    }

    /// The same of tables.
    fn table<'a>(&self, path: &'a Path) -> Option<&'a str> {
        self.name(path).filter(|name| is_table(name))
    }

    fn open_table(
        &self,
        (path, name): (&Path, &str),
        mode: OpenMode,
        transfer: Transfer,
    ) -> Result<Arc<dyn File>> {
        let main = || self.main.open(path, mode, transfer, Area::Tables);
        if mode == OpenMode::Create {
            let placed = self.fast.place_table(path, name, transfer);
            return placed.map_or_else(main, Ok);
        }
        if let Some(tier) = &self.fast.tier
            && let Some(file) = tier.open_table(path, name)?
        {
            return Ok(file);
        }
        match main() {
            Err(error) if error.is_not_found() => {}
            opened => return opened,
        }
        match self.fast.open(name, mode, transfer) {
            // It may have been moved meanwhile.
            Err(error) if error.is_not_found() => main(),
            opened => opened,
        }
    }

    fn remove_ring(&self, path: &Path) -> Result<()> {
        match self.main.remove(path) {
            Err(error) if error.is_not_found() => {}
            removed => return removed,
        }
        self.fast.remove(RING_NAME)?;
        if let Some(tier) = &self.fast.tier {
            tier.note_ring(0);
        }
        Ok(())
    }

    fn remove_table(&self, path: &Path, name: &str) -> Result<()> {
        let tier = self.fast.tier.as_ref();
        let was_there = tier.is_some_and(|tier| tier.remove_table(name));
        match self.main.remove(path) {
            Err(error) if error.is_not_found() => {
                if was_there {
                    Ok(())
                } else {
                    self.fast.remove(name)
                }
            }
            removed => removed,
        }
    }
}

impl FastFiles {
    /// A place for the new segment `name` of `bytes`: the file, with its length reserved. `None`: it goes to the main directory.
    pub(super) fn place(
        &self,
        name: &str,
        bytes: u64,
        transfer: Transfer,
    ) -> Option<Arc<dyn File>> {
        let tier = self.tier.as_ref()?;
        if !tier.admit_segment(name, bytes) {
            return None;
        }
        let made = self
            .create(name, transfer)
            .and_then(|file| file.preallocate(bytes).map(|()| file));
        made.inspect_err(|error| {
            self.note_failure(error);
            // Should it stay: the file of that name in the main directory counts.
            let _ = self.remove(name);
            tier.refuse_segment(name, bytes);
        })
        .ok()
    }

    /// A place for the new table `name`, `path` in the main directory: the file. `None`: it goes to the main directory.
    fn place_table(&self, path: &Path, name: &str, transfer: Transfer) -> Option<Arc<dyn File>> {
        let tier = self.tier.as_ref().filter(|it| it.admit_table(name))?;
        match self.create(name, transfer) {
            Ok(file) => Some(Arc::new(PlacedTable::new(tier, path, name, file))),
            Err(error) => {
                self.note_failure(&error);
                tier.remove_table(name);
                None
            }
        }
    }

    /// The directory of `name`, and what its files are for.
    fn names_of(&self, name: &str) -> (&Names, Area) {
        if is_table(name) {
            (&self.tables, Area::Tables)
        } else {
            (&self.segments, Area::Journal)
        }
    }

    fn create(&self, name: &str, transfer: Transfer) -> Result<Arc<dyn File>> {
        let (names, area) = self.names_of(name);
        let mode = OpenMode::Create;
        names.change(name, |path| self.storage.open(path, mode, transfer, area))
    }

    /// Opens a file that is there.
    fn open(&self, name: &str, mode: OpenMode, transfer: Transfer) -> Result<Arc<dyn File>> {
        let (names, area) = self.names_of(name);
        self.storage
            .open(&names.dir().join(name), mode, transfer, area)
    }

    fn rename(&self, name: &str, target: &str) -> Result<()> {
        let names = self.names_of(name).0;
        let source = names.dir().join(name);
        names.change(target, |target| self.storage.rename(&source, target))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let names = self.names_of(name).0;
        names.change(name, |path| self.storage.remove(path))
    }

    /// Makes the names durable.
    fn sync_names(&self) -> Result<()> {
        for names in [&self.segments, &self.tables] {
            names.sync(|dir| self.storage.sync_dir(dir))?;
        }
        Ok(())
    }

    /// Lets the fast directory rest if it failed otherwise than for want of room.
    pub(super) fn note_failure(&self, error: &Error) {
        if let Some(tier) = &self.tier
            && !error.is_out_of_space()
        {
            tier.fail(&error.to_string());
        }
    }

    /// Notes that the segment `name` has `bytes`.
    pub(super) fn note_length(&self, name: &str, bytes: u64) {
        if let Some(tier) = &self.tier {
            tier.note_segment_length(name, bytes);
        }
    }

    /// Notes a write of a segment.
    pub(super) fn note_write(&self, is_fast: bool, bytes: usize, elapsed: Duration) {
        if let Some(share) = self.tier.as_ref().and_then(|tier| tier.log_share()) {
            share.note_write(is_fast, bytes, elapsed);
        }
    }
}

fn has(entries: &[Entry], name: &str) -> bool {
    entries.iter().any(|entry| entry.name == name)
}

/// Removes the files in the fast directory that lie in the main one, too.
fn remove_doubles(storage: &dyn Storage, dir: &Path, link: &Link) -> Result<()> {
    let counting = storage.list(dir)?;
    let (log_dir, tables_dir) = (link.log_dir(), link.tables_dir());
    for (there, found) in [
        (&log_dir, files_of_log(storage, &log_dir)?),
        (&tables_dir, tables(storage, &tables_dir)?),
    ] {
        let mut doubles = found.iter().filter(|it| has(&counting, &it.name));
        doubles.try_for_each(|it| storage.remove(&there.join(&it.name)))?;
    }
    Ok(())
}

/// Lets files of the database in `dir` lie in `tier`, where some lie already.
fn share(storage: &dyn Storage, dir: &Path, link: &Link, tier: &Tier) -> Result<()> {
    let mut present = HashMap::new();
    for (dir, is_fast) in [(dir, false), (&link.log_dir(), true)] {
        let found = files_of_log(storage, dir)?.into_iter();
        let found = found.filter(|it| it.name != RING_NAME);
        present.extend(found.map(|it| (it.name, (it.bytes, is_fast))));
    }
    let dir = link.tables_dir();
    let found = tables(storage, &dir)?.into_iter();
    let found: Vec<_> = found.map(|it| (it.name, it.bytes)).collect();
    tier.share(present, TableShare::new(dir, found));
    Ok(())
}

/// Moves the tables in `tables_dir` to the main directory `dir`, as far as they have room there.
fn bring_back(storage: &dyn Storage, dir: &Path, tables_dir: &Path) -> Result<()> {
    for table in tables(storage, tables_dir)? {
        let there = tables_dir.join(&table.name);
        match copy_to_main(storage, &there, dir, &table.name) {
            Ok(()) => storage.remove(&there)?,
            Err(error) if error.is_out_of_space() => {
                log::warn!("tables stay in {}: {error}", tables_dir.display());
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The link of the database in `dir`, and the lock of its segments. `fast` is where new ones may go.
fn own_link(
    storage: &dyn Storage,
    dir: &Path,
    fast: Option<&FastTier>,
) -> Result<Option<(Link, Box<dyn DirectoryLock>)>> {
    if let Some(link) = Link::read(storage, dir)? {
        let moved = fast.filter(|it| it.directory != link.directory());
        let moved = moved.map(|it| link.moved_to(storage, dir, &it.directory));
        let link = moved.transpose()?.flatten().unwrap_or(link);
        link.check(storage)?;
        let lock = lock_files(storage, &link)?;
        let is_of_use = fast.is_some_and(|it| it.directory == link.directory());
        if is_of_use || !link.is_empty(storage)? {
            if fast.is_some() && !is_of_use {
                log::warn!(
                    "files of the database lie in {} still: new ones go to the main directory until those are gone",
                    link.directory().display()
                );
            }
            return Ok(Some((link, lock)));
        }
        if let Err(error) = link.end(storage, dir) {
            log::warn!("the next opening gives the fast directory up: {error}");
            return Ok(None);
        }
    }
    let Some(fast) = fast else {
        return Ok(None);
    };
    match Link::begin(storage, dir, &fast.directory) {
        Ok(begun) => Ok(Some(begun)),
        Err(error @ (Error::Locked { .. } | Error::Incompatible { .. })) => Err(error),
        Err(error) => {
            log::warn!("all files stay in the main directory: {error}");
            Ok(None)
        }
    }
}

impl Storage for Spread {
    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        transfer: Transfer,
        area: Area,
    ) -> Result<Arc<dyn File>> {
        if let Some(name) = self.table(path) {
            return self.open_table((path, name), mode, transfer);
        }
        let Some(name) = self.segment(path) else {
            let opened = self.main.open(path, mode, transfer, area);
            return match opened {
                Err(error) if error.is_not_found() && self.is_ring(path) => {
                    self.fast.open(RING_NAME, mode, transfer)
                }
                opened => opened,
            };
        };
        let of = |found| SpreadFile::new(&self.fast, path, (name, transfer), found);
        if mode == OpenMode::Create {
            return Ok(Arc::new(of(None)));
        }
        let found = match self.main.open(path, mode, transfer, area) {
            Err(error) if error.is_not_found() => (self.fast.open(name, mode, transfer)?, true),
            opened => (opened?, false),
        };
        Ok(Arc::new(of(Some(found))))
    }

    fn expect(&self, path: &Path, bytes: u64, _level: usize) {
        let tables = self.fast.tier.as_ref().and_then(|tier| tier.tables());
        if let Some((tables, name)) = tables.zip(self.table(path)) {
            tables.expect(name, bytes);
        }
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        let moved = self.main.rename(source, target);
        let names = self.segment(source).zip(self.segment(target));
        let moved = match (moved, names) {
            (Err(error), Some((name, to))) if error.is_not_found() => self.fast.rename(name, to),
            (moved, _) => moved,
        };
        if let (Ok(()), Some(to), Some(tier)) = (&moved, self.segment(target), &self.fast.tier) {
            match self.segment(source) {
                Some(name) => tier.rename_segment(name, to),
                // A draft lies in the main directory, and is short.
                None => tier.keep_segment_out(to, 0),
            }
        }
        moved
    }

    fn remove(&self, path: &Path) -> Result<()> {
        if let Some(name) = self.table(path) {
            return self.remove_table(path, name);
        }
        if self.is_ring(path) {
            return self.remove_ring(path);
        }
        let Some(name) = self.segment(path) else {
            return self.main.remove(path);
        };
        let removed = match self.main.remove(path) {
            Err(error) if error.is_not_found() => self.fast.remove(name),
            removed => removed,
        };
        if let (Ok(()), Some(tier)) = (&removed, &self.fast.tier) {
            tier.forget_segment(name);
        }
        removed
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let mut entries = self.main.list(path)?;
        if path == self.dir {
            let mut there = files_of_log(&*self.main, self.fast.segments.dir())?;
            there.append(&mut tables(&*self.main, self.fast.tables.dir())?);
            there.retain(|it| !has(&entries, &it.name));
            entries.append(&mut there);
        }
        Ok(entries)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        if path == self.dir {
            self.fast.sync_names()?;
        }
        self.main.sync_dir(path)
    }

    fn map_ring(&self, path: &Path, bytes: usize) -> Result<(Arc<dyn Ring>, bool)> {
        if !self.is_ring(path) {
            return self.main.map_ring(path, bytes);
        }
        let found = self.finds_ring_there()?;
        if found.unwrap_or_else(|| self.fast.takes_ring()) {
            match self.fast.map_ring(bytes) {
                Err(error) if found.is_none() => self.fast.note_failure(&error),
                mapped => return mapped,
            }
        }
        self.main.map_ring(path, bytes)
    }

    fn resize_ring(&self, path: &Path, bytes: usize) -> Result<()> {
        if self.is_ring(path) && self.fast.has_ring() {
            return self.fast.resize_ring(bytes);
        }
        self.main.resize_ring(path, bytes)
    }

    fn gives_way(&self, path: &Path) -> bool {
        if self.is_ring(path) {
            let found = self.finds_ring_there().ok().flatten();
            return match found {
                None => false,
                Some(true) => !self.fast.is_for_ring(),
                Some(false) => self.fast.takes_ring(),
            };
        }
        let both = self.fast.tier.as_ref().zip(self.segment(path));
        both.is_some_and(|(tier, name)| tier.gives_way(name))
    }

    fn segment_bytes_max(&self, spare: Option<&Path>) -> u64 {
        let name = spare.and_then(|path| self.segment(path));
        let tier = self.fast.tier.as_ref();
        tier.map_or(u64::MAX, |tier| tier.segment_bytes_max(name))
    }

    fn is_found_by_others(&self, path: &Path) -> bool {
        let both = self.fast.tier.as_ref().zip(self.table(path));
        both.is_none_or(|(tier, name)| !tier.has_table(name))
    }

    forward! { main:
        fn link(source: &Path, target: &Path) -> Result<()>;
        fn create_dir(path: &Path) -> Result<()>;
        fn remove_dir(path: &Path) -> Result<()>;
        fn lock(path: &Path) -> Result<Box<dyn DirectoryLock>>;
        fn free_bytes(path: &Path) -> Result<u64>;
        fn device_of(path: &Path) -> Option<u64>;
        fn now() -> Duration;
        fn thread_cpu() -> Duration;
        fn wall_clock() -> Duration;
        fn random() -> u64;
        fn sleep(duration: Duration);
        fn has_machine_clock() -> bool;
        fn boot_id() -> Option<[u8; 16]>;
        fn meters() -> Vec<(Area, AreaMeter)>;
    }
}
