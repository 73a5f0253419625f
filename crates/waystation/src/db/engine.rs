//! What the database does for its devices: the calls that [`crate::devices::context`] names.

use super::Core;
use crate::background::Throttle;
use crate::devices::context::{Events, Memtables, Tables};
use crate::devices::handoff::{Admission, Older};
use crate::error::Result;
use crate::log::{Logged, NewRecord, Rejection};
use crate::lsm::tree::Tree;
use crate::read_state::LoggedMemTable;
use crate::read_state::apply::{apply_one, room_of};
use crate::sst::InternalIterator;
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{Arc, lock};
use waystation_format::batch::Operation;
use waystation_format::key::{self, MAX_SEQUENCE, ValueKind};
use waystation_format::order::Order;

impl Events for Core {
    fn commit<T, R>(
        &self,
        record: &NewRecord<'_>,
        admit: impl FnOnce(u64, u64) -> Result<T, Rejection>,
        apply: impl FnOnce(T, Logged) -> R,
    ) -> Result<(Logged, R), Rejection> {
        self.commit_record(record, admit, apply)
    }

    fn is_short_of_room(&self) -> bool {
        Self::is_short_of_room(self)
    }

    fn check_leaving(&self, bytes: u64) -> Result<()> {
        Self::check_leaving(self, bytes)
    }

    fn may_be_long(&self, log_bytes: usize) -> bool {
        Self::may_be_long(self, log_bytes)
    }

    fn keep_soon(&self) {
        Self::keep_soon(self);
    }

    fn is_stopping(&self) -> bool {
        Self::is_stopping(self)
    }
}

impl Memtables for Core {
    fn active_bytes(&self) -> u64 {
        Self::active_bytes(self)
    }

    fn has_full_memtables(&self) -> bool {
        self.full_memtables.load(SeqCst) > 0
    }

    fn rotate_now(&self) {
        Self::rotate_now(self);
    }

    fn wait_flushed(&self) -> Result<()> {
        Self::wait_flushed(self)
    }

    fn move_empty_memtable(&self) {
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
            self.read_states
                .change(|read_state| read_state.active = moved);
        });
    }

    fn memtables_start(&self) -> (u64, u64) {
        let read_state = self.read_states.load();
        let oldest = read_state.full.first().unwrap_or(&read_state.active);
        (oldest.start_lsn, oldest.start_sequence)
    }

    fn has_full_before(&self, lsn: u64) -> bool {
        let read_state = self.read_states.load();
        read_state
            .full
            .iter()
            .any(|memtable| memtable.start_lsn < lsn)
    }

    fn holds_prefix(&self, prefix: &[u8]) -> bool {
        let read_state = self.read_states.load();
        let mut memtables = read_state.full.iter().chain([&read_state.active]);
        memtables.any(|memtable| holds_prefix(memtable, prefix))
    }

    fn add_range_grave(&self, start: &[u8], end: Option<&[u8]>, lsn: u64, sequence: u64) {
        Self::add_range_grave(self, start, end, lsn, sequence);
    }

    fn hides_in_prefix(&self, prefix: &[u8], sequence: u64) -> bool {
        self.read_states.load().hides_in_prefix(prefix, sequence)
    }

    fn generation(&self) -> u64 {
        self.read_states.load().generation()
    }
}

/// Whether `memtable` holds a key that begins with `prefix`.
fn holds_prefix(memtable: &LoggedMemTable, prefix: &[u8]) -> bool {
    let mut cursor = memtable.memory.table.iter();
    let mut target = Vec::new();
    key::append(&mut target, prefix, MAX_SEQUENCE, ValueKind::SEEK);
    let sought = cursor.seek(&target);
    sought.is_ok() && cursor.valid() && cursor.key().starts_with(prefix)
}

impl Tables for Core {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn oldest_snapshot(&self) -> u64 {
        Self::oldest_snapshot(self)
    }

    fn adopt_version(&self) {
        Self::adopt_version(self);
    }

    fn look_again(&self) {
        Self::look_again(self);
    }

    fn add_settled_graves(&self, graves: &[(Vec<u8>, u64)], switch: u64) -> Result<()> {
        Self::add_settled_graves(self, graves, switch)
    }

    fn look_for_needs_again(&self) {
        Self::look_for_needs_again(self);
    }
}

impl Older for Core {
    fn has_older(&self, prefix: &[u8]) -> Result<bool> {
        Self::has_older(self, &self.known_devices()?.upper.table, prefix)
    }
}

impl Admission for Core {
    type Memory = Arc<LoggedMemTable>;

    fn admit_memory(
        &self,
        room: usize,
        lsn: u64,
        sequence: u64,
    ) -> Result<Self::Memory, Rejection> {
        self.admit(room, lsn, sequence, || false)
    }

    fn fill_memory<'o>(
        &self,
        memory: &Self::Memory,
        operations: impl Iterator<Item = (u64, Operation<'o>)>,
    ) {
        for (sequence, operation) in operations {
            apply_one(&memory.memory, &operation, sequence);
        }
        self.note_deletions(&memory.memory);
    }

    fn room_of(&self, operation: &Operation<'_>) -> usize {
        room_of(operation, &Order::Bytewise)
    }

    fn wait_for_flush(&self) -> Result<()> {
        Self::wait_for_flush(self)
    }

    fn part_bytes(&self) -> usize {
        self.options.ring_bytes / 4
    }

    fn throttle(&self) -> &Throttle {
        &self.throttle
    }

    fn keep_graves(&self, stage: u64) -> Result<impl Drop + '_> {
        self.graves.hold_since(stage, self)
    }

    fn was_deleted_since(&self, prefix: &[u8], stage: u64, sequence: u64) -> bool {
        self.graves.was_deleted_since(prefix, stage, sequence)
    }
}
