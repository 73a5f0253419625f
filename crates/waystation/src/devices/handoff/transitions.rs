//! What a hand-off does to the device table.
//!
//! ```text
//!   source        there --freeze--> frozen --hand on--> (departed, a stub stays)
//!                   ^                  | thaw
//!                   +------------------+
//!   destination   (absent) --admit--> there, in the upper level; its stub, if it had one, is gone
//! ```
//!
//! All of these run under the front's lock, in the order of the log.

use crate::devices::index::{Entry, Index, Spot};
use crate::devices::ledger::Stub;
use crate::devices::record::{Admitted, expiring};
use crate::devices::residency::Residency;
use crate::devices::table::{Barred, Departure, Device, DeviceState, DeviceTable};
use crate::error::{DeviceError, Error, Result};
use crate::sync::{Arc, lock};
use waystation_format::FormatError;
use waystation_format::batch::{BatchIter, Operation, prefix_end};
use waystation_format::handoff::Digest;

/// A device that waits for the end of its hand-off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frozen {
    /// Since when, which names the hand-off.
    pub(crate) ticket: u64,
    pub(crate) destination: Arc<str>,
    pub(crate) survives_power_loss: bool,
    /// What the stream held, if one was read to its end since the database was opened.
    pub(crate) digest: Option<Digest>,
}

/// Why a device was not admitted.
pub(crate) struct Occupied;

/// Versions in a record of the log that tells of devices.
pub(crate) struct Part<'a> {
    payload: &'a [u8],
    operations: &'a [u8],
    record_lsn: u64,
}

impl<'a> Part<'a> {
    /// The `operations` in the `payload` of the record at `record_lsn`.
    pub(crate) fn of(payload: &'a [u8], operations: &'a [u8], record_lsn: u64) -> Self {
        Self {
            payload,
            operations,
            record_lsn,
        }
    }
}

impl DeviceTable {
    /// Why the device of `prefix` takes no writes; `None` if it does.
    pub(crate) fn barred(&self, prefix: &[u8]) -> Option<Barred> {
        let device = self.get(prefix);
        let barred = device.and_then(|device| device.with_state(|state| state.barred()));
        barred.or_else(|| self.ledger.stub(prefix).map(Barred::moved))
    }

    /// Whether the device of `prefix` has data that an admission would mix with.
    pub(crate) fn is_occupied(&self, prefix: &[u8]) -> bool {
        let device = self.get(prefix);
        device.is_some_and(|device| device.with_state(|state| state.is_occupied()))
    }

    /// The hand-off of the device of `prefix` that has not ended.
    pub(crate) fn frozen(&self, prefix: &[u8]) -> Option<(Frozen, u64)> {
        let device = self.get(prefix)?;
        device.with_state(|state| Some((state.frozen.clone()?, state.tenure)))
    }

