//! Events: what happens to devices, in the order of the log, and what callers are told of it.
//!
//! ```text
//!   reserve             copy, publish                  sync
//!   decided ----------> visible ---------------------> durable
//!   table and ledger    survives the process's death   survives a power loss
//! ```
//!
//! An event changes the device table and the ledger when its place in the log is reserved, under the front's lock.
//! Other threads find it *decided* from there on. A thread that told of it at once would tell what a crash takes back,
//! and would miss writes that were reserved before it and are not visible.
//!
//! **The rule.** An answer that rests on a decision is given when the decision is visible; and when the log is durable
//! through it, if the answer promises that ([`Context::keep_promise`]). Decisions are looked at in two places:
//! [`Context::look`], and a `happen` that rejects an event ([`Context::commit_event`]). Both wait until all events that were decided so
//! far are visible. They wait for all of them, and not for one, because some decisions leave nothing to look at: a
//! device that departed, a stub that was lifted, a hand-off that was aborted.
//!
//! A departure tells of nothing but itself, and is acknowledged as a write is. Writes do not follow the rule. Their `Moving` and `Moved` promise that nothing was written, and no more.

use super::context::{Context, Events};
use super::record::DeviceEvent;
use super::table::DeviceTable;
use crate::error::{DeviceError, Error, Result};
use crate::log::{Logged, NewRecord, Rejection};
use waystation_format::handoff::Ticket;
use waystation_format::log::RecordKind;

/// An event that was decided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decided {
    pub(crate) sequence: u64,
    /// Syncing the log up to here makes it durable.
    pub(crate) end_lsn: u64,
}

/// Why nothing happens to a device that has no data.
pub(crate) fn unknown(device: &[u8]) -> Rejection {
    Rejection::Failed(Error::Device(DeviceError::Unknown {
        device: device.escape_ascii().to_string(),
    }))
}

impl<E> Context<'_, E> {
    /// Looks at the decisions about devices, in the order of the log. All of it is visible when this returns. Also
    /// returns the last event that was decided.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&DeviceTable) -> T) -> (T, Decided) {
        let upper = self.upper;
        let (found, last) = upper.log.at_front(|lsn, _| {
            let last = Decided {
                sequence: upper.decided(),
                end_lsn: lsn,
            };
            (look(&upper.table), last)
        });
        upper.log.wait_visible(last.sequence);
        (found, last)
    }

    /// Makes what was decided up to `last` survive what `ticket` promises.
    pub(crate) fn keep_promise(&self, ticket: &Ticket, last: Decided) -> Result<()> {
        let upper = self.upper;
        if ticket.survives_power_loss && !upper.is_durable(last.sequence) {
            upper.log.sync(last.end_lsn)?;
            upper.note_durable(last.sequence);
        }
        Ok(())
    }
}

impl<E: Events> Context<'_, E> {
    /// Commits the record of an event and makes the event true: `happen` runs in the order of the log with a position at or
    /// before the event's and its sequence number. The event is visible when this returns. If `happen` rejects it, nothing
    /// is reserved, and all that it found is visible: after a [`Rejection::Moved`] the caller looks again.
    pub(crate) fn commit_event<T, R>(
        &self,
        record: &NewRecord<'_>,
        happen: impl FnOnce(u64, u64) -> Result<T, Rejection>,
        apply: impl FnOnce(T, Logged) -> R,
    ) -> Result<(Logged, R), Rejection> {
        let committed = self.acknowledge_event(record, happen, apply)?;
        self.upper.log.wait_visible(committed.0.first_sequence);
        Ok(committed)
    }

    /// The same, but the event is acknowledged as a write is: it may become visible later, and reads wait for it.
    fn acknowledge_event<T, R>(
        &self,
        record: &NewRecord<'_>,
        happen: impl FnOnce(u64, u64) -> Result<T, Rejection>,
        apply: impl FnOnce(T, Logged) -> R,
    ) -> Result<(Logged, R), Rejection> {
        let upper = self.upper;
        let mut found = 0;
        let committed = self.engine.commit(
            record,
            |lsn, sequence| {
                let happened = happen(lsn, sequence);
                match &happened {
                    Ok(_) => upper.decide(sequence),
                    Err(_) => found = upper.decided(),
                }
                happened
            },
            apply,
        );
        match committed {
            Ok(committed) => {
                self.engine.keep_soon();
                Ok(committed)
            }
            Err(rejection) => {
                upper.log.wait_visible(found);
                Err(rejection)
            }
        }
    }

    /// Logs an event and makes it true, as [`Context::commit_event`] does. Returns whether it was logged.
    pub(crate) fn log_event(
        &self,
        event: &DeviceEvent<'_>,
        happen: impl FnOnce(u64, u64) -> Result<(), Rejection>,
    ) -> Result<bool> {
        let logged = self.log_write(event, happen)?;
        if let Some(logged) = logged {
            self.upper.log.wait_visible(logged.first_sequence);
        }
        Ok(logged.is_some())
    }

    /// Logs an event that its caller is told of as of a write: it may become visible later, and reads wait for it. `None`
    /// if it was not logged.
    pub(crate) fn log_write(
        &self,
        event: &DeviceEvent<'_>,
        happen: impl FnOnce(u64, u64) -> Result<(), Rejection>,
    ) -> Result<Option<Logged>> {
        // The room of these was counted before.
        let is_counted = matches!(event, DeviceEvent::Switched(_) | DeviceEvent::Settled(_));
        let payload = event.encode();
        if !is_counted && self.engine.is_short_of_room() {
            self.engine.check_leaving(payload.len() as u64)?;
        }
        // One that names very many devices is a long record: an opening may have to lay all of it out anew.
        let may_be_long = self.engine.may_be_long(payload.len());
        let _counted = may_be_long.then(|| self.reserve.count_long(payload.len() as u64));
        let record = NewRecord::new(RecordKind::Devices, &payload, 1);
        match self.acknowledge_event(&record, happen, |(), _| ()) {
            Ok((logged, ())) => Ok(Some(logged)),
            Err(Rejection::Failed(error)) => Err(error),
            Err(Rejection::NoRoom | Rejection::Moved) => Ok(None),
        }
    }
}
