//! Scans: documents in the order of their identifiers, by what a selector asks of them.
//!
//! A scan reads heads. A field that stands in a head's table costs nothing more; for another one the body is read,
//! once, and of its text no more is checked than the field. So a filter on top-level scalars reads tens of bytes of a document, however large it is.

use super::record::{Lookup, StoredBody, StoredHead};
use super::{Opened, Shard, Version, keys};
use crate::error::{Error, Result};
use crate::json::{Json, Kind, quote};
use crate::mango::{Fields, Selector};
use crate::partition::partition_of;
use crate::revision::Revision;
use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use waystation::{DbIterator, IterOptions, Snapshot};

/// What a scan goes through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says one thing of the way"
)]
pub struct ScanOptions {
    /// The identifier that comes first; `None`: from the beginning.
    pub from: Option<String>,
    /// Go on behind `from`, and not at it.
    pub is_behind: bool,
    /// The identifier that comes last; `None`: to the end.
    pub to: Option<String>,
    /// End before `to`, and not at it.
    pub is_before: bool,
    /// From the highest identifier to the lowest; `from` is then above `to`.
    pub descending: bool,
    /// Documents that were deleted, too.
    pub deleted: bool,
}

/// What a scan has cost so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScanStats {
    /// Documents whose head was read.
    pub examined: u64,
    /// Documents of which the body was read, too.
    pub bodies: u64,
    /// Bytes of heads and bodies.
    pub bytes: u64,
}

impl ScanStats {
    /// Adds what another scan has cost.
    pub(crate) fn add(&mut self, more: Self) {
        self.examined += more.examined;
        self.bodies += more.bodies;
        self.bytes += more.bytes;
    }
}

/// A document that a scan has come to. Its fields are read when they are asked for.
pub struct StoredDocument<'a> {
    source: &'a Source<'a>,
    id: String,
    revision: Revision,
    head: StoredHead,
    /// The record of the head.
    head_bytes: Cow<'a, [u8]>,
    /// As JSON.
    quoted_id: OnceCell<String>,
    quoted_revision: OnceCell<String>,
    quoted_partition: OnceCell<Option<String>>,
    body: OnceCell<StoredBody>,
    whole: OnceCell<String>,
    failure: RefCell<Option<Error>>,
}

impl StoredDocument<'_> {
    /// Its identifier.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its winning revision.
    pub fn revision(&self) -> &Revision {
        &self.revision
    }

    /// The winner's body, in canonical text.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn body(&self) -> Result<&str> {
        let text = self.read_body()?.text();
        text.map_err(|error| self.damaged(&error))
    }

    /// The document whole.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn opened(&self) -> Result<Opened> {
        let body = self.read_body()?;
        let stored = self.head.tree.stored(&self.revision).flatten();
        Ok(Opened {
            version: Version {
                revision: self.revision.clone(),
                deleted: stored.is_some_and(|stored| stored.deleted),
                sequence: stored.map_or(0, |stored| stored.sequence),
                body: self.body()?.to_owned(),
                attachments: body.attachments.clone(),
            },
            tree: self.head.tree.clone(),
        })
    }

    /// The error of a record of this document that is not as it should be.
    fn damaged(&self, reason: &dyn std::fmt::Display) -> Error {
        Error::damaged(format!("document {}", self.id), reason)
    }

    fn read_body(&self) -> Result<&StoredBody> {
        if let Some(body) = self.body.get() {
            return Ok(body);
        }
        let key = keys::body(&self.id, &self.revision);
        let bytes = self.source.shard.db.get_at(&key, &self.source.snapshot)?;
        let length = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        self.source.count(ScanStats {
            bodies: 1,
            bytes: length,
            ..ScanStats::default()
        });
        let bytes = bytes.ok_or_else(|| self.damaged(&"a body is missing"))?;
        let body = StoredBody::read(bytes).map_err(|error| self.damaged(&error))?;
        Ok(self.body.get_or_init(|| body))
    }

    /// What was read for a selector, which takes no errors: they are kept for the end of the match.
    fn kept<T>(&self, read: Result<T>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(error) => {
                self.failure.borrow_mut().get_or_insert(error);
                None
            }
        }
    }

    fn text(&self) -> Option<&str> {
        self.kept(self.body())
    }

    fn quoted_id(&self) -> &str {
        self.quoted_id.get_or_init(|| quote(&self.id))
    }

    /// The partition in its identifier, for indexes of partitioned databases.
    fn quoted_partition(&self) -> Option<&str> {
        let quoted = || partition_of(&self.id).map(quote);
        self.quoted_partition.get_or_init(quoted).as_deref()
    }

    fn quoted_revision(&self) -> &str {
        let quoted = || quote(&self.revision.to_string());
        self.quoted_revision.get_or_init(quoted)
    }

    /// Whether `selector` matches it.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn is_matched_by(&self, selector: &Selector) -> Result<bool> {
        let is_match = selector.matches(self);
        self.check().map(|()| is_match)
    }

    /// Whether all fields that were asked for could be read.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub(super) fn check(&self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl Fields for StoredDocument<'_> {
    fn field(&self, name: &str) -> Option<Json<'_>> {
        match name {
            "_id" => return Some(Json::new(self.quoted_id())),
            "_rev" => return Some(Json::new(self.quoted_revision())),
            "_partition" => return self.quoted_partition().map(Json::new),
            _ => {}
        }
        let found = self.head.find(&self.head_bytes, name);
        let found = found.map_err(|error| self.damaged(&error));
        match self.kept(found)? {
            Lookup::Here(text) => Some(Json::new(text)),
            Lookup::InBody(offset, length) => {
                let body = self.kept(self.read_body())?;
                let value = body.slice(offset, length);
                let value = value.map_err(|error| self.damaged(&error));
                self.kept(value).map(Json::new)
            }
            Lookup::Absent => None,
            Lookup::Unknown => Json::new(self.text()?).member(name),
        }
    }

    fn whole(&self) -> Json<'_> {
        let whole = self.whole.get_or_init(|| {
            let body = self.text().unwrap_or("{}");
            let rest = body.trim_start_matches('{');
            let comma = if rest == "}" { "" } else { "," };
            let (id, revision) = (self.quoted_id(), self.quoted_revision());
            format!("{{\"_id\":{id},\"_rev\":{revision}{comma}{rest}")
        });
        debug_assert_eq!(Json::new(whole).kind(), Kind::Object);
        Json::new(whole)
    }

    fn is_object(&self) -> bool {
        true
    }
}

