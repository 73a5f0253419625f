//! A storage with a fixed rule: the log, or tables as they are made, or those of level 0, lie on the fast device while there is room.

use super::Policy;
use crate::interrupt::lock;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use waystation::Result;
use waystation::storage::forward::forward;
use waystation::storage::{
    Area, AreaMeter, DirectoryLock, Entry, File, OpenMode, Ring, Storage, Transfer,
};

/// The files of the main directory that lie in the fast one, each with the handle that made it and the length it was to get.
type There = HashMap<PathBuf, Option<(Weak<dyn File>, u64)>>;

/// See the module.
pub(crate) struct FixedTier {
    inner: Arc<dyn Storage>,
    policy: Policy,
    main: PathBuf,
    fast: PathBuf,
    capacity_bytes: u64,
    /// The length that a file is taken to get of which the engine does not tell.
    file_bytes: u64,
    /// The length and the level of tables that are made next.
    expected: Mutex<HashMap<PathBuf, (u64, usize)>>,
    there: Mutex<There>,
}

impl FixedTier {
    /// Puts what `policy` names of the database in `main` into `fast`, up to `capacity_bytes`, in files of `file_bytes` if the engine does not tell
    /// how long they get.
    pub(crate) fn new(
        inner: Arc<dyn Storage>,
        policy: Policy,
        (main, fast): (&Path, &Path),
        (capacity_bytes, file_bytes): (u64, u64),
    ) -> Result<Self> {
        inner.create_dir(fast)?;
        Ok(Self {
            inner,
            policy,
            main: main.to_owned(),
            fast: fast.to_owned(),
            capacity_bytes,
            file_bytes,
            expected: Mutex::default(),
            there: Mutex::default(),
        })
    }

    /// Whether the file `path` is to lie there, a table of `level` if the engine told one.
    fn is_meant(&self, path: &Path, level: Option<usize>) -> bool {
        let name = path
            .file_name()
            .and_then(|it| it.to_str())
            .unwrap_or_default();
        let is_ours = path.parent() == Some(&self.main);
        is_ours
            && match self.policy {
                Policy::Journal => name.starts_with("journal"),
                Policy::Tables => Path::new(name).extension().is_some_and(|it| it == "ldb"),
                Policy::Levels => level == Some(0),
                Policy::None | Policy::Own | Policy::Durable | Policy::Cache => false,
            }
    }

    /// Whether `bytes` fit beside the files there, of which those that are still made count with the length that they get.
    fn has_room(&self, bytes: u64) -> Result<bool> {
        let there = self.there();
        let expected = |entry: &Entry| {
            let (maker, bytes) = there.get(&self.main.join(&entry.name))?.as_ref()?;
            (maker.strong_count() > 0).then_some(*bytes)
        };
        let length = |entry: &Entry| entry.bytes.max(expected(entry).unwrap_or(0));
        let used: u64 = self.inner.list(&self.fast)?.iter().map(length).sum();
        Ok(used + bytes <= self.capacity_bytes)
    }

    /// Where `path` lies.
    fn real(&self, path: &Path) -> PathBuf {
        let is_there = self.there().contains_key(path);
        match path.file_name() {
            Some(name) if is_there => self.fast.join(name),
            _ => path.to_owned(),
        }
    }

    fn there(&self) -> MutexGuard<'_, There> {
        lock(&self.there)
    }
}