    /// Refuses to delete ranges in which a device is being handed on. Under the front's lock.
    pub(crate) fn check_ranges<'o>(
        &self,
        operations: impl Iterator<Item = Operation<'o>>,
    ) -> Result<()> {
        for operation in operations {
            let moving = operation
                .range()
                .and_then(|end| self.moving_within(operation.key, end));
            if let Some(device) = moving
                && let Some(barred) = self.barred(device.prefix())
            {
                return Err(self.barred_error(device.prefix(), &barred));
            }
        }
        Ok(())
    }

    /// The error of a write that `barred` stops.
    pub(crate) fn barred_error(&self, prefix: &[u8], barred: &Barred) -> Error {
        let device = self.extractor().device(prefix);
        let device = device.escape_ascii().to_string();
        Error::Device(match barred {
            Barred::Moving(destination) => DeviceError::Moving {
                device,
                destination: destination.to_string(),
            },
            Barred::Moved(destination) => DeviceError::Moved {
                device,
                destination: destination.to_string(),
            },
        })
    }

    /// The devices that are being handed on, by prefix.
    pub(crate) fn moving(&self) -> Vec<Arc<Device>> {
        lock(&self.moving).values().cloned().collect()
    }

    /// A device that is being handed on and has keys from `start` to before `end` (none: to the last). Only the front's
    /// lock keeps the answer true.
    pub(crate) fn moving_within(&self, start: &[u8], end: Option<&[u8]>) -> Option<Arc<Device>> {
        let moving = lock(&self.moving);
        let overlaps = |device: &&Arc<Device>| {
            let prefix = device.prefix();
            let begins_before = end.is_none_or(|end| prefix < end);
            let ends_behind = prefix_end(prefix).is_none_or(|last| *last > *start);
            begins_before && ends_behind
        };
        moving.values().find(overlaps).cloned()
    }

    /// Freezes the device of `prefix`. Returns whether it is there.
    pub(crate) fn freeze(&self, prefix: &[u8], frozen: Frozen) -> bool {
        let device = match self.get(prefix) {
            Some(device) => device,
            None if self.is_complete() => return false,
            None => self.add(prefix),
        };
        if !device.with_state(|state| state.is_present()) {
            return false;
        }
        self.ledger.sent(&frozen.destination, frozen.ticket);
        device.transition(|state| state.frozen = Some(frozen));
        lock(&self.moving).insert(prefix.into(), device);
        true
    }

    /// Lets the device of `prefix` take writes again, if it is frozen by `ticket`.
    pub(crate) fn thaw(&self, prefix: &[u8], ticket: u64, sequence: u64) -> bool {
        self.end(prefix, ticket, sequence).is_some()
    }

    /// Makes the device of `prefix`, frozen by `ticket`, depart at `sequence` and leave a stub.
    /// Returns how it departed.
    pub(crate) fn hand_on(&self, prefix: &[u8], ticket: u64, sequence: u64) -> Departure {
        let Some(frozen) = self.end(prefix, ticket, sequence) else {
            return Departure::Unknown;
        };
        // Before it is absent: no reader misses both the device and its stub.
        let stub = Stub {
            ticket,
            destination: frozen.destination,
        };
        self.ledger.leave_stub(prefix, sequence, stub);
        self.depart(prefix, sequence)
    }

    /// Takes the hand-off `ticket` of the device of `prefix` away.
    fn end(&self, prefix: &[u8], ticket: u64, sequence: u64) -> Option<Frozen> {
        let device = self.get(prefix)?;
        let is_this = |frozen: &mut Frozen| frozen.ticket == ticket;
        let is_frozen =
            device.with_state(|state| state.frozen.as_ref().is_some_and(|it| it.ticket == ticket));
        if !is_frozen {
            return None;
        }
        let frozen = device.transition(|state| state.frozen.take_if(is_this))?;
        lock(&self.moving).remove(prefix);
        let end = if frozen.survives_power_loss {
            sequence
        } else {
            0
        };
        self.ledger.ended(&frozen.destination, ticket, end);
        Some(frozen)
    }

    /// Notes what the stream of the hand-off `ticket` held.
    pub(crate) fn note_digest(&self, prefix: &[u8], ticket: u64, digest: Digest) {
        if let Some(device) = self.get(prefix) {
            device.with_state(|state| {
                if let Some(frozen) = state.frozen.as_mut().filter(|it| it.ticket == ticket) {
                    frozen.digest = Some(digest);
                }
            });
        }
    }

    /// Makes `residency`, which holds what `admitted` brought, the device's from `sequence` on.
    pub(crate) fn admit(
        &self,
        admitted: &Admitted<'_>,
        residency: &Arc<Residency>,
        sequence: u64,
    ) -> Result<(), Occupied> {
        let prefix = admitted.prefix;
        let device = self.get(prefix).unwrap_or_else(|| self.add(prefix));
        if device.with_state(|state| state.is_occupied()) {
            return Err(Occupied);
        }
        device.transition(|state| {
            if admitted.expires {
                residency.set_mixed();
                state.in_tree = true;
            }
            residency.publish(sequence);
            state.current = Some(Arc::clone(residency));
            state.tenure = admitted.ticket.next_tenure();
        });
        self.residents.add(&device);
        self.note_admitted(admitted);
        Ok(())
    }

    /// Writes an admission into the ledger.
    pub(in crate::devices) fn note_admitted(&self, admitted: &Admitted<'_>) {
        self.ledger.lift_stub(admitted.prefix);
        let ticket = &admitted.ticket;
        self.ledger
            .forget_below(ticket, admitted.finished_below, &admitted.open);
        self.ledger.decide(ticket, Some(admitted.digest));
    }

    /// Notes that `residency`, which is not to be seen yet, gets its first record.
    pub(crate) fn begin_staged(&self, residency: &Arc<Residency>, lsn: u64, sequence: u64) {
        if residency.begin(lsn, sequence) {
            lock(&self.arrivals).push_back(Arc::clone(residency));
            lock(&self.coming).push(Arc::clone(residency));
        }
    }

    /// Puts the versions of `part`, numbered from `sequence` on, into the index of `residency`, but for versions that expire.
    pub(crate) fn fill(
        &self,
        residency: &Residency,
        part: &Part<'_>,
        sequence: u64,
    ) -> Result<(), FormatError> {
        let operations = BatchIter::parse(part.operations)?;
        let mut lower = expiring(operations.clone())
            .map(|(number, _)| number)
            .peekable();
        for (number, operation) in (0..).zip(operations) {
            if lower.next_if_eq(&number).is_some() {
                continue;
            }
            let sequence = sequence + number;
            let value = operation.value;
            let value = value.map(|it| Spot::of(it, part.payload, part.record_lsn));
            let key = &operation.key[residency.prefix().len()..];
            self.note_growth(residency.insert(key, &Entry { sequence, value }));
        }
        Ok(())
    }

    /// The residencies that are coming from other engines in parts.
    pub(crate) fn coming(&self) -> Vec<Arc<Residency>> {
        let mut coming = lock(&self.coming);
        coming.retain(|residency| residency.is_coming());
        coming.clone()
    }

    /// Gives a residency up that was not admitted, unless that was done before. Its index is to be dropped at low priority.
    pub(crate) fn abandon(&self, residency: &Residency) -> Index {
        let (index, bytes) = residency.reap();
        self.note_shrinking(bytes);
        index
    }
}