/// What a scan reads from, as it stood when the scan began.
pub(super) struct Source<'a> {
    shard: &'a Shard,
    pub(super) snapshot: Snapshot,
    stats: Cell<ScanStats>,
}

impl<'a> Source<'a> {
    pub(super) fn new(shard: &'a Shard) -> Self {
        Self {
            shard,
            snapshot: shard.db.snapshot(),
            stats: Cell::default(),
        }
    }

    pub(super) fn stats(&self) -> ScanStats {
        self.stats.get()
    }

    fn count(&self, more: ScanStats) {
        let mut stats = self.stats.get();
        stats.add(more);
        self.stats.set(stats);
    }

    /// The head of document `id` in an index.
    pub(super) fn read_head(&self, id: &str) -> Result<Vec<u8>> {
        let bytes = self.shard.db.get_at(&keys::head(id), &self.snapshot)?;
        bytes.ok_or_else(|| {
            Error::damaged(
                format!("document {id}"),
                "an index names it, and it is missing",
            )
        })
    }

    /// Reads the head `bytes` of the document `id`, with its winner, and whether that deletes the document.
    pub(super) fn read(&self, id: &str, bytes: &[u8]) -> Result<(StoredHead, Revision, bool)> {
        let damaged =
            |reason: &dyn std::fmt::Display| Error::damaged(format!("document {id}"), reason);
        self.count(ScanStats {
            examined: 1,
            bytes: bytes.len() as u64,
            ..ScanStats::default()
        });
        let head = StoredHead::read(bytes).map_err(|error| damaged(&error))?;
        let winner = head.tree.winner();
        let winner = winner.ok_or_else(|| damaged(&"it has no revision"))?;
        let (revision, deleted) = (winner.revision.clone(), winner.deleted);
        Ok((head, revision, deleted))
    }

    /// The document `id` with what was read of its head.
    pub(super) fn document<'b>(
        &'b self,
        id: String,
        head_bytes: Cow<'b, [u8]>,
        (head, revision): (StoredHead, Revision),
    ) -> StoredDocument<'b> {
        StoredDocument {
            source: self,
            id,
            revision,
            head,
            head_bytes,
            quoted_id: OnceCell::new(),
            quoted_revision: OnceCell::new(),
            quoted_partition: OnceCell::new(),
            body: OnceCell::new(),
            whole: OnceCell::new(),
            failure: RefCell::new(None),
        }
    }
}

/// A scan through a shard in the order of identifiers.
pub struct Scan<'a> {
    source: Source<'a>,
    entries: DbIterator,
    /// Whether the entry at which the scan stands was returned.
    is_taken: bool,
    deleted: bool,
    descending: bool,
}

impl Shard {
    /// Begins a scan.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub fn scan(&self, options: &ScanOptions) -> Result<Scan<'_>> {
        let source = Source::new(self);
        let bound = |id: &String, is_after: bool| {
            let mut key = keys::head(id);
            if is_after {
                key.push(0);
            }
            key
        };
        let (from, to) = (options.from.as_ref(), options.to.as_ref());
        let mut engine_options = IterOptions::prefix([keys::HEAD]);
        engine_options.snapshot = Some(source.snapshot.clone());
        if options.descending {
            engine_options.lower = to.map(|id| bound(id, options.is_before));
            engine_options.upper = from.map(|id| bound(id, !options.is_behind));
        } else {
            engine_options.lower = from.map(|id| bound(id, options.is_behind));
            engine_options.upper = to.map(|id| bound(id, !options.is_before));
        }
        let mut entries = self.db.iter(engine_options)?;
        if options.descending {
            entries.seek_to_last()?;
        } else {
            entries.seek_to_first()?;
        }
        Ok(Scan {
            source,
            entries,
            is_taken: false,
            deleted: options.deleted,
            descending: options.descending,
        })
    }
}

impl Scan<'_> {
    /// The next document; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn next_document(&mut self) -> Result<Option<StoredDocument<'_>>> {
        let (id, head) = loop {
            if std::mem::replace(&mut self.is_taken, true) && self.entries.valid() {
                if self.descending {
                    self.entries.prev()?;
                } else {
                    self.entries.next()?;
                }
            }
            if !self.entries.valid() {
                return Ok(None);
            }
            let id = keys::id_of(self.entries.key());
            let id = id.ok_or_else(|| Error::damaged("a document", "it has no identifier"))?;
            let (head, revision, deleted) = self.source.read(&id, self.entries.value())?;
            if self.deleted || !deleted {
                break (id, (head, revision));
            }
        };
        let bytes = Cow::Borrowed(self.entries.value());
        Ok(Some(self.source.document(id, bytes, head)))
    }

    /// What it has cost so far.
    pub fn stats(&self) -> ScanStats {
        self.source.stats()
    }
}
