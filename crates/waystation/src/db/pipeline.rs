//! Writes, up to their [`commit`](super::commit): limits, room on the disk and in memory, and the memtable that takes them.

use super::disk::only_deletes;
use super::write_source::{Single, WriteSource};
use super::{Core, WriteBatch};
use crate::background::{FULL_MEMTABLES_MAX, Fill, Kind, Use, Writing};
use crate::error::{Error, Result};
use crate::log::{NewRecord, Rejection};
use crate::lsm::memtable::MemTable;
use crate::options::{BATCH_BYTES_MAX, Durability, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::read_state::apply::{apply, room_of};
use crate::read_state::{LoggedMemTable, MemtablePair};
use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::{Arc, lock, wait};
use std::cell::RefCell;
use waystation_format::batch::{Operation, Time};
use waystation_format::log::RecordKind;
use waystation_format::order::Order;

thread_local! {
    /// A batch to be used again, so that a single put allocates nothing.
    static SCRATCH: RefCell<WriteBatch> = RefCell::new(WriteBatch::new());
}

/// The memtable that takes writes, as the front of the log sees it.
pub(super) struct Active {
    pub(super) memtable: Arc<LoggedMemTable>,
    pub(super) reserved: usize,
    /// What its account was charged for that.
    pub(super) charged: usize,
}

/// Memtables are charged in steps of this part of what they hold, within limits (bytes).
const CHARGED_PART: usize = 16;
const CHARGED_MIN: usize = 4 << 10;
const CHARGED_MAX: usize = 64 << 10;

impl Core {
    /// Writes one operation.
    pub(super) fn write_one(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        durability: Durability,
    ) -> Result<()> {
        let operation = Operation {
            key,
            value,
            ..Operation::default()
        };
        let room = checked_room(&operation, &self.options.order)?;
        SCRATCH.with_borrow_mut(|scratch| {
            let single = Single::new(&operation, scratch);
            self.commit(&single, room, durability)
        })
    }

    /// Writes a batch: all of it, or nothing.
    pub(super) fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        if batch.is_empty() && batch.refused_bytes().is_none() {
            return if durability == Durability::PowerLoss {
                self.log.sync_all()
            } else {
                Ok(())
            };
        }
        let limits = check_limits(batch, &self.options.order)?;
        match limits.longest_life {
            None => self.commit(batch, limits.room, durability),
            Some(longest) => {
                let fixed = self.with_times(batch, longest)?;
                self.commit(&fixed, limits.room, durability)
            }
        }
    }

    /// Writes `changes`, whose limits were checked and which take `room` bytes of memtable.
    pub(super) fn commit(
        &self,
        changes: &impl WriteSource,
        room: usize,
        durability: Durability,
    ) -> Result<()> {
        self.disk_reserve.look_if_due()?;
        let log_bytes = changes.payload().len();
        if let Some(rate) = self.account.ledger().rate() {
            self.throttle.admit_at(log_bytes, rate, &*self.storage);
        }
        if let Err(full) = self
            .disk_reserve
            .check(self.active_bytes(), log_bytes as u64)
        {
            if !only_deletes(changes) {
                return Err(full);
            }
            self.check_leaving(log_bytes as u64)?;
        }
        if !self.may_be_long(log_bytes) {
            return self.commit_counted(changes, room, durability);
        }
        let _counted = self.begin_long(changes, room)?;
        self.commit_counted(changes, room, durability)
    }

    /// Writes `changes`, for which there was room.
    fn commit_counted(
        &self,
        changes: &impl WriteSource,
        room: usize,
        durability: Durability,
    ) -> Result<()> {
        if let Some(devices) = &self.devices {
            return self.write_to_devices(devices, changes, durability);
        }
        let payload = changes.payload();
        self.throttle
            .admit(payload.len(), || self.fill(), &*self.storage);
        let record = NewRecord::new(RecordKind::Batch, payload, changes.count());
        let growth = self.growth(payload.len(), room);
        let logged = loop {
            self.look_for_room(growth)?;
            let committed = self.commit_record(
                &record,
                |lsn, sequence| {
                    self.check_room(changes, growth)?;
                    self.admit(room, lsn, sequence, || only_deletes(changes))
                },
                |memtable, logged| {
                    let operations = changes.operations();
                    apply(&memtable.memory, operations, logged.first_sequence);
                    self.note_deletions(&memtable.memory);
                },
            );
            match committed {
                Ok((logged, ())) => break logged,
                Err(rejection) => self.overcome(rejection)?,
            }
        };
        self.make_durable(logged, durability)
    }

    #[cold]
    fn begin_long(&self, changes: &impl WriteSource, room: usize) -> Result<Writing<'_>> {
        let log_bytes = changes.payload().len() as u64;
        if only_deletes(changes) {
            self.check_leaving(2 * log_bytes)?;
            return Ok(self.disk_reserve.count_long(log_bytes));
        }
        let table_bytes = self.devices.as_ref().map_or(room, |_| 0) as u64;
        self.disk_reserve
            .begin_long(self.active_bytes(), log_bytes, table_bytes)
    }

    /// The room that a write which takes `log_bytes` and `room` bytes of memtable needs, besides the room that is counted.
    pub(super) fn growth(&self, log_bytes: usize, room: usize) -> u64 {
        let in_log = if self.may_be_long(log_bytes) {
            0
        } else {
            log_bytes
        };
        (in_log + room) as u64
    }

    /// Names the memtable for a write of `room` bytes; a fresh one if the active one is full. Runs in the
    /// order of the log. While flushing fails, deletions do not wait for it: graves lie beside the memtable's own memory,
    /// and may be what flushing waits for.
    pub(super) fn admit(
        &self,
        room: usize,
        lsn: u64,
        sequence: u64,
        only_deletes: impl FnOnce() -> bool,
    ) -> Result<Arc<LoggedMemTable>, Rejection> {
        let mut active = lock(&self.active);
        if !active.memtable.memory.has_room(active.reserved, room) {
            if self.full_memtables.load(SeqCst) < FULL_MEMTABLES_MAX {
                self.rotate(&mut active, room, lsn, sequence);
            } else if !(self.is_flush_failing.load(Relaxed) && only_deletes()) {
                return Err(Rejection::NoRoom);
            }
        }
        self.reserve(&mut active, room);
        Ok(Arc::clone(&active.memtable))
    }

    /// Reserves `room` bytes of the active memtable.
    #[inline]
    pub(super) fn reserve(&self, active: &mut Active, room: usize) {
        active.reserved += room;
        self.active_reserved.store(active.reserved, Relaxed);
        if active.reserved > active.charged {
            self.charge(active);
        }
    }

    #[cold]
    fn charge(&self, active: &mut Active) {
        let step = (active.reserved / CHARGED_PART).clamp(CHARGED_MIN, CHARGED_MAX);
        let charged = active.reserved + step;
        let more = charged - active.charged;
        active.charged = charged;
        self.account.add(Use::Memtables, more as u64);
    }

    /// Notes what memtables and graves take, after a flush or a change of the tree.
    pub(super) fn note_memory(&self) {
        let mut active = lock(&self.active);
        let read_state = self.read_states.load();
        let full = read_state.full.iter();
        let full: usize = full.map(|it| it.memory.table.used_bytes()).sum();
        if active.charged < active.reserved {
            active.charged = active.reserved;
        }
        let memtables = full + active.charged;
        self.account.set(Use::Memtables, memtables as u64);
        let flushed = &read_state.flushed;
        // Spill files are open tables.
        let graves = flushed.memory_bytes() - flushed.spilled().memory_bytes();
        self.account.set(Use::Graves, graves as u64);
    }

    /// Does what close to the ceiling of shared memory is asked of this database.
    pub(super) fn relieve_memory(&self) {
        if !self.account.weigh() {
            return;
        }
        if self.full_memtables.load(SeqCst) == 0 {
            self.rotate_now();
        }
        if self.full_memtables.load(SeqCst) == 0 {
            self.account.end_flush();
        }
    }

    /// Makes a fresh memtable the active one, from position `lsn` and `sequence` on.
    pub(super) fn rotate(&self, active: &mut Active, room: usize, lsn: u64, sequence: u64) {
        let fresh = Arc::new(LoggedMemTable {
            memory: MemtablePair::new(
                self.options.memtable_bytes.max(room),
                self.resources.regions(),
                &self.options.order,
            ),
            start_lsn: lsn,
            start_sequence: sequence,
        });
        active.memtable = Arc::clone(&fresh);
        (active.reserved, active.charged) = (0, 0);
        self.active_reserved.store(0, Relaxed);
        self.read_states.change(|read_state| {
            let full = std::mem::replace(&mut read_state.active, fresh);
            read_state.full.push(full);
        });
        self.full_memtables.fetch_add(1, SeqCst);
        self.dead_range_search.start_over();
        self.observe_backlog();
        self.jobs.submit(Kind::Flush);
    }

    /// Makes what was written so far a full memtable, unless nothing was.
    pub(super) fn rotate_now(&self) {
        self.log.at_front(|lsn, sequence| {
            let mut active = lock(&self.active);
            if active.reserved > 0 || !active.memtable.memory.is_empty() {
                self.rotate(&mut active, 0, lsn, sequence);
            }
        });
    }

    /// Gives back the memory that memtables have for writes to come.
    pub(super) fn give_memory_back(&self) {
        self.resources.regions().become_idle();
        // While this is locked no write reserves room.
        let active = lock(&self.active);
        let table = &active.memtable.memory.table;
        table.give_room_back(active.reserved);
    }

    pub(super) fn wait_for_flush(&self) -> Result<()> {
        let mut background = lock(&self.background);
        while self.full_memtables.load(SeqCst) >= FULL_MEMTABLES_MAX {
            if let Some(cause) = &background.flush_failure {
                return Err(Error::Suspended {
                    cause: Arc::clone(cause),
                });
            }
            background = wait(&self.changed, background);
        }
        Ok(())
    }

    pub(super) fn fill(&self) -> Fill {
        let active = self.active_reserved.load(Relaxed);
        Fill {
            active: active as f64 / self.options.memtable_bytes as f64,
            ring: self.log.deferred_fill(),
        }
    }
}

