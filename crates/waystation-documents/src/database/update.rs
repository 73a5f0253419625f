//! Updates of a database: each document goes to the shard of its identifier.

use super::part::each;
use super::{Database, Shards};
use crate::document::Document;
use crate::error::{Error, Result};
use crate::revision::{Revision, RevisionId};
use crate::shard::{Edits, Updated};
use std::sync::atomic::Ordering;
use waystation::Durability;

/// What identifiers of local documents begin with.
pub(super) const LOCAL: &str = "_local/";

impl Database {
    /// Writes `documents`, local ones too, each of which succeeds or fails by itself; all survive what `durability` says
    /// when it returns. Updates of one document happen in their order.
    ///
    /// # Errors
    /// [`Error::NoDatabase`]; [`Error::Engine`] if the engine refuses: then some of the updates may have been written.
    pub fn update(
        &self,
        documents: Vec<Document>,
        edits: Edits,
        durability: Durability,
    ) -> Result<Vec<Updated>> {
        let design = documents.iter().find(|it| it.id.starts_with("_design/"));
        let design = design.map(|it| it.id.clone());
        let updated = self.update_shards(documents, edits, durability);
        // When the update is there, even if only a part of it: an earlier reader would have read the old definitions.
        if let Some(id) = design {
            self.note_design(&id);
        }
        updated
    }

    fn update_shards(
        &self,
        documents: Vec<Document>,
        edits: Edits,
        durability: Durability,
    ) -> Result<Vec<Updated>> {
        let shards = self.shards()?;
        let mut updated: Vec<Option<Updated>> = Vec::new();
        updated.resize_with(documents.len(), || None);
        let mut places: Vec<Vec<usize>> = vec![Vec::new(); shards.len()];
        let mut parts: Vec<Vec<Document>> = vec![Vec::new(); shards.len()];
        for (place, document) in documents.into_iter().enumerate() {
            if let Some(name) = document.id.strip_prefix(LOCAL) {
                updated[place] = Some(update_local(&shards, name, &document, durability));
                continue;
            }
            let number = shards.number_of(&document.id);
            places[number].push(place);
            parts[number].push(document);
        }
        let given = shards.iter().zip(parts);
        let given = given.filter(|(_, documents)| !documents.is_empty());
        let outcomes = each(given, |part, documents| {
            part.update(documents, edits, durability)
        })?;
        let places = places.into_iter().filter(|places| !places.is_empty());
        for (places, outcomes) in places.zip(outcomes) {
            for (place, outcome) in places.into_iter().zip(outcomes) {
                updated[place] = Some(outcome);
            }
        }
        let answered = |outcome: Option<Updated>| outcome.expect("every document has an outcome");
        Ok(updated.into_iter().map(answered).collect())
    }

    /// Writes one document.
    ///
    /// # Errors
    /// As [`Database::update`], and what the update itself failed of.
    pub fn update_one(&self, document: Document, edits: Edits, durability: Durability) -> Updated {
        let outcome = self.update(vec![document], edits, durability)?.pop();
        outcome.expect("a document has an outcome")
    }

    /// Remembers that indexes and validations may have changed, if `id` is a design document's.
    pub(super) fn note_design(&self, id: &str) {
        if id.starts_with("_design/") {
            self.indexes_are_stale.store(true, Ordering::SeqCst);
            self.validators.note_change();
        }
    }
}

fn update_local(
    shards: &Shards<'_>,
    name: &str,
    document: &Document,
    durability: Durability,
) -> Updated {
    if name.is_empty() {
        return Err(Error::IllegalId("Illegal document id `_local/`".into()));
    }
    let version = document.revision.as_ref().map(version_of).transpose()?;
    let shard = shards.of(name);
    if document.deleted {
        shard.delete_local(name, version)?;
        return Ok(local_revision(0));
    }
    let version = shard.put_local(name, version, &document.body, durability)?;
    Ok(local_revision(version))
}

/// The revision of a local document that was written `version` times.
pub(super) fn local_revision(version: u64) -> Revision {
    Revision {
        generation: 0,
        id: RevisionId::Text(version.to_string().into()),
    }
}

fn version_of(revision: &Revision) -> Result<u64> {
    let version = match &revision.id {
        RevisionId::Text(text) if revision.generation == 0 => text.parse().ok(),
        _ => None,
    };
    version.ok_or_else(|| Error::BadRequest("Invalid rev format".into()))
}
