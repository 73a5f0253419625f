//! The version set: the newest version, and the only one who changes it.
//!
//! ```text
//!   apply:  tables synced -> directory synced -> edit appended to MANIFEST, synced -> version visible
//!   roll:   new MANIFEST synced -> side file pins both -> CURRENT renamed, directory synced
//! ```
//!
//! **Failed appends.** What a failed append leaves in the MANIFEST is unknown, so that file is never written
//! again: the edit goes into a new MANIFEST, and if that fails too, the next change tries again, before
//! anything is acknowledged. Until CURRENT has changed hands for sure, a restart may come back with the failed
//! edit or without it; so neither the tables it adds nor those it removes are deleted before.
//!
//! **The log.** The edit that installs a flush carries the flush's last sequence number, and nothing else
//! raises that number: after a restart it says up to where the log is covered by tables.

use super::garbage::{Garbage, Waste};
use super::manifest::{ManifestWriter, Numbers, change_edit, snapshot_edit};
use super::recover::{Listing, recover};
use super::side::{Pin, SideFile, State};
use super::{Change, Fence, Version};
use crate::directory::{SIDE_FILE, SIDE_TEMPORARY, replace_file};
use crate::error::{Error, Result};
use crate::storage::Storage;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, RwLock, lock};
use std::path::{Path, PathBuf};
use waystation_format::checksum::crc32c;
use waystation_format::filename::{
    CURRENT, FileKind, current_content, log_name, manifest_name, temporary_name,
};
use waystation_format::leveldb_log::RecordWriter;
use waystation_format::order::Order;

/// Why the lock on the newest version is never poisoned.
const LOCKED: &str = "no thread panics with the version locked";

/// Numbers that a change moves on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Every write up to this sequence number is in a table now.
    pub flushed_through: Option<u64>,
    /// LevelDB's write-ahead logs below this number are not needed any more.
    pub log_number: Option<u64>,
}

/// What opening found.
#[derive(Debug)]
pub(crate) struct Found {
    /// LevelDB's write-ahead logs that no table covers yet, the oldest first.
    pub foreign_logs: Vec<u64>,
    /// The state kept before; `None` if there is none, or LevelDB wrote to the directory since.
    pub state: Option<State>,
}

/// The newest version and how it changes. Shared by reference.
pub(crate) struct VersionSet {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    next_file: AtomicU64,
    current: RwLock<Arc<Version>>,
    inner: Mutex<Inner>,
}

struct Inner {
    /// `None` after a failed append, and after the end: the next change begins a new one.
    manifest: Option<ManifestWriter>,
    /// The manifests that CURRENT may name, should the machine stop now.
    pins: Vec<Pin>,
    log_number: u64,
    last_sequence: u64,
    state: State,
    garbage: Garbage,
}

