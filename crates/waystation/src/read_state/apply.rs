//! Operations into memory: versions to the memtable, deletions to its active graves. The commit and an opening, which reads
//! the log back, do it here.

use super::MemtablePair;
use crate::cemetery::active::ActiveGraves;
use crate::lsm::memtable::MemTable;
use waystation_format::batch::{Operation, Time};
use waystation_format::key::ValueKind;
use waystation_format::order::Order;

/// Puts `operations` into `memory`, numbered from `sequence` on.
pub(crate) fn apply<'a>(
    memory: &MemtablePair,
    operations: impl IntoIterator<Item = Operation<'a>>,
    sequence: u64,
) {
    for (sequence, operation) in (sequence..).zip(operations) {
        apply_one(memory, &operation, sequence);
    }
}

/// Puts one operation into `memory`: a version to the versions, a deletion to the graves.
#[inline]
pub(crate) fn apply_one(memory: &MemtablePair, operation: &Operation<'_>, sequence: u64) {
    let key = operation.key;
    match (operation.value, operation.range(), operation.time) {
        (Some(value), _, _) => {
            memory.table.insert(key, sequence, ValueKind::Value, value);
        }
        (None, Some(end), _) => memory.graves.delete_range(key, end, sequence),
        (None, None, None) if !deletes_with_graves(memory.table.order()) => {
            let kind = ValueKind::Deletion;
            memory.table.insert(key, sequence, kind, b"");
        }
        (None, None, None) => {
            memory.graves.delete(key, sequence);
        }
        (None, None, Some(Time::Expiry(date) | Time::Lifetime(date))) => {
            memory.graves.expire(key, sequence, date);
        }
        (None, None, Some(Time::Reached(_))) => memory.graves.note_due(),
    }
}

/// Whether the deletion of a key is a grave. In a program's own order it is a version, as keys may compare equal that a
/// hash tells apart.
#[inline]
fn deletes_with_graves(order: &Order) -> bool {
    order.is_bytewise()
}

/// The bytes of memory that an operation needs at most, where keys are in `order`.
pub(crate) fn room_of(operation: &Operation<'_>, order: &Order) -> usize {
    let key_bytes = operation.key.len();
    match (operation.value, operation.range_end, operation.time) {
        (Some(value), _, _) => MemTable::entry_bytes(key_bytes, value.len()),
        (None, Some(end), _) => ActiveGraves::range_bytes(key_bytes, end.len()),
        (None, None, None) if !deletes_with_graves(order) => MemTable::entry_bytes(key_bytes, 0),
        (None, None, None) => ActiveGraves::point_bytes(key_bytes),
        (None, None, Some(_)) => ActiveGraves::dated_bytes(key_bytes),
    }
}
