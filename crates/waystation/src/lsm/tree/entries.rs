//! Entries in memory, sorted all at once: what LevelDB's logs hold, on its way to tables.

use crate::error::Result;
use crate::sst::InternalIterator;
use waystation_format::batch::BatchIter;
use waystation_format::key::{MAX_SEQUENCE, TRAILER_BYTES, ValueKind, append};
use waystation_format::order::Order;

/// Entries in memory, and a cursor over them. Beyond the last entry it is invalid.
#[derive(Debug)]
pub(super) struct Entries {
    order: Order,
    list: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
    newest: u64,
    at: usize,
}

impl Entries {
    /// No entries, of user keys in `order`.
    pub(super) fn new(order: &Order) -> Self {
        Self {
            order: order.clone(),
            list: Vec::new(),
            bytes: 0,
            newest: 0,
            at: 0,
        }
    }

    /// Takes in the operations of a batch, or says why it is none.
    pub(super) fn add(&mut self, batch: &[u8]) -> Result<(), String> {
        let operations = BatchIter::parse(batch)
            .map_err(|error| format!("the batch that begins here cannot be read: {error}"))?;
        for (sequence, operation) in (operations.sequence()..).zip(operations) {
            if sequence > MAX_SEQUENCE {
                return Err(
                    "the batch that begins here passes the highest sequence number".to_owned(),
                );
            }
            if operation.range_end.is_some() || operation.time.is_some() {
                return Err("the batch that begins here is not LevelDB's".to_owned());
            }
            self.push(operation.key, sequence, operation.value);
        }
        Ok(())
    }

    /// Takes in one operation; no value means a deletion.
    pub(super) fn push(&mut self, user_key: &[u8], sequence: u64, value: Option<&[u8]>) {
        let kind = if value.is_some() {
            ValueKind::Value
        } else {
            ValueKind::Deletion
        };
        let mut key = Vec::with_capacity(user_key.len() + TRAILER_BYTES);
        append(&mut key, user_key, sequence, kind);
        let value = value.unwrap_or_default().to_vec();
        self.bytes += key.len() + value.len();
        self.newest = self.newest.max(sequence);
        self.list.push((key, value));
    }

    /// Bytes of keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The highest sequence number there ever was.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Forgets all entries, but for the highest sequence number.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.bytes = 0;
        self.at = 0;
    }

    /// Brings the entries into the order of a cursor.
    pub(super) fn sort(&mut self) {
        let order = &self.order;
        self.list.sort_by(|a, b| order.compare_internal(&a.0, &b.0));
    }
}

impl InternalIterator for &mut Entries {
    fn valid(&self) -> bool {
        self.at < self.list.len()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.at = 0;
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.at = self.list.len().wrapping_sub(1);
        Ok(())
    }

    fn seek(&mut self, internal_key: &[u8]) -> Result<()> {
        self.at = self
            .list
            .partition_point(|(key, _)| self.order.compare_internal(key, internal_key).is_lt());
        Ok(())
    }

    fn seek_for_prev(&mut self, internal_key: &[u8]) -> Result<()> {
        let behind = self
            .list
            .partition_point(|(key, _)| self.order.compare_internal(key, internal_key).is_le());
        self.at = behind.wrapping_sub(1);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.at = self.at.wrapping_sub(1);
        Ok(())
    }

    fn key(&self) -> &[u8] {
        &self.list[self.at].0
    }

    fn value(&self) -> &[u8] {
        &self.list[self.at].1
    }
}
