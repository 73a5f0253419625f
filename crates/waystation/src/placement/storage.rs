//! The storage of a database with a fast tier: as the one below, but reads of tables and of spilled graves may be served
//! from the fast directory.

use super::file::TieredFile;
use super::link::is_table;
use super::tier::Tier;
use crate::directory::spill_number;
use crate::error::Result;
use crate::storage::forward::forward;
use crate::storage::{
    Area, AreaMeter, DirectoryLock, Entry, File, OpenMode, Ring, Storage, Transfer,
};
use crate::sync::Arc;
use std::path::Path;
use std::time::Duration;

/// See the module.
pub(crate) struct Tiered {
    pub(crate) main: Arc<dyn Storage>,
    pub(crate) tier: Arc<Tier>,
}

impl Tiered {
    /// The area of the file `path`, if it never changes once it is complete and may have copies.
    fn area_of(&self, path: &Path) -> Option<Area> {
        if path.parent() != Some(&self.tier.main) {
            return None;
        }
        let name = path.file_name()?.to_str()?;
        if spill_number(name).is_some() {
            return Some(Area::Spill);
        }
        is_table(name).then_some(Area::Tables)
    }
}

impl Storage for Tiered {
    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        transfer: Transfer,
        area: Area,
    ) -> Result<Arc<dyn File>> {
        if mode != OpenMode::Read {
            self.tier.forget(path);
            return self.main.open(path, mode, transfer, area);
        }
        let main = self.main.open(path, mode, transfer, area)?;
        let Some(area) = self.area_of(path) else {
            return Ok(main);
        };
        let blocks = self.tier.register(path, area, main.size()?);
        Ok(Arc::new(TieredFile {
            main,
            blocks,
            tier: Arc::clone(&self.tier),
        }))
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        self.tier.forget(source);
        self.tier.forget(target);
        self.main.rename(source, target)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.tier.forget(path);
        self.main.remove(path)
    }

    forward! { main:
        fn expect(path: &Path, bytes: u64, level: usize);
        fn map_ring(path: &Path, bytes: usize) -> Result<(Arc<dyn Ring>, bool)>;
        fn resize_ring(path: &Path, bytes: usize) -> Result<()>;
        fn link(source: &Path, target: &Path) -> Result<()>;
        fn create_dir(path: &Path) -> Result<()>;
        fn remove_dir(path: &Path) -> Result<()>;
        fn list(path: &Path) -> Result<Vec<Entry>>;
        fn sync_dir(path: &Path) -> Result<()>;
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
        fn gives_way(path: &Path) -> bool;
        fn segment_bytes_max(spare: Option<&Path>) -> u64;
        fn is_found_by_others(path: &Path) -> bool;
        fn meters() -> Vec<(Area, AreaMeter)>;
    }
}
