//! Scans: documents in the order of their identifiers, by what a selector asks of them.
//!
//! A scan reads heads. A field that stands in a head's table costs nothing more; for another one a short body is read,
//! once, and of its text no more is checked than the field; of a long body, its outline and the pieces that have the field.
//! So a filter on top-level scalars mostly reads tens of bytes of a document, and one on any other field some kilobytes,
//! however large it is.

use super::outline::{Outline, Span, Way};
use super::record::{Lookup, PIECE_BYTES, StoredBody, StoredHead, StoredText};
use super::{Opened, Shard, Version, keys};
use crate::error::{Error, Result};
use crate::json::{Json, Kind, member_of_run, quote};
use crate::mango::{Fields, Selector};
use crate::partition::partition_of;
use crate::revision::Revision;
use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use waystation::{DbIterator, IterOptions, Snapshot};

/// So many parts of a body in pieces are read by themselves; then all of it is.
const PARTS_MAX: usize = 8;

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
    /// Documents of which the body, or a part of it, was read, too.
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
    outline: OnceCell<Outline>,
    /// Parts that were read of a body in pieces.
    parts: [OnceCell<String>; PARTS_MAX],
    /// All of it.
    text: OnceCell<String>,
    /// Whether anything of the body was read.
    is_body_read: Cell<bool>,
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
        match &self.read_body()?.text {
            StoredText::Pieces { length } => self.read_all(*length),
            here @ StoredText::Here { .. } => here.all().map_err(|error| self.damaged(&error)),
        }
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
        let (shard, snapshot) = (self.source.shard, &self.source.snapshot);
        let body = shard.stored_body_at(&self.id, &self.revision, snapshot)?;
        match &body.text {
            StoredText::Here { record, .. } => self.count_body(record.len()),
            StoredText::Pieces { .. } => {}
        }
        Ok(self.body.get_or_init(|| body))
    }

    fn read_outline(&self) -> Result<&Outline> {
        if let Some(outline) = self.outline.get() {
            return Ok(outline);
        }
        let (shard, snapshot) = (self.source.shard, &self.source.snapshot);
        let (outline, bytes) = shard.outline_at(&self.id, &self.revision, snapshot)?;
        self.count_body(bytes);
        Ok(self.outline.get_or_init(|| outline))
    }

    /// Reads what stands at `span` in a body in pieces.
    fn read_pieces(&self, span: Span) -> Result<&str> {
        if self.text.get().is_none() {
            let mut parts = self.parts.iter();
            if let Some(part) = parts.find(|part| part.get().is_none()) {
                let text = self.read_text(span)?;
                return Ok(part.get_or_init(|| text));
            }
        }
        let part = self
            .body()?
            .get(span.offset..span.offset.saturating_add(span.length));
        part.ok_or_else(|| self.damaged(&"a field lies outside of the body"))
    }

    /// All of a body in pieces, which has `length` bytes.
    fn read_all(&self, length: usize) -> Result<&str> {
        if let Some(text) = self.text.get() {
            return Ok(text);
        }
        let text = self.read_text(Span { offset: 0, length })?;
        Ok(self.text.get_or_init(|| text))
    }

    fn read_text(&self, span: Span) -> Result<String> {
        let (shard, snapshot) = (self.source.shard, &self.source.snapshot);
        let text = shard.text_at(&self.id, &self.revision, span, snapshot)?;
        self.count_body(text.len());
        Ok(text)
    }

    /// Notes that so many `bytes` of the body were read.
    fn count_body(&self, bytes: usize) {
        self.source.count(ScanStats {
            bodies: u64::from(!self.is_body_read.replace(true)),
            bytes: bytes as u64,
            ..ScanStats::default()
        });
    }

    /// Goes along `steps` in a body in pieces, by its outline.
    fn go_in_pieces(&self, steps: &[impl AsRef<str>]) -> Result<(Option<Json<'_>>, usize)> {
        let way = self.read_outline()?.way(steps);
        let way = way.ok_or_else(|| self.damaged(&"its outline is of no object"))?;
        let (step, runs) = match way {
            Way::Object(span) => {
                let text = self.read_pieces(span)?;
                return Ok((Some(Json::new(text)), steps.len()));
            }
            Way::Runs { step, runs } => (step, runs),
        };
        for (span, member) in runs {
            let run = self.read_pieces(span)?;
            if let Some(value) = member_of_run(run, member, steps[step].as_ref()) {
                return Ok((Some(value), step + 1));
            }
        }
        Ok((None, step + 1))
    }

    /// The value of a field at `offset` of the body, which is so long.
    fn value_at(&self, offset: usize, length: usize) -> Result<Json<'_>> {
        if self.head.is_of_pieces {
            return self.read_pieces(Span { offset, length }).map(Json::new);
        }
        let value = self.read_body()?.text.slice(offset, length);
        value.map(Json::new).map_err(|error| self.damaged(&error))
    }

    /// As [`Fields::go`], but for the fields that are not of the body.
    fn go_in_body(&self, steps: &[impl AsRef<str>]) -> Result<(Option<Json<'_>>, usize)> {
        let Some(name) = steps.first() else {
            return Ok((None, 0));
        };
        let name = name.as_ref();
        let found = self.head.find(&self.head_bytes, name);
        let found = match found.map_err(|error| self.damaged(&error))? {
            Lookup::Here(text) => Some(Json::new(text)),
            Lookup::Absent => None,
            Lookup::Unknown if self.head.is_of_pieces => return self.go_in_pieces(steps),
            Lookup::Unknown => Json::new(self.body()?).member(name),
            // The outline knows the way through a long value.
            Lookup::InBody(_, length)
                if self.head.is_of_pieces && steps.len() > 1 && length > PIECE_BYTES =>
            {
                return self.go_in_pieces(steps);
            }
            Lookup::InBody(offset, length) => Some(self.value_at(offset, length)?),
        };
        Ok((found, 1))
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
        self.kept(self.go_in_body(&[name]))?.0
    }

    fn go(&self, steps: &[String]) -> (Option<Json<'_>>, usize) {
        match steps {
            [name, _, ..] if !name.starts_with('_') => {
                self.kept(self.go_in_body(steps)).unwrap_or((None, 1))
            }
            steps => (steps.first().and_then(|name| self.field(name)), 1),
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
            is_body_read: Cell::new(false),
            outline: OnceCell::new(),
            parts: Default::default(),
            text: OnceCell::new(),
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
