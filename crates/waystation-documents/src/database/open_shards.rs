//! The shards of a database that is open, and which of them holds a document.

use super::part::Part;
use super::partition::placed_by;
use super::{State, ring};
use crate::partition::bounds_of;
use std::sync::RwLockReadGuard;

/// The shards, while they cannot be closed.
pub(super) struct Shards<'a> {
    pub(super) state: RwLockReadGuard<'a, State>,
    pub(super) is_partitioned: bool,
}

impl std::ops::Deref for Shards<'_> {
    type Target = [Part];

    fn deref(&self) -> &[Part] {
        match &*self.state {
            State::Open(shards) => shards,
            State::Closed | State::Deleted => &[],
        }
    }
}

impl Shards<'_> {
    /// The shard of document `id`.
    pub(super) fn of(&self, id: &str) -> &Part {
        &self[self.number_of(id)]
    }

    /// The number of the shard of document `id`.
    pub(super) fn number_of(&self, id: &str) -> usize {
        ring::shard_of(placed_by(id, self.is_partitioned), self.len())
    }

    /// The shards that hold documents of `partition`: all, if none is named.
    pub(super) fn within(&self, partition: Option<&str>) -> &[Part] {
        match partition {
            None => self,
            Some(partition) => {
                let number = self.number_of(&bounds_of(partition).0);
                &self[number..=number]
            }
        }
    }
}
