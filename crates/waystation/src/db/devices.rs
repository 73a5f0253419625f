//! Devices: they depart, and what is left of them goes by and by.
//!
//! A departure is one record in the log and one number in the device table. A background job, the *keeper*, does
//! what follows from it without haste: it gives indexes up that no snapshot needs, retires floors, and frees the log.
//! (When it runs: [`keeping`](super::keeping). Another one lets stays settle whose time is over:
//! [`settle`](super::settle).)
//!
//! **Freeing the log.** Its beginning is freed up to the first record that a memtable or a stay still needs. Before
//! that, a checkpoint of the device table is durable that tells what the freed part would have told; and before
//! that, the log is durable through everything the checkpoint tells.

use super::awaited::Awaited;
use super::commit::Rejection;
use super::image::Drawing;
use super::looks::Looks;
use super::options::DeviceOptions;
use super::settle::EARLY;
use super::view::LoggedMemTable;
use super::{Core, Db};
use crate::device::checkpoint::{self, Directory};
use crate::device::extractor::Extractor;
use crate::device::index::Index;
use crate::device::record::DeviceEvent;
use crate::device::residency::ResidencyClock;
use crate::device::resident::{NEVER, Resident};
use crate::device::table::{Departure, Device, DeviceState, DeviceTable};
use crate::device::upper::Upper;
use crate::directory::{CHECKPOINT_DRAFT, CHECKPOINT_NAME, replace_file};
use crate::error::{DeviceError, Error, Result};
use crate::storage::{Duty, Haste, Storage};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use crate::sync::{Arc, Mutex, lock};
use std::time::Duration;
use waystation_format::batch::prefix_end;

/// A checkpoint is written at least this often while anything is written, so that ages are not lost to a crash.
pub(super) const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(10);
/// Idle devices are looked for every such part of the time that makes one idle.
const IDLE_PART: u32 = 64;
/// Stays are reaped this many at a time: writers wait while devices are forgotten with them.
const REAPED_AT_ONCE: usize = 32;
/// The keeper does nothing at leisure for longer than this at a time: the budgets are its business, too.
const LEISURE_MAX: Duration = Duration::from_millis(200);

/// What a database has of devices.
pub(super) struct Devices {
    pub(super) upper: Arc<Upper>,
    pub(super) settings: DeviceOptions,
    clock: ResidencyClock,
    pub(super) directory: Directory,
    /// Stays that have switched and not settled; held while they settle, and while a memtable is flushed.
    pub(super) pending: Awaited<Vec<Arc<Resident>>>,
    pub(super) kept: Awaited<Kept>,
    /// Where the log ended when it had come to what the image shows; 0: there is none.
    pub(super) image_lsn: AtomicU64,
    pub(super) looks_for_idle: Looks,
    /// When, by the residency clock, the next device will have been idle for long enough.
    pub(super) idle_next: Mutex<Option<Duration>>,
    pub(super) looks_at_floors: Looks,
    /// The view in which departures were looked at last.
    pub(super) floors_seen: AtomicU64,
    /// The image that is being drawn.
    pub(super) drawing: Mutex<Drawing>,
    /// The keeper looks when the log comes to here.
    pub(super) keep_at_lsn: AtomicU64,
    /// Indexes wait for the release of a snapshot.
    pub(super) waits_for_release: AtomicBool,
}

/// What the last checkpoint said.
pub(super) struct Kept {
    released: u64,
    /// It tells of everything up to here ...
    pub(super) sequence: u64,
    /// ... and was written then.
    pub(super) at: Duration,
}

/// Where the data of a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceLevel {
    /// In the upper level: in the log, with an index in memory.
    Upper,
    /// On its way from the upper level to the tree.
    Settling,
    /// In the tree.
    Tree,
    /// It has departed, and not all of its data is gone yet.
    Departed,
}