/// What a batch asks for.
pub(super) struct Limits {
    /// Bytes of memtable.
    pub(super) room: usize,
    /// The longest time to live that is counted from the time of writing, in microseconds; or none at all, which is
    /// refused. `None`: there is none of these.
    longest_life: Option<u64>,
}

/// What `batch` asks for, if it is within the documented limits; keys are in `order`.
pub(super) fn check_limits(batch: &WriteBatch, order: &Order) -> Result<Limits> {
    let bytes = batch.refused_bytes().unwrap_or(batch.byte_len());
    if bytes > BATCH_BYTES_MAX {
        return Err(too_long("batch", bytes, BATCH_BYTES_MAX));
    }
    let mut room = 0;
    let mut longest_life = None;
    let mut put_last = None;
    for operation in batch {
        room += checked_room(&operation, order)?;
        let expires = matches!(operation.time, Some(Time::Expiry(_) | Time::Lifetime(_)));
        if expires && !order.is_bytewise() {
            let name = order.name();
            return Err(Error::InvalidArgument(format!(
                "keys that are ordered by {name:?} have no time to live; only keys in the order of their bytes do"
            )));
        }
        if expires && put_last != Some(operation.key) {
            return Err(Error::InvalidArgument(
                "a time to live stands in the batch without the put that it belongs to".into(),
            ));
        }
        match operation.time {
            None | Some(Time::Expiry(_)) => {}
            Some(Time::Lifetime(life)) => {
                let others = longest_life.unwrap_or(life);
                // None at all must not be missed beside a longer one.
                let is_shortest = life == 0 || others == 0;
                longest_life = Some(if is_shortest { 0 } else { others.max(life) });
            }
            Some(Time::Reached(_)) => {
                return Err(Error::InvalidArgument(
                    "the batch says what time it is, which is for the engine alone to say".into(),
                ));
            }
        }
        put_last = operation.value.map(|_| operation.key);
    }
    // Many tiny operations take several times their bytes.
    if room > MemTable::MAX_CAPACITY_BYTES {
        let limit = MemTable::MAX_CAPACITY_BYTES;
        return Err(too_long("batch, in memory,", room, limit));
    }
    Ok(Limits { room, longest_life })
}

