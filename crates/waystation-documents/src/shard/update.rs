//! Updates: new revisions of documents.
//!
//! ```text
//!   interactive   names the leaf that it updates; another one is a conflict      (new_edits=true)
//!   replicated    brings its revision and its history; branches, and never fails  (new_edits=false)
//! ```
//!
//! The name of a new revision is a digest of all that makes it up, so that equal edits on two replicas are one.

use super::record::{Body, FieldTable, Head};
use super::{Shard, State, bodies, decode_head, keys};
use crate::attachment::{AttachmentInfo, ContentDigest, Given};
use crate::document::{Document, check_id};
use crate::error::{Error, Result};
use crate::revision::Revision;
use crate::tree::{Merged, RevisionTree, Stored};
use md5::{Digest, Md5};
use std::collections::HashMap;
use std::sync::PoisonError;
use waystation::{Durability, WriteBatch};

/// Bytes of an attachment that one key holds.
pub(super) const PART_BYTES: usize = 1 << 20;
/// A batch of updates is written once it has this many bytes, so that a bulk load is many batches.
const BATCH_BYTES: usize = 8 << 20;

/// Who names the revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edits {
    /// The shard does, and refuses updates of what is no leaf.
    Interactive,
    /// The updates do: they come from a replica.
    Replicated,
}

/// What became of an update.
pub type Updated = Result<Revision>;

impl Shard {
    /// Writes `documents`, each of which succeeds or fails by itself; all survive what `durability` says when it
    /// returns. Several updates of one document happen one after the other.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine refuses: then the first of the updates may have been written.
    pub fn update(
        &self,
        documents: &[Document],
        edits: Edits,
        durability: Durability,
    ) -> Result<Vec<Updated>> {
        // Attachments before the bodies that name them; compaction sweeps away attachments without one.
        let _attaching = self
            .attaching
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        for document in documents {
            self.write_attachments(document)?;
        }
        let updated = self.update_in_order(documents, edits)?;
        if durability == Durability::PowerLoss {
            self.db.sync()?;
        }
        Ok(updated)
    }

    fn update_in_order(&self, documents: &[Document], edits: Edits) -> Result<Vec<Updated>> {
        let mut state = self.lock();
        let mut updated = Vec::with_capacity(documents.len());
        let mut pending = Pending::new(*state);
        for document in documents {
            match self.apply(document, edits, &mut pending) {
                Err(error @ (Error::Engine(_) | Error::Damaged { .. })) => return Err(error),
                outcome => updated.push(outcome),
            }
            if pending.batch.byte_len() >= BATCH_BYTES {
                self.commit(&mut state, pending.state, pending.batch)?;
                pending = Pending::new(*state);
            }
        }
        if !pending.batch.is_empty() {
            self.commit(&mut state, pending.state, pending.batch)?;
        }
        Ok(updated)
    }

    fn apply(&self, document: &Document, edits: Edits, pending: &mut Pending) -> Updated {
        check_id(&document.id)?;
        let head = match pending.heads.remove(&document.id) {
            Some(head) => head,
            None => decode_head(&document.id, self.db.get(&keys::head(&document.id))?)?
                .unwrap_or_default(),
        };
        let planned = match edits {
            Edits::Interactive => self.plan_interactive(document, &head, pending),
            Edits::Replicated => self.plan_replicated(document, &head, pending),
        };
        match planned {
            Ok(plan) if head.tree.stored(&plan.path[0]).is_some() => {
                // Known already.
                pending.heads.insert(document.id.clone(), head);
                Ok(plan.path[0].clone())
            }
            Ok(plan) => self.grow(document, head, plan, pending),
            Err(error) => {
                pending.heads.insert(document.id.clone(), head);
                Err(error)
            }
        }
    }