/// What is known of a device.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DeviceInfo {
    /// Its name, as its keys have it.
    pub name: Vec<u8>,
    /// Where its data is.
    pub level: DeviceLevel,
    /// Versions in the upper level, or that settled. What was written before there was an extractor is not counted.
    pub records: u64,
    /// Their keys' and values' bytes.
    pub bytes: u64,
    /// How long it has been in the upper level, not counting when the database was closed.
    pub age: Option<Duration>,
    /// The sequence number of the first write of its stay in the upper level, which names the stay.
    pub incarnation: Option<u64>,
    /// Stays that are over and whose data is held, for now or for a snapshot.
    pub held_stays: usize,
    /// Departures that still hide something in the tree.
    pub floors: usize,
    /// How many engines have handed it on.
    pub tenure: u64,
    /// Where it is being handed on to.
    pub moving_to: Option<String>,
}

impl Db {
    /// The device extractor that the database in `path` was made with; `None` if it, or the database, does not
    /// exist.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corruption`], or [`Error::Incompatible`] if it was written by a newer version.
    pub fn stored_extractor(path: impl AsRef<std::path::Path>) -> Result<Option<Extractor>> {
        let storage = crate::storage::OsStorage::new();
        let read = checkpoint::read(&*storage, path.as_ref())?;
        Ok(read.map(|saved| saved.directory.extractor))
    }

    /// Lets `device` depart: all it wrote is gone, for everybody but those who hold a snapshot or a cursor from
    /// before. Takes no longer for much data than for little, wherever that is. If the device writes again, it
    /// arrives anew. Survives the death of the process.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`] if it has no data; if another caller let it depart, that departure survives the death of
    /// the process, too. [`DeviceError::Moving`] and [`DeviceError::Moved`] if it is being handed on, or was;
    /// [`Error::InvalidArgument`] if the database knows no devices.
    pub fn depart(&self, device: &[u8]) -> Result<()> {
        self.core.depart(device)
    }

    /// Lets `device` settle into the tree now, without waiting for its time. Nothing happens if it has.
    ///
    /// # Errors
    /// As [`Db::depart`]; [`Error::Io`] if the tables cannot be written: then it is tried again later.
    pub fn settle(&self, device: &[u8]) -> Result<()> {
        self.core.settle_device(device)
    }

    /// Lets several devices settle together, at little more cost than one of them alone. Those that have settled, or
    /// have no data here, are passed over.
    ///
    /// # Errors
    /// As [`Db::settle`], but for [`DeviceError::Unknown`].
    pub fn settle_together<'a>(&self, devices: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
        self.core.settle_those(devices.into_iter())
    }

    /// All devices that have data, by name. In a directory that is older than its extractor, those too that wrote before
    /// there was one: one key of each is looked for in the tree.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the database knows no devices; [`Error::Io`] and [`Error::Corruption`] if the tree of
    /// such a directory cannot be read.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let devices = self.core.known_devices()?;
        let now = devices.now(&*self.core.storage);
        let table = &devices.upper.table;
        let mut older = self.core.older_prefixes(devices)?;
        let name = |prefix: &[u8]| table.extractor().device(prefix).to_vec();
        let info = |device: &Arc<Device>| {
            let has_older = older.remove(device.prefix());
            let name = name(device.prefix());
            device.with_state(|state| describe(name, state, has_older, now))
        };
        let mut all: Vec<_> = table.all().iter().filter_map(info).collect();
        let state = DeviceState::default();
        let unknown = |prefix: &Vec<u8>| describe(name(prefix), &state, true, now);
        all.extend(older.iter().filter_map(unknown));
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let _visible = self.core.look(devices, |_| ());
        Ok(all)
    }
}

/// What is known of a device; it may have keys in the tree from before there was an extractor.
fn describe(
    name: Vec<u8>,
    state: &DeviceState,
    has_older: bool,
    now: Duration,
) -> Option<DeviceInfo> {
    let stay = state.current.as_ref().filter(|stay| stay.has_begun());
    let level = match (stay, state.lower_since) {
        (Some(_), None) => DeviceLevel::Upper,
        (Some(_), Some(_)) => DeviceLevel::Settling,
        (None, Some(_)) => DeviceLevel::Tree,
        (None, None) if has_older && state.floors.is_empty() => DeviceLevel::Tree,
        (None, None) => DeviceLevel::Departed,
    };
    let is_there = level != DeviceLevel::Departed;
    let (mut records, mut bytes) = (state.settled_records, state.settled_bytes);
    if let Some(stay) = stay {
        records += stay.records();
        bytes += stay.log_bytes();
    }
    (is_there || !state.past.is_empty() || !state.floors.is_empty()).then(|| DeviceInfo {
        name,
        level,
        records,
        bytes,
        age: stay.map(|stay| now.saturating_sub(stay.arrival())),
        incarnation: stay.map(|stay| stay.first_sequence()),
        held_stays: state.past.len(),
        floors: state.floors.as_slice().len(),
        tenure: state.tenure,
        moving_to: state.frozen.as_ref().map(|it| it.destination.to_string()),
    })
}