/// The bytes of memtable that `operation` needs, if it is within the documented limits.
#[inline]
pub(super) fn checked_room(operation: &Operation<'_>, order: &Order) -> Result<usize> {
    let value_bytes = operation.value.unwrap_or_default().len();
    check_key(operation.key)?;
    if value_bytes > VALUE_BYTES_MAX {
        return Err(too_long("value", value_bytes, VALUE_BYTES_MAX));
    }
    if let Some(end) = operation.range() {
        check_range(operation.key, end, order)?;
    }
    Ok(room_of(operation, order))
}

/// Refuses a key that is over its limit.
#[inline]
pub(super) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(too_long("key", key.len(), KEY_BYTES_MAX));
    }
    Ok(())
}

fn check_range(start: &[u8], end: Option<&[u8]>, order: &Order) -> Result<()> {
    let end_bytes = end.map_or(0, <[u8]>::len);
    if end_bytes > KEY_BYTES_MAX {
        return Err(too_long("end of a range", end_bytes, KEY_BYTES_MAX));
    }
    if end.is_some_and(|end| !order.is_before(start, end)) {
        return Err(Error::InvalidArgument(
            "the range to be deleted ends where it begins, or before, or at the empty key; its end is excluded".into(),
        ));
    }
    Ok(())
}

fn too_long(what: &str, bytes: usize, limit: usize) -> Error {
    Error::InvalidArgument(format!(
        "the {what} has {bytes} bytes; at most {limit} are accepted"
    ))
}