impl VersionSet {
    /// Opens the database in `dir`, whose lock the caller holds, and puts up the fence. A directory without
    /// one gets one. Keys are in `order`.
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        dir: &Path,
        order: &Order,
    ) -> Result<(Self, Found)> {
        let listing = Listing::read(&*storage, dir)?;
        let recovered = recover(&*storage, dir, &listing, order)?;
        let found = Found {
            foreign_logs: recovered
                .as_ref()
                .map_or(Vec::new(), |found| found.foreign_logs.clone()),
            state: recovered.as_ref().and_then(|found| found.state.clone()),
        };
        let (version, numbers, pins) = if let Some(found) = recovered {
            remove_unfinished(&*storage, dir, &listing, found.pin.manifest)?;
            (found.version, found.numbers, vec![found.pin])
        } else {
            let numbers = Numbers {
                log_number: 0,
                next_file: 1,
                last_sequence: 0,
            };
            (Version::empty(order), numbers, Vec::new())
        };
        let inner = Inner {
            manifest: None,
            pins,
            log_number: numbers.log_number,
            last_sequence: numbers.last_sequence,
            state: found.state.clone().unwrap_or_default(),
            garbage: Garbage::default(),
        };
        let set = Self {
            storage,
            dir: dir.to_owned(),
            next_file: AtomicU64::new(numbers.next_file),
            current: RwLock::new(Arc::new(version)),
            inner: Mutex::new(inner),
        };
        {
            let inner = &mut *set.lock();
            let version = set.current();
            set.roll(inner, &version, inner.numbers(&set), Fence::Closed)?;
            let needed = |number| found.foreign_logs.contains(&number);
            inner
                .garbage
                .add_leftovers(&listing, &version, &inner.pins, needed);
        }
        Ok((set, found))
    }

    /// The newest version. What it lists stays for as long as it is held.
    pub(crate) fn current(&self) -> Arc<Version> {
        Arc::clone(&self.current.read().expect(LOCKED))
    }

    /// A number no file has or had.
    pub(crate) fn new_file_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// Every write up to this sequence number is in a table.
    pub(crate) fn flushed_through(&self) -> u64 {
        self.lock().last_sequence
    }

    /// The newest version together with the sequence number up to which it covers all writes.
    pub(crate) fn current_and_flushed_through(&self) -> (Arc<Version>, u64) {
        let inner = self.lock();
        (self.current(), inner.last_sequence)
    }

    /// Installs a change: durable first, then visible. The added tables are synced; their names need not be.
    /// After an error nothing is visible, the added tables belong to the set, and the change may be made anew
    /// with other tables.
    pub(crate) fn apply(&self, change: &Change, progress: Progress) -> Result<()> {
        let inner = &mut *self.lock();
        let base = self.current();
        let new_tables = change.new_tables(&base);
        let next = match base.with(change) {
            Ok(next) => Arc::new(next),
            Err(reason) => {
                inner.give_up(&new_tables);
                let reason = format!("a change of the tree is refused: {reason}");
                return Err(Error::InvalidArgument(reason));
            }
        };
        let mut numbers = inner.numbers(self);
        numbers.last_sequence = progress
            .flushed_through
            .unwrap_or(0)
            .max(numbers.last_sequence);
        numbers.log_number = progress.log_number.unwrap_or(0).max(numbers.log_number);
        if let Err(error) = self.write(inner, &next, change, numbers, !new_tables.is_empty()) {
            inner.give_up(&new_tables);
            return Err(error);
        }
        inner.last_sequence = numbers.last_sequence;
        inner.log_number = numbers.log_number;
        change
            .lost_tables(&base)
            .for_each(|table| inner.garbage.add_table(table));
        *self.current.write().expect(LOCKED) = next;
        Ok(())
    }

    /// Makes a change durable.
    fn write(
        &self,
        inner: &mut Inner,
        next: &Version,
        change: &Change,
        numbers: Numbers,
        names_tables: bool,
    ) -> Result<()> {
        if names_tables {
            self.storage.sync_dir(&self.dir)?;
        }
        if let Some(mut manifest) = inner.manifest.take_if(|manifest| !manifest.is_long()) {
            match manifest.append(&change_edit(change, numbers)) {
                Ok(()) => {
                    inner.manifest = Some(manifest);
                    return Ok(());
                }
                Err(error) => log::warn!("the MANIFEST is given up and written anew: {error}"),
            }
        }
        self.roll(inner, next, numbers, Fence::Closed)
    }

    /// Writes a new MANIFEST that begins with `version` and makes it the one in force.
    fn roll(
        &self,
        inner: &mut Inner,
        version: &Version,
        numbers: Numbers,
        fence: Fence,
    ) -> Result<()> {
        inner.manifest = None;
        let number = self.new_file_number();
        let numbers = Numbers {
            next_file: self.next_file.load(Ordering::Relaxed),
            ..numbers
        };
        let made = [manifest_name(number), temporary_name(number)];
        for name in &made {
            inner.garbage.add_doubtful(Waste::File(name.clone()));
        }
        let snapshot = snapshot_edit(version, numbers, fence);
        let manifest = ManifestWriter::create(&*self.storage, &self.dir, number, &snapshot)?;
        let (bytes, digest) = manifest.extent();
        let pin = Pin {
            manifest: number,
            bytes,
            digest,
            exact: fence == Fence::Open,
        };
        let mut pins = inner.pins.clone();
        pins.push(pin);
        // Makes the name of the new MANIFEST durable, too.
        self.write_side_file(&self.dir, &inner.state, pins.clone())?;
        inner.pins = pins;
        let content = current_content(number);
        replace_file(
            &*self.storage,
            &self.dir,
            &made[1],
            CURRENT,
            content.as_bytes(),
        )?;
        for old in std::mem::replace(&mut inner.pins, vec![pin]) {
            if old.manifest != number {
                inner.garbage.add(Waste::File(manifest_name(old.manifest)));
            }
        }
        inner.garbage.settle(&made);
        inner.manifest = Some(manifest);
        Ok(())
    }

    fn write_side_file(&self, dir: &Path, state: &State, pins: Vec<Pin>) -> Result<()> {
        let comparator = self.current().order().name().to_owned();
        let content = SideFile {
            comparator,
            pins,
            state: state.clone(),
        }
        .encode();
        replace_file(&*self.storage, dir, SIDE_TEMPORARY, SIDE_FILE, &content)
    }

    /// What the rooms above keep here.
    pub(crate) fn state(&self) -> State {
        self.lock().state.clone()
    }

    /// Keeps `state` from now on: durable on return, all of it or none.
    pub(crate) fn set_state(&self, state: State) -> Result<()> {
        let mut inner = self.lock();
        self.write_side_file(&self.dir, &state, inner.pins.clone())?;
        inner.state = state;
        Ok(())
    }

    /// Takes the fence down: from the return on LevelDB may open the directory, once its lock is given back.
    /// Only for a caller who has left nothing outside the tables; the next change would put it up again.
    pub(crate) fn open_fence(&self) -> Result<()> {
        let inner = &mut *self.lock();
        let version = self.current();
        let numbers = inner.numbers(self);
        self.roll(inner, &version, numbers, Fence::Open)?;
        inner.manifest = None;
        Ok(())
    }

    /// Makes a database of `version` in the directory `target`, whose tables are there already. If `state` says that there
    /// is more beside them, LevelDB is kept out.
    pub(crate) fn write_copy(
        &self,
        version: &Version,
        flushed_through: u64,
        state: &State,
        target: &Path,
    ) -> Result<()> {
        let (number, files) = self.copied_files(version, flushed_through, state);
        let current = (CURRENT.to_owned(), current_content(number).into());
        for (name, content) in files.into_iter().chain([current]) {
            let temporary = temporary_name(number);
            replace_file(&*self.storage, target, &temporary, &name, &content)?;
        }
        Ok(())
    }

    /// The files that make a directory with the tables of `version` a database: a MANIFEST and, where the rooms above have
    /// any `state`, the side file behind the fence. `CURRENT` is the caller's to write, at last. With the MANIFEST's number.
    pub(crate) fn copied_files(
        &self,
        version: &Version,
        flushed_through: u64,
        state: &State,
    ) -> (u64, Vec<(String, Vec<u8>)>) {
        let number = self.new_file_number();
        let numbers = Numbers {
            log_number: number,
            next_file: self.next_file.load(Ordering::Relaxed),
            last_sequence: flushed_through,
        };
        let fence = if state.is_empty() {
            Fence::Open
        } else {
            Fence::Closed
        };
        let mut manifest = Vec::new();
        let snapshot = snapshot_edit(version, numbers, fence);
        RecordWriter::new(0).append(&snapshot.to_bytes(), &mut manifest);
        let pin = Pin {
            manifest: number,
            bytes: manifest.len() as u64,
            digest: crc32c(&manifest),
            exact: true,
        };
        let mut files = vec![(manifest_name(number), manifest)];
        if !state.is_empty() {
            let side = SideFile {
                comparator: version.order().name().to_owned(),
                pins: vec![pin],
                state: state.clone(),
            };
            files.push((SIDE_FILE.to_owned(), side.encode()));
        }
        (number, files)
    }

    /// Lets LevelDB's write-ahead logs `numbers` go, which an installed change has made needless.
    pub(crate) fn discard_logs(&self, numbers: &[u64]) {
        let garbage = &mut self.lock().garbage;
        for &number in numbers {
            garbage.add(Waste::File(log_name(number)));
        }
    }

    /// Removes the files nothing needs any more, as far as that is certain; `evict` is called with the number
    /// of each table before its file goes. What cannot be removed is tried again the next time.
    pub(crate) fn remove_garbage(&self, mut evict: impl FnMut(u64)) {
        let due = self.lock().garbage.take_due();
        for waste in due {
            if let Waste::Table(number) = waste {
                evict(number);
            }
            if let Err(error) = waste.remove(&*self.storage, &self.dir) {
                log::warn!("a file that is not needed any more stays for now: {error}");
                self.lock().garbage.add(waste);
            }
        }
    }

    /// How many tables of older versions a reader still holds, and their bytes.
    pub(crate) fn held_tables(&self) -> (usize, u64) {
        self.lock().garbage.held()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

/// Removes MANIFESTs but the one in force, those of openings that did not come to their end: however many there were, they
/// leave room for this one.
fn remove_unfinished(
    storage: &dyn Storage,
    dir: &Path,
    listing: &Listing,
    in_force: u64,
) -> Result<()> {
    let is_other =
        |kind: FileKind| matches!(kind, FileKind::Manifest(number) if number != in_force);
    let others: Vec<_> = listing.files().filter(|it| is_other(it.1)).collect();
    if !others.is_empty() {
        // A power cut must not bring the one back that was in force before.
        storage.sync_dir(dir)?;
    }
    for (name, _) in others {
        storage.remove(&dir.join(name))?;
    }
    Ok(())
}

impl Inner {
    fn numbers(&self, set: &VersionSet) -> Numbers {
        Numbers {
            log_number: self.log_number,
            next_file: set.next_file.load(Ordering::Relaxed),
            last_sequence: self.last_sequence,
        }
    }

    /// Lets tables of a failed change go: at once, unless a MANIFEST may list them.
    fn give_up(&mut self, tables: &[u64]) {
        for &number in tables {
            match self.manifest {
                Some(_) => self.garbage.add(Waste::Table(number)),
                None => self.garbage.add_doubtful(Waste::Table(number)),
            }
        }
    }
}