impl Devices {
    /// The devices of a directory, as `clock` and `pending` stood when it was opened.
    pub(super) fn new(
        upper: Arc<Upper>,
        settings: DeviceOptions,
        directory: Directory,
        pending: Vec<Arc<Resident>>,
        image_lsn: u64,
        now: Duration,
    ) -> Self {
        for stay in &pending {
            stay.hold();
        }
        Self {
            upper,
            settings,
            clock: ResidencyClock::resume(directory.clock, now),
            directory,
            pending: Awaited::new(pending),
            kept: Awaited::new(Kept {
                released: directory.released,
                sequence: 0,
                at: now,
            }),
            image_lsn: AtomicU64::new(image_lsn),
            looks_for_idle: Looks::default(),
            idle_next: Mutex::default(),
            looks_at_floors: Looks::default(),
            floors_seen: AtomicU64::new(0),
            drawing: Mutex::default(),
            keep_at_lsn: AtomicU64::new(u64::MAX),
            waits_for_release: AtomicBool::new(false),
        }
    }

    /// The reading of the residency clock.
    pub(super) fn now(&self, storage: &dyn Storage) -> Duration {
        self.clock.read(storage.now())
    }

    /// Whether anybody wants to know when a device was written to last.
    pub(super) fn notes_writes(&self) -> bool {
        self.settings.idle_departure.is_some()
    }
}

impl Core {
    pub(super) fn known_devices(&self) -> Result<&Devices> {
        self.devices.as_ref().ok_or_else(|| {
            Error::InvalidArgument(
                "the database knows no devices; open it with a device extractor".into(),
            )
        })
    }

    /// What the keys of `device` begin with.
    pub(super) fn prefix_of(&self, device: &[u8]) -> Result<(&Devices, Vec<u8>)> {
        let devices = self.known_devices()?;
        let extractor = devices.upper.table.extractor();
        let prefix = extractor.prefix_of(device).ok_or_else(|| {
            let name = device.escape_ascii();
            Error::InvalidArgument(format!("no device can be called {name} under {extractor}"))
        })?;
        Ok((devices, prefix))
    }

    fn depart(&self, device: &[u8]) -> Result<()> {
        let (devices, prefix) = self.prefix_of(device)?;
        let table = &devices.upper.table;
        let unknown = || {
            Error::Device(DeviceError::Unknown {
                device: device.escape_ascii().to_string(),
            })
        };
        let event = DeviceEvent::Departed(&prefix);
        let has_older = self.has_older(devices, &prefix)?;
        self.log_event(&event, |lsn, sequence| {
            if let Some(barred) = table.barred(&prefix) {
                Err(Rejection::Failed(devices.barred_error(&prefix, &barred)))
            } else if !has_older && !table.is_occupied(&prefix) {
                Err(Rejection::Failed(unknown()))
            } else if self.depart_at(table, &prefix, lsn, sequence) {
                Ok(())
            } else {
                Err(Rejection::Failed(unknown()))
            }
        })
        .map(|_| ())
    }

    /// Lets the device of `prefix` depart at `sequence`; whether it was there. Under the front's lock.
    fn depart_at(&self, table: &DeviceTable, prefix: &[u8], lsn: u64, sequence: u64) -> bool {
        let departure = table.depart(prefix, sequence);
        self.bury_device(departure, prefix, lsn, sequence);
        departure != Departure::Unknown
    }

    /// Hides what the tree may hold of the device of `prefix`, which departed at `sequence`. Under the front's lock.
    pub(super) fn bury_device(&self, departure: Departure, prefix: &[u8], lsn: u64, sequence: u64) {
        if departure == Departure::FromTree {
            self.dig_range(prefix, prefix_end(prefix).as_deref(), lsn, sequence);
        }
    }

