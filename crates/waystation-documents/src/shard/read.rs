//! Reading documents: the winner, one revision, several, and what a replica lacks.

use super::record::Head;
use super::{Shard, keys};
use crate::attachment::{AttachmentInfo, ContentDigest};
use crate::error::{Absence, Error, Result};
use crate::revision::Revision;
use crate::tree::{Leaf, RevisionTree};
use waystation::Snapshot;

/// One version of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its name.
    pub revision: Revision,
    /// Whether it deletes the document.
    pub deleted: bool,
    /// The update sequence at which it was written.
    pub sequence: u64,
    /// Its body in canonical text.
    pub body: String,
    /// Its attachments.
    pub attachments: Vec<AttachmentInfo>,
}

/// A version with the tree in which it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The version.
    pub version: Version,
    /// All versions of the document.
    pub tree: RevisionTree,
}

/// Which revisions of a document are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revisions {
    /// All leaves.
    Leaves,
    /// These.
    Named(Vec<Revision>),
}

impl Shard {
    /// The winner of document `id`.
    ///
    /// # Errors
    /// [`Error::NotFound`], if it never was or is deleted.
    pub fn open_winner(&self, id: &str) -> Result<Opened> {
        let snapshot = self.db.snapshot();
        let head = self.head_at(id, &snapshot)?.ok_or_else(Error::missing)?;
        let winner = head.tree.winner().ok_or_else(Error::missing)?;
        if winner.deleted {
            return Err(Error::NotFound(Absence::Deleted));
        }
        let revision = winner.revision.clone();
        self.opened(id, head, &revision, &snapshot)
    }

    /// The winning revision of document `id`, and whether it deletes the document; `None` if it never was.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn winner(&self, id: &str) -> Result<Option<(Revision, bool)>> {
        let head = self.head_at(id, &self.db.snapshot())?;
        let winner = head.as_ref().and_then(|head| head.tree.winner());
        Ok(winner.map(|leaf| (leaf.revision.clone(), leaf.deleted)))
    }

    /// The version `revision` of document `id`, deleted or not.
    ///
    /// # Errors
    /// [`Error::NotFound`], if it is not known, or only its name is.
    pub fn open_revision(&self, id: &str, revision: &Revision) -> Result<Opened> {
        let snapshot = self.db.snapshot();
        let head = self.head_at(id, &snapshot)?.ok_or_else(Error::missing)?;
        self.opened(id, head, revision, &snapshot)
    }

    /// Several versions of document `id`; a name that is not stored comes back as the error. With `latest` the newest
    /// leaf that descends from a named revision comes in its place.
    ///
    /// # Errors
    /// [`Error::NotFound`], if nothing is known of the document and its leaves are asked for.
    pub fn open_revisions(
        &self,
        id: &str,
        revisions: &Revisions,
        latest: bool,
    ) -> Result<Vec<Result<Opened, Revision>>> {
        let snapshot = self.db.snapshot();
        let head = self.head_at(id, &snapshot)?;
        let named: Vec<Revision> = match (revisions, &head) {
            (Revisions::Leaves, None) => return Err(Error::missing()),
            (Revisions::Leaves, Some(head)) => head
                .tree
                .leaves()
                .iter()
                .map(|leaf| leaf.revision.clone())
                .collect(),
            (Revisions::Named(named), _) => named.clone(),
        };
        let Some(head) = head else {
            return Ok(named.into_iter().map(Err).collect());
        };
        let newest = |revision: &Revision| -> Revision {
            let leaf = head.tree.leaf_of(revision).filter(|_| latest);
            leaf.map_or(revision, |leaf| leaf.revision).clone()
        };
        let open =
            |revision: Revision| match self.opened(id, head.clone(), &newest(&revision), &snapshot)
            {
                Ok(opened) => Ok(Ok(opened)),
                Err(Error::NotFound(_)) => Ok(Err(revision)),
                Err(error) => Err(error),
            };
        let mut found: Vec<Result<Opened, Revision>> =
            named.into_iter().map(open).collect::<Result<_>>()?;
        if latest {
            // Several names may lead to one leaf.
            let mut seen = Vec::new();
            found.retain(|found| {
                let revision = match found {
                    Ok(opened) => &opened.version.revision,
                    Err(revision) => revision,
                };
                let is_new = !seen.contains(revision);
                seen.push(revision.clone());
                is_new
            });
        }
        Ok(found)
    }

    /// The version `revision` of the document `id` with the head `head`.
    pub(super) fn opened(
        &self,
        id: &str,
        head: Head,
        revision: &Revision,
        snapshot: &Snapshot,
    ) -> Result<Opened> {
        let stored = head
            .tree
            .stored(revision)
            .flatten()
            .ok_or_else(Error::missing)?;
        let body = self.body_at(id, revision, snapshot)?;
        Ok(Opened {
            version: Version {
                revision: revision.clone(),
                deleted: stored.deleted,
                sequence: stored.sequence,
                body: body.text,
                attachments: body.attachments,
            },
            tree: head.tree,
        })
    }

    /// Which of `revisions` of document `id` are not stored here, and stored ones from which they may descend.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn missing_revisions(
        &self,
        id: &str,
        revisions: &[Revision],
    ) -> Result<(Vec<Revision>, Vec<Revision>)> {
        let head = self.head_at(id, &self.db.snapshot())?.unwrap_or_default();
        let is_missing = |revision: &&Revision| head.tree.stored(revision).is_none();
        let missing: Vec<Revision> = revisions.iter().filter(is_missing).cloned().collect();
        let newest = missing.iter().map(|revision| revision.generation).max();
        let ancestors = newest.map(|newest| head.tree.possible_ancestors(newest));
        let ancestors = ancestors.unwrap_or_default().into_iter().cloned().collect();
        Ok((missing, ancestors))
    }

    /// The bytes of an attachment.
    ///
    /// # Errors
    /// [`Error::Damaged`] if they are not all there, or are others.
    pub fn attachment(&self, info: &AttachmentInfo) -> Result<Vec<u8>> {
        let damaged = |reason: &str| Error::damaged(format!("attachment {}", info.name), reason);
        let mut bytes = Vec::new();
        for place in 0.. {
            if bytes.len() as u64 >= info.length {
                break;
            }
            let part = self.db.get(&keys::attachment(info.digest, place))?;
            bytes.extend(part.ok_or_else(|| damaged("a part is missing"))?);
        }
        if ContentDigest::of(&bytes) != info.digest {
            return Err(damaged("its digest is another one"));
        }
        Ok(bytes)
    }
}

impl Opened {
    /// Its leaves that are in conflict with it: not deleted, and not this version.
    pub fn conflicts(&self) -> Vec<&Revision> {
        self.other_leaves(false)
    }

    /// Its other leaves that are deleted.
    pub fn deleted_conflicts(&self) -> Vec<&Revision> {
        self.other_leaves(true)
    }

    fn other_leaves(&self, deleted: bool) -> Vec<&Revision> {
        let is_other =
            |leaf: &Leaf<'_>| leaf.deleted == deleted && *leaf.revision != self.version.revision;
        let leaves = self.tree.leaves().into_iter().filter(is_other);
        leaves.map(|leaf| leaf.revision).collect()
    }
}
