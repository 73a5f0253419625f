//! Giving space back: bodies of superseded revisions, attachments that no body names, and purges.

use super::update::Pending;
use super::{Shard, decode_head, keys};
use crate::error::{Error, Result};
use crate::revision::Revision;
use crate::shard::record::StoredBody;
use std::collections::HashSet;
use std::sync::PoisonError;
use waystation::{IterOptions, WriteBatch};

/// Documents that are compacted while updates wait.
const AT_ONCE: usize = 256;

/// What a compaction removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compacted {
    /// Bodies of revisions that were superseded.
    pub bodies: u64,
    /// Parts of attachments that nothing named.
    pub attachment_parts: u64,
}

impl Shard {
    /// Removes the bodies of superseded revisions, then attachments that no body names. Updates go on between.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`]: what was removed until then stays removed.
    pub fn compact(&self) -> Result<Compacted> {
        let mut compacted = Compacted::default();
        let mut from = vec![keys::HEAD];
        loop {
            let ids = self.heads_from(&from, AT_ONCE)?;
            let Some(last) = ids.last() else { break };
            from = keys::head(last);
            from.push(0);
            compacted.bodies += self.compact_documents(&ids)?;
        }
        compacted.attachment_parts = self.sweep_attachments()?;
        Ok(compacted)
    }

    /// The identifiers of up to `count` documents whose heads stand at the key `from` or behind it.
    pub(super) fn heads_from(&self, from: &[u8], count: usize) -> Result<Vec<String>> {
        let mut entries = self.db.iter(IterOptions::prefix([keys::HEAD]))?;
        entries.seek(from)?;
        let mut ids = Vec::new();
        while entries.valid() && ids.len() < count {
            let id = keys::id_of(entries.key());
            ids.push(id.ok_or_else(|| Error::damaged("a document", "it has no identifier"))?);
            entries.next()?;
        }
        Ok(ids)
    }

    fn compact_documents(&self, ids: &[String]) -> Result<u64> {
        let _updates = self.lock();
        let mut batch = WriteBatch::new();
        let mut bodies = 0;
        for id in ids {
            let Some(mut head) = decode_head(id, self.db.get(&keys::head(id))?)? else {
                continue;
            };
            let superseded = head.tree.superseded();
            if superseded.is_empty() {
                continue;
            }
            bodies += superseded.len() as u64;
            for revision in superseded {
                self.delete_body(&mut batch, id, revision)?;
            }
            head.tree.forget_superseded();
            batch.put(&keys::head(id), &head.encode());
        }
        self.db
            .write(&batch, waystation::Durability::ProcessCrash)?;
        Ok(bodies)
    }

    /// Removes attachments that no body names. Updates wait: they write attachments before the body that names them.
    fn sweep_attachments(&self) -> Result<u64> {
        let _alone = self
            .attaching
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut parts = self.db.iter(IterOptions::prefix([keys::ATTACHMENT]))?;
        parts.seek_to_first()?;
        if !parts.valid() {
            return Ok(0);
        }
        let mut named = HashSet::new();
        let mut bodies = self.db.iter(IterOptions::prefix([keys::BODY]))?;
        bodies.seek_to_first()?;
        while bodies.valid() {
            let body = StoredBody::read(bodies.value().to_vec())
                .map_err(|error| Error::damaged("a body", &error))?;
            named.extend(body.attachments.iter().map(|attachment| attachment.digest));
            bodies.next()?;
        }
        let mut batch = WriteBatch::new();
        while parts.valid() {
            let key = parts.key();
            let digest = keys::digest_of(key)
                .ok_or_else(|| Error::damaged("an attachment", "its key is cut"))?;
            if !named.contains(&digest) {
                batch.delete(key);
            }
            parts.next()?;
        }
        self.db
            .write(&batch, waystation::Durability::ProcessCrash)?;
        Ok(batch.len() as u64)
    }

    /// Removes the leaves `revisions` of document `id` with all traces, as if they had never been. Returns the ones
    /// that were leaves.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn purge(&self, id: &str, revisions: &[Revision]) -> Result<Vec<Revision>> {
        let mut state = self.lock();
        let Some(mut head) = decode_head(id, self.db.get(&keys::head(id))?)? else {
            return Ok(Vec::new());
        };
        let before = head.tree.winner().map(|leaf| leaf.deleted);
        let mut pending = Pending::new(*state);
        let mut purged = Vec::new();
        for revision in revisions {
            let gone = head.tree.purge(revision);
            if !gone.is_empty() {
                purged.push(revision.clone());
            }
            for gone in gone {
                self.delete_body(&mut pending.batch, id, &gone)?;
            }
        }
        if purged.is_empty() {
            return Ok(purged);
        }
        let winner = head
            .tree
            .winner()
            .map(|leaf| (leaf.revision.clone(), leaf.deleted));
        pending
            .state
            .count(before, winner.as_ref().map(|(_, deleted)| *deleted));
        pending.state.purges += 1;
        self.index_document(id, &head, &mut pending)?;
        match winner {
            None => {
                self.purge_rows(id, &mut pending.batch)?;
                pending.batch.delete(&keys::head(id));
                pending.batch.delete(&keys::change(head.sequence));
                pending.state.sequence = self.clock.next();
            }
            Some((winner, _)) => {
                let body = self.body_at(id, &winner, &self.db.snapshot())?;
                head.fields = pending.refreshed_fields(id, &winner, body);
                let sequence = self.clock.next();
                pending.move_change(id, head.sequence, sequence);
                head.sequence = sequence;
                pending.batch.put(&keys::head(id), &head.encode());
            }
        }
        self.commit(&mut state, pending.state, pending.batch)?;
        Ok(purged)
    }
}
