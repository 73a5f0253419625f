//! A storage with a cache on the fast device: every page of a table that was read comes there, and the least recently used
//! one goes.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use waystation::Result;
use waystation::storage::forward::forward;
use waystation::storage::{
    Area, AreaMeter, DirectoryLock, Entry, File, OpenMode, Ring, Storage, Transfer,
};

const PAGE_BYTES: usize = 4096;
/// A longer read is a merge's or a scan's, and leaves the cache alone.
const POINT_PAGES: usize = 16;

/// See the module.
pub(crate) struct LruCache {
    inner: Arc<dyn Storage>,
    cache: Arc<Cache>,
}

struct Cache {
    file: Arc<dyn File>,
    slots: usize,
    pages: Mutex<Pages>,
}

/// Which pages there are.
#[derive(Default)]
struct Pages {
    /// The slot of a page of a file, and when it was used last.
    known: HashMap<(u64, u64), (usize, u64)>,
    by_use: BTreeMap<u64, (u64, u64)>,
    uses: u64,
    files: u64,
}

impl Pages {
    /// The slot of `page`, which is used now.
    fn touch(&mut self, page: (u64, u64)) -> Option<usize> {
        let (slot, used) = self.known.get_mut(&page)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, page);
        Some(*slot)
    }

    /// A slot for `page`, which has none.
    fn take(&mut self, page: (u64, u64), slots: usize) -> Option<usize> {
        let slot = if self.known.len() < slots {
            self.known.len()
        } else {
            let (_, oldest) = self.by_use.pop_first()?;
            self.known.remove(&oldest)?.0
        };
        self.uses += 1;
        self.known.insert(page, (slot, self.uses));
        self.by_use.insert(self.uses, page);
        Some(slot)
    }
}

impl LruCache {
    /// A cache of `capacity_bytes` in `fast`.
    pub(crate) fn new(inner: Arc<dyn Storage>, fast: &Path, capacity_bytes: u64) -> Result<Self> {
        inner.create_dir(fast)?;
        let path = fast.join("CACHE");
        let file = inner.open(&path, OpenMode::Create, Transfer::Buffered, Area::Tables)?;
        let slots = usize::try_from(capacity_bytes).unwrap_or(usize::MAX) / PAGE_BYTES;
        let pages = Mutex::default();
        Ok(Self {
            inner,
            cache: Arc::new(Cache { file, slots, pages }),
        })
    }
}

impl Cache {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for LruCache {
    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        transfer: Transfer,
        area: Area,
    ) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(path, mode, transfer, area)?;
        if mode != OpenMode::Read || path.extension().is_none_or(|it| it != "ldb") {
            return Ok(inner);
        }
        let mut pages = self.cache.pages();
        pages.files += 1;
        let (number, cache) = (pages.files, Arc::clone(&self.cache));
        drop(pages);
        Ok(Arc::new(CachedFile {
            inner,
            number,
            cache,
        }))
    }

    forward! { inner:
        fn map_ring(path: &Path, bytes: usize) -> Result<(Arc<dyn Ring>, bool)>;
        fn resize_ring(path: &Path, bytes: usize) -> Result<()>;
        fn rename(source: &Path, target: &Path) -> Result<()>;
        fn link(source: &Path, target: &Path) -> Result<()>;
        fn remove(path: &Path) -> Result<()>;
        fn create_dir(path: &Path) -> Result<()>;
        fn remove_dir(path: &Path) -> Result<()>;
        fn list(path: &Path) -> Result<Vec<Entry>>;
        fn sync_dir(path: &Path) -> Result<()>;
        fn lock(path: &Path) -> Result<Box<dyn DirectoryLock>>;
        fn free_bytes(path: &Path) -> Result<u64>;
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

/// A table, whose pages come through the cache.
struct CachedFile {
    inner: Arc<dyn File>,
    number: u64,
    cache: Arc<Cache>,
}

impl CachedFile {
    /// Reads pages from `first` on, from the cache if all are there, else from the file and into the cache.
    fn read_pages(&self, first: u64, bytes: &mut [u8]) -> Result<usize> {
        let mut pages = self.cache.pages();
        let keys = (first..).map(|page| (self.number, page));
        let keys = keys.take(bytes.len() / PAGE_BYTES);
        let slots: Option<Vec<usize>> = keys.map(|key| pages.touch(key)).collect();
        if let Some(slots) = slots {
            for (chunk, slot) in bytes.chunks_mut(PAGE_BYTES).zip(slots) {
                self.cache.file.read_at(chunk, (slot * PAGE_BYTES) as u64)?;
            }
            return Ok(bytes.len());
        }
        let read = self.inner.read_at(bytes, first * PAGE_BYTES as u64)?;
        let whole = bytes[..read].chunks_exact(PAGE_BYTES);
        for (page, key) in whole.zip((first..).map(|page| (self.number, page))) {
            let slot = match pages.touch(key) {
                Some(slot) => Some(slot),
                None => pages.take(key, self.cache.slots),
            };
            if let Some(slot) = slot {
                self.cache.file.write_at(page, (slot * PAGE_BYTES) as u64)?;
            }
        }
        Ok(read)
    }
}

impl File for CachedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let page = PAGE_BYTES as u64;
        let first = offset / page;
        let end = (offset + buffer.len() as u64).div_ceil(page);
        let count = usize::try_from(end - first).unwrap_or(usize::MAX);
        if count > POINT_PAGES {
            return self.inner.read_at(buffer, offset);
        }
        let mut bytes = vec![0; count * PAGE_BYTES];
        let read = self.read_pages(first, &mut bytes)?;
        let lead = usize::try_from(offset - first * page).unwrap_or(usize::MAX);
        let there = read.saturating_sub(lead).min(buffer.len());
        buffer[..there].copy_from_slice(&bytes[lead..lead + there]);
        Ok(there)
    }

    forward! { inner:
        fn read_window(buffer: &mut [u8], offset: u64) -> Result<usize>;
        fn write_at(data: &[u8], offset: u64) -> Result<()>;
        fn sync() -> Result<()>;
        fn preallocate(bytes: u64) -> Result<()>;
        fn truncate(bytes: u64) -> Result<()>;
        fn size() -> Result<u64>;
        fn is_direct() -> bool;
        fn alignment() -> usize;
        fn prefetch(offset: u64, length: u64);
        fn write_back(offset: u64, length: u64);
        fn path() -> &Path;
    }
}
