//! The storage of a database whose log lies in two directories: segments are in the main one, or in the fast one.
//!
//! To the rooms above there is one directory. A segment keeps the name that it would have in the main directory; where it
//! lies is found out when it is opened. Everything but segments lies in the main directory.
//!
//! Invariants:
//! - a segment lies in one of the directories only: its place is chosen when its length is reserved, before it has any byte,
//!   and it stays there. A file that a failing fast directory could not remove has no content; the one of that name in the main
//!   directory counts, and the next owner removes the other;
//! - the names in both directories are durable after `sync_dir` of the main one;
//! - a listing has the segments of both, or fails: a fast directory that is missing never looks like a shorter log.

use super::link::{Link, lock_segments, segments};
use super::options::FastTier;
use super::spread_file::SpreadFile;
use super::tier::Tier;
use crate::directory::segment_number;
use crate::error::{Error, Result};
use crate::storage::forward::forward;
use crate::storage::{
    Area, AreaMeter, DirectoryLock, Entry, File, OpenMode, Ring, Storage, Transfer,
};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// See the module.
pub(crate) struct Spread {
    main: Arc<dyn Storage>,
    /// The database's directory.
    dir: PathBuf,
    fast: Arc<FastLog>,
}

/// What the owner of a database has.
pub(crate) struct Owned {
    /// The storage of all its files.
    pub(crate) storage: Arc<dyn Storage>,
    /// The lock of the segments in a fast directory.
    pub(crate) lock: Option<Box<dyn DirectoryLock>>,
}

/// The part of the log in the fast directory.
pub(super) struct FastLog {
    pub(super) storage: Arc<dyn Storage>,
    /// Where segments lie.
    dir: PathBuf,
    /// Names there have changed since they were made durable.
    is_dirty: AtomicBool,
    /// Gives new segments their places. `None`: they go to the main directory.
    tier: Option<Arc<Tier>>,
}

impl Spread {
    /// The storage of the database in `dir`, for its owner. New segments may go to the fast directory of `options`, if
    /// that is durable.
    ///
    /// # Errors
    /// [`Error::Incompatible`] if segments lie in a fast directory that is not there; [`Error::Locked`].
    pub(crate) fn own(
        main: &Arc<dyn Storage>,
        dir: &Path,
        options: Option<&FastTier>,
        tier: Option<&Arc<Tier>>,
    ) -> Result<Owned> {
        let fast = options.filter(|it| it.durable);
        let Some((link, lock)) = own_link(&**main, dir, fast)? else {
            return Ok(Owned {
                storage: Arc::clone(main),
                lock: None,
            });
        };
        remove_doubles(&**main, dir, &link.log_dir())?;
        let is_chosen = fast.is_some_and(|it| it.directory == link.directory());
        let tier = tier.filter(|_| is_chosen);
        if let Some(tier) = tier {
            let mut present = HashMap::new();
            for (dir, is_fast) in [(dir, false), (&link.log_dir(), true)] {
                let found = segments(&**main, dir)?.into_iter();
                present.extend(found.map(|it| (it.name, (it.bytes, is_fast))));
            }
            tier.share_with_log(present);
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
        let fast = FastLog {
            storage: Arc::clone(main),
            dir: link.log_dir(),
            // The last owner may have had no time for it.
            is_dirty: AtomicBool::new(true),
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
                let _lock = lock_segments(&**main, &link)?;
                destroy(&*Self::over(main, dir, &link, None))?;
                link.leave(&**main)
            }
        }
    }

    /// The name of the segment at `path`. `None`: it is no segment of the database.
    fn segment<'a>(&self, path: &'a Path) -> Option<&'a str> {
        let name = path.file_name()?.to_str()?;
        let is_one = path.parent() == Some(&self.dir) && segment_number(name).is_some();
        is_one.then_some(name)
    }
}

impl FastLog {
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
        self.is_dirty.store(true, SeqCst);
        let made = self
            .open(name, OpenMode::Create, transfer)
            .and_then(|file| file.preallocate(bytes).map(|()| file));
        made.inspect_err(|error| {
            self.note_failure(error);
            // Should it stay: the file of that name in the main directory counts.
            let _ = self.remove(name);
            tier.refuse_segment(name, bytes);
        })
        .ok()
    }

    fn open(&self, name: &str, mode: OpenMode, transfer: Transfer) -> Result<Arc<dyn File>> {
        let path = self.dir.join(name);
        self.storage.open(&path, mode, transfer, Area::Journal)
    }

    fn rename(&self, name: &str, target: &str) -> Result<()> {
        self.is_dirty.store(true, SeqCst);
        let (source, to) = (self.dir.join(name), self.dir.join(target));
        self.storage.rename(&source, &to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.is_dirty.store(true, SeqCst);
        self.storage.remove(&self.dir.join(name))
    }

    /// Makes the names durable.
    fn sync_names(&self) -> Result<()> {
        if !self.is_dirty.swap(false, SeqCst) {
            return Ok(());
        }
        let synced = self.storage.sync_dir(&self.dir);
        synced.inspect_err(|_| self.is_dirty.store(true, SeqCst))
    }

    /// Lets the fast directory rest if it failed otherwise than for want of room.
    pub(super) fn note_failure(&self, error: &Error) {
        if let Some(tier) = &self.tier
            && !error.is_out_of_space()
        {
            tier.fail(&error.to_string());
        }
    }

    /// Notes a write of a segment.
    pub(super) fn note_write(&self, is_fast: bool, bytes: usize, elapsed: Duration) {
        if let Some(share) = self.tier.as_ref().and_then(|tier| tier.log_share()) {
            let writes = if is_fast { &share.fast } else { &share.main };
            writes.note(bytes, elapsed);
        }
    }
}

fn has(entries: &[Entry], name: &str) -> bool {
    entries.iter().any(|entry| entry.name == name)
}

/// Removes what a failing fast directory could not remove, and what lies in the main one instead.
fn remove_doubles(storage: &dyn Storage, dir: &Path, log_dir: &Path) -> Result<()> {
    let counting = storage.list(dir)?;
    let there = segments(storage, log_dir)?.into_iter();
    there
        .filter(|it| has(&counting, &it.name))
        .try_for_each(|it| storage.remove(&log_dir.join(it.name)))
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
        let lock = lock_segments(storage, &link)?;
        let is_of_use = fast.is_some_and(|it| it.directory == link.directory());
        if is_of_use || !segments(storage, &link.log_dir())?.is_empty() {
            if fast.is_some() && !is_of_use {
                log::warn!(
                    "segments of the log lie in {} still: new ones go to the main directory until those are gone",
                    link.directory().display()
                );
            }
            return Ok(Some((link, lock)));
        }
        link.end(storage, dir)?;
    }
    let Some(fast) = fast else {
        return Ok(None);
    };
    match Link::begin(storage, dir, &fast.directory) {
        Ok(begun) => Ok(Some(begun)),
        Err(error @ (Error::Locked { .. } | Error::Incompatible { .. })) => Err(error),
        Err(error) => {
            log::warn!("the log stays in the main directory: {error}");
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
        let Some(name) = self.segment(path) else {
            return self.main.open(path, mode, transfer, area);
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
            let mut there = segments(&*self.main, &self.fast.dir)?;
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

    fn gives_way(&self, path: &Path) -> bool {
        let both = self.fast.tier.as_ref().zip(self.segment(path));
        both.is_some_and(|(tier, name)| tier.gives_way(name))
    }

    forward! { main:
        fn map_ring(path: &Path, bytes: usize) -> Result<(Arc<dyn Ring>, bool)>;
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
