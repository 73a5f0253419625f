//! The destination's side: a stream becomes a device.
//!
//! Records are gathered into parts. All but the last go to the log as they come, with a residency in memory that no reader can
//! find; the last part, mostly the only one, goes with the record that publishes the residency. If anything fails before,
//! or the reader of the stream dies, the residency is dropped, and the parts in the log mean nothing. The same if the stream
//! stalls: see [`progress`](super::progress).
//!
//! Keys with a time to live, of a source that is older than its extractor, go to the memtable with their dates, as there
//! is no place for dates in the upper level. They are written with the last part, where they become visible at once.

use super::progress::too_slow;
use super::stream::{StreamReader, damaged};
use super::{Admission, HandOff, Older, Part, answered, check_ticket, misfit};
use crate::devices::context::{Events, Memtables};
use crate::devices::events::Decided;
use crate::devices::index::Index;
use crate::devices::ledger::Decision;
use crate::devices::record::{Admitted, DeviceEvent, expiring};
use crate::devices::residency::{NEVER, Residency};
use crate::devices::upper::Upper;
use crate::error::{DeviceError, Error, Result};
use crate::log::{Logged, NewRecord, Rejection};
use crate::options::KEY_BYTES_MAX;
use crate::sync::Arc;
use std::io::Read;
use waystation_format::batch::WriteBatch;
use waystation_format::handoff::{Digest, Frame, Opening, Receipt, Record};
use waystation_format::log::RecordKind;

/// A part is written once it has this many bytes, or a quarter of the ring.
const PART_BYTES: usize = 1 << 20;

/// So much of a device may have a time to live: it comes in one record, and is kept in memory until then.
const EXPIRING_BYTES_MAX: usize = 64 << 20;

/// A device that is being admitted.
struct Arrival<'a> {
    upper: &'a Upper,
    opening: Opening,
    prefix: Vec<u8>,
    residency: Arc<Residency>,
    batch: WriteBatch,
    /// What expires.
    expiring: WriteBatch,
    key: Vec<u8>,
    /// The sequence number of the first part, 0 if there is none.
    stage: u64,
}