impl Storage for FixedTier {
    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        transfer: Transfer,
        area: Area,
    ) -> Result<Arc<dyn File>> {
        let told = lock(&self.expected).remove(path);
        let bytes = told.map_or(self.file_bytes, |(bytes, _)| bytes);
        let level = told.map(|(_, level)| level);
        if mode != OpenMode::Create || !self.is_meant(path, level) || !self.has_room(bytes)? {
            return self.inner.open(&self.real(path), mode, transfer, area);
        }
        self.there().insert(path.to_owned(), None);
        let file = self.inner.open(&self.real(path), mode, transfer, area)?;
        self.there()
            .insert(path.to_owned(), Some((Arc::downgrade(&file), bytes)));
        Ok(file)
    }

    fn expect(&self, path: &Path, bytes: u64, level: usize) {
        lock(&self.expected).insert(path.to_owned(), (bytes, level));
    }

    fn map_ring(&self, path: &Path, bytes: usize) -> Result<(Arc<dyn Ring>, bool)> {
        if self.is_meant(path, None) && self.has_room(bytes as u64)? {
            self.there().insert(path.to_owned(), None);
        }
        self.inner.map_ring(&self.real(path), bytes)
    }

    fn resize_ring(&self, path: &Path, bytes: usize) -> Result<()> {
        self.inner.resize_ring(&self.real(path), bytes)
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        let from = self.real(source);
        let moved = self.there().remove(source);
        let before = self.real(target);
        match moved {
            Some(maker) => self.there().insert(target.to_owned(), maker),
            None => self.there().remove(target),
        };
        let to = self.real(target);
        self.inner.rename(&from, &to)?;
        if before != to {
            // The one that was replaced, if there was one.
            drop(self.inner.remove(&before));
        }
        Ok(())
    }

    fn link(&self, source: &Path, target: &Path) -> Result<()> {
        self.inner.link(&self.real(source), target)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(&self.real(path))?;
        self.there().remove(path);
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let mut entries = self.inner.list(path)?;
        if path == self.main {
            let there = self.inner.list(&self.fast)?;
            let is_known = |entry: &Entry| self.there().contains_key(&self.main.join(&entry.name));
            entries.extend(there.into_iter().filter(is_known));
        }
        Ok(entries)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        if path == self.main {
            self.inner.sync_dir(&self.fast)?;
        }
        self.inner.sync_dir(path)
    }

    forward! { inner:
        fn free_bytes(path: &Path) -> Result<u64>;
        fn lock(path: &Path) -> Result<Box<dyn DirectoryLock>>;
        fn create_dir(path: &Path) -> Result<()>;
        fn remove_dir(path: &Path) -> Result<()>;
        fn now() -> Duration;
        fn has_machine_clock() -> bool;
        fn boot_id() -> Option<[u8; 16]>;
        fn thread_cpu() -> Duration;
        fn wall_clock() -> Duration;
        fn random() -> u64;
        fn sleep(duration: Duration);
        fn meters() -> Vec<(Area, AreaMeter)>;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waystation::storage::OsStorage;

    /// A tier that follows `policy`, between two directories below one that goes with it.
    struct Rig {
        tier: FixedTier,
        main: PathBuf,
        fast: PathBuf,
        _directory: tempfile::TempDir,
    }

    fn rig(policy: Policy, bytes: (u64, u64)) -> Rig {
        let directory = tempfile::tempdir().expect("a directory");
        let (main, fast) = (directory.path().join("main"), directory.path().join("fast"));
        let storage = OsStorage::new();
        storage.create_dir(&main).expect("a directory");
        let tier = FixedTier::new(storage, policy, (&main, &fast), bytes);
        Rig {
            tier: tier.expect("a tier"),
            main,
            fast,
            _directory: directory,
        }
    }

    impl Rig {
        /// Makes a file; it, and whether it lies in the fast directory.
        fn create(&self, name: &str) -> (Arc<dyn File>, bool) {
            let path = self.main.join(name);
            let (mode, area) = (OpenMode::Create, Area::Tables);
            let file = self.tier.open(&path, mode, Transfer::Buffered, area);
            (file.expect("a file"), self.fast.join(name).exists())
        }
    }

    #[test]
    fn a_file_that_is_made_counts_with_the_length_that_it_gets() {
        let rig = rig(Policy::Tables, (2_500, 1_000));
        let create = |name: &str| rig.create(name);
        let expect = |name: &str, bytes| rig.tier.expect(&rig.main.join(name), bytes, 1);
        let (first, is_there) = create("1.ldb");
        assert!(is_there);
        first.write_at(&[1; 1_200], 0).expect("room");
        let (second, is_there) = create("2.ldb");
        assert!(is_there);
        second.write_at(&[1; 100], 0).expect("room");
        assert!(!create("3.ldb").1, "1,200 and 1,000 bytes are taken");
        drop(second);
        assert!(create("4.ldb").1, "1,200 and 100 bytes are");
        expect("5.ldb", 1_201);
        assert!(!create("5.ldb").1, "it gets longer than what is left");
        expect("6.ldb", 1_200);
        assert!(create("6.ldb").1, "it fits");
        assert!(!create("journal.1").1, "no table");
    }

    #[test]
    fn tables_of_level_0_alone_are_meant_by_the_rule_of_levels() {
        let rig = rig(Policy::Levels, (2_000, 1_000));
        let lies_there = |name: &str, level: Option<usize>| {
            if let Some(level) = level {
                rig.tier.expect(&rig.main.join(name), 1_000, level);
            }
            let (file, is_there) = rig.create(name);
            file.write_at(&[1; 1_000], 0).expect("room");
            is_there
        };
        assert!(lies_there("1.ldb", Some(0)));
        assert!(!lies_there("2.ldb", Some(1)));
        assert!(!lies_there("3.ldb", None), "its level is not known");
        assert!(lies_there("4.ldb", Some(0)));
        assert!(!lies_there("5.ldb", Some(0)), "there is no room");
    }
}