    /// What an interactive update does, if it updates a leaf.
    fn plan_interactive(
        &self,
        document: &Document,
        head: &Head,
        pending: &Pending,
    ) -> Result<Plan> {
        let winner = head.tree.winner();
        let parent = match (&document.revision, winner) {
            (None, None) => None,
            // What was deleted is created again on top of its deletion.
            (None, Some(winner)) if winner.deleted => Some(winner.revision.clone()),
            (None, Some(_)) | (Some(_), None) => return Err(Error::Conflict),
            (Some(revision), Some(_)) => {
                let is_leaf = |leaf: &crate::tree::Leaf<'_>| leaf.revision == revision;
                if !head.tree.leaves().iter().any(is_leaf) {
                    return Err(Error::Conflict);
                }
                Some(revision.clone())
            }
        };
        let generation = parent.as_ref().map_or(0, |parent| parent.generation) + 1;
        let attachments = self.attachments(
            document,
            parent.as_ref(),
            Edits::Interactive,
            generation,
            pending,
        )?;
        let digest = digest_of(document, parent.as_ref(), &attachments);
        let mut path = vec![Revision::digest(generation, digest)];
        if let Some(parent) = &parent {
            path.extend(head.tree.path(parent).into_iter().cloned());
        }
        Ok(Plan { path, attachments })
    }

    fn plan_replicated(&self, document: &Document, head: &Head, pending: &Pending) -> Result<Plan> {
        let path = document.replicated_path()?;
        let known = path[1..]
            .iter()
            .find(|it| matches!(head.tree.stored(it), Some(Some(_))));
        let attachments = self.attachments(
            document,
            known,
            Edits::Replicated,
            path[0].generation,
            pending,
        )?;
        Ok(Plan { path, attachments })
    }

    /// What is stored of a document's attachments; stubs take theirs from the revision `parent`.
    fn attachments(
        &self,
        document: &Document,
        parent: Option<&Revision>,
        edits: Edits,
        generation: u64,
        pending: &Pending,
    ) -> Result<Vec<AttachmentInfo>> {
        let earlier = match parent {
            Some(parent) if document.has_stubs() => {
                self.pending_body(&document.id, parent, pending)?
            }
            _ => Body::default(),
        };
        let info = |attachment: &crate::attachment::Attachment| match &attachment.content {
            Given::Bytes(bytes) => {
                let revpos = attachment.revpos.filter(|_| edits == Edits::Replicated);
                Ok(AttachmentInfo {
                    name: attachment.name.clone(),
                    content_type: attachment.content_type.clone(),
                    revpos: revpos.unwrap_or(generation),
                    digest: ContentDigest::of(bytes),
                    length: bytes.len() as u64,
                })
            }
            Given::Follows(_) => {
                let reason = format!("The bytes of attachment {} are missing", attachment.name);
                Err(Error::BadRequest(reason.into()))
            }
            Given::Stub => {
                let mut known = earlier.attachments.iter();
                let found = known.find(|it| it.name == attachment.name);
                found.cloned().ok_or_else(|| Error::MissingStub {
                    id: document.id.clone(),
                    name: attachment.name.clone(),
                })
            }
        };
        document.attachments.iter().map(info).collect()
    }

    /// Adds the revision to the document and puts all that follows from it into the batch.
    fn grow(
        &self,
        document: &Document,
        mut head: Head,
        plan: Plan,
        pending: &mut Pending,
    ) -> Updated {
        let id = &document.id;
        let sequence = self.clock.next();
        let before = head
            .tree
            .winner()
            .map(|leaf| (leaf.revision.clone(), leaf.deleted));
        let stored = Stored {
            sequence,
            deleted: document.deleted,
        };
        let merged = head.tree.merge(&plan.path, stored);
        assert_ne!(merged, Merged::Known, "known revisions are answered before");
        let limit = usize::try_from(pending.state.revs_limit).unwrap_or(usize::MAX);
        for forgotten in head.tree.stem(limit) {
            self.delete_pending_body(pending, id, &forgotten)?;
        }
        let revision = plan.path[0].clone();
        let body = Body {
            attachments: plan.attachments,
            text: document.body.clone(),
        };
        let winner = winner_of(&head.tree);
        if winner.0 == revision {
            head.fields = FieldTable::of(&body.text);
        } else if before
            .as_ref()
            .is_none_or(|(before, _)| *before != winner.0)
        {
            let body = self.pending_body(id, &winner.0, pending)?;
            head.fields = pending.refreshed_fields(id, &winner.0, body);
        }
        pending.put_body(id, &revision, body);
        pending
            .state
            .count(before.map(|(_, deleted)| deleted), Some(winner.1));
        pending.move_change(id, head.sequence, sequence);
        head.sequence = sequence;
        pending.batch.put(&keys::head(id), &head.encode());
        self.index_document(id, &head, pending)?;
        pending.heads.insert(id.clone(), head);
        Ok(revision)
    }

