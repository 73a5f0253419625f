//! Validation of updates by the functions of design documents, before they are written.
//!
//! Every design document with `validate_doc_update` is asked about every update but those of design and local documents.
//! Design documents must compile instead. An interactive update is judged beside the leaf that it names: if another
//! update takes that leaf's place meanwhile, the write is a conflict, so nothing is written that was not judged.
//!
//! Functions are compiled once and kept until a design document changes. A thread has them for itself while it judges.

use super::{Database, update::LOCAL};
use crate::document::Document;
use crate::error::{Error, Result};
use crate::json::{Json, quote};
use crate::render::{Rendering, render, revisions};
use crate::revision::Revision;
use crate::shard::{Edits, Opened};
use crate::views::{DesignDocument, DesignFunctions, Limits, PREFIX};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sets of compiled functions that wait for the next update.
const IDLE_MAX: usize = 2;

/// Who asks for updates, as validations see it.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// The context of the user, as JSON.
    pub user: &'a str,
    /// The security object of the database, as JSON.
    pub security: &'a str,
}

/// The functions of one moment.
struct Compiled {
    /// Changes of design documents before they were read.
    generation: u64,
    functions: Vec<DesignFunctions>,
}

/// Compiled functions of a database.
#[derive(Default)]
pub(super) struct Validators {
    /// Changes of design documents so far.
    generation: AtomicU64,
    idle: Mutex<Vec<Compiled>>,
}

impl Validators {
    /// Notes that a design document was changed.
    pub(super) fn note_change(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Drops what waits.
    pub(super) fn clear(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Compiled>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, generation: u64) -> Option<Compiled> {
        let mut idle = self.idle();
        idle.retain(|compiled| compiled.generation == generation);
        idle.pop()
    }

    fn give_back(&self, compiled: Compiled) {
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(compiled);
        }
    }
}

impl Database {
    /// Judges `document` before it is written as `edits` by `caller`.
    ///
    /// # Errors
    /// [`Error::Forbidden`], [`Error::Unauthorized`] and the others of [`DesignFunctions::validate`];
    /// [`Error::Conflict`] if it names no leaf; of a design document, as [`DesignDocument::parse`] and
    /// [`DesignDocument::check`]; [`Error::NoDatabase`], [`Error::Engine`], [`Error::Damaged`].
    pub fn validate(
        &self,
        document: &Document,
        edits: Edits,
        caller: Caller<'_>,
        limits: Limits,
    ) -> Result<()> {
        if document.id.starts_with(PREFIX) {
            if document.deleted {
                return Ok(());
            }
            let design = DesignDocument::parse(&document.id, &document.body)?;
            if !self.is_partitioned && design.wants_partitions() {
                let reason = "partitioned option cannot be true in a non-partitioned database.";
                return Err(Error::BadRequest(reason.into()));
            }
            return design.check(limits);
        }
        if document.id.starts_with(LOCAL) {
            return Ok(());
        }
        // Read before the design documents: a change in between leaves nothing old to be used again.
        let generation = self.validators.generation.load(Ordering::SeqCst);
        let mut compiled = match self.validators.take(generation) {
            Some(compiled) => compiled,
            None => Compiled {
                generation,
                functions: self.compile(limits)?,
            },
        };
        let judged = self.judge(&mut compiled.functions, document, edits, caller);
        // A sandbox that ran out of time or memory is not used again.
        if !matches!(judged, Err(Error::Script(_))) {
            self.validators.give_back(compiled);
        }
        judged
    }

    fn compile(&self, limits: Limits) -> Result<Vec<DesignFunctions>> {
        let mut functions = Vec::new();
        for design in self.designs()? {
            let design = DesignDocument::parse(&design.id, &design.body)?;
            if design.validates() {
                functions.push(DesignFunctions::new(&design, limits)?);
            }
        }
        Ok(functions)
    }

    fn judge(
        &self,
        functions: &mut [DesignFunctions],
        document: &Document,
        edits: Edits,
        caller: Caller<'_>,
    ) -> Result<()> {
        if functions.is_empty() {
            return Ok(());
        }
        let path = match edits {
            Edits::Replicated => document.replicated_path()?,
            Edits::Interactive => document.revision.iter().cloned().collect(),
        };
        let before = match edits {
            Edits::Replicated if self.is_known(&document.id, &path)? => return Ok(()),
            Edits::Replicated => self.nearest(&document.id, &path[1..])?,
            Edits::Interactive => self.named_leaf(&document.id, path.first())?,
        };
        let rendering = Rendering {
            revisions: true,
            ..Rendering::default()
        };
        let before = before.map(|opened| render(&document.id, &opened, &rendering));
        let text = text_of(document, &path);
        functions.iter_mut().try_for_each(|functions| {
            functions.validate(&text, before.as_deref(), caller.user, caller.security)
        })
    }

    /// Whether the revision of a replicated update is here already: it was judged when it came.
    fn is_known(&self, id: &str, path: &[Revision]) -> Result<bool> {
        let (missing, _) = self.missing_revisions(id, &path[..1])?;
        Ok(missing.is_empty())
    }

    /// The first of `ancestors` that is stored.
    fn nearest(&self, id: &str, ancestors: &[Revision]) -> Result<Option<Opened>> {
        for ancestor in ancestors {
            match self.open_revision(id, ancestor) {
                Err(Error::NotFound(_)) => {}
                opened => return opened.map(Some),
            }
        }
        Ok(None)
    }

    fn named_leaf(&self, id: &str, named: Option<&Revision>) -> Result<Option<Opened>> {
        let Some(named) = named else {
            return Ok(None);
        };
        match self.open_revision(id, named) {
            Ok(opened) if opened.tree.leaves().iter().any(|it| it.revision == named) => {
                Ok(Some(opened))
            }
            Ok(_) | Err(Error::NotFound(_)) => Err(Error::Conflict),
            Err(error) => Err(error),
        }
    }
}

/// The JSON of a document that is to be written, with the revisions of `path`.
fn text_of(document: &Document, path: &[Revision]) -> String {
    let mut text = format!("{{\"_id\":{}", quote(&document.id));
    if let Some(revision) = path.first() {
        text.extend([",\"_rev\":", &quote(&revision.to_string())]);
    }
    if document.deleted {
        text.push_str(",\"_deleted\":true");
    }
    for (name, value) in Json::new(&document.body).members() {
        text.extend([",", name, ":", value.text()]);
    }
    let path: Vec<&Revision> = path.iter().collect();
    text.extend([",\"_revisions\":", &revisions(&path)]);
    if !document.attachments.is_empty() {
        let stubs = document.attachments.iter().map(|attachment| {
            let [name, media] = [&attachment.name, &attachment.content_type].map(|it| quote(it));
            format!("{name}:{{\"content_type\":{media},\"stub\":true}}")
        });
        let stubs: Vec<String> = stubs.collect();
        text.extend([",\"_attachments\":{", &stubs.join(","), "}"]);
    }
    text.push('}');
    text
}
