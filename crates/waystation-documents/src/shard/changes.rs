//! The feed of changes: every document once, at its latest sequence.

use super::record::Head;
use super::{Shard, decode_head, keys};
use crate::error::{Error, Result};
use crate::revision::Revision;
use waystation::{DbIterator, IterOptions, Snapshot};

/// A document that has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The update sequence.
    pub sequence: u64,
    /// The document.
    pub id: String,
    /// Its leaves, the winner first.
    pub leaves: Vec<Revision>,
    /// Whether the winner deletes it.
    pub deleted: bool,
}

/// Changes in the order of their sequences, as they stood when it was made.
pub struct Changes<'a> {
    shard: &'a Shard,
    entries: DbIterator,
    snapshot: Snapshot,
    descending: bool,
}

impl Shard {
    /// The changes after `since`, the oldest first.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub fn changes(&self, since: u64) -> Result<Changes<'_>> {
        self.changes_at(since, self.db.snapshot())
    }

    /// The changes before `until`, the latest first.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub fn changes_before(&self, until: u64) -> Result<Changes<'_>> {
        self.changes_from(
            &keys::change(until.saturating_sub(1)),
            true,
            self.db.snapshot(),
        )
    }

    /// How many documents have changed after `since`.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub fn count_changes(&self, since: u64) -> Result<u64> {
        let mut entries = self.db.iter(IterOptions::prefix([keys::CHANGE]))?;
        entries.seek(&keys::change(since.saturating_add(1)))?;
        let mut count = 0;
        while entries.valid() {
            count += 1;
            entries.next()?;
        }
        Ok(count)
    }

    /// The changes after `since` as they stood at `snapshot`, the oldest first.
    pub(super) fn changes_at(&self, since: u64, snapshot: Snapshot) -> Result<Changes<'_>> {
        self.changes_from(&keys::change(since.saturating_add(1)), false, snapshot)
    }

    fn changes_from(
        &self,
        key: &[u8],
        descending: bool,
        snapshot: Snapshot,
    ) -> Result<Changes<'_>> {
        let mut options = IterOptions::prefix([keys::CHANGE]);
        options.snapshot = Some(snapshot.clone());
        let mut entries = self.db.iter(options)?;
        if descending {
            entries.seek_for_prev(key)?;
        } else {
            entries.seek(key)?;
        }
        Ok(Changes {
            shard: self,
            entries,
            snapshot,
            descending,
        })
    }
}

impl Changes<'_> {
    /// The next change, and the head of its document.
    pub(super) fn read(&mut self) -> Result<Option<(Change, Head)>> {
        if !self.entries.valid() {
            return Ok(None);
        }
        let damaged = |reason: &str| Error::damaged("a change", reason);
        let sequence = keys::sequence_of(self.entries.key());
        let sequence = sequence.ok_or_else(|| damaged("its key is no sequence"))?;
        let id = String::from_utf8(self.entries.value().to_vec());
        let id = id.map_err(|_| damaged("its document's identifier is no text"))?;
        let head = self.shard.db.get_at(&keys::head(&id), &self.snapshot)?;
        let head = decode_head(&id, head)?.ok_or_else(|| damaged("its document is missing"))?;
        if head.sequence != sequence {
            return Err(damaged("its document is at another sequence"));
        }
        let leaves = head.tree.leaves();
        let change = Change {
            sequence,
            deleted: leaves.first().is_some_and(|winner| winner.deleted),
            leaves: leaves.iter().map(|leaf| leaf.revision.clone()).collect(),
            id,
        };
        if self.descending {
            self.entries.prev()?;
        } else {
            self.entries.next()?;
        }
        Ok(Some((change, head)))
    }
}

impl Iterator for Changes<'_> {
    type Item = Result<Change>;

    fn next(&mut self) -> Option<Self::Item> {
        let change = self.read().transpose()?;
        Some(change.map(|(change, _)| change))
    }
}
