//! The quorum of writes: on how many copies a change is, once it is acknowledged.
//!
//! A change is made by all copies in service, and a copy that fails leaves service before the change is acknowledged. So
//! each copy in service has every acknowledged change, and their number tells on how many nodes a write is. It is not
//! refused for being on few: the copies that missed it get it when they are filled again.

use super::Database;
use super::book::Standing;
use super::replicas::Replicas;
use super::update::LOCAL;
use crate::error::Result;

impl Database {
    /// Whether what was acknowledged of document `id` is on `wanted` copies; if nothing is said, on a majority of those
    /// that its shard is to have.
    ///
    /// # Errors
    /// [`Error::NoDatabase`](crate::Error::NoDatabase), [`Error::Engine`](crate::Error::Engine).
    pub fn has_quorum(&self, id: &str, wanted: Option<u64>) -> Result<bool> {
        let shards = self.shards()?;
        let part = shards.of(id.strip_prefix(LOCAL).unwrap_or(id));
        let (in_service, planned) = part.replicas().map_or((1, 1), |it| it.count());
        Ok(in_service as u64 >= wanted.unwrap_or(planned as u64 / 2 + 1))
    }
}

impl Replicas {
    /// How many copies are in service, and how many there are to be once the moves that are under way have ended.
    fn count(&self) -> (usize, usize) {
        let members = self.members();
        let in_service = members.iter().filter(|it| it.is_in_service());
        let planned = members
            .iter()
            .filter(|it| it.standing() != Standing::Leaving);
        (in_service.count(), planned.count())
    }
}
