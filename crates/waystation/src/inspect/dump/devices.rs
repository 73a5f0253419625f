//! Facts about devices: in records of the log, and in the device table's checkpoint.

use super::{Item, Out};
use crate::devices::checkpoint::{self, CheckpointError, Saved, SavedDevice};
use crate::devices::record::DeviceEvent;
use crate::error::Result;
use crate::inspect::index_snapshot::{Shown, each_part};
use crate::inspect::source::Source;
use crate::storage::Storage;
use std::path::Path;

/// The event of a record at `sequence`.
pub(super) fn event(event: &DeviceEvent<'_>, sequence: u64, out: &mut Out<'_, '_>) {
    let mut tell = |prefix: &[u8], what: String| {
        out.put(Item::Device {
            prefix: prefix.to_vec(),
            sequence: Some(sequence),
            what,
        });
    };
    match event {
        DeviceEvent::Departed(prefix) => tell(prefix, "departs".into()),
        DeviceEvent::Switched(prefixes) => {
            for prefix in prefixes {
                tell(prefix, "begins to settle".into());
            }
        }
        DeviceEvent::Settled(prefixes) => {
            for prefix in prefixes {
                tell(prefix, "has settled".into());
            }
        }
        DeviceEvent::Frozen {
            prefix,
            destination,
            ..
        } => tell(
            prefix,
            format!("is frozen, to be handed on to {destination}"),
        ),
        DeviceEvent::HandedOn {
            prefix,
            ticket,
            destination,
        } => tell(
            prefix,
            format!("is handed on to {destination}, ticket {ticket}"),
        ),
        DeviceEvent::Thawed { prefix, ticket } => {
            tell(prefix, format!("residencies, against ticket {ticket}"));
        }
        DeviceEvent::Staged { prefix, .. } => tell(prefix, "arrives in part".into()),
        DeviceEvent::Admitted(admitted) => {
            let ticket = &admitted.ticket;
            let what = format!(
                "is admitted from {}, ticket {}, {} records",
                ticket.source, ticket.sequence, admitted.digest.records
            );
            tell(admitted.prefix, what);
        }
        DeviceEvent::Refused(ticket) => {
            let (source, number) = (ticket.source, ticket.sequence);
            tell(
                &ticket.device,
                format!("is refused from {source}, ticket {number}"),
            );
        }
        DeviceEvent::Lifted(prefix) => tell(prefix, "may arrive anew".into()),
    }
}

/// The checkpoint of the device table.
pub(super) fn checkpoint(source: &Source, out: &mut Out<'_, '_>) -> Result<()> {
    match checkpoint::decode(&source.read_all()?) {
        Err(CheckpointError::Damaged(offset, reason)) => out.problem(offset, reason),
        Err(CheckpointError::Newer(reason)) => out.problem(0, reason),
        Ok(saved) => tell_all(&saved, out),
    }
    Ok(())
}

/// An index snapshot.
pub(super) fn index_snapshot(
    storage: &dyn Storage,
    path: &Path,
    out: &mut Out<'_, '_>,
) -> Result<()> {
    let end = each_part(storage, path, &mut |shown| match shown {
        Shown::Header(header) => {
            out.fact("identity", header.engine);
            out.fact("shows writes up to sequence number", header.through);
            out.fact("the log ended then at", header.lsn);
        }
        Shown::Part(head, versions) => out.put(Item::Device {
            prefix: head.prefix.to_vec(),
            sequence: Some(head.first_sequence),
            what: match head.switch {
                None => format!("{versions} versions"),
                Some(switch) => format!("{versions} versions; settles since {switch}"),
            },
        }),
    })?;
    if let Some(end) = end {
        out.fact("all else is in tables up to sequence number", end.needless);
        out.fact("versions", end.versions);
    }
    Ok(())
}

fn tell_all(saved: &Saved, out: &mut Out<'_, '_>) {
    let directory = &saved.directory;
    out.fact("device extractor", directory.extractor);
    out.fact("identity", directory.engine);
    out.fact("knows every device", directory.is_complete);
    out.fact("began after sequence number", directory.begun_after);
    out.fact("records needed after sequence number", directory.released);
    let seconds = directory.clock.as_secs_f64();
    out.fact("residency clock", format!("{seconds:.3} s"));
    for device in &saved.devices {
        out.put(Item::Device {
            prefix: device.prefix.clone(),
            sequence: None,
            what: describe(device),
        });
    }
    for (prefix, stub) in saved.ledger.stubs() {
        out.put(Item::Device {
            prefix,
            sequence: None,
            what: format!(
                "was handed on to {}, ticket {}",
                stub.destination, stub.ticket
            ),
        });
    }
    for (ticket, admitted) in saved.ledger.answers() {
        let answer = if admitted { "admitted" } else { "refused" };
        out.put(Item::Device {
            prefix: ticket.device,
            sequence: None,
            what: format!("{answer}: ticket {} of {}", ticket.sequence, ticket.source),
        });
    }
}

fn describe(device: &SavedDevice) -> String {
    let mut facts = Vec::new();
    if let Some((sequence, arrival)) = device.residency {
        let seconds = arrival.as_secs_f64();
        facts.push(format!(
            "in the upper level since {sequence} (at {seconds:.3} s)"
        ));
    }
    if let Some(switch) = device.lower_since {
        facts.push(format!("in the tree since {switch}"));
    }
    if device.in_tree && device.lower_since.is_none() {
        facts.push("the tree may hold something of it".into());
    }
    for covering in device.covering.as_slice() {
        facts.push(format!("departed at {covering}"));
    }
    if let Some(frozen) = &device.frozen {
        facts.push(format!(
            "frozen for {}, ticket {}",
            frozen.destination, frozen.ticket
        ));
    }
    if device.tenure > 0 {
        facts.push(format!("handed on {} times", device.tenure));
    }
    facts.join("; ")
}
