//! A storage with a fixed rule: the log, or tables as they are made, lie on the fast device while there is room; or the newest
//! tables lie there, which are those of the upper levels.

use super::Policy;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use waystation::Result;
use waystation::storage::forward::forward;
use waystation::storage::{
    Area, AreaMeter, DirectoryLock, Entry, File, OpenMode, Ring, Storage, Transfer,
};

/// Bytes that are copied at once.
const CHUNK_BYTES: usize = 1 << 20;

/// A file that lies in the fast directory: the one that is being written, while it is.
type Placed = Option<Weak<dyn File>>;

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
    there: Mutex<HashMap<PathBuf, Placed>>,
    /// Held while older tables give way.
    giving_way: Mutex<()>,
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
            giving_way: Mutex::default(),
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
                Policy::Tables | Policy::Levels => {
                    Path::new(name).extension().is_some_and(|it| it == "ldb")
                }
                Policy::None | Policy::Own | Policy::Durable | Policy::Cache => false,
            }
    }

    fn has_room(&self, bytes: u64) -> Result<bool> {
        let used: u64 = self.inner.list(&self.fast)?.iter().map(|it| it.bytes).sum();
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

    fn there(&self) -> MutexGuard<'_, HashMap<PathBuf, Placed>> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the oldest tables to the main directory until a new one has room, or none is left that is complete.
    fn make_room(&self) -> Result<()> {
        let _one = self
            .giving_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while !self.has_room(self.file_bytes)? {
            let is_complete = |placed: &Placed| {
                let writer = placed.as_ref().and_then(Weak::upgrade);
                writer.is_none()
            };
            let oldest = {
                let there = self.there();
                let complete = there.iter().filter(|(_, placed)| is_complete(placed));
                complete.map(|(path, _)| path.clone()).min()
            };
            let Some(path) = oldest else {
                return Ok(());
            };
            let source = self.real(&path);
            match self.copy(&source, &path) {
                // It became useless meanwhile.
                Err(error) if error.is_not_found() => {}
                copied => copied?,
            }
            self.there().remove(&path);
            drop(self.inner.remove(&source));
        }
        Ok(())
    }

    fn copy(&self, source: &Path, target: &Path) -> Result<()> {
        let open = |path: &Path, mode| {
            self.inner
                .open(path, mode, Transfer::Buffered, Area::Tables)
        };
        let source = open(source, OpenMode::Read)?;
        let target = open(target, OpenMode::Create)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut offset = 0;
        loop {
            let length = source.read_window(&mut chunk, offset)?;
            if length == 0 {
                return target.sync();
            }
            target.write_at(&chunk[..length], offset)?;
            offset += length as u64;
        }
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
        let is_meant = mode == OpenMode::Create && self.is_meant(path);
        if is_meant && self.policy == Policy::Levels {
            self.make_room()?;
        }
        if is_meant && self.has_room(self.file_bytes)? {
            let file = self.fast.join(path.file_name().unwrap_or_default());
            let file = self.inner.open(&file, mode, transfer, area)?;
            self.there()
                .insert(path.to_owned(), Some(Arc::downgrade(&file)));
            return Ok(file);
        }
        self.inner.open(&self.real(path), mode, transfer, area)
    }

    fn map_ring(&self, path: &Path, bytes: usize) -> Result<(Arc<dyn Ring>, bool)> {
        if self.is_meant(path) && self.has_room(bytes as u64)? {
            self.there().insert(path.to_owned(), None);
        }
        self.inner.map_ring(&self.real(path), bytes)
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        let from = self.real(source);
        let is_there = self.there().remove(source);
        let before = self.real(target);
        if let Some(placed) = is_there {
            self.there().insert(target.to_owned(), placed);
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
