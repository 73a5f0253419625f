//! The destination's side: a stream becomes a device.
//!
//! Records are gathered into parts. All but the last go to the log as they come, with a stay in memory that nobody can
//! find; the last part, mostly the only one, goes with the record that publishes the stay. If anything fails before,
//! or whoever reads the stream dies, the stay is dropped, and the parts in the log mean nothing. The same if the stream
//! stalls: see [`progress`](super::progress).
//!
//! Keys with a time to live, of a source that is older than its extractor, go to the memtable with their dates, as there
//! is no place for dates in the upper level. They are written with the last part, where they become visible at once.

use super::super::commit::{Logged, NewRecord, Rejection};
use super::super::devices::Devices;
use super::super::events::Decided;
use super::super::options::KEY_BYTES_MAX;
use super::super::pipeline::{apply_one, room_of};
use super::super::view::LoggedMemTable;
use super::super::{Core, WriteBatch};
use super::progress::too_slow;
use super::stream::{StreamReader, damaged};
use super::{Digest, Receipt, answered, check_ticket, misfit};
use crate::device::handoff::Part;
use crate::device::index::Index;
use crate::device::ledger::Decision;
use crate::device::record::{Admitted, DeviceEvent, expiring};
use crate::device::resident::{NEVER, Resident};
use crate::error::{DeviceError, Error, Result};
use crate::sync::Arc;
use std::io::Read;
use waystation_format::handoff::{Frame, Opening, Record};
use waystation_format::log::RecordKind;
use waystation_format::order::Order;

/// A part is written once it has this many bytes, or a quarter of the ring.
const PART_BYTES: usize = 1 << 20;

/// So much of a device may have a time to live: it comes in one record, and is kept in memory until then.
const EXPIRING_BYTES_MAX: usize = 64 << 20;

/// A device that is being admitted.
struct Arrival<'a> {
    devices: &'a Devices,
    opening: Opening,
    prefix: Vec<u8>,
    stay: Arc<Resident>,
    batch: WriteBatch,
    /// What expires.
    expiring: WriteBatch,
    key: Vec<u8>,
    /// The sequence number of the first part, 0 if there is none.
    stage: u64,
}

impl Core {
    pub(super) fn admit_device(&self, stream: &mut dyn Read) -> Result<Receipt> {
        let mut stream = StreamReader::new(stream);
        let opening = stream.opening()?;
        let devices = self.known_devices()?;
        if let Some(receipt) = self.answer_again(devices, &opening)? {
            return Ok(receipt);
        }
        let prefix = match self.check_opening(devices, &opening) {
            Ok(prefix) => prefix,
            // The same ticket may have been admitted meanwhile.
            Err(error) => return self.answer_again(devices, &opening)?.ok_or(error),
        };
        let mut arrival = Arrival {
            devices,
            stay: Arc::new(Resident::new(&prefix, devices.now(&*self.storage))),
            opening,
            prefix,
            batch: WriteBatch::new(),
            expiring: WriteBatch::new(),
            key: Vec::new(),
            stage: 0,
        };
        stream.source.watch(self, devices, &arrival.stay);
        let error = match self.receive(&mut arrival, &mut stream) {
            Ok(digest) => {
                let ticket = arrival.opening.ticket.clone();
                return Ok(Receipt { ticket, digest });
            }
            Err(error) => error,
        };
        self.answer_again(devices, &arrival.opening)?.ok_or(error)
    }

    /// The receipt, if the ticket was admitted before.
    fn answer_again(&self, devices: &Devices, opening: &Opening) -> Result<Option<Receipt>> {
        let ticket = &opening.ticket;
        match self.decision(devices, ticket)? {
            None => Ok(None),
            Some(Decision::Admitted(digest)) => Ok(Some(Receipt {
                ticket: ticket.clone(),
                digest,
            })),
            Some(other) => Err(answered(other)),
        }
    }