impl DeviceState {
    /// Whether the device has data that an admission would mix with.
    fn is_occupied(&self) -> bool {
        self.current
            .as_ref()
            .is_some_and(|residency| residency.has_begun())
            || self.lower_since.is_some()
    }

    /// Why the device takes no writes, as far as it knows itself.
    pub(in crate::devices) fn barred(&self) -> Option<Barred> {
        let frozen = self.frozen.as_ref()?;
        Some(Barred::Moving(Arc::clone(&frozen.destination)))
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::devices::ledger::Ledger;
    use crate::options::Extractor;
    use std::time::Duration;

    #[test]
    fn a_residency_is_coming_until_it_is_published_or_given_up() {
        let table = DeviceTable::new(Extractor::until(b':'), true, Ledger::default());
        let begin = |prefix: &[u8], sequence| {
            let residency = Arc::new(Residency::new(prefix, Duration::ZERO));
            table.begin_staged(&residency, sequence * 100, sequence);
            table.begin_staged(&residency, sequence * 100 + 50, sequence + 1);
            residency
        };
        let (one, other, stays) = (begin(b"a:", 1), begin(b"b:", 3), begin(b"c:", 5));
        assert_eq!(table.coming().len(), 3);
        one.publish(7);
        drop::<Index>(table.abandon(&other));
        let coming = table.coming();
        assert!(coming.len() == 1 && Arc::ptr_eq(&coming[0], &stays));
    }
}