    /// One round of the keeper.
    pub(super) fn keep(&self, devices: &Devices, drawing: &mut Drawing) -> Result<()> {
        self.drop_what_is_over(devices);
        self.room.look()?;
        // Before anything that needs room: on a full disk this is what makes some.
        let is_short = self.is_short_of_room();
        let removed = self.log.remove_freed(is_short, is_short);
        let fill = self.fill(devices);
        self.pace.observe_upper(fill);
        self.give_up_stalled(devices, is_short || fill > EARLY);
        if let Some(limit) = devices.settings.idle_departure {
            let pause = limit / IDLE_PART;
            let departed = devices
                .looks_for_idle
                .look(&*self.storage, pause, || self.depart_idle(devices, limit));
            if let Some(next) = departed {
                *lock(&devices.idle_next) = next?;
            }
        }
        devices
            .looks_at_floors
            .look(&*self.storage, Duration::ZERO, || {
                let generation = self.views.load().generation();
                devices.floors_seen.store(generation, SeqCst);
                self.retire_floors(devices);
            });
        self.free_log(devices, false)?;
        self.keep_reserve();
        self.draw(devices, drawing)?;
        removed
    }

    /// How much of the budgets is used: the larger share.
    pub(super) fn fill(&self, devices: &Devices) -> f64 {
        let index =
            devices.upper.table.index_bytes() as f64 / devices.settings.index_bytes.max(1) as f64;
        let start = devices.upper.table.oldest_need().map(|(lsn, _)| lsn);
        let live = start.map_or(0, |lsn| self.log.reserved_lsn().saturating_sub(lsn));
        index.max(live as f64 / devices.settings.upper_bytes.max(1) as f64)
    }

    fn drop_what_is_over(&self, devices: &Devices) {
        let table = &devices.upper.table;
        let until = self.storage.now() + LEISURE_MAX;
        let haste = || self.leisure_until(until);
        let duty = Duty::new(&*self.storage, &haste);
        // Those that are over by now: more may come all the time.
        let mut left = table.count_over();
        while left > 0 {
            let reaped = table.reap(self.oldest_snapshot(), left.min(REAPED_AT_ONCE));
            if reaped.indexes.is_empty() {
                return;
            }
            left -= reaped.indexes.len();
            if reaped.has_left {
                self.look_for_needs_again();
            }
            if !reaped.empty.is_empty() {
                self.log.at_front(|_, _| table.forget(&reaped.empty));
            }
            for index in reaped.indexes {
                drop::<Index>(index);
                duty.rest();
            }
        }
    }

    /// The haste of what the keeper does at leisure `until` then.
    fn leisure_until(&self, until: Duration) -> Haste {
        if self.is_stopping() || self.storage.now() > until {
            Haste::Much
        } else {
            Haste::None
        }
    }

    /// Lets devices depart that were idle for `limit`. Returns when, by the residency clock, the next will have been.
    fn depart_idle(&self, devices: &Devices, limit: Duration) -> Result<Option<Duration>> {
        let now = devices.now(&*self.storage);
        let table = &devices.upper.table;
        let may_depart = |stay: &Resident| {
            stay.departed() == NEVER
                && stay.switch() == NEVER
                && table.frozen(stay.prefix()).is_none()
        };
        let idle_from = |stay: &Resident| stay.last_write() + limit;
        let is_idle = |stay: &Resident| may_depart(stay) && idle_from(stay) <= now;
        let stays = table.stays(|_| true);
        let next = stays
            .iter()
            .filter(|stay| may_depart(stay) && !is_idle(stay));
        let next = next.map(|stay| idle_from(stay)).min();
        for stay in stays.iter().filter(|stay| is_idle(stay)) {
            let event = DeviceEvent::Departed(stay.prefix());
            // One that was written to meanwhile stays.
            self.log_event(&event, |lsn, sequence| {
                if is_idle(stay) && self.depart_at(table, stay.prefix(), lsn, sequence) {
                    Ok(())
                } else {
                    Err(Rejection::Moved)
                }
            })?;
        }
        Ok(next)
    }

