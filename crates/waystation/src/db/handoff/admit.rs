//! The destination's side: a stream becomes a device.
//!
//! Records are gathered into parts. All but the last go to the log as they come, with a stay in memory that nobody can
//! find; the last part, mostly the only one, goes with the record that publishes the stay. If anything fails before,
//! the stay is dropped, and the parts in the log mean nothing.

use super::super::devices::{Devices, Logged};
use super::super::options::KEY_BYTES_MAX;
use super::super::pipeline::Refusal as Refused;
use super::super::{Core, IterOptions, WriteBatch};
use super::stream::{StreamReader, damaged};
use super::{Digest, Receipt, answered, misfit};
use crate::device::handoff::Part;
use crate::device::ledger::Decision;
use crate::device::record::{Admitted, DeviceEvent};
use crate::device::resident::Resident;
use crate::error::{Error, Result};
use crate::sync::Arc;
use std::io::Read;
use waystation_format::handoff::{Frame, Opening};
use waystation_format::log::RecordKind;

/// A part is written once it has this many bytes, or a quarter of the ring.
const PART_BYTES: usize = 1 << 20;

/// A device that is being admitted.
struct Arrival<'a> {
    devices: &'a Devices,
    opening: Opening,
    prefix: Vec<u8>,
    stay: Arc<Resident>,
    batch: WriteBatch,
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
        let prefix = self.check_opening(devices, &opening)?;
        let mut arrival = Arrival {
            devices,
            stay: Arc::new(Resident::new(&prefix, devices.now(&*self.storage))),
            opening,
            prefix,
            batch: WriteBatch::new(),
            key: Vec::new(),
            stage: 0,
        };
        let admitted = self.receive(&mut arrival, &mut stream);
        if let Ok(digest) = admitted {
            let ticket = arrival.opening.ticket;
            return Ok(Receipt { ticket, digest });
        }
        if arrival.stay.published() == crate::device::resident::NEVER {
            devices.upper.table.abandon(&arrival.stay);
        }
        // The same ticket may have been admitted meanwhile.
        match self.answer_again(devices, &arrival.opening) {
            Ok(Some(receipt)) => Ok(receipt),
            _ => admitted.and(Err(misfit("it was answered meanwhile"))),
        }
    }

    /// The receipt, if the ticket was admitted before.
    fn answer_again(&self, devices: &Devices, opening: &Opening) -> Result<Option<Receipt>> {
        let ticket = &opening.ticket;
        match devices.upper.table.ledger.decision(ticket) {
            None => Ok(None),
            Some(Decision::Admitted(digest)) => {
                self.keep_promise(ticket, None)?;
                Ok(Some(Receipt {
                    ticket: ticket.clone(),
                    digest,
                }))
            }
            Some(other) => Err(answered(other)),
        }
    }

    /// Checks all that can be known from a stream's beginning. Returns the device's prefix.
    fn check_opening(&self, devices: &Devices, opening: &Opening) -> Result<Vec<u8>> {
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
        let is_there = devices.upper.table.is_occupied(&prefix)
            // An older directory may have data of devices that the table does not know.
            || !devices.upper.table.is_complete() && self.has_any(&prefix)?;
        if is_there {
            return Err(already_here(device));
        }
        Ok(prefix)
    }

    fn has_any(&self, prefix: &[u8]) -> Result<bool> {
        let options = IterOptions {
            prefix: Some(prefix.to_vec()),
            ..IterOptions::default()
        };
        let mut entries = self.iter(options)?;
        entries.seek_to_first()?;
        Ok(entries.valid())
    }

    fn receive(&self, arrival: &mut Arrival<'_>, stream: &mut StreamReader<'_>) -> Result<Digest> {
        let part_bytes = PART_BYTES.min(self.options.ring_bytes / 4);
        loop {
            match stream.frame()? {
                Frame::Opening(_) => return Err(damaged(0, "it begins twice")),
                Frame::Records(records) => {
                    for (suffix, value) in records {
                        arrival.add(suffix, value)?;
                        if arrival.batch.byte_len() >= part_bytes {
                            self.write_part(arrival)?;
                        }
                    }
                }
                Frame::End(digest) => {
                    let logged = self.publish_arrival(arrival, digest)?;
                    let ticket = &arrival.opening.ticket;
                    self.keep_promise(ticket, Some(&logged))?;
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
        let logged = self.log_versions(arrival, &event, |lsn, sequence| {
            table.begin_staged(stay, lsn, sequence);
            Ok(())
        })?;
        if arrival.stage == 0 {
            arrival.stage = logged.sequence;
        }
        arrival.batch.clear();
        Ok(())
    }

    /// Writes the rest and shows the device.
    fn publish_arrival(&self, arrival: &Arrival<'_>, digest: Digest) -> Result<Logged> {
        let admitted = Admitted {
            stage: arrival.stage,
            finished_below: arrival.opening.finished_below,
            ticket: arrival.opening.ticket.clone(),
            digest,
            prefix: &arrival.prefix,
            operations: arrival.batch.as_bytes(),
        };
        let event = DeviceEvent::Admitted(admitted.clone());
        let (table, stay) = (&arrival.devices.upper.table, &arrival.stay);
        // Its first parts have lower sequence numbers than it.
        let _kept = self.keep_graves(arrival.stage)?;
        self.log_versions(arrival, &event, |lsn, sequence| {
            if self.was_dug_over(&arrival.prefix, arrival.stage, sequence) {
                return Err(Refused::Failed(misfit(
                    "its keys were deleted here while it came; admit it once more",
                )));
            }
            if table.ledger.decision(&admitted.ticket).is_some() {
                return Err(Refused::Moved);
            }
            if table.is_occupied(&arrival.prefix) {
                return Err(Refused::Failed(already_here(&admitted.ticket.device)));
            }
            table.begin_staged(stay, lsn, sequence);
            let published = table.admit(&admitted, stay, sequence);
            published.map_err(|_| Refused::Failed(already_here(&admitted.ticket.device)))
        })
    }

    /// Logs an event that holds versions and puts them into the arrival's stay. `happen` runs in the order of the log,
    /// with the position and the first sequence number.
    fn log_versions(
        &self,
        arrival: &Arrival<'_>,
        event: &DeviceEvent<'_>,
        happen: impl FnOnce(u64, u64) -> Result<(), Refused>,
    ) -> Result<Logged> {
        self.room.check(|| false)?;
        let payload = event.encode();
        self.pace.admit_upper(payload.len(), &*self.storage);
        let operations = event.operations().map_or(0, <[u8]>::len);
        let operations = &payload[payload.len() - operations..];
        let checksum = crc32c::crc32c(&payload);
        let count = (arrival.batch.len() as u32).max(1);
        let (reservation, ()) =
            (self.log.reserve(payload.len(), count, happen)).map_err(|refused| match refused {
                Refused::Failed(error) => error,
                Refused::NoRoom | Refused::Moved => misfit("it was answered meanwhile"),
            })?;
        let reservation = reservation.of_kind(RecordKind::Devices);
        self.log.copy(&reservation, &payload, checksum);
        let logged = Logged {
            sequence: reservation.first_sequence,
            end_lsn: reservation.end_lsn(),
        };
        let part = Part::of(&payload, operations, reservation.record_lsn());
        let table = &arrival.devices.upper.table;
        let filled = table.fill(&arrival.stay, &part, logged.sequence);
        self.log.publish(reservation);
        filled.map_err(|error| damaged(0, error.reason()))?;
        self.end_rest();
        Ok(logged)
    }
}

impl Arrival<'_> {
    fn add(&mut self, suffix: &[u8], value: &[u8]) -> Result<()> {
        self.key.clear();
        self.key.extend_from_slice(&self.prefix);
        self.key.extend_from_slice(suffix);
        let extractor = self.devices.upper.table.extractor();
        if self.key.len() > KEY_BYTES_MAX || extractor.prefix(&self.key) != Some(&self.prefix) {
            return Err(damaged(0, "a key in it is not the device's"));
        }
        self.batch.put(&self.key, value);
        Ok(())
    }
}

fn already_here(device: &[u8]) -> Error {
    Error::AlreadyHere {
        device: device.escape_ascii().to_string(),
    }
}
