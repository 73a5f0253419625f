//! The upper level: the device table and the log that holds the devices' records, read together.

use super::cursor::UpperCursor;
use super::index::Spot;
use super::residency::{NEVER, ReadPoint};
use super::table::DeviceTable;
use crate::error::Result;
use crate::log::{Log, Pass, ValueRef};
use crate::retirement::UpperLevel;
use crate::sst::Lookup;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::sync::{Arc, raise};
use waystation_format::handoff::Ticket;
use waystation_format::key::MAX_SEQUENCE;

/// The upper level of a database.
pub(crate) struct Upper {
    pub(crate) table: DeviceTable,
    pub(crate) log: Arc<Log>,
    /// The log is durable through this sequence number at least.
    durable_sequence: AtomicU64,
    /// The sequence number of the last event that was decided since the database was opened; 0 before the first.
    decided_sequence: AtomicU64,
}

/// Where a point read goes on.
pub(crate) enum Step {
    /// It is answered.
    Done(Option<Vec<u8>>),
    /// Ask the memtables and the tree for versions from the sequence number on, and where they know none, take this.
    Tree(u64, Lookup<Spot>),
}

impl Upper {
    pub(crate) fn new(table: DeviceTable, log: Arc<Log>) -> Self {
        Self {
            table,
            log,
            durable_sequence: AtomicU64::new(0),
            decided_sequence: AtomicU64::new(0),
        }
    }

    /// Notes that the log is durable through `sequence`.
    pub(crate) fn note_durable(&self, sequence: u64) {
        raise(&self.durable_sequence, sequence);
    }

    /// Whether the log is known to be durable through `sequence`.
    pub(crate) fn is_durable(&self, sequence: u64) -> bool {
        sequence <= self.durable_sequence.load(SeqCst)
    }

    /// Notes that what happens to devices at `sequence` has changed the table. Under the front's lock.
    pub(crate) fn decide(&self, sequence: u64) {
        self.decided_sequence.store(sequence, SeqCst);
    }

    /// The sequence number of the last event that has changed the table. Only the front's lock keeps the answer true.
    pub(crate) fn decided(&self) -> u64 {
        self.decided_sequence.load(SeqCst)
    }

    /// Below which sequence number every hand-off to the destination of `ticket` is over for good, and which are not.
    pub(crate) fn finished_below(&self, ticket: &Ticket) -> (u64, Vec<u64>) {
        let durable = self.durable_sequence.load(SeqCst);
        let ledger = &self.table.ledger;
        ledger.finished_below(&ticket.destination, durable, ticket.sequence)
    }

    /// What the upper level says about `key`, whose device's keys begin with `prefix`, at `point`,
    /// where versions below `covering` are hidden.
    pub(crate) fn get(
        &self,
        prefix: &[u8],
        key: &[u8],
        point: ReadPoint,
        covering: u64,
    ) -> Result<Step> {
        let snapshot = point.snapshot;
        let Some(sight) = self.table.sight(prefix, point) else {
            return Ok(Step::Done(None));
        };
        let Some(residency) = sight.residency else {
            return Ok(if sight.in_tree {
                Step::Tree(covering, Lookup::Missing)
            } else {
                Step::Done(None)
            });
        };
        let entry = residency.get(&key[prefix.len()..], snapshot);
        let entry = entry.filter(|entry| entry.sequence >= covering);
        let found = entry.map_or(Lookup::Missing, |entry| {
            entry.value.map_or(Lookup::Deleted, Lookup::Found)
        });
        if residency.switch() <= snapshot {
            // What was written since the switch is newer, and is not in the index. In a directory that is older than
            // its extractor there may be older versions, too.
            let covering = entry.map_or(covering, |entry| entry.sequence);
            return Ok(Step::Tree(covering, found));
        }
        match found {
            Lookup::Found(spot) => Ok(Step::Done(Some(self.value(&spot)?))),
            // In a directory that is older than its extractor the tree may hold what came before; else what expires.
            Lookup::Missing if !self.table.is_complete() || residency.is_mixed() => {
                Ok(Step::Tree(covering, Lookup::Missing))
            }
            Lookup::Deleted | Lookup::Missing => Ok(Step::Done(None)),
        }
    }

    /// Whether a write behind `point` may have put or deleted `key` in the upper level: unless the device was at `point`
    /// where it is now, and its index has nothing newer of the key.
    pub(crate) fn may_be_written_behind(&self, key: &[u8], point: ReadPoint) -> bool {
        let Some(prefix) = self.table.extractor().prefix(key) else {
            return false;
        };
        let now = ReadPoint {
            snapshot: MAX_SEQUENCE,
            ..point
        };
        let sights = [point, now].map(|point| self.table.sight(prefix, point));
        match sights.map(|sight| sight.map(|it| (it.residency, it.in_tree))) {
            // The device lives in the tree.
            [Some((None, true)), Some((None, true))] => false,
            [Some((Some(before), _)), Some((Some(now), _))] if Arc::ptr_eq(&before, &now) => {
                let newest = now.get(&key[prefix.len()..], MAX_SEQUENCE);
                now.switch() != NEVER || newest.is_some_and(|it| it.sequence > point.snapshot)
            }
            _ => true,
        }
    }

    /// The value at `spot`.
    pub(crate) fn value(&self, spot: &Spot) -> Result<Vec<u8>> {
        let mut value = vec![0; spot.length as usize];
        let target = 0..value.len();
        let value_refs = [spot.value_ref(target)];
        self.log.read_values(&value_refs, Pass::Often, &mut value)?;
        Ok(value)
    }

    /// Reads values, in any order, in that of the log.
    pub(crate) fn values(
        &self,
        value_refs: &mut [ValueRef],
        pass: Pass,
        values: &mut [u8],
    ) -> Result<()> {
        value_refs.sort_unstable_by_key(|one| (one.record_lsn, one.offset));
        self.log.read_values(value_refs, pass, values)
    }

    /// A cursor over what the upper level shows at `point`, up to `upper` (excluded).
    pub(crate) fn cursor(self: &Arc<Self>, point: ReadPoint, upper: Option<&[u8]>) -> UpperCursor {
        UpperCursor::new(Arc::clone(self), point, upper)
    }
}

impl UpperLevel for Upper {
    fn may_hold(&self, start: &[u8], end: Option<&[u8]>, sequence: u64) -> bool {
        self.table.may_hold(start, end, sequence)
    }

    fn left_on_the_way(&self) -> Vec<(u64, u64)> {
        self.table.left_on_the_way()
    }
}