    fn write_attachments(&self, document: &Document) -> Result<()> {
        for attachment in &document.attachments {
            let Given::Bytes(bytes) = &attachment.content else {
                continue;
            };
            let digest = ContentDigest::of(bytes);
            for (place, part) in bytes.chunks(PART_BYTES).enumerate() {
                self.db.put(&keys::attachment(digest, place as u32), part)?;
            }
        }
        Ok(())
    }
}

/// What an update adds to a document.
struct Plan {
    /// Its revision and the ancestors', newest first.
    path: Vec<Revision>,
    attachments: Vec<AttachmentInfo>,
}

/// Updates that are decided and not yet written.
pub(super) struct Pending {
    pub(super) state: State,
    pub(super) batch: WriteBatch,
    heads: HashMap<String, Head>,
    /// By their keys.
    pub(super) bodies: HashMap<Vec<u8>, Body>,
    /// The keys of documents' entries in indexes.
    pub(super) entries: HashMap<String, Vec<Vec<u8>>>,
}

impl Pending {
    pub(super) fn new(state: State) -> Self {
        Self {
            state,
            batch: WriteBatch::new(),
            heads: HashMap::new(),
            bodies: HashMap::new(),
            entries: HashMap::new(),
        }
    }

    /// The fields of the body of `revision`, which has become the winner.
    pub(super) fn refreshed_fields(
        &mut self,
        id: &str,
        revision: &Revision,
        body: Body,
    ) -> FieldTable {
        let fields = FieldTable::of(&body.text);
        if body.is_in_pieces() {
            // An earlier version may have kept it whole.
            self.put_body(id, revision, body);
        }
        fields
    }

    fn put_body(&mut self, id: &str, revision: &Revision, body: Body) {
        bodies::put_body(&mut self.batch, id, revision, &body);
        self.bodies.insert(keys::body(id, revision), body);
    }

    /// Moves the change of document `id` from `before` (0: it has none) to `sequence`, the latest.
    pub(super) fn move_change(&mut self, id: &str, before: u64, sequence: u64) {
        if before > 0 {
            self.batch.delete(&keys::change(before));
        }
        self.batch.put(&keys::change(sequence), id.as_bytes());
        self.state.sequence = sequence;
    }
}

impl State {
    /// Counts a document that was there (deleted or not) and is.
    pub(super) fn count(&mut self, before: Option<bool>, after: Option<bool>) {
        match before {
            Some(true) => self.deleted -= 1,
            Some(false) => self.documents -= 1,
            None => {}
        }
        match after {
            Some(true) => self.deleted += 1,
            Some(false) => self.documents += 1,
            None => {}
        }
    }
}

fn winner_of(tree: &RevisionTree) -> (Revision, bool) {
    let winner = tree.winner().expect("a tree that has grown has a leaf");
    (winner.revision.clone(), winner.deleted)
}

/// Names a revision by all that makes it up.
fn digest_of(
    document: &Document,
    parent: Option<&Revision>,
    attachments: &[AttachmentInfo],
) -> [u8; 16] {
    let mut parts = vec![u8::from(document.deleted), u8::from(parent.is_some())];
    if let Some(parent) = parent {
        parent.put(&mut parts);
    }
    for attachment in attachments {
        attachment.put(&mut parts);
    }
    let mut digest = Md5::new();
    digest.update(&parts);
    digest.update(&document.body);
    digest.finalize().into()
}