    /// Checks all that can be known from a stream's beginning. Returns the device's prefix.
    fn check_opening(&self, devices: &Devices, opening: &Opening) -> Result<Vec<u8>> {
        check_ticket(&opening.ticket)?;
        let extractor = devices.upper.table.extractor().to_string();
        if opening.extractor != extractor {
            return Err(misfit(format!(
                "its source has the device extractor {}, and this engine {extractor}",
                opening.extractor
            )));
        }
        if opening.ticket.source == devices.directory.engine {
            return Err(misfit("it comes from this engine itself"));
        }
        let device = &opening.ticket.device;
        let (_, prefix) = self.prefix_of(device)?;
        if prefix.len() > KEY_BYTES_MAX {
            return Err(misfit(format!(
                "the device's name makes its keys longer than {KEY_BYTES_MAX} bytes"
            )));
        }
        if devices.upper.table.is_occupied(&prefix) || self.has_older(devices, &prefix)? {
            return Err(already_here(device));
        }
        Ok(prefix)
    }

    fn receive(&self, arrival: &mut Arrival<'_>, stream: &mut StreamReader<'_>) -> Result<Digest> {
        let part_bytes = PART_BYTES.min(self.options.ring_bytes / 4);
        loop {
            match stream.frame()? {
                Frame::Opening(_) => return Err(damaged(0, "it begins twice")),
                Frame::Records(records) => {
                    for record in records {
                        arrival.add(&record)?;
                        if arrival.batch.byte_len() >= part_bytes {
                            self.write_part(arrival)?;
                        }
                    }
                }
                Frame::End(digest) => {
                    let logged = self.publish_arrival(arrival, digest)?;
                    let published = Decided {
                        sequence: logged.first_sequence,
                        end_lsn: logged.end_lsn,
                    };
                    let ticket = &arrival.opening.ticket;
                    self.keep_promise(ticket, published)?;
                    return Ok(digest);
                }
            }
        }
    }

    /// Writes what was gathered, to be seen by nobody.
    fn write_part(&self, arrival: &mut Arrival<'_>) -> Result<()> {
        let event = DeviceEvent::Staged {
            stage: arrival.stage,
            prefix: &arrival.prefix,
            operations: arrival.batch.as_bytes(),
        };
        let (table, stay) = (&arrival.devices.upper.table, &arrival.stay);
        let logged = self
            .log_versions(arrival, &event, 0, |lsn, sequence| {
                refuse_given_up(stay)?;
                table.begin_staged(stay, lsn, sequence);
                Ok(None)
            })
            .map_err(answered_meanwhile)?;
        if arrival.stage == 0 {
            arrival.stage = logged.first_sequence;
        }
        arrival.batch.clear();
        Ok(())
    }

    /// Writes the rest and shows the device.
    fn publish_arrival(&self, arrival: &mut Arrival<'_>, digest: Digest) -> Result<Logged> {
        arrival.batch.append(&arrival.expiring);
        loop {
            match self.try_to_publish(arrival, digest) {
                // Not while graves are kept: a flush buries some.
                Err(Rejection::NoRoom) => self.wait_for_flush()?,
                published => return published.map_err(answered_meanwhile),
            }
        }
    }

    fn try_to_publish(&self, arrival: &Arrival<'_>, digest: Digest) -> Result<Logged, Rejection> {
        let expiring = arrival
            .expiring
            .iter()
            .map(|it| room_of(&it, &Order::Bytewise))
            .sum();
        let admitted = Admitted {
            stage: arrival.stage,
            finished_below: arrival.opening.finished_below,
            open: arrival.opening.open.clone(),
            ticket: arrival.opening.ticket.clone(),
            digest,
            prefix: &arrival.prefix,
            expires: expiring > 0,
            operations: arrival.batch.as_bytes(),
        };
        let event = DeviceEvent::Admitted(admitted.clone());
        let (table, stay) = (&arrival.devices.upper.table, &arrival.stay);
        // Its first parts have lower sequence numbers than it.
        let _kept = self.keep_graves(arrival.stage)?;
        let now = arrival.devices.now(&*self.storage);
        self.log_versions(arrival, &event, expiring, |lsn, sequence| {
            refuse_given_up(stay)?;
            if self.was_dug_over(&arrival.prefix, arrival.stage, sequence) {
                return Err(Rejection::Failed(misfit(
                    "its keys were deleted here while it came; admit it once more",
                )));
            }
            if table.ledger.decision(&admitted.ticket).is_some() {
                return Err(Rejection::Moved);
            }
            if table.is_occupied(&arrival.prefix) {
                return Err(Rejection::Failed(already_here(&admitted.ticket.device)));
            }
            let memtable = if expiring > 0 {
                Some(self.admit(expiring, lsn, sequence, || false)?)
            } else {
                None
            };
            table.begin_staged(stay, lsn, sequence);
            stay.note_write(now);
            let published = table.admit(&admitted, stay, sequence);
            published.map_err(|_| Rejection::Failed(already_here(&admitted.ticket.device)))?;
            Ok(memtable)
        })
    }

