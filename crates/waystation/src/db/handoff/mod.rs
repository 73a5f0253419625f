//! Hand-off as the handle shows it. What it does, and why it leaves a device with one owner, says
//! [`crate::devices::handoff`].

mod export;
#[cfg(test)]
#[cfg(shuttle)]
mod model_tests;

pub use export::Export;
pub use waystation_format::handoff::{Digest, EngineId, Receipt, Refusal, Ticket};

use super::{Core, Db};
use crate::devices::handoff::{Sent, misfit};
use crate::devices::table::Device;
use crate::error::Result;
use crate::options::Durability;
use crate::sync::Arc;

/// Begins, or goes on with, the hand-off of `device` to `destination`.
pub(super) fn export<'db>(
    db: &'db Db,
    device: &[u8],
    destination: &str,
    durability: Durability,
) -> Result<Export<'db>> {
    loop {
        let handoff = db.core.handoff()?;
        let ticket = handoff.freeze(device, destination, durability)?;
        if let Some(export) = Export::open(db, ticket)? {
            return Ok(export);
        }
    }
}

/// Ends a hand-off from here with its destination's `receipt`.
pub(super) fn complete(db: &Db, receipt: &Receipt) -> Result<()> {
    let ticket = &receipt.ticket;
    let handoff = db.core.handoff()?;
    loop {
        let sent = match handoff.sent(ticket)? {
            Sent::Frozen(Some(digest)) => Some(digest),
            Sent::Frozen(None) => digest(db, ticket)?,
            Sent::HandedOn => return Ok(()),
            Sent::Over => return Err(misfit("the device is not frozen by this ticket")),
        };
        match sent {
            Some(digest) if digest != receipt.digest => {
                return Err(misfit(
                    "the receipt is for other data than were sent; the device stays frozen",
                ));
            }
            Some(_) if handoff.hand_on(ticket)? => return Ok(()),
            // It has ended meanwhile.
            _ => {}
        }
    }
}

/// What a stream for `ticket` holds; `None` if the hand-off has ended.
fn digest(db: &Db, ticket: &Ticket) -> Result<Option<Digest>> {
    let export = Export::open(db, ticket.clone())?;
    export.map(|mut export| export.read_through()).transpose()
}

impl Core {
    /// The hand-offs from here that have not ended, by device.
    pub(super) fn exports(&self) -> Result<Vec<Ticket>> {
        let handoff = self.handoff()?;
        let table = &handoff.context.upper.table;
        let ticket = |device: &Arc<Device>| handoff.open_ticket(device.prefix());
        let tickets: Vec<_> = table.moving().iter().filter_map(ticket).collect();
        let ((), last) = handoff.context.look(|_| ());
        let durable = tickets.iter().filter(|ticket| ticket.survives_power_loss);
        if let Some(newest) = durable.max_by_key(|ticket| ticket.sequence) {
            handoff.keep_ticket(newest, last)?;
        }
        Ok(tickets)
    }

    /// Where `device` was handed on to, if it left a stub.
    pub(super) fn moved_to(&self, device: &[u8]) -> Result<Option<String>> {
        let context = self.device_context()?;
        let prefix = context.prefix_of(device)?;
        let (stub, _) = context.look(|table| table.ledger.stub(&prefix));
        Ok(stub.map(|stub| stub.destination.to_string()))
    }
}
