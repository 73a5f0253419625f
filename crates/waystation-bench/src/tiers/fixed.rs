//! A storage with a fixed rule: the log, or tables as they are made, lie on the fast device while there is room.

use super::Policy;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use waystation::Result;
use waystation::storage::forward::forward;
use waystation::storage::{
    Area, AreaMeter, DirectoryLock, Entry, File, OpenMode, Ring, Storage, Transfer,
};

/// See the module.
pub(crate) struct FixedTier {
    inner: Arc<dyn Storage>,
    policy: Policy,
    main: PathBuf,
    fast: PathBuf,
    capacity_bytes: u64,
    /// The length that a file of the policy's is taken to get.
    file_bytes: u64,
    /// The files of the main directory that lie in the fast one.
    there: Mutex<HashSet<PathBuf>>,
}

impl FixedTier {
    /// Puts what `policy` names of the database in `main` into `fast`, up to `capacity_bytes`, in files of `file_bytes`.
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
            there: Mutex::default(),
        })
    }

    fn is_meant(&self, path: &Path) -> bool {
        let name = path
            .file_name()
            .and_then(|it| it.to_str())
            .unwrap_or_default();
        let is_ours = path.parent() == Some(&self.main);
        is_ours
            && match self.policy {
                Policy::Journal => name.starts_with("journal"),
                Policy::Tables => Path::new(name).extension().is_some_and(|it| it == "ldb"),
                Policy::None | Policy::Own | Policy::Durable | Policy::Levels | Policy::Cache => {
                    false
                }
            }
    }

    fn has_room(&self, bytes: u64) -> Result<bool> {
        let used: u64 = self.inner.list(&self.fast)?.iter().map(|it| it.bytes).sum();
        Ok(used + bytes <= self.capacity_bytes)
    }

    /// Where `path` lies.
    fn real(&self, path: &Path) -> PathBuf {
        let is_there = self.there().contains(path);
        match path.file_name() {
            Some(name) if is_there => self.fast.join(name),
            _ => path.to_owned(),
        }
    }

    fn there(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
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
        if mode == OpenMode::Create && self.is_meant(path) && self.has_room(self.file_bytes)? {
            self.there().insert(path.to_owned());
        }
        self.inner.open(&self.real(path), mode, transfer, area)
    }

    fn map_ring(&self, path: &Path, bytes: usize) -> Result<(Arc<dyn Ring>, bool)> {
        if self.is_meant(path) && self.has_room(bytes as u64)? {
            self.there().insert(path.to_owned());
        }
        self.inner.map_ring(&self.real(path), bytes)
    }

    fn resize_ring(&self, path: &Path, bytes: usize) -> Result<()> {
        self.inner.resize_ring(&self.real(path), bytes)
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        let from = self.real(source);
        let is_there = self.there().remove(source);
        let before = self.real(target);
        if is_there {
            self.there().insert(target.to_owned());
        } else {
            self.there().remove(target);
        }
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
            let is_known = |entry: &Entry| self.there().contains(&self.main.join(&entry.name));
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