impl<E: Events + Memtables + Older + Admission> HandOff<'_, E> {
    /// The receipt of the device that `stream` brings.
    pub(crate) fn admit_device(&self, stream: &mut dyn Read) -> Result<Receipt> {
        let mut stream = StreamReader::new(stream);
        let opening = stream.opening()?;
        if let Some(receipt) = self.answer_again(&opening)? {
            return Ok(receipt);
        }
        let prefix = match self.check_opening(&opening) {
            Ok(prefix) => prefix,
            // The same ticket may have been admitted meanwhile.
            Err(error) => return self.answer_again(&opening)?.ok_or(error),
        };
        let mut arrival = Arrival {
            upper: self.context.upper,
            residency: Arc::new(Residency::new(&prefix, self.context.now())),
            opening,
            prefix,
            batch: WriteBatch::new(),
            expiring: WriteBatch::new(),
            key: Vec::new(),
            stage: 0,
        };
        stream.source.watch(&self.context, &arrival.residency);
        let error = match self.receive(&mut arrival, &mut stream) {
            Ok(digest) => {
                let ticket = arrival.opening.ticket.clone();
                return Ok(Receipt { ticket, digest });
            }
            Err(error) => error,
        };
        self.answer_again(&arrival.opening)?.ok_or(error)
    }

    /// The receipt, if the ticket was admitted before.
    fn answer_again(&self, opening: &Opening) -> Result<Option<Receipt>> {
        let ticket = &opening.ticket;
        match self.decision(ticket)? {
            None => Ok(None),
            Some(Decision::Admitted(digest)) => Ok(Some(Receipt {
                ticket: ticket.clone(),
                digest,
            })),
            Some(other) => Err(answered(other)),
        }
    }

    /// Checks all that can be known from a stream's beginning. Returns the device's prefix.
    fn check_opening(&self, opening: &Opening) -> Result<Vec<u8>> {
        check_ticket(&opening.ticket)?;
        let extractor = self.context.upper.table.extractor().to_string();
        if opening.extractor != extractor {
            return Err(misfit(format!(
                "its source has the device extractor {}, and this engine {extractor}",
                opening.extractor
            )));
        }
        if opening.ticket.source == self.context.directory.engine {
            return Err(misfit("it comes from this engine itself"));
        }
        let device = &opening.ticket.device;
        let prefix = self.context.prefix_of(device)?;
        if prefix.len() > KEY_BYTES_MAX {
            return Err(misfit(format!(
                "the device's name makes its keys longer than {KEY_BYTES_MAX} bytes"
            )));
        }
        if self.context.upper.table.is_occupied(&prefix)
            || self.context.engine.has_older(&prefix)?
        {
            return Err(already_here(device));
        }
        Ok(prefix)
    }

    fn receive(&self, arrival: &mut Arrival<'_>, stream: &mut StreamReader<'_>) -> Result<Digest> {
        let part_bytes = PART_BYTES.min(self.context.engine.part_bytes());
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
                    self.context.keep_promise(ticket, published)?;
                    return Ok(digest);
                }
            }
        }
    }

    /// Writes what was gathered, which no reader sees.
    fn write_part(&self, arrival: &mut Arrival<'_>) -> Result<()> {
        let event = DeviceEvent::Staged {
            stage: arrival.stage,
            prefix: &arrival.prefix,
            operations: arrival.batch.as_bytes(),
        };
        let (table, residency) = (&arrival.upper.table, &arrival.residency);
        let logged = self
            .log_versions(arrival, &event, 0, |lsn, sequence| {
                refuse_given_up(residency)?;
                table.begin_staged(residency, lsn, sequence);
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
                Err(Rejection::NoRoom) => self.context.engine.wait_for_flush()?,
                published => return published.map_err(answered_meanwhile),
            }
        }
    }

    fn try_to_publish(&self, arrival: &Arrival<'_>, digest: Digest) -> Result<Logged, Rejection> {
        let expiring = arrival
            .expiring
            .iter()
            .map(|it| self.context.engine.room_of(&it))
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
        let (table, residency) = (&arrival.upper.table, &arrival.residency);
        // Its first parts have lower sequence numbers than it.
        let _kept = self.context.engine.keep_graves(arrival.stage)?;
        let now = self.context.now();
        self.log_versions(arrival, &event, expiring, |lsn, sequence| {
            refuse_given_up(residency)?;
            if self
                .context
                .engine
                .was_deleted_since(&arrival.prefix, arrival.stage, sequence)
            {
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
                Some(self.context.engine.admit_memory(expiring, lsn, sequence)?)
            } else {
                None
            };
            table.begin_staged(residency, lsn, sequence);
            residency.note_write(now);
            let published = table.admit(&admitted, residency, sequence);
            published.map_err(|_| Rejection::Failed(already_here(&admitted.ticket.device)))?;
            Ok(memtable)
        })
    }

    /// Logs an event that holds versions and puts them into the arrival's residency, and versions that expire, which take `room`
    /// bytes, into the memtable that `happen` names. That runs in the order of the log, with the position and the first
    /// sequence number.
    fn log_versions(
        &self,
        arrival: &Arrival<'_>,
        event: &DeviceEvent<'_>,
        room: usize,
        happen: impl FnOnce(u64, u64) -> Result<Option<E::Memory>, Rejection>,
    ) -> Result<Logged, Rejection> {
        let payload = event.encode();
        let (bytes, active) = (payload.len() as u64, self.context.engine.active_bytes());
        self.context.reserve.look_if_due()?;
        // One with a large value may be a long write.
        let may_be_long = self.context.engine.may_be_long(payload.len());
        let counted =
            may_be_long.then(|| self.context.reserve.begin_long(active, bytes, room as u64));
        let _counted = counted.transpose()?;
        if !may_be_long {
            self.context.reserve.check(active, bytes + room as u64)?;
        }
        let throttle = self.context.engine.throttle();
        throttle.admit_upper(payload.len(), self.context.storage);
        let operations = event.operations().map_or(0, <[u8]>::len);
        let operations = &payload[payload.len() - operations..];
        let count = (arrival.batch.len() as u32).max(1);
        let record = NewRecord::new(RecordKind::Devices, &payload, count);
        let (logged, filled) = self
            .context
            .commit_event(&record, happen, |memtable, logged| {
                let part = Part::of(&payload, operations, logged.record_lsn);
                let table = &arrival.upper.table;
                if let Some(memtable) = memtable {
                    let some = expiring(&arrival.batch);
                    let some = some.map(|(number, it)| (logged.first_sequence + number, it));
                    self.context.engine.fill_memory(&memtable, some);
                }
                table.fill(&arrival.residency, &part, logged.first_sequence)
            })?;
        filled.map_err(|error| damaged(0, error.reason()))?;
        Ok(logged)
    }
}

/// The error of a stream that is refused for good.
fn answered_meanwhile(refused: Rejection) -> Error {
    match refused {
        Rejection::Failed(error) => error,
        Rejection::NoRoom | Rejection::Moved => misfit("it was answered meanwhile"),
    }
}

/// Refuses to go on with a residency that was given up meanwhile. Under the front's lock.
fn refuse_given_up(residency: &Residency) -> Result<(), Rejection> {
    if residency.is_reaped() {
        return Err(Rejection::Failed(too_slow()));
    }
    Ok(())
}

/// Also when a reader panics: nothing is left of what was not admitted.
impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        if self.residency.published() == NEVER {
            drop::<Index>(self.upper.table.abandon(&self.residency));
        }
    }
}

impl Arrival<'_> {
    fn add(&mut self, record: &Record<'_>) -> Result<()> {
        self.key.clear();
        self.key.extend_from_slice(&self.prefix);
        self.key.extend_from_slice(record.key);
        let extractor = self.upper.table.extractor();
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
