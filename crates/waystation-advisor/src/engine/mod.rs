//! What the storage engine itself reads and writes, as a trace: [`TracedStorage`] stands between a database and its
//! storage, and records each call in the native format.
//!
//! ```text
//!   database -> TracedStorage -> the operating system
//!                    |  requests, in order of issue
//!                    v
//!               native trace  ->  report, advise, explain
//! ```
//!
//! - The areas are `log`, `tables` and `spill`. Manifests and the other small files belong to `tables`. Copies in a fast
//!   directory are left out: they are a placement, and the trace is for finding one.
//! - Files have no addresses on a device. Each gets some in its area, [chunk by chunk](addresses), and a removed file gives
//!   them back: the footprint of an area is that of its files.
//! - A read that a caller waits for is marked as synchronous; reads that pass the bytes once (merges, checks, long scans)
//!   are marked as read ahead. Writes of the log are synchronous, as writers wait for the log in the end; those of tables
//!   are not.
//! - The requests are the engine's, before the page cache: with direct transfer the device sees the same ones. Stores to
//!   the log's ring are stores to memory, and no requests.

mod addresses;
mod file;
mod recorder;
#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::event::{Area as TraceArea, Flags, Op, Role, TraceInfo};
use crate::native::Writer;
use addresses::Addresses;
use file::TracedFile;
use recorder::{REQUESTS_MAX, Recorder};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use waystation::storage::forward::forward;
use waystation::storage::{
    Area, AreaMeter, DirectoryLock, Entry, File, OpenMode, Ring, Storage, Transfer,
};

/// How a trace of the engine names its source.
pub(crate) const SOURCE: &str = "waystation";

/// See the module. The trace is complete once all files are closed and this is dropped, and has its name then.
///
/// ```
/// use std::sync::Arc;
/// use waystation::storage::OsStorage;
/// use waystation::{Db, Options};
/// use waystation_advisor::engine::TracedStorage;
///
/// # let directory = tempfile::tempdir()?;
/// # let (db_path, trace) = (directory.path().join("db"), directory.path().join("db.trace"));
/// let storage = TracedStorage::create(OsStorage::new(), &trace)?;
/// let db = Db::open_with(Arc::new(storage), &db_path, Options::default())?;
/// db.put(b"car-1:speed", b"50")?;
/// db.close()?;
/// assert!(waystation_advisor::native::load(&trace)?.info.requests > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TracedStorage {
    inner: Arc<dyn Storage>,
    recorder: Arc<Recorder>,
    addresses: Arc<Addresses>,
}

impl TracedStorage {
    /// Records what `inner` is asked for in the file `trace`.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the file cannot be created. A trace that cannot be written later ends there: the
    /// database goes on, and the reason is logged.
    pub fn create(inner: Arc<dyn Storage>, trace: &Path) -> Result<Self> {
        Self::up_to(REQUESTS_MAX, inner, trace)
    }

    fn up_to(requests_max: u64, inner: Arc<dyn Storage>, trace: &Path) -> Result<Self> {
        let info = TraceInfo {
            source: SOURCE.to_owned(),
            areas: AREAS.iter().map(area).collect(),
            comms: vec!["waystation".to_owned()],
            ..TraceInfo::default()
        };
        let writer = Writer::create(trace, info)?;
        Ok(Self {
            recorder: Arc::new(Recorder::start(writer, requests_max)),
            inner,
            addresses: Arc::new(Addresses::default()),
        })
    }
}

/// The areas, in the order of their numbers in the trace. None has the role of a journal: the tool would cut it down to its
/// largest transaction, and the log's segments hold the data of devices.
const AREAS: [(&str, Role); 3] = [
    ("log", Role::Other),
    ("tables", Role::FileSystem),
    ("spill", Role::Other),
];

fn area((name, role): &(&str, Role)) -> TraceArea {
    TraceArea {
        name: (*name).to_owned(),
        device: (*name).to_owned(),
        role: *role,
        extent_bytes: 0,
    }
}

/// Whether the engine keeps copies of an area's blocks in its fast directory.
pub(crate) fn has_copies(area: &TraceArea) -> bool {
    area.name != AREAS[0].0
}

/// The number of an area in the trace.
fn number(area: Area) -> Option<u8> {
    match area {
        Area::Journal => Some(0),
        Area::Tables => Some(1),
        Area::Spill => Some(2),
        Area::Copies => None,
    }
}

impl Storage for TracedStorage {
    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
        transfer: Transfer,
        area: Area,
    ) -> waystation::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, mode, transfer, area)?;
        let Some(area) = number(area) else {
            return Ok(inner);
        };
        Ok(Arc::new(TracedFile {
            inner,
            recorder: Arc::clone(&self.recorder),
            place: self.addresses.of(path, area),
        }))
    }

    fn rename(&self, source: &Path, target: &Path) -> waystation::Result<()> {
        self.inner.rename(source, target)?;
        self.addresses.rename(source, target);
        Ok(())
    }

    fn remove(&self, path: &Path) -> waystation::Result<()> {
        self.inner.remove(path)?;
        for (area, offset) in self.addresses.remove(path) {
            let begun = self.recorder.begin();
            let length = addresses::CHUNK_BYTES;
            self.recorder.end(
                begun,
                (Op::Discard, Flags::default()),
                area,
                [(offset, length)],
            );
        }
        Ok(())
    }

    forward! { inner:
        fn map_ring(path: &Path, bytes: usize) -> waystation::Result<(Arc<dyn Ring>, bool)>;
        fn resize_ring(path: &Path, bytes: usize) -> waystation::Result<()>;
        fn link(source: &Path, target: &Path) -> waystation::Result<()>;
        fn create_dir(path: &Path) -> waystation::Result<()>;
        fn remove_dir(path: &Path) -> waystation::Result<()>;
        fn list(path: &Path) -> waystation::Result<Vec<Entry>>;
        fn sync_dir(path: &Path) -> waystation::Result<()>;
        fn lock(path: &Path) -> waystation::Result<Box<dyn DirectoryLock>>;
        fn free_bytes(path: &Path) -> waystation::Result<u64>;
        fn device_of(path: &Path) -> Option<u64>;
        fn now() -> Duration;
        fn has_machine_clock() -> bool;
        fn boot_id() -> Option<[u8; 16]>;
        fn gives_way(path: &Path) -> bool;
        fn segment_bytes_max(spare: Option<&Path>) -> u64;
        fn thread_cpu() -> Duration;
        fn wall_clock() -> Duration;
        fn random() -> u64;
        fn sleep(duration: Duration);
        fn meters() -> Vec<(Area, AreaMeter)>;
    }
}