    /// Logs an event that holds versions and puts them into the arrival's stay, and those that expire, which take `room`
    /// bytes, into the memtable that `happen` names. That runs in the order of the log, with the position and the first
    /// sequence number.
    fn log_versions(
        &self,
        arrival: &Arrival<'_>,
        event: &DeviceEvent<'_>,
        room: usize,
        happen: impl FnOnce(u64, u64) -> Result<Option<Arc<LoggedMemTable>>, Rejection>,
    ) -> Result<Logged, Rejection> {
        let payload = event.encode();
        let (bytes, active) = (payload.len() as u64, self.active_bytes());
        self.look_if_due()?;
        // One with a large value may be a long write.
        let is_long = self.is_long(payload.len());
        let counted = is_long.then(|| self.room.begin_long(active, bytes, room as u64));
        let _counted = counted.transpose()?;
        if !is_long {
            self.room.check(active, bytes + room as u64)?;
        }
        self.pace.admit_upper(payload.len(), &*self.storage);
        let operations = event.operations().map_or(0, <[u8]>::len);
        let operations = &payload[payload.len() - operations..];
        let count = (arrival.batch.len() as u32).max(1);
        let record = NewRecord::new(RecordKind::Devices, &payload, count);
        let (logged, filled) = self.commit_event(&record, happen, |memtable, logged| {
            let part = Part::of(&payload, operations, logged.record_lsn);
            let table = &arrival.devices.upper.table;
            if let Some(memtable) = memtable {
                for (number, operation) in expiring(&arrival.batch) {
                    let sequence = logged.first_sequence + number;
                    apply_one(&memtable.memory, &operation, sequence);
                }
                self.note_deletions(&memtable.memory);
            }
            table.fill(&arrival.stay, &part, logged.first_sequence)
        })?;
        filled.map_err(|error| damaged(0, error.reason()))?;
        Ok(logged)
    }
}

/// The error of what is refused for good.
fn answered_meanwhile(refused: Rejection) -> Error {
    match refused {
        Rejection::Failed(error) => error,
        Rejection::NoRoom | Rejection::Moved => misfit("it was answered meanwhile"),
    }
}

/// Refuses to go on with a stay that was given up meanwhile. Under the front's lock.
fn refuse_given_up(stay: &Resident) -> Result<(), Rejection> {
    if stay.is_reaped() {
        return Err(Rejection::Failed(too_slow()));
    }
    Ok(())
}

/// Also when a reader panics: nothing is left of what was not admitted.
impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        if self.stay.published() == NEVER {
            drop::<Index>(self.devices.upper.table.abandon(&self.stay));
        }
    }
}

impl Arrival<'_> {
    fn add(&mut self, record: &Record<'_>) -> Result<()> {
        self.key.clear();
        self.key.extend_from_slice(&self.prefix);
        self.key.extend_from_slice(record.key);
        let extractor = self.devices.upper.table.extractor();
        if self.key.len() > KEY_BYTES_MAX || extractor.prefix(&self.key) != Some(&self.prefix) {
            return Err(damaged(0, "a key in it is not the device's"));
        }
        let Some(expiry) = record.expiry else {
            self.batch.put(&self.key, record.value);
            return Ok(());
        };
        self.expiring.put_until(&self.key, record.value, expiry);
        if self.expiring.byte_len() > EXPIRING_BYTES_MAX {
            return Err(misfit(format!(
                "more than {EXPIRING_BYTES_MAX} bytes of the device have a time to live; refuse it, and export it when \
                 less of it has"
            )));
        }
        Ok(())
    }
}

fn already_here(device: &[u8]) -> Error {
    Error::Device(DeviceError::AlreadyHere {
        device: device.escape_ascii().to_string(),
    })
}