    /// Forgets departures whose graves were retired. The last look is under the front's lock, where departures note
    /// themselves and dig: outside, a departure may be noted whose grave is not dug yet, or lies in a plot that is
    /// newer than the view; forgotten then, it would not be dug again after a crash.
    fn retire_floors(&self, devices: &Devices) {
        let table = &devices.upper.table;
        let floored = table.floored();
        if floored.is_empty() {
            return;
        }
        let newest = |device: &Device| device.with_state(|state| state.floors.newest());
        let view = self.views.load();
        for device in floored {
            if view.hides_in_prefix(device.prefix(), newest(&device)) {
                continue;
            }
            self.log.at_front(|_, _| {
                let newest = newest(&device);
                if !self.views.load().hides_in_prefix(device.prefix(), newest) {
                    table.retire(&device, newest);
                }
            });
        }
    }

    /// Frees the part of the log that nobody needs, if that is a segment or more, or if `always`.
    pub(super) fn free_log(&self, devices: &Devices, always: bool) -> Result<()> {
        self.move_empty_memtable();
        // In this order: what begins after the memtable's start lies behind it.
        let view = self.views.load();
        let memtable = view.full.first().unwrap_or(&view.active);
        let (mut lsn, mut sequence) = (memtable.start_lsn, memtable.start_sequence);
        if let Some(stay) = devices.upper.table.oldest_need() {
            // One by one: a memtable that was replayed may begin before its first record.
            (lsn, sequence) = (lsn.min(stay.0), sequence.min(stay.1));
        }
        let frees = self.log.would_free(lsn);
        let is_due = {
            let kept = devices.kept.lock();
            let age = self.storage.now().saturating_sub(kept.at);
            age >= CHECKPOINT_INTERVAL && kept.sequence < self.log.visible_sequence()
        };
        if !(always || frees || is_due) {
            return Ok(());
        }
        let haste = if always { Haste::Much } else { Haste::None };
        self.write_checkpoint(devices, sequence.saturating_sub(1), haste)?;
        self.log.release_below(lsn);
        Ok(())
    }

    /// Writes the device table's checkpoint, and returns it; records up to `released` are not needed from then on.
    pub(super) fn write_checkpoint(
        &self,
        devices: &Devices,
        released: u64,
        haste: Haste,
    ) -> Result<Vec<u8>> {
        let mut kept = devices.kept.lock();
        let released = released.max(kept.released);
        let table = &devices.upper.table;
        let directory = Directory {
            released,
            clock: devices.now(&*self.storage),
            ..devices.directory
        };
        let until = self.storage.now() + LEISURE_MAX;
        let haste = || match haste {
            Haste::None => self.haste_by_now(self.leisure_until(until), &devices.kept),
            other => other,
        };
        let duty = Duty::new(&*self.storage, &haste);
        let saved = checkpoint::saved_devices(table, &duty);
        let saved = saved.iter().inspect(|_| duty.rest());
        let content = checkpoint::encode(&directory, saved, &table.ledger);
        let (mut end, mut last) = (0, 0);
        self.log
            .at_front(|lsn, sequence| (end, last) = (lsn, sequence - 1));
        self.log.wait_visible(last);
        self.log.sync(end)?;
        devices.upper.note_durable(last);
        save_checkpoint(&*self.storage, &self.dir, &content)?;
        *kept = Kept {
            released,
            sequence: last,
            at: self.storage.now(),
        };
        Ok(content)
    }

    /// An empty memtable needs nothing of the log: it begins here.
    pub(super) fn move_empty_memtable(&self) {
        self.log.at_front(|lsn, sequence| {
            let mut active = lock(&self.active);
            let is_used = active.reserved > 0 || !active.memtable.memory.is_empty();
            if is_used || active.memtable.start_lsn == lsn {
                return;
            }
            let moved = Arc::new(LoggedMemTable {
                memory: active.memtable.memory.clone(),
                start_lsn: lsn,
                start_sequence: sequence,
            });
            active.memtable = Arc::clone(&moved);
            self.views.change(|view| view.active = moved);
        });
    }
}

/// Replaces the checkpoint in `dir`.
pub(super) fn save_checkpoint(
    storage: &dyn Storage,
    dir: &std::path::Path,
    content: &[u8],
) -> Result<()> {
    replace_file(storage, dir, CHECKPOINT_DRAFT, CHECKPOINT_NAME, content)
}
